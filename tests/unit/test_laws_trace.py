"""The laws about roles, HWs, acks and ISRs in the trace (checkers.laws.trace): breaches and near misses.

The runs of CASES are judged in one unit. Two more have the runs whose tables are compared.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from unit_rows import GREATEST, LEAST, briefly, each, found_each, table, tables_of

from floodmark.checkers.laws.trace.active_brokers import only_active
from floodmark.checkers.laws.trace.cluster_views import cluster_views
from floodmark.checkers.laws.trace.node_timeline import node_timeline
from floodmark.checkers.laws.trace.quorums import quorums
from floodmark.checkers.laws.trace.so_far import highest_row, last_not_after, last_row
from floodmark.checkers.laws.trace.trace_checks import trace_checks
from floodmark.checkers.laws.unit import Unit, opened

FAMILIES = node_timeline, trace_checks, cluster_views, quorums
ALL = ["n1", "n2", "n3"]
Line = dict[str, Any]


def line(node: str, event: str, **fields: Any) -> Line:
    return {"node": node, "event": event, **fields}


def append(node: str, offset: int, count: int = 1, role: str = "follower", **fields: Any) -> Line:
    usual = {"offset": offset, "count": count, "leo": min(offset + count, GREATEST), "role": role}
    return line(node, "append", **{**usual, **fields})


def ack(offset: int, **fields: Any) -> Line:
    end = min(offset + 1, GREATEST)
    usual = {"offset": offset, "hw": end, "leo": end, "isr": ALL, "acks": "all"}
    return line("n1", "ack", **{**usual, **fields})


def leader(node: str = "n1", **fields: Any) -> Line:
    return line(node, "become_leader", **{"isr": ALL, "start": 0, **fields})


def hw(node: str, high: int, **fields: Any) -> Line:
    return line(node, "hw", **{"hw": high, "role": "leader", "leo": max(high, 0), **fields})


def isr(*members: str, **fields: Any) -> Line:
    usual = {"leo": None, "hw": None, "isr": list(members), "leader": "n1"}
    return line("controller", "isr", **{**usual, **fields})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Lines in their order, 10 ns apart unless they have a time, each node's seq from 0; what is found: name,
    how, offset, nodes; fields of the row of `traced`."""

    lines: Sequence[Line]
    found: Sequence[tuple[Any, ...]] = ()
    traced: Line = field(default_factory=dict)

    def rows(self) -> dict[str, list[Line]]:
        seqs: dict[str, int] = {}
        rows = []
        for at, one in enumerate(self.lines):
            seqs[one["node"]] = seqs.get(one["node"], -1) + 1
            rows.append({"time": 10 * at, "seq": seqs[one["node"]], **one})
        active = [{"node": node, "since": -(1 << 61), "until": 1 << 61} for node in ALL]
        return {"trace": rows, "traced": [self.traced], "active_brokers": active}


STORED = [leader(), append("n1", 0, role="leader"), append("n2", 0), append("n3", 0)]
MEMBERS = [isr("n1", "n2"), leader(hw=0), append("n1", 0, 5, role="leader"), hw("n1", 3)]

