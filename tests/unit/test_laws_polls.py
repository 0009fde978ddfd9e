"""The laws about the order in which consumers read records (checkers.laws.polls): breaches and near misses.

All runs are judged in one unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unit_rows import GREATEST, LEAST, Batch, Run, briefly, each

from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.permits import BUDGET, BUDGET_MAYBE, SUBSCRIBE, UNCLEAN
from floodmark.checkers.laws.polls import polls
from floodmark.checkers.laws.values import values

BACK, SKIP, INT_BACK, INT_SKIP = (
    "nonmonotonic-poll", "poll-skip", "int-nonmonotonic-poll", "int-poll-skip"
)  # fmt: skip
END = "end-offset-regressed"
BATCH = Batch(log, values, polls)
Line = dict[str, Any]
WITHOUT_THE_LOG: Line = {"leader_known": False, "losses_judged": False}


def poll(*offsets: int, process: int = 5, kind: str = "ok", partition: int = 0, f: str = "poll") -> Line:
    """A poll or a txn that returned these offsets; the value of every record is its offset."""
    return {"f": f, "process": process, "type": kind, "offsets": offsets, "partition": partition}


def poll_by_turns(*offsets: int) -> Line:
    """A poll that returned these offsets of partition 0, and after each something of another partition."""
    return {**poll(*offsets), "apart": 2}


def assign(*partitions: int, f: str = "assign", process: int = 5, kind: str = "ok") -> Line:
    return {"f": f, "process": process, "type": kind, "assigned": partitions}


def crash(process: int = 5, kind: str = "info") -> Line:
    return {"f": "crash", "process": process, "type": kind}


def ends(*offsets: int, process: int = 5, kind: str = "ok") -> Line:
    return {"f": "list_offsets", "process": process, "type": kind, "ends": offsets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run with these lines, from line 10 on. The leader's log of partition 0 has the records of `logged`
    that are not in `lost`, and `entries`; the records of `lost` and `acked` were acked."""

    lines: Sequence[Line]
    logged: Sequence[int] = range(10)
    lost: Sequence[int] = ()
    acked: Sequence[int] = ()
    entries: Sequence[Line] = ()
    overlaps: bool = False
    partition: Line = field(default_factory=dict)

    def rows(self) -> dict[str, list[Line]]:
        tables: dict[str, list[Line]] = {name: [] for name in ("reads", "ends", "assigned", "moves")}
        for at, line in enumerate(self.lines, 10):
            base = {"at": at, "index": at, **{key: line[key] for key in ("f", "process", "type")}}
            for pos, offset in enumerate(line.get("offsets", ())):
                row = {"offset": offset, "value": offset, "partition": line["partition"]}
                tables["reads"].append({**base, "pos": pos * line.get("apart", 1), **row})
            tables["ends"] += [{**base, "offset": offset} for offset in line.get("ends", ())]
            tables["assigned"] += [{**base, "partition": key} for key in line.get("assigned", ())]
            if line["f"] in ("assign", "subscribe", "crash"):
                tables["moves"].append(base)
        tables["sends"] = [
            {"value": offset, "offset": None if kind == "invoke" else offset, "type": kind, "index": index}
            for offset in (*self.lost, *self.acked)
            for index, kind in enumerate(("invoke", "ok"))
        ]
        kept = [{"value": offset, "offset": offset} for offset in self.logged if offset not in self.lost]
        tables["entries"] = [*kept, *self.entries]
        tables["replicas"] = [{"leads": True, "complete": False, "leo": GREATEST}]
        tables["partitions"] = [self.partition, {"partition": 1}]
        tables["processes"] = [{"process": 5, "overlaps": True}] if self.overlaps else []
        return tables


def case(*lines: Line, logged: Sequence[int] = range(10), **more: Any) -> Run:
    """A run of the batch. What is no field of Case is a field of partition 0."""
    own = {key: more.pop(key) for key in ("lost", "acked", "entries", "overlaps") if key in more}
    return BATCH.add(**Case(lines=lines, logged=logged, **own, partition=more).rows())


def found(run: Run) -> list[Line]:
    return [one for one in run.findings() if one["name"] != "malformed-log"]


def brief(run: Run, *keys: str) -> list[tuple[Any, ...]]:
    """The name of each finding and these fields."""
    return briefly(found(run), *keys)


IN_A_ROW = case(poll(0, 1), poll(2), poll(), poll(3, 4))


