"""Plays, judges, rules and renders: what every command calls that makes runs or judges them.

Rules
1. A run that failed or missed a moment of its scenario is repeated in a new folder, with a message, up to its
   number of tries. One that is impossible is not.
2. Each run has its own folder, ports and processes; a failed run does not affect others. Ctrl-C and SIGTERM
   end the present runs in an orderly way (what was recorded is kept, the cluster is mended and read), and no
   other begins.
3. Every folder is judged and reported, whatever is wrong with others; the exit code is the worst.
4. If something cannot be written (a full disk, no permission), the exit code is 4 and not 1; but a bug that
   was found still makes it 1.
5. A saved run gets the exit code that it had when it was made: one that ended early is a failure of the
   harness, which no option allows.
"""

import asyncio
import datetime
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic

from floodmark.checkers.judge import report
from floodmark.checkers.laws.finding_names import WITHDRAWN
from floodmark.checkers.text.explain import known_findings
from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError, NotPrinted, UsageError, nearest
from floodmark.harness.event_loop import run_loop, work_through
from floodmark.harness.report import verdict_text
from floodmark.harness.report.phrases import number_of
from floodmark.harness.report.run_files import kept_verdict
from floodmark.harness.report.run_page import write_page_if_invalid
from floodmark.harness.report.run_summary import HARNESS, Ruling, case_name, missed_steps_text
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.terminal import Screen
from floodmark.harness.run import (
    DONE,
    INTERRUPTED,
    MEASURES,
    RUNS,
    SHRUNK,
    P,
    Run,
    RunAt,
    pretty_json,
    refuse_nonempty,
    write_whole,
)
from floodmark.harness.run_location import Place
from floodmark.harness.runner import Progress, RunResult, carry_out
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.spec import RunPlan
from floodmark.harness.verdict import EXIT_HARNESS, Policy, Verdict, worst
from floodmark.nemesis.scenario import Scenario

TRIES = 3  # of a scenario's run
LOOK_EVERY_S = 1.0  # at how far the judge is


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # click.echo would write through the line of a Screen


def new_parent(out: Path | None, what: str) -> Path:
    """A command's parent of run folders: `out`, which is absent or empty, or histories/runs/WHAT-TIME."""
    parent = out or RUNS / f"{what}-{datetime.datetime.now():%Y%m%dT%H%M%S}"
    refuse_nonempty(parent)
    return parent


# -- play ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    title: str
    folder: Path
    plan: Callable[[Path], RunPlan]  # its plan in a folder; UsageError: it is impossible
    scenario: Scenario | None = None  # a run that misses one of its moments has failed
    tries: int = 1
    repeats_failures: bool = True  # False: only a run that missed a moment is repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a play: its last run."""

    play: Play
    folder: Path
    tries: int
    seconds: float  # of the last run
    plan: RunPlan | None = None  # None: it is impossible
    result: RunResult | None = None  # None: it did not begin, or did not end
    error: FloodmarkError | None = None  # then why
    missed: str | None = None  # the steps of the scenario whose moments never came

    @property
    def why(self) -> str | None:
        """Why the run itself failed; None: it did not, and every moment came."""
        if self.result is None:
            return str(self.error)
        return self.result.ended if self.result.ended != DONE else self.missed

    @property
    def interrupted(self) -> bool:
        return self.result is not None and self.result.ended.startswith(INTERRUPTED)

    @property
    def recorded(self) -> bool:
        return Run(folder=self.folder).about_path.is_file()

    @property
    def text(self) -> str:
        again = f", repeated, {self.tries} runs" if self.tries > 1 else ""
        wrong = f": {self.why.splitlines()[0]}" if self.why else ""
        return f"{self.play.title}: {self.seconds:.1f} s{again}{wrong}"


def record(plan: RunPlan) -> RunResult:
    """Makes this run, and shows its progress. FloodmarkError if it did not begin, or did not end."""
    played = play_one(Play(title="", folder=plan.folder, plan=lambda _: plan))
    if played.result is None:
        assert played.error is not None
        raise played.error
    return played.result


def play_one(run: Play) -> Played:
    with Screen() as screen:
        (played,) = play_all([run], screen=screen)
    return played


def play_all(plays: Sequence[Play], *, at_once: int = 1, screen: Screen) -> list[Played]:
    """Makes these runs in a loop of its own. FloodmarkError if a second signal ended this at once."""
    try:
        return run_loop(play(plays, at_once=at_once, screen=screen))
    except asyncio.CancelledError as error:
        raise FloodmarkError("interrupted twice: the run ended at once") from error


