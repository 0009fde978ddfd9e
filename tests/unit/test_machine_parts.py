"""Parts of a broker alone: purgatory, events, clock, elections on request, topics' configs, requests."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from disk import batch

from floodmark.broker.protocol import errors, messages
from floodmark.broker.protocol.messages import Elect, Fetch, Produce
from floodmark.broker.protocol.metadata import BrokerInfo, Metadata, PartitionInfo, TopicInfo
from floodmark.broker.protocol.purgatory import DelayedFetchPurgatory
from floodmark.broker.protocol.rules import KIP_320
from floodmark.broker.server.broker_server import BrokerServer
from floodmark.broker.server.config import Config, parse_config
from floodmark.broker.server.controller_clock import ControllerClock
from floodmark.broker.server.controller_server import parse_election
from floodmark.broker.server.replica_manager import ReplicaListeners, ReplicaManager
from floodmark.broker.server.topic_configs import (
    DEFAULT,
    STATIC,
    TOPIC,
    alter_configs,
    check_topic_configs,
    describe_broker_configs,
    describe_topic_configs,
)
from floodmark.broker.storage.log_directory import LogDirectory
from floodmark.broker.testing.control_socket import ControlError
from floodmark.broker.wire.api_keys import METADATA
from floodmark.broker.wire.codec import make, read_request_header, request_parts, write_request


def configured(folder: Path, *more: str) -> Config:
    """Of broker 1."""
    text = ("process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:1\ncontroller.quorum.voters=100@h:2\n"
            f"log.dirs={folder}\n")
    return parse_config("".join([text, *more]), "f")[0]


@pytest.mark.parametrize("acts", [
    # KAFKA-9731: a move of the HW completes only the fetch of a client.
    [("hw_moved", "p0", ["client"]), ("hw_moved", "p0", []), ("expired", 500, ["follower"])],
    # Nine bytes are too few, the tenth completes the fetch; an append does not complete a client's.
    [("appended", "p0", 9, []), ("appended", "p1", 1, ["follower"]), ("appended", "p0", 100, [])],
    # The token is removed from every partition that it waited for.
    [("expired", 299, []), ("expired", 300, ["client"]), ("role_changed", "p1", ["follower"]),
     ("appended", "p0", 100, []), ("expired", 500, [])],
    [("forget", "client", True), ("forget", "client", False)],
])
def test_each_fetch_is_completed_once(acts: list[tuple[Any, ...]]) -> None:
    purgatory = DelayedFetchPurgatory()
    purgatory.park("follower", ["p0", "p1"], consumer=False, missing_bytes=10, deadline_ms=500)
    purgatory.park("client", ["p0"], consumer=True, missing_bytes=1, deadline_ms=300)
    with pytest.raises(ValueError, match="parked already"):
        purgatory.park("follower", ["p0"], consumer=False, missing_bytes=1, deadline_ms=1)
    for act, *given, completed in acts:
        assert getattr(purgatory, act)(*given) == completed


def test_a_log_line_on_an_event_names_no_address_in_memory() -> None:
    """A token is an object of the server, which has another address in each process: one seed, one log."""
    shown = [f"{name}.{field.name}" for name, kind in vars(messages).items() if dataclasses.is_dataclass(kind)
             for field in dataclasses.fields(kind) if field.type in ("object", object) and field.repr]

    assert shown == []


# -- the controller's clock does not count the time in which it was suspended ----------------------------


@pytest.mark.parametrize(("times", "counted", "away_ms"), [
    ([1000, 1000, 1025, 1225], [1000, 1025, 1225], 0),
    ([0, 100, 60_100, 60_150], [100, 300, 350], 59_800),  # a minute
])
def test_a_long_gap_is_counted_as_the_limit(times: list[int], counted: list[int], away_ms: int) -> None:
    """200 ms, the longest gap that is no suspension; shorter steps are counted in full."""
    time = iter(times)
    clock = ControllerClock(lambda: next(time), 200)

    assert ([clock.now_ms() for _ in range(3)], clock.away_ms) == (counted, away_ms)


def test_an_election_as_the_control_socket_requests_it() -> None:
    """Without a leader the controller chooses; an invalid request is refused with the expected form."""
    request = {"topic": "t", "partition": 0}
    assert parse_election(request, 5) == Elect(now_ms=5, token=None, partitions=(("t", 0),), unclean=False)
    assert parse_election({**request, "leader": 2, "unclean": True}, 5).leader == 2
    for wrong in ({"topic": 1}, {"partition": "0"}, {"leader": None}, {"unclean": "yes"}):
        with pytest.raises(ControlError, match="elect wants"):
            parse_election({**request, **wrong}, 5)


# -- configs of a topic: which are accepted, how they are altered, where each comes from ------------------


@pytest.mark.parametrize(("configs", "error"), [  # more that Kafka refuses too: golden/requests.txt
    ({"flush.messages": "9" * 5_000}, errors.INVALID_CONFIG),  # more digits than int() takes
    ({"cleanup.policy": "compact"}, errors.POLICY_VIOLATION),
    ({"message.timestamp.type": "LogAppendTime"}, errors.POLICY_VIOLATION),
])
def test_configs_of_a_topic_are_checked(configs: dict[str, str], error: int) -> None:
    found, why = check_topic_configs(configs)

    assert (found, bool(why)) == (error, True)


def test_configs_are_altered_one_by_one() -> None:
    """SET, DELETE; there are no lists to append to."""
    configs = {"a": "1", "b": "2"}

    assert alter_configs(configs, [("a", 0, "9"), ("b", 1, None), ("c", 0, "3"), ("d", 1, None)]) == {
        "a": "9", "c": "3"
    }  # fmt: skip
    assert "no list" in alter_configs(configs, [("a", 2, "9")])
    assert "no value" in alter_configs(configs, [("a", 0, None)])
    assert configs == {"a": "1", "b": "2"}


def test_where_a_config_comes_from() -> None:
    """The topic's own overrides the broker's, and the broker's the default."""
    config = configured(Path("/d"), "min.insync.replicas=2\nmessage.max.bytes=1048588\n")
    described = describe_topic_configs({"segment.bytes": "9", "retention.ms": "1"}, config)
    found = {each.name: (each.value, each.source) for each in described}
    brokers = {each.name: each for each in describe_broker_configs(config)}

    assert found.items() >= {
        "segment.bytes": ("9", TOPIC), "retention.ms": ("1", TOPIC), "min.insync.replicas": ("2", STATIC),
        "unclean.leader.election.enable": ("false", DEFAULT), "cleanup.policy": ("delete", DEFAULT)}.items()
    (segment,) = (each for each in described if each.name == "segment.bytes")
    assert segment.synonyms[1:] == (("log.segment.bytes", "1073741824", DEFAULT),)
    assert brokers["listeners"].value == "PLAINTEXT://h:1"
    assert brokers["message.max.bytes"].source == DEFAULT
    assert all(each.read_only for each in brokers.values())
    assert not [name for name in brokers if name.startswith("floodmark.")]


