"""Runs the main phase: n processes do the ops that the workload draws while the schedule runner strikes.

Rules
1. A process has at most one open op, and sends no further request after an info; a new process then takes its
   place, numbered place + k * concurrency.
2. The phase lasts until the duration is over and the schedule is done. It then waits for the open ops; an op
   that gets no answer stays open in the history.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from floodmark.harness import protocols
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import end_all, raise_first
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome, Type
from floodmark.harness.protocols import Cluster, Session, Workload, ability
from floodmark.harness.schedule.views import FailpointHit, View
from floodmark.harness.spec import RunPlan
from floodmark.harness.trace import Feed

SCRIPTED = 1_000_000  # scripted sends have processes from here on
_DRAIN_TIMEOUT_S = 10.0
_SCHEDULE_GRACE_S = 60.0  # for carrying out the acts, in addition to the time-outs of their moments
_SCRIPTED_TIMEOUT_S = 10.0
# A scripted send that fails with one of these is sent again: nothing was written, and there will be a leader.
_TEMPORARY = frozenset({
    "CONNECTION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION",
    "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
})


class LoadObserver:
    """See views.RunObserver; all times count from the run's begin. view: what observes the cluster, if it
    does more."""

    def __init__(self, recorder: Recorder, cluster: Cluster,
                 view: Callable[[], Coroutine[Any, Any, View]] | None = None) -> None:
        self._recorder, self._cluster = recorder, cluster
        self._points = ability(cluster, protocols.Failpoints)
        self._explains = ability(cluster, protocols.ExplainsDeaths)
        self._acks_given: AcksGiven | None = None
        self.view = view or cluster.observe
        self.now_ns, self.acks, self.ack_or = recorder.now_ns, recorder.acks, recorder.ack_or

    def acks_given(self, partition: int, leader: str) -> int:
        if self._acks_given is None:
            traces = ability(self._cluster, protocols.Traces)
            raw = None if traces is None else traces.traces()
            if raw is None:
                raise FloodmarkError(f"without a trace it is unknown what {leader} has acked")
            self._acks_given = AcksGiven(Feed(raw, self._recorder.origin_ns, AcksGiven.EVENTS))
        return self._acks_given.count(partition, leader)

    async def met(self, node: str) -> Sequence[FailpointHit]:
        return [] if self._points is None else list(map(self._timed, await self._points.met(node)))

    def crashes(self) -> Sequence[FailpointHit]:
        return [] if self._explains is None else list(map(self._timed, self._explains.crashes()))

    def died(self) -> Sequence[str]:
        return tuple(self._cluster.died())

    def close(self) -> None:
        if self._acks_given is not None:
            self._acks_given.feed.close()

    def _timed(self, met: FailpointHit) -> FailpointHit:
        return replace(met, time_ns=met.time_ns - self._recorder.origin_ns)


class AcksGiven:
    """From the leaders' own trace, since the start: the records that a leader appended and later acked."""

    EVENTS = ("append", "ack")

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._acked: Counter[tuple[int, str]] = Counter()
        self._appended: dict[tuple[int, str], dict[int, int]] = {}  # last offset of a send -> its records

    def count(self, partition: int, leader: str) -> int:
        for line in self.feed.read_new_lines():
            place = (line["partition"], line["node"])
            appended = self._appended.setdefault(place, {})
            if line["event"] == "ack":
                self._acked[place] += appended.pop(line["offset"], 0)  # a retry is acked once more
            elif line["role"] == "leader":
                appended[line["offset"] + line["count"] - 1] = line["count"]
        return self._acked[partition, leader]

class _Pace:
    """Spreads ops evenly in time. If processes are late, the rate is not raised to catch up."""

    def __init__(self, rate: float | None) -> None:
        self._interval_s = 1 / rate if rate else 0.0
        self._next_s = 0.0

    async def wait(self) -> None:
        if self._interval_s:
            now_s = asyncio.get_running_loop().time()
            at_s = max(now_s, self._next_s)
            self._next_s = at_s + self._interval_s
            if at_s > now_s:
                await asyncio.sleep(at_s - now_s)


async def main_phase(plan: RunPlan, recorder: Recorder) -> tuple[int, ...]:
    """Returns the positions of entries whose moment never came. Raises the first error of any task."""
    stop = asyncio.Event()
    pace = _Pace(plan.spec.rate)
    processes = {asyncio.create_task(_place(plan, place, recorder, pace, stop), name=f"place {place}")
                 for place in range(plan.spec.concurrency)}
    observer = LoadObserver(recorder, plan.cluster)
    scripted = ScriptedClients(plan.workload, recorder)
    strikes = asyncio.create_task(plan.schedule_runner.carry_out(plan.schedule, observer, recorder,
                                                                 scripted.send))
    clock = asyncio.create_task(asyncio.sleep(plan.spec.duration))
    bound_s = plan.spec.duration + _SCHEDULE_GRACE_S + sum(
        entry.timeout_s + (entry.moment.planned_ns / 1e9 if entry.moment is not None else 0.0)
        for entry in plan.schedule)
    try:
        await _until_done({strikes, clock}, processes, timeout_s=bound_s)
        stop.set()
        if processes:
            await asyncio.wait(processes, timeout=_DRAIN_TIMEOUT_S)
    finally:
        await end_all({strikes, clock, *processes})
        await scripted.close()
        observer.close()
    raise_first(processes)
    return strikes.result()


