"""What transactions read and wrote (checkers.laws.transactions): edges, cycles and reads of own writes."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from unit_rows import GREATEST, LEAST, table

from floodmark.checkers.laws import cycles
from floodmark.checkers.laws.cycles import unsearched
from floodmark.checkers.laws.transactions import dependencies, of_the_run, sent_on, transactions
from floodmark.checkers.laws.unit import opened, run_families
from floodmark.checkers.read import pairing

Place = tuple[int, int, int]  # partition, offset, value
A, B, C, D = (0, 0, 10), (0, 1, 11), (1, 0, 20), (1, 1, 21)
READ_OWN = "precommitted-read"


def line(
    process: int, kind: str, *sends: Place, reads: Sequence[Place] = (), f: str = "txn", run: int = 0
) -> dict[str, Any]:
    return {"process": process, "type": kind, "sends": sends, "reads": reads, "f": f, "run": run}


def both(process: int, *sends: Place, reads: Sequence[Place] = (), **told: Any) -> list[dict[str, Any]]:
    """A transaction by itself, answered ok."""
    return [line(process, "invoke", *sends, **told), line(process, "ok", *sends, reads=reads, **told)]


MUTUAL = [
    line(1, "invoke", A), line(2, "invoke", C),
    line(1, "ok", A, reads=[C]), line(2, "ok", C, reads=[A]),
]  # fmt: skip


def tables_of(lines: Iterable[dict[str, Any]], first: int = 0, **run: Any) -> dict[str, pa.Table]:
    """The lines as tables; their indexes begin with `first`."""
    rows: dict[str, list[dict[str, Any]]] = {"sends": [], "reads": [], "lines": []}
    runs = set()
    for at, told in enumerate(lines):
        runs.add(told["run"])
        base = {key: told[key] for key in ("process", "type", "f", "run")}
        base |= {"at": at, "index": first + at, "time": at}
        ident = hash(tuple((place[0], place[2]) for place in told["sends"])) if told["sends"] else None
        rows["lines"].append(base | {"ident": ident})
        for name in ("sends", "reads"):
            for pos, (partition, offset, value) in enumerate(told[name]):
                place = {"partition": partition, "value": value, "offset": offset, "pos": pos}
                if name == "sends" and told["type"] != "ok":
                    place["offset"] = None
                rows[name].append(base | place)
    made = {name: table(name, mine) for name, mine in rows.items()}
    made["runs"] = table("runs", [{"run": one, "transactional": True, **run} for one in sorted(runs)])
    return made | {"answers": pairing.answers(made["lines"])}


def judged(tables: dict[str, pa.Table]) -> list[dict[str, Any]]:
    with opened(tables) as unit:
        return run_families(unit, [transactions]).to_pylist()


def names_of(lines: Iterable[dict[str, Any]], **run: Any) -> list[str]:
    return sorted(row["name"] for row in judged(tables_of(lines, **run)))


def test_two_that_read_each_other_are_a_cycle() -> None:
    (found,) = judged(tables_of(MUTUAL))

    assert {key: found[key] for key in ("name", "permit", "partition", "offset", "value", "ops")} == {
        "name": "G1c", "permit": None, "partition": 0, "offset": 0, "value": 10, "ops": [0, 2, 1, 3],
    }  # fmt: skip
    assert found["how"].startswith('[{"edge":"wr","ops":[{"process":1,"f":"txn","lines":[0,2]},')


@pytest.mark.parametrize("gone", [1, 2])
def test_one_way_is_none(gone: int) -> None:
    lines = [{**one, "reads": ()} if one["process"] == gone else one for one in MUTUAL]

    assert names_of(lines) == []


def test_a_run_without_transactions_is_not_looked_at() -> None:
    assert names_of(MUTUAL, transactional=False) == []


def test_two_runs_share_nothing() -> None:
    """What one of them read the other one sent."""
    there = [{**one, "run": 1, "reads": one["reads"] if one["process"] == 1 else ()} for one in MUTUAL]
    here = [{**one, "reads": one["reads"] if one["process"] == 2 else ()} for one in MUTUAL]

    assert names_of([*here, *there]) == []
    assert names_of([*MUTUAL, *({**one, "run": 1} for one in MUTUAL)]) == ["G1c", "G1c"]


def test_of_a_value_that_was_sent_twice_nothing_follows() -> None:
    tables = tables_of(MUTUAL)

    assert judged(tables | {"repeated": table("repeated", [{"value": A[2]}])}) == []


def test_a_read_of_its_own_write_has_the_lowest_place() -> None:
    """One finding an op, whatever it read of its own; none for what its process sent before."""
    (found,) = judged(tables_of([*both(1, A, C, reads=[C, A]), *both(1, B, reads=[A, C])]))

    assert {key: found[key] for key in ("name", "permit", "partition", "offset", "value", "ops")} == {
        "name": READ_OWN, "permit": None, "partition": 0, "offset": 0, "value": 10, "ops": [0, 1],
    }  # fmt: skip


def test_who_reads_uncommitted_may() -> None:
    found = judged(tables_of([*MUTUAL, *both(3, B, reads=[B])], uncommitted=True))

    assert {(row["name"], row["permit"]) for row in found} == {("G1c", 8), (READ_OWN, 8)}


def test_a_poll_of_what_its_process_sends_is_no_transaction() -> None:
    assert names_of([*both(1, A, f="send"), *both(1, reads=[A], f="poll")]) == []


def test_the_order_of_records_has_neighbours_only_where_nothing_lies_between() -> None:
    """B and D's sender wrote between A's two; so do they where C's value is one that nobody sent."""
    lines = [
        line(1, "invoke", A, D), line(2, "invoke", B, C),
        line(1, "ok", A, D), line(2, "ok", B, C),
    ]  # fmt: skip
    stranger = [*lines[:2], *both(3, reads=[(0, 1, 99)]), line(1, "ok", A, D), line(2, "ok", (0, 2, 11), C)]

    assert names_of(lines) == ["G0"]
    assert names_of(stranger) == []


