"""Records what a live Apache Kafka answers to a produce in each situation, and what becomes of the records.

One cluster of four brokers plays all situations one after the other, each on a topic of its own, [n1, n2, n3]
with one record before it. n4 has no replica: it is the stranger of "to a stranger"; with ZooKeeper it is also
Kafka's controller. After each situation the cluster is mended (all awake and in sync, n1 leads) and the topic
is read to its end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from floodmark.harness import catalog
from floodmark.harness.client.client import Client, wire_clients
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.op import Intent, Outcome, Send, Type
from floodmark.harness.protocols import (
    Addressed,
    Cluster,
    Elects,
    ElectsReplica,
    Expires,
    Kills,
    PartitionSpec,
    Pauses,
    WorkloadSettings,
    ability,
)
from floodmark.harness.schedule.views import View
from floodmark.workloads import idempotent

RUN_ID = "0123456789abcdef"
REPLICAS = ("n1", "n2", "n3")
LONG_S = 180.0
SESSION_MS = 10_000  # in KRaft mode: a broker that is stopped longer is fenced
PARKED_MS = 60_000  # a produce that waits for its followers
# longer than replica.fetch.wait.max.ms: the fetch of a broker asleep has then ended at the leader
FETCHES_END_S = 1.0
FIRST, VALUE = 0, 1
OF_TOPIC: Mapping[str, Mapping[str, str]] = {
    "below min on arrival": {"min.insync.replicas": "3"},
    "below min after the append": {"min.insync.replicas": "3"},
    "too large": {"max.message.bytes": "300"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome, and every value that a reader finds in the topic afterwards."""

    outcome: Outcome
    values: tuple[int, ...]