CASES: dict[str, Case] = {
    # -- one node's own lines
    "the leader's HW falls": Case(
        lines=[leader(), hw("n1", 5), hw("n1", 4)], found=[("hw-regressed", None, 4, ["n1"])]
    ),
    "the leader's HW falls as far as numbers go": Case(
        lines=[leader(), hw("n1", GREATEST), hw("n1", LEAST)], found=[("hw-regressed", None, LEAST, ["n1"])]
    ),
    "the leader's HW falls in a new epoch": Case(lines=[leader(), hw("n1", 5), hw("n1", 4, epoch=1)]),
    "another node's HW is lower": Case(lines=[leader(), hw("n1", 5), hw("n2", 4, epoch=1)]),
    "the leader's HW stays": Case(lines=[leader(), hw("n1", 5), hw("n1", 5)]),
    "a role in an older epoch": Case(
        lines=[leader(epoch=3), line("n1", "become_follower", epoch=2), leader("n1", epoch=3)],
        found=[("epoch-regressed", "2", None, ["n1"])],
    ),
    "a role in an older epoch, after a start": Case(
        lines=[leader(epoch=3), line("n1", "start"), line("n1", "become_follower", epoch=LEAST)],
        found=[("epoch-regressed", str(LEAST), None, ["n1"])],
    ),
    "a role in the same epoch again": Case(lines=[leader(epoch=3), leader(epoch=3)]),
    "two append as leaders of one epoch": Case(
        lines=[append("n1", 0, role="leader"), append("n2", 7, role="leader")],
        found=[("two-leaders", None, 7, ["n1", "n2"])],
    ),
    "two append as leaders, one after the other": Case(
        lines=[append("n1", 0, role="leader"), append("n2", 7, role="leader", epoch=1)]
    ),
    "a follower appends in the leader's epoch": Case(lines=[append("n1", 0, role="leader"), append("n2", 0)]),
    # -- ack-rule
    "acked when all members had it": Case(lines=[*STORED, ack(0)]),
    "acked at the HW": Case(lines=[*STORED, ack(0, hw=0)], found=[("ack-rule", "hw", 0, ["n1"])]),
    "acked at the HW, with acks=1": Case(lines=[*STORED, ack(0, hw=0, acks="1")]),
    "acked with an ISR below min ISR": Case(
        lines=[*STORED, ack(0, isr=["n1"])], found=[("ack-rule", "isr", 0, ["n1"])]
    ),
    "acked before a member had it": Case(
        lines=[*STORED[:3], ack(0)], found=[("ack-rule", "member", 0, ["n3"])]
    ),
    "acked before a member had it, within the clocks' error": Case(
        lines=[*STORED[:3], ack(0), append("n3", 0, time=31)], traced={"clock_error": 1}
    ),
    "acked before a member had it, and lines are missing": Case(
        lines=[*STORED[:3], ack(0)], traced={"complete": False}
    ),
    "acked a record of an older epoch": Case(lines=[leader(start=1), ack(0)]),
    "acked before a member had it, which has a later epoch's record": Case(
        lines=[*STORED[:3], append("n3", 0, epoch=1), ack(0)]
    ),
    "acked before a member appended it, which had it at its start": Case(
        lines=[*STORED[:3], line("n3", "start", leo=1), ack(0)]
    ),
    "acked at the highest offset": Case(
        lines=[leader(), append("n2", GREATEST), append("n3", GREATEST), ack(GREATEST)],
        found=[("ack-rule", "hw", GREATEST, ["n1"])],
    ),
    # -- unsafe-isr
    "added a replica without a committed record": Case(
        lines=[*MEMBERS, append("n3", 0, 2), line("n3", "become_follower", leo=2), isr(*ALL)],
        found=[("unsafe-isr", "behind", 2, ["n3"])],
    ),
    "added a replica with it": Case(
        lines=[*MEMBERS, line("n3", "become_follower"), append("n3", 0, 3), isr(*ALL)]
    ),
    "added a replica without it, after its node started": Case(
        lines=[*MEMBERS, line("n3", "become_follower", leo=2), line("n3", "start", partition=None), isr(*ALL)]
    ),
    "added a replica that may have it, at the same time": Case(
        lines=[*MEMBERS, line("n3", "become_follower", leo=2), isr(*ALL, time=60), append("n3", 2, time=60)]
    ),
    "added a replica without it, in a later epoch": Case(
        lines=[*MEMBERS, line("n3", "become_follower", leo=2), isr(*ALL, epoch=1)]
    ),
    "an ISR without its leader": Case(
        lines=[isr("n2", "n3")], found=[("unsafe-isr", "leader", None, ["n1"])]
    ),
    "an ISR without any leader": Case(lines=[isr("n2", "n3", leader=None)]),
    "the controller's partition epoch stays": Case(
        lines=[isr("n1", "n2", partition_epoch=4), isr("n1", partition_epoch=4)],
        found=[("unsafe-isr", "order", None, ["n1"])],
    ),
    "the controller's partition epoch rises": Case(
        lines=[isr("n1", "n2", partition_epoch=LEAST), isr("n1", partition_epoch=GREATEST)]
    ),
    "acked with a smaller ISR than the controller's, twice": Case(
        lines=[isr(*ALL), *STORED, ack(0, isr=["n1", "n2"]), ack(0, isr=["n1", "n2"])],
        found=[("unsafe-isr", "smaller", 0, ["n3"])],
    ),
    "acked with a smaller ISR than that of a later epoch": Case(
        lines=[isr(*ALL, epoch=1), *STORED, ack(0, isr=["n1", "n2"])]
    ),
    "acked with a larger ISR than the controller's": Case(lines=[isr("n1", "n2"), *STORED, ack(0)]),
    "acked with a smaller ISR than the controller's, while a follower appends": Case(
        lines=[isr(*ALL), *STORED, append("n2", 1, time=50), ack(0, time=50, isr=["n1", "n2"])],
        found=[("unsafe-isr", "smaller", 0, ["n3"])],
    ),
    "acked with a smaller ISR than the controller's, while that changes": Case(
        lines=[isr(*ALL), *STORED, isr("n1", "n2", time=50), ack(0, time=50, isr=["n1", "n2"])]
    ),
    "acked with a smaller ISR than one of the same time": Case(
        lines=[*STORED, isr(*ALL, time=40), ack(0, time=40, isr=["n1", "n2"])]
    ),
    "lines by an unknown node, of an unknown partition, of a broker about itself": Case(
        lines=[
            line("stranger", "hw", hw=5, role="leader"),
            hw("n1", 4, partition=9),
            {**isr("n2"), "node": "n1"},
        ]
    ),
}


