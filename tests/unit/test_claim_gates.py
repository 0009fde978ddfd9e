"""What may be claimed of partitions, and the tables for it: each gate open, and closed by one change."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import here
import pyarrow as pa
import pytest
from folders import Tale

from floodmark.checkers.judge.preconditions import NodeSeqs, Preconditions, TraceSummary
from floodmark.checkers.judge.reasons import gates_of
from floodmark.checkers.judge.run_tables import facts_of, make_tables, tables_from
from floodmark.checkers.judge.runs import Run, run_of, silent_names
from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.laws.unit import opened
from floodmark.checkers.read.folder import open_folder, with_replicas
from floodmark.checkers.read.replica_rows import NO_REPLICAS, REPLICA_ROWS, SCHEMA, Replicas

FAR = (1 << 63) - 1
KILLED = "history_lines"
Change = Callable[[Tale], object]


def gate(tale: Tale, path: Path, *, breached: bool = False) -> dict[str, bool]:
    """The gates of partition 0."""
    folder = open_folder(tale.write(path / "run"))
    rows = here.rows_of(folder)
    with_replicas(folder, NO_REPLICAS if rows is None else Replicas.of(rows), 0, None)
    gates = gates_of(folder, breached=breached)
    return {
        name: bool(getattr(gates, name)[0])
        for name in ("leader_known", "losses_judged", "unseen_judged", "by_final_reads", "by_any_read",
                     "losses_shown")
    }  # fmt: skip


OPEN = {"leader_known": True, "losses_judged": True, "unseen_judged": True, "by_final_reads": False,
        "by_any_read": False, "losses_shown": True}  # fmt: skip
WITHOUT_LOG = {**dict.fromkeys(OPEN, False), "by_final_reads": True, "losses_shown": True}
NOTHING = dict.fromkeys(OPEN, False)


def without_dump(tale: Tale) -> None:
    tale.files["logs/n1.jsonl"] = None


def not_settled(tale: Tale) -> None:
    tale.run["settled"] = False


def compacted(tale: Tale) -> None:
    tale.run["partitions"]["0"]["cleanup"] = "compact"


def imported(tale: Tale, **more: Any) -> None:
    tale.run["imported"] = {"from": "jepsen", **more}


def all_of(*changes: Change) -> Change:
    def change(tale: Tale) -> None:
        for one in changes:
            one(tale)

    return change


GATES: Mapping[str, tuple[Change, dict[str, bool]]] = {
    "healthy": (lambda tale: None, OPEN),
    "compacted": (compacted, {**OPEN, "losses_judged": False}),
    "not settled": (not_settled, {**OPEN, "unseen_judged": False}),
    "killed": (lambda tale: tale.run.update({KILLED: None}), {**OPEN, "unseen_judged": False}),
    "no final reads": (lambda tale: tale.run.update(final_reads={}), {**OPEN, "unseen_judged": False}),
    "final reads by an unknown process": (
        lambda tale: tale.run["final_reads"].update(processes=[900, "x"]), {**OPEN, "unseen_judged": False}),
    "a follower's dump is missing": (lambda tale: tale.files.update({"logs/n2.jsonl": None}), OPEN),
    "the leader's dump is missing": (without_dump, WITHOUT_LOG),
    "the leader's dump is torn": (lambda tale: tale.files.update({"logs/n1.jsonl": '{"node"'}), WITHOUT_LOG),
    "the leader has no row": (lambda tale: tale.row("n1").update(absent=True), WITHOUT_LOG),
    "no leader": (lambda tale: tale.run["leaders"]["0"].update(leader=None), WITHOUT_LOG),
    "no log, and compacted": (all_of(without_dump, compacted), NOTHING),
    "no log, and not settled": (all_of(without_dump, not_settled), NOTHING),
    "no log, imported": (all_of(without_dump, not_settled, imported),
                         {**NOTHING, "by_any_read": True, "losses_shown": True}),
    "no log, imported, killed": (all_of(without_dump, imported, lambda tale: tale.run.update({KILLED: None})),
                                 NOTHING),
    "no log, imported, reads left out": (
        all_of(without_dump, not_settled, lambda tale: imported(tale, blind=[1, {}, 0.0])), NOTHING),
    "no log, imported, reads of another partition left out": (
        all_of(without_dump, not_settled, lambda tale: imported(tale, blind=[1], left_out={"read x": 1})),
        {**NOTHING, "by_any_read": True, "losses_shown": True}),
    "no log, imported, reads of an unnamed partition left out": (
        all_of(without_dump, not_settled, lambda tale: imported(tale, left_out={"read x": 1})), NOTHING),
    "no log, imported, an ack above all reads": (
        all_of(without_dump, not_settled, lambda tale: imported(tale, unread=[0])),
        {**NOTHING, "by_any_read": True}),
}  # fmt: skip


@pytest.mark.parametrize("case", GATES)
def test_gates(case: str, tmp_path: Path) -> None:
    change, expected = GATES[case]
    tale = Tale().acked(1, 2)
    change(tale)
    assert gate(tale, tmp_path) == expected


def test_if_lines_may_be_missing_losses_are_not_judged_by_reads(tmp_path: Path) -> None:
    assert gate(Tale().acked(1), tmp_path / "a", breached=True) == {**OPEN, "unseen_judged": False}
    tale = Tale().acked(1)
    without_dump(tale)
    assert gate(tale, tmp_path / "b", breached=True) == NOTHING


# -- the tables ---------------------------------------------------------------------------------------------


def run(tale: Tale, path: Path, **facts: Any) -> Run:
    folder = open_folder(tale.write(path))
    facts.setdefault("used", frozenset(range(tale.partitions)))
    lines = folder.about.get("history_lines")
    preconditions = Preconditions(lines=lines if isinstance(lines, int) else 0, acked=1, **facts)
    return run_of(folder, preconditions, here.rows_of(folder))


def tables(tale: Tale, path: Path, **facts: Any) -> dict[str, pa.Table]:
    one = run(tale, path / "run", **facts)
    rows = here.rows_of(one.folder)
    found = tables_from({**facts_of(0, one), REPLICA_ROWS: SCHEMA.empty_table() if rows is None else rows})
    assert all(table.schema == TABLES[name] for name, table in found.items())
    return found


def test_an_unused_partition_has_no_row(tmp_path: Path) -> None:
    found = tables(Tale(partitions=3).acked(1), tmp_path, used=frozenset({2, 0, 77}))
    assert found["partitions"]["partition"].to_pylist() == [0, 2]
    assert set(found["replicas"]["partition"].to_pylist()) == {0, 2}


def test_the_bounds_of_a_partition_are_the_leaders(tmp_path: Path) -> None:
    tale = Tale().acked(1, 2, 3)
    tale.row("n1").update(log_start=1, hw=2, lso=1)
    tale.row("n3")["absent"] = True
    row = tables(tale, tmp_path, txns=2)["partitions"].to_pylist()[0]
    columns = ("leader", "log_start", "claims_from", "hw", "readable_to", "stable_to")
    assert [row[name] for name in columns] == ["n1", 1, 1, 2, 1, 1]
    assert row["isr_followers"] == [{"node": "n2", "log_start": 0}]
    assert (row["weak_acks"], row["retried"], row["uncommitted"], row["loss_in_doubt"]) == (False,) * 4


def test_without_a_leader_claims_begin_at_the_highest_log_start(tmp_path: Path) -> None:
    tale = Tale().acked(1, 2, 3)
    tale.run["leaders"]["0"]["leader"] = None
    tale.row("n2")["log_start"], tale.row("n3")["log_start"] = 2, 1
    row = tables(tale, tmp_path)["partitions"].to_pylist()[0]
    columns = ("leader", "log_start", "claims_from", "hw", "readable_to", "isr_followers")
    assert [row[name] for name in columns] == [None, None, 2, None, None, []]


def test_guarantees_are_columns_of_the_table(tmp_path: Path) -> None:
    tale = Tale().acked(1)
    tale.run["guarantees"].update(acks="1", retries=5, isolation="read_uncommitted")
    tale.run["observes"] = {"dumps": False}
    row = tables(tale, tmp_path, txns=2)["partitions"].to_pylist()[0]
    assert (row["weak_acks"], row["retried"], row["uncommitted"], row["loss_in_doubt"]) == (True,) * 4


def test_without_transactions_nothing_is_open_and_nobody_reads_uncommitted_records(tmp_path: Path) -> None:
    tale = Tale().acked(1, 2)
    tale.row("n1")["lso"] = 1
    tale.run["guarantees"]["isolation"] = "read_uncommitted"
    found = tables(tale, tmp_path)
    row = found["partitions"].to_pylist()[0]
    assert (row["uncommitted"], row["stable_to"], row["hw"]) == (False, 2, 2)
    assert found["runs"].to_pylist()[0]["uncommitted"] is False


@pytest.mark.parametrize(("guarantees", "retried"), [
    ({"retries": 0}, False), ({"retries": 1}, True), ({"retries": 1, "idempotence": True}, False)])
def test_one_retry_is_enough_to_write_twice(
        tmp_path: Path, guarantees: dict[str, Any], retried: bool) -> None:
    tale = Tale().acked(1)
    tale.run["guarantees"].update(guarantees)
    assert tables(tale, tmp_path)["partitions"].to_pylist()[0]["retried"] is retried


def test_a_replica_without_a_row_or_a_dump_is_in_the_table(tmp_path: Path) -> None:
    tale = Tale().acked(1)
    tale.row("n2")["absent"] = True
    tale.files["logs/n3.jsonl"] = None
    rows = {row["node"]: row for row in tables(tale, tmp_path)["replicas"].to_pylist()}
    assert [rows["n2"][name] for name in ("hw", "leo", "running", "cache")] == [None] * 4
    assert [rows[node]["complete"] for node in ("n1", "n2", "n3")] == [True, True, False]
    assert [rows[node]["leads"] for node in ("n1", "n2", "n3")] == [True, False, False]
    assert rows["n1"]["cache"] == [{"start": 0, "epoch": 0}]


def test_a_node_named_twice_counts_once_and_an_unknown_one_not_at_all(tmp_path: Path) -> None:
    tale = Tale().acked(1)
    tale.run["partitions"]["0"]["replicas"] = ["n1", "n2", "n2", "n9"]
    replicas = tables(tale, tmp_path)["replicas"]
    assert replicas["node"].to_pylist() == ["n1", "n2"]


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        ({"leo": 2}, True),
        ({"log_start": 1}, True),
        ({"hw": 1}, True),
        ({"epochs": [[0, 0], [3, 9]]}, True),
        ({"log_start": 4, "leo": 4, "hw": 4}, False),
        ({"log_start": 4, "leo": 4, "hw": 0, "epochs": [[0, 4]]}, False),
    ],
)
def test_a_row_that_contradicts_itself_is_kept(
    changes: dict[str, Any], *, is_kept: bool, tmp_path: Path
) -> None:
    """Of an unused partition."""
    tale = Tale(partitions=2).acked(1)
    tale.row("n2", 1).update(changes)
    found = tables(tale, tmp_path, used=frozenset({0}))
    rows = found["replicas"].to_pylist()
    assert [row["node"] for row in rows if row["partition"] == 1] == ["n2"] * is_kept
    assert found["partitions"]["partition"].to_pylist() == [0]


def test_final_and_overlapping_processes_have_a_row(tmp_path: Path) -> None:
    rows = tables(Tale().acked(1), tmp_path, overlapping={900: 7, FAR: 9})["processes"].to_pylist()
    assert [(row["process"], row["final"], row["overlaps"]) for row in rows] == [
        (900, True, True), (FAR, False, True)]  # fmt: skip


def test_which_checks_are_silent(tmp_path: Path) -> None:
    def silent(name: str, tale: Tale, **facts: Any) -> set[str]:
        return {*silent_names(run(tale, tmp_path / name, **facts))}

    assert silent("a", Tale().acked(1)) == set()
    assert silent("b", Tale().acked(1), unmatched=3) == {*names.silent_if(names.If.BREACHED)}
    both = {*names.silent_if(names.If.BREACHED | names.If.DISORDERED)}
    assert silent("c", Tale().acked(1), in_order=False, disordered=True) == both
    killed = Tale().acked(1)
    killed.run[KILLED] = "absent"
    assert silent("d", killed) == {*names.silent_if(names.If.KILLED)}


# -- the trace ----------------------------------------------------------------------------------------------


def traced(tale: Tale, *rulings: dict[str, Any]) -> dict[str, Any]:
    tale.trace = []
    lines = [{"node": "controller", "at": seq, "seq": seq, "broker": None, "clean": None, "leader": None,
              "isr": None, "epoch": None, "partition": None, **line}
             for seq, line in enumerate(rulings)]  # fmt: skip
    nodes = {node: NodeSeqs(lines=1, seqs=((0, 0),)) for node in ("n1", "n2", "n3", "controller")}
    return {"traced": TraceSummary(nodes=nodes, rulings=lines)}


def elect(time: int, epoch: int, *, clean: bool) -> dict[str, Any]:
    return {"event": "elect", "time": time, "partition": 0, "epoch": epoch, "leader": "n1", "isr": ["n1"],
            "clean": clean}  # fmt: skip


def test_a_trace_has_a_row_for_every_partition(tmp_path: Path) -> None:
    tale = Tale(partitions=2).acked(1)
    tale.row("n2")["log_start"] = 1
    found = tables(tale, tmp_path, used=frozenset({0}), **traced(tale))
    rows = found["traced"].to_pylist()
    assert [row["partition"] for row in rows] == [0, 1]
    assert [row["claims_from"] for row in rows] == [1, 0]
    assert rows[0]["nodes"] == rows[0]["replicas"] == ["n1", "n2", "n3"]
    assert (rows[0]["complete"], rows[0]["min_isr"], rows[0]["excuses"]) == (True, 2, [])


def test_an_allowed_election_excuses_records_of_earlier_epochs(tmp_path: Path) -> None:
    for number, (epoch, time) in enumerate(((3, 70), (-FAR - 1, FAR), (FAR, -FAR))):
        tale = Tale().acked(1)
        tale.run["guarantees"]["unclean_leader_election"] = True
        facts = traced(tale, elect(time, epoch, clean=False))
        row = tables(tale, tmp_path / str(number), **facts)["traced"].to_pylist()[0]
        (excuse,) = row["excuses"]
        assert excuse["elected"] == epoch
        assert excuse["epoch"] == max(-FAR - 1, epoch - 1)
        assert excuse["time"] == max(-(1 << 61), min(1 << 61, time))
        assert excuse["struck"] == 1 << 61  # whenever they were written


def test_an_election_that_was_not_allowed_is_a_finding(tmp_path: Path) -> None:
    for number, clean in enumerate((False, True)):
        tale = Tale().acked(1)
        facts = facts_of(7, run(tale, tmp_path / str(number), **traced(tale, elect(5, 3, clean=clean))))
        with opened({}) as unit:
            make_tables(unit, {**facts, REPLICA_ROWS: SCHEMA.empty_table()})
            found = unit.rows("select run, name, seen, nodes, node, seq, time, permit from found").to_pylist()
        assert [(*row.values(),) for row in found] == [
            (7, names.UNCLEAN_ELECTION, 3, ["n1"], "controller", 0, 5, None)][clean:]


def test_a_broker_is_active_until_it_is_fenced(tmp_path: Path) -> None:
    tale = Tale().acked(1)
    tale.run["clock_error_ns"] = 9
    facts = traced(tale, {"event": "register", "time": 0, "broker": "n1"},
                  {"event": "unfence", "time": 100, "broker": "n1"},
                  {"event": "fence", "time": 300, "broker": "n1"})  # fmt: skip
    rows = {row["node"]: row for row in tables(tale, tmp_path, **facts)["active_brokers"].to_pylist()}
    assert (rows["n1"]["since"], rows["n1"]["until"]) == (100, 300)
    assert (rows["n2"]["since"], rows["n2"]["until"]) == (-FAR, FAR)


def test_a_broker_was_not_surely_active_between_lines_within_the_clock_error(tmp_path: Path) -> None:
    for fenced, there in ((109, False), (110, True)):
        tale = Tale().acked(1)
        tale.run["clock_error_ns"] = 9
        facts = traced(tale, {"event": "register", "time": 0, "broker": "n1"},
                      {"event": "unfence", "time": 100, "broker": "n1"},
                      {"event": "fence", "time": fenced, "broker": "n1"})  # fmt: skip
        rows = tables(tale, tmp_path / str(fenced), **facts)["active_brokers"].to_pylist()
        assert ("n1" in {row["node"] for row in rows}) == there
