"""Completions and their invocations, in bags of whole processes; values sent or answered too often."""

import pickle
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from operator import add
from random import Random
from typing import Any

import pyarrow as pa

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read import pairing, repeats
from floodmark.checkers.read.facts import AcrossFacts

_LINES = pa.schema([
    ("run", pa.int32()), *((name, pa.int64()) for name in ("at", "index", "process")), ("type", pa.string()),
    ("f", pa.string()), ("ident", pa.int64()),
])  # fmt: skip
FAR = (1 << 63) - 1
RUNS = 240
Row = dict[str, Any]


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_LINES)


def merged(parts: Iterable[AcrossFacts], run: int) -> AcrossFacts:
    return reduce(add, (one for one in parts if one.run == run), AcrossFacts(run=run))


def test_extreme_numbers() -> None:
    rows = [{"run": 0, "at": FAR - 10 + at, "index": at, "process": FAR, "type": kind, "f": f, "ident": ident}
            for at, (kind, f, ident) in enumerate((
                ("invoke", "send", -FAR - 1), ("ok", "send", FAR), ("invoke", "poll", None)))]
    found = pairing.pairing(table(rows))
    assert found == [AcrossFacts(run=0, unmatched=1, overlapping={FAR: 2})]
    assert pickle.loads(pickle.dumps(found[0])) == found[0]


# -- against a plain loop ---------------------------------------------------------------------------------


def random_lines(random: Random, run: int) -> list[Row]:
    """A few processes, mostly in order."""
    rows: list[Row] = []
    opened: dict[int, tuple[str, int | None]] = {}
    for at in range(random.randrange(20)):
        process = random.choice((0, 1, 2, 1 << 40))
        f = random.choice(("send", "txn", "poll", "assign"))
        ident = random.choice({"txn": (None, 1, 2, FAR), "send": (1, 2)}.get(f, (None,)))
        kind = ("invoke" if (process not in opened) != (random.random() < 0.15)
                else random.choice(("ok", "info")))
        if kind != "invoke" and process in opened and random.random() < 0.8:
            f, ident = opened[process]
        opened.pop(process, None)
        if kind == "invoke":
            opened[process] = f, ident
        rows.append({"run": run, "at": at, "index": at + random.choice((0, 0, 0, 3)), "process": process,
                     "type": kind, "f": f, "ident": ident})
    return rows


def plain_facts(rows: list[Row]) -> dict[int, tuple[int | None, dict[int, int]]]:
    """By the definition of the format, line by line."""
    found: dict[int, tuple[list[int], dict[int, int]]] = {}
    open_ops, unsure, last = Counter[Any](), set(), dict[Any, Row]()
    for row in rows:
        key = row["run"], row["process"]
        unmatched, overlapping = found.setdefault(row["run"], ([], {}))
        before = last.get(key)
        invocation = before if before is not None and before["type"] == "invoke" else None
        if row["type"] == "invoke":
            if invocation or key in unsure:
                overlapping[key[1]] = min(row["index"], overlapping.get(key[1], FAR))
        else:
            other = invocation and (invocation["f"], invocation["ident"]) != (row["f"], row["ident"])
            if open_ops[key] <= 0 or (open_ops[key] == 1 and other):
                unmatched.append(row["index"])
                unsure.add(key)
        open_ops[key] += 1 if row["type"] == "invoke" else -1
        unsure |= {key} if row["type"] == "info" else set()
        last[key] = row
    return {run: (min(unmatched, default=None), overlapping)
            for run, (unmatched, overlapping) in found.items() if unmatched or overlapping}  # fmt: skip


def plain_answers(rows: list[Row]) -> dict[tuple[int, int], int]:
    """`at` of the invocation, for every completion that can be paired."""
    found, last, alike, open_ops = {}, dict[Any, Row](), dict[Any, Row](), Counter[Any]()
    for row in rows:
        key = row["run"], row["process"]
        kind = *key, row["f"], row["ident"]
        before = alike.get(kind) if row["ident"] is not None else last.get(key)
        if row["type"] != "invoke" and before is not None and before["type"] == "invoke":
            alone = open_ops[key] == 1 and (before["f"], before["ident"]) == (row["f"], row["ident"])
            if row["ident"] is not None or alone:
                found[row["run"], row["at"]] = before["at"]
        last[key] = alike[kind] = row
        open_ops[key] += 1 if row["type"] == "invoke" else -1
    return found


