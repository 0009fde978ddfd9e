"""The same raw requests to the reference broker and to Apache Kafka, one broker each, by name.

An answer here has what a client may decide by: errors, offsets, bounds, epochs; never names or times.
"""

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from raw import Raw, batch

from floodmark.broker.wire.api_keys import (
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from floodmark.broker.wire.codec import make, milliseconds, request_parts

CLOSED = "closed"
LOADING = (14, 15)  # the errors of a coordinator of Kafka that has just started
READY_S = 120.0
# The keys of a reference broker that is asked. KIP-392: Kafka's followers answer consumers.
ONE_BROKER = {"floodmark.switches": "follower-reads", "min.insync.replicas": "1",
              "default.replication.factor": "1"}
CONTROL, TRANSACTIONAL, ZSTD = 0x20, 0x10, 4  # attributes of a batch
Named = Iterator[tuple[str, Any]]


def topic_metadata(raw: Raw, *topics: str) -> list[Any]:
    """(error, name, internal, partitions) of each; a partition is (error, index, leader, leader epoch,
    replicas, ISR, offline replicas)."""
    cls, parts = request_parts(METADATA, 9)
    body = make(cls, topics=tuple(make(parts.MetadataRequestTopic, name=name) for name in topics),
                allow_auto_topic_creation=False, include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False)
    return [(int(topic.error_code), topic.name, topic.is_internal,
             [(int(part.error_code), part.partition_index, part.leader_id, part.leader_epoch,
               part.replica_nodes, part.isr_nodes, part.offline_replicas) for part in topic.partitions])
            for topic in raw.ask(METADATA, 9, body).topics]


def fetch(raw: Raw, topic: str, offset: int, *, count_bytes: bool = True, **besides: int) -> Any:
    """(error, HW, last stable offset, log start, bytes, diverging epoch and its end, current leader)."""
    part = raw.fetch(topic, offset, **besides)
    diverging, leader = part.diverging_epoch, part.current_leader
    size = len(part.records or b"")
    return (int(part.error_code), part.high_watermark, part.last_stable_offset, part.log_start_offset,
            size if count_bytes else size > 0, (diverging.epoch, diverging.end_offset),
            (leader.leader_id, leader.leader_epoch))


def end_offset_for(raw: Raw, topic: str, epoch: int, *, partition: int = 0, current: int = -1,
                   replica: int = -1, version: int = 4) -> tuple[int, int, int]:
    """(error, leader epoch, end offset) of OffsetForLeaderEpoch."""
    cls, parts = request_parts(OFFSET_FOR_LEADER_EPOCH, version)
    part = make(parts.OffsetForLeaderPartition, partition=partition, current_leader_epoch=current,
                leader_epoch=epoch)
    body = make(cls, replica_id=replica,
                topics=(make(parts.OffsetForLeaderTopic, topic=topic, partitions=(part,)),))
    found = raw.ask(OFFSET_FOR_LEADER_EPOCH, version, body).topics[0].partitions[0]
    return int(found.error_code), found.leader_epoch, found.end_offset


def delete(raw: Raw, topic: str) -> int:
    cls, _ = request_parts(DELETE_TOPICS, 5)
    body = make(cls, topic_names=(topic,), timeout=milliseconds(5_000))
    return int(raw.ask(DELETE_TOPICS, 5, body).responses[0].error_code)


def init_producer_id(raw: Raw) -> tuple[int, int]:
    """(error, epoch); asks again while Kafka loads what it needs for it."""
    cls, _ = request_parts(INIT_PRODUCER_ID, 4)
    body = make(cls, transactional_id=None, transaction_timeout=milliseconds(60_000), producer_id=-1,
                producer_epoch=-1)
    until = time.monotonic() + READY_S
    while True:
        answer = raw.ask(INIT_PRODUCER_ID, 4, body)
        if int(answer.error_code) not in LOADING or time.monotonic() > until:
            return int(answer.error_code), answer.producer_epoch
        time.sleep(0.1)


def large() -> bytes:
    """A batch of more than a megabyte, which no broker reads to its end."""
    records = batch(b"v") + bytes(1 << 20)
    return records[:8] + struct.pack(">i", len(records) - 12) + records[12:]


def produce_of_old(raw: Raw, version: int) -> str:
    """A Produce below version 3, made by hand: its answer, or CLOSED."""
    records = batch(b"v")
    body = struct.pack(">hiih", -1, 1_000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, len(records)) + records
    head = struct.pack(">hhih", PRODUCE, version, 99, 3) + b"raw"
    raw.socket.sendall(struct.pack(">i", len(head + body)) + head + body)
    return CLOSED if raw.closed() else "answered"


# -- all requests -------------------------------------------------------------------------------------------

def answers(port: int) -> dict[str, Any]:
    """Sends every request to the broker of this port, which has no topics yet: name -> answer."""
    def ask(request: Callable[[Raw], Any]) -> Any:
        """On a connection of its own, because some requests close it."""
        try:
            with Raw(port) as raw:
                return request(raw)
        except EOFError:
            return CLOSED

    found: dict[str, Any] = {}
    for part in (_creations, _metadata, _produces, _idempotent_produces, _fetches, _offsets, _epoch_ends,
                 _elections, _deletions):
        for name, answer in part(ask):
            assert name not in found, name
            found[name] = answer
    return found


def _creations(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    yield "create t", ask(lambda raw: raw.created("t", 1, 1))
    yield "create m", ask(lambda raw: raw.created("m", 1, 1, min_insync_replicas="2"))
    refused: dict[str, tuple[Any, ...]] = {
        "once more": ("t", 1, 1), "illegal name": ("a/b", 1, 1), "five replicas": ("t5", 1, 5),
        "no partitions": ("t0", 0, 1), "-2 partitions": ("t0", -2, 1), "no replicas": ("t0", 1, 0),
        "on a stranger": ("ts", -1, -1, ((0, (7,)),)), "on one broker twice": ("ts", -1, -1, ((0, (1, 1)),)),
        "with a gap": ("ts", -1, -1, ((1, (1,)),)), "on nobody": ("ts", -1, -1, ((0, ()),)),
        "placed and counted": ("ts", 2, 1, ((0, (1,)),)), "a long name": ("x" * 250, 1, 1),
        "no name": ("", 1, 1), "a dot": (".", 1, 1),
    }
    for name, words in refused.items():
        yield f"create {name}", ask(lambda raw, words=words: raw.created(*words)[0])
    for key, value in (("no_such", "1"), ("min_insync_replicas", "two"), ("min_insync_replicas", "0")):
        yield f"create with {key}={value}", ask(
            lambda raw, key=key, value=value: raw.created("tc", 1, 1, **{key: value})[0])
    yield "create a.b", ask(lambda raw: raw.created("a.b", 1, 1))
    yield "create a_b", ask(lambda raw: raw.created("a_b", 1, 1)[0])
    for topic in ("t", "m"):  # the leader may be in the metadata before it knows of it
        until = time.monotonic() + READY_S
        while ask(lambda raw, topic=topic: raw.produce(topic, batch(b"w"), acks=1)) != (0, 0):
            assert time.monotonic() < until, topic
            time.sleep(0.1)


def _metadata(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    for topic in ("t", "m", "none", "a/b", "", "."):
        yield f"metadata of {topic!r}", ask(lambda raw, topic=topic: topic_metadata(raw, topic))


def _produces(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    good, long = batch(b"b"), batch(b"b" * 20)
    for acks in (-1, 1, 2, -2):
        yield f"produce acks={acks}", ask(lambda raw, acks=acks: raw.produce("t", good, acks=acks))
    for acks in (-1, 1):
        yield f"produce acks={acks} below min", ask(lambda raw, acks=acks: raw.produce("m", good, acks=acks))
    for topic, index in (("none", 0), ("t", 3), ("t", -1)):
        yield f"produce to {topic} {index}", ask(
            lambda raw, topic=topic, index=index: raw.produce(topic, good, partition=index))
    shapes = {
        "corrupt": good[:-1] + bytes((good[-1] ^ 1,)), "two batches": good + good, "cut short": long[:-5],
        "30 bytes": long[:30], "8 bytes": long[:8], "nothing": b"", "a tail of zeros": good + b"\0\0\0",
        "magic 1": good[:16] + b"\1" + good[17:], "magic 3": good[:16] + b"\3" + good[17:],
        "control": batch(b"b", attributes=CONTROL), "a large one": large(),
        "transactional": batch(b"b", attributes=TRANSACTIONAL, producer=1, epoch=0, sequence=0),
    }
    for name, records in shapes.items():
        yield f"produce {name}", ask(lambda raw, records=records: raw.produce("t", records))
    yield "produce zstd by version 3", ask(
        lambda raw: raw.produce("t", batch(b"b", attributes=ZSTD), version=3))
    for version in range(3):
        yield f"produce by version {version}", ask(lambda raw, v=version: produce_of_old(raw, v))
    for version in range(3, 10):
        yield f"produce by version {version}", ask(lambda raw, v=version: raw.produce("t", good, version=v))


def _idempotent_produces(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    yield "init producer id", ask(init_producer_id)
    sent = [("seq 0", 1, 0, 0), ("seq 0 again", 1, 0, 0), ("seq 5", 1, 0, 5), ("seq 1", 1, 0, 1),
            ("seq 0 a third time", 1, 0, 0), ("a new epoch at 3", 1, 1, 3), ("a new epoch at 0", 1, 1, 0),
            ("an old epoch", 1, 0, 2), ("a new producer at 7", 77, 0, 7), ("no epoch", 1, -1, 0),
            ("no sequence", 78, 0, -1), ("an epoch and no producer", -1, 3, 4)]
    for name, producer, epoch, sequence in sent:
        records = batch(b"i", producer=producer, epoch=epoch, sequence=sequence)
        yield f"idempotent, {name}", ask(lambda raw, records=records: raw.produce("t", records))
    wide = batch(b"i", b"j", producer=1, epoch=1, sequence=0)
    yield "idempotent, a longer batch at 0", ask(lambda raw: raw.produce("t", wide))


def _fetches(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    end = ask(lambda raw: raw.list_offset("t", -1))[1]
    places = {"-1": -1, "0": 0, "1": 1, "end-1": end - 1, "end": end, "end+1": end + 1, "end+100": end + 100}
    for name, at in places.items():
        yield f"fetch at {name}", ask(lambda raw, at=at: fetch(raw, "t", at))
    for epoch in (0, 1, 5, -1, -2):
        yield f"fetch in epoch {epoch}", ask(lambda raw, epoch=epoch: fetch(raw, "t", 0, epoch=epoch))
    for last in (0, 1, 5, -1, -2):
        for name in ("0", "end", "end+1"):
            yield f"fetch at {name} after {last}", ask(
                lambda raw, at=places[name], last=last: fetch(raw, "t", at, last_epoch=last, epoch=0))
    for replica in (-2, -3, -4, 1, 2, 9):
        for topic, name in (("t", "0"), ("t", "end"), ("t", "end+1"), ("m", "0")):
            for epoch in (-1, 0):
                yield f"fetch {topic} at {name} in {epoch} as {replica}", ask(
                    lambda raw, topic=topic, at=places[name], epoch=epoch, replica=replica:
                    fetch(raw, topic, at, epoch=epoch, replica=replica))
    for topic, index in (("none", 0), ("t", 4), ("m", 0)):
        yield f"fetch {topic} {index}", ask(
            lambda raw, topic=topic, index=index: fetch(raw, topic, 0, partition=index))


def _offsets(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    for at in (-1, -2, -3, -4, -5, -6, -9, 0, 1, 2, 10):
        yield f"offset at {at}", ask(lambda raw, at=at: raw.list_offset("t", at))
    for replica in (-1, -2, -3, -4, 1, 2, 9):
        for topic in ("t", "m"):
            for epoch in (-1, 0, 3):
                yield f"last offset of {topic} in {epoch} as {replica}", ask(
                    lambda raw, topic=topic, epoch=epoch, replica=replica:
                    raw.list_offset(topic, -1, replica=replica, epoch=epoch))
    yield "last offset in -2", ask(lambda raw: raw.list_offset("t", -1, epoch=-2))
    for version in range(1, 7):
        yield f"last offset by version {version}", ask(
            lambda raw, version=version: raw.list_offset("t", -1, version=version))
    for topic, index in (("none", 0), ("t", 4)):
        yield f"last offset of {topic} {index}", ask(
            lambda raw, topic=topic, index=index: raw.list_offset(topic, -1, partition=index))


def _epoch_ends(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    for epoch in (-2, -1, 0, 1, 2, 9):
        for replica in (-1, -2, 1, 2):
            yield f"end of {epoch} as {replica}", ask(
                lambda raw, epoch=epoch, replica=replica: end_offset_for(raw, "t", epoch, replica=replica))
    for current in (0, 1, 9, -2):
        yield f"end of 0 in {current}", ask(
            lambda raw, current=current: end_offset_for(raw, "t", 0, current=current))
    for version in (2, 3):
        yield f"end of 0 by version {version}", ask(
            lambda raw, version=version: end_offset_for(raw, "t", 0, version=version))
    for topic, index in (("none", 0), ("t", 4)):
        yield f"end of 0 of {topic} {index}", ask(
            lambda raw, topic=topic, index=index: end_offset_for(raw, topic, 0, partition=index))


def _elections(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    for unclean in (False, True):
        for topic, index in (("t", 0), ("t", 9), ("none", 0)):
            yield f"elect {topic} {index} {'unclean' if unclean else 'preferred'}", ask(
                lambda raw, topic=topic, index=index, unclean=unclean:
                raw.elected(topic, unclean=unclean, partition=index))


def _deletions(ask: Callable[[Callable[[Raw], Any]], Any]) -> Named:
    yield "delete none", ask(lambda raw: delete(raw, "none"))
    yield "delete m", ask(lambda raw: delete(raw, "m"))
    until = time.monotonic() + READY_S
    while ask(lambda raw: topic_metadata(raw, "m"))[0][0] == 0:
        assert time.monotonic() < until, "m is still there"
        time.sleep(0.1)
    yield "metadata of m, deleted", ask(lambda raw: topic_metadata(raw, "m"))
    yield "produce to m, deleted", ask(lambda raw: raw.produce("m", batch(b"x")))
    yield "fetch m, deleted", ask(lambda raw: fetch(raw, "m", 0))
    yield "create m again", ask(lambda raw: raw.created("m", 1, 1))
    yield "delete m again", ask(lambda raw: delete(raw, "m"))