async def play(plays: Sequence[Play], *, at_once: int = 1, screen: Screen | None = None) -> list[Played]:
    """Makes these runs, `at_once` at a time; the results are in the given order. After one that was
    interrupted no other begins, and only what was made is returned. screen: where to show how many are made,
    and if one is made at a time how far it is; with it, a line for each with a title that is made or
    repeated."""
    made: dict[int, Played] = {}
    if screen is not None and len(plays) > 1:
        screen.advance(0)

    async def work(numbered: tuple[int, Play]) -> None:
        position, one = numbered
        made[position] = await _play(one, screen, alone=at_once == 1)
        if screen is not None and one.title:
            say(f"[{len(made)}/{len(plays)}] {made[position].text}")
        if screen is not None and len(plays) > 1:
            screen.advance(len(made))
            screen.show(f"{len(made)} of {len(plays)} runs{screen.left}")
        if made[position].interrupted:
            raise asyncio.CancelledError  # no other begins

    try:
        await work_through(enumerate(plays), work, at_once=at_once)
    except asyncio.CancelledError:
        if not any(one.interrupted for one in made.values()):
            raise
    return [made[position] for position in sorted(made)]


async def _play(play: Play, screen: Screen | None, *, alone: bool) -> Played:
    """Makes the run until one succeeds, or the tries are used up."""
    previous = None

    def show(progress: Progress) -> None:
        if screen is not None and alone:
            screen.show(progress_line(progress), stage=progress.phase)

    for attempt in range(1, play.tries + 1):
        name = play.folder.name if attempt == 1 else f"{play.folder.name}-again-{attempt}"
        folder, began_s = play.folder.with_name(name), time.monotonic()
        plan, result, error, missed = None, None, None, None
        try:
            plan = play.plan(folder)
            result = await carry_out(plan, show)
            if play.scenario is not None and result.ended == DONE:
                missed = missed_steps_text(play.scenario, result.about)
        except FloodmarkError as raised:
            error = raised
        played = Played(play=play, folder=folder, tries=attempt, seconds=time.monotonic() - began_s,
                        plan=plan, result=result, error=error, missed=missed)
        why, impossible = played.why, isinstance(error, UsageError)
        if why is None or attempt == play.tries or (missed is None and (
                not play.repeats_failures or impossible or played.interrupted)):
            break
        again = f"{why.splitlines()[0]}, as before" if why == previous else why
        if screen is not None:
            say(f"{play.title}: failed, trying again:\n  {again}")
        previous = why
    return played


def progress_line(progress: Progress) -> str:
    """Phase, seconds, counts, speed, and the faults in force."""
    faults = f"  in force: {', '.join(progress.in_force)}" if progress.in_force else ""
    reading = f"  {progress.reading}" if progress.reading else ""
    return (f"{progress.phase:<8}{progress.elapsed_s:7.1f} s  ok {progress.ok}  fail {progress.fail}  "
            f"info {progress.info}  {progress.ops_per_s:.0f} op/s{faults}{reading}")


# -- judge --------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Generic[P]):
    folder: P
    verdict: Verdict
    unsaved: str | None = None  # why it could not be written


def judge(folders: Sequence[P], workers: Workers = HERE, *, what: str = "", again: bool = False,
          untouched: Sequence[P] = ()) -> list[Judged[P]]:
    """Judges these folders in one call, and writes the verdict of each that is a run. what: the runs, as
    messages name them; empty: nothing is said. again: saved verdicts do not count, and stay where nothing
    could be judged; else one that is all that is left of a run is the run's. untouched: folders in which
    nothing is written."""
    if what:
        say(f"judging {what} (starting Spark takes a while)")
    kept = {} if again else {folder: report.of_json(saved) for folder in folders
                             if (saved := kept_verdict(RunAt(folder=folder))) is not None}
    left = [folder for folder in folders if folder not in kept]
    judging = catalog.judge(workers, partial(watched, what) if what else None)
    verdicts = iter(judging.judge(left) if left else ())
    return [Judged(folder=folder, verdict=kept[folder]) if folder in kept
            else Judged(folder=folder, verdict=next(verdicts)) if folder in untouched
            else saved_verdict(folder, next(verdicts), again=again) for folder in folders]


@contextmanager
def watched(what: str, parts: Callable[[], tuple[int, int]]) -> Iterator[None]:
    """Shows meanwhile how many parts of the judge's work are done, and how many there are."""
    ended = threading.Event()

    def look() -> None:
        with ExitStack() as shown:
            screen: Screen | None = None
            while not ended.wait(LOOK_EVERY_S):
                done, of = parts()
                if of > 1:
                    screen = screen or shown.enter_context(Screen(total=1.0))
                    screen.advance(done / of)
                if screen is not None and done:
                    screen.show(f"judging {what}: {done} of {of} parts{screen.left}")

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def judge_all(folders: Sequence[P], *, what: str = "", untouched: Sequence[P] = ()) -> list[Judged[P]]:
    """Judges runs that were just made, whose verdicts are needed: FloodmarkError if one cannot be written."""
    judged = judge(folders, what=what or number_of(len(folders), "run"), untouched=untouched)
    for one in judged:
        if one.unsaved is not None:
            raise FloodmarkError(one.unsaved)
    return judged


