"""A run, from its plan to its folder: the phases in order, and run.json, whatever happens on the way.

Rules
1. start, main, mend, settle, final reads, freeze and dump, stop. Mending and stopping happen whatever else
   does.
2. An interrupted run (Ctrl-C: cancellation) still mends, settles and collects; a second one ends it at once.
3. run.json is written when the folder appears and again when the run ends; a killed run lacks what the end
   would have told.
4. Nothing here knows which cluster, workload or fault it deals with.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.history import Recorder
from floodmark.harness.op import Type
from floodmark.harness.phases.collect import collect, observes_of
from floodmark.harness.phases.main_phase import Load, end_all, main_phase
from floodmark.harness.phases.settle import Reach, read_all, reading, settle, what_moved
from floodmark.harness.protocols import (
    USUAL_LOAD,
    BoundsClocks,
    Cluster,
    LoadShape,
    PartitionSpec,
    ScheduleRunner,
    View,
    Workload,
    ability,
)
from floodmark.harness.run import DONE, FORMAT, INTERRUPTED, Run, create
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import Schedule

_PROGRESS_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything a run is made of. The cluster is made but not started; folder is absent or empty."""

    folder: Path
    run_id: str  # the one the workload stamps its records with
    version: str
    commit: str | None  # of floodmark's own checkout; None: it was installed otherwise
    seed: int
    rules: str
    cluster: Cluster
    partitions: tuple[PartitionSpec, ...]
    workload: Workload
    schedule_runner: ScheduleRunner
    schedule: Schedule = ()
    unstruck: str | None = None  # a nemesis was asked for, and why nothing of it will strike
    links: str = "direct"  # as the cluster was asked for them
    reproduces: Mapping[str, Any] | None = None  # the run that this one is to be again: folder, id, run
    asked: Mapping[str, Any] = field(default_factory=dict)  # run.json's words on what is tested
    concurrency: int = 10
    rate: float | None = None  # ops a second; None: as fast as they go
    load: LoadShape = USUAL_LOAD
    drawn: Mapping[str, Any] | None = None  # what of all this was drawn from the seed; None: nothing
    duration_s: float = 30.0
    settle_timeout_s: float = 30.0
    read_timeout_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a run is going, about once a second and at each new phase."""

    phase: str  # start, main, mend, settle, read, collect
    elapsed_s: float
    ok: int
    fail: int
    info: int
    ops_per_s: float  # since the last time
    in_force: tuple[str, ...]
    reading: str = ""  # in phase read: what is being read still, and how far that has come


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    run: Run
    ended: str  # done, interrupted, or what went wrong
    settled: bool
    died: tuple[str, ...]
    about: Mapping[str, Any] = field(repr=False)  # run.json


Tell = Callable[[Progress], None]


def spread(nodes: Sequence[str], topic: str, partitions: int, replication_factor: int
           ) -> tuple[PartitionSpec, ...]:
    """Partitions 0.. of a topic, replicas and preferred leaders going round the nodes."""
    if replication_factor > len(nodes):
        raise UsageError(f"replication factor {replication_factor} needs as many nodes; "
                         f"there are {len(nodes)}")
    return tuple(
        PartitionSpec(key=index, topic=topic, partition=index, replicas=tuple(
            nodes[(index + away) % len(nodes)] for away in range(replication_factor)))
        for index in range(partitions)
    )


def first_free_value(schedule: Schedule) -> int:
    """The lowest value that no scripted send uses, nor any below it."""
    scripted = (send["value"] for entry in schedule for send in entry.args.get("sends", ()))
    return max(scripted, default=-1) + 1


async def carry_out(plan: RunPlan, progress: Tell) -> RunResult:
    """Runs the plan. UsageError, and no folder, where the cluster cannot carry out its schedule;
    FloodmarkError where no run came about; what went wrong later is in `ended`."""
    plan.schedule_runner.refuse(plan.schedule)
    about = _head(plan)
    run = create(plan.folder, about)
    carrying = _Carrying(plan, run, about, progress)
    return await carrying.out()


class _Carrying:
    """One run on its way; about is run.json so far."""

    def __init__(self, plan: RunPlan, run: Run, about: dict[str, Any], tell: Tell) -> None:
        self._plan, self._run, self._about, self._tell = plan, run, about, tell
        self._recorder = Recorder(run.history_path)
        self._phase = "start"
        self._told_at_ns, self._told_ops = 0, 0
        self._reaches: dict[int, Reach] = {}  # of the final reads

    async def out(self) -> RunResult:
        teller = asyncio.create_task(self._keep_telling())
        ended = DONE
        try:
            await self._start()
            ended = await self._main()
            await self._after_main(ended)
        except asyncio.CancelledError:
            ended = INTERRUPTED
            raise
        except Exception as error:
            ended = str(error) or type(error).__name__
            raise
        finally:
            try:
                await self._plan.cluster.stop()
            finally:
                await end_all([teller])
                self._finish(ended)
        return RunResult(run=self._run, ended=self._about["ended"], settled=self._about["settled"],
                         died=tuple(self._about["died"]), about=self._about)

    async def _start(self) -> None:
        self._enter("start")
        cluster = self._plan.cluster
        await cluster.start()
        await cluster.create(self._plan.partitions)
        self._about["config"] = {node: dict(keys) for node, keys in cluster.config.items()}
        self._about["guarantees"] = guarantees(self._plan)
        self._run.rewrite(self._about)
        self._recorder.begin()  # a schedule's times count from here, whatever the start took
        self._told_at_ns = 0

    async def _main(self) -> str:
        """How the main phase ended. Mends in any case."""
        self._enter("main")
        plan = self._plan
        load = Load(workload=plan.workload, schedule_runner=plan.schedule_runner, schedule=plan.schedule,
                    seed=plan.seed,
                    concurrency=plan.concurrency, rate=plan.rate, duration_s=plan.duration_s)
        try:
            self._about["missed"] = list(await main_phase(load, self._recorder, plan.cluster))
            return DONE
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()  # what follows uses time-outs; a second Ctrl-C still ends it
            return INTERRUPTED
        except FloodmarkError as error:
            return str(error)
        finally:
            self._about["missed_words"] = {
                str(position): dict(words) for position, words in plan.schedule_runner.missed_words().items()}
            self._enter("mend")
            self._about["residue"] = await self._mend()

    async def _mend(self) -> str | None:
        """What a fault left behind."""
        try:
            residue = await self._plan.cluster.mend()
            self._plan.schedule_runner.mended()
            return "; ".join(residue) or None
        except FloodmarkError as error:
            return f"mending failed: {error}"

    async def _after_main(self, ended: str) -> None:
        """Settles, reads and collects. Where no broker could be mended nobody is waited for."""
        plan = self._plan
        self._enter("settle")
        mended = await self._look()
        hopeless = mended is not None and not mended.running
        settled = await settle(plan.cluster, plan.workload, self._recorder, plan.partitions,
                               0.0 if hopeless else plan.settle_timeout_s)
        self._about["settle"] = dict(settled.about)
        self._enter("read")
        before = await self._look()
        if not hopeless:
            self._about["final_reads"] = await read_all(
                plan.workload, self._recorder, plan.partitions, plan.read_timeout_s, reaches=self._reaches)
        self._enter("collect")
        self._note_deaths()
        collected = await collect(
            plan.cluster, self._run, plan.partitions, plan.run_id, self._recorder.origin_ns)
        self._about["leaders"] = collected.leaders
        if collected.clock_error_ns is not None:
            self._about["clock_error_ns"] = collected.clock_error_ns
        else:  # as it was asked: nothing of a trace is promised then
            self._about.get("observes", {}).pop("trace", None)
        why = settled.about["why"]
        if settled.settled:
            why = "the cluster could not be observed before it was read"
            if before is not None and collected.frozen is not None:
                why = what_moved(before, collected.frozen, plan.partitions) or collected.moved
            self._about["settle"]["why"] = why
        self._about["settled"] = why is None
        problems = [ended] if ended != DONE else []
        self._about["ended"] = "; ".join([*problems, *plan.cluster.broken(), *collected.problems]) or DONE

    async def _look(self) -> View | None:
        try:
            return await self._plan.cluster.observe()
        except FloodmarkError:
            return None

    def _finish(self, ended: str) -> None:
        """Closes the history and writes run.json for the last time."""
        about = self._about
        about.setdefault("ended", ended)
        about.setdefault("settled", False)
        about.setdefault("settle", {
            "timeout_s": self._plan.settle_timeout_s, "processes": [], "no_leader": [], "no_ack": [],
            "isr_short": [], "why": f"the run ended before it could settle: {ended}"})
        about.setdefault("final_reads", {"processes": [], "partitions": []})
        self._note_deaths()
        if (clocks := ability(self._plan.cluster, BoundsClocks)) is not None:
            about["clock_error_ns"] = clocks.clock_error_ns
        try:
            about["history_lines"] = self._recorder.close()
        except FloodmarkError as error:  # history_lines stays absent: lines are missing
            about["ended"] = str(error)
        self._run.rewrite(about)

    def _note_deaths(self) -> None:
        """Whoever ended by itself once the cluster was up, with its last words: the cluster's bug."""
        words = self._plan.cluster.died_words()
        self._about["died"] = sorted(words)
        self._about["died_words"] = {node: words[node] for node in sorted(words)}

    # -- progress ---------------------------------------------------------------------------------------

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._tell_now()

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            self._tell_now()

    def _tell_now(self) -> None:
        counts = self._recorder.counts
        now_ns, ops = self._recorder.now_ns(), self._recorder.ops
        past_s = (now_ns - self._told_at_ns) / 1e9
        self._tell(Progress(
            phase=self._phase, elapsed_s=now_ns / 1e9, ok=counts[Type.OK], fail=counts[Type.FAIL],
            info=counts[Type.INFO], ops_per_s=(ops - self._told_ops) / past_s if past_s > 0 else 0.0,
            in_force=self._plan.schedule_runner.in_force(),
            reading=reading(self._reaches) if self._phase == "read" else ""))
        self._told_at_ns, self._told_ops = now_ns, ops


