"""Every scenario comes out on the simulated cluster as its rows expect, judged in one call."""

from collections.abc import Mapping

import pytest
from simulated_scenarios import ALL, look_alikes, played

from floodmark.harness.commands.scenario_runs import Played
from floodmark.harness.verdict import Verdict
from floodmark.nemesis.expectations import differences

pytestmark = pytest.mark.spark

# `make teeth` plays all look-alikes.
ROWS = {part.title: part for part in (*ALL, *look_alikes()[::4])}


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
