"""Raw requests to brokers in real processes: the meaning of each answer, and what garbage does."""

import random
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from golden_text import answered_as_written
from kafka_requests import ONE_BROKER, answered, topic_metadata
from raw import Raw, batch
from real_brokers import CONTROLLER, RealBrokers
from run_processes import wait_until

from floodmark.broker.protocol import errors
from floodmark.broker.wire.api_keys import API_VERSIONS, METADATA

pytestmark = pytest.mark.cluster

@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    with RealBrokers(tmp_path_factory.mktemp("wire")) as brokers:
        brokers.create("t")
        yield brokers


@pytest.fixture
def leader(cluster: RealBrokers) -> Iterator[Raw]:
    with Raw(cluster.port[1]) as raw:
        yield raw


def test_every_request_is_answered_as_written(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What a client may decide by, of 257 requests; test_beside_kafka.py asks Apache Kafka the same."""
    with RealBrokers(tmp_path, 1, **ONE_BROKER) as broker:
        answered_as_written("requests.txt", partial(answered, broker.port[1]), request)


def test_acks_one_and_none(leader: Raw) -> None:
    """acks=1 has its offset; acks=0 has no answer, and the next answer is to the next request."""
    error, offset = leader.produce("t", batch(b"v"), acks=1)
    leader.send_produce("t", batch(b"w"), acks=0)

    assert error == errors.NONE
    assert leader.produce("t", batch(b"x")) == (errors.NONE, offset + 2)


def test_answers_keep_the_order_of_requests(leader: Raw) -> None:
    """Sent at once: what is answered as soon as it is appended waits for what must be replicated."""
    _, last = leader.produce("t", batch(b"u"))
    numbers = {leader.send_produce("t", batch(b"v"), acks=acks): (acks, at)
               for at, acks in enumerate((-1, 1, 0, -1, 1) * 4, last + 1)}

    for number, (acks, at) in numbers.items():
        assert acks == 0 or leader.produced(number) == (errors.NONE, at)


def test_acks_none_refused_closes(leader: Raw) -> None:
    """The only way to report it: the connection is closed."""
    leader.send_produce("nowhere", batch(b"w"), acks=0)

    assert leader.closed()


def test_who_does_not_lead_says_so(cluster: RealBrokers) -> None:
    """A follower, and a broker that has no replica: the client looks for the leader."""
    cluster.create("apart", (1,))
    for topic in "t", "apart":
        wait_until(f"a refusal of {topic}", lambda topic=topic: cluster.produce(topic, b"v", node=2) == (
            errors.NOT_LEADER_OR_FOLLOWER, -1))


def test_a_parked_fetch_is_woken_by_a_commit(leader: Raw, cluster: RealBrokers) -> None:
    """A client's long poll ends when the HW passes its offset, long before its time."""
    with Raw(cluster.port[1]) as other:
        _, end = other.end_offset("t")  # so it is connected: what it asks next is read before the produce
        number = other.send_fetch("t", end, wait_ms=600_000)
        assert leader.produce("t", batch(b"woken")) == (errors.NONE, end)
        answer = other.fetched(number)

    assert answer.high_watermark == end + 1
    assert b"woken" in bytes(answer.records)


def test_topics_on_demand(leader: Raw) -> None:
    """Metadata makes a requested topic (auto.create.topics.enable) unless the request forbids it."""
    def ask(**how: bool) -> int:
        return int(topic_metadata(leader, "wished", **how)[0][0])

    assert ask() == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(creates=True) == errors.LEADER_NOT_AVAILABLE
    wait_until("the topic to be made", lambda: ask() == errors.NONE)


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "size-below-0": struct.pack(">i", -1), "size-0": struct.pack(">i", 0),
    "size-of-2-gb": struct.pack(">i", 2**31 - 1),
    "produce-without-body": struct.pack(">ihhih", 10, 0, 2, 1, -1),
    "unknown-api": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "metadata-cut-short": struct.pack(">ihhihBi", 15, METADATA, 9, 1, -1, 0, -1),
    "array-that-would-fill-the-memory": struct.pack(">ihhihBI", 15, METADATA, 9, 1, -1, 0, 0xFFFFFF7F),
    "leader-and-isr-without-fields": struct.pack(">ihhih", 12, 4, 100, 1, -1) + b"{}",
    "leader-and-isr-cut-short": struct.pack(">ihhih", 11, 4, 100, 1, -1) + b"{",
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_closes_its_connection_and_nothing_else(
    cluster: RealBrokers, leader: Raw, garbage: str
) -> None:
    """Its client is disconnected; another client's next request is served; the process is the same."""
    pids = [cluster.pid(node) for node in (1, CONTROLLER)]
    for node in (1, CONTROLLER):
        with Raw(cluster.port[node]) as mad:
            mad.socket.sendall(GARBAGE[garbage])
            assert mad.closed()

    assert leader.produce("t", batch(b"after"))[0] == errors.NONE
    with Raw(cluster.port[CONTROLLER]) as other:
        assert other.ask(API_VERSIONS, 0).error_code == errors.NONE
    assert [cluster.running(node) and cluster.pid(node) for node in (1, CONTROLLER)] == pids


def test_noise_and_half_frames(cluster: RealBrokers, leader: Raw) -> None:
    """200 connections of noise, and requests that come byte by byte."""
    chance = random.Random(5)
    for _ in range(200):
        with Raw(cluster.port[chance.choice((1, CONTROLLER))]) as mad:
            body = chance.randbytes(chance.randrange(80))
            api = chance.choice((0, 1, 2, 3, 18, 19, 22, 56, 62))
            head = struct.pack(">ihhih", len(body) + 10, api, chance.randrange(10), 1, -1)
            mad.socket.sendall(head + body)
    with Raw(cluster.port[1]) as slow:
        frame = struct.pack(">ihhih", 10, API_VERSIONS, 0, 3, -1)
        for byte in frame:
            slow.socket.sendall(bytes((byte,)))
        assert slow.exactly(8)[4:] == struct.pack(">i", 3)

    assert leader.produce("t", batch(b"after"))[0] == errors.NONE
    assert [cluster.running(node) for node in cluster.port] == [True] * 4
