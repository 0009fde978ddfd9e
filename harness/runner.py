"""Carries out a run plan: goes through the phases in order, and writes run.json whatever happens.

Rules
1. The phases: start, main, mend, settle, final reads, freeze and dump, stop. Mending and stopping always
   happen.
2. An interrupted run (Ctrl-C: cancellation) still mends, settles and collects; a second Ctrl-C ends it at
   once.
3. run.json is written when the folder is made, and again when the run ends. A killed run lacks the keys that
   are written at the end.
4. This module does not depend on any concrete cluster, workload or fault.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from floodmark.harness import protocols
from floodmark.harness.broker_config import broker_keys
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.event_loop import end_all
from floodmark.harness.history import Recorder
from floodmark.harness.op import Type
from floodmark.harness.phases import end_phases
from floodmark.harness.phases.end_phases import Reach, collect, read_all, settle, what_moved
from floodmark.harness.phases.main_phase import main_phase
from floodmark.harness.protocols import USUAL_LOAD, PartitionSpec, ability
from floodmark.harness.run import DONE, FORMAT, INTERRUPTED, Run, create
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Schedule
from floodmark.harness.schedule.views import View
from floodmark.harness.spec import SAVED, RunPlan

_PROGRESS_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Reported about once a second and at each new phase."""

    phase: str  # start, main, mend, settle, read, collect
    elapsed_s: float
    ok: int
    fail: int
    info: int
    ops_per_s: float  # since the last report
    in_force: tuple[str, ...]
    reading: str = ""  # in phase read: the partitions that are still being read, and how far


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    run: Run
    about: Mapping[str, Any] = field(repr=False)  # run.json

    @property
    def ended(self) -> str:
        """done, interrupted, or what failed."""
        return str(self.about["ended"])


OnProgress = Callable[[Progress], None]


def spread(nodes: Sequence[str], topic: str, partitions: int, replication_factor: int
           ) -> tuple[PartitionSpec, ...]:
    """From 0, with replicas and preferred leaders spread over the nodes."""
    if replication_factor > len(nodes):
        raise UsageError(f"replication factor {replication_factor} needs as many nodes; "
                         f"there are {len(nodes)}")
    return tuple(
        PartitionSpec(key=index, topic=topic, partition=index, replicas=tuple(
            nodes[(index + away) % len(nodes)] for away in range(replication_factor)))
        for index in range(partitions))


def first_free_value(schedule: Schedule) -> int:
    """Above all values of scripted sends."""
    scripted = (send["value"] for entry in schedule for send in entry.args.get("sends", ()))
    return max(scripted, default=-1) + 1


async def carry_out(plan: RunPlan, progress: OnProgress) -> RunResult:
    """Carry out the plan. UsageError, and no folder, where the cluster cannot carry out its schedule;
    FloodmarkError where the run could not start; later failures are in `ended`."""
    if (simulates := ability(plan.cluster, protocols.Simulates)) is None:
        return await _carry_out(plan, progress)
    duration_s = plan.spec.duration
    return await simulates.simulate(plan.seed, lambda: _carry_out(plan, progress), duration_s=duration_s,
                                    ops=duration_s * (plan.spec.rate or 0.0))


async def _carry_out(plan: RunPlan, progress: OnProgress) -> RunResult:
    plan.schedule_runner.refuse(plan.schedule)
    about = _initial_about(plan)
    run = create(plan.folder, about)
    ongoing = _OngoingRun(plan, run, about, progress)
    return await ongoing.carry_out()


