"""What consumers were shown, in which order (checkers.laws.polls): each breach beside what is none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from unit_rows import GREATEST, LEAST, briefly, found_each

from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.permits import BUDGET, BUDGET_MAYBE, SUBSCRIBE, UNCLEAN
from floodmark.checkers.laws.polls import polls
from floodmark.checkers.laws.values import values

BACK, SKIP, INT_BACK, INT_SKIP = (
    "nonmonotonic-poll", "poll-skip", "int-nonmonotonic-poll", "int-poll-skip"
)  # fmt: skip
END = "end-offset-regressed"
Line = dict[str, Any]
WITHOUT_THE_LOG: Line = {"leader_known": False, "losses_judged": False}


def poll(*offsets: int, process: int = 5, kind: str = "ok", partition: int = 0, f: str = "poll") -> Line:
    """A poll or a txn that showed these; the value of every record is its offset."""
    return {"f": f, "process": process, "type": kind, "offsets": offsets, "partition": partition}


def assign(*partitions: int, f: str = "assign", process: int = 5, kind: str = "ok") -> Line:
    return {"f": f, "process": process, "type": kind, "assigned": partitions}


def crash(process: int = 5, kind: str = "info") -> Line:
    return {"f": "crash", "process": process, "type": kind}


def ends(*offsets: int, process: int = 5, kind: str = "ok") -> Line:
    return {"f": "list_offsets", "process": process, "type": kind, "ends": offsets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run whose lines are these, from line 10 on. The leader's log of partition 0 holds `ours`, but what
    was `lost`, and `entries`; lost records were acked, `acked` others were too."""

    lines: Sequence[Line]
    ours: Sequence[int] = range(10)
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
                tables["reads"].append({**base, "pos": pos, **row})
            tables["ends"] += [{**base, "offset": offset} for offset in line.get("ends", ())]
            tables["assigned"] += [{**base, "partition": key} for key in line.get("assigned", ())]
            if line["f"] in ("assign", "subscribe", "crash"):
                tables["moves"].append(base)
        tables["sends"] = [
            {"value": offset, "offset": None if kind == "invoke" else offset, "type": kind, "index": index}
            for offset in (*self.lost, *self.acked)
            for index, kind in enumerate(("invoke", "ok"))
        ]
        held = [{"value": offset, "offset": offset} for offset in self.ours if offset not in self.lost]
        tables["entries"] = [*held, *self.entries]
        tables["replicas"] = [{"leads": True, "complete": False, "leo": GREATEST}]
        tables["partitions"] = [self.partition, {"partition": 1}]
        tables["processes"] = [{"process": 5, "overlaps": True}] if self.overlaps else []
        return tables


def case(*lines: Line, ours: Sequence[int] = range(10), **more: Any) -> Case:
    """What is no field of Case is what may be claimed of partition 0."""
    own = {key: more.pop(key) for key in ("lost", "acked", "entries", "overlaps") if key in more}
    return Case(lines=lines, ours=ours, **own, partition=more)


def judged(*cases: Case) -> list[list[Line]]:
    """The findings of each."""
    findings = found_each([log, values, polls], [one.rows() for one in cases])
    return [[one for one in each if one["name"] != "malformed-log"] for each in findings]


def told(*cases: Case, keys: Sequence[str] = ("offset", "seen")) -> list[list[tuple[Any, ...]]]:
    """Of each finding its name and these."""
    return [briefly(each, *keys) for each in judged(*cases)]


def test_reads_that_follow_one_another() -> None:
    assert told(case(poll(0, 1), poll(2), poll(), poll(3, 4))) == [[]]


def test_a_poll_that_goes_back() -> None:
    """To what was read last, or below."""
    last, below = judged(case(poll(3, 4), poll(4)), case(poll(3, 4), poll(2, 3)))

    assert last == [
        {"name": BACK, "partition": 0, "offset": 4, "value": 4, "seen": 4, "process": 5, "ops": [10, 11]}
    ]
    assert briefly(below, "offset", "seen") == [(BACK, 2, 4)]