def saved_verdict(folder: P, verdict: Verdict, *, again: bool = False) -> Judged[P]:
    """Writes verdict.json, except where there is no run, or a shrunk one; and the judge's traceback."""
    where = report.keep_failure(folder, verdict)
    if verdict.failure is not None:
        place = f"its traceback is in {where}" if where is not None else "its traceback could not be written"
        say(escape_controls(f"floodmark: {folder}: the judge itself failed; {place}"))
    unsaved = None
    if (kept := kept_verdict(RunAt(folder=folder))) is not None:
        verdict = verdict if again else report.of_json(kept)
    elif report.is_run(folder) and (verdict.counts or not again):
        unsaved = written(lambda: report.write_verdict(folder, verdict))
    return Judged(folder=folder, verdict=verdict, unsaved=unsaved)


def written(write: Callable[[], None]) -> str | None:
    """Writes a file; returns why that failed, which is also printed, or None."""
    try:
        write()
    except FloodmarkError as error:
        say(f"floodmark: {escape_controls(str(error))}")
        return str(error)
    return None


def has_died(folder: Path) -> bool:
    """Whether a node of this run died by itself: that is a finding, and no failure of the harness."""
    return bool(Run(folder=folder).about().get("died"))


def tidy(folder: Path) -> None:
    """Deletes the raw logs of a run that did not fail: they explain failures."""
    shutil.rmtree(Run(folder=folder).nodes_folder, ignore_errors=True)


def shrink(folder: Path) -> None:
    """Deletes the files of a valid run except run.json, which says so first, the verdict and the measures."""
    run = Run(folder=folder)
    try:
        about = run.about()
    except FloodmarkError:
        return  # somebody removed it
    if not about.get(SHRUNK):
        run.rewrite({**about, SHRUNK: True})
    for path in folder.glob("*"):
        if path not in (run.about_path, run.verdict_path, folder / MEASURES):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


# -- rule ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The options that turn verdicts into an exit code, and the files for reports."""

    policy: Policy
    json_file: Path | None = None
    junit_file: Path | None = None
    markdown_file: Path | None = None


def gate(*, strict: bool, allow: Sequence[str], allow_unknown: bool, **files: Path | None) -> Gate:
    """The Gate for check's options; UsageError for a name in --allow that is no finding."""
    known = known_findings()
    for strange in sorted(set(allow) - {*known, *WITHDRAWN}):
        raise UsageError(f"--allow: no finding is called {strange!r}; {nearest(strange, known)}")
    return Gate(policy=Policy(strict=strict, allow=frozenset(allow), allow_unknown=allow_unknown), **files)


# -- render -------------------------------------------------------------------------------------------------

def judge_and_report(folders: Sequence[Place], gate: Gate, workers: Workers = HERE) -> list[int]:
    """Judges and reports; returns each folder's exit code (and 4 for each file that could not be written)."""
    try:
        judged = judge(folders, workers, what=f"{len(folders)} runs" if len(folders) > 1 else "the run")
    except FloodmarkError as error:
        not_judged(folders, str(error), gate)
        raise
    outcomes = [verdict_text.outcome_of(one.folder, one.verdict, gate.policy, one.unsaved)
                for one in judged]
    codes = [outcome.code for outcome in outcomes]
    codes += write_verdicts(judged, gate) + write_reports(outcomes, gate)  # stdout's reader may be gone
    pages = [write_page_if_invalid(one.reading.folder, one.ruling, one.reading.verdict, one.reading)
             for one in outcomes]
    try:
        verdict_text.print_reports(outcomes, pages)
    except OSError as error:
        raise NotPrinted(worst(codes)) from error
    return codes


def not_judged(folders: Sequence[Place], why: str, gate: Gate) -> list[int]:
    """Writes the reports for CI servers if judging failed completely; EXIT_HARNESS for each folder."""
    failed = Ruling(kind=HARNESS, word=HARNESS, harness=(why,))
    outcomes = [verdict_text.Outcome(reading=verdict_text.reading_of(folder, {}, None), ruling=failed,
                                     tested=case_name(verdict_text.read_about(folder))) for folder in folders]
    return [outcome.code for outcome in outcomes] + write_reports(outcomes, gate)


def write_verdicts(judged: Sequence[Judged[P]], gate: Gate) -> list[int]:
    """Writes all verdicts of the call to the one file of --json, by folder."""
    verdicts = {str(one.folder): report.as_json(one.verdict) for one in judged}
    return write_file(gate.json_file, lambda: pretty_json(verdicts))


def write_reports(outcomes: Sequence[verdict_text.Outcome], gate: Gate) -> list[int]:
    """Writes the requested report files for CI servers, each atomically."""
    return [*write_file(gate.junit_file, lambda: verdict_text.junit(outcomes, datetime.datetime.now())),
            *write_file(gate.markdown_file, lambda: verdict_text.markdown(outcomes))]


def write_file(file: Path | None, content: Callable[[], bytes]) -> list[int]:
    """Writes a file that an option names, if it does; returns [EXIT_HARNESS] if that failed."""
    failed = file is not None and written(lambda: write_whole(file, content())) is not None
    return [EXIT_HARNESS] if failed else []