def test_reads_of_consecutive_records_are_no_finding() -> None:
    assert found(IN_A_ROW) == []


BACK_TO_THE_LAST, BACK_BELOW = case(poll(3, 4), poll(4)), case(poll(3, 4), poll(2, 3))


def test_a_poll_that_goes_back_is_a_finding() -> None:
    """To the record read last, or below it."""
    assert found(BACK_TO_THE_LAST) == [
        {"name": BACK, "partition": 0, "offset": 4, "value": 4, "seen": 4, "process": 5, "ops": [10, 11]}
    ]
    assert brief(BACK_BELOW, "offset", "seen") == [(BACK, 2, 4)]


JUMP, AT_4 = (poll(3), poll(5)), {"offset": 4, "value": 4}
JUMP_OVER_A_RECORD = case(*JUMP)


def test_a_poll_that_jumps_over_a_record_of_ours_is_a_skip() -> None:
    assert found(JUMP_OVER_A_RECORD) == [
        {"name": SKIP, "partition": 0, "offset": 5, "value": 5, "seen": 3, "process": 5, "ops": [10, 11]}
    ]


@each("run", {
    "nothing": case(*JUMP, logged=(3, 5)),
    "a record of others": case(*JUMP, logged=(3, 5), entries=[{**AT_4, "value": None}]),
    "an aborted record": case(*JUMP, logged=(3, 5), entries=[{**AT_4, "aborted": True}]),
    "a record of a follower": case(*JUMP, logged=(3, 5), entries=[{**AT_4, "node": "n2"}]),
    "a record of another partition": case(*JUMP, logged=(3, 5), entries=[{**AT_4, "partition": 1}]),
})  # fmt: skip
def test_a_jump_over_anything_else_is_no_finding(run: Run) -> None:
    assert found(run) == []


BACK_INSIDE = case(poll(3, 3))
SKIP_INSIDE = case(poll(3, 5, f="txn", kind="fail"))
TWO_PARTITIONS_BY_TURNS = case(poll(3), poll(3, partition=1), poll(4), poll(4, partition=1))


WITHOUT_4 = [0, 1, 2, 3, 5, 6, 7, 8, 9]


@each("run, expected", {
    "to a record that is not in the log": (case(poll(3, 12)), [(INT_SKIP, 12, 3)]),
    "to the same, over nothing of ours": (case(poll(9, 12)), []),
    "from one that is not in the log": (case(poll(4, 6), logged=WITHOUT_4), [(INT_SKIP, 6, 4)]),
    "from the same, over nothing of ours": (case(poll(4, 5, 6), logged=WITHOUT_4), []),
    "by turns with another partition, over every other record": (
        case(poll_by_turns(0, 2, 4)), [(INT_SKIP, 2, 0), (INT_SKIP, 4, 2)]),
    "by turns with another partition, in a row": (case(poll_by_turns(0, 1, 2)), []),
    "over what is not ours": (case(poll(3, 5, 6), logged=WITHOUT_4), []),
    "over that, and over a record": (case(poll(3, 5, 7), logged=WITHOUT_4), [(INT_SKIP, 7, 5)]),
})  # fmt: skip
def test_jumps_inside_a_poll(run: Run, expected: list[Any]) -> None:
    """The number of a record in the log says what lies between, for every read that has one."""
    assert [one for one in brief(run, "offset", "seen") if one[0] == INT_SKIP] == expected


def test_inside_a_poll() -> None:
    """The finding names one op; reads of another partition in between change nothing."""
    assert found(BACK_INSIDE) == [
        {"name": INT_BACK, "partition": 0, "offset": 3, "value": 3, "seen": 3, "process": 5, "ops": [10]}
    ]
    assert brief(SKIP_INSIDE, "offset", "seen") == [(INT_SKIP, 5, 3)]
    assert found(TWO_PARTITIONS_BY_TURNS) == []


