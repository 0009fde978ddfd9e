"""Every scenario that a cluster in memory can play comes out there as its rows say, judged in one call."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from floodmark.harness import catalog
from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario_runs import Part, Played, options_of, play
from floodmark.harness.errors import UnfitCluster
from floodmark.harness.verdict import Verdict
from floodmark.nemesis.expectations import differences
from floodmark.nemesis.scenario import shipped

pytestmark = pytest.mark.spark

MEMORY = "memory"
UNFIT = {"retry-after-failover": "no addresses"}  # scenario -> of the reason why it does not fit
ALL = {
    part.title: part
    for scenario in shipped(scenario_words())
    for part in (Part(scenario=scenario, row=row) for row in scenario.rows)
}
FIT = {title: part for title, part in ALL.items() if part.scenario.name not in UNFIT}
AT_ONCE = 8  # clusters in one process: while one waits the others go on


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Played, Verdict]]:
    """title -> how it was played, and what the judge says."""
    parent = tmp_path_factory.mktemp("memory")
    plays = play(list(FIT.values()), MEMORY, parent, at_once=AT_ONCE, say=lambda _: None)
    verdicts = catalog.judge().judge([played.folder for played in plays])
    return {
        played.part.title: (played, verdict) for played, verdict in zip(plays, verdicts, strict=True)
    }


@pytest.mark.parametrize("title", FIT)
def test_it_is_found_as_its_row_says(title: str, outcomes: Mapping[str, tuple[Played, Verdict]]) -> None:
    """Every moment comes, the harm of the rules is found by name, and the correct rules come to none."""
    played, verdict = outcomes[title]

    assert played.why is None
    assert differences(FIT[title].row, verdict) == []


@pytest.mark.parametrize("title", [title for title, part in ALL.items() if part.scenario.name in UNFIT])
def test_what_does_not_fit_is_refused_with_its_reason(title: str, tmp_path: Path) -> None:
    """Before anything is played."""
    part = ALL[title]

    with pytest.raises(UnfitCluster, match=UNFIT[part.scenario.name]):
        planned(options_of(part, MEMORY, tmp_path), part.scenario.schedule)
