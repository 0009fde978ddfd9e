"""Runs a session of a campaign: makes runs in parallel, judges them in batches, and reproduces new bugs.

Rules
1. Clusters and the judge take turns: a batch is played, then judged, so that they do not compete for
   processors.
2. Everything is in the campaign's state before anything depends on it, and is read from there. A run that was
   unfinished when the campaign was killed is made again, with its number and seed.
3. A new cause is reproduced before anything else is played.
4. A batch is what the clusters play in an eighth of the campaign's time (one to four minutes), reproductions
   of new bugs first; the campaign's very first run is a batch of its own, to be measured. A run is added if
   the disk has room, and the time left is enough for playing the batch, for judging it, and for reproducing
   as many new bugs as so many runs have shown until now, by the times that the latest ones have taken.
5. A full disk stops the campaign: a run or a verdict that it spoilt counts as not made.
"""

import heapq
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign import state as states
from floodmark.harness.campaign.plan import (
    GATE,
    GATES,
    MIN_ACKED,
    Draw,
    Plan,
    case_of_json,
    case_to_json,
    draws,
)
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.commands.campaign_processes import Worker
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import work_through
from floodmark.harness.pipeline import say, shrink
from floodmark.harness.report.phrases import command_line, number_of, size_text, time_text
from floodmark.harness.report.run_summary import UNKNOWN, VALID
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.terminal import Screen
from floodmark.harness.run import DONE
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import BUG

BATCH_S, LEAST_BATCH_S, BATCHES = 240.0, 60.0, 8  # see rule 4
ROOM_BYTES = 256 << 20  # on the disk, for a run, until one was measured
# Estimates that are used until something was measured:
SETTLING_S = 15.0  # a run's time besides its load
JUDGE_S = 5.0  # the judging of a run
AFTER_S = 5.0  # ledger and pages, after a batch
ENDING_S = 2.0  # until the judge's process has ended
TOOK = """
SELECT spec, max(took_s) FROM (
    SELECT spec, took_s, row_number() OVER (PARTITION BY spec ORDER BY number DESC) AS age
    FROM runs WHERE took_s IS NOT NULL)
WHERE age <= 5 GROUP BY spec
"""
JUDGED = "SELECT avg(judge_s) FROM (SELECT judge_s FROM runs WHERE judge_s > 0 ORDER BY number DESC LIMIT 20)"
RUNS = "SELECT count(judged) FROM runs"
MADE = f"status != '{states.BEGUN}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run to make: a draw (signature: ""), or the reproduction of a signature (by its id)."""

    folder: Path
    request: Mapping[str, Any]  # to the process that makes the runs
    title: str
    case: RunSpec
    number: int
    signature: str = ""


@dataclass(slots=True, kw_only=True)
class Batch:
    """The runs chosen so far, and what they are expected to take."""

    state: states.State
    at_once: int
    left_s: float  # of the campaign's time
    reproduce: int = 0  # how often each new bug is reproduced
    after_s: float = AFTER_S
    runs: int = 0
    draws: int = 0  # of them: new runs, which may find something
    took_s: dict[RunSpec, float] = field(init=False)  # case -> the longest of its latest runs
    judge_s: float = field(init=False)  # of a run
    bugs_per_run: float = field(init=False)
    free_s: list[float] = field(init=False)  # a heap: when each of the clusters is free again

    def __post_init__(self) -> None:
        self.took_s = {states.case_of(spec): took_s for spec, took_s in self.state.select(TOOK)}
        ((judge_s,),), ((judged,),) = self.state.select(JUDGED), self.state.select(RUNS)
        self.judge_s = judge_s or JUDGE_S
        self.bugs_per_run = self.state.bugs / max(judged, 1)
        self.free_s = [0.0] * self.at_once

    def expected_s(self, case: RunSpec) -> float:
        """The seconds of a run of this case. Those of a scenario are its steps', not its load's."""
        besides_s = [took_s - each.duration for each, took_s in self.took_s.items() if each.scenario is None]
        return self.took_s.get(case) or case.duration + max(0.0, max(besides_s, default=SETTLING_S))

    def has_time_for(self, case: RunSpec, *, draw: bool = True) -> bool:
        """Whether a run of this case can be added; draw: it is no reproduction."""
        run_s = self.expected_s(case)
        played_s = max(*self.free_s, self.free_s[0] + run_s)
        if not self.took_s and not self.runs:
            return played_s <= self.left_s  # nothing was measured yet
        judged_s = (self.runs + 1) * self.judge_s + self.after_s + ENDING_S
        again_s = (self.draws + draw) * self.bugs_per_run * self.reproduce * (
            run_s / self.at_once + self.judge_s)
        if self.runs < self.at_once:
            again_s = 0.0  # clusters that idle find nothing at all
        return played_s + judged_s + again_s <= self.left_s

    def add(self, case: RunSpec, *, draw: bool = True) -> None:
        heapq.heapreplace(self.free_s, self.free_s[0] + self.expected_s(case))
        self.runs += 1
        self.draws += draw


