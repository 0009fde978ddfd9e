"""by_value is the same for any number of slices, and each value is in one of them."""

from random import Random
from typing import Any

import pytest
from unit_rows import GREATEST, LEAST, table

from floodmark.checkers.laws import values as of_values
from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.unit import Unit, opened
from floodmark.checkers.laws.values import values

NODES = ("n1", "n2", "n3")
EXTREMES = [LEAST, LEAST + 1, -1, 0, GREATEST]
Rows = list[dict[str, Any]]


def tables(random: Random) -> dict[str, Rows]:
    """A value is sent, answered, read and stored once or several times, or not at all."""
    made: dict[str, Rows] = {name: [] for name in ("sends", "reads", "entries")}
    every = [*EXTREMES, *(random.getrandbits(63) for _ in range(600)), *range(10**6, 10**6 + 600)]
    random.shuffle(every)
    for value in every:
        offset = random.randrange(2000)
        here = {"partition": random.randrange(2), "value": value}
        often = random.choice((1, 1, 1, 1, 0, 2))
        for type_ in ["invoke"] * often + random.choices(
            ("ok", "fail", "info"), k=random.choice((1, 1, 0, 2))
        ):
            made["sends"].append({**here, "type": type_, "index": len(made["sends"]),
                                  "time": random.randrange(10**6), "process": random.randrange(9),
                                  "offset": offset if type_ == "ok" else None})  # fmt: skip
        for _ in range(random.choice((0, 1, 1, 2))):
            made["reads"].append({**here, "offset": offset + random.choice((0, 0, 1)), "time": 1,
                                  "process": random.randrange(9),
                                  "index": 5000 + len(made["reads"])})  # fmt: skip
        for node in random.choice((NODES, NODES, ())):
            made["entries"].append({**here, "node": node, "offset": offset + random.choice((0, 0, 0, 2)),
                                    "aborted": random.random() < 0.1})  # fmt: skip
    random.shuffle(made["sends"])
    sent = [row["value"] for row in made["sends"] if row["type"] == "invoke"]
    made["repeated"] = [{"value": value} for value in {value for value in sent if sent.count(value) > 1}]
    made["runs"] = [{}]
    made["processes"] = [{"process": 8, "final": True}]
    made["partitions"] = [{"partition": 0, "log_start": 7, "hw": 3000},
                          {"partition": 1, "by_final_reads": True, "losses_judged": False}]  # fmt: skip
    made["replicas"] = [{"partition": partition, "node": node, "leads": node == "n1"}
                        for partition in (0, 1) for node in NODES]  # fmt: skip
    return made


def by_value(rows: dict[str, Rows], slice_rows: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Rows]:
    """The number of slices, and the table."""
    monkeypatch.setattr(of_values, "SLICE_ROWS", slice_rows)
    cuts: list[list[str]] = []
    cut = Unit.cut

    def recording(unit: Unit, column: str, most: int, *names: str) -> list[str]:
        cuts.append(cut(unit, column, most, *names))
        return cuts[-1]

    monkeypatch.setattr(Unit, "cut", recording)
    with opened({name: table(name, each) for name, each in rows.items()}) as unit:
        log(unit)
        values(unit)
        return len(cuts[0]), unit.rows("from by_value order by run, partition, value").to_pylist()


def test_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tables(Random(7))
    one, whole = by_value(rows, 10**6, monkeypatch)
    many, sliced = by_value(rows, 200, monkeypatch)
    assert one == 1
    assert many > 10
    assert sliced == whole
    assert {row["value"] for row in whole} == {
        row["value"] for name in ("sends", "reads", "entries") for row in rows[name]
    }


def test_first_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several invocations the one with the lowest index counts, of several answers the first line."""
    rows = tables(Random(8))
    _, whole = by_value(rows, 10**6, monkeypatch)
    sends = [{**row, "at": at} for at, row in enumerate(rows["sends"])]
    for row in whole[::7]:
        mine = [one for one in sends if (one["partition"], one["value"]) == (row["partition"], row["value"])]
        invocations = sorted((one for one in mine if one["type"] == "invoke"), key=lambda one: one["index"])
        answers = sorted((one for one in mine if one["type"] != "invoke"), key=lambda one: one["at"])
        assert row["sent"] == len(invocations)
        first, answer = next(iter(invocations), {}), next(iter(answers), {})
        assert (row["invoked"], row["invoked_time"]) == (first.get("index"), first.get("time"))
        assert row["sender"] == first.get("process", answer.get("process"))
        assert (row["type"], row["done"], row["line"], row["process"], row["ack"]) == tuple(
            answer.get(key) for key in ("type", "index", "at", "process", "offset")
        )
