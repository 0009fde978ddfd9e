"""A campaign so far, as data made once (`results_of`), and its reports: the text at its end, what CI servers
read, its page (templates/night.*), and how two campaigns differ.

Rules
1. Violations, clusters that got stuck, and failures of the harness are kept apart: a campaign in which more
   runs failed has not found less.
2. The exit code is not 0 exactly if some signature `fails`, or there is `trouble`, or a run broke a gate,
   failed or is unknown; the reports for CI servers show a failure in the same cases.
3. Paths begin with the campaign's folder as the caller named it, so that the commands of a report can be
   typed where the campaign was run.
4. Fisher's exact test (two-sided), over the runs of a signature's own system, decides whether its rate has
   changed from one campaign to another. A signature that only one of them has is new or gone whatever the
   test says; its p is shown too, because once in 5 runs and never in 5 proves little.
5. The page is written after each batch and at the end, so that it can be read at any time: an error in it is
   only reported on stderr.
"""

import datetime
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from floodmark.checkers.judge.report import is_run
from floodmark.checkers.laws import finding_names
from floodmark.checkers.text.explain import EXPLANATIONS, PERMISSIONS
from floodmark.harness import __version__, runtime
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign import plan, state
from floodmark.harness.campaign.ledger import Entry, Ledger, instant
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.campaign.state import RunState, judged_by_system, runs_by_signature
from floodmark.harness.errors import UsageError
from floodmark.harness.report import phrases, run_page
from floodmark.harness.report.phrases import number_of, short_time_text
from floodmark.harness.report.render import Room, render
from floodmark.harness.report.run_summary import CUT_SHORT, EXITS, HARNESS, INVALID, UNKNOWN, numbered
from floodmark.harness.report.terminal import table
from floodmark.harness.report.verdict_text import LIMIT
from floodmark.harness.run import write_whole
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID

