"""A schedule runner for tests: with a small cluster in memory, the real recorder, and schedules to carry
out."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.history import Recorder, read
from floodmark.harness.op import NEMESIS, Intent, Op, Outcome, Type
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.entry import Entry, Schedule
from floodmark.harness.schedule.failpoints import POINTS
from floodmark.harness.schedule.views import Met, PartitionView, ReplicaView, View
from floodmark.nemesis.schedule_runner import ScheduleRunner
from floodmark.nemesis.strikes import Strikes

NODES = ("n1", "n2", "n3")
SPECS = (PartitionSpec(key=0, topic="log", partition=0, replicas=NODES),)


class Small:
    """One partition on three brokers; it records every fault that it gets."""

    name = "small"
    nodes = NODES
    abilities: Sequence[object] = ()

    def __init__(self) -> None:
        self.lacks: Mapping[type, str] = {}
        self.did: list[str] = []
        self.running = set(NODES)
        self.leader: str | None = "n1"
        self.looks = 0
        self.refuses: str | None = None
        self.leads_at_look: dict[int, str] = {}
        self.mets: list[Met] = []
        self.ended: list[Met] = []
        self.dead: list[str] = []  # brokers that ended by themselves
        self.on: dict[str, Callable[[], None]] = {}  # further effects of an act, by its words

    async def _do(self, what: str, node: str) -> None:
        await asyncio.sleep(0)
        if self.refuses == node:
            raise FloodmarkError(f"{node} does not obey")
        self.did.append(f"{what} {node}")
        self.on.pop(f"{what} {node}", lambda: None)()

    def _fault(what: str, runs: bool | None = None) -> Callable[["Small", str], Awaitable[None]]:
        """A fault of one node; runs: whether it runs afterwards."""
        async def act(self: "Small", node: str) -> None:
            await self._do(what, node)
            if runs is not None:
                (self.running.add if runs else self.running.discard)(node)

        return act

    kill, stop_node, start_node = _fault("kill", False), _fault("stop", False), _fault("start", True)
    pause, resume, expire = _fault("pause"), _fault("resume"), _fault("expire")

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        self.did.append(f"cut {dict(grudge)} {reset}")

    async def heal(self) -> None:
        self.did.append("heal")

    async def power_cut(self, node: str, *, keep: Mapping[int, int] | None = None) -> Mapping[str, Any]:
        await self._do(f"power_cut keep={keep}", node)
        self.running.discard(node)
        return {"keep": {0: 5}, "lost_records": 5}

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        self.did.append(f"elect {list(partitions)} {unclean}")
        return {"elected": [0], "refused": {}}

    async def elect_replica(self, partitions: Sequence[int], leader: str, *, unclean: bool = False
                            ) -> Mapping[str, Any]:
        self.did.append(f"elect {list(partitions)} {unclean} {leader}")
        return {"elected": [0], "refused": {}}

    async def wipe(self, node: str) -> Mapping[str, Any]:
        await self._do("wipe", node)
        self.running.discard(node)
        return {"lost_records": 12}

    @property
    def points(self) -> frozenset[str]:
        return frozenset(POINTS)

    async def arm(self, node: str, point: Mapping[str, Any]) -> None:
        await self._do(f"arm {point['name']} {point['action']}", node)

    async def release(self, node: str, point: Mapping[str, Any] | None) -> int:
        await self._do(f"release {dict(point or {})}", node)
        return 1

    async def met(self, node: str) -> Sequence[Met]:
        return [one for one in self.mets if one.node == node]

    def crashes(self) -> Sequence[Met]:
        return tuple(self.ended)

    def crash(self, node: str, time_ns: int) -> None:
        """The node reaches a failpoint that ends it."""
        met = Met(node=node, name="F.truncated", action="crash", time_ns=time_ns, partition=0, epoch=2)
        self.mets.append(met)
        self.ended.append(met)
        self.running.discard(node)

    async def observe(self) -> View:
        self.looks += 1
        self.leader = self.leads_at_look.get(self.looks, self.leader)
        running = frozenset(self.running)
        return View(
            time_ns=0, running=running, unfenced=running,
            replicas={(node, 0): ReplicaView(
                node=node, partition=0, leader=self.leader, epoch=0, log_start=2, leo=12, hw=12, isr=NODES,
                checkpointed_hw=0, epochs=None, clean=True) for node in sorted(running)},
            partitions={0: PartitionView(
                partition=0, leader=self.leader, epoch=0, isr=NODES, partition_epoch=0)})


class RecorderSight:
    """views.Sight on the recorder and the small cluster."""

    def __init__(self, recorder: Recorder, small: Small) -> None:
        self.now_ns, self.acks, self.ack_or = recorder.now_ns, recorder.acks, recorder.ack_or
        self.view, self.met, self.crashes = small.observe, small.met, small.crashes
        self.died = lambda: tuple(small.dead)

    def acks_given(self, partition: int, leader: str) -> int:
        return self.acks(partition) if leader == "n1" else 0


class Stand:
    """Runs a schedule, and shows the history."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "history.jsonl"
        self.small = Small()
        self.intents: list[Intent] = []
        self.answers: Callable[[Intent], Awaitable[None]] | None = None  # awaited before each answer
        self.schedule_runner = ScheduleRunner([Strikes(self.small)], SPECS)

    def run(self, *schedule: Entry) -> tuple[int, ...]:
        return asyncio.run(self._run(schedule))

    async def _run(self, schedule: Schedule) -> tuple[int, ...]:
        recorder = self.recorder = Recorder(self.path)

        async def send(intent: Intent) -> Outcome:
            self.intents.append(intent)
            invoked = recorder.invoke(len(self.intents), intent)
            if self.answers is not None:
                await self.answers(intent)
            sends = tuple(replace(one, offset=one.value) for one in intent.sends)
            outcome = Outcome(type=Type.OK, sends=sends)
            recorder.complete(invoked, outcome)
            return outcome

        try:
            sight = RecorderSight(recorder, self.small)
            return await asyncio.wait_for(
                self.schedule_runner.carry_out(schedule, sight, recorder, send), 120)
        finally:
            recorder.close()

    def ops(self) -> list[Op]:
        return list(read(self.path))

    def faults(self) -> list[tuple[str, Mapping[str, Any]]]:
        return [(op.f, op.fault or {}) for op in self.ops() if op.process == NEMESIS]


def sent(value: int) -> Entry:
    return Entry(f="send", args={"sends": [{"partition": 0, "value": value}]})