@pytest.fixture(scope="module")
def judged() -> dict[str, list[Line]]:
    """The findings of each case. All are in one unit, where none may show in another."""
    return dict(zip(CASES, found_each(FAMILIES, [case.rows() for case in CASES.values()]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_the_trace_shows_is_found_and_nothing_else(judged: dict[str, list[Line]], name: str) -> None:
    assert briefly(judged[name], "how", "offset", "nodes") == list(CASES[name].found)


def test_without_a_trace_nothing_is_found() -> None:
    assert found_each(FAMILIES, [{}]) == [[]]


# -- tables made on the way ---------------------------------------------------------------------------------

@contextmanager
def unit_of(cases: Iterable[Case]) -> Iterator[Unit]:
    """A unit with these runs, numbered from 0, and the tables that the laws make."""
    with opened(tables_of([case.rows() for case in cases])) as unit:
        for family in FAMILIES:
            family(unit)
        yield unit


def rows_of(unit: Unit, run: int, select: str) -> list[Line]:
    """The rows of this run, without its number."""
    return [row for row in unit.rows(select).to_pylist() if row.pop("run") == run]


@pytest.mark.parametrize(("time", "bounded"), [(-7, -7), (GREATEST, 1 << 61), (LEAST, -(1 << 61))])
def test_a_clock_error_can_be_added_to_any_time(time: int, bounded: int) -> None:
    with unit_of([Case(lines=[leader(time=time)], traced={"clock_error": 1 << 62})]) as unit:
        rows = unit.rows("select time, time + clock_error as upto from timeline").to_pylist()
        assert rows == [{"time": bounded, "upto": bounded + (1 << 62)}]


TRACES: list[Case] = []


def trace(*lines: Line, **traced: Any) -> int:
    """The number of a run of TRACES with these lines and these fields of `traced`."""
    TRACES.append(Case(lines=lines, traced=traced))
    return len(TRACES) - 1


@pytest.fixture(scope="module")
def unit() -> Iterator[Unit]:
    """All runs of TRACES."""
    with unit_of(TRACES) as unit:
        yield unit


STARTS = trace(
    line("n1", "start", partition=None), line("n1", "start", leo=3), line("n2", "start", partition=None)
)


def test_a_node_that_starts_has_an_empty_log_unless_the_next_line_shows_one(unit: Unit) -> None:
    select = "select run, node, leo, node_start, log_known from timeline order by node"
    assert rows_of(unit, STARTS, select) == [
        {"node": "n1", "leo": 3, "node_start": False, "log_known": True},
        {"node": "n2", "leo": 0, "node_start": True, "log_known": False},
    ]


@each("run, empty", {
    name: (trace(line("n1", "start", partition=None), next_line), empty)
    for name, next_line, empty in (
        ("it follows", line("n1", "become_follower", leo=0), True),
        ("it leads", line("n1", "become_leader", leo=0), True),
        ("it follows with a record", line("n1", "become_follower", leo=1), False),
        ("it appends", append("n1", 0, 1), False),
        ("another node follows", line("n2", "become_follower", leo=0), False),
        ("it starts again", line("n1", "start", partition=None), False),
    )
})  # fmt: skip
def test_a_log_was_empty_since_the_start_if_its_first_line_is_a_role_with_an_empty_log(
    unit: Unit, run: int, empty: bool
) -> None:
    select = "select run, found_empty from timeline where node_start and node = 'n1' order by line"
    assert rows_of(unit, run, select) == [{"found_empty": empty}]


LAST_STEP = append("n1", 0, 4, role="leader", time=50), hw("n1", 4, time=50)
STEP_NOT_ON_DISK = trace(leader(), *LAST_STEP, line("n1", "start", leo=1))
STEP_ON_DISK = trace(leader(), *LAST_STEP, line("n1", "start", leo=4))


def test_what_a_step_committed_that_never_reached_the_disk_is_void(unit: Unit) -> None:
    commits = "select run, commits_from, commits_to, fresh_to from timeline where event = 'hw'"
    assert rows_of(unit, STEP_NOT_ON_DISK, commits) == [{"commits_from": 0, "commits_to": 1, "fresh_to": 1}]
    assert rows_of(unit, STEP_ON_DISK, commits)[0]["commits_to"] == 4


THREE_COMMITS = trace(
    leader(start=3, epoch=1), hw("n1", 5, epoch=1), hw("n1", 7, epoch=1), hw("n1", 6, epoch=1)
)


def test_a_leader_commits_records_of_its_own_epoch_from_the_epochs_start(unit: Unit) -> None:
    keys = "fresh_from", "fresh_to", "inherited_from", "inherited_to"
    rows = rows_of(unit, THREE_COMMITS, f"select run, {', '.join(keys)} from timeline where event = 'hw'")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        (3, 5, 0, 3), (5, 7, None, None), (None, None, None, None)
    ]  # fmt: skip


CROWDED = trace(
    leader(), hw("n1", 2, time=10), line("n2", "truncate", cut_from=2, cut_to=1, leo=1, time=10),
    line("n3", "become_follower", time=11), hw("n1", 3, time=90),
)  # fmt: skip


def test_a_moment_is_the_state_after_all_lines_that_are_in_no_order(unit: Unit) -> None:
    views = rows_of(
        unit, CROWDED, "select run, event, crowded, committed from views order by time, event"
    )
    assert [tuple(row.values()) for row in views] == [
        ("become_leader", False, None), ("hw", True, 2), ("truncate", True, None),
        ("become_follower", False, 2), ("hw", False, 3),
    ]  # fmt: skip
    members = rows_of(
        unit, CROWDED,
        "select run, time, ends, committed, leo from moments join members using (run, partition, line) "
        "where moment order by members.node",
    )  # fmt: skip
    assert [(row["time"], row["ends"], row["committed"], row["leo"]) for row in members] == [
        (10, 11, 2, 2), (10, 11, 2, 1), (10, 11, 2, None)
    ]  # fmt: skip


NEAR = [
    trace(leader(time=0), hw("n1", 2, time=100), line("n2", "truncate", leo=1, time=time), clock_error=4)
    for time in (95, 96, 104, 105)
]


def test_lines_are_in_order_from_one_more_than_the_clock_error_on(unit: Unit) -> None:
    seen = [
        rows_of(unit, run, "select run, event, crowded, committed from views order by event")[1:]
        for run in NEAR
    ]
    assert [[(row["crowded"], row["committed"]) for row in rows] for rows in seen] == [
        [(False, 2), (False, None)], [(True, 2), (True, None)], [(True, 2), (True, None)],
        [(False, 2), (False, 2)],
    ]  # fmt: skip


UNFENCED = trace(leader(), hw("n1", 2), hw("n1", 3), unfenced=[12, GREATEST >> 2])


def test_there_is_a_moment_too_where_a_broker_was_unfenced(unit: Unit) -> None:
    moments = rows_of(unit, UNFENCED, "select run, time, ends from moments")
    assert sorted(row["time"] for row in moments) == [10, 20]


@pytest.fixture(scope="module")
def active_brokers() -> Iterator[Unit]:
    """A unit in which n1 was active twice, and n2 always."""
    times = [{"node": "n1", "since": 10, "until": 20}, {"node": "n1", "since": 31, "until": 34}]
    more = [{"node": "n2", "since": LEAST, "until": GREATEST}]
    with opened({"active_brokers": table("active_brokers", times + more)}) as unit:
        yield unit


@pytest.mark.parametrize(
    ("time", "latest", "clock_error", "active"),
    [
        (13, 13, 2, True), (12, 12, 2, False), (17, 17, 2, True), (18, 18, 2, False), (0, 13, 2, True),
        (0, 12, 2, False), (32, 32, 2, False), (31, 34, 2, True), (40, 1 << 62, 2, False),
        (11, 11, 0, True), (10, 10, 0, False), (20, 20, 0, False),
    ],
)  # fmt: skip
def test_which_broker_was_certainly_active(
    active_brokers: Unit, time: int, latest: int, clock_error: int, *, active: bool
) -> None:
    n1 = f"""select 0 as run, 'n1' as who, {time} as time, {latest}::bigint as latest,
        {clock_error}::bigint as clock_error"""
    rows = active_brokers.rows(only_active(n1, latest="latest"))
    assert rows.num_rows == active


def test_the_last_so_far_and_the_highest_stay_in_their_block() -> None:
    first = np.array([0, 0, 0, 3, 3, 3])
    marked = np.array([False, True, True, False, True, True])
    values = np.array([9, LEAST, 4, 7, GREATEST, 5])
    assert last_row(marked, first).tolist() == [-1, 1, 2, -1, 4, 5]
    assert highest_row(marked, first, values).tolist() == [-1, 1, 2, -1, 4, 4]
    assert last_not_after(np.array([0, 0, 2]), np.array([5, 9, 1]), np.array([0, 0, 1, 2]),
                          np.array([4, 9, 9, 1])).tolist() == [-1, 1, -1, 2]  # fmt: skip
