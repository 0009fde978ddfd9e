"""Classifies a change to a file of a run folder, by the bytes before and after alone.

    HARMLESS      the file means the same
    UNREADABLE    less of it can be read, and the readable part was there before
    QUIET         the same, but a judge need not notice
    TAMPERING     the file means something else, which may be real damage

Rules kept here: a line counts as unreadable only if the twin's field table refuses it; a key twice in one
object, or notation that JSON's readers treat differently, is tampering.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from twin_folder import fits_field_table, is_entry, is_int, is_offset, is_row, is_text

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
    if name == HISTORY and is_torn(after) and not gone:  # half a line at the end is ignored
        return QUIET if come else TAMPERING
    if len(gone) == len(come) and all(same(*pair) for pair in zip(gone, come, strict=True)):
        return HARMLESS
    if not all(is_unreadable(name, line) for line in come):
        return TAMPERING
    if not come and name not in (HISTORY, ROWS):  # a dump or a trace that ends early looks like a shorter one
        return TAMPERING
    if not come and any(is_unreadable(name, line) for line in gone):  # nothing may be wrong any more
        return TAMPERING
    if name == TRACE and not all(is_surely_noticed(line) for line in come):
        return QUIET
    return UNREADABLE


def is_torn(history: bytes) -> bool:
    """Whether it ends with a line that has no line feed and cannot be read."""
    lines = lines_of(history)
    return bool(lines) and not history.endswith(b"\n") and is_unreadable(HISTORY, lines[-1])


def lines_of(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line.strip()]


def common(one: Sequence[bytes], other: Sequence[bytes]) -> list[bytes]:
    """The lines with which both begin."""
    for length, pair in enumerate(zip(one, other, strict=False)):
        if pair[0] != pair[1]:
            return list(one[:length])
    return list(one[:min(len(one), len(other))])


def same(one: bytes, other: bytes) -> bool:
    """Whether two lines mean the same to every reader."""
    if one == other:
        return True
    try:
        return repr(strictly(one)) == repr(strictly(other))  # 1 is not true, nor 1.0
    except (ValueError, RecursionError):
        return False


def strictly(line: bytes) -> Any:
    """The line's value; ValueError if readers of JSON may differ on it."""
    return json.loads(line.decode(), object_pairs_hook=once, parse_constant=refuse)


def once(pairs: list[tuple[str, Any]]) -> Line:
    by_name = dict(sorted(pairs, key=lambda pair: pair[0]))
    if len(by_name) < len(pairs):
        raise SaidTwice
    return by_name


def refuse(word: str) -> None:
    raise ValueError(word)


def is_unreadable(name: str, line: bytes) -> bool:
    """Whether no reader that follows the format takes anything from this line."""
    try:
        row = strictly(line)
    except SaidTwice:
        return False
    except (ValueError, RecursionError):
        return True
    return not isinstance(row, dict) or not law_of(name)(row)


def law_of(name: str) -> Callable[[Line], bool]:
    """The field table of a line of the file."""
    node = name.removeprefix("logs/").removesuffix(".jsonl")
    laws = {HISTORY: fits_field_table, ROWS: is_row, TRACE: is_event}
    return laws.get(name, lambda row: is_entry(row, node))


def is_event(row: Line) -> bool:
    return (is_int(row.get("time")) and is_offset(row.get("seq")) and is_text(row.get("node"))
            and is_text(row.get("event")))


def is_surely_noticed(line: bytes) -> bool:
    """Whether a reader surely notices: bytes that are no UTF-8 in a word make another word, which may mean
    nothing."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def of_run(before: bytes, after: bytes) -> str:
    """The kind of a change of run.json, which is one object, or nothing is known."""
    if same(before, after):
        return HARMLESS
    try:
        data = strictly(after)
    except SaidTwice:
        return TAMPERING
    except (ValueError, RecursionError):
        return UNREADABLE
    if not isinstance(data, dict) or data.get("format") != 1:
        return UNREADABLE
    return TAMPERING
