"""Every scenario that the simulated cluster can play comes out as its rows expect, judged in one call."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from simulated_scenarios import ALL, FIT, UNFIT, look_alikes, played

from floodmark.harness import catalog
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario_runs import Played, options_of
from floodmark.harness.errors import UnfitCluster
from floodmark.harness.verdict import Verdict
from floodmark.nemesis.expectations import differences

pytestmark = pytest.mark.spark

# `make teeth` plays all look-alikes.
ROWS = {part.title: part for part in (*FIT, *look_alikes()[::4])}
REFUSED = {part.title: part for part in ALL if part.scenario.name in UNFIT}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Played, Verdict]]:
    """title -> the play and its verdict."""
    found = played(list(ROWS.values()), tmp_path_factory.mktemp("simulated"))
    return {one.part.title: (one, verdict) for one, verdict in found}


@pytest.mark.parametrize("title", ROWS)
def test_it_is_found_as_its_row_says(title: str, outcomes: Mapping[str, tuple[Played, Verdict]]) -> None:
    """Every moment comes, the harm of the rules is found by name, and the correct rules do no harm; nor does
    an older rule that is no bug."""
    one, verdict = outcomes[title]

    assert one.why is None
    assert differences(ROWS[title].row, verdict) == []


@pytest.mark.parametrize("title", REFUSED)
def test_what_does_not_fit_is_refused_with_its_reason(title: str, tmp_path: Path) -> None:
    """Before anything is played."""
    part = REFUSED[title]

    with pytest.raises(UnfitCluster, match=UNFIT[part.scenario.name]):
        planned(options_of(part, catalog.SIMULATED, tmp_path), part.scenario.schedule)