def test_a_failed_send_wrote_nothing() -> None:
    lines = [*MUTUAL[:3], {**MUTUAL[3], "type": "fail"}]

    assert names_of(lines) == []


# -- units of partitions, and one of the run ----------------------------------------------------------------


def in_steps(tables: dict[str, pa.Table]) -> list[dict[str, Any]]:
    """Each partition in a unit of its own."""
    sent: dict[str, list[pa.Table]] = {}
    for key in (0, 1):
        mine = {name: of_partition(tables[name], key) for name in ("sends", "reads")}
        with opened(mine | {"runs": tables["runs"]}) as unit:
            dependencies(unit)
            for name, rows in sent_on(unit).items():
                sent.setdefault(name, []).append(rows)
    with opened({name: tables[name] for name in ("runs", "lines", "answers")}) as unit:
        for name, parts in sent.items():
            unit.load(name, pa.concat_tables(parts))
        findings = run_families(unit, [of_the_run]).to_pylist()
        for run, reason in unsearched(unit):
            findings.append({"name": "unsearched", "run": run, "how": reason})
    return findings


def of_partition(rows: pa.Table, key: int) -> pa.Table:
    return pa.Table.from_pylist(
        [row for row in rows.to_pylist() if row["partition"] == key], schema=rows.schema
    )


BUSY = [*MUTUAL, *both(5, B, D, reads=[B, D]), *both(6, reads=[A, C]), *both(7, reads=[A, D])]


def test_partitions_apart_show_what_they_show_together() -> None:
    tables = tables_of(BUSY)

    assert in_steps(tables) == judged(tables)
    assert {row["name"] for row in judged(tables)} == {"G1c", READ_OWN, "G-single"}


@pytest.mark.parametrize(("most", "looked_at"), [(15, True), (14, False), (1, False)])
def test_a_run_with_too_many_edges_is_told(
    most: int, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one partition alone, or in both together; its neighbour is looked at all the same."""
    monkeypatch.setattr(cycles, "MOST_EDGES", most)
    tables = tables_of([*BUSY, *({**one, "run": 1} for one in both(1, A))])
    found = {(row["run"], row["name"]) for row in in_steps(tables)}

    assert ((0, "G1c") in found) == looked_at
    assert ((0, "unsearched") in found) != looked_at
    assert (0, READ_OWN) in found
    if not looked_at:
        (reason,) = (row["how"] for row in in_steps(tables) if row["name"] == "unsearched")
        assert reason.startswith("15 dependencies among the ops of this run with transactions: cycles are")
        assert reason.endswith(f"among {most} at the most")


# -- odd numbers, and damage --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [LEAST, -1, GREATEST])
@pytest.mark.parametrize("offset", [0, GREATEST])
@pytest.mark.parametrize("first", [0, GREATEST - 4])
def test_any_number_will_do(value: int, offset: int, first: int) -> None:
    one, other = (GREATEST, offset, value), (0, offset, 5)
    lines = [
        line(GREATEST, "invoke", one), line(2, "invoke", other),
        line(GREATEST, "ok", one, reads=[other]), line(2, "ok", other, reads=[one]),
    ]  # fmt: skip
    (found,) = judged(tables_of(lines, first=first))

    assert (found["name"], sorted(found["ops"])) == ("G1c", [first + at for at in range(4)])


def test_the_same_statements_run_whatever_is_wrong() -> None:
    statements = []
    for lines in (both(1, A), BUSY, [*BUSY, *both(1, A, reads=[D])], [line(1, "ok", A, reads=[A])]):
        with opened(tables_of(lines)) as unit:
            transactions(unit)
            statements.append(unit.statements)

    assert statements[1:] == statements[:1] * 3
