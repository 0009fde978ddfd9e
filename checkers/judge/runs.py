"""One run after the first pass: its files, the results of reading them, and what the history may lack."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from floodmark.checkers.judge.acts import unread_of
from floodmark.checkers.judge.preconditions import Preconditions
from floodmark.checkers.judge.reasons import Gates, is_topic_gone, reasons_of, rows_that_hold
from floodmark.checkers.laws import finding_names
from floodmark.checkers.read.folder import Folder, unreadable, with_replicas
from floodmark.checkers.read.observed import silent_of_trace
from floodmark.checkers.read.replica_rows import NO_REPLICAS, Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that the driver knows about a run."""

    folder: Folder
    preconditions: Preconditions
    gates: Gates  # what may be claimed of each partition
    unread: Mapping[str, bool]  # what may have happened that the history does not show (acts.unread_of)
    trace_whole: bool  # there is a trace, and no line of it is missing

    @property
    def traced(self) -> bool:
        return self.folder.trace is not None


def run_of(folder: Folder, seen: Preconditions, rows: pa.Table | None = None) -> Run:
    """Build the run and complete the folder's reasons. rows: of replicas.jsonl, as REPLICA_ROWS."""
    replicas = NO_REPLICAS if rows is None else Replicas.of(rows)
    with_replicas(folder, replicas, seen.rows.broken, seen.rows.first_broken_line)
    if seen.history.txns and seen.rows.undecided is not None:
        folder.undecided = (
            "a transaction was open at the end: of {} the last stable offset of partition {} is {}, and its "
            "LEO {}").format(*seen.rows.undecided)
    folder.topic_gone = is_topic_gone(folder, seen.history.nemesis)
    flaw = None if folder.trace is None else seen.trace.flaw(folder.nodes, folder.observes,
                                                             folder.partitions.nodes)
    gates = reasons_of(folder, seen, flaw)
    return Run(folder=folder, preconditions=seen, gates=gates, unread=unread_of(folder, seen),
               trace_whole=folder.trace is not None and flaw is None)  # fmt: skip


def read_lines_instead(folder: Folder, nodes: Iterable[str]) -> tuple[str, ...]:
    """Use the JSON lines of these nodes' dumps, whose Parquet cannot be read; return the nodes for which that
    worked."""
    changed = []
    for node in nodes:
        lines = folder.path / "logs" / f"{node}.jsonl"
        if unreadable(lines, folder.path) is None:
            folder.dumps[node] = lines
            changed.append(node)
    return tuple(changed)


def silent_names(run: Run) -> tuple[str, ...]:
    """The findings that are claimed nowhere in the run, because a missing line may excuse them."""
    by_rows = finding_names.silent_if(rows_that_hold(run.folder))
    return (*by_rows, *silent_of_trace(run.folder.observes))
