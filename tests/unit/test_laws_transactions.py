"""The laws about what transactions read and wrote (checkers.laws.transactions): dependencies, cycles and
reads of own writes.

Runs are judged in one unit, except where a test says otherwise.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pytest
from unit_rows import GREATEST, LEAST, Batch, Run, claimed_by, each, table, tables_of

from floodmark.checkers.laws import cycles
from floodmark.checkers.laws.cycles import ops, unsearched
from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.transactions import dependencies, of_the_run, ops_sent_on, sent_on, transactions
from floodmark.checkers.laws.unit import opened, run_families
from floodmark.checkers.laws.values import values
from floodmark.checkers.read import pairing

Place = tuple[int, int, int]  # partition, offset, value
Line = dict[str, Any]
A, B, C, D = (0, 0, 10), (0, 1, 11), (1, 0, 20), (1, 1, 21)
READ_OWN = "precommitted-read"
BATCH = Batch(log, values, transactions)


def line(
    process: int, kind: str, *sends: Place, reads: Sequence[Place] = (), f: str = "txn", told: bool = False
) -> Line:
    """told: although it is not ok, the line has the offsets."""
    return {"process": process, "type": kind, "sends": sends, "reads": reads, "f": f, "told": told}


def op(process: int, *sends: Place, reads: Sequence[Place] = (), f: str = "txn") -> list[Line]:
    """Both lines of an op that succeeded, with none in between."""
    return [line(process, "invoke", *sends, f=f), line(process, "ok", *sends, reads=reads, f=f)]


MUTUAL = [
    line(1, "invoke", A), line(2, "invoke", C),
    line(1, "ok", A, reads=[C]), line(2, "ok", C, reads=[A]),
]  # fmt: skip


def reading(process: int) -> list[Line]:
    """MUTUAL, but only this process reads."""
    return [one if one["process"] == process else {**one, "reads": ()} for one in MUTUAL]


def rows_of(lines: Iterable[Line], first: int = 0, **run: Any) -> dict[str, list[Line]]:
    """The tables of one run. `first`: the index of the first line; `run`: fields of its row."""
    rows: dict[str, list[Line]] = {"sends": [], "reads": [], "lines": []}
    for at, one in enumerate(lines):
        base = {key: one[key] for key in ("process", "type", "f")}
        base |= {"at": at, "index": first + at, "time": at}
        ident = hash(tuple((place[0], place[2]) for place in one["sends"])) if one["sends"] else None
        rows["lines"].append(base | {"ident": ident})
        for name in ("sends", "reads"):
            for pos, (partition, offset, value) in enumerate(one[name]):
                place = {"partition": partition, "value": value, "offset": offset, "pos": pos}
                if name == "sends" and one["type"] != "ok" and not one["told"]:
                    place["offset"] = None
                rows[name].append(base | place)
    rows["answers"] = pairing.answers(table("lines", rows["lines"])).to_pylist()
    return rows | {"runs": [{"transactional": True, **run}]}


def case(lines: Iterable[Line], repeated: Sequence[int] = (), **run: Any) -> Run:
    """A run of the batch."""
    return BATCH.add(**rows_of(lines, **run), repeated=[{"value": value} for value in repeated])


def names_of(run: Run) -> list[str]:
    return sorted(row["name"] for row in run.findings())


READ_EACH_OTHER = case(MUTUAL)


def test_two_transactions_that_read_each_other_are_a_cycle() -> None:
    (found,) = READ_EACH_OTHER.findings()

    assert {key: found.get(key) for key in ("name", "permit", "partition", "offset", "value", "ops")} == {
        "name": "G1c", "permit": None, "partition": 0, "offset": 0, "value": 10, "ops": [0, 2, 1, 3],
    }  # fmt: skip
    assert found["how"].startswith('[{"edge":"wr","ops":[{"process":1,"f":"txn","lines":[0,2]},')


@each("run", {f"process {process}": case(reading(process)) for process in (1, 2)})
def test_if_only_one_of_them_reads_there_is_no_cycle(run: Run) -> None:
    assert names_of(run) == []


WITHOUT_TRANSACTIONS = case(MUTUAL, transactional=False)


def test_a_run_without_transactions_is_not_searched() -> None:
    assert names_of(WITHOUT_TRANSACTIONS) == []


ONE_READS, THE_OTHER_READS, READ_EACH_OTHER_TOO = case(reading(1)), case(reading(2)), case(MUTUAL)


def test_runs_are_not_joined() -> None:
    """The transactions of a run read what those of another sent."""
    assert names_of(ONE_READS) == names_of(THE_OTHER_READS) == []
    assert names_of(READ_EACH_OTHER) == names_of(READ_EACH_OTHER_TOO) == ["G1c"]


SENT_TWICE = case(MUTUAL, repeated=[A[2]])


def test_a_value_that_was_sent_twice_is_left_out() -> None:
    assert SENT_TWICE.findings() == []


def writes_around(value: int) -> list[Line]:
    """Two transactions, each of which wrote before the other in one partition; in partition 0 a record with
    this value, which a poll returned, is between them."""
    first, second = [(0, 0, 10), (1, 1, 21)], [(0, 2, 12), (1, 0, 20)]
    return [
        line(1, "invoke", *first), line(2, "invoke", *second), line(1, "ok", *first), line(2, "ok", *second),
        *op(3, reads=[(0, 1, value)], f="poll"),
    ]  # fmt: skip


AROUND_A_REPEATED_VALUE = case(writes_around(99), repeated=[99])
AROUND_A_STRANGER = case(writes_around(99))
# Nobody reads it, but a send of it was acked there.
AROUND_AN_ACK = case([*writes_around(99)[:4], *op(3, (0, 1, 99), f="send")], repeated=[99])


def test_records_around_a_value_that_was_sent_twice_are_neighbours() -> None:
    for run in (AROUND_A_REPEATED_VALUE, AROUND_AN_ACK):
        assert [(row["name"], sorted(row["ops"])) for row in run.findings()] == [("G0", [0, 1, 2, 3])]


def test_records_around_a_record_without_a_known_writer_are_not() -> None:
    assert names_of(AROUND_A_STRANGER) == []


# Each reads two records of the other; of those of process 1 the lower one has the higher value.
TWO_EACH = [(0, 0, 12), (0, 1, 10)], [(1, 0, 20), (1, 1, 21)]
READ_TWO_OF_EACH_OTHER = case([
    line(1, "invoke", *TWO_EACH[0]), line(2, "invoke", *TWO_EACH[1]),
    line(1, "ok", *TWO_EACH[0], reads=TWO_EACH[1]), line(2, "ok", *TWO_EACH[1], reads=TWO_EACH[0]),
])  # fmt: skip


def test_a_step_names_the_lowest_record_that_was_read() -> None:
    (found,) = READ_TWO_OF_EACH_OTHER.findings()
    steps = orjson.loads(found["how"])

    assert [(one["partition"], one["offset"], one["value"]) for one in steps] == [(0, 0, 12), (1, 0, 20)]


WITHOUT_AN_INVOCATION = case(MUTUAL[1:])


def test_a_writer_whose_invocation_is_missing_is_its_completion() -> None:
    assert names_of(WITHOUT_AN_INVOCATION) == ["G1c"]


OWN_READS = case([*op(1, A, C, reads=[C, A]), *op(1, B, reads=[A, C])])


def test_a_read_of_an_own_write_names_the_lowest_record() -> None:
    """One finding for each op, however many of its own records it read; none for those that its process sent
    before."""
    (found,) = OWN_READS.findings()

    assert {key: found.get(key) for key in ("name", "permit", "partition", "offset", "value", "ops")} == {
        "name": READ_OWN, "permit": None, "partition": 0, "offset": 0, "value": 10, "ops": [0, 1],
    }  # fmt: skip


READ_UNCOMMITTED = case([*MUTUAL, *op(3, B, reads=[B])], uncommitted=True)


def test_read_uncommitted_permits_both() -> None:
    found = READ_UNCOMMITTED.findings()

    assert {(row["name"], row["permit"]) for row in found} == {("G1c", 8), (READ_OWN, 8)}


SEND_AND_POLL = case([*op(1, A, f="send"), *op(1, reads=[A], f="poll")])


def test_a_poll_after_a_send_is_no_transaction() -> None:
    assert names_of(SEND_AND_POLL) == []


INVOKED = [line(1, "invoke", A, D), line(2, "invoke", B, C)]
NEIGHBOURS = case([*INVOKED, line(1, "ok", A, D), line(2, "ok", B, C)])
VALUE_OF_NOBODY = case(
    [*INVOKED, *op(3, reads=[(0, 1, 99)]), line(1, "ok", A, D), line(2, "ok", (0, 2, 11), C)]
)


def test_writers_are_in_an_order_only_if_no_record_is_between_theirs() -> None:
    """First each writes before the other in one partition. Then partition 0 has a record of neither between
    theirs."""
    assert names_of(NEIGHBOURS) == ["G0"]
    assert names_of(VALUE_OF_NOBODY) == []


FAILED = case([*MUTUAL[:3], {**MUTUAL[3], "type": "fail"}])


def test_a_failed_send_wrote_nothing() -> None:
    assert names_of(FAILED) == []


# -- torn transactions --------------------------------------------------------------------------------------

Tables = dict[str, list[Line]]
SETTLED = {"decided": True, "stable_to": 5, "hw": 5}
IMPORTED = {"leader_known": False, "losses_judged": False, "by_any_read": True, "log_start": None,
            "hw": None, "stable_to": None}  # fmt: skip
DOUBTFUL = [line(1, "invoke", A, D), line(1, "info", A, D)]
TOLD = [line(1, "invoke", A, D), line(1, "info", A, D, told=True)]
SHOWN = op(2, reads=[A])
AROUND_IT = op(3, reads=[C, (1, 2, 22)])


def torn_rows(lines: Iterable[Line], *entries: Place, of: Line = SETTLED, **run: Any) -> Tables:
    """Partition 0 as in a settled run, partition 1 as changed. entries: of the leader's logs; one with offset
    and value as negative numbers is aborted."""
    logged = [
        {"partition": partition, "offset": abs(offset), "value": abs(value), "aborted": value < 0, "at": at}
        for at, (partition, offset, value) in enumerate(entries)
    ]  # fmt: skip
    first = IMPORTED if of.get("by_any_read") else SETTLED
    return {
        **rows_of(lines, **run), "entries": logged,
        "partitions": [{**first, "partition": 0}, {**of, "partition": 1}],
        "replicas": [{"partition": key, "leads": True, "leo": 5, "hw": 5} for key in (0, 1)],
    }  # fmt: skip


ABORTED_D = (1, -1, -21)
TORN = {
    "the other is aborted": (torn_rows(DOUBTFUL, A, ABORTED_D), "aborted"),
    "the other is not there": (torn_rows(DOUBTFUL, A), "absent"),
    "never answered": (torn_rows(DOUBTFUL[:1], A, ABORTED_D), "aborted"),
    "answered with a fail": (torn_rows([DOUBTFUL[0], line(1, "fail", A, D)], A, ABORTED_D), "aborted"),
    "one of two copies is committed": (torn_rows(DOUBTFUL, A, (0, -2, -10), ABORTED_D), "aborted"),
    "read, and passed over by a poll": (torn_rows([*TOLD, *SHOWN, *AROUND_IT], of=IMPORTED), "passed"),
    "and passed over between two polls": (
        torn_rows([*TOLD, *SHOWN, *op(3, reads=[C]), *op(3, reads=[(1, 2, 22)])], of=IMPORTED), "passed",
    ),
}  # fmt: skip
WHOLE = {
    "both are committed": torn_rows(DOUBTFUL, A, D),
    "both are aborted": torn_rows(DOUBTFUL, (0, 0, -10), ABORTED_D),
    "neither is there": torn_rows(DOUBTFUL),
    "the other is not decided yet": torn_rows(DOUBTFUL, A, D, of={**SETTLED, "stable_to": 1}),
    "one that is not decided yet": torn_rows(DOUBTFUL, (0, 5, 10), ABORTED_D),
    "the other may have been deleted": torn_rows(DOUBTFUL, A, of={**SETTLED, "log_start": 1}),
    "the other may have been compacted": torn_rows(DOUBTFUL, A, of={**SETTLED, "losses_judged": False}),
    "no lso in the other's row": torn_rows(DOUBTFUL, A, of={**SETTLED, "decided": False}),
    "it was told ok": torn_rows(op(1, A, D), A),
    "a send without a transaction": torn_rows([{**one, "f": "send"} for one in DOUBTFUL], A),
    "two transactions": torn_rows(
        [line(1, "invoke", A), line(1, "info", A), line(2, "invoke", D), line(2, "info", D)], A
    ),
    "the other was read, too": torn_rows([*TOLD, *SHOWN, *op(3, reads=[C, D, (1, 2, 22)])], of=IMPORTED),
    "by a poll in doubt": torn_rows([*TOLD, *AROUND_IT, line(2, "invoke"), line(2, "info", reads=[A])],
                                    of=IMPORTED),
    "nobody was told its offset": torn_rows([*DOUBTFUL, *SHOWN, *AROUND_IT], of=IMPORTED),
    "nobody went past it": torn_rows([*TOLD, *SHOWN, *op(3, reads=[C])], of=IMPORTED),
    "nobody came from below it": torn_rows([*TOLD, *SHOWN, *op(3, reads=[(1, 2, 22)])], of=IMPORTED),
    "a failed poll passed over it": torn_rows(
        [*TOLD, *SHOWN, line(3, "invoke"), line(3, "fail", reads=[C, (1, 2, 22)])], of=IMPORTED
    ),
    "two processes are on its sides": torn_rows(
        [*TOLD, *SHOWN, *op(3, reads=[C]), *op(4, reads=[(1, 2, 22)])], of=IMPORTED
    ),
    "read uncommitted": torn_rows(
        [*TOLD, *SHOWN, *AROUND_IT], of={**IMPORTED, "uncommitted": True}
    ),
}  # fmt: skip
BETWEEN = {"process": 3, "at": 6, "type": "ok"}
MOVED = {
    f"{f} {place}": {
        **torn_rows([*TOLD, *SHOWN, *op(3, reads=[C]), *op(3, reads=[(1, 2, 22)])], of=IMPORTED),
        "moves": [{**BETWEEN, "f": f, "at": at}],
    }
    for f, place, at in (("assign", "between", 6), ("crash", "between", 6), ("subscribe", "before", -1))
}  # fmt: skip
TORN_RUNS = {name: BATCH.add(**rows) for name, (rows, _) in TORN.items()}
WHOLE_RUNS = {name: BATCH.add(**rows) for name, rows in {**WHOLE, **MOVED}.items()}


def torn(run: Run) -> list[tuple[Any, ...]]:
    return [tuple(row.get(key) for key in ("partition", "value", "seen", "how", "permit", "ops"))
            for row in run.findings() if row["name"] == "torn-transaction"]  # fmt: skip


@pytest.mark.parametrize("name", TORN)
def test_a_transaction_is_torn(name: str) -> None:
    ops = [0] if name == "never answered" else [0, 1]

    assert torn(TORN_RUNS[name]) == [(1, 21, 10, TORN[name][1], None, ops)]


@pytest.mark.parametrize("name", WHOLE_RUNS)
def test_a_transaction_is_not_torn_for_certain(name: str) -> None:
    assert torn(WHOLE_RUNS[name]) == []


REPEATED = BATCH.add(**torn_rows(DOUBTFUL, A), repeated=[{"value": 21}])
LOST = {**SETTLED, "unclean_index": 1}
STRUCK = {
    "the coordinator may have lost it": (torn_rows(DOUBTFUL, A, internal_index=1), 9),
    "it lost data before": (torn_rows(DOUBTFUL, A, internal_index=0), None),
    "the other is lost, which is permitted": (torn_rows(DOUBTFUL, A, of=LOST), 10),
    "and perhaps so": (torn_rows(DOUBTFUL, A, of={**SETTLED, "budget_maybe_index": 1}), 9),
    "its marker may be lost": (torn_rows(DOUBTFUL, A, ABORTED_D, of=LOST), 9),
    "acks permit the loss": (torn_rows(DOUBTFUL, A, of={**SETTLED, "weak_acks": True}), 10),
    "acks lose no marker": (torn_rows(DOUBTFUL, A, ABORTED_D, of={**SETTLED, "weak_acks": True}), None),
}
STRUCK_RUNS = {name: BATCH.add(**rows) for name, (rows, _) in STRUCK.items()}
# Of three records one is committed; of the two that are not, nothing permits the loss of the second.
THREE = [line(1, "invoke", (1, 0, 20), (1, 1, 21), (0, 3, 13)), line(1, "info", C, D, (0, 3, 13))]
TWO_LACKING = BATCH.add(**torn_rows(THREE, C, of={**SETTLED, "unclean_index": 1}))


def test_a_value_that_was_sent_twice_tears_nothing() -> None:
    assert torn(REPEATED) == []


@pytest.mark.parametrize("name", STRUCK)
def test_what_permits_a_torn_transaction(name: str) -> None:
    assert [found[4] for found in torn(STRUCK_RUNS[name])] == [STRUCK[name][1]]


def test_of_several_records_the_one_that_is_permitted_least_counts() -> None:
    """But each pair has the committed one, whose marker may be lost."""
    assert torn(TWO_LACKING) == [(0, 13, 20, "absent", 9, [0, 1])]


# -- units of partitions, and one of the run ----------------------------------------------------------------


def in_one_unit(tables: dict[str, pa.Table]) -> list[Line]:
    with opened(tables) as unit:
        return claimed_by(unit, [log, values, transactions])


def in_steps(tables: dict[str, pa.Table]) -> list[Line]:
    """Each partition in a unit of its own, each half of the processes as well, and one unit for the runs."""
    sent: dict[str, list[pa.Table]] = {}
    for key in (0, 1):
        mine = {
            name: of_partition(rows, key) for name, rows in tables.items() if "partition" in rows.schema.names
        }
        with opened(mine | {"runs": tables["runs"]}) as unit:
            run_families(unit, [log, values, dependencies])
            for name, rows in sent_on(unit).items():
                sent.setdefault(name, []).append(rows)
    for half in (0, 1):
        mine = [row for row in tables["lines"].to_pylist() if row["process"] % 2 == half]
        lines = pa.Table.from_pylist(mine, schema=tables["lines"].schema)
        with opened({"lines": lines, "answers": pairing.answers(lines), "runs": tables["runs"]}) as unit:
            ops(unit)
            for name, rows in ops_sent_on(unit).items():
                sent.setdefault(name, []).append(rows)
    with opened({"runs": tables["runs"]}) as unit:
        for name, parts in sent.items():
            unit.load(name, pa.concat_tables(parts))
        findings = claimed_by(unit, [of_the_run])
        for run, reason in unsearched(unit):
            findings.append({"name": "unsearched", "run": run, "how": reason})
    return findings


def of_partition(rows: pa.Table, key: int) -> pa.Table:
    return pa.Table.from_pylist(
        [row for row in rows.to_pylist() if row["partition"] == key], schema=rows.schema
    )


BUSY = [*MUTUAL, *op(5, B, D, reads=[B, D]), *op(6, reads=[A, C]), *op(7, reads=[A, D])]


def test_partitions_in_units_of_their_own_have_the_findings_of_one_unit() -> None:
    tables = tables_of([rows_of(BUSY)])
    together = in_one_unit(tables)

    assert in_steps(tables) == together
    assert {row["name"] for row in together} == {"G1c", READ_OWN}


def test_a_transaction_is_torn_between_units() -> None:
    tables = tables_of([TORN["the other is aborted"][0]])

    assert [row["name"] for row in in_steps(tables)] == ["torn-transaction"]


@pytest.mark.parametrize(("most", "searched"), [(10, True), (9, False), (1, False)])
def test_a_run_with_too_many_edges_is_reported_as_unsearched(
    most: int, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many in one partition alone, or in both together; the other run is searched all the same."""
    monkeypatch.setattr(cycles, "MOST_EDGES", most)
    rows = in_steps(tables_of([rows_of(BUSY), rows_of(op(1, A))]))
    found = {(row["run"], row["name"]) for row in rows}

    assert ((0, "G1c") in found) == searched
    assert ((0, "unsearched") in found) != searched
    assert (0, READ_OWN) in found
    if not searched:
        (reason,) = (row["how"] for row in rows if row["name"] == "unsearched")
        assert reason.startswith("10 dependencies among the ops of this run with transactions: cycles are")
        assert reason.endswith(f"among {most} at the most")


