"""Reads a run's JSON-lines files line by line and skips what is missing or broken.

Rules
1. A file that is missing or cannot be opened has no lines; a line that is no JSON object is counted and
   skipped.
   `problems` gets one sentence for each file with such trouble.
2. A file is read up to a size limit; `problems` says so if it is longer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.report.run_files import fields_of
from floodmark.harness.run import Run

BYTES_AT_MOST = 1 << 30
LINE_BYTES = 1 << 24
MOST = 1 << 63

Line = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Lines:
    """One file of a run, read from its beginning. `problems` is complete after the last line."""

    run: Run
    path: Path
    wanted: Callable[[bytes], bool] = lambda _: True  # False: the line is not parsed
    problems: list[str] = field(default_factory=list)
    broken: int = 0

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        """(number from 1, fields) of each line that is a JSON object."""
        name, read = self.path.name, 0
        try:
            with self.run.open(self.path) as file:
                for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES), b""), start=1):
                    read += len(line)
                    if read > BYTES_AT_MOST:
                        self.problems.append(
                            f"{name} is longer than {BYTES_AT_MOST >> 20} MB: what comes "
                            f"after line {number} is not on this page"
                        )
                        break
                    if not self.wanted(line):
                        continue
                    fields = fields_of(line)
                    if fields is None:
                        self.broken += line.endswith(b"\n") and bool(line.strip())
                        continue
                    yield number, fields
        except FileNotFoundError:
            self.problems.append(f"there is no {name}")
        except OSError as error:
            self.problems.append(f"{name} cannot be read: {error.strerror or error}")
        if self.broken:
            self.problems.append(f"{name}: {self.broken} line(s) are no JSON objects and were skipped")


def int_in(fields: Line, name: str) -> int | None:
    """An integer field of 64 bits; None if it is missing or no such integer."""
    value = fields.get(name)
    return value if type(value) is int and -MOST <= value < MOST else None


def text(fields: Line, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def items(fields: Line, name: str) -> list[Any]:
    value = fields.get(name)
    return value if isinstance(value, list) else []
