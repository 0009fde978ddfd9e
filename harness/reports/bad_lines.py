"""Finds lines of a saved run that break format 1: each by file, line and what is wrong with it.

The judge counts them all, names the first, and draws the consequences; this reads on from there, plainly, and
only the files that the judge complains of, for a person to mend.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson

from floodmark.harness import history
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place

MOST_LINES = 5  # lines of one file
LOOKED_AT = 100_000  # lines from the first bad one on
_COMPLAINT = re.compile(r"^(history\.jsonl|logs/[^/]+\.jsonl):(\d+): (\d+) lines? ")
_ENTRY = {"partition": int, "offset": int, "epoch": int, "crc": int}


def bad_lines(run: RunAt[Place], verdict: Mapping[str, Any]) -> Iterator[str]:
    """`FILE:LINE: what`, the first few of each file that the verdict complains of."""
    for entry in verdict.get("unknown") or ():
        complaint = _COMPLAINT.match(str(entry["reason"]))
        if complaint is not None:
            name, first, count = complaint[1], int(complaint[2]), int(complaint[3])
            wrong = what_is_wrong_with_op if name == "history.jsonl" else wrong_with_entry
            found_lines = lines_from(run, run.folder / name, first, wrong)
            yield from (f"{name}:{line}" for line in islice(found_lines, min(MOST_LINES, count)))


def lines_from(
    run: RunAt[Place], path: Place, first: int, wrong_with: Callable[[bytes], str | None]
) -> Iterator[str]:
    """`LINE: what` of the lines that something is wrong with, from this one on; lines count from 1."""
    try:
        with run.open(path) as file:
            for number, line in islice(enumerate(file, 1), first - 1, first - 1 + LOOKED_AT):
                wrong = None if line.isspace() else wrong_with(line)
                if wrong is not None:
                    yield f"{number}: {wrong}"
    except OSError:
        return


def what_is_wrong_with_op(line: bytes) -> str | None:
    """A torn last line is passed over."""
    try:
        history.decode_op(line)
    except ValueError as error:
        return str(error) if line.endswith(b"\n") else None
    return None


def wrong_with_entry(line: bytes) -> str | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}"
    if not isinstance(row, dict):
        return "not a JSON object"
    for name, kind in _ENTRY.items():
        if type(row.get(name)) is not kind:
            return f"{name} is {'missing' if row.get(name) is None else f'{row[name]!r}, not an integer'}"
    value = row.get("value")
    return None if value is None or type(value) is int else f"value is {value!r}, not an integer"
