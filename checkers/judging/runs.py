"""One run after the first pass: its files, what was seen of them, and what the faults of it permit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from checkers import names
from checkers.elections import doubtful_elections, unclean_elections
from checkers.folder import Folder
from checkers.judging.permissions import Bounds, bounds_of
from checkers.judging.preconditions import Preconditions
from checkers.laws.tables import FINDINGS
from checkers.observed import silent_of_trace
from checkers.reasons import is_breached, reasons_of
from checkers.rulings import Rulings, rulings_of
from checkers.survey import Survey
from checkers.unread import unread_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the driver knows of it."""

    folder: Folder
    preconditions: Preconditions | Survey
    breached: bool  # lines of the history may be missing or wrong
    rulings: Rulings = field(default_factory=Rulings)
    bounds: Mapping[int, Bounds] = field(default_factory=dict)  # of every partition of run.json

    @property
    def traced(self) -> bool:
        return self.folder.judged and self.folder.trace is not None


def run_of(folder: Folder, seen: Preconditions | Survey) -> Run:
    """With this the folder's reasons are complete."""
    if not folder.judged:
        return Run(folder=folder, preconditions=seen, breached=True)
    reasons_of(folder, seen)
    rulings = rulings_of(folder, seen.traced)
    bounds = bounds_of(folder, seen.nemesis, rulings, unread_of(folder, seen))
    folder.reasons += doubtful_elections(bounds)
    return Run(
        folder=folder,
        preconditions=seen,
        breached=is_breached(folder, seen),
        rulings=rulings,
        bounds=bounds,
    )


def silent_names(run: Run) -> tuple[str, ...]:
    """The findings that are claimed nowhere in the run, for a line that is missing may excuse what they
    see."""
    if not run.folder.judged:
        return names.MADE
    return (
        *(names.SILENT_IF_BREACHED if run.breached else ()),
        *(names.SILENT_IF_DISORDERED if run.preconditions.disordered else ()),
        *(names.IF_KILLED if run.folder.killed else ()),
        *(names.SILENT_IF_TRACE_TORN if run.folder.trace and not run.rulings.whole else ()),
        *silent_of_trace(run.folder.observes),
    )


def driver_findings(runs: Sequence[Run]) -> pa.Table:
    """Rows of FINDINGS of what the driver itself sees, in the rulings: elections that nobody allowed."""
    rows = [
        row
        for number, run in enumerate(runs)
        if names.UNCLEAN_ELECTION not in silent_names(run)
        for row in unclean_elections(number, run.bounds)
    ]
    return pa.Table.from_pylist(rows, schema=FINDINGS)
