"""What a change to a file of a run folder amounts to, from the bytes before and after alone.

    HARMLESS      it says what it said
    UNREADABLE    less of it can be read, and what can be read was there before
    QUIET         the same, but a judge need not notice
    TAMPERING     it says something else, which may well be damage

Rules kept here: a line counts as unreadable only where both judges' field tables refuse it; what is said
twice in one object, or is written with marks that JSON's readers treat differently, is tampering.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import plain_lines
from twin_folder import fits_field_table, is_entry, is_row

HARMLESS, UNREADABLE, QUIET, TAMPERING = "harmless", "unreadable", "quiet", "tampering"
HISTORY, ROWS, TRACE, RUN = "history.jsonl", "replicas.jsonl", "trace.jsonl", "run.json"

Line = dict[str, Any]


class SaidTwice(ValueError):
    """An object has a key twice."""


def amounts_to(name: str, before: bytes, after: bytes) -> str:
    """The kind of a change of this file."""
    if name == RUN:
        return of_run(before, after)
    old, new = lines_of(before), lines_of(after)
    first = len(common(old, new))
    last = len(common(old[first:][::-1], new[first:][::-1]))
    gone, come = old[first:len(old) - last], new[first:len(new) - last]
    if len(gone) == len(come) and all(same(*pair) for pair in zip(gone, come, strict=True)):
        return HARMLESS
    if not all(is_unreadable(name, line) for line in come):
        return TAMPERING
    if not come and name not in (HISTORY, ROWS):  # a dump or a trace that ends early says that it ends there
        return TAMPERING
    if name == TRACE and not all(is_surely_noticed(line) for line in come):
        return QUIET
    return UNREADABLE


def lines_of(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line.strip()]


def common(one: Sequence[bytes], other: Sequence[bytes]) -> list[bytes]:
    """What both begin with."""
    for length, pair in enumerate(zip(one, other, strict=False)):
        if pair[0] != pair[1]:
            return list(one[:length])
    return list(one[:min(len(one), len(other))])


def same(one: bytes, other: bytes) -> bool:
    """Two lines that say the same, whoever reads them."""
    if one == other:
        return True
    try:
        return repr(strictly(one)) == repr(strictly(other))  # 1 is not true, nor 1.0
    except (ValueError, RecursionError):
        return False


def strictly(line: bytes) -> Any:
    """The line's value; ValueError where readers of JSON may differ."""
    return json.loads(line.decode(), object_pairs_hook=once, parse_constant=refuse)


def once(pairs: list[tuple[str, Any]]) -> Line:
    told = dict(sorted(pairs, key=lambda pair: pair[0]))
    if len(told) < len(pairs):
        raise SaidTwice
    return told


def refuse(word: str) -> None:
    raise ValueError(word)


def is_unreadable(name: str, line: bytes) -> bool:
    """No reader that keeps to the format takes anything from this line."""
    try:
        row = strictly(line)
    except SaidTwice:
        return False
    except (ValueError, RecursionError):
        return True
    return not isinstance(row, dict) or not any(law(row) for law in laws_of(name))


def laws_of(name: str) -> tuple[Callable[[Line], bool], ...]:
    """By whose table a line of the file may be legal."""
    if name == HISTORY:
        return plain_lines.is_op, fits_field_table
    if name == ROWS:
        return (is_row,)
    if name == TRACE:
        return (is_event,)
    node = name.removeprefix("logs/").removesuffix(".jsonl")
    return plain_lines.is_entry(node), lambda row: is_entry(row, node)


def is_event(row: Line) -> bool:
    return (plain_lines.is_int(row.get("time")) and plain_lines.is_int(row.get("seq")) and row["seq"] >= 0
            and isinstance(row.get("node"), str) and isinstance(row.get("event"), str))


def is_surely_noticed(line: bytes) -> bool:
    """Bytes that are no UTF-8 in the middle of a word make another word of it, which may be nobody's."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def of_run(before: bytes, after: bytes) -> str:
    """run.json is one object, or nothing is known."""
    if same(before, after):
        return HARMLESS
    try:
        told = strictly(after)
    except SaidTwice:
        return TAMPERING
    except (ValueError, RecursionError):
        return UNREADABLE
    if not isinstance(told, dict) or told.get("format") != 1:
        return UNREADABLE
    return TAMPERING
