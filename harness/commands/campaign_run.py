"""Runs a session of a campaign: makes runs in parallel, judges them in batches, and reproduces new bugs.

Rules
1. Clusters and the judge take turns: a batch is played, then judged, so that they do not compete for
   processors.
2. Every event is in the journal before anything depends on it; a campaign is resumed from the journal alone.
   A run that was unfinished when the campaign was killed is made again, with its number and seed.
3. A new cause is reproduced before anything else is played.
4. Before each run it checks that there is time for the run, its judging and possible reproductions
   (pacing.py), and room on the disk.
5. A full disk stops the campaign: a run or a verdict that it spoilt counts as not made.
"""

import errno
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from floodmark.harness.campaign import gates
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.cases import Draw, case_of_json, case_to_json, draws
from floodmark.harness.campaign.journal import (
    BEGAN,
    ENDED,
    FAILED,
    JUDGE_FAILED,
    JUDGED,
    OPENED,
    RECORDED,
    REPRODUCED,
    CampaignAt,
    Journal,
    RunState,
    State,
    smallest,
)
from floodmark.harness.campaign.ledger import Ledger, Night, Smallest
from floodmark.harness.campaign.pacing import Batch, Pace, pace_of
from floodmark.harness.campaign.plan import Plan
from floodmark.harness.campaign.quantities import size_text, time_text
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.commands.campaign_processes import JudgeProcess, PlayerProcess
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import work_through
from floodmark.harness.reports.phrases import many
from floodmark.harness.reports.run_outcome import UNKNOWN, VALID
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.run import MEASURES, SHRUNK, Run
from floodmark.harness.verdict import BUG

BATCH_S = 240.0  # of playing at most, then the batch is judged
BATCHES = 8  # at least, if each has LEAST_BATCH_S: new bugs must be reproduced in time
LEAST_BATCH_S = 60.0
ROOM_BYTES = 256 << 20  # on the disk, for a run, until one was measured
NO_SPACE = os.strerror(errno.ENOSPC)
KEPT = ("run.json", "verdict.json", MEASURES)  # files that are kept of a valid run


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a session from the command line. runs: the number of draws; None: as many as there is
    time for."""

    budget_s: float
    runs: int | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run to make: a draw, or a reproduction (with its number) of a signature (by its id)."""

    folder: Path
    request: Mapping[str, Any]
    title: str
    expected_s: float
    draw: Draw | None = None
    signature: str = ""
    number: int = 0


