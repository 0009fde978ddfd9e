"""Waits after mending until the cluster is healthy, proves it with a probe, and reads every partition once
more.

Rules
1. settled means, within timeout_s of the controller's first answer: every partition led, its ISR full, a
   probe write acked, and then LEO and HW equal on every replica. A time-out is recorded with what was
   missing, and the run goes on.
2. Probes and final reads are ops like any other, by processes of their own; a process ends at its first info.
3. Only a partition that a final read took up to its end offset counts as read. A read that comes no further
   for STALL_S is given up, and run.json says how far it came.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome, Type
from floodmark.harness.phases.main_phase import ask, end_all, raise_first
from floodmark.harness.protocols import (
    UNKNOWN,
    Cluster,
    PartitionSpec,
    ReplicaView,
    Session,
    View,
    Workload,
)

PROBES = 2_000_000  # processes that probe are numbered from here on
READERS = 3_000_000
STALL_S = 20.0  # longer than any single op of a client may take
_LOOK_EVERY_S = 0.1
_WATCH_EVERY_S = 0.5
_BETWEEN_PROCESSES_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What settling came to; `about` is run.json's `settle`."""

    settled: bool
    about: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What the looks at the cluster have shown so far."""

    looked: bool = False  # the controller has answered at least once
    led: set[int] = field(default_factory=set)  # partitions that had a leader at any look
    full: set[int] = field(default_factory=set)  # with a full ISR at the last look
    unmet: list[str] = field(default_factory=list)  # what kept the cluster from being healthy then


@dataclass(slots=True, kw_only=True)
class Reach:
    """How far the final read of a partition has come, over all processes that tried."""

    end: int | None = None  # the offset to reach; None: nobody has said yet
    reached: int = 0
    moved_s: float = 0.0  # when it last came further
    done: bool = False

    def come(self, end: int | None, reached: int) -> None:
        if reached > self.reached or (self.end is None and end is not None):
            self.moved_s = asyncio.get_running_loop().time()
        self.end = end if self.end is None else self.end
        self.reached = max(reached, self.reached)

    def words(self) -> str:
        return "nobody tells its end offset" if self.end is None else f"at {self.reached} of {self.end}"


@dataclass(slots=True, kw_only=True)
class _Asking:
    """Processes that probe or read, and the partitions that are done."""

    workload: Workload
    recorder: Recorder
    next_process: int
    processes: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    def session(self) -> tuple[int, Session]:
        process = self.next_process
        self.next_process += 1
        self.processes.append(process)
        return process, self.workload.final_session(process)


async def settle(cluster: Cluster, workload: Workload, recorder: Recorder, specs: Sequence[PartitionSpec],
                 timeout_s: float) -> Settled:
    """Waits, at most timeout_s, until the cluster is healthy."""
    asking = _Asking(workload=workload, recorder=recorder, next_process=PROBES)
    probes = {asyncio.create_task(_probe(asking, spec.key)) for spec in specs}
    try:
        seen = await _until_whole(cluster, specs, probes, timeout_s)
    finally:
        await end_all(probes)
    raise_first(probes)
    no_ack = [spec.key for spec in specs if spec.key not in asking.done]
    unmet = [f"no probe write of partition {key} was acked" for key in no_ack] + seen.unmet
    return Settled(settled=not unmet, about={
        "timeout_s": timeout_s, "processes": asking.processes,
        "no_leader": [spec.key for spec in specs if seen.looked and spec.key not in seen.led],
        "no_ack": no_ack,
        "isr_short": [spec.key for spec in specs if spec.key not in seen.full],
        "why": "; ".join(unmet) or None,
    })


async def read_all(workload: Workload, recorder: Recorder, specs: Sequence[PartitionSpec],
                   timeout_s: float, *, stall_s: float = STALL_S,
                   reaches: dict[int, Reach] | None = None) -> Mapping[str, Any]:
    """Reads every partition from its start to its end; run.json's `final_reads`, with how far those came that
    did not reach it. `reaches` is filled while it goes on, for whoever shows that."""
    asking = _Asking(workload=workload, recorder=recorder, next_process=READERS)
    reaches = {} if reaches is None else reaches
    loop = asyncio.get_running_loop()
    reaches.update({spec.key: Reach(moved_s=loop.time()) for spec in specs})
    readers = {asyncio.create_task(_read(asking, key, reach)): reach for key, reach in reaches.items()}
    deadline_s = loop.time() + timeout_s
    waiting = set(readers)
    try:
        while waiting:
            await asyncio.wait(waiting, timeout=min(_WATCH_EVERY_S, stall_s))
            now_s = loop.time()
            waiting = {task for task in waiting if not task.done()
                       and now_s < min(deadline_s, readers[task].moved_s + stall_s)}
    finally:
        await end_all(readers)
    raise_first(readers)
    lacking = {str(key): f"{reach.words()}, and no further in {stall_s:g} s" if loop.time() < deadline_s
               else f"{reach.words()} after {timeout_s:g} s"
               for key, reach in sorted(reaches.items()) if not reach.done}
    return {"processes": asking.processes, "partitions": sorted(asking.done),
            **({"lacking": lacking} if lacking else {})}


def reading(reaches: Mapping[int, Reach]) -> str:
    """The partitions that are still being read, in words."""
    return ", ".join(f"partition {key} {reach.words()}" for key, reach in sorted(reaches.items())
                     if not reach.done)


def what_moved(before: View, after: View, specs: Sequence[PartitionSpec]) -> str | None:
    """What moved between two looks: an epoch, ISR, LEO or HW; None if nothing did."""
    for spec in specs:
        was, now = before.partitions.get(spec.key), after.partitions.get(spec.key)
        if was is None or now is None:
            return f"the controller did not say who leads partition {spec.key}"
        if (was.leader, was.epoch, set(was.isr)) != (now.leader, now.epoch, set(now.isr)):
            return f"leader, epoch or ISR of partition {spec.key} moved while it was read"
        for node in spec.replicas:
            old, new = before.replicas.get((node, spec.key)), after.replicas.get((node, spec.key))
            if old is None or new is None:
                return f"{node} did not say how partition {spec.key} stands"
            if _standing(old) != _standing(new):
                return f"partition {spec.key} moved on {node} while it was read"
    return None


def _standing(own: ReplicaView) -> tuple[object, ...]:
    return own.epoch, own.isr if own.isr is UNKNOWN else frozenset(own.isr), own.leo, own.hw


def uneven_replicas(look: View, specs: Sequence[PartitionSpec]) -> list[str]:
    """What keeps the cluster from being healthy, in words; nothing if it is."""
    unmet = []
    for spec in specs:
        truth = look.partitions.get(spec.key)
        leader = _leader(look, spec.key)
        if truth is None or leader is None:
            unmet.append(f"partition {spec.key} has no leader")
            continue
        away = sorted(set(spec.replicas) - set(truth.isr))
        if away:
            unmet.append(f"{', '.join(away)} never came back to the ISR of partition {spec.key}")
            continue
        led = look.replicas.get((leader, spec.key))
        for node in spec.replicas:
            replica = look.replicas.get((node, spec.key))
            if led is None or replica is None:
                unmet.append(f"{leader if led is None else node} did not say how partition {spec.key} stands")
            elif replica.leader not in (leader, UNKNOWN) or replica.epoch not in (truth.epoch, UNKNOWN):
                unmet.append(f"{node} has not learnt who leads partition {spec.key}")
            elif UNKNOWN in (replica.leo, led.leo, led.hw):
                unmet.append(f"nobody can see LEO and HW of partition {spec.key} on {node}")
            elif not replica.leo == led.leo == led.hw or replica.hw not in (led.hw, UNKNOWN):
                unmet.append(f"{node} has LEO {replica.leo} and HW {replica.hw} of partition {spec.key}, "
                            f"the leader {leader} {led.leo} and {led.hw}")
    return unmet


async def _until_whole(cluster: Cluster, specs: Sequence[PartitionSpec],
                       probes: Collection[asyncio.Task[None]], timeout_s: float) -> _Seen:
    """Looks until the cluster is healthy after the last probe was acked, or the time is over. Without the
    controller nobody can be elected or come back into an ISR: the time counts from its first answer, for
    which it has as long."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    seen = _Seen()
    while True:
        probed = all(probe.done() for probe in probes)
        raise_first([probe for probe in probes if probe.done()])  # such as a full disk: no use to wait
        try:
            look = await cluster.observe()
            if look.partitions and not seen.looked:
                seen.looked, deadline_s = True, loop.time() + timeout_s
            seen.led |= {spec.key for spec in specs if _leader(look, spec.key)}
            seen.full = {spec.key for spec in specs if _isr_full(look, spec)}
            seen.unmet = uneven_replicas(look, specs)
        except FloodmarkError as error:
            seen.unmet = [f"the cluster could not be observed: {error}"]
        if (probed and not seen.unmet) or loop.time() >= deadline_s:
            return seen
        await asyncio.sleep(_LOOK_EVERY_S)


