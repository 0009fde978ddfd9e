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
from floodmark.harness.campaign.gates import GATE, MAX_UNAVAILABLE_S, MIN_ACKED
from floodmark.harness.campaign.ledger import Entry, Ledger
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.campaign.state import (
    FAILED,
    RunState,
    State,
    judged_by_system,
    runs_by_signature,
    smallest,
)
from floodmark.harness.report.case_names import numbered
from floodmark.harness.report.phrases import many, short_time_text, time_text
from floodmark.harness.report.rates import per_100
from floodmark.harness.report.run_outcome import CUT_SHORT, EXITS, HARNESS, INVALID, UNKNOWN
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID

NIGHTS = 14  # of a trend, at most
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

    @property
    def took_s(self) -> float:
        return sum(run.took_s or 0.0 for run in self.runs if run.status != FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A campaign so far. trouble: why it did not finish; "": it did, or is still running."""

    runs: tuple[RunState, ...]
    spent_s: float
    why_ended: str | None = None  # None: it has not
    ended_early: bool = False  # before everything requested was done
    causes: tuple[Cause, ...] = ()  # new ones first
    cells: tuple[Cell, ...] = ()
    trouble: str = ""
    folder: str = ""

    def of_kind(self, *kinds: str) -> tuple[RunState, ...]:
        return tuple(run for run in self.runs if run.kind in kinds)

    @property
    def gates(self) -> tuple[RunState, ...]:
        """The runs that broke a gate of the plan."""
        return tuple(run for run in self.runs if (run.judged or {}).get("gates"))

    @property
    def not_made(self) -> tuple[RunState, ...]:
        """The runs that the harness failed to make."""
        return tuple(run for run in self.runs if run.status == FAILED)

    @property
    def harness(self) -> tuple[RunState, ...]:
        """The runs that failed in the harness, or were interrupted."""
        return self.of_kind(HARNESS, CUT_SHORT)

    @property
    def unknown(self) -> tuple[RunState, ...]:
        return self.of_kind(UNKNOWN)

    @property
    def violations(self) -> tuple[Cause, ...]:
        return tuple(cause for cause in self.causes if not cause.is_stuck and cause.standing != ABSENT)

    @property
    def stuck(self) -> tuple[Cause, ...]:
        return tuple(cause for cause in self.causes if cause.is_stuck and cause.standing != ABSENT)

    @property
    def exit_code(self) -> int:
        if self.gates or any(cause.fails for cause in self.causes):
            return EXIT_INVALID
        if self.trouble or self.not_made or self.harness:
            return EXIT_HARNESS
        return EXIT_UNKNOWN if self.unknown else EXIT_VALID

    @property
    def counts(self) -> str:
        """`2 new, 1 known, 1 new (stuck)`."""
        counts = [f"{number} {standing}{remark}"
                  for causes, remark in ((self.violations, ""), (self.stuck, " (stuck)"))
                  for standing in _ORDER
                  if (number := sum(cause.standing == standing for cause in causes))]
        return ", ".join(counts) or "nothing found"

    @property
    def kinds(self) -> str:
        """`2 invalid, 410 valid`."""
        kinds = [run.kind for run in self.runs if run.kind]
        counts = [f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds), key=_worst_first)]
        counts += [f"{len(self.not_made)} not made"] if self.not_made else []
        left = sum(not run.done for run in self.runs)
        counts += [f"{left} not judged yet"] if left and counts else []
        return ", ".join(counts) or "none judged"

    @property
    def acked(self) -> int:
        """Acked writes of the runs that were judged."""
        return sum(run.judged["acked"] for run in self.runs if run.judged is not None)

    @property
    def faults(self) -> int:
        return sum(sum(run.judged["faults"].values()) for run in self.runs if run.judged is not None)

    @property
    def heading(self) -> str:
        """`2 new, 1 known, 1 new (stuck); 412 runs: 2 invalid, 410 valid; 1,900,000 acked writes,
        1,200 faults, 3 h 58 min; the time is over`."""
        heading = (f"{self.counts}; {many(len(self.runs), 'run')}: {self.kinds}; {self.acked:,} acked "
                   f"writes, {self.faults:,} faults, {time_text(self.spent_s)}")
        if self.why_ended is not None and not self.ended_early:
            heading += f"; {self.why_ended}"
        return f"{heading}; it did not finish: {self.trouble}" if self.trouble else heading

    def where(self, run: RunState) -> str:
        return str(Path(self.folder) / run.folder)


def results_of(state: State, ledger: Ledger, about: Mapping[str, Any], matrix: Sequence[RunSpec], *,
               folder: str, trouble: str = "") -> Results:
    """about: campaign.json; matrix: the plan's cases, in their order."""
    runs, (why_ended, early) = tuple(state.runs()), state.end
    if early:
        trouble = trouble or str(why_ended)
    elif not any(run.done for run in runs):
        trouble = trouble or f"no run was made ({why_ended})"
    by_case: dict[RunSpec, list[RunState]] = {case: [] for case in matrix}
    for run in runs:  # those of an earlier campaign's finding may have cases of their own
        by_case.setdefault(run.case, []).append(run)
    return Results(
        runs=runs, spent_s=state.spent_s, why_ended=why_ended, ended_early=early, trouble=trouble,
        folder=folder,
        causes=tuple(causes_of(runs, ledger, about, folder)),
        cells=tuple(Cell(name=name, case=case, runs=tuple(mine)) for name, (case, mine) in zip(
            numbered(case.title for case in by_case), by_case.items(), strict=True)))


def _worst_first(kind: str) -> tuple[int, str]:
    order = [INVALID, STUCK, GATE, *EXITS]
    return (order.index(kind) if kind in order else len(order), kind)


def why_of(run: RunState) -> str:
    """Why the harness could not make the run, or the judge's sentence if it is no violation; "": nothing."""
    return run.why if run.why is not None else str((run.judged or {}).get("why") or "")


def gates_of(run: RunState) -> str:
    """The gates that the run broke: `a partition was not acked for 12.3 s while a fault was in force, 10 s
    are allowed (...)`."""
    return "; ".join(map(_gate_text, (run.judged or {}).get("gates", ())))


def _gate_text(row: Mapping[str, Any]) -> str:
    gate, limit, value = row["gate"], row["limit"], row["value"]
    if gate == MIN_ACKED:
        return f"{value:,} writes were acked, at least {limit:,.0f} are required"
    when = "while a fault was in force" if gate == MAX_UNAVAILABLE_S else "after a fault was mended"
    return (f"a partition was not acked for {short_time_text(value)} {when}, {short_time_text(limit)} are "
            f"allowed ({gate})")


# -- signatures ---------------------------------------------------------------------------------------------


def causes_of(runs: Sequence[RunState], ledger: Ledger, about: Mapping[str, Any], folder: str) -> list[Cause]:
    """The signatures that the campaign saw, the new ones first; then those that the ledger has for its
    systems and that were not seen this time."""
    judged, found, earlier = judged_by_system(runs), runs_by_signature(runs), earlier_than(ledger, about)
    absent = [entry.signature for entry in ledger.entries.values()
              if entry.signature not in found and entry.signature.system in judged]
    causes = [cause_of(signature, ledger, found.get(signature, ()), of=judged[signature.system],
                       earlier=earlier, folder=folder) for signature in (*found, *absent)]
    return sorted(causes, key=lambda one: (_ORDER.index(one.standing), -one.runs, one.signature))


def cause_of(signature: Signature, ledger: Ledger, showing: Sequence[RunState], *, of: int,
             earlier: Set[str], folder: str) -> Cause:
    """earlier: the campaigns before this one, as the ledger has them."""
    entry = ledger.of(signature) or Entry(id=signature.id, signature=signature)
    days = [ledger.nights[name].began[:10] for name in ledger.nights_with(entry)]
    where, words = entry.smallest.folder if entry.smallest is not None else "", ""
    if showing:
        least = smallest(showing)
        where, words = str(Path(folder) / least.folder), why_of(least)
    standing = KNOWN if entry.known is not None else OLD if earlier & entry.found.keys() else NEW
    if signature.klass != BUG:
        standing = PERMITTED
    return Cause(
        id=entry.id, signature=signature, standing=standing if showing else ABSENT, runs=len(showing), of=of,
        reason=str(entry.known["reason"]) if entry.known is not None else "",
        first=days[0] if days else "", last=days[-1] if days else "", reproduced=entry.reproduced,
        smallest=where, words=words if signature.finding == STUCK else "")


# -- night by night -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The count of one signature in one night. of: judged runs of its system; 0: that night had none."""

    began: str  # ISO 8601 with its zone
    hits: int  # runs that showed it
    of: int


def trend(ledger: Ledger, signature: Signature, about: Mapping[str, Any], *, hits: int, of: int,
          nights: int = NIGHTS) -> list[Point]:
    """The points of the latest nights. The current night (about: its campaign.json) comes last, with these
    counts. Every signature has a point for each of these nights, so all lines share one time axis."""
    entry = ledger.of(signature)
    found = entry.found if entry is not None else {}
    earlier = sorted(earlier_than(ledger, about), key=lambda name: (ledger.nights[name].began, name))
    points = [Point(began=ledger.nights[name].began, hits=found.get(name, 0),
                    of=ledger.nights[name].runs.get(signature.system, 0)) for name in earlier]
    return [*points, Point(began=str(about.get("began", "")), hits=hits, of=of)][-nights:]


def earlier_than(ledger: Ledger, about: Mapping[str, Any]) -> set[str]:
    """The campaigns in the ledger that began before this one."""
    id_, began = str(about.get("id", "")), str(about.get("began", ""))
    return {name for name, night in ledger.nights.items() if name != id_ and night.began <= began}