@dataclass(slots=True)
class Conductor:
    """Runs one session of a campaign; the session holds the campaign's lock."""

    at: CampaignAt
    plan: Plan
    bounds: Bounds
    about: Mapping[str, Any]  # campaign.json
    ledger_path: Path
    journal: Journal
    state: State
    player: PlayerProcess
    judge: JudgeProcess
    look: Callable[[State], object]  # called after each batch, while no cluster runs
    in_flight: dict[str, float] = field(default_factory=dict)  # title -> its begin
    pace: Pace = field(default_factory=Pace)
    after_s: list[float] = field(default_factory=list)  # the time spent after judging each batch
    why: str = ""
    is_full: bool = False  # the disk is full, which ends the campaign early

    # -- the loop ---------------------------------------------------------------------------------------

    async def conduct(self) -> State:
        """Runs batches until the time is over or all runs are made; returns the state."""
        self._log(OPENED)
        self._clean_up()
        self._update_ledger()  # a killed session may have judged more than the ledger has
        await self.judge.start()
        try:
            await self._judge_batch([run.folder for run in self.state.to_be_judged], [])
            while (jobs := self._next_batch()):
                await self._play_batch(jobs)
        finally:
            await self.player.end()
            await self.judge.end()
        self._log(ENDED, why=self.why, early=self.is_full)
        return self.state

    def _next_batch(self) -> list[Job]:
        """The jobs of the next batch, reproductions before draws; [] at the end, with the reason in
        self.why."""
        size_bytes = _size(self.at.folder)
        self.pace = pace_of(self.state, map(len, self._bugs().values()), self.after_s)
        batch = Batch(pace=self.pace, at_once=self.at_once, left_s=self.left_s, reproduce=self.plan.reproduce)
        room_s = min(self._batch_s, self.left_s) if self.is_measured else 0.0
        jobs: list[Job] = []
        for job in self._jobs():
            self.why = self._reason_not_to_begin(job, batch, size_bytes)
            if self.why:
                break
            batch.add(job.expected_s, draw=job.draw is not None)
            jobs.append(job)
            if batch.free_s >= room_s:
                break
        return jobs

    def _jobs(self) -> Iterator[Job]:
        """Yields all jobs that could begin now, in order."""
        yield from self._reproductions()
        made = sum(run.done or run.recorded for run in self.state.runs.values())
        for count, draw in enumerate(self._draws(), made + 1):
            if self.bounds.runs is not None and count > self.bounds.runs:
                self.why = f"{many(max(made, self.bounds.runs), 'run')} made, as requested"
                return
            yield self._job_of(draw)

    def _reason_not_to_begin(self, job: Job, batch: Batch, size_bytes: int) -> str:
        """Why this job cannot begin after those of the batch, with so many bytes in the campaign's folder;
        "": it can."""
        if not batch.has_time_for(job.expected_s, draw=job.draw is not None):
            return "the time is over"
        wanted = self._bytes_of_a_run * (batch.runs + 1)
        if full := self._disk_full(wanted):
            self.is_full = not batch.runs  # else the jobs that fit are made first
            return full
        if self.plan.disk_bytes is not None and size_bytes + wanted > self.plan.disk_bytes:
            allowed = size_text(self.plan.disk_bytes)
            return f"the campaign's folder has reached the {allowed} that the plan allows"
        return ""

    def _disk_full(self, wanted: int) -> str:
        """A sentence with what to do if the disk has no room for so many bytes; "": it has."""
        free = shutil.disk_usage(self.at.folder).free
        return "" if wanted <= free else (
            f"the disk of {self.at.folder} is full: {size_text(wanted)} are needed, {size_text(free)} are "
            f"free; make room, then: floodmark campaign resume {self.at.folder}")

    async def _play_batch(self, jobs: Sequence[Job]) -> None:
        made: list[Job] = []

        async def work(job: Job) -> None:
            if await self._make(job):
                made.append(job)

        await work_through(jobs, work, at_once=self.at_once)
        ours = [str(job.folder.relative_to(self.at.folder)) for job in made if job.draw is not None]
        await self._judge_batch(ours, [job for job in made if job.draw is None])

    async def _make(self, job: Job) -> bool:
        """Makes the job's run; returns whether there is something to judge."""
        if job.draw is not None:
            self._log(BEGAN, run=job.draw.number, case=case_to_json(job.draw.case), seed=job.draw.seed,
                      folder=str(job.folder.relative_to(self.at.folder)))
        began_s = time.monotonic()
        self.in_flight[job.title] = began_s
        try:
            answer = await self.player.play(job.request)
        except FloodmarkError as error:
            answer = {"why": str(error)}
        finally:
            del self.in_flight[job.title]
        why, took_s = answer.get("why"), time.monotonic() - began_s
        wanted = ROOM_BYTES if NO_SPACE in str(why) else self._bytes_of_a_run
        if why is not None and (full := self._disk_full(wanted)):
            raise FloodmarkError(f"{full} ({job.title} was running: {why})")
        if job.draw is None:
            if why is not None:
                self._log(REPRODUCED, signature=job.signature, number=job.number, shown=None, why=why)
            return why is None
        if why is not None:
            self._log(FAILED, run=job.draw.number, why=why, took_s=round(took_s, 2))
            self.show(f"{job.title}: the harness failed: {why}")
            return False
        self._log(RECORDED, run=job.draw.number, took_s=round(took_s, 2),
                  **{key: answer.get(key) for key in ("cpu_s", "resident_bytes")})
        self.show(f"{job.title}: played in {took_s:.0f} s")
        return True

    # -- judging ------------------------------------------------------------------------------------------

    async def _judge_batch(self, folders: Sequence[str], again: Sequence[Job]) -> None:
        """Judges these runs and these reproductions, in one call."""
        every = [self.at.folder / folder for folder in folders] + [job.folder for job in again]
        if not every:
            return
        self.show(f"judging {many(len(every), 'run')}")
        began_s = time.monotonic()
        answers = await self.judge.judge(every)
        each_s = round((time.monotonic() - began_s) / len(every), 3)
        unsaved = [str(answer["unsaved"]) for answer in answers if answer["unsaved"] is not None]
        if unsaved:
            raise FloodmarkError(f"{many(len(unsaved), 'verdict')} could not be written: {unsaved[0]}")
        numbers = {run.folder: run.number for run in self.state.runs.values()}
        for folder, judged in zip(folders, answers, strict=False):
            case = self.state.runs[numbers[folder]].case
            answer = with_gates(judged, gates.of_case(self.plan.gates, case))
            self._log(JUDGED, run=numbers[folder], judge_s=each_s, **answer)
            if answer["kind"] == VALID and not self.bounds.keep:
                shrink(self.at.folder / folder)
        for job, answer in zip(again, answers[len(folders):], strict=True):
            shown = any(Signature(**row).id == job.signature for row in answer["signatures"])
            outcome = {"shown": None, "why": answer["why"]} if answer[JUDGE_FAILED] else {"shown": shown}
            self._log(REPRODUCED, signature=job.signature, number=job.number, judge_s=each_s,
                      folder=str(job.folder.relative_to(self.at.folder)), **outcome)
            if answer["kind"] == VALID and not self.bounds.keep:
                shrink(job.folder)
        began_s = time.monotonic()
        self._update_ledger()
        self.look(self.state)
        self.after_s.append(time.monotonic() - began_s)

    def _update_ledger(self) -> None:
        """Writes what the campaign has found so far into the ledger."""
        with ledgers.locked(self.ledger_path):
            before = ledgers.load(self.ledger_path)
            after = with_findings(before, self.state, self.about, self.at.folder)
            if after != before:
                ledgers.save(self.ledger_path, after)
        for id_ in sorted(after.entries.keys() - before.entries.keys()):
            self.show(f"NEW: {after.entries[id_].signature.sentence}")

    # -- what comes next ----------------------------------------------------------------------------------

    def _draws(self) -> Iterator[Draw]:
        """Yields the draws that were not made yet, in the plan's order."""
        bank = [(case_of_json(row["case"]), int(row["seed"])) for row in self.about["bank"]]
        for draw in draws(self.plan.cases, int(self.about["seed"]), bank):
            run = self.state.runs.get(draw.number)
            if run is None or not (run.recorded or run.done):
                yield draw

    def _job_of(self, draw: Draw) -> Job:
        folder = self.at.runs_folder / draw.name
        return Job(
            folder=folder, draw=draw, title=f"{draw.number} {draw.case.title} seed {draw.seed}",
            expected_s=self.pace.of_run(draw.case),
            request={"case": case_to_json(draw.case), "seed": draw.seed, "folder": str(folder)})

    def _reproductions(self) -> Iterator[Job]:
        """Yields the missing reproductions of each bug that is not marked as known, up to the plan's
        number."""
        ledger = ledgers.load(self.ledger_path)
        for signature, runs in self._bugs().items():
            entry = ledger.of(signature)
            if entry is None or entry.known is not None:
                continue
            tried = len(self.state.reproductions.get(entry.id, ()))
            if entry.reproduced[1] >= self.plan.reproduce > 0 and not tried:
                continue  # another campaign has reproduced it
            first = smallest(runs)
            for number in range(tried + 1, self.plan.reproduce + 1):
                folder = self.at.reproductions_of(entry.id) / str(number)
                shutil.rmtree(folder, ignore_errors=True)  # left by a killed session
                yield Job(
                    folder=folder, signature=entry.id, number=number, expected_s=self.pace.of_run(first.case),
                    title=f"reproduction {number} of {entry.id} ({signature.finding})",
                    request={"again": str(self.at.folder / first.folder), "finding": signature.finding,
                           "number": number, "folder": str(folder)})

    def _bugs(self) -> dict[Signature, list[RunState]]:
        return {one: runs for one, runs in self.state.runs_by_signature().items()
                if one.klass == BUG}

    def _clean_up(self) -> None:
        """Removes unfinished runs of a killed session, and shrinks those that it had judged and not
        shrunk."""
        half_made = [self.at.folder / run.folder for run in self.state.unfinished]
        half_made += [*self.at.runs_folder.glob(".*"), *self.at.folder.glob("again/*/.*")]  # not begun yet
        for folder in half_made:
            shutil.rmtree(folder, ignore_errors=True)
        for run in self.state.runs.values():
            if run.judged is not None and run.judged["kind"] == VALID and not self.bounds.keep:
                shrink(self.at.folder / run.folder)

    # -- measures -----------------------------------------------------------------------------------------

    @property
    def _batch_s(self) -> float:
        return max(LEAST_BATCH_S, min(BATCH_S, self.bounds.budget_s / BATCHES))

    @property
    def left_s(self) -> float:
        return max(0.0, self.bounds.budget_s - self.state.spent_at(time.time()))

    @property
    def at_once(self) -> int:
        """How many runs to make in parallel: the plan's number; else as many as fit the processors and half
        of the memory, by what the runs so far have used. The first run is made alone, to be measured."""
        if self.plan.at_once is not None:
            return self.plan.at_once
        lines = [line for line in self.state.lines if line["event"] == RECORDED]
        if not lines:
            return 1
        processors = sorted(line["cpu_s"] / max(line["took_s"], 0.1) for line in lines)[len(lines) // 2]
        resident = max(line["resident_bytes"] for line in lines)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        cores = len(os.sched_getaffinity(0))
        fitting = int(min(round(cores / max(processors, 0.1)), memory // max(resident, 1)))
        return max(1, min(cores, fitting))

    @property
    def is_measured(self) -> bool:
        return self.plan.at_once is not None or any(line["event"] == RECORDED for line in self.state.lines)

    @property
    def _bytes_of_a_run(self) -> int:
        seen = [int(run.judged["size_bytes"]) for run in self.state.runs.values() if run.judged is not None]
        return max(seen, default=ROOM_BYTES)

    # -- progress -------------------------------------------------------------------------------------------

    def _log(self, event: str, **fields: Any) -> None:
        self.state.apply_line(self.journal.append(event, time_s=time.time(), **fields))

    def show(self, message: str) -> None:
        """Prints a line of progress: a message, and how far the campaign is."""
        click.echo(harmless(f"[{self.progress_text()}] {message}"), err=True)

    def progress_text(self) -> str:
        runs = self.state.runs.values()
        done, unjudged = sum(run.recorded or run.done for run in runs), len(self.state.unjudged)
        rate = 3600 * done / self.state.spent_s if self.state.spent_s > 1 else 0.0
        parts = [f"{done} done{f' ({unjudged} to be judged)' if unjudged else ''}",
                 f"{len(self.in_flight)} in flight", f"{many(len(self._bugs()), 'bug')} found",
                 f"{time_text(self.left_s)} left"]
        return ", ".join(parts + ([f"{rate:.0f} runs/h"] if done else []))


# -- pure ---------------------------------------------------------------------------------------------------


def with_gates(answer: Mapping[str, Any], limits: Mapping[str, float]) -> dict[str, Any]:
    """The judge's summary with the gates that the run breaks (`gates`). A valid run that breaks some gets the
    kind GATE; one without the measures that the gates need is unknown."""
    measures = answer.get("measures")
    broken = gates.broken(limits, {**(measures or {}), gates.MIN_ACKED: answer["acked"]})
    kind = answer["kind"]
    if kind == VALID and broken:
        kind = gates.GATE
    elif kind == VALID and measures is None and gates.asks_for_measures(limits):
        kind = UNKNOWN
    return {**answer, "kind": kind, "gates": broken}


def with_findings(ledger: Ledger, state: State, about: Mapping[str, Any], folder: Path) -> Ledger:
    """The ledger with everything this campaign has found so far, replacing its earlier entries."""
    name = str(about["id"])
    ledger = ledger.with_night(name, Night(began=str(about["began"]), version=str(about["version"]),
                                       commit=about["commit"], runs=dict(state.judged_by_system())))
    for signature, showing in state.runs_by_signature().items():
        faults = Counter(run.case.faults for run in showing)
        least = smallest(showing)
        kept = Smallest(folder=str(folder / least.folder), case=case_to_json(least.case), seed=least.seed,
                        size_bytes=least.size_bytes)
        ledger = ledger.with_finding(signature, name, len(showing), faults=faults, smallest=kept)
        entry = ledger.of(signature)
        assert entry is not None
        tried = [line["shown"] for line in state.reproductions.get(entry.id, ()) if line["shown"] is not None]
        if tried:
            ledger = ledger.with_reproduction(entry.id, sum(tried), len(tried))
    return ledger


def shrink(folder: Path) -> None:
    """Deletes the files of a valid run except run.json, which says so first, the verdict and the measures."""
    run = Run(folder=folder)
    try:
        about = run.about()
    except FloodmarkError:
        return  # somebody removed it
    if not about.get(SHRUNK):
        run.rewrite({**about, SHRUNK: True})
    for path in (run.history_path, run.trace_path, run.replicas_path):
        path.unlink(missing_ok=True)
    for path in folder.glob("*"):
        if path.name not in KEPT:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _size(folder: Path) -> int:
    """Bytes of all files in a folder; files removed meanwhile do not count."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total
