"""Six known bugs on real brokers: the right checks catch each, and none flags the correct broker."""

from collections.abc import Mapping

import pytest
from simulated_scenarios import ALL

from floodmark.harness import catalog
from floodmark.harness.commands.scenario import play
from floodmark.harness.pipeline import Played
from floodmark.harness.spec import RULES
from floodmark.harness.verdict import Verdict
from floodmark.nemesis.scenario import differences

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.spark]

BUGS = {  # scenario -> the bug it is played with; every scenario's control is played, too
    "ack-without-the-isr": "ack_on_append",
    "double-failover": "trunc_hw",
    "credited-in-an-earlier-epoch": "hw_any_epoch",
    "lossy-bounce": "no_epoch_bump_on_bounce",
    "epochs-forgotten": "forget_epoch",
    "retry-after-failover": "producer_state_leader_only",
    "double-failover-by-signals": None,  # without one: by nothing but signals and time
}
LATEST = RULES[-1]
PARTS = {
    part.title: part
    for part in ALL
    if part.scenario.name in BUGS
    and part.row.rules == LATEST
    and part.row.bugs in ((BUGS[part.scenario.name],), ())
    and not part.row.switches
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Played, Verdict]]:
    """title -> the play and its verdict; all runs are judged in one call."""
    parent = tmp_path_factory.mktemp("teeth")
    plays = play(list(PARTS.values()), "local", parent, at_once=2)
    verdicts = catalog.judge().judge([one.folder for one in plays])
    return {one.play.title: (one, verdict) for one, verdict in zip(plays, verdicts, strict=True)}


def test_each_bug_has_its_control() -> None:
    assert len(PARTS) == len(BUGS) + sum(bug is not None for bug in BUGS.values())


@pytest.mark.parametrize("title", PARTS)
def test_the_bug_is_caught_and_the_correct_broker_is_not(
    title: str, outcomes: Mapping[str, tuple[Played, Verdict]]
) -> None:
    """The bug's damage is found by name, as a bug of the broker; the same steps do no harm without the
    bug."""
    one, verdict = outcomes[title]

    assert one.why is None
    assert differences(PARTS[title].row, verdict) == []
    assert verdict.valid is PARTS[title].row.control
