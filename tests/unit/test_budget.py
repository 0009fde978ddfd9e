"""What exceeds the fault budget: losses of power and disk, elections, failpoints armed beside them."""

from dataclasses import replace

import pytest

from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.moments import HEALTHY, After, FirstOf, InTurn, Moment
from floodmark.nemesis.budget import overspends


def lose(f: str = "disk", moment: Moment | None = HEALTHY, *nodes: str) -> Entry:
    args = {"kind": "wiped"} if f == "disk" else {}
    return Entry(f=f, nodes=nodes or ("n1",), moment=moment, args=args)


def arm(action: str = "crash") -> Entry:
    return Entry(f="arm", nodes=("n2",), args={"point": {"name": "F.appended", "action": action}})


RELEASE = Entry(f="release", nodes=("n2",))
START = Entry(f="start", nodes=("n1",))
WAIT = Entry(f="wait", moment=HEALTHY)


def cut(grudge: dict[str, list[str]]) -> Entry:
    return Entry(f="cut", args={"grudge": grudge})


@pytest.mark.parametrize("schedule", [
    (lose(), START, WAIT, lose(), START),
    (lose("power_cut", InTurn(of=(After(after_ns=5), HEALTHY))),),
    (lose("power_cut", FirstOf(of=(HEALTHY, HEALTHY))),),
    (arm(), RELEASE, lose()),
    (arm("report"), lose()),
    (lose(), START, WAIT, arm()),
    (lose(), cut({"n1": ["n2", "n3"]}), START),
], ids=repr)
def test_within_the_budget(schedule: tuple[Entry, ...]) -> None:
    """One loss at a time, the cluster healthy in between, no failpoint armed that could strike meanwhile."""
    assert overspends(schedule) == ()


@pytest.mark.parametrize(("schedule", "position", "reason"), [
    ((lose("disk", None),), 0, "a wiped disk that does not wait for a healthy cluster"),
    ((lose("power_cut", None),), 0, "a power cut that does not wait for a healthy cluster"),
    ((lose("disk", replace(HEALTHY, then_ns=5)),), 0, "does not wait for a healthy cluster"),
    ((lose("disk", FirstOf(of=(HEALTHY, After(after_ns=5)))),), 0, "healthy"),
    ((lose("disk", InTurn(of=(HEALTHY, After(after_ns=5)))),), 0, "healthy"),
    ((lose("disk", HEALTHY, "n1", "n2"),), 0, "2 nodes lose all their data together"),
    ((lose(), START, Entry(f="kill", nodes=("n2",))), 2, "kill strikes before the cluster"),
    ((lose(), START, arm()), 2, "arm strikes before the cluster"),
    ((lose(), cut({"n1": ["n2"], "n2": ["n1"]})), 1, "cut strikes before the cluster"),
    ((arm("hold"), lose()), 1, "the failpoint armed by entry 0 may strike before the loss is recovered"),
    ((arm(), Entry(f="release", nodes=("n2",), args={"point": {"name": "L.acked"}}), lose()), 2, "armed"),
    ((arm(), Entry(f="release", nodes=("n3",)), lose()), 2, "armed by entry 0"),
    ((arm(), replace(arm(), nodes=("n3",)), lose()), 2, "armed by entry 0"),
    ((Entry(f="elect", args={"leader": "n2", "unclean": True}),), 0, "an unclean election"),
], ids=repr)
def test_beyond_the_budget(schedule: tuple[Entry, ...], position: int, reason: str) -> None:
    """Each with its reason."""
    assert any(one.position == position and reason in one.why for one in overspends(schedule))


@pytest.mark.parametrize(("f", "overspent"), [("power_cut", False), ("disk", True)])
def test_fsynced_records_survive_a_power_cut_but_not_a_wiped_disk(f: str, overspent: bool) -> None:
    """With flush.messages=1, and no wait for health."""
    assert bool(overspends((lose(f, None),), flush_every=True)) is overspent