def test_a_poll_that_jumps() -> None:
    """It is a skip where a record of ours lies between."""
    lines, at_4 = (poll(3), poll(5)), {"offset": 4, "value": 4}
    skip, *none = judged(
        case(*lines),
        case(*lines, ours=(3, 5)),
        case(*lines, ours=(3, 5), entries=[{**at_4, "value": None}]),
        case(*lines, ours=(3, 5), entries=[{**at_4, "aborted": True}]),
        case(*lines, ours=(3, 5), entries=[{**at_4, "node": "n2"}]),
        case(*lines, ours=(3, 5), entries=[{**at_4, "partition": 1}]),
    )

    assert skip == [
        {"name": SKIP, "partition": 0, "offset": 5, "value": 5, "seen": 3, "process": 5, "ops": [10, 11]}
    ]
    assert none == [[], [], [], [], []]


def test_inside_a_poll() -> None:
    """One op is named; reads of another partition between change nothing."""
    back, skip, none = judged(
        case(poll(3, 3)),
        case(poll(3, 5, f="txn", kind="fail")),
        case(poll(3), poll(3, partition=1), poll(4), poll(4, partition=1)),
    )

    assert back == [
        {"name": INT_BACK, "partition": 0, "offset": 3, "value": 3, "seen": 3, "process": 5, "ops": [10]}
    ]
    assert briefly(skip, "offset", "seen") == [(INT_SKIP, 5, 3)]
    assert none == []


def test_what_the_op_itself_shows_is_not_passed_over() -> None:
    """Unless it failed, for then it was given back; and each record between must be shown."""
    assert told(
        case(poll(0), poll(2, 1)),
        case(poll(0), poll(3, 1)),
        case(poll(0), poll(3, 1, 1)),
        case(poll(0), poll(3, 1, 2)),
        case(poll(0), poll(2, 1, kind="fail")),
        case(poll(0, 3, 2, 2, 0)),
    ) == [
        [(INT_BACK, 1, 2)],
        [(INT_BACK, 1, 3), (SKIP, 3, 0)],
        [(INT_BACK, 1, 1), (INT_BACK, 1, 3), (SKIP, 3, 0)],
        [(INT_BACK, 1, 3)],
        [(INT_BACK, 1, 2), (SKIP, 2, 0)],
        [(INT_BACK, 0, 2), (INT_BACK, 2, 2), (INT_BACK, 2, 3), (INT_SKIP, 3, 0)],
    ]


def test_a_position_is_that_of_the_last_ok_poll() -> None:
    """Fail and info polls are held against it, and move nothing."""
    failed = poll(1, 2, kind="fail")

    assert told(
        case(poll(0), failed, poll(1)),
        case(poll(0), failed, poll(3)),
        case(poll(0, 1), failed),
        case(failed, poll(0)),
        case(poll(0), failed, failed, poll(0, 1), poll(2)),
        case(poll(0), poll(2, kind="info")),
    ) == [[], [(SKIP, 3, 0)], [(BACK, 1, 1)], [], [(BACK, 0, 0)], [(SKIP, 2, 0)]]


def test_processes_and_partitions_are_apart() -> None:
    assert told(case(poll(3), poll(0, process=6), poll(0, partition=1), poll(4))) == [[]]


@pytest.mark.parametrize("f", ["assign", "subscribe"])
def test_an_assign_forgets_what_it_does_not_keep(f: str) -> None:
    """A partition that every assign since has kept is where it was; only an ok one counts."""
    keep, drop = assign(0, 1, f=f), assign(1, f=f)
    forgotten = told(
        case(poll(3), drop, poll(3)),
        case(poll(3), drop, keep, poll(3)),
        case(poll(3), keep, drop, keep, poll(3)),
    )
    kept = told(
        case(poll(3), poll(3)),
        case(poll(3), keep, keep, poll(3)),
        case(drop, keep, poll(3), assign(0, 0, 1, f=f), poll(3)),
        case(poll(3), assign(1, f=f, kind="invoke"), poll(3)),
        case(poll(3), assign(1, f=f, kind="fail"), poll(3)),
        case(poll(3), assign(1, f=f, process=6), poll(3)),
    )

    assert forgotten == [[]] * 3
    assert kept == [[(BACK, 3, 3)]] * 6


