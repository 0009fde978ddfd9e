"""Completions and their invocations, in bags of whole processes; values sent or answered too often."""

import pickle
from collections import Counter
from functools import reduce
from operator import add
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read import pairing, repeats
from floodmark.checkers.read.facts import AcrossFacts

_LINES = pa.schema([
    ("run", pa.int32()), *((name, pa.int64()) for name in ("at", "index", "process")), ("type", pa.string()),
    ("f", pa.string()), ("ident", pa.int64()),
])  # fmt: skip
FAR = (1 << 63) - 1
Row = dict[str, Any]


def lines(*ops: str, run: int = 0) -> list[Row]:
    """PROCESS TYPE F [IDENT], one a line of the file."""
    rows = []
    for at, words in enumerate(ops):
        process, kind, f, *ident = words.split()
        rows.append({"run": run, "at": at, "index": at, "process": int(process), "type": kind, "f": f,
                     "ident": int(ident[0]) if ident else None})  # fmt: skip
    return rows


def facts(rows: list[Row]) -> list[AcrossFacts]:
    return pairing.pairing(pa.Table.from_pylist(rows, schema=_LINES))


def merged(parts: list[AcrossFacts], run: int) -> AcrossFacts:
    return reduce(add, (one for one in parts if one.run == run), AcrossFacts(run=run))


def answered(rows: list[Row]) -> dict[tuple[int, int], tuple[int | None, int | None, bool | None]]:
    table = pairing.answers(pa.Table.from_pylist(rows, schema=_LINES))
    assert table.schema == pairing.ANSWERS
    return {(row["run"], row["at"]): (row["answers"], row["answers_index"], row["answered"])
            for row in table.to_pylist()}  # fmt: skip


def test_extreme_numbers() -> None:
    rows = lines(f"{FAR} invoke send {-FAR - 1}", f"{FAR} ok send {FAR}", f"{FAR} invoke poll")
    for row in rows:
        row["at"] += FAR - 10
    found = facts(rows)
    assert found == [AcrossFacts(run=0, unmatched=1, overlapping={FAR: 2})]
    assert pickle.loads(pickle.dumps(found[0])) == found[0]


# -- against a plain loop ---------------------------------------------------------------------------------


def random_lines(random: Random) -> list[Row]:
    """A few processes of two runs, mostly in order."""
    rows: list[Row] = []
    opened: dict[tuple[int, int], tuple[str, int | None]] = {}
    for at in range(random.randrange(40)):
        key = random.randrange(2), random.choice((0, 1, 2, 1 << 40))
        f = random.choice(("send", "txn", "poll", "assign"))
        ident = random.choice({"txn": (None, 1, 2, FAR), "send": (1, 2)}.get(f, (None,)))
        kind = "invoke" if (key not in opened) != (random.random() < 0.15) else random.choice(("ok", "info"))
        if kind != "invoke" and key in opened and random.random() < 0.8:
            f, ident = opened[key]
        opened.pop(key, None)
        if kind == "invoke":
            opened[key] = f, ident
        rows.append({"run": key[0], "at": at, "index": at + random.choice((0, 0, 0, 3)), "process": key[1],
                     "type": kind, "f": f, "ident": ident})  # fmt: skip
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
    """Also bag by bag."""
    seen = Counter[str]()
    for number in range(120):
        random = Random(number)
        rows = random_lines(random)
        expected, by_line = plain_facts(rows), plain_answers(rows)
        shuffled = random.sample(rows, len(rows)) if number % 2 else rows
        actual = {each.run: (each.unmatched, dict(each.overlapping)) for each in facts(shuffled)}
        assert actual == expected, number
        bags = [[row for row in rows if row["process"] % 3 == bag] for bag in range(3 * (number % 8 == 0))]
        parts = [each for bag in bags for each in facts(bag)]
        for run in expected if bags else ():
            one = merged(parts, run)
            assert (one.unmatched, dict(one.overlapping)) == expected[run], number
        found = answered(shuffled)
        assert {key: one for key, (one, _, _) in found.items() if one is not None} == by_line, number
        paired = {(run, at) for (run, _), at in by_line.items()}
        for row in rows:
            if row["type"] == "invoke" and row["ident"] is not None:
                assert found[row["run"], row["at"]][2] is ((row["run"], row["at"]) in paired), number
        seen["wrong"] += bool(expected)
        seen["right"] += not expected
    assert min(seen["wrong"], seen["right"]) > 15


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
    for number in range(30):
        random = Random(number)
        rows = [(random.randrange(2), random.randrange(12), at, random.choice(("invoke", "ok")))
                for at in range(30)]  # fmt: skip
        every = repeats.repeats(sends(*rows))
        bags = [repeats.repeats(sends(*(row for row in rows if row[1] % 3 == bag))) for bag in range(3)]
        parts = [each for _, found in bags for each in found]
        for run in (0, 1):
            assert merged(parts, run) == merged(every[1], run), number
        together = pa.concat_tables([table for table, _ in bags])
        assert np.array_equal(
            together.sort_by([("run", "ascending"), ("value", "ascending")])["value"], every[0]["value"]
        )