# -- extreme numbers, and damage ----------------------------------------------------------------------------


def extreme(value: int, offset: int, first: int) -> Run:
    """Two transactions that read each other, in lines from this index on."""
    one, other = (GREATEST, offset, value), (0, offset, 5)
    lines = [
        line(GREATEST, "invoke", one), line(2, "invoke", other),
        line(GREATEST, "ok", one, reads=[other]), line(2, "ok", other, reads=[one]),
    ]  # fmt: skip
    return case(lines, first=first)


@each("run, first", {
    f"value {value}, offset {offset}, index {first}": (extreme(value, offset, first), first)
    for value in (LEAST, -1, GREATEST)
    for offset in (0, GREATEST)
    for first in (0, GREATEST - 4)
})  # fmt: skip
def test_the_lowest_and_highest_numbers_do_not_overflow(run: Run, first: int) -> None:
    (found,) = run.findings()

    assert (found["name"], sorted(found["ops"])) == ("G1c", [first + at for at in range(4)])


def test_the_same_statements_are_executed_whatever_is_wrong() -> None:
    statements = []
    for lines in (op(1, A), BUSY, [*BUSY, *op(1, A, reads=[D])], [line(1, "ok", A, reads=[A])]):
        with opened(tables_of([rows_of(lines)])) as unit:
            run_families(unit, [log, values, transactions])
            statements.append(unit.statements)

    assert statements[1:] == statements[:1] * 3
