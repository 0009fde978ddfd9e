"""The laws about the order of sends (checkers.laws.sends): breaches and near misses.

All runs are judged in one unit.
"""

from typing import Any

from unit_rows import GREATEST, Batch, Run, each

from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.permits import BUDGET, RETRIES, UNCLEAN
from floodmark.checkers.laws.sends import sends
from floodmark.checkers.laws.values import values

REALTIME, LATER, INSIDE = "realtime-order", "nonmonotonic-send", "int-nonmonotonic-send"
BATCH = Batch(log, values, sends)
Send = dict[str, Any]


def send(value: int, offset: int | None, invoked: int, done: int, process: int = 0, **more: Any) -> Send:
    """One ok send; `lost`: its record is in no log, else it is in the leader's."""
    return {"value": value, "offset": offset, "invoked": invoked, "done": done, "process": process, **more}


def case(
    *several: Send, reads: list[Send] | None = None, overlapping: tuple[int, ...] = (), **partition: Any
) -> Run:
    """A run with these sends."""
    lines, entries = [], []
    for one in several:
        kept = {key: one[key] for key in ("value", "process")} | {"pos": one.get("pos", 0)}
        lines.append({**kept, "at": one["invoked"], "index": one["invoked"], "type": "invoke"})
        answer = {"index": one["done"], "type": one.get("type", "ok"), "offset": one["offset"]}
        lines.append({**kept, "at": one["done"], **answer})
        if one["offset"] is not None and not one.get("lost"):
            entries.append({"value": one["value"], "offset": one["offset"]})
    return BATCH.add(
        sends=lines,
        reads=reads or (),
        entries=sorted(entries, key=lambda entry: entry["offset"]),
        replicas=[{"leads": True, "complete": False, "leo": GREATEST}],
        partitions=[partition],
        processes=[{"process": process, "overlaps": True} for process in overlapping],
    )


def found(run: Run) -> list[dict[str, Any]]:
    """The findings about the order of sends."""
    return [one for one in run.findings() if one["name"] in (REALTIME, LATER, INSIDE)]


SECOND = send(2, 4, 2, 4, process=1)
AFTER_THE_ACK, BEFORE_THE_ACK = case(send(1, 5, 0, 1), SECOND), case(send(1, 5, 0, 3), SECOND)


def test_a_send_after_an_ack_gets_a_higher_offset() -> None:
    """Of another process too; a send that was still open when it was invoked may have a higher one."""
    assert found(BEFORE_THE_ACK) == []
    assert found(AFTER_THE_ACK) == [
        {"name": REALTIME, "partition": 0, "offset": 4, "value": 2, "seen": 5, "process": 1, "ops": [1, 2, 4]}
    ]


BELOW_SEVERAL = case(send(1, 5, 0, 1, 1), send(2, 7, 2, 3, 2), send(3, 6, 4, 5, 3), send(4, 4, 6, 7, 4))


def test_a_send_is_compared_with_the_highest_before() -> None:
    """One finding for each send, however many were higher, whatever came between."""
    assert [(one["value"], one["seen"], one["ops"]) for one in found(BELOW_SEVERAL)] == [
        (4, 7, [3, 6, 7]), (3, 7, [3, 4, 5])
    ]  # fmt: skip


ACROSS = send(1, 5, 0, 1), send(2, 4, 2, 3)
LOWER_IN_A_LATER_OP = case(*ACROSS)


def test_a_later_op_of_a_process_gets_a_higher_offset() -> None:
    assert [(one["name"], one["ops"]) for one in found(LOWER_IN_A_LATER_OP)] == [
        (LATER, [1, 2, 3]), (REALTIME, [1, 2, 3])
    ]  # fmt: skip


NO_OFFSET = send(1, 5, 0, 1), send(2, None, 2, 3)
AT_4, AT_9 = {"value": 2, "offset": 4, "index": 9}, {"value": 2, "offset": 9, "index": 9}


@each("run, expected", {
    "read at a lower offset": (case(*NO_OFFSET, reads=[AT_4]), [LATER]),
    "read at a higher offset": (case(*NO_OFFSET, reads=[AT_9]), []),
    "read at both": (case(*NO_OFFSET, reads=[AT_4, AT_9]), []),
    "never read": (case(*NO_OFFSET), []),
})  # fmt: skip
def test_a_send_acked_without_an_offset_has_the_offset_of_its_read(run: Run, expected: list[str]) -> None:
    """If it was read at one offset only; the order in real time compares acks alone."""
    assert [one["name"] for one in found(run)] == expected


