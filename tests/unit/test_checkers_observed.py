"""What each check needs that a system shows (run.json's `observes`): `explain`, and that more is
never worse. tests/corpus/observed.txt has the cases."""

from itertools import chain, combinations
from pathlib import Path

import pytest
import twin

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.read import observed
from floodmark.checkers.read.observed import Observes, observes_of
from floodmark.harness.commands.explain import explain_finding

NEEDED_EVENTS = {name: names.LAWS[name].needs - names.FILES for name in names.OF_THE_TRACE}
EVENTS = frozenset().union(*NEEDED_EVENTS.values())
OF_FILES = tuple(name for name, law in names.LAWS.items() if "dumps" in law.needs)


def test_every_check_of_the_trace_has_its_events() -> None:
    """And each is an event of the format's table."""
    format_events = {
        "append", "truncate", "hw", "become_leader", "become_follower", "fetch", "ack", "isr_proposed", "isr",
        "elect", "register", "fence", "unfence", "checkpoint", "crash", "start", "failpoint"}  # fmt: skip
    assert format_events >= EVENTS
    assert names.LOST_WRITE not in OF_FILES


def test_explain_says_what_a_check_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """For every check that may be not made, and nothing for the others."""
    for name in names.MADE:
        assert explain_finding(name) == 0
        output = capsys.readouterr().out
        assert ("  needs      " in output) == (name in {*OF_FILES, *NEEDED_EVENTS}), name
        for event in NEEDED_EVENTS.get(name, ()):
            assert event in output.split("  needs      ")[1], (name, event)


def test_with_more_observed_events_no_check_is_dropped() -> None:
    """And lost-write is always made."""
    events = sorted(EVENTS)
    for few in chain.from_iterable(combinations(events, number) for number in range(3)):
        less = observes_of({"observes": {"dumps": False, "trace": list(few)}})
        more = observes_of({"observes": {"dumps": False, "trace": [*few, "ack", "hw"]}})
        left_out = [{name for one in observed.not_made(each) for name in one.names} for each in (less, more)]
        assert left_out[1] <= left_out[0]
        assert names.LOST_WRITE not in left_out[0]
    assert observed.not_made(Observes()) == ()
    assert twin.judge(Path("/nowhere"))["not_made"] == []