def guarantees(plan: RunPlan) -> dict[str, Any]:
    """run.json's `guarantees`: the workload's words and what the nodes are set to, the weakest counting."""
    configs = list(plan.cluster.config.values()) or [{}]
    least_isr = min(int(keys.get("min.insync.replicas", 1)) for keys in configs)
    return {
        "acks": "all", "idempotence": False, "retries": 0, "isolation": "read_uncommitted",
        **plan.workload.guarantees,
        "min_insync_replicas": least_isr,
        "replication_factor": min((len(spec.replicas) for spec in plan.partitions), default=0),
        "unclean_leader_election": any(map(_elects_unclean, configs)),
        "flush": "every" if all(map(_flushes_every, configs)) else "os",
    }


def _elects_unclean(keys: Mapping[str, Any]) -> bool:
    return str(keys.get("unclean.leader.election.enable")).lower() == "true"


def _flushes_every(keys: Mapping[str, Any]) -> bool:
    return str(keys.get("log.flush.interval.messages")) == "1"


def _head(plan: RunPlan) -> dict[str, Any]:
    """run.json as far as it is known before anything has started."""
    linked = {"reproduces": dict(plan.reproduces)} if plan.reproduces is not None else {}
    drawn: dict[str, Any] = {"load": plan.load.to_json()} if plan.load != USUAL_LOAD else {}
    drawn |= {"settings": "drawn", "drawn": dict(plan.drawn)} if plan.drawn is not None else {}
    unstruck = {"unstruck": plan.unstruck} if plan.unstruck is not None else {}
    return {
        "format": FORMAT, "id": plan.run_id, "version": plan.version, "commit": plan.commit,
        "seed": plan.seed, "cluster": plan.cluster.name, "rules": plan.rules, "workload": plan.workload.name,
        "system": dict(plan.cluster.system), "links": plan.links, **linked, **plan.asked, **unstruck,
        **observes_of(plan.cluster),
        "nodes": list(plan.cluster.nodes),
        "partitions": {
            str(spec.key): {"topic": spec.topic, "partition": spec.partition,
                            "replicas": list(spec.replicas), "cleanup": "delete"}
            for spec in plan.partitions
        },
        "config": {node: dict(keys) for node, keys in plan.cluster.config.items()},
        "guarantees": guarantees(plan),
        "schedule": json_form.write(plan.schedule),
        "concurrency": plan.concurrency, "rate": plan.rate, "duration_s": plan.duration_s, **drawn,
        "missed": [], "died": [], "died_words": {}, "residue": None, "clock_error_ns": 0,
    }