def test_pairing_agrees_with_a_plain_loop() -> None:
    """Of many runs at once: in order, shuffled, and bag by bag."""
    random = Random(1)
    rows = [row for run in range(RUNS) for row in random_lines(random, run)]
    expected, by_line = plain_facts(rows), plain_answers(rows)
    assert RUNS // 8 < len(expected) < RUNS - RUNS // 8
    asked = {(run, at) for (run, _), at in by_line.items()}
    bags = [[row for row in rows if row["process"] % 3 == bag] for bag in range(3)]
    for several in ([rows], [random.sample(rows, len(rows))], bags):
        parts = [each for bag in several for each in pairing.pairing(table(bag))]
        facts = {run: merged(parts, run) for run in {each.run for each in parts}}
        assert {run: (one.unmatched, dict(one.overlapping)) for run, one in facts.items()} == expected
        answers = pa.concat_tables([pairing.answers(table(bag)) for bag in several])
        assert answers.schema == pairing.ANSWERS
        found = {(row["run"], row["at"]): row for row in answers.to_pylist()}
        assert {key: one["answers"] for key, one in found.items() if one["answers"] is not None} == by_line
        for row in rows:
            if row["type"] == "invoke" and row["ident"] is not None:
                key = row["run"], row["at"]
                assert found[key]["answered"] is (key in asked), key


# -- values -----------------------------------------------------------------------------------------------


def sends(*ops: tuple[int, int, int, str]) -> pa.Table:
    """Run, value, index, type."""
    rows = [dict(zip(("run", "value", "index", "type"), one, strict=True)) for one in ops]
    return pa.Table.from_pylist(
        rows, schema=pa.schema([TABLES["sends"].field(name) for name in ("run", "value", "index", "type")])
    )


def test_values_that_are_sent_twice() -> None:
    """Not one that is sent once in each of two runs."""
    once, found = repeats.repeats(sends((0, 7, 0, "invoke"), (0, 7, 1, "ok"), (1, 7, 0, "invoke")))
    assert (once.num_rows, found, repeats.repeats(sends())[1]) == (0, [], [])
    table, found = repeats.repeats(sends(
        (0, 7, 0, "invoke"), (1, 7, 4, "invoke"), (1, 7, 2, "invoke"), (1, 7, 3, "ok"),
        (1, -FAR, 9, "invoke"), (1, -FAR, 5, "invoke"),
    ))  # fmt: skip
    assert table.to_pylist() == [{"run": 1, "value": -FAR}, {"run": 1, "value": 7}]
    assert found == [AcrossFacts(run=1, repeated=(-FAR, 7))]
    assert pickle.loads(pickle.dumps(found[0])) == found[0]


def test_values_that_are_answered_more_often_than_sent() -> None:
    found = repeats.repeats(sends(
        (0, 7, 0, "invoke"), (0, 7, 3, "ok"), (0, 7, 5, "info"), (0, 8, 4, "fail"), (0, 9, 1, "ok"),
        (0, 9, FAR, "ok"), (0, 9, 2, "invoke"),
    ))[1]  # fmt: skip
    assert found == [AcrossFacts(run=0, unmatched=4)]


def test_bags_of_values_give_the_same_facts_as_all_together() -> None:
    random = Random(1)
    rows = [(random.randrange(RUNS), random.randrange(12), at, random.choice(("invoke", "ok")))
            for at in range(15 * RUNS)]
    every = repeats.repeats(sends(*rows))
    bags = [repeats.repeats(sends(*(row for row in rows if row[1] % 3 == bag))) for bag in range(3)]
    parts = [each for _, found in bags for each in found]
    for run in range(RUNS):
        assert merged(parts, run) == merged(every[1], run)
    together = pa.concat_tables([table for table, _ in bags])
    assert together.sort_by([("run", "ascending"), ("value", "ascending")]).equals(every[0])