@each("run, expected", {
    "later in the op": (case(poll(0), poll(2, 1)), [(INT_BACK, 1, 2)]),
    "one of two": (case(poll(0), poll(3, 1)), [(INT_BACK, 1, 3), (SKIP, 3, 0)]),
    "one of two, twice": (
        case(poll(0), poll(3, 1, 1)), [(INT_BACK, 1, 1), (INT_BACK, 1, 3), (SKIP, 3, 0)]),
    "both": (case(poll(0), poll(3, 1, 2)), [(INT_BACK, 1, 3)]),
    "in an op that failed": (
        case(poll(0), poll(2, 1, kind="fail")), [(INT_BACK, 1, 2), (SKIP, 2, 0)]),
    "after a jump inside the op": (
        case(poll(0, 3, 2, 2, 0)),
        [(INT_BACK, 0, 2), (INT_BACK, 2, 2), (INT_BACK, 2, 3), (INT_SKIP, 3, 0)]),
})  # fmt: skip
def test_records_that_the_op_itself_returns_are_not_skipped(run: Run, expected: list[Any]) -> None:
    """Each record between must be returned. A failed op does not count: its records may be returned again."""
    assert brief(run, "offset", "seen") == expected


FAILED = poll(1, 2, kind="fail")


@each("run, expected", {
    "it repeats a failed poll": (case(poll(0), FAILED, poll(1)), []),
    "it goes on after a failed poll": (case(poll(0), FAILED, poll(3)), [(SKIP, 3, 0)]),
    "a failed poll goes back": (case(poll(0, 1), FAILED), [(BACK, 1, 1)]),
    "the first poll failed": (case(FAILED, poll(0)), []),
    "two failed polls between": (
        case(poll(0), FAILED, FAILED, poll(0, 1), poll(2)), [(BACK, 0, 0)]),
    "an info poll skips": (case(poll(0), poll(2, kind="info")), [(SKIP, 2, 0)]),
})  # fmt: skip
def test_the_position_is_that_of_the_last_ok_poll(run: Run, expected: list[Any]) -> None:
    """Fail and info polls are compared with it, and do not move it."""
    assert brief(run, "offset", "seen") == expected


OTHERS_BETWEEN = case(poll(3), poll(0, process=6), poll(0, partition=1), poll(4))


def test_each_process_has_its_own_position_in_each_partition() -> None:
    assert found(OTHERS_BETWEEN) == []


def keep(f: str, **more: Any) -> Line:
    return assign(0, 1, f=f, **more)


def drop(f: str, **more: Any) -> Line:
    return assign(1, f=f, **more)


@each("run", {
    f"{f}, {name}": run
    for f in ("assign", "subscribe")
    for name, run in {
        "without it": case(poll(3), drop(f), poll(3)),
        "without it, then with it": case(poll(3), drop(f), keep(f), poll(3)),
        "with it before and after": case(poll(3), keep(f), drop(f), keep(f), poll(3)),
    }.items()
})  # fmt: skip
def test_an_assign_without_a_partition_forgets_its_position(run: Run) -> None:
    assert found(run) == []


@each("run", {
    f"{f}, {name}": run
    for f in ("assign", "subscribe")
    for name, run in {
        "none": case(poll(3), poll(3)),
        "each keeps it": case(poll(3), keep(f), keep(f), poll(3)),
        "only before the first poll": case(drop(f), keep(f), poll(3), assign(0, 0, 1, f=f), poll(3)),
        "only invoked": case(poll(3), drop(f, kind="invoke"), poll(3)),
        "failed": case(poll(3), drop(f, kind="fail"), poll(3)),
        "by another process": case(poll(3), drop(f, process=6), poll(3)),
    }.items()
})  # fmt: skip
def test_a_position_stays_unless_an_ok_assign_since_then_leaves_the_partition_out(run: Run) -> None:
    assert brief(run, "offset", "seen") == [(BACK, 3, 3)]


@each("run, expected", {
    f"{kind}, {name}": (run, expected)
    for kind, forgotten in (("ok", []), ("fail", []), ("info", []), ("invoke", [BACK]))
    for name, run, expected in (
        ("between two polls", case(poll(3), crash(kind=kind), poll(3)), forgotten),
        ("with an assign before", case(assign(0), poll(3), crash(kind=kind), poll(3)), forgotten),
        ("before both polls", case(crash(kind=kind), poll(3), poll(3)), [BACK]),
        ("of another process", case(poll(3), crash(kind=kind, process=6), poll(3)), [BACK]),
    )
})  # fmt: skip
def test_a_completed_crash_forgets_every_position(run: Run, expected: list[str]) -> None:
    assert brief(run) == [(name,) for name in expected]


BROKEN = poll(3), poll(3), poll(7), poll(8, 8), ends(2), ends(1)
BROKEN_AND_OVERLAPPING, BROKEN_ONLY = case(*BROKEN, overlaps=True), case(*BROKEN)


