"""Lines of a saved run that are not as format 1 has them: each by file, line and what is wrong with it.

The judge counts them all and draws the consequences; this reads the files once more, plainly, and only those
that the judge complains of, for a person to mend.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import orjson

from harness import history
from harness.errors import FloodmarkError
from harness.places import Place
from harness.run import RunAt

TOLD = 5  # lines of one file
_COMPLAINT = re.compile(r"^(history\.jsonl|logs/[^/]+\.jsonl)(?::\d+)?: \d+ lines? ")
_ENTRY = {"partition": int, "offset": int, "epoch": int, "crc": int}


def bad_lines(run: RunAt[Place], verdict: Mapping[str, Any]) -> Iterator[str]:
    """`FILE:LINE: what`, the first few of each file that the verdict complains of."""
    for entry in verdict.get("unknown") or ():
        complaint = _COMPLAINT.match(str(entry["reason"]))
        if complaint is not None:
            name = complaint.group(1)
            told = bad_ops(run) if name == "history.jsonl" else bad_entries(run, run.folder / name)
            yield from (f"{name}:{line}" for line in islice(told, TOLD))


def bad_ops(run: RunAt[Place]) -> Iterator[str]:
    told: list[str] = []
    try:
        for _ in history.read(run.history_path, on_bad=told.append, folder=run.folder):
            yield from (line.removeprefix(f"{run.history_path}:") for line in told)
            told.clear()
    except FloodmarkError:
        return  # unreadable as a whole: the judge has said so
    yield from (line.removeprefix(f"{run.history_path}:") for line in told)


def bad_entries(run: RunAt[Place], path: Place) -> Iterator[str]:
    """Lines of a dump that are no entries."""
    try:
        with run.open(path) as file:
            for number, line in enumerate(file, 1):
                wrong = what_is_wrong(line) if line.strip() else None
                if wrong is not None:
                    yield f"{number}: {wrong}"
    except OSError:
        return


def what_is_wrong(line: bytes) -> str | None:
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
