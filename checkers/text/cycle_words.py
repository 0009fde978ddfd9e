"""Writes the text of a cycle: a sentence for each of its edges.

A cycle is JSON, a list of steps in their order: `edge` (its kind), `ops` (from which to which: process, f and
lines of each), and the record that it is about. Each sentence says why the second op comes after the first.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from floodmark.checkers.laws import finding_names

Row = Mapping[str, Any]  # of checkers.laws.tables.FINDINGS


def cycle(row: Row) -> str:
    """The paragraph about one cycle; of a run without transactions, that a value was read before its send."""
    how = row.get("how")
    if how and how.startswith("["):
        steps = orjson.loads(how)
        sentences = " ".join(map(sentence_of, steps))
        return f"A cycle of {len(steps)} ops, each before the next one. {sentences}"
    if row.get("value") is None or row.get("process") is None:
        return f"A cycle of ops, by way of partition {row.get('partition')}."
    return (
        f"Process {row['process']} read {row['value']} at partition {row['partition']} offset "
        f"{row['offset']} before its send began{lines(row)}."
    )


def precommitted(row: Row) -> str:
    return (
        f"The transaction of process {row['process']} read {row['value']} at partition {row['partition']} "
        f"offset {row['offset']}, which it itself sent{lines(row)}."
    )


def lines(row: Row) -> str:
    """The indexes of the lines concerned, in brackets; empty if there are none."""
    ops = row.get("ops") or []
    return f" (index {', '.join(map(str, ops))})" if ops else ""


def sentence_of(step: Row) -> str:
    first, second = (
        f"process {op['process']}'s {op['f']} (index {', '.join(map(str, op['lines']))})"
        for op in step["ops"]
    )
    return _OF_EDGES[step["edge"]].format_map({**step, "first": first, "second": second})


_OF_EDGES = {
    "wr": "What {first} sent, {value} at partition {partition} offset {offset}, was read by {second}.",
    "ww": "The record after {value} at partition {partition} offset {offset}, which {first} wrote, is of "
    "{second}.",
    "rw": "Beyond partition {partition} offset {offset}, the last that {first} read there, the next record "
    "is of {second}.",
    "process": "After {first} the same process asked for {second}.",
    "real-time": "When {first} was over, {second} had not begun.",
}
SENTENCES: Mapping[str, Callable[[Row], str]] = {
    finding_names.PRECOMMITTED_READ: precommitted,
    **dict.fromkeys(finding_names.CYCLES, cycle),
}