class _OngoingRun:
    """A run that is being carried out. `about`: run.json so far."""

    def __init__(self, plan: RunPlan, run: Run, about: dict[str, Any], on_progress: OnProgress) -> None:
        self._plan, self._run, self._about, self._on_progress = plan, run, about, on_progress
        self._recorder = Recorder(run.history_path)
        self._phase = "start"
        self._reported_at_ns, self._reported_ops = 0, 0
        self._reaches: dict[int, Reach] = {}  # of the final reads

    async def carry_out(self) -> RunResult:
        async def report_regularly() -> None:
            while True:
                await asyncio.sleep(_PROGRESS_EVERY_S)
                self._report_now()

        reporter = asyncio.create_task(report_regularly())
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
                await end_all([reporter])
                self._finish(ended)
        return RunResult(run=self._run, about=self._about)

    async def _start(self) -> None:
        self._enter("start")
        cluster = self._plan.cluster
        await cluster.start()
        await cluster.create(self._plan.partitions)
        self._about["config"] = {node: dict(keys) for node, keys in cluster.config.items()}
        self._about["guarantees"] = guarantees(self._plan)
        if (keeper := ability(cluster, protocols.KeepsRecords)) is not None and keeper.keeps_all:
            for partition in self._about["partitions"].values():
                partition["keeps_all"] = True
        self._run.rewrite(self._about)
        self._recorder.begin()  # a schedule's times count from here, whatever the start took
        self._reported_at_ns = 0

    async def _main(self) -> str:
        """Run the main phase, then mend in any case; returns how the phase ended."""
        self._enter("main")
        plan = self._plan
        try:
            self._about["missed"] = list(await main_phase(plan, self._recorder))
            return DONE
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()  # the next phases have time-outs; a second Ctrl-C still ends the run
            return INTERRUPTED
        except FloodmarkError as error:
            return str(error)
        finally:
            self._about["missed_words"] = {
                str(position): dict(reasons)
                for position, reasons in plan.schedule_runner.missed_words().items()}
            self._enter("mend")
            began_ns = self._recorder.now_ns()
            self._about["residue"] = await self._mend()
            if self._about["residue"] is None:
                self._about["mended"] = [began_ns, self._recorder.now_ns()]

    async def _mend(self) -> str | None:
        """Mend the cluster; returns what a fault left behind, None: nothing."""
        try:
            residue = await self._plan.cluster.mend()
            self._plan.schedule_runner.mended()
            return "; ".join(residue) or None
        except FloodmarkError as error:
            return f"mending failed: {error}"

    async def _after_main(self, ended: str) -> None:
        """Settle, read and collect. If no broker runs after mending, do not wait for any."""
        plan = self._plan
        self._enter("settle")
        mended = await self._observe_or_none()
        no_brokers = mended is not None and not mended.running
        self._about["settle"] = await settle(plan.cluster, plan.workload, self._recorder, plan.partitions,
                                             0.0 if no_brokers else plan.settle_timeout_s)
        self._enter("read")
        before = await self._observe_or_none()
        if not no_brokers:
            self._about["final_reads"] = await read_all(
                plan.workload, self._recorder, plan.partitions, plan.read_timeout_s, reaches=self._reaches)
        self._enter("collect")
        self._note_deaths()
        collected = await collect(
            plan.cluster, self._run, plan.partitions, plan.run_id, self._recorder.origin_ns)
        self._about["leaders"] = collected.leaders
        if collected.clock_error_ns is not None:
            self._about["clock_error_ns"] = collected.clock_error_ns
        else:  # tracing is off, or the cluster has none
            self._about["observes"] = {**self._about.get("observes", {}), "trace": []}
        if collected.resent:  # its producers were not idempotent after all
            retries = max(1, self._about["guarantees"]["retries"])
            self._about["guarantees"] |= {"idempotence": False, "retries": retries}
            self._about["resent"] = list(collected.resent)
        if (why := self._about["settle"]["why"]) is None:
            why = "the cluster could not be observed before it was read"
            if before is not None and collected.frozen is not None:
                why = what_moved(before, collected.frozen, plan.partitions) or collected.moved
            self._about["settle"]["why"] = why
        self._about["settled"] = why is None
        problems = [ended] if ended != DONE else []
        self._about["ended"] = "; ".join([*problems, *plan.cluster.broken(), *collected.problems]) or DONE

    async def _observe_or_none(self) -> View | None:
        try:
            return await self._plan.cluster.observe()
        except FloodmarkError:
            return None

    def _finish(self, ended: str) -> None:
        about = self._about
        about.setdefault("ended", ended)
        about.setdefault("settled", False)
        about.setdefault("settle", {
            "timeout_s": self._plan.settle_timeout_s, "processes": [], "no_leader": [], "no_ack": [],
            "isr_short": [], "why": f"the run ended before it could settle: {ended}"})
        about.setdefault("final_reads", {"processes": [], "partitions": []})
        self._note_deaths()
        if (clocks := ability(self._plan.cluster, protocols.BoundsClocks)) is not None:
            about["clock_error_ns"] = clocks.clock_error_ns
        try:
            about["history_lines"] = self._recorder.close()
        except FloodmarkError as error:  # history_lines stays absent, because lines are missing
            about["ended"] = str(error)
        self._run.rewrite(about)

    def _note_deaths(self) -> None:
        """With their last words: a bug of the cluster."""
        last_words = self._plan.cluster.died_words()
        self._about["died"] = sorted(last_words)
        self._about["died_words"] = {node: last_words[node] for node in sorted(last_words)}
        self._about["died_at"] = {node: [time_ns - self._recorder.origin_ns for time_ns in times]
                                  for node, times in sorted(self._plan.cluster.died_at().items())}

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._report_now()

    def _report_now(self) -> None:
        counts = self._recorder.counts
        now_ns, ops = self._recorder.now_ns(), self._recorder.ops
        interval_s = (now_ns - self._reported_at_ns) / 1e9
        self._on_progress(Progress(
            phase=self._phase, elapsed_s=now_ns / 1e9, ok=counts[Type.OK], fail=counts[Type.FAIL],
            info=counts[Type.INFO],
            ops_per_s=(ops - self._reported_ops) / interval_s if interval_s > 0 else 0.0,
            in_force=self._plan.schedule_runner.in_force(),
            reading=end_phases.reading_text(self._reaches) if self._phase == "read" else ""))
        self._reported_at_ns, self._reported_ops = now_ns, ops