@pytest.mark.parametrize(("kind", "wanted"), [("ok", []), ("fail", []), ("info", []), ("invoke", [BACK])])
def test_a_crash_forgets_every_position(kind: str, wanted: list[str]) -> None:
    """Once it is over, however it ended."""
    between, assigned, before, other = told(
        case(poll(3), crash(kind=kind), poll(3)),
        case(assign(0), poll(3), crash(kind=kind), poll(3)),
        case(crash(kind=kind), poll(3), poll(3)),
        case(poll(3), crash(kind=kind, process=6), poll(3)),
        keys=(),
    )

    assert between == assigned == [(name,) for name in wanted]
    assert before == other == [(BACK,)]


def test_a_process_with_overlapping_ops_takes_no_part() -> None:
    """What one op shows in itself it shows."""
    lines = poll(3), poll(3), poll(7), poll(8, 8), ends(2), ends(1)

    overlapping, alone = told(case(*lines, overlaps=True), case(*lines))

    assert overlapping == [(INT_BACK, 8, 8)]
    assert len(alone) == 5


def test_below_the_log_start_nothing_is_claimed() -> None:
    """Of a read there, and of records there that a jump passed over."""
    assert told(
        case(poll(3), poll(2), claims_from=3),
        case(poll(3), poll(3), claims_from=3),
        case(poll(1), poll(6), claims_from=6),
        case(poll(1), poll(6), claims_from=5),
    ) == [[], [(BACK, 3, 3)], [], [(SKIP, 6, 1)]]


def test_without_the_log_acks_and_reads_prove_records() -> None:
    """Not where these may have been compacted away; nor do acks that promised nothing."""
    lines, reader = (poll(3), poll(5)), poll(4, process=6, kind="fail")

    assert told(
        case(*lines, ours=(), **WITHOUT_THE_LOG),
        case(*lines, reader, ours=(), **WITHOUT_THE_LOG),
        case(*lines, ours=(), acked=[4], **WITHOUT_THE_LOG),
        case(*lines, ours=(), acked=[4], weak_acks=True, **WITHOUT_THE_LOG),
        case(*lines, reader, ours=(), acked=[4], compact=True, **WITHOUT_THE_LOG),
        case(poll(3, partition=2), poll(5, partition=2), poll(4, partition=2, process=6)),
    ) == [[], [(SKIP, 5, 3)], [(SKIP, 5, 3)], [], [], []]


def test_what_was_lost_with_leave_excuses() -> None:
    """A record that the jump passed over, or that lies between where the poll went back to and where it
    was; of two causes the one that the format names first."""
    jump, back = (poll(3), poll(7)), (poll(5, 6), poll(3))

    assert told(
        case(*jump, lost=[5], budget_index=1),
        case(*jump, lost=[3, 7], budget_index=1),
        case(*jump, lost=[5], budget_index=1, unclean_index=1),
        case(*jump, lost=[5]),
        case(*back, lost=[2], budget_index=1),
        case(*back, lost=[3], budget_index=1),
        case(*back, lost=[6], budget_index=1),
        case(*back, lost=[7], budget_index=1),
        keys=("permit",),
    ) == [
        [(SKIP, BUDGET)], [(SKIP, None)], [(SKIP, UNCLEAN)], [(SKIP, None)],
        [(BACK, None)], [(BACK, BUDGET)], [(BACK, BUDGET)], [(BACK, None)],
    ]  # fmt: skip