def test_ops_of_a_process_that_overlaps_are_not_compared() -> None:
    """Reads inside one op are."""
    assert brief(BROKEN_AND_OVERLAPPING, "offset", "seen") == [(INT_BACK, 8, 8)]
    assert len(found(BROKEN_ONLY)) == 5


@each("run, expected", {
    "back to below": (case(poll(3), poll(2), claims_from=3), []),
    "back to the log start": (case(poll(3), poll(3), claims_from=3), [(BACK, 3, 3)]),
    "a jump up to it": (case(poll(1), poll(6), claims_from=6), []),
    "a jump over it": (case(poll(1), poll(6), claims_from=5), [(SKIP, 6, 1)]),
})  # fmt: skip
def test_below_the_log_start_nothing_is_claimed(run: Run, expected: list[Any]) -> None:
    """Neither about a read there, nor about records there that a jump passed over."""
    assert brief(run, "offset", "seen") == expected


OF_ANOTHER_PROCESS = poll(4, process=6, kind="fail")


@each("run, expected", {
    "neither": (case(*JUMP, logged=(), **WITHOUT_THE_LOG), []),
    "a read": (case(*JUMP, OF_ANOTHER_PROCESS, logged=(), **WITHOUT_THE_LOG), [(SKIP, 5, 3)]),
    "an ack": (case(*JUMP, logged=(), acked=[4], **WITHOUT_THE_LOG), [(SKIP, 5, 3)]),
    "an ack that promises nothing": (
        case(*JUMP, logged=(), acked=[4], weak_acks=True, **WITHOUT_THE_LOG), []),
    "both, in a compacted topic": (
        case(*JUMP, OF_ANOTHER_PROCESS, logged=(), acked=[4], compact=True, **WITHOUT_THE_LOG), []),
    "a read of an unknown partition": (
        case(poll(3, partition=2), poll(5, partition=2), poll(4, partition=2, process=6)), []),
})  # fmt: skip
def test_without_the_log_acks_and_reads_prove_records(run: Run, expected: list[Any]) -> None:
    assert brief(run, "offset", "seen") == expected


FAR_JUMP, FAR_BACK = (poll(3), poll(7)), (poll(5, 6), poll(3))


@each("run, expected", {
    "a jump over it": (case(*FAR_JUMP, lost=[5], budget_index=1), (SKIP, BUDGET)),
    "a jump from one to another": (case(*FAR_JUMP, lost=[3, 7], budget_index=1), (SKIP, None)),
    "of two causes the first": (
        case(*FAR_JUMP, lost=[5], budget_index=1, unclean_index=1), (SKIP, UNCLEAN)),
    "lost without a permit": (case(*FAR_JUMP, lost=[5]), (SKIP, None)),
    "back to above it": (case(*FAR_BACK, lost=[2], budget_index=1), (BACK, None)),
    "back to it": (case(*FAR_BACK, lost=[3], budget_index=1), (BACK, BUDGET)),
    "back from it": (case(*FAR_BACK, lost=[6], budget_index=1), (BACK, BUDGET)),
    "back from below it": (case(*FAR_BACK, lost=[7], budget_index=1), (BACK, None)),
})  # fmt: skip
def test_a_permitted_loss_permits_a_skip_and_a_step_back(run: Run, expected: tuple[Any, ...]) -> None:
    """If a jump passed over the lost record, or it is between the offset read and the position."""
    assert brief(run, "permit") == [expected]


@each("run, expected", {
    "with the log": (
        case(poll(3, 7), poll(8, 8), lost=[5, 8], budget_index=1), [(INT_BACK, None), (INT_SKIP, None)]),
    "without it": (
        case(poll(3, 7, 7), logged=(), lost=[5, 7], budget_index=1, **WITHOUT_THE_LOG),
        [(INT_BACK, None), (INT_SKIP, BUDGET_MAYBE)]),
})  # fmt: skip
def test_a_loss_does_not_permit_the_reads_inside_one_op(run: Run, expected: list[Any]) -> None:
    """Unless the op passed over a record that only acks and reads prove."""
    assert brief(run, "permit") == expected


SUBSCRIBE_LINE, TWICE_3 = assign(0, f="subscribe"), (poll(3), poll(3))


