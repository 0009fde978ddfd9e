"""What nodes say of roles, HWs, acks and ISRs (checkers.laws.trace): each breach beside what is none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from unit_rows import GREATEST, LEAST, briefly, found_each, table

from floodmark.checkers.laws.trace.active_brokers import only_active
from floodmark.checkers.laws.trace.cluster_views import cluster_views
from floodmark.checkers.laws.trace.node_timeline import node_timeline
from floodmark.checkers.laws.trace.quorums import quorums
from floodmark.checkers.laws.trace.so_far import highest_row, last_not_after, last_row
from floodmark.checkers.laws.trace.trace_checks import trace_checks
from floodmark.checkers.laws.unit import opened

FAMILIES = node_timeline, trace_checks, cluster_views, quorums
ALL = ["n1", "n2", "n3"]
Line = dict[str, Any]


def line(node: str, event: str, **fields: Any) -> Line:
    return {"node": node, "event": event, **fields}


def append(node: str, offset: int, count: int = 1, role: str = "follower", **fields: Any) -> Line:
    told = {"offset": offset, "count": count, "leo": min(offset + count, GREATEST), "role": role}
    return line(node, "append", **{**told, **fields})


def ack(offset: int, **fields: Any) -> Line:
    told = {"offset": offset, "hw": min(offset + 1, GREATEST), "leo": min(offset + 1, GREATEST), "isr": ALL}
    return line("n1", "ack", **{**told, "acks": "all", **fields})


def leader(node: str = "n1", **fields: Any) -> Line:
    return line(node, "become_leader", **{"isr": ALL, "start": 0, **fields})


def hw(node: str, high: int, **fields: Any) -> Line:
    return line(node, "hw", **{"hw": high, "role": "leader", "leo": max(high, 0), **fields})


def isr(*members: str, **fields: Any) -> Line:
    told = {"leo": None, "hw": None, "isr": list(members), "leader": "n1"}
    return line("controller", "isr", **{**told, **fields})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Lines in their order, 10 ns apart unless they tell their time, each node's seq from 0; what is found:
    name, how, offset, nodes."""

    lines: Sequence[Line]
    found: Sequence[tuple[Any, ...]] = ()
    traced: Line = field(default_factory=dict)

    def rows(self) -> dict[str, list[Line]]:
        seqs: dict[str, int] = {}
        told = []
        for at, one in enumerate(self.lines):
            seqs[one["node"]] = seqs.get(one["node"], -1) + 1
            told.append({"time": 10 * at, "seq": seqs[one["node"]], **one})
        active = [{"node": node, "since": -(1 << 61), "until": 1 << 61} for node in ALL]
        return {"trace": told, "traced": [self.traced], "active_brokers": active}


STORED = [leader(), append("n1", 0, role="leader"), append("n2", 0), append("n3", 0)]
MEMBERS = [isr("n1", "n2"), leader(hw=0), append("n1", 0, 5, role="leader"), hw("n1", 3)]