async def _probe(asking: _Asking, key: int) -> None:
    """Sends to the partition until one send is acked."""
    while True:
        process, session = asking.session()
        try:
            while True:
                outcome = await ask(session, process, asking.workload.probe(key), asking.recorder)
                if outcome.type is Type.OK:
                    asking.done.add(key)
                    return
                if outcome.type is Type.INFO or session.over:
                    break
        finally:
            await session.close()
        await asyncio.sleep(_BETWEEN_PROCESSES_S)


async def _read(asking: _Asking, key: int, reach: Reach) -> None:
    """Reads the partition to its end, by as many processes as it takes."""
    while True:
        process, session = asking.session()
        try:
            if await _read_through(asking, process, session, key, reach):
                asking.done.add(key)
                reach.done = True
                return
        finally:
            await session.close()
        await asyncio.sleep(_BETWEEN_PROCESSES_S)


async def _read_through(asking: _Asking, process: int, session: Session, key: int, reach: Reach) -> bool:
    """One process reads from the start; False when it ended before the end offset."""
    end, reached = None, 0
    intent = Intent(f="assign", partitions=(key,))
    while True:
        outcome = await ask(session, process, intent, asking.recorder)
        if outcome.type is Type.INFO or session.over:
            return False
        end = _end(outcome, key) if end is None else end
        reached = max([reached, *(read.offset + 1 for read in outcome.reads)])
        reach.come(end, reached)
        if outcome.type is Type.FAIL:  # such as a partition without a leader: it is asked again in a moment
            await asyncio.sleep(_BETWEEN_PROCESSES_S)
        if end is None:
            intent = Intent(f="list_offsets", partitions=(key,))
        elif reached >= end:
            return True
        else:
            intent = Intent(f="poll")


def _end(outcome: Outcome, key: int) -> int | None:
    return next((offset for partition, offset in outcome.offsets if partition == key), None)


def _leader(look: View, key: int) -> str | None:
    truth = look.partitions.get(key)
    return truth.leader if truth else None


def _isr_full(look: View, spec: PartitionSpec) -> bool:
    truth = look.partitions.get(spec.key)
    return truth is not None and set(truth.isr) == set(spec.replicas)