def test_nothing_excuses_what_one_op_shows() -> None:
    """Unless it passed over what only acks and reads prove."""
    assert told(
        case(poll(3, 7), poll(8, 8), lost=[5, 8], budget_index=1),
        case(poll(3, 7, 7), ours=(), lost=[5, 7], budget_index=1, **WITHOUT_THE_LOG),
        keys=("permit",),
    ) == [[(INT_BACK, None), (INT_SKIP, None)], [(INT_BACK, None), (INT_SKIP, BUDGET_MAYBE)]]


def test_a_group_may_rewind_and_skip() -> None:
    """If the process subscribed last; a crash changes nothing of that, and inside one op nothing may."""
    subscribe, back = assign(0, f="subscribe"), (poll(3), poll(3))

    assert told(
        case(subscribe, poll(3, 3), poll(3), poll(5)),
        case(subscribe, assign(0), *back),
        case(assign(0), assign(0, f="subscribe", kind="fail"), *back),
        case(subscribe, crash(), *back),
        case(assign(0, f="subscribe", process=6), *back),
        keys=("permit",),
    ) == [
        [(INT_BACK, None), (BACK, SUBSCRIBE), (SKIP, SUBSCRIBE)],
        [(BACK, None)], [(BACK, None)], [(BACK, SUBSCRIBE)], [(BACK, None)],
    ]  # fmt: skip


def test_an_end_that_falls() -> None:
    """Below the one told before; not below one before that, for since then it has risen."""
    rising, falling, *more = judged(
        case(ends(4), ends(4), ends(5)),
        case(ends(4), ends(3)),
        case(ends(9), ends(4), ends(5)),
        case(ends(9), ends(4, process=6), ends(4, kind="fail"), ends(8)),
    )

    assert rising == []
    assert falling == [{"name": END, "partition": 0, "offset": 3, "seen": 4, "process": 5, "ops": [10, 11]}]
    assert [briefly(each, "offset", "seen") for each in more] == [[(END, 4, 9)], [(END, 8, 9)]]


def test_an_end_is_above_what_was_read() -> None:
    """By polls of any outcome; the highest counts."""
    fits, low, *more = judged(
        case(poll(4, 3, kind="fail"), ends(5)),
        case(poll(4, 3, kind="fail"), ends(4)),
        case(ends(4), poll(4)),
        case(ends(4), poll(4), poll(5), ends(4)),
        case(poll(4, process=6), poll(4, partition=1), ends(4)),
    )

    assert [one["name"] for one in fits] == [INT_BACK]
    assert low[0] == {"name": END, "partition": 0, "offset": 4, "seen": 5, "process": 5, "ops": [11]}
    assert [briefly(each, "seen", "ops") for each in more] == [[], [(END, 6, [10, 13])], []]


def test_what_was_lost_with_leave_excuses_an_end() -> None:
    """If it lies from the end on, and below what was told or read before."""
    lines = ends(7), ends(4)

    assert told(
        *(case(*lines, lost=[lost], budget_index=1) for lost in (3, 4, 6, 7)), keys=("permit",)
    ) == [[(END, None)], [(END, BUDGET)], [(END, BUDGET)], [(END, None)]]


def test_any_number_may_stand_in_a_file() -> None:
    """Nothing overflows, and what is odd is found."""
    assert told(
        case(poll(GREATEST), poll(LEAST), poll(GREATEST), claims_from=LEAST),
        case(poll(LEAST), poll(LEAST), claims_from=LEAST),
        case(poll(GREATEST - 1, GREATEST), poll(GREATEST)),
        case(poll(GREATEST), ends(GREATEST), ends(LEAST)),
        case(ends(LEAST), ends(LEAST), claims_from=GREATEST),
        case(poll(GREATEST), poll(GREATEST), lost=[GREATEST], budget_index=1),
    ) == [
        [(BACK, LEAST, GREATEST), (SKIP, GREATEST, LEAST)],
        [(BACK, LEAST, LEAST)],
        [(BACK, GREATEST, GREATEST)],
        [(END, LEAST, GREATEST), (END, GREATEST, GREATEST)],
        [],
        [(BACK, GREATEST, GREATEST)],
    ]
