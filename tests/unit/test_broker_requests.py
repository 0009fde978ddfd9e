"""What a broker answers without a network: fetches of several partitions, and topics before any metadata."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from disk import batch

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import Produce
from floodmark.broker.protocol.metadata import BrokerInfo, Metadata, PartitionInfo, TopicInfo
from floodmark.broker.protocol.rules import KIP_320
from floodmark.broker.server.broker_server import BrokerServer
from floodmark.broker.server.config import parse_config
from floodmark.broker.server.fetch_requests import DelayedFetch, FetchRequests, RequestedPartition
from floodmark.broker.server.replica_manager import ReplicaListeners, ReplicaManager, now_ms
from floodmark.broker.storage.log_directory import LogDirectory
from floodmark.broker.wire.api_keys import FETCH, METADATA
from floodmark.broker.wire.codec import (
    RequestHeader,
    make,
    read_request_header,
    read_response,
    request_parts,
    write_request,
)

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


# -- of topics, before and after the controller's first metadata ------------------------------------------


@pytest.mark.parametrize(("version", "of_topic", "of_partition"), [
    (0, errors.LEADER_NOT_AVAILABLE, errors.NOT_LEADER_OR_FOLLOWER),
    (1, errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_TOPIC_OR_PARTITION),
])
def test_no_topic_is_unknown_before_the_first_metadata(
    tmp_path: Path, version: int, of_topic: int, of_partition: int
) -> None:
    """A broker that has started while its controller is away knows no topic, and each may exist: both errors
    are retriable, and the client asks another broker."""
    config, _ = parse_config(
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:1\ncontroller.quorum.voters=100@h:2\n"
        f"log.dirs={tmp_path}\nauto.create.topics.enable=false\n", "f")
    server = BrokerServer(config)
    server._metadata = Metadata(version=version, brokers=(), topics={})
    cls, parts = request_parts(METADATA, 9)
    frame = write_request(METADATA, 9, 1, "me", make(
        cls, topics=(make(parts.MetadataRequestTopic, name="t"),), allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False))[4:]

    answer = server._answer_metadata(frame, read_request_header(frame))

    assert [int(topic.error_code) for topic in answer.topics] == [of_topic]
    assert server._find_partition("t", 0) == (None, of_partition)