def guarantees(plan: RunPlan) -> dict[str, Any]:
    """run.json's `guarantees`: the workload's, and the weakest settings of all nodes and topics."""
    own = plan.cluster.system.get("topics", {})
    topics = [own.get(topic, {}) for topic in sorted({spec.topic for spec in plan.partitions})] or [{}]
    nodes = list(plan.cluster.config.values()) or [{}]
    configs = [{**keys, **broker_keys(topic)} for keys in nodes for topic in topics]
    least_isr = min(int(keys.get("min.insync.replicas", 1)) for keys in configs)
    return {
        "acks": "all", "idempotence": False, "retries": 0, "isolation": "read_uncommitted",
        **plan.workload.guarantees,
        "min_insync_replicas": least_isr,
        "replication_factor": min((len(spec.replicas) for spec in plan.partitions), default=0),
        "unclean_leader_election": any(
            str(keys.get("unclean.leader.election.enable")).lower() == "true" for keys in configs),
        "flush": "every" if all(
            str(keys.get("log.flush.interval.messages")) == "1" for keys in configs) else "os"}


def _initial_about(plan: RunPlan) -> dict[str, Any]:
    spec = plan.spec
    reproduces = {"reproduces": spec.reproduces} if spec.reproduces is not None else {}
    drawn: dict[str, Any] = {"load": asdict(spec.load)} if spec.load != USUAL_LOAD else {}
    drawn |= {"settings": "drawn", "drawn": spec.drawn} if spec.drawn is not None else {}
    traced = {} if spec.trace else {"traced": False}
    unstruck = {"unstruck": plan.no_faults_reason} if plan.no_faults_reason is not None else {}
    return {
        "format": FORMAT, "id": plan.run_id, "version": plan.version, "commit": plan.commit,
        "seed": plan.seed, "cluster": plan.cluster.name, "rules": spec.rules, "workload": plan.workload.name,
        "system": dict(plan.cluster.system), "links": spec.links, **reproduces, **(spec.asked or {}),
        **unstruck, **traced, **end_phases.observes_of(plan.cluster), "nodes": list(plan.cluster.nodes),
        "partitions": {str(spec.key): {"topic": spec.topic, "partition": spec.partition,
                                       "replicas": list(spec.replicas), "cleanup": "delete"}
                       for spec in plan.partitions},
        "config": {node: dict(keys) for node, keys in plan.cluster.config.items()},
        "guarantees": guarantees(plan), "schedule": json_form.write(plan.schedule),
        **{key: getattr(spec, name) for name, key in SAVED.items()}, **drawn,
        "missed": [], "died": [], "died_words": {}, "died_at": {}, "residue": None, "clock_error_ns": 0}
