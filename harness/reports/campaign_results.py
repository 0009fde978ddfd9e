"""Sums up a campaign as data for its reports: signatures, the matrix of cases, failures. Pure.

Rules
1. Violations, clusters that got stuck, and failures of the harness are kept in separate lists.
2. The exit code is not 0 exactly if some signature `fails`, or `trouble`, `gates`, `not_made`, `harness` or
   `unknown` is not empty; the reports for CI servers show a failure in the same cases.
3. Paths begin with the campaign's folder as the caller named it, so that the commands of a report can be
   typed where the campaign was run.
"""

import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.checkers.laws import finding_names as checks
from floodmark.harness.campaign.gates import GATE, sentences
from floodmark.harness.campaign.journal import RECORDED, RunState, State, smallest
from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.quantities import time_text
from floodmark.harness.campaign.rates import per_100
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.campaign.trend import earlier_than
from floodmark.harness.reports.case_names import numbered
from floodmark.harness.reports.phrases import many
from floodmark.harness.reports.run_outcome import CUT_SHORT, EXITS, HARNESS, INVALID, UNKNOWN
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import BUG

STUCK = checks.STUCK  # also the kind of a run with no worse finding
NEW, OLD, KNOWN, PERMITTED, ABSENT = "new", "seen before", "known", "permitted", "not seen"
_ORDER = (NEW, OLD, KNOWN, PERMITTED, ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One signature: what this campaign saw of it, and what the ledger knows."""

    id: str
    signature: Signature
    standing: str  # NEW, OLD (in an earlier campaign, marked by nobody), KNOWN, PERMITTED or ABSENT
    runs: int  # that showed it
    of: int  # runs of its system that were judged
    reason: str = ""  # why it is known
    first: str = ""  # the day of the first campaign that showed it; "": not in the ledger
    last: str = ""
    reproduced: tuple[int, int] = (0, 0)  # k of N
    smallest: str = ""  # the folder of the smallest run that shows it
    words: str = ""  # the judge's sentence on that run, for a stuck cluster

    @property
    def fails(self) -> bool:
        return self.standing in (NEW, OLD)

    @property
    def is_stuck(self) -> bool:
        return self.signature.finding == STUCK

    @property
    def standing_text(self) -> str:
        """`new`, `since 2026-11-20`, `known: KAFKA-1234`."""
        if self.standing == OLD:
            return f"since {self.first}"
        return f"{KNOWN}: {self.reason}" if self.standing == KNOWN else self.standing

    @property
    def rate(self) -> str:
        return per_100(self.runs, self.of)

    @property
    def reproduced_text(self) -> str:
        """`4/5`: reproduced in 4 of 5 attempts; `-`: no attempt yet."""
        return f"{self.reproduced[0]}/{self.reproduced[1]}" if self.reproduced[1] else "-"

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that show the smallest run and reproduce it; none if no folder is known."""
        return tuple(shlex.join(["floodmark", command, self.smallest])
                     for command in ("show", "reproduce") if self.smallest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One case of the matrix and the runs that were made of it."""

    name: str  # the same in every campaign
    case: RunSpec
    runs: tuple[RunState, ...]
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A campaign so far. trouble: why it did not finish; "": it did, or is still running."""

    line: str  # runs, acked writes, faults, time
    causes: tuple[Cause, ...] = ()  # new ones first
    cells: tuple[Cell, ...] = ()
    gates: tuple[RunState, ...] = ()  # broke a gate of the plan
    not_made: tuple[RunState, ...] = ()  # the harness failed to make a run
    harness: tuple[RunState, ...] = ()  # the run failed in the harness, or was interrupted
    unknown: tuple[RunState, ...] = ()  # the verdict is unknown
    trouble: str = ""
    folder: str = ""

    @property
    def violations(self) -> tuple[Cause, ...]:
        return tuple(cause for cause in self.causes if not cause.is_stuck and cause.standing != ABSENT)

    @property
    def stuck(self) -> tuple[Cause, ...]:
        return tuple(cause for cause in self.causes if cause.is_stuck and cause.standing != ABSENT)

    @property
    def counts(self) -> str:
        """`2 new, 1 known, 1 new (stuck)`."""
        counts = [f"{number} {standing}{remark}"
                  for causes, remark in ((self.violations, ""), (self.stuck, " (stuck)"))
                  for standing in _ORDER
                  if (number := sum(cause.standing == standing for cause in causes))]
        return ", ".join(counts) or "nothing found"

    @property
    def heading(self) -> str:
        """`2 new, 1 known, 1 new (stuck); 412 runs: 2 invalid, 1 stuck, 409 valid; ...`."""
        heading = f"{self.counts}; {self.line}"
        return f"{heading}; it did not finish: {self.trouble}" if self.trouble else heading

    def where(self, run: RunState) -> str:
        return str(Path(self.folder) / run.folder)


def results_of(state: State, ledger: Ledger, about: Mapping[str, Any], matrix: Sequence[RunSpec], *,
               folder: str, trouble: str = "") -> Results:
    """about: campaign.json; matrix: the plan's cases, in their order."""
    runs = tuple(state.runs.values())
    kinds = {run.number: str(run.judged["kind"]) for run in runs if run.judged is not None}
    if not any(run.done for run in runs) and not state.ended_early:
        trouble = trouble or f"no run was made ({state.why_ended})"
    if state.ended_early:
        trouble = trouble or str(state.why_ended)
    return Results(
        line=line_of(state),
        causes=tuple(causes_of(state, ledger, about, folder)),
        cells=tuple(cells_of(state, matrix)),
        gates=tuple(run for run in runs if (run.judged or {}).get("gates")),
        not_made=tuple(run for run in runs if run.why is not None),
        harness=tuple(run for run in runs if kinds.get(run.number) in (HARNESS, CUT_SHORT)),
        unknown=tuple(run for run in runs if kinds.get(run.number) == UNKNOWN),
        trouble=trouble,
        folder=folder,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A campaign in numbers. kinds: `2 invalid, 410 valid`."""

    runs: int
    kinds: str
    acked: int  # writes, of the runs that were judged
    faults: int


def totals_of(state: State) -> Totals:
    judged = [run.judged for run in state.runs.values() if run.judged is not None]
    kinds = [line["kind"] for line in judged]
    counts = [f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds), key=_worst_first)]
    failed = sum(run.why is not None for run in state.runs.values())
    counts += [f"{failed} not made"] if failed else []
    left = sum(not run.done for run in state.runs.values())
    counts += [f"{left} not judged yet"] if left and counts else []
    return Totals(runs=len(state.runs), kinds=", ".join(counts) or "none judged",
                  acked=sum(line["acked"] for line in judged),
                  faults=sum(sum(line["faults"].values()) for line in judged))


def line_of(state: State) -> str:
    """`412 runs: 2 invalid, 410 valid; 1,900,000 acked writes, 1,200 faults, 3 h 58 min; the time is
    over`."""
    of = totals_of(state)
    counted = (f"{many(of.runs, 'run')}: {of.kinds}; {of.acked:,} acked writes, {of.faults:,} faults, "
            f"{time_text(state.spent_s)}")
    return counted if state.why_ended is None or state.ended_early else f"{counted}; {state.why_ended}"


def _worst_first(kind: str) -> tuple[int, str]:
    order = [INVALID, STUCK, GATE, *EXITS]
    return (order.index(kind) if kind in order else len(order), kind)


def why_of(run: RunState) -> str:
    """Why the harness could not make the run, or the judge's sentence if it is no violation; "": nothing."""
    return run.why if run.why is not None else str((run.judged or {}).get("why") or "")


def gates_of(run: RunState) -> str:
    """A sentence for each gate that the run broke."""
    return sentences((run.judged or {}).get("gates", ()))


# -- signatures ---------------------------------------------------------------------------------------------


def causes_of(state: State, ledger: Ledger, about: Mapping[str, Any], folder: str) -> list[Cause]:
    """The signatures that the campaign saw, the new ones first; then those that the ledger has for its
    systems and that were not seen this time."""
    judged = state.judged_by_system()
    found = state.runs_by_signature()
    earlier = earlier_than(ledger, about)
    absent = [entry.signature for entry in ledger.entries.values()
              if entry.signature not in found and entry.signature.system in judged]
    causes = [
        cause_of(signature, ledger, found.get(signature, ()), of=judged[signature.system], earlier=earlier,
                 folder=folder)
        for signature in (*found, *absent)
    ]  # fmt: skip
    return sorted(causes, key=lambda one: (_ORDER.index(one.standing), -one.runs, one.signature))


def cause_of(signature: Signature, ledger: Ledger, showing: Sequence[RunState], *, of: int,
             earlier: Set[str], folder: str) -> Cause:
    """earlier: the campaigns before this one, as the ledger has them."""
    entry = ledger.of(signature)
    days = [ledger.nights[name].began[:10] for name in ledger.nights_with(entry)] if entry is not None else []
    where, words = entry.smallest.folder if entry is not None and entry.smallest is not None else "", ""
    if showing:
        least = smallest(showing)
        where, words = str(Path(folder) / least.folder), why_of(least)
    standing = OLD if entry is not None and earlier & entry.found.keys() else NEW
    if entry is not None and entry.known is not None:
        standing = KNOWN
    if signature.klass != BUG:
        standing = PERMITTED
    return Cause(
        id=entry.id if entry is not None else signature.id,
        signature=signature,
        standing=standing if showing else ABSENT,
        runs=len(showing),
        of=of,
        reason=str(entry.known["reason"]) if entry is not None and entry.known is not None else "",
        first=days[0] if days else "",
        last=days[-1] if days else "",
        reproduced=entry.reproduced if entry is not None else (0, 0),
        smallest=where,
        words=words if signature.finding == STUCK else "",
    )


def distinguishing_texts(signatures: Sequence[Signature]) -> tuple[list[str], str]:
    """For a table: a text for each signature with those of its guarantees that not all have; then the
    guarantees that all have."""
    promised = [one.guarantees.split() for one in signatures]
    common = [one for one in promised[0] if all(one in each for each in promised)] if promised else []
    texts = []
    for one, guarantees in zip(signatures, promised, strict=True):
        own = " ".join(guarantee for guarantee in guarantees if guarantee not in common)
        permitted = f", permitted by {one.permitted_by}" if one.permitted_by else ""
        texts.append(f"{one.finding_and_step}{f' [{own}]' if own else ''}{permitted}")
    return texts, " ".join(common)


# -- the matrix of cases ------------------------------------------------------------------------------------


def cells_of(state: State, matrix: Sequence[RunSpec]) -> list[Cell]:
    """Every case of the plan, then the cases of runs that were made because of an earlier campaign's
    finding."""
    took_s: dict[int, float] = {}
    for line in state.lines:
        if line["event"] == RECORDED:
            took_s[int(line["run"])] = float(line.get("took_s") or 0.0)
    runs: dict[RunSpec, list[RunState]] = {case: [] for case in matrix}
    for run in state.runs.values():
        runs.setdefault(run.case, []).append(run)
    return [
        Cell(name=name, case=case, runs=tuple(mine), took_s=sum(took_s.get(run.number, 0.0) for run in mine))
        for name, (case, mine) in zip(numbered(case.title for case in runs), runs.items(), strict=True)
    ]
