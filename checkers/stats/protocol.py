"""Counts elections, changes of ISRs and truncations in a trace: it finds their few lines without parsing the
others."""

import re
from collections.abc import Mapping

import duckdb

from floodmark.checkers.read.arrays import concatenated
from floodmark.checkers.read.folder import Folder
from floodmark.checkers.read.ranges import bytes_of, cut
from floodmark.checkers.read.tables import read_bytes, schema_of

# The form in which brokers, and any JSON writer, write these lines.
_LINE = re.compile(rb'"event"[ \t]*:[ \t]*"(?:elect|isr|truncate)"')
# Of each figure the event, and which of its lines count: no leaders of new partitions; ISRs by the
# controller, asked for by the leader or not.
_COUNTED = {
    "elections": ("elect", "cause is distinct from 'created'"),
    "unclean_elections": ("elect", "cause is distinct from 'created' and not clean"),
    "isr_changes": ("isr", "leo is null"),
    "truncations": ("truncate", "cut_from > cut_to"),
}
_OF_RUN = {
    **_COUNTED,
    "isr_by_leader": ("isr", "leo is null and cause = 'alter'"),
    "isr_by_controller": ("isr", "leo is null and cause <> 'alter'"),
    "largest_truncation": ("truncate", "cut_from > cut_to"),
}


def load_events(database: duckdb.DuckDBPyConnection, folder: Folder) -> None:
    """Make the table `events`, with the columns of `trace`. OSError if the trace cannot be read."""
    read = [{"trace": schema_of("trace").empty_table()}]
    for one in cut(0, "trace", None, folder.trace) if folder.trace is not None else ():
        lines = (line for line in bytes_of(one).split(b"\n") if _LINE.search(line))
        read.append({"trace": read_bytes(one, b"\n".join(lines)).tables["trace"]})
    database.register("all_events", concatenated(read)["trace"])
    database.execute("create temp view events as from all_events where time >= 0")


def of_run(folder: Folder) -> str:
    """The SELECT of a run's figures; null where the system does not show the events."""
    return f"select {_figures(folder, _OF_RUN)} from events"


def of_faults(folder: Folder) -> str:
    """The same for each fault, while it was in force."""
    return f"""
        select {_figures(folder, _COUNTED)}
        from faults left join events on time >= began and time < until group by number order by number"""


def _figures(folder: Folder, figures: Mapping[str, tuple[str, str]]) -> str:
    shown = {event for event, _ in figures.values() if folder.trace and folder.observes.shows(event)}
    of_lines = dict.fromkeys(figures, "count(*)") | {"largest_truncation": "max(cut_from::hugeint - cut_to)"}
    return ", ".join(
        (f"{of_lines[name]} filter (event = '{event}' and {counts})" if event in shown else "max(null)")
        + f" as {name}" for name, (event, counts) in figures.items())