STUCK = finding_names.STUCK  # also the kind of a run with no worse finding
NIGHTS = 14  # of a trend, at most
NEW, OLD, KNOWN, PERMITTED, ABSENT = STANDINGS = ("new", "seen before", "known", "permitted", "not seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The count of one signature in one night. of: judged runs of its system; 0: that night had none."""

    began: str  # ISO 8601 with its zone
    hits: int  # runs that showed it
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One signature: what this campaign saw of it, and what the ledger knows."""

    entry: Entry  # of the ledger; an empty one for a signature that it does not have
    standing: str  # NEW, OLD (in an earlier campaign, marked by nobody), KNOWN, PERMITTED or ABSENT
    showing: Sequence[RunState] = ()  # the runs that showed it
    of: int  # runs of its system that were judged
    days: Sequence[str] = ()  # of the campaigns that showed it, the first first
    smallest: str = ""  # the folder of the smallest run that shows it
    words: str = ""  # the judge's sentence on that run, for a stuck cluster
    trend: Sequence[Point] = ()  # the latest nights, this one last

    @property
    def signature(self) -> Signature:
        return self.entry.signature

    @property
    def fails(self) -> bool:
        return self.standing in (NEW, OLD)

    @property
    def is_stuck(self) -> bool:
        return self.signature.finding == STUCK

    @property
    def reason(self) -> str:
        """Why it is known."""
        return "" if self.entry.known is None else str(self.entry.known["reason"])

    @property
    def standing_text(self) -> str:
        """`new`, `since 2026-11-20`, `known: KAFKA-1234`."""
        if self.standing == OLD:
            return f"since {self.days[0]}"
        return f"{KNOWN}: {self.reason}" if self.standing == KNOWN else self.standing

    @property
    def rate(self) -> str:
        return per_100(len(self.showing), self.of)

    @property
    def reproduced_text(self) -> str:
        """`4/5`: reproduced in 4 of 5 attempts; `-`: no attempt yet."""
        hits, of = self.entry.reproduced
        return f"{hits}/{of}" if of else "-"

    @property
    def commands(self) -> list[str]:
        """The commands that show the smallest run and reproduce it; none if no folder is known."""
        return [phrases.command_line(command, self.smallest)
                for command in ("show", "reproduce") if self.smallest]

    @property
    def element(self) -> str | None:
        """Its element in JUnit; None: the test case passes."""
        return "failure" if self.fails else "skipped" if self.standing == KNOWN else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One case of the plan and the runs that were made of it."""

    name: str  # the same in every campaign
    case: RunSpec
    runs: tuple[RunState, ...]

    @property
    def took_s(self) -> float:
        return sum(run.took_s or 0.0 for run in self.runs if run.status != state.FAILED)

    @property
    def element(self) -> str | None:
        """Its element in JUnit: one at most, the harness's failures first."""
        bad = "error" if failed(self.runs) else "failure" if gated(self.runs) or unknown(self.runs) else None
        return bad if self.runs else "skipped"

    @property
    def kinds(self) -> str:
        """`1 invalid, 2 valid`."""
        kinds = Counter("not made" if run.why is not None else run.kind or "not judged" for run in self.runs)
        return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """The judged runs of one system under one nemesis, over all its loads and guarantees."""

    runs: int
    found: int  # showed a bug that is not marked as known
    known: int  # showed only known bugs
    stuck: int  # their cluster got stuck


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A campaign so far."""

    runs: tuple[RunState, ...]
    spent_s: float = 0.0
    why_ended: str | None = None  # None: it has not
    ended_early: bool = False  # before everything requested was done
    causes: tuple[Cause, ...] = ()  # new ones first
    cells: tuple[Cell, ...] = ()
    trouble: str = ""  # why it did not finish; "": it did, or is still running
    folder: str = ""
    reproductions: int = 0  # attempts

    @property
    def violations(self) -> list[Cause]:
        return [cause for cause in self.causes if not cause.is_stuck and cause.showing]

    @property
    def stuck(self) -> list[Cause]:
        return [cause for cause in self.causes if cause.is_stuck and cause.showing]

    @property
    def exit_code(self) -> int:
        if gated(self.runs) or any(cause.fails for cause in self.causes):
            return EXIT_INVALID
        if self.trouble or failed(self.runs):
            return EXIT_HARNESS
        return EXIT_UNKNOWN if unknown(self.runs) else EXIT_VALID

    @property
    def counts(self) -> list[tuple[str, bool]]:
        """`2 new`, `1 known`, `1 new (stuck)`, each with whether these signatures fail."""
        return [(f"{number} {standing}{remark}", standing in (NEW, OLD))
                for causes, remark in ((self.violations, ""), (self.stuck, " (stuck)"))
                for standing in STANDINGS
                if (number := sum(cause.standing == standing for cause in causes))
                ] or [("nothing found", False)]

    @property
    def kinds(self) -> str:
        """`2 invalid, 410 valid`."""
        order = [INVALID, STUCK, plan.GATE, *EXITS]
        kinds = Counter(run.kind for run in self.runs if run.kind)
        counts = [f"{kinds[kind]} {kind}" for kind in sorted(kinds, key=lambda kind: (
            order.index(kind) if kind in order else len(order), kind))]
        not_made = sum(run.status == state.FAILED for run in self.runs)
        counts += [f"{not_made} not made"] if not_made else []
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
        heading = (f"{', '.join(count for count, _ in self.counts)}; {number_of(len(self.runs), 'run')}: "
                   f"{self.kinds}; {self.acked:,} acked writes, {self.faults:,} faults, "
                   f"{phrases.time_text(self.spent_s)}")
        if self.why_ended is not None and not self.ended_early:
            heading += f"; {self.why_ended}"
        return f"{heading}; it did not finish: {self.trouble}" if self.trouble else heading

    @property
    def coverage(self) -> dict[tuple[str, str], Square]:
        """By system and nemesis (or scenario), in the plan's order; without what is not in the plan."""
        stuck = {cause.signature for cause in self.stuck}
        failing = {cause.signature for cause in self.causes if cause.fails} - stuck
        known = {cause.signature for cause in self.causes if cause.standing == KNOWN} - stuck
        shown: dict[tuple[str, str], list[frozenset[Signature]]] = {}
        for cell in self.cells:
            shown.setdefault((cell.case.system, cell.case.faults), []).extend(
                frozenset(run.signatures) for run in cell.runs if run.judged is not None)
        return {key: Square(runs=len(runs), found=sum(not failing.isdisjoint(one) for one in runs),
                            known=sum(not known.isdisjoint(one) and failing.isdisjoint(one) for one in runs),
                            stuck=sum(not stuck.isdisjoint(one) for one in runs))
                for key, runs in shown.items()}

    @property
    def slowest(self) -> list[tuple[RunState, float, float | None]]:
        """The runs whose clients waited, the longest first, with the longest time that a partition had no ack
        and the time from mending to the next ack."""
        measures = [(run, (run.judged or {}).get("measures") or {}) for run in self.runs]
        waited = [(run, of[plan.MAX_UNAVAILABLE_S], of.get(plan.MAX_RECOVERY_S)) for run, of in measures
                  if isinstance(of.get(plan.MAX_UNAVAILABLE_S), int | float)]
        return sorted(waited, key=lambda one: -one[1])

    def where(self, run: RunState) -> str:
        return str(Path(self.folder) / run.folder)


def results_of(journal: state.State, ledger: Ledger, about: Mapping[str, Any], matrix: Sequence[RunSpec], *,
               folder: str, trouble: str = "") -> Results:
    """about: campaign.json; matrix: the plan's cases, in their order."""
    runs, (why_ended, early) = tuple(journal.runs()), journal.end
    if early:
        trouble = trouble or str(why_ended)
    elif why_ended is not None and not any(run.done for run in runs):
        trouble = trouble or f"no run was made ({why_ended})"
    by_case: dict[RunSpec, list[RunState]] = {case: [] for case in matrix}
    for run in runs:  # those of an earlier campaign's finding may have cases of their own
        by_case.setdefault(run.case, []).append(run)
    return Results(
        runs=runs, spent_s=journal.spent_s, why_ended=why_ended,
        ended_early=early, trouble=trouble, folder=folder,
        reproductions=journal.select("SELECT count(*) FROM reproductions")[0][0],
        causes=tuple(causes_of(runs, ledger, about, folder)),
        cells=tuple(Cell(name=name, case=case, runs=tuple(mine)) for name, (case, mine) in zip(
            numbered(case.title for case in by_case), by_case.items(), strict=True)))


def results_in(folder: Path, ledger: Ledger, about: Mapping[str, Any], trouble: str = "") -> Results:
    """The results of the campaign in this folder. FloodmarkError if they cannot be read."""
    try:
        matrix = [one.case for one in plan.read(str(about.get("plan", "")), f"the plan in {folder}").cases]
    except UsageError:
        matrix = []  # the cases of runs are known anyway
    return results_of(state.state_of(folder), ledger, about, matrix, folder=str(folder), trouble=trouble)


def failed(runs: Iterable[RunState]) -> list[RunState]:
    """The runs that failed in the harness: those that were not made, then the others."""
    them = [run for run in runs if run.status == state.FAILED or run.kind in (HARNESS, CUT_SHORT)]
    return sorted(them, key=lambda run: run.status != state.FAILED)


def gated(runs: Iterable[RunState]) -> list[RunState]:
    """The runs that broke a gate of the plan."""
    return [run for run in runs if (run.judged or {}).get("gates")]


def unknown(runs: Iterable[RunState]) -> list[RunState]:
    return [run for run in runs if run.kind == UNKNOWN]


def why_of(run: RunState) -> str:
    """Why the harness could not make the run, or the judge's sentence if it is no violation; "": nothing."""
    return run.why if run.why is not None else str((run.judged or {}).get("why") or "")


def gates_of(run: RunState) -> str:
    """The broken gates: `a partition was not acked for 12.3 s while a fault was in force, 10 s are ...`."""
    texts = []
    for row in (run.judged or {}).get("gates", ()):
        gate, limit, value = row["gate"], row["limit"], row["value"]
        when = "while a fault was in force" if gate == plan.MAX_UNAVAILABLE_S else "after a fault was mended"
        texts.append(f"{value:,} writes were acked, at least {limit:,.0f} are required"
                     if gate == plan.MIN_ACKED else
                     f"a partition was not acked for {short_time_text(value)} {when}, "
                     f"{short_time_text(limit)} are allowed ({gate})")
    return "; ".join(texts)


# -- signatures ---------------------------------------------------------------------------------------------

def causes_of(runs: Sequence[RunState], ledger: Ledger, about: Mapping[str, Any], folder: str) -> list[Cause]:
    """The signatures that the campaign saw, the new ones first; then those that the ledger has for its
    systems and that were not seen this time."""
    judged, found = judged_by_system(runs), runs_by_signature(runs)
    absent = [entry.signature for entry in ledger.entries.values()
              if entry.signature not in found and entry.signature.system in judged]
    # The campaigns in the ledger that began before this one, the earliest first. All trends have a point for
    # each of them, so they share one time axis.
    id_, began = str(about.get("id", "")), instant(str(about.get("began", "")))
    before = [name for name, night in ledger.nights.items() if name != id_ and night.began_at <= began]
    nights = sorted(before, key=lambda name: (ledger.nights[name].began_at, name))
    causes = list[Cause]()
    for signature in (*found, *absent):
        entry = ledger.of(signature) or Entry(id=signature.id, signature=signature)
        showing, of = found.get(signature, ()), judged[signature.system]
        where, words = entry.smallest.folder if entry.smallest is not None else "", ""
        if showing:
            least = state.smallest(showing)
            where, words = str(Path(folder) / least.folder), why_of(least)
        standing = (ABSENT if not showing else PERMITTED if signature.klass != BUG
                    else KNOWN if entry.known is not None else OLD if entry.found.keys() & nights else NEW)
        trend = [Point(began=ledger.nights[night].began, hits=entry.found.get(night, 0),
                       of=ledger.nights[night].runs.get(signature.system, 0)) for night in nights]
        this = Point(began=str(about.get("began", "")), hits=len(showing), of=of)
        causes.append(Cause(
            entry=entry, standing=standing, showing=showing, of=of, smallest=where,
            days=[ledger.nights[night].began[:10] for night in ledger.nights_with(entry)],
            words=words if signature.finding == STUCK else "", trend=[*trend, this][-NIGHTS:]))
    return sorted(causes, key=lambda one: (STANDINGS.index(one.standing), -len(one.showing), one.signature))


# -- reports ------------------------------------------------------------------------------------------------

def summary(night: Results) -> str:
    """The heading, tables of violations and stuck clusters, and the other runs that failed."""
    return _rendered("night.txt", night, causes_table=causes_table)


def night_markdown(night: Results, limit: int = LIMIT) -> bytes:
    """The content of `--markdown FILE`."""
    return _rendered("night.md", night, room=Room(limit)).encode()


def night_junit(night: Results, now: datetime.datetime) -> bytes:
    """The content of `--junit FILE`."""
    return _rendered("night.xml", night, version=__version__, now=now.isoformat(timespec="seconds")).encode()


def _rendered(name: str, night: Results, **values: object) -> str:
    return render(name, night=night, failed=failed, gated=gated, unknown=unknown, why_of=why_of,
                  gates_of=gates_of, **values)


def causes_table(title: str, causes: Sequence[Cause]) -> list[str]:
    """The lines of a table of causes, and the guarantees that all have."""
    texts, below = distinguishing_texts([one.signature for one in causes])
    rows = [(one.entry.id, one.signature.system, text, f"{len(one.showing)} of {one.of}",
             one.rate.replace(" per 100 runs", ""), one.reproduced_text, one.standing_text)
            for one, text in zip(causes, texts, strict=True)]
    heads = ("signature", "system", title, "runs", "per 100", "reproduced", "seen")
    return [*table(heads, rows).splitlines(), *below]


def distinguishing_texts(signatures: Sequence[Signature]) -> tuple[list[str], list[str]]:
    """For a table: a text for each signature with those of its guarantees that not all have; then a line with
    the guarantees that all have, if there are any."""
    promised = [one.guarantees.split() for one in signatures]
    common = [one for one in promised[0] if all(one in each for each in promised)] if promised else []
    texts = []
    for one, guarantees in zip(signatures, promised, strict=True):
        own = " ".join(guarantee for guarantee in guarantees if guarantee not in common)
        permitted = f", permitted by {one.permitted_by}" if one.permitted_by else ""
        texts.append(f"{one.finding_and_step}{f' [{own}]' if own else ''}{permitted}")
    return texts, [f"guarantees: {' '.join(common)}"] if common else []


# -- two campaigns ------------------------------------------------------------------------------------------

DIFFERENT_BELOW = 0.01  # for p; it is low because a night has many signatures, each with a test of its own
NOT_RUN_BEFORE, MORE, SAME, LESS, GONE, NOT_RUN = CHANGES = (
    "not run before", "more frequent", "as before", "less frequent", "gone", "not run")
Share = tuple[int, int]  # runs that showed it, of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One signature in both campaigns."""

    signature: Signature
    before: Share  # of the runs of its system
    after: Share

    @property
    def kind(self) -> str:
        return kind_of(self.before, self.after)

    @property
    def is_new_bug(self) -> bool:
        return self.kind == NEW and self.signature.klass == BUG


def changes(before: Results, after: Results) -> list[Change]:
    """Every signature of either campaign; new ones come first, bugs before permitted findings."""
    (then, of_then), (now, of_now) = (
        (runs_by_signature(night.runs), judged_by_system(night.runs)) for night in (before, after))
    found = [Change(signature=one, before=(len(then.get(one, ())), of_then[one.system]),
                    after=(len(now.get(one, ())), of_now[one.system])) for one in then.keys() | now.keys()]
    return sorted(found, key=lambda one: ((NEW, *CHANGES).index(one.kind), one.signature.klass != BUG,
                                          -one.after[0], one.signature))


def kind_of(then: Share, now: Share) -> str:
    """NEW or one of CHANGES. NOT_RUN: one has no run of the system, so nothing is known of what changed."""
    if then[0] == 0:
        return NEW if then[1] else NOT_RUN_BEFORE
    if now[0] == 0:
        return GONE if now[1] else NOT_RUN
    if p_same(then, now) >= DIFFERENT_BELOW:
        return SAME
    return MORE if now[0] * then[1] > then[0] * now[1] else LESS


def difference(before: Results, after: Results, found: Sequence[Change], ledger: Ledger) -> str:
    """Tables of violations, of stuck clusters, and of the other runs that failed."""
    parts: list[str] = []
    for title, is_stuck in (("violation", False), ("stuck", True)):
        mine = [one for one in found if (one.signature.finding == STUCK) == is_stuck]
        texts, below = distinguishing_texts([one.signature for one in mine])
        rows = [((ledger.of(one.signature) or one.signature).id, one.signature.system, text,
                 *_compared(one.before, one.after, " (known)" if ledger.knows(one.signature) else ""))
                for one, text in zip(mine, texts, strict=True)]
        heads = ("signature", "system", title, "before", "after", "p", "change")
        parts += ["\n".join([table(heads, rows), *below])] if rows else []
    others = []
    for title, among in (("the harness failed", failed), ("unknown", unknown), ("broke a gate", gated)):
        then, now = ((len(among(night.runs)), len(night.runs)) for night in (before, after))
        others += [(title, *_compared(then, now))] if then[0] or now[0] else []
    parts += [table(("runs", "before", "after", "p", "change"), others)] if others else []
    return "\n\n".join(parts) or "neither has found anything"


def _compared(before: Share, after: Share, remark: str = "") -> tuple[str, ...]:
    first, second = (f"{hits} of {of}" for hits, of in (before, after))
    p = f"{p_same(before, after):.2g}" if before[1] and after[1] else "-"
    return first, second, p, kind_of(before, after) + remark


# -- the page -----------------------------------------------------------------------------------------------

INDEX = "index.html"
PAGES_AT_ONCE = 10  # new pages of runs in one call, each about a second
SCALES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # ends of the bars, per 100 runs


def index_beside(folder: Path, about: Mapping[str, Any], trouble: str = "") -> Path | None:
    """Writes the page during or after a campaign; None if that failed for any reason."""
    return run_page.written_page(folder, lambda: write_index(
        folder, trouble=trouble, ledger_path=Path(str(about["ledger"]))))


def write_index(folder: Path, file: Path | None = None, *, trouble: str = "", ledger_path: Path | None = None
                ) -> Path:
    """Writes the page of a campaign's folder atomically. ledger_path: None means the campaign's own.
    FloodmarkError if it cannot be written."""
    missing = {"version": "?", "seed": "?", "began": "?", "commit": "", "plan": "", "budget_s": None}
    about = {**missing, **state.about_of(folder)}
    path = ledger_path or ledgers.path_of(about, folder)
    night = results_in(folder, ledgers.load(path), about, trouble)
    file = folder / INDEX if file is None else file
    # The page of the smallest run of each cause that this campaign saw, the new ones first; existing pages
    # stay.
    runs = [Path(cause.smallest) for cause in night.causes if cause.showing]
    wanted = [run for run in dict.fromkeys(runs)
              if run.resolve().is_relative_to(folder.resolve())  # a state may contain any path
              and is_run(run) and not (run / run_page.REPORT).is_file()
              and run_page.size_of(run) <= run_page.AT_ONCE_BYTES]
    for run in wanted[:PAGES_AT_ONCE]:
        run_page.written_page(run, partial(run_page.write_report, run))
    write_whole(file, _rendered(
        "night.html", night, about=about, ledger=str(path), has_ledger=path.is_file(),
        pages=pages_of(night, file.parent), made_at=datetime.datetime.fromtimestamp(
            runtime.current.time_ns() / 1e9).astimezone().isoformat(timespec="seconds"),
        reproductions=night.reproductions, phrases=phrases,
        explained=EXPLANATIONS, permissions=PERMISSIONS, moment=moment, per_100=per_100,
        pieces=re.compile(r"(?<=[,_])|(?=\+)").split, places=places, scale_of=scale_of, shell=shlex.join,
        two_digits=two_digits, wilson=wilson).encode())
    return file


def pages_of(night: Results, seen_from: Path) -> dict[str, str]:
    """The addresses of the existing pages by run folder, relative to `seen_from`. An address never begins
    with a scheme, whatever the folder's name."""
    named = {cause.smallest for cause in night.causes if cause.smallest} | {*map(night.where, night.runs)}
    pages = {folder: Path(folder) / run_page.REPORT for folder in named}
    return {folder: f"./{quote(os.path.relpath(page.absolute(), seen_from.absolute()))}"
            for folder, page in pages.items() if page.is_file()}


def moment(written: object) -> str:
    """A time from a file as text: `2026-11-23 05:06 UTC`."""
    try:
        read = datetime.datetime.fromisoformat(str(written))
    except ValueError:
        return str(written)
    return f"{read:%Y-%m-%d %H:%M} {read:%Z}".strip()


def scale_of(causes: Iterable[Cause]) -> float:
    """The end of the bars' scale: the least of SCALES that no interval exceeds."""
    most = max((100 * wilson(len(cause.showing), cause.of)[1] for cause in causes if cause.of), default=0.0)
    return next((scale for scale in SCALES if most <= scale), SCALES[-1])


def places(points: Sequence[Point], width: int, height: int, edge: int) -> list[tuple[float, float] | None]:
    """Each night's dot in pixels: the last at the right edge, the highest rate on top; None: not run."""
    most = max((one.hits / one.of for one in points if one.of), default=0.0) or 1.0
    step = (width - 2 * edge) / max(1, len(points) - 1)
    return [(round(width - edge - back * step, 1),
             round(height - edge - one.hits / one.of / most * (height - 2 * edge), 1)) if one.of else None
            for back, one in zip(range(len(points) - 1, -1, -1), points, strict=True)]


# -- rates: pure --------------------------------------------------------------------------------------------

def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), which is also valid at 0 of n and n of n."""
    from scipy import stats  # takes a while to import

    if of == 0:
        return 0.0, 1.0
    low, high = stats.binomtest(hits, of).proportion_ci(method="wilson")
    return float(low), float(high)


def per_100(hits: int, of: int) -> str:
    """The rate and its 95 % interval: `12 per 100 runs (7 to 20)`."""
    if of == 0:
        return "no run"
    low, high = (100 * share for share in wilson(hits, of))
    return f"{100 * hits / of:.3g} per 100 runs ({two_digits(low)} to {two_digits(high)})"


def two_digits(number: float) -> str:
    """The number with two digits, or more if it is 100 or more."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def p_same(then: tuple[int, int], now: tuple[int, int]) -> float:
    """The probability of such a difference between equal rates (hits, of): Fisher's exact test, two-sided."""
    from scipy import stats

    return float(stats.fisher_exact([[hits, of - hits] for hits, of in (then, now)]).pvalue)
