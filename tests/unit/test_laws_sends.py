"""The order of sends (checkers.laws.sends): each breach of it beside what is none."""

from typing import Any

import pytest
from unit_rows import GREATEST, found

from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.permits import BUDGET, RETRIES, UNCLEAN
from floodmark.checkers.laws.sends import sends
from floodmark.checkers.laws.values import values

REALTIME, LATER, INSIDE = "realtime-order", "nonmonotonic-send", "int-nonmonotonic-send"
Send = dict[str, Any]


def send(value: int, offset: int | None, invoked: int, done: int, process: int = 0, **more: Any) -> Send:
    """One ok send; `lost`: its record is in no log, else it is in the leader's."""
    return {"value": value, "offset": offset, "invoked": invoked, "done": done, "process": process, **more}


def judged(
    *each: Send, reads: list[Send] | None = None, overlapping: tuple[int, ...] = (), **partition: Any
) -> list[dict[str, Any]]:
    lines, entries = [], []
    for one in each:
        kept = {key: one[key] for key in ("value", "process")} | {"pos": one.get("pos", 0)}
        lines.append({**kept, "at": one["invoked"], "index": one["invoked"], "type": "invoke"})
        told = {"index": one["done"], "type": one.get("type", "ok"), "offset": one["offset"]}
        lines.append({**kept, "at": one["done"], **told})
        if one["offset"] is not None and not one.get("lost"):
            entries.append({"value": one["value"], "offset": one["offset"]})
    findings = found(
        [log, values, sends],
        sends=lines,
        reads=reads or (),
        entries=sorted(entries, key=lambda entry: entry["offset"]),
        replicas=[{"leads": True, "complete": False, "leo": GREATEST}],
        partitions=[partition],
        processes=[{"process": process, "overlaps": True} for process in overlapping],
    )
    return [one for one in findings if one["name"] in (REALTIME, LATER, INSIDE)]


def test_a_send_after_an_ack_gets_a_higher_offset() -> None:
    """Two processes; what was still open when it was invoked may be higher."""
    first, open_still = send(1, 5, 0, 1), send(1, 5, 0, 3)
    second = send(2, 4, 2, 4, process=1)

    assert judged(open_still, second) == []
    assert judged(first, second) == [
        {"name": REALTIME, "partition": 0, "offset": 4, "value": 2, "seen": 5, "process": 1, "ops": [1, 2, 4]}
    ]


def test_it_is_held_against_the_highest_before() -> None:
    """One finding a send, however many were higher, whatever came between."""
    each = (send(1, 5, 0, 1, 1), send(2, 7, 2, 3, 2), send(3, 6, 4, 5, 3), send(4, 4, 6, 7, 4))

    findings = judged(*each)

    assert [(one["value"], one["seen"], one["ops"]) for one in findings] == [
        (4, 7, [3, 6, 7]), (3, 7, [3, 4, 5])
    ]  # fmt: skip


def test_a_later_op_of_a_process_gets_a_higher_offset() -> None:
    findings = judged(send(1, 5, 0, 1), send(2, 4, 2, 3))

    assert [(one["name"], one["ops"]) for one in findings] == [(LATER, [1, 2, 3]), (REALTIME, [1, 2, 3])]


def test_without_an_offset_in_the_ack_a_read_tells_it() -> None:
    """If it was read at one offset; real time is held against acks alone."""
    at_4, at_9 = {"value": 2, "offset": 4, "index": 9}, {"value": 2, "offset": 9, "index": 9}
    each = send(1, 5, 0, 1), send(2, None, 2, 3)

    assert [one["name"] for one in judged(*each, reads=[at_4])] == [LATER]
    assert judged(*each, reads=[at_9]) == []
    assert judged(*each, reads=[at_4, at_9]) == []
    assert judged(*each) == []


def test_inside_an_op_each_send_gets_a_higher_offset() -> None:
    """Those of one line, in its order; what another op of that process got is no matter of this law."""
    each = [send(1, 5, 0, 1, pos=0), send(2, 4, 0, 1, pos=1)]

    assert judged(*each) == [
        {"name": INSIDE, "partition": 0, "offset": 4, "value": 2, "seen": 5, "process": 0, "ops": [1, 0]}
    ]
    assert judged(send(1, 4, 0, 1, pos=0), send(2, 5, 0, 1, pos=1)) == []


@pytest.mark.parametrize("kind", ["fail", "info"])
def test_only_ok_sends_are_in_an_order(kind: str) -> None:
    assert judged(send(1, 5, 0, 1, type=kind), send(2, 4, 2, 3)) == []


def test_two_ops_at_once_are_in_no_order() -> None:
    """Of that process; one line has an order all the same."""
    inside = [send(3, 9, 4, 5, pos=0), send(4, 8, 4, 5, pos=1)]

    findings = judged(send(1, 5, 0, 1), send(2, 4, 2, 3), *inside, overlapping=(0,))

    assert [one["name"] for one in findings] == [INSIDE]


def test_a_value_that_was_sent_twice_has_no_send_of_its_own() -> None:
    lines = [
        {"value": 1, "index": 0, "type": "invoke"}, {"value": 1, "index": 1, "type": "ok", "offset": 5},
        {"value": 2, "index": 2, "type": "invoke"}, {"value": 2, "index": 3, "type": "ok", "offset": 4},
    ]  # fmt: skip

    assert found([log, values, sends], sends=lines, repeated=[{"value": 1}]) == []
    assert len(found([log, values, sends], sends=lines)) == 2


@pytest.mark.parametrize(
    ("lost", "permit"),
    [
        ((), None),
        ((3,), BUDGET),  # its own record
        ((1,), None),  # one of the two higher ones
        ((1, 2), BUDGET),
        ((2,), None),
    ],
)
def test_it_follows_from_a_permitted_loss(lost: tuple[int, ...], permit: int | None) -> None:
    """Of its own record, or of all that were higher."""
    each = [
        send(number, offset, 2 * number, 2 * number + 1, process=number, lost=number in lost)
        for number, offset in ((1, 8), (2, 9), (3, 5))
    ]

    findings = judged(*each, budget_index=100)

    assert [(one["value"], one.get("permit")) for one in findings] == [(3, permit)]


def test_the_first_that_applies_is_named() -> None:
    """The send's own loss came by an unclean election, that of the higher one by the fault budget."""
    each = send(1, 9, 10, 11, process=1, lost=True), send(2, 5, 12, 13, process=2, lost=True)

    findings = judged(*each, budget_index=100, unclean_index=14)

    assert [one.get("permit") for one in findings] == [UNCLEAN]


def test_retries_permit_what_a_process_does_to_itself() -> None:
    """Not what two do in real time."""
    inside = [send(1, 5, 0, 1, pos=0), send(2, 4, 0, 1, pos=1)]
    across = [send(1, 5, 0, 1), send(2, 4, 2, 3)]

    assert [one["permit"] for one in judged(*inside, retried=True)] == [RETRIES]
    assert [(one["name"], one.get("permit")) for one in judged(*across, retried=True)] == [
        (LATER, RETRIES), (REALTIME, None)
    ]  # fmt: skip


def test_indexes_and_offsets_may_be_as_large_as_they_get() -> None:
    each = send(1, GREATEST, 0, GREATEST - 2), send(2, GREATEST - 1, GREATEST - 1, GREATEST)

    assert [one["seen"] for one in judged(*each)] == [GREATEST, GREATEST]