# -- requests ---------------------------------------------------------------------------------------------


def test_nothing_that_an_event_brings_comes_between_those_of_a_fetch(tmp_path: Path) -> None:
    """A follower's fetch of two partitions acks a produce in the first, whose client at once sends the next
    one: it would be appended unnoticed before the fetch waits."""
    order: list[Any] = []
    listeners = ReplicaListeners(
        appended=lambda key, _: order.append(("appended", *key)), hw_moved=lambda _: None,
        role_changed=lambda _: None, propose=lambda *_: None, resumed=lambda _: None)
    manager = ReplicaManager(config=configured(tmp_path), rules=KIP_320, clean=True, listeners=listeners,
                             files=LogDirectory.open(tmp_path, None))
    parts = tuple(PartitionInfo(partition=index, leader=1, leader_epoch=0, isr=(1, 2), partition_epoch=0,
                                replicas=(1, 2)) for index in (0, 1))
    brokers = tuple(BrokerInfo(id=node, epoch=node, host="h", port=node, fenced=False) for node in (1, 2))
    manager.apply_metadata(Metadata(version=1, brokers=brokers, topics={
        "t": TopicInfo(name="t", id="5f" * 16, configs={}, partitions=parts)}))
    first, second = (manager.partitions["t", index] for index in (0, 1))

    class Client:
        def complete(self, index: int, answer: Any) -> None:
            order.append(f"acked {index}")
            produce(index + 1)

    class Follower:
        def complete(self, index: int, answer: Any) -> None:
            order.append(f"fetched {index}")

    def produce(index: int) -> None:
        manager.post(first, Produce(now_ms=0, token=(Client(), index), acks=-1, timeout_ms=60_000,
                                    batches=(batch(0),)))

    produce(0)
    follower = Follower()
    manager.post_together((hosted, Fetch(
        now_ms=0, token=(follower, index), replica=2, broker_epoch=2, offset=offset, current_leader_epoch=0,
        last_fetched_epoch=0)) for index, (hosted, offset) in enumerate(((first, 1), (second, 0))))
    assert set(order[1:4]) == {"acked 0", "fetched 0", "fetched 1"}
    assert order[4:] == [("appended", "t", 0)]


@pytest.mark.parametrize(("version", "of_topic", "of_partition"), [
    (0, errors.LEADER_NOT_AVAILABLE, errors.NOT_LEADER_OR_FOLLOWER),
    (1, errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_TOPIC_OR_PARTITION),
])
def test_no_topic_is_unknown_before_the_first_metadata(
    tmp_path: Path, version: int, of_topic: int, of_partition: int
) -> None:
    """A broker that has started while its controller is away knows no topic, and each may exist: both errors
    are retriable, and the client asks another broker."""
    server = BrokerServer(configured(tmp_path, "auto.create.topics.enable=false\n"))
    server._metadata = Metadata(version=version, brokers=(), topics={})
    cls, parts = request_parts(METADATA, 9)
    frame = write_request(METADATA, 9, 1, "me", make(
        cls, topics=(make(parts.MetadataRequestTopic, name="t"),), allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False))[4:]

    answer = server._answer_metadata(frame, read_request_header(frame))

    assert [int(topic.error_code) for topic in answer.topics] == [of_topic]
    assert server._find_partition("t", 0) == (None, of_partition)
