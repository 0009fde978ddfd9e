"""Lists the lines of a saved run that break format 1, each with file, line number and what is wrong.

The judge counts them and names the first of each file. This module reads on from there, only in the files
that the judge complains about, so that a person can fix them.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import orjson

from floodmark.harness import history
from floodmark.harness.report.model import Json
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place

MOST_LINES = 5  # named of one file
SCAN_LINES = 100_000  # lines read from the first bad one on
_COMPLAINT = re.compile(r"^(history\.jsonl|logs/[^/]+\.jsonl):(\d+): (\d+) lines? ")
_ENTRY = {"partition": int, "offset": int, "epoch": int, "crc": int}


def bad_lines(run: RunAt[Place], verdict: Json) -> Iterator[str]:
    """Yields `FILE:LINE: what is wrong`, the first few of each file that the verdict complains about."""
    for entry in verdict.get("unknown") or ():
        complaint = _COMPLAINT.match(str(entry["reason"]))
        if complaint is not None:
            name, first, count = complaint[1], int(complaint[2]), int(complaint[3])
            wrong = flaw_of_op if name == "history.jsonl" else flaw_of_log_entry
            found = islice(lines_from(run, run.folder / name, first), SCAN_LINES)
            flaws = ((number, wrong(line)) for number, line in found if not line.isspace())
            bad = (f"{name}:{number}: {flaw}" for number, flaw in flaws if flaw is not None)
            yield from islice(bad, min(MOST_LINES, count))


def lines_from(run: RunAt[Place], path: Place, first: int) -> Iterator[tuple[int, bytes]]:
    """Yields the lines from line `first` on, with their numbers."""
    with suppress(OSError), run.open(path) as file:
        yield from islice(enumerate(file, 1), first - 1, None)


def flaw_of_op(line: bytes) -> str | None:
    """What is wrong with a line of the history; None: nothing, or it is a torn last line."""
    try:
        history.decode_op(line)
    except ValueError as error:
        return str(error) if line.endswith(b"\n") else None
    return None


def flaw_of_log_entry(line: bytes) -> str | None:
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