@dataclass(slots=True, kw_only=True)
class CampaignRunner:
    """Runs one session of a campaign; the session holds the campaign's lock."""

    folder: Path
    plan: Plan
    about: Mapping[str, Any]  # campaign.json
    state: states.State
    player: Worker
    judge: Worker
    look: Callable[[], object]  # called after each batch, while no cluster runs
    screen: Screen = field(default_factory=Screen)
    in_flight: int = 0
    after_s: list[float] = field(default_factory=list)  # the time spent after judging each batch
    why: str = ""  # no other run can begin
    is_full: bool = False  # the disk is full, which ends the campaign early

    # -- the loop ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs batches until the time is over or all runs are made."""
        self.state.open_session()
        self._clean_up()
        self._update_ledger()  # a killed session may have judged more than the ledger has
        await self.judge.start()
        try:
            # The machine may have been the reason why the judge itself failed once.
            left = self.state.runs("status = 'recorded' OR (judge_failures = 1 AND "
                                   f"json_extract(judged, '$.{states.JUDGE_FAILED}'))")
            await self._judge_batch([self._job_of(run, self.folder / run.folder) for run in left])
            while jobs := self._next_batch():
                await self._play_batch(jobs)
        finally:
            await self.player.end()
            await self.judge.end()
        self.state.end_session(self.why, early=self.is_full)

    def _next_batch(self) -> list[Job]:
        """The jobs of the next batch; [] at the end, with the reason in self.why."""
        size_bytes = _size(self.folder)
        batch = Batch(state=self.state, at_once=self.at_once, left_s=self.left_s,
                      reproduce=self.plan.reproduce, after_s=max(self.after_s[-5:], default=AFTER_S))
        is_measured = self.plan.at_once is not None or self._measures
        full_s = max(LEAST_BATCH_S, min(BATCH_S, self.about["budget_s"] / BATCHES)) if is_measured else 0.0
        jobs: list[Job] = []
        for job in self._jobs():
            self.why = self._reason_not_to_begin(job, batch, size_bytes)
            if self.why:
                break
            batch.add(job.case, draw=not job.signature)
            jobs.append(job)
            if batch.free_s[0] >= min(full_s, self.left_s):
                break
        return jobs

    def _jobs(self) -> Iterator[Job]:
        yield from self._reproductions()
        numbers = {number for number, in self.state.select(f"SELECT number FROM runs WHERE {MADE}")}
        made, most = len(numbers), self.about["runs"]
        bank = [(case_of_json(row["case"]), int(row["seed"])) for row in self.about["bank"]]
        for draw in draws(self.plan.cases, int(self.about["seed"]), bank):
            if draw.number in numbers:
                continue
            made += 1
            if most is not None and made > most:
                self.why = f"{number_of(max(len(numbers), most), 'run')} made, as requested"
                return
            yield self._job_of(draw, self.folder / "runs" / draw.name)

    def _job_of(self, draw: Draw | states.RunState, folder: Path) -> Job:
        return Job(folder=folder, title=f"{draw.number} {draw.case.title} seed {draw.seed}", case=draw.case,
                   number=draw.number, request={"case": case_to_json(draw.case), "seed": draw.seed,
                                                "folder": str(folder)})

    def _reproductions(self) -> Iterator[Job]:
        """Yields the missing reproductions of each bug not marked as known, up to the plan's number."""
        ledger = ledgers.load(Path(self.about["ledger"]))
        for signature, runs in states.runs_by_signature(self.state.runs()).items():
            entry = ledger.of(signature)
            if signature.klass != BUG or entry is None or entry.known is not None:
                continue
            tried = len(self.state.reproductions(entry.id))
            if entry.reproduced[1] >= self.plan.reproduce > 0 and not tried:
                continue  # another campaign has reproduced it
            first = states.smallest(runs)
            for number in range(tried + 1, self.plan.reproduce + 1):
                folder = self.folder / "again" / entry.id / str(number)
                shutil.rmtree(folder, ignore_errors=True)  # left by a killed session
                yield Job(
                    folder=folder, signature=entry.id, number=number, case=first.case,
                    title=f"reproduction {number} of {entry.id} ({signature.finding})",
                    request={"again": str(self.folder / first.folder), "finding": signature.finding,
                             "number": number, "folder": str(folder)})

    def _reason_not_to_begin(self, job: Job, batch: Batch, size_bytes: int) -> str:
        """Why this job cannot begin after the batch's, the campaign's folder being so large; "": it can."""
        if not batch.has_time_for(job.case, draw=not job.signature):
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
        free = shutil.disk_usage(self.folder).free
        return "" if wanted <= free else (
            f"the disk of {self.folder} is full: {size_text(wanted)} are needed, {size_text(free)} are "
            f"free; make room, then: {command_line('campaign', 'resume', self.folder)}")

    # -- playing ----------------------------------------------------------------------------------------

    async def _play_batch(self, jobs: Sequence[Job]) -> None:
        made: list[Job] = []

        async def work(job: Job) -> None:
            if await self._make(job):
                made.append(job)

        await work_through(jobs, work, at_once=self.at_once)
        await self._judge_batch(sorted(made, key=lambda job: bool(job.signature)))

    async def _make(self, job: Job) -> bool:
        """Makes the job's run; returns whether there is something to judge."""
        if not job.signature:
            self.state.begin(job.number, job.request["seed"], job.case, self._inside(job))
        began_s = time.monotonic()
        self.in_flight += 1
        try:
            answer = await self.player.ask(job.request)
        except FloodmarkError as error:
            answer = {"why": str(error)}
        finally:
            self.in_flight -= 1
        why, took_s = answer.get("why"), time.monotonic() - began_s
        early = why or (ended if (ended := answer.get("ended")) not in (None, DONE) else None)
        wanted = ROOM_BYTES if states.NO_SPACE in str(early) else self._bytes_of_a_run
        if early is not None and (full := self._disk_full(wanted)):
            raise FloodmarkError(f"{full} ({job.title} was running: {early})")
        if not job.signature:
            self.state.end_run(job.number, {**answer, "took_s": round(took_s, 2)})
            self.show(f"{job.title}: " + (f"the harness failed: {early}" if early is not None else
                                          f"played in {took_s:.0f} s"))
        elif why is not None:
            self.state.add("reproductions", signature=job.signature, number=job.number, why=why)
        return why is None

    # -- judging ------------------------------------------------------------------------------------------

    async def _judge_batch(self, jobs: Sequence[Job]) -> None:
        """Judges these runs and reproductions, in one call. A judge that died is restarted once."""
        if not jobs:
            return
        self.show(f"judging {number_of(len(jobs), 'run')}")
        began_s = time.monotonic()
        request = {"folders": [str(job.folder) for job in jobs]}
        try:
            answers = (await self.judge.ask(request))["answers"]
        except FloodmarkError:
            answers = (await self.judge.ask(request))["answers"]
        each_s = round((time.monotonic() - began_s) / len(jobs), 3)
        if unsaved := [str(answer["unsaved"]) for answer in answers if answer["unsaved"] is not None]:
            raise FloodmarkError(f"{number_of(len(unsaved), 'verdict')} could not be written: {unsaved[0]}")
        for job, answer in zip(jobs, answers, strict=True):
            self._put_down(job, answer, each_s)
        began_s = time.monotonic()
        self._update_ledger()
        self.look()
        self.after_s.append(time.monotonic() - began_s)

    def _put_down(self, job: Job, answer: Mapping[str, Any], judge_s: float) -> None:
        """Writes what the judge has answered into the state; only then a valid run is shrunk."""
        if not job.signature:
            answer = with_gates(answer, self.plan.gates, job.case)
            self.state.judge(job.number, answer, judge_s)
        else:
            shown = any(Signature(**row).id == job.signature for row in answer["signatures"])
            is_known = shown or not answer["harness"]
            self.state.add("reproductions", signature=job.signature, number=job.number,
                           folder=self._inside(job), shown=shown if is_known else None,
                           why=None if is_known else answer["why"])
        if answer["kind"] == VALID and not self.about["keep"]:
            shrink(job.folder)

    def _update_ledger(self) -> None:
        path = Path(self.about["ledger"])
        with ledgers.locked(path):
            before = ledgers.load(path)
            after = ledgers.with_findings(before, self.state, self.about, self.folder)
            if after != before:
                ledgers.save(path, after)
        for id_ in sorted(after.entries.keys() - before.entries.keys()):
            self.show(f"NEW: {after.entries[id_].signature.sentence}")

    def _clean_up(self) -> None:
        """Removes unfinished runs of a killed session, and shrinks those that it had only judged."""
        half_made = [self.folder / run.folder for run in self.state.runs(f"NOT {MADE}")]
        half_made += [*self.folder.glob("runs/.*"), *self.folder.glob("again/*/.*")]  # not begun yet
        for folder in half_made:
            shutil.rmtree(folder, ignore_errors=True)
        for run in self.state.runs("judged IS NOT NULL"):
            if run.kind == VALID and not self.about["keep"]:
                shrink(self.folder / run.folder)

    # -- measures -----------------------------------------------------------------------------------------

    @property
    def left_s(self) -> float:
        return max(0.0, float(self.about["budget_s"]) - self.state.spent_until_now_s)

    @property
    def _measures(self) -> list[tuple[float, int]]:
        """Of each run: the processors that it kept busy, and its memory."""
        return self.state.select("SELECT cpu_s / max(took_s, 0.1), resident_bytes FROM runs "
                                 "WHERE cpu_s IS NOT NULL AND why IS NULL ORDER BY 1")

    @property
    def at_once(self) -> int:
        """How many runs to make in parallel: the plan's number; else as many as fit the processors and half
        of the memory, by what the runs so far have used. The first run is made alone, to be measured."""
        if self.plan.at_once is not None:
            return self.plan.at_once
        if not (measures := self._measures):
            return 1
        processors, _ = measures[len(measures) // 2]
        resident = max(resident for _, resident in measures)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        cores = len(os.sched_getaffinity(0))
        fitting = int(min(round(cores / max(processors, 0.1)), memory // max(resident, 1)))
        return max(1, min(cores, fitting))

    @property
    def _bytes_of_a_run(self) -> int:
        ((most,),) = self.state.select("SELECT max(json_extract(judged, '$.size_bytes')) FROM runs")
        return ROOM_BYTES if most is None else int(most)

    def _inside(self, job: Job) -> str:
        return str(job.folder.relative_to(self.folder))

    def show(self, message: str) -> None:
        """Prints a line of progress: a message, and how far the campaign is."""
        ((done, unjudged),) = self.state.select(
            f"SELECT count(*), count(*) FILTER (WHERE status = 'recorded') FROM runs WHERE {MADE}")
        spent_s = self.state.spent_s
        rate = 3600 * done / spent_s if spent_s > 1 else 0.0
        status = ", ".join([
            f"{done} done{f' ({unjudged} to be judged)' if unjudged else ''}",
            f"{self.in_flight} in flight", f"{number_of(self.state.bugs, 'bug')} found",
            f"{time_text(self.left_s)} left", *([f"{rate:.0f} runs/h"] if done else [])])
        if self.screen.drawn:
            say(escape_controls(message))
            self.screen.advance(spent_s)
            self.screen.show(status)
        else:
            say(escape_controls(f"[{status}] {message}"))


# -- pure ---------------------------------------------------------------------------------------------------

def with_gates(answer: Mapping[str, Any], limits: Mapping[str, float], case: RunSpec) -> dict[str, Any]:
    """The judge's summary with the gates that the run breaks. A valid run that breaks some is of kind GATE;
    one without the measures for them is unknown. Where the harness failed none is broken."""
    measures, kind = answer.get("measures"), answer["kind"]
    figures = {**(measures or {}), MIN_ACKED: answer["acked"] if case.scenario is None else None}
    broken = [{"gate": gate, "limit": limits[gate], "value": value} for gate in GATES
              if not answer.get("harness") and gate in limits and (value := figures.get(gate)) is not None
              and (value < limits[gate] if gate == MIN_ACKED else value > limits[gate])]
    if kind == VALID and broken:
        kind = GATE
    elif kind == VALID and measures is None and limits.keys() - {MIN_ACKED}:
        kind = UNKNOWN
    return {**answer, "kind": kind, "gates": broken}


def _size(folder: Path) -> int:
    """Bytes of all files in a folder; files removed meanwhile do not count."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total