@each("run, expected", {
    "but not inside one op": (
        case(SUBSCRIBE_LINE, poll(3, 3), poll(3), poll(5)),
        [(INT_BACK, None), (BACK, SUBSCRIBE), (SKIP, SUBSCRIBE)]),
    "not after a later assign": (case(SUBSCRIBE_LINE, assign(0), *TWICE_3), [(BACK, None)]),
    "not if subscribe failed": (
        case(assign(0), assign(0, f="subscribe", kind="fail"), *TWICE_3), [(BACK, None)]),
    "after a crash too": (case(SUBSCRIBE_LINE, crash(), *TWICE_3), [(BACK, SUBSCRIBE)]),
    "not if another process subscribed": (
        case(assign(0, f="subscribe", process=6), *TWICE_3), [(BACK, None)]),
})  # fmt: skip
def test_a_process_that_subscribed_last_may_rewind_and_skip(run: Run, expected: list[Any]) -> None:
    assert brief(run, "permit") == expected


RISING = case(ends(4), ends(4), ends(5))
FALLING = case(ends(4), ends(3))
LOWER_THAN_THE_FIRST = case(ends(9), ends(4), ends(5))
FALLING_TO_8 = case(ends(9), ends(4, process=6), ends(4, kind="fail"), ends(8))


def test_an_end_that_falls_is_a_finding() -> None:
    """If it is below the last one returned; it may have risen since an earlier one."""
    assert found(RISING) == []
    assert found(FALLING) == [
        {"name": END, "partition": 0, "offset": 3, "seen": 4, "process": 5, "ops": [10, 11]}
    ]
    assert brief(LOWER_THAN_THE_FIRST, "offset", "seen") == [(END, 4, 9)]
    assert brief(FALLING_TO_8, "offset", "seen") == [(END, 8, 9)]


END_ABOVE_READ = case(poll(4, 3, kind="fail"), ends(5))
END_AT_READ = case(poll(4, 3, kind="fail"), ends(4))
READ_AFTER_END = case(ends(4), poll(4))
READ_BETWEEN_ENDS = case(ends(4), poll(4), poll(5), ends(4))
READ_BY_OTHERS = case(poll(4, process=6), poll(4, partition=1), ends(4))


def test_an_end_at_or_below_a_record_read_before_is_a_finding() -> None:
    """Polls of any outcome count; the highest offset is named."""
    assert brief(END_ABOVE_READ) == [(INT_BACK,)]
    assert found(END_AT_READ)[0] == {
        "name": END, "partition": 0, "offset": 4, "seen": 5, "process": 5, "ops": [11]}
    assert brief(READ_AFTER_END, "seen", "ops") == []
    assert brief(READ_BETWEEN_ENDS, "seen", "ops") == [(END, 6, [10, 13])]
    assert brief(READ_BY_OTHERS, "seen", "ops") == []


@each("run, permit", {
    f"a loss at {lost}": (case(ends(7), ends(4), lost=[lost], budget_index=1), permit)
    for lost, permit in ((3, None), (4, BUDGET), (6, BUDGET), (7, None))
})  # fmt: skip
def test_a_permitted_loss_permits_an_end_that_falls(run: Run, permit: int | None) -> None:
    """If the lost record is at or above the end, and below what was returned or read before."""
    assert brief(run, "permit") == [(END, permit)]


@each("run, expected", {
    "up and down": (
        case(poll(GREATEST), poll(LEAST), poll(GREATEST), claims_from=LEAST),
        [(BACK, LEAST, GREATEST), (SKIP, GREATEST, LEAST)]),
    "the lowest twice": (case(poll(LEAST), poll(LEAST), claims_from=LEAST), [(BACK, LEAST, LEAST)]),
    "the highest twice": (
        case(poll(GREATEST - 1, GREATEST), poll(GREATEST)), [(BACK, GREATEST, GREATEST)]),
    "an end at the highest": (
        case(poll(GREATEST), ends(GREATEST), ends(LEAST)),
        [(END, LEAST, GREATEST), (END, GREATEST, GREATEST)]),
    "below the log start": (case(ends(LEAST), ends(LEAST), claims_from=GREATEST), []),
    "the highest lost": (
        case(poll(GREATEST), poll(GREATEST), lost=[GREATEST], budget_index=1),
        [(BACK, GREATEST, GREATEST)]),
})  # fmt: skip
def test_the_lowest_and_highest_numbers_do_not_overflow(run: Run, expected: list[Any]) -> None:
    assert brief(run, "offset", "seen") == expected
