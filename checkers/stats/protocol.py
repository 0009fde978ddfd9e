"""Counts elections, changes of ISRs and truncations in a trace: it finds their few lines without parsing the
others."""

import re
from collections.abc import Iterator

import duckdb
import pyarrow as pa

from floodmark.checkers.read.field_table import TRACE
from floodmark.checkers.read.folder import Folder
from floodmark.checkers.read.json_lines import rows_of
from floodmark.checkers.read.ranges import bytes_of, cut

# The form in which brokers, and any JSON writer, write these lines.
_LINE = re.compile(rb'"event"[ \t]*:[ \t]*"(?:elect|isr|truncate)"')
_COLUMNS = ("time", "event", "cause", "clean", "leo", "from", "to")
# Of each figure the event, and which of its lines count: no leaders of new partitions; ISRs by the
# controller, asked for by the leader or not.
FIGURES = {
    "elections": ("elect", "cause is distinct from 'created'"),
    "unclean_elections": ("elect", "cause is distinct from 'created' and not clean"),
    "isr_changes": ("isr", "leo is null"),
    "isr_by_leader": ("isr", "leo is null and cause = 'alter'"),
    "isr_by_controller": ("isr", "leo is null and cause <> 'alter'"),
    "truncations": ("truncate", '"from" > "to"'),
    "largest_truncation": ("truncate", '"from" > "to"'),
}


def load_events(database: duckdb.DuckDBPyConnection, folder: Folder) -> None:
    """Make the table `events`, if there is a trace. OSError if the trace cannot be read."""
    if folder.trace is not None:
        ranges = cut(0, "trace", None, folder.trace)
        lines = b"".join(line for one in ranges for line in lines_of_events(bytes(bytes_of(one))))
        columns = rows_of(lines, TRACE).columns
        database.register("events", pa.table({name: columns[name] for name in _COLUMNS}))


def lines_of_events(data: bytes) -> Iterator[bytes]:
    behind = 0
    for found in _LINE.finditer(data):
        if found.start() >= behind:  # else the words are in this line twice
            begin = data.rfind(b"\n", 0, found.start()) + 1
            behind = data.find(b"\n", found.end()) + 1 or len(data)
            yield data[begin:behind]


def figures_of(folder: Folder) -> str:
    """The SELECT of the figures of each fault; null where the system does not show the events."""
    shown = {event for event, _ in FIGURES.values() if folder.trace and folder.observes.shows(event)}
    return "select " + ", ".join(
        ("max(\"from\"::hugeint - \"to\")" if name == "largest_truncation" else "count(*)")
        + f" filter (event = '{event}' and {counts}) as {name}" if event in shown else f"null as {name}"
        for name, (event, counts) in FIGURES.items()) + f"""
        from faults {"left join events on time >= began and time < until" if shown else ""}
        group by number order by number"""