CASES: dict[str, Case] = {
    # -- one node's own lines
    "the leader's HW falls": Case(
        lines=[leader(), hw("n1", 5), hw("n1", 4)], found=[("hw-regressed", None, 4, ["n1"])]
    ),
    "it falls as far as numbers go": Case(
        lines=[leader(), hw("n1", GREATEST), hw("n1", LEAST)], found=[("hw-regressed", None, LEAST, ["n1"])]
    ),
    "it falls in a new epoch": Case(lines=[leader(), hw("n1", 5), hw("n1", 4, epoch=1)]),
    "another node's is lower": Case(lines=[leader(), hw("n1", 5), hw("n2", 4, epoch=1)]),
    "it stays": Case(lines=[leader(), hw("n1", 5), hw("n1", 5)]),
    "a role in an older epoch": Case(
        lines=[leader(epoch=3), line("n1", "become_follower", epoch=2), leader("n1", epoch=3)],
        found=[("epoch-regressed", "2", None, ["n1"])],
    ),
    "a role in an older epoch, over a start": Case(
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
    "acked what all have": Case(lines=[*STORED, ack(0)]),
    "acked at the HW": Case(lines=[*STORED, ack(0, hw=0)], found=[("ack-rule", "hw", 0, ["n1"])]),
    "acked at the HW, but not by all": Case(lines=[*STORED, ack(0, hw=0, acks="1")]),
    "acked by too few": Case(lines=[*STORED, ack(0, isr=["n1"])], found=[("ack-rule", "isr", 0, ["n1"])]),
    "acked before one had it": Case(lines=[*STORED[:3], ack(0)], found=[("ack-rule", "member", 0, ["n3"])]),
    "acked before one had it, who may have": Case(
        lines=[*STORED[:3], ack(0), append("n3", 0, time=31)], traced={"clock_error": 1}
    ),
    "acked before one had it, and lines are missing": Case(
        lines=[*STORED[:3], ack(0)], traced={"complete": False}
    ),
    "acked an older epoch's": Case(lines=[leader(start=1), ack(0)]),
    "acked before one had it, who has a later epoch's": Case(
        lines=[*STORED[:3], append("n3", 0, epoch=1), ack(0)]
    ),
    "acked before one had it, who has found it at its start": Case(
        lines=[*STORED[:3], line("n3", "start", leo=1), ack(0)]
    ),
    "acked the last offset": Case(
        lines=[leader(), append("n2", GREATEST), append("n3", GREATEST), ack(GREATEST)],
        found=[("ack-rule", "hw", GREATEST, ["n1"])],
    ),
    # -- unsafe-isr
    "took in who lacks what is committed": Case(
        lines=[*MEMBERS, append("n3", 0, 2), line("n3", "become_follower", leo=2), isr(*ALL)],
        found=[("unsafe-isr", "behind", 2, ["n3"])],
    ),
    "took in who has it": Case(
        lines=[*MEMBERS, line("n3", "become_follower"), append("n3", 0, 3), isr(*ALL)]
    ),
    "took in who lacks it, and begins anew": Case(
        lines=[*MEMBERS, line("n3", "become_follower", leo=2), line("n3", "start", partition=None), isr(*ALL)]
    ),
    "took in who may have it": Case(
        lines=[*MEMBERS, line("n3", "become_follower", leo=2), isr(*ALL, time=60), append("n3", 2, time=60)]
    ),
    "took in who lacks it, in a later epoch": Case(
        lines=[*MEMBERS, line("n3", "become_follower", leo=2), isr(*ALL, epoch=1)]
    ),
    "left out the leader": Case(lines=[isr("n2", "n3")], found=[("unsafe-isr", "leader", None, ["n1"])]),
    "named no leader": Case(lines=[isr("n2", "n3", leader=None)]),
    "went back in its own order": Case(
        lines=[isr("n1", "n2", partition_epoch=4), isr("n1", partition_epoch=4)],
        found=[("unsafe-isr", "order", None, ["n1"])],
    ),
    "went on in its own order": Case(
        lines=[isr("n1", "n2", partition_epoch=LEAST), isr("n1", partition_epoch=GREATEST)]
    ),
    "a leader counts fewer, twice": Case(
        lines=[isr(*ALL), *STORED, ack(0, isr=["n1", "n2"]), ack(0, isr=["n1", "n2"])],
        found=[("unsafe-isr", "smaller", 0, ["n3"])],
    ),
    "a leader counts fewer, in an epoch before": Case(
        lines=[isr(*ALL, epoch=1), *STORED, ack(0, isr=["n1", "n2"])]
    ),
    "a leader counts more": Case(lines=[isr("n1", "n2"), *STORED, ack(0)]),
    "a leader counts fewer than the word that may come first": Case(
        lines=[*STORED, isr(*ALL, time=40), ack(0, time=40, isr=["n1", "n2"])]
    ),
    "words by nobody, of nobody": Case(
        lines=[
            line("stranger", "hw", hw=5, role="leader"),
            hw("n1", 4, partition=9),
            {**isr("n2"), "node": "n1"},
        ]
    ),
}


@pytest.fixture(scope="module")
def judged() -> dict[str, list[Line]]:
    """All cases in one unit: none of them may show in another."""
    return dict(zip(CASES, found_each(FAMILIES, [case.rows() for case in CASES.values()]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_the_trace_shows_is_found_and_nothing_else(judged: dict[str, list[Line]], name: str) -> None:
    assert briefly(judged[name], "how", "offset", "nodes") == list(CASES[name].found)


def test_without_a_trace_nothing_is_found() -> None:
    assert found_each(FAMILIES, [{}]) == [[]]


def rows_of(select: str, case: Case) -> list[Line]:
    with opened({name: table(name, rows) for name, rows in case.rows().items()}) as unit:
        for family in FAMILIES:
            family(unit)
        return list(unit.rows(select).to_pylist())


@pytest.mark.parametrize(
    ("time", "clock_error", "tick"),
    [
        (-7, 0, -14), (-7, 2, -2), (7, 2, 2), (GREATEST, 0, 1 << 61), (LEAST, 0, -(1 << 61)),
        (LEAST, 1, -(1 << 62)), (GREATEST, GREATEST, 1), (GREATEST - 1, GREATEST, 0),
    ],
)  # fmt: skip
def test_ticks_round_toward_zero_and_never_overflow(time: int, clock_error: int, tick: int) -> None:
    case = Case(lines=[leader(time=time)], traced={"clock_error": clock_error})
    assert rows_of("select tick from timeline", case) == [{"tick": tick}]


def test_a_node_that_starts_has_an_empty_log_unless_it_tells_of_one() -> None:
    starts = [
        line("n1", "start", partition=None),
        line("n1", "start", leo=3),
        line("n2", "start", partition=None),
    ]
    told = rows_of("select node, leo, node_start, log_known from timeline order by node", Case(lines=starts))
    assert told == [
        {"node": "n1", "leo": 3, "node_start": False, "log_known": True},
        {"node": "n2", "leo": 0, "node_start": True, "log_known": False},
    ]


@pytest.mark.parametrize(("first", "empty"), [
    (line("n1", "become_follower", leo=0), True), (line("n1", "become_leader", leo=0), True),
    (line("n1", "become_follower", leo=1), False), (append("n1", 0, 1), False),
    (line("n2", "become_follower", leo=0), False), (line("n1", "start", partition=None), False),
])  # fmt: skip
def test_a_log_was_empty_since_the_start_where_its_role_comes_first_and_says_so(
    first: Line, empty: bool
) -> None:
    told = "select found_empty from timeline where node_start and node = 'n1' order by line"
    lines = [line("n1", "start", partition=None), first]
    assert rows_of(told, Case(lines=lines)) == [{"found_empty": empty}]


def test_what_a_step_committed_that_never_reached_the_disk_is_void() -> None:
    step = [append("n1", 0, 4, role="leader", time=50), hw("n1", 4, time=50), line("n1", "start", leo=1)]
    commits = "select commits_from, commits_to, fresh_to from timeline where event = 'hw'"
    assert rows_of(commits, Case(lines=[leader(), *step])) == [
        {"commits_from": 0, "commits_to": 1, "fresh_to": 1}
    ]
    kept = [*step[:2], line("n1", "start", leo=4)]
    assert rows_of(commits, Case(lines=[leader(), *kept]))[0]["commits_to"] == 4


def test_what_a_leader_commits_is_its_own_epochs_from_where_that_began() -> None:
    told = rows_of(
        "select fresh_from, fresh_to, inherited_from, inherited_to from timeline where event = 'hw'",
        Case(
            lines=[leader(start=3, epoch=1), hw("n1", 5, epoch=1), hw("n1", 7, epoch=1), hw("n1", 6, epoch=1)]
        ),
    )
    keys = "fresh_from", "fresh_to", "inherited_from", "inherited_to"
    assert [tuple(row[key] for key in keys) for row in told] == [
        (3, 5, 0, 3), (5, 7, None, None), (None, None, None, None)
    ]  # fmt: skip


def test_a_moment_is_what_holds_once_lines_in_no_order_have_come() -> None:
    crowd = [hw("n1", 2, time=10), line("n2", "truncate", cut_from=2, cut_to=1, leo=1, time=10)]
    lines = [leader(), *crowd, line("n3", "become_follower", time=11), hw("n1", 3, time=90)]
    views = rows_of("select event, crowded, committed from views order by tick, event", Case(lines=lines))
    assert [tuple(row.values()) for row in views] == [
        ("become_leader", False, None), ("hw", True, 2), ("truncate", True, None),
        ("become_follower", False, 2), ("hw", False, 3),
    ]  # fmt: skip
    moment = "select tick, ends, committed, leo from moments join members using (run, partition, line)"
    told = rows_of(f"{moment} where moment order by members.node", Case(lines=lines))
    assert [(row["tick"], row["ends"], row["committed"], row["leo"]) for row in told] == [
        (20, 22, 2, 2), (20, 22, 2, 1), (20, 22, 2, None)
    ]  # fmt: skip


def test_a_moment_is_told_too_where_a_broker_was_unfenced() -> None:
    lines = [leader(), hw("n1", 2), hw("n1", 3)]
    told = rows_of(
        "select tick, ends from moments", Case(lines=lines, traced={"unfenced": [25, GREATEST >> 2]})
    )
    assert sorted(row["tick"] for row in told) == [20, 40]


@pytest.mark.parametrize(
    ("tick", "latest", "least", "active"),
    [
        (12, 12, 4, True), (11, 11, 4, False), (18, 18, 4, True), (19, 19, 4, False), (0, 12, 4, True),
        (0, 11, 4, False), (32, 32, 4, False), (31, 33, 2, True), (40, 1 << 62, 4, False),
    ],
)  # fmt: skip
def test_who_was_surely_active(tick: int, latest: int, least: int, *, active: bool) -> None:
    times = [{"node": "n1", "since": 10, "until": 20}, {"node": "n1", "since": 31, "until": 33}]
    more = [{"node": "n2", "since": LEAST, "until": GREATEST}]
    asked = f"select 0 as run, 'n1' as who, {tick} as tick, {latest}::bigint as latest"
    with opened({"active_brokers": table("active_brokers", times + more)}) as unit:
        rows = unit.rows(only_active(asked, latest="latest", least=least))
    assert rows.num_rows == active


def test_the_last_so_far_and_the_highest_stay_in_their_block() -> None:
    first = np.array([0, 0, 0, 3, 3, 3])
    marked = np.array([False, True, True, False, True, True])
    values = np.array([9, LEAST, 4, 7, GREATEST, 5])
    assert last_row(marked, first).tolist() == [-1, 1, 2, -1, 4, 5]
    assert highest_row(marked, first, values).tolist() == [-1, 1, 2, -1, 4, 4]
    assert last_not_after(np.array([0, 0, 2]), np.array([5, 9, 1]), np.array([0, 0, 1, 2]),
                          np.array([4, 9, 9, 1])).tolist() == [-1, 1, -1, 2]  # fmt: skip
