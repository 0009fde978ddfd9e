"""Every scenario comes out on the simulated cluster as its rows expect, judged in one call; each known-bad
rule has its row."""

from collections.abc import Mapping

import pytest
from simulated_scenarios import ALL, LOOK_ALIKE, look_alikes, played

from floodmark.broker.protocol.rules import GENERATIONS, SWITCHES
from floodmark.broker.testing.bugs import BUGS
from floodmark.harness.pipeline import Played
from floodmark.harness.verdict import Verdict
from floodmark.nemesis.scenario import differences

pytestmark = pytest.mark.spark

# `make teeth` plays all look-alikes.
ROWS = {part.title: part for part in (*ALL, *look_alikes()[::8])}
# In no run a finding: an ISR has a member that cannot be elected (golden/controller.txt); a retry comes six
# batches late, or a consumer resets its position, which our clients do not do (golden/replica.txt).
IN_NO_RUN = {"alter_no_fence", "stale_isr_batch", "seq_gap_ok", "oor_above_hw"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Played, Verdict]]:
    """title -> the play and its verdict."""
    found = played(list(ROWS.values()), tmp_path_factory.mktemp("simulated"))
    return {one.play.title: (one, verdict) for one, verdict in found}


@pytest.mark.parametrize("title", ROWS)
def test_it_is_found_as_its_row_says(title: str, outcomes: Mapping[str, tuple[Played, Verdict]]) -> None:
    """Every moment comes, the harm of the rules is found by name, and the correct rules do no harm; nor does
    an older rule that is no bug."""
    one, verdict = outcomes[title]

    assert one.why is None
    assert differences(ROWS[title].row, verdict) == []


def test_every_known_bad_rule_and_every_generation_has_its_row() -> None:
    """And each switch that is no bug is used by some row."""
    rows = [part.row for part in ALL]

    shown = {bug for row in rows if not row.control for bug in row.bugs}
    assert shown | IN_NO_RUN == set(BUGS)
    assert not shown & IN_NO_RUN
    assert {row.rules for row in rows} == set(GENERATIONS)
    assert {switch for row in rows for switch in row.switches} | {LOOK_ALIKE} == set(SWITCHES)