FALLING = send(1, 5, 0, 1, pos=0), send(2, 4, 0, 1, pos=1)
FALLING_INSIDE, RISING_INSIDE = case(*FALLING), case(send(1, 4, 0, 1, pos=0), send(2, 5, 0, 1, pos=1))


def test_inside_an_op_each_send_gets_a_higher_offset() -> None:
    """The sends of one line, in its order; this law does not compare them with other ops of the process."""
    assert found(FALLING_INSIDE) == [
        {"name": INSIDE, "partition": 0, "offset": 4, "value": 2, "seen": 5, "process": 0, "ops": [1, 0]}
    ]
    assert found(RISING_INSIDE) == []


@each("run", {
    kind: case(send(1, 5, 0, 1, type=kind), send(2, 4, 2, 3)) for kind in ("fail", "info")
})  # fmt: skip
def test_only_ok_sends_are_in_an_order(run: Run) -> None:
    assert found(run) == []


OVERLAPPING = case(*ACROSS, send(3, 9, 4, 5, pos=0), send(4, 8, 4, 5, pos=1), overlapping=(0,))


def test_overlapping_ops_of_a_process_are_in_no_order() -> None:
    """The sends inside one op still are."""
    assert [one["name"] for one in found(OVERLAPPING)] == [INSIDE]


LINES = [
    {"value": 1, "index": 0, "type": "invoke"}, {"value": 1, "index": 1, "type": "ok", "offset": 5},
    {"value": 2, "index": 2, "type": "invoke"}, {"value": 2, "index": 3, "type": "ok", "offset": 4},
]  # fmt: skip
SENT_TWICE, SENT_ONCE = BATCH.add(sends=LINES, repeated=[{"value": 1}]), BATCH.add(sends=LINES)


def test_a_value_that_was_sent_twice_is_left_out() -> None:
    assert SENT_TWICE.findings() == []
    assert len(SENT_ONCE.findings()) == 2


def three_sends(lost: tuple[int, ...]) -> Run:
    """The third has a lower offset than both before it."""
    return case(
        *(
            send(number, offset, 2 * number, 2 * number + 1, process=number, lost=number in lost)
            for number, offset in ((1, 8), (2, 9), (3, 5))
        ),
        budget_index=100,
    )


@each("run, permit", {
    "nothing lost": (three_sends(lost=()), None),
    "its own record": (three_sends(lost=(3,)), BUDGET),
    "the lower one of the two": (three_sends(lost=(1,)), None),
    "both": (three_sends(lost=(1, 2)), BUDGET),
    "the higher one of the two": (three_sends(lost=(2,)), None),
})  # fmt: skip
def test_a_permitted_loss_permits_a_lower_offset(run: Run, permit: int | None) -> None:
    """Of its own record, or of all that were higher."""
    assert [(one["value"], one.get("permit")) for one in found(run)] == [(3, permit)]


BOTH_LOST = case(
    send(1, 9, 10, 11, process=1, lost=True), send(2, 5, 12, 13, process=2, lost=True),
    budget_index=100, unclean_index=14,
)  # fmt: skip


def test_of_two_permits_the_first_is_named() -> None:
    """An unclean election permits the loss of the send itself, the fault budget that of the higher one."""
    assert [one.get("permit") for one in found(BOTH_LOST)] == [UNCLEAN]


RETRIED_INSIDE, RETRIED_ACROSS = case(*FALLING, retried=True), case(*ACROSS, retried=True)


def test_retries_permit_a_lower_offset_in_one_process() -> None:
    """Not in real time, between two processes."""
    assert [one["permit"] for one in found(RETRIED_INSIDE)] == [RETRIES]
    assert [(one["name"], one.get("permit")) for one in found(RETRIED_ACROSS)] == [
        (LATER, RETRIES), (REALTIME, None)
    ]  # fmt: skip


HIGHEST = case(send(1, GREATEST, 0, GREATEST - 2), send(2, GREATEST - 1, GREATEST - 1, GREATEST))


def test_the_highest_indexes_and_offsets_do_not_overflow() -> None:
    assert [one["seen"] for one in found(HIGHEST)] == [GREATEST, GREATEST]
