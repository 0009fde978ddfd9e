"""Fetches of several partitions: a broker's replicas, their logs and its purgatory, without a network."""

import asyncio
from pathlib import Path
from typing import Any

from disk import batch

from floodmark.broker.protocol.messages import Produce
from floodmark.broker.protocol.metadata import BrokerInfo, Metadata, PartitionInfo, TopicInfo
from floodmark.broker.protocol.rules import KIP_320
from floodmark.broker.server.config import parse_config
from floodmark.broker.server.fetch_requests import DelayedFetch, FetchRequests, RequestedPartition
from floodmark.broker.server.replica_manager import ReplicaListeners, ReplicaManager, now_ms
from floodmark.broker.storage.log_directory import LogDirectory
from floodmark.broker.wire.api_keys import FETCH
from floodmark.broker.wire.codec import RequestHeader, read_response

TOPIC_ID = "5f" * 16
MINUTE_MS = 60_000


class FollowersConnection:
    """A follower's connection; it receives what it waits for, or nothing."""

    closed = False

    def __init__(self) -> None:
        self.on_close: list[Any] = [lambda: None]
        self.answers: list[Any] = []

    def answer(self, frame: bytes) -> None:
        self.answers.append(read_response(frame[4:], FETCH, 15, 1))


class PipeliningClient:
    """The token of its produces: as soon as one is acked, it is asked the next."""

    def __init__(self, broker: "Leader", count: int) -> None:
        self.broker, self.left = broker, count
        self.complete(0, None)

    def complete(self, _: int, answer: Any) -> None:
        if self.left:
            self.left -= 1
            self.broker.manager.post(self.broker.manager.partitions["t", 0], Produce(
                now_ms=now_ms(), token=(self, 0), acks=-1, timeout_ms=MINUTE_MS, batches=(batch(0),)))


class Leader:
    """Broker 1 of two, which leads partitions 0 and 1 of topic t."""

    def __init__(self, folder: Path) -> None:
        config, _ = parse_config(
            "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:1\ncontroller.quorum.voters=100@h:2\n"
            f"log.dirs={folder}\n", "f")
        self.fetches = FetchRequests()
        listeners = ReplicaListeners(
            appended=self.fetches.appended, hw_moved=self.fetches.hw_moved, role_changed=lambda _: None,
            propose=lambda *_: None, resumed=lambda _: None)
        self.manager = self.fetches.replica_manager = ReplicaManager(
            config=config, rules=KIP_320, files=LogDirectory.open(folder, None), clean=True,
            listeners=listeners)
        parts = tuple(PartitionInfo(partition=index, leader=1, leader_epoch=0, isr=(1, 2), partition_epoch=0,
                                    replicas=(1, 2)) for index in (0, 1))
        brokers = tuple(BrokerInfo(id=node, epoch=node, host="h", port=node, fenced=False) for node in (1, 2))
        self.manager.apply_metadata(Metadata(version=1, brokers=brokers, topics={
            "t": TopicInfo(name="t", id=TOPIC_ID, configs={}, partitions=parts)}))

    def fetch(self, *offsets: int) -> FollowersConnection:
        """Broker 2 fetches both partitions, and waits a minute for a byte."""
        connection: Any = FollowersConnection()
        wanted = [RequestedPartition(
            topic=TOPIC_ID, partition=index, hosted=self.manager.partitions["t", index], error=0,
            offset=offset, current_leader_epoch=0, last_fetched_epoch=-1 if offset == 0 else 0,
            max_bytes=1 << 20) for index, offset in enumerate(offsets)]
        self.fetches.start(DelayedFetch(
            fetch_requests=self.fetches, connection=connection, replica=2, broker_epoch=2, min_bytes=1,
            head=RequestHeader(key=FETCH, version=15, correlation=1, client=None, body_at=0),
            max_bytes=1 << 20, deadline_ms=now_ms() + MINUTE_MS, wanted=wanted))
        return connection


async def test_a_fetch_of_several_partitions_misses_no_append(tmp_path: Path) -> None:
    """A fetch of one partition acks a produce there, whose client at once sends the next one: it is appended
    before the fetch waits, or it wakes it."""
    leader = Leader(tmp_path)
    PipeliningClient(leader, 2)

    connection = leader.fetch(1, 0)
    await asyncio.sleep(0)

    assert leader.manager.partitions["t", 0].replica.leo == 2
    (answer,) = connection.answers
    assert answer.responses[0].partitions[0].records[:8] == (1).to_bytes(8)