class Stage:
    """The cluster and its clients."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.keys = {name: key for key, name in enumerate(topics)}
        self.specs = tuple(PartitionSpec(key=key, topic=topics[name], partition=0, replicas=REPLICAS)
                           for name, key in self.keys.items())
        self.unknown = len(self.specs)  # the key of a topic that does not exist
        self.expires = ability(cluster, Expires)
        self.kills: Kills = _able(cluster, Kills)
        self.pauses: Pauses = _able(cluster, Pauses)
        self.elects: Elects = _able(cluster, Elects)
        self._elects_replica: ElectsReplica = _able(cluster, ElectsReplica)
        self.addresses: Callable[[], Mapping[str, tuple[str, int]]] = _able(cluster, Addressed).addresses
        self.asleep: set[str] = set()
        self.dead: set[str] = set()

    def client(self, produce_timeout_ms: int = PARKED_MS) -> Client:
        places = {spec.key: (spec.topic, 0) for spec in self.specs}
        settings = ClientSettings(
            run_id=RUN_ID, keys={**places, self.unknown: ("nowhere", 0)}, connect_timeout_s=20.0,
            metadata_timeout_s=20.0, request_timeout_s=2 * PARKED_MS / 1000,
            produce_timeout_ms=produce_timeout_ms)
        return wire_clients(self.addresses)(settings, Random(1))

    async def send(self, key: int, *, to: str = "n1", values: int = 1, timeout_ms: int = PARKED_MS
                   ) -> Outcome:
        client = self.client(timeout_ms)
        try:
            sends = tuple(Send(partition=key, value=VALUE + index) for index in range(values))
            return await client.send(sends, node=to)
        finally:
            await client.close()

    async def parked(self, key: int, *, timeout_ms: int = PARKED_MS) -> asyncio.Task[Outcome]:
        """Starts a send to n1, and waits until n1 has appended it."""
        task = asyncio.create_task(self.send(key, timeout_ms=timeout_ms))
        await self.until(lambda view: view.replicas["n1", key].leo == VALUE + 1, "n1 to append it")
        return task

    async def until(self, holds: Callable[[View], bool], what: str) -> None:
        async def unmet() -> str | None:
            """No election before all replicas are alike: n1 might lead again with records that it was to
            cut."""
            view = await self.cluster.observe()
            try:
                return None if holds(view) else f"{view.partitions} {sorted(view.unfenced)}"
            except KeyError as error:
                return f"nothing is seen of {error}"

        await wait_until(unmet, what, LONG_S)

    # -- faults -------------------------------------------------------------------------------------------

    async def put_to_sleep(self, *nodes: str) -> None:
        """Stops these brokers so that nothing the leader appends can reach them, not even in their
        sockets."""
        for node in nodes:
            await self.pauses.pause(node)
            self.asleep.add(node)
        await asyncio.sleep(FETCHES_END_S)

    async def wake(self, *nodes: str) -> None:
        for node in nodes:
            await self.pauses.resume(node)
            self.asleep.discard(node)

    async def kill(self, node: str) -> None:
        await self.kills.kill(node)
        self.dead.add(node)

    async def end_session(self, node: str) -> None:
        """Ends the session by hand, or by waiting for it."""
        if self.expires is not None:
            await self.expires.expire(node)
        else:
            await self.until(lambda view: all(node not in part.isr for part in view.partitions.values()),
                             f"{node}'s session to end")

    async def lead(self, key: int, leader: str) -> None:
        answer = await self._elects_replica.elect_replica([key], leader)
        assert answer["elected"] == [key], answer
        await self.until(lambda view: view.replicas["n1", key].leader == leader, "n1 to know who leads")

    async def mend(self) -> None:
        await self.wake(*sorted(self.asleep))
        for node in sorted(self.dead):
            await self.kills.start_node(node)
            self.dead.discard(node)

        async def unmet() -> str | None:
            """Nobody is elected before all are alike: n1 might lead again with what it was to cut."""
            view = await self.cluster.observe()
            if any(set(part.isr) != set(REPLICAS) for part in view.partitions.values()):
                return f"{view.partitions}"
            if len(view.replicas) < len(REPLICAS) * len(self.keys):
                return f"seen are {sorted(view.replicas)}"
            for key, part in view.partitions.items():
                ends = {(one.leo, one.hw, one.leader) for one in (
                    view.replicas[node, key] for node in REPLICAS)}
                if ends != {(view.replicas["n1", key].leo, view.replicas["n1", key].leo, part.leader)}:
                    return f"replicas of partition {key} have {ends}"
            if any(part.leader != "n1" for part in view.partitions.values()):
                await self.elects.elect([])
                return "n1 does not lead"
            return None

        await wait_until(unmet, "all to be in sync behind n1", LONG_S)

    # -- the records ----------------------------------------------------------------------------------------

    async def values(self, key: int) -> tuple[int, ...]:
        """Reads all values. Brokers may still be learning of the last election: a fail is tried again."""
        client = self.client()
        found: list[int] = []

        async def unmet() -> str | None:
            listed = await client.list_offsets([key])
            if listed.type is not Type.OK:
                return str(listed.error)
            polled = await client.poll()
            found.extend(read.value for read in polled.reads)
            return None if len(found) >= listed.offsets[0].offset else f"{found}, {polled.error}"

        try:
            client.assign([key])
            await wait_until(unmet, "all records to be read", LONG_S)
        finally:
            await client.close()
        return tuple(found)

    async def first_records(self) -> None:
        """Sends one record to each topic; brokers may still be learning who leads."""
        for key in self.keys.values():
            async def unmet(key: int = key) -> str | None:
                client = self.client()
                try:
                    outcome = await client.send((Send(partition=key, value=FIRST),), node="n1")
                finally:
                    await client.close()
                assert outcome.type is not Type.INFO, outcome
                return None if outcome.type is Type.OK else str(outcome.error)

            await wait_until(unmet, "the first record to be acked", LONG_S)


def _able(cluster: Cluster, kind: type) -> Any:
    found = ability(cluster, kind)
    assert found is not None, kind
    return found


# -- the situations -----------------------------------------------------------------------------------------

async def deposed_before_anybody_had_it(stage: Stage, key: int) -> Outcome:
    await stage.put_to_sleep("n2", "n3")
    task = await stage.parked(key)
    await stage.lead(key, "n2")
    return await task


async def deposed_by_one_that_has_it(stage: Stage, key: int) -> Outcome:
    await stage.put_to_sleep("n2")
    task = await stage.parked(key)
    await stage.until(lambda view: view.replicas["n3", key].leo == VALUE + 1, "n3 to have it")
    await stage.lead(key, "n3")
    return await task


async def session_ended(stage: Stage, key: int) -> Outcome:
    """Ended by hand it is the session of a leader that runs. Otherwise the leader must be stopped for that
    long."""
    await stage.put_to_sleep("n2", "n3")
    task = await stage.parked(key)
    if stage.expires is not None:
        await stage.end_session("n1")
        return await task
    await stage.put_to_sleep("n1")
    await stage.wake("n2", "n3")
    await stage.end_session("n1")
    await stage.wake("n1")
    return await task


async def timed_out(stage: Stage, key: int) -> Outcome:
    await stage.put_to_sleep("n2", "n3")
    task = await stage.parked(key, timeout_ms=1000)
    return await task


async def below_min_on_arrival(stage: Stage, key: int) -> Outcome:
    await stage.kill("n3")
    await stage.end_session("n3")
    await stage.until(lambda view: view.replicas["n1", key].isr in (("n1", "n2"), ("n2", "n1")),
                      "n1 to know its ISR")
    await asyncio.sleep(FETCHES_END_S)  # metadata may be ahead of the broker's role
    return await stage.send(key)


async def below_min_after_the_append(stage: Stage, key: int) -> Outcome:
    await stage.put_to_sleep("n3")
    task = await stage.parked(key, timeout_ms=2 * SESSION_MS)
    await stage.end_session("n3")
    return await task


async def leader_killed(stage: Stage, key: int) -> Outcome:
    await stage.put_to_sleep("n2", "n3")
    task = await stage.parked(key)
    await stage.kill("n1")
    return await task


async def leader_stopped(stage: Stage, key: int) -> Outcome:
    """An orderly stop: its sockets close while the produce still waits."""
    await stage.put_to_sleep("n2", "n3")
    task = await stage.parked(key)
    stop = asyncio.create_task(stage.kills.stop_node("n1"))
    stage.dead.add("n1")
    outcome = await task
    await stop
    return outcome


async def by_the_library(stage: Stage, key: int, *, deposed: bool) -> Outcome:
    """Over an election the library gets the same answers as the client of record, and retries by itself."""
    workload = idempotent.make(WorkloadSettings(
        run_id=RUN_ID, seed=1, partitions=(stage.specs[key],), clients=wire_clients(stage.addresses),
        addresses=stage.addresses, acks="all", concurrency=1, first_value=100))
    session = workload.session(0)

    def send(value: int) -> Awaitable[Outcome]:
        return session.apply(Intent(f="send", sends=(Send(partition=key, value=value),),
                                    patience_s=PARKED_MS / 1000))

    try:
        first = await send(VALUE)
        assert first.type is Type.OK, first
        if not deposed:
            return first
        await stage.put_to_sleep("n2", "n3")
        task = asyncio.ensure_future(send(VALUE + 1))
        await stage.until(lambda view: view.replicas["n1", key].leo == VALUE + 2, "n1 to append it")
        await stage.lead(key, "n2")
        await stage.wake("n2", "n3")
        return await task
    finally:
        await session.close()


SITUATIONS: Mapping[str, Callable[[Stage, int], Awaitable[Outcome]]] = {
    "acked": Stage.send,
    "to a follower": partial(Stage.send, to="n2"),
    "to a stranger": partial(Stage.send, to="n4"),
    "to an unknown topic": lambda stage, _: stage.send(stage.unknown),
    "too large": partial(Stage.send, values=40),
    "deposed before anybody had it": deposed_before_anybody_had_it,
    "deposed by one that has it": deposed_by_one_that_has_it,
    "timed out": timed_out,
    "session ended": session_ended,
    "below min on arrival": below_min_on_arrival,
    "below min after the append": below_min_after_the_append,
    "leader killed": leader_killed,
    "leader stopped": leader_stopped,
    "idempotent, acked": partial(by_the_library, deposed=False),
    "idempotent, over an election": partial(by_the_library, deposed=True),
}


def answers(folder: Path, version: str) -> dict[str, Answer | Exception]:
    """Plays every situation, in one cluster of this version. An exception: why one could not be played."""
    topics = {name: f"t{number}" for number, name in enumerate(SITUATIONS)}
    # a session that only ends by hand, or by itself
    session = "60000" if version.startswith("2.") else str(SESSION_MS)
    cluster = catalog.cluster(
        "local", folder, 4, rules="kip-320", bugs=(), links="direct", kafka=version,
        config={"min.insync.replicas": "2", "broker.session.timeout.ms": session,
                "replica.lag.time.max.ms": "60000"},
        topics={topics[name]: keys for name, keys in OF_TOPIC.items()})

    async def played() -> dict[str, Answer | Exception]:
        found: dict[str, Answer | Exception] = {}
        try:
            await cluster.start()
            stage = Stage(cluster, topics)
            await cluster.create(stage.specs)
            await stage.mend()
            await stage.first_records()
            for name, situation in SITUATIONS.items():
                key = stage.keys[name]
                try:
                    async with asyncio.timeout(LONG_S):
                        outcome = await situation(stage, key)
                except Exception as error:  # reported by the test of this situation; the others go on
                    found[name] = error
                await stage.mend()
                if name not in found:
                    found[name] = Answer(outcome=outcome, values=await stage.values(key))
        finally:
            await cluster.stop()
        return found

    return asyncio.run(played())
