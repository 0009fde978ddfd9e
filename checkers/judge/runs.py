"""One run after the first pass: its files, the results of reading them, and what its faults permit."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.checkers.judge.elections import doubtful_elections, unclean_elections
from floodmark.checkers.judge.permissions import NO_BOUNDS, AllBounds, bounds_of, internal_index
from floodmark.checkers.judge.preconditions import Preconditions
from floodmark.checkers.judge.reasons import Gates, is_topic_gone, reasons_of, rows_that_hold
from floodmark.checkers.judge.rulings import Rulings, rulings_of
from floodmark.checkers.judge.unread import unread_of
from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.permits import NEVER
from floodmark.checkers.read.columns import Flags
from floodmark.checkers.read.folder import Folder, torn_tail, unreadable, with_replicas
from floodmark.checkers.read.observed import silent_of_trace
from floodmark.checkers.read.replica_rows import NO_REPLICAS, Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that the driver knows about a run."""

    folder: Folder
    preconditions: Preconditions
    gates: Gates = None  # what may be claimed of each partition
    rulings: Rulings = field(default_factory=Rulings)
    bounds: AllBounds = field(default_factory=lambda: NO_BOUNDS)
    internal_index: int = NEVER  # of a send before it, what the internal topics had may be lost

    @property
    def traced(self) -> bool:
        return self.folder.judged and self.folder.trace is not None


def run_of(folder: Folder, seen: Preconditions, rows: pa.Table | None = None) -> Run:
    """Build the run and complete the folder's reasons. rows: of replicas.jsonl, as REPLICA_ROWS."""
    if not folder.judged:
        return Run(folder=folder, preconditions=seen)
    replicas = NO_REPLICAS if rows is None else Replicas.of(rows)
    with_replicas(folder, replicas, seen.bad_rows, seen.first_bad_row)
    if seen.txns and seen.undecided is not None:
        folder.undecided = (
            "a transaction was open at the end: of {} the last stable offset of partition {} is {}, and its "
            "LEO {}").format(*seen.undecided)
    folder.topic_gone = is_topic_gone(folder, seen.nemesis)
    gates = reasons_of(folder, seen)
    rulings, unread = rulings_of(folder, seen.traced), unread_of(folder, seen)
    bounds = bounds_of(folder, seen.nemesis, rulings, unread)
    folder.reasons += doubtful_elections(bounds)
    return Run(
        folder=folder,
        preconditions=seen,
        gates=gates,
        rulings=rulings,
        bounds=bounds,
        internal_index=internal_index(folder, seen.nemesis, unread),
    )


def for_units(run: Run) -> Run:
    """The part of it that the tables of its partitions need (part_of)."""
    folder, seen = replace(run.folder, replica_columns=None, reasons=[]), run.preconditions
    return replace(run, folder=folder, preconditions=Preconditions(used=seen.used, txns=seen.txns),
                   rulings=replace(run.rulings, events=()))  # fmt: skip


def part_of(run: Run, these: Flags, rows: pa.Table | None) -> Run:
    """The run as if run.json named only these partitions. rows: all rows of replicas.jsonl about them."""
    at = np.flatnonzero(these)
    folder = replace(
        run.folder, columns=run.folder.partitions.taken(at),
        replica_columns=None if rows is None else Replicas.of(rows),
    )  # fmt: skip
    return replace(run, folder=folder, gates=run.gates[at], bounds=run.bounds.taken(at))


def read_lines_instead(folder: Folder, nodes: Iterable[str]) -> tuple[str, ...]:
    """Use the JSON lines of these nodes' dumps, whose Parquet cannot be read, if they exist and none is
    missing; return the nodes for which that worked."""
    changed = []
    for node in nodes:
        lines = folder.path / "logs" / f"{node}.jsonl"
        if folder.dumps[node] != lines and unreadable(lines, folder.path) is None and not torn_tail(lines):
            folder.dumps[node] = lines
            changed.append(node)
    return tuple(changed)


def silent_names(run: Run) -> tuple[str, ...]:
    """The findings that are claimed nowhere in the run, because a missing line may excuse them."""
    if not run.folder.judged:
        return finding_names.MADE
    by_rows = finding_names.silent_if(rows_that_hold(run.folder))
    return (*by_rows, *silent_of_trace(run.folder.observes))


def driver_findings(number: int, run: Run) -> list[dict[str, Any]]:
    """The findings that the driver makes from the rulings: elections that nobody allowed. In the columns of
    FINDINGS that apply; number: the run's position in the call."""
    if finding_names.UNCLEAN_ELECTION in silent_names(run):
        return []
    return list(unclean_elections(number, run.bounds))
