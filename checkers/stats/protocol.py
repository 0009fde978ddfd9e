"""Counts leaders, ISRs and truncations in a trace: it finds their few lines without parsing the others."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodmark.checkers.read.field_table import TRACE
from floodmark.checkers.read.folder import Folder
from floodmark.checkers.read.json_lines import rows_of
from floodmark.checkers.read.ranges import bytes_of, cut

Ints = npt.NDArray[np.int64]
Row = Mapping[str, Any]

# The form in which brokers, and any JSON writer, write these lines.
_LINE = re.compile(rb'"event"[ \t]*:[ \t]*"(?:elect|isr|truncate)"')
_CREATED, _ASKED = "created", "alter"  # causes: a partition is new; its leader asked for it


@dataclass(slots=True, kw_only=True)
class Protocol:
    """Times of the events, since the run began, sorted (ns); None: the system does not show them."""

    elections: Ints | None = None
    unclean: Ints | None = None
    isr_changes: Ints | None = None
    isr_by_leader: int | None = None
    isr_by_controller: int | None = None
    truncations: Ints | None = None
    largest_truncation: int | None = None  # records; None also if there was none


@dataclass(slots=True, kw_only=True)
class _Lines:
    elect: list[Row] = field(default_factory=list)
    isr: list[Row] = field(default_factory=list)
    truncate: list[Row] = field(default_factory=list)


def protocol_of(folder: Folder) -> Protocol:
    """Read the trace, if there is one and run.json promises the event. OSError if it cannot be read."""
    found = Protocol()
    if folder.trace is None:
        return found
    lines, shows = _Lines(), folder.observes.shows
    for row in _rows(folder):
        if row["time"] >= 0:
            getattr(lines, row["event"]).append(row)
    if shows("elect"):
        elected = [row for row in lines.elect if row.get("cause") != _CREATED]
        found.elections = _times(elected, lambda row: True)
        found.unclean = _times(elected, lambda row: not row["clean"])
    if shows("isr"):
        by_controller = [row for row in lines.isr if row.get("leo") is None]
        found.isr_changes = _times(by_controller, lambda row: True)
        found.isr_by_leader = sum(row.get("cause") == _ASKED for row in by_controller)
        found.isr_by_controller = sum(row.get("cause") not in (None, _ASKED) for row in by_controller)
    if shows("truncate"):
        found.truncations = _times(lines.truncate, lambda row: row["from"] > row["to"])
        found.largest_truncation = max((row["from"] - row["to"] for row in lines.truncate
                                        if row["from"] > row["to"]), default=None)
    return found


def _times(rows: list[Row], counts: Callable[[Row], bool]) -> Ints:
    return np.sort(np.array([row["time"] for row in rows if counts(row)], dtype=np.int64))


def _rows(folder: Folder) -> Iterator[Row]:
    """The good lines of these events."""
    assert folder.trace is not None
    for one in cut(0, "trace", None, folder.trace):
        lines = (line for line in bytes_of(one).split(b"\n") if _LINE.search(line))
        for row in pa.table(dict(rows_of(b"\n".join(lines), TRACE).columns)).to_pylist():
            if row["event"] in ("elect", "isr", "truncate"):
                yield row