async def _place(plan: RunPlan, place: int, recorder: Recorder, pace: _Pace, stop: asyncio.Event) -> None:
    """Run one place among the n: a process from its first op to its last, then the next one."""
    for process in itertools.count(place, plan.spec.concurrency):
        if stop.is_set():
            return
        session = plan.workload.session(process)
        try:
            for intent in plan.workload.intents(process, Random(f"{plan.seed}/{process}")):
                await pace.wait()
                if stop.is_set():
                    return
                outcome = await ask(session, process, intent, recorder)
                if outcome.type is Type.INFO or session.over:
                    break
        finally:
            await session.close()


async def ask(session: Session, process: int, intent: Intent, recorder: Recorder) -> Outcome:
    """Do and record one op. No request is sent before the kernel has the line of the invocation, so a killed
    harness loses no op that a broker may have seen."""
    invoked = recorder.invoke(process, intent)
    await recorder.written()
    outcome = await session.apply(intent)
    recorder.complete(invoked, outcome)
    return outcome


@dataclass(slots=True, kw_only=True)
class _ScriptedProcess:
    process: int
    session: Session
    assigned: tuple[int, ...] = ()


class ScriptedClients:
    """Does each scripted op with a new process, or with one kept for a client that the schedule numbers,
    until that process is over. Temporary failures are retried inside the op."""

    def __init__(self, workload: Workload, recorder: Recorder) -> None:
        self._workload, self._recorder = workload, recorder
        self._processes = itertools.count(SCRIPTED)
        self._by_client: dict[int, _ScriptedProcess] = {}
        self._turns: dict[int, asyncio.Lock] = {}  # a process has at most one op open

    async def send(self, intent: Intent) -> Outcome:
        if intent.client is None:
            one = self._new()
            try:
                return await self._ask(one, intent)
            finally:
                await one.session.close()
        async with self._turns.setdefault(intent.client, asyncio.Lock()):
            one = self._by_client.get(intent.client) or self._new()
            self._by_client[intent.client] = one
            outcome = await self._ask(one, intent)
            if outcome.type is Type.INFO or one.session.over:
                del self._by_client[intent.client]
                await one.session.close()
            return outcome

    async def close(self) -> None:
        for one in self._by_client.values():
            await one.session.close()
        self._by_client.clear()

    def _new(self) -> _ScriptedProcess:
        process = next(self._processes)
        return _ScriptedProcess(process=process, session=self._workload.session(process))

    async def _ask(self, one: _ScriptedProcess, intent: Intent) -> Outcome:
        recorder, session = self._recorder, one.session
        deadline_s = asyncio.get_running_loop().time() + _SCRIPTED_TIMEOUT_S
        if intent.f == "poll":
            await self._assign(one, intent)
        invoked = recorder.invoke(one.process, intent)
        await recorder.written()
        while True:
            outcome = await session.apply(intent)
            temporary = (outcome.type is Type.FAIL and outcome.error in _TEMPORARY
                       and intent.node is None)  # the schedule wants a given node's answer, even a failure
            if not temporary or asyncio.get_running_loop().time() > deadline_s:
                break
        recorder.complete(invoked, outcome)
        return outcome

    async def _assign(self, one: _ScriptedProcess, poll: Intent) -> None:
        """Assign the poll's partitions. A consumer that goes elsewhere than on (`offset`) first gives up all
        that it has: so its history says that their positions are forgotten."""
        seeks = poll.offset is not None and one.assigned != ()
        for partitions in ((), poll.partitions) if seeks else (poll.partitions,):
            if partitions != one.assigned:
                await ask(one.session, one.process, Intent(f="assign", partitions=partitions), self._recorder)
                one.assigned = partitions


async def _until_done(required: Collection[asyncio.Task[Any]], others: Collection[asyncio.Task[None]], *,
                      timeout_s: float) -> None:
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while not all(task.done() for task in required):
        left_s = deadline_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise FloodmarkError(f"the schedule was not carried out within {timeout_s:.0f} s")
        waiting = {task for task in (*required, *others) if not task.done()}
        await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (*required, *others):
            if task.done():
                task.result()

