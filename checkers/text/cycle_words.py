"""What a cycle says to people: a sentence for each of its edges.

A cycle comes as JSON, a list of steps in their order: `edge` (what it is by), `ops` (from which to which:
process, f and lines of each), and the record that it is about. Each sentence says of its second op why it
comes after the first.
"""

from collections.abc import Mapping
from typing import Any

import orjson

Told = Mapping[str, Any]


def cycle(row: Told) -> str:
    """The paragraph about one cycle; of a run without transactions, that a value was read before its send."""
    how = row.get("how")
    if how and how.startswith("["):
        steps = orjson.loads(how)
        sentences = " ".join(_SENTENCES[step["edge"]](step) for step in steps)
        return f"A cycle of {len(steps)} ops, each before the next one. {sentences}"
    if row.get("value") is None or row.get("process") is None:
        return f"A cycle of ops, by way of partition {row.get('partition')}."
    lines = ", ".join(map(str, row.get("ops") or []))
    return (
        f"Process {row['process']} read {row['value']} at partition {row['partition']} offset "
        f"{row['offset']} before its send began{f' (index {lines})' if lines else ''}."
    )


def precommitted(row: Told) -> str:
    lines = ", ".join(map(str, row.get("ops") or []))
    return (
        f"The transaction of process {row['process']} read {row['value']} at partition {row['partition']} "
        f"offset {row['offset']}, which it itself sent{f' (index {lines})' if lines else ''}."
    )


def ends(step: Told) -> tuple[str, str]:
    """Both ops in words."""
    first, second = (
        f"process {op['process']}'s {op['f']} (index {', '.join(map(str, op['lines']))})"
        for op in step["ops"]
    )
    return first, second


def place(step: Told) -> str:
    return f"partition {step['partition']} offset {step['offset']}"


def was_read(step: Told) -> str:
    writer, reader = ends(step)
    return f"What {writer} sent, {step['value']} at {place(step)}, was read by {reader}."


def was_followed(step: Told) -> str:
    first, second = ends(step)
    return f"The record after {step['value']} at {place(step)}, which {first} wrote, is of {second}."


def was_missed(step: Told) -> str:
    reader, writer = ends(step)
    return f"Beyond {place(step)}, the last that {reader} read there, the next record is of {writer}."


def came_later(step: Told) -> str:
    first, second = ends(step)
    return f"After {first} the same process asked for {second}."


def began_later(step: Told) -> str:
    first, second = ends(step)
    return f"When {first} was over, {second} had not begun."


_SENTENCES = {
    "wr": was_read,
    "ww": was_followed,
    "rw": was_missed,
    "process": came_later,
    "real-time": began_later,
}
