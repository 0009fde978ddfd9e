"""Raw requests as lines of text, and what one broker answers to them: the reference broker, or Apache Kafka.

tests/golden/requests.txt has the requests, each with its answer: what a client may decide by (errors,
offsets, bounds, epochs), never names or times. Topics and options are Kafka's; `end` is the last offset.
"""

import re
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from machine_text import ERRORS
from raw import Raw, batch

from floodmark.broker.wire.api_keys import (
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from floodmark.broker.wire.codec import milliseconds

CLOSED = "closed"
FIRST = re.compile(r"(^\(?|\[\(?)(\d+)")  # in an answer: the error
LOADING = (14, 15)  # the errors of a coordinator of Kafka that has just started
READY_S = 120.0
# The keys of a reference broker that is asked. KIP-392: Kafka's followers answer consumers.
ONE_BROKER = {"floodmark.switches": "follower-reads", "min.insync.replicas": "1",
              "default.replication.factor": "1"}
CONTROL, TRANSACTIONAL, ZSTD = 0x20, 0x10, 4  # attributes of a batch
TOPICS = {"''": "", "x*250": "x" * 250}  # in a line -> the name


def large() -> bytes:
    """A batch of more than a megabyte, which no broker reads to its end."""
    records = batch(b"v") + bytes(1 << 20)
    return records[:8] + struct.pack(">i", len(records) - 12) + records[12:]


GOOD, LONG = batch(b"b"), batch(b"b" * 20)
RECORDS: Mapping[str, bytes] = {
    "b": GOOD, "x": batch(b"x"), "corrupt": GOOD[:-1] + bytes((GOOD[-1] ^ 1,)), "two": GOOD + GOOD,
    "cut-short": LONG[:-5], "30-bytes": LONG[:30], "8-bytes": LONG[:8], "nothing": b"",
    "tail-of-zeros": GOOD + b"\0\0\0", "magic-1": GOOD[:16] + b"\1" + GOOD[17:],
    "magic-3": GOOD[:16] + b"\3" + GOOD[17:], "control": batch(b"b", attributes=CONTROL), "large": large(),
    "transactional": batch(b"b", attributes=TRANSACTIONAL, producer=1, epoch=0, sequence=0),
    "zstd": batch(b"b", attributes=ZSTD),
}


# -- each request ------------------------------------------------------------------------------------------

def topic_metadata(raw: Raw, *topics: str, creates: bool = False) -> list[Any]:
    """(error, name, internal, partitions) of each; a partition is (error, index, leader, leader epoch,
    replicas, ISR, offline replicas)."""
    answer = raw.ask(METADATA, 9, topics=[{"name": name} for name in topics],
                     allow_auto_topic_creation=creates, include_cluster_authorized_operations=False,
                     include_topic_authorized_operations=False)
    return [(int(topic.error_code), topic.name, topic.is_internal,
             [(int(part.error_code), part.partition_index, part.leader_id, part.leader_epoch,
               part.replica_nodes, part.isr_nodes, part.offline_replicas) for part in topic.partitions])
            for topic in answer.topics]


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
    part = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = raw.ask(OFFSET_FOR_LEADER_EPOCH, version, replica_id=replica,
                     topics=[{"topic": topic, "partitions": [part]}])
    found = answer.topics[0].partitions[0]
    return int(found.error_code), found.leader_epoch, found.end_offset


def create(raw: Raw, topic: str, partitions: str, replicas: str, *, on: str | None = None,
           **configs: str) -> Any:
    """on: INDEX:BROKERS. (error, partitions, replicas), or the error alone."""
    index, _, brokers = (on or "").partition(":")
    assigned = [] if on is None else [(int(index), tuple(map(int, re.findall(r"\d+", brokers))))]
    found = raw.created(topic, int(partitions), int(replicas), assigned, **configs)
    return found[0] or found


def delete(raw: Raw, topic: str) -> int:
    answer = raw.ask(DELETE_TOPICS, 5, topic_names=(topic,), timeout=milliseconds(5_000))
    return int(answer.responses[0].error_code)


def init_producer_id(raw: Raw) -> tuple[int, int]:
    """(error, epoch)."""
    answer = raw.ask(INIT_PRODUCER_ID, 4, transactional_id=None, producer_id=-1, producer_epoch=-1,
                     transaction_timeout=milliseconds(60_000))
    return int(answer.error_code), answer.producer_epoch


def produce_by(raw: Raw, topic: str, values: str, *identity: str) -> tuple[int, int]:
    """identity: producer id, producer epoch, sequence."""
    producer, epoch, sequence = map(int, identity)
    values_of = [value.encode() for value in values.split("+")]
    return raw.produce(topic, batch(*values_of, producer=producer, epoch=epoch, sequence=sequence))


def produce_of_old(raw: Raw, topic: str, version: str) -> str:
    """A Produce below version 3, made by hand: its answer, or CLOSED."""
    body = struct.pack(">hiih", -1, 1_000, 1, len(topic)) + topic.encode()
    body += struct.pack(">iii", 1, 0, len(GOOD)) + GOOD
    head = struct.pack(">hhih", PRODUCE, int(version), 99, 3) + b"raw"
    raw.socket.sendall(struct.pack(">i", len(head + body)) + head + body)
    return CLOSED if raw.closed() else "answered"


def place(raw: Raw, topic: str, at: str) -> int:
    """A number, or `end` and how far from it."""
    end = raw.list_offset("t", -1)[1] if at.startswith("end") else 0
    return end + int(at.removeprefix("end") or 0)


VERBS: Mapping[str, Callable[..., Any]] = {
    "create": create, "metadata": topic_metadata, "delete": delete,
    "produce": lambda raw, topic, name, **more: raw.produce(topic, RECORDS[name], **more),
    "produce-by": produce_by, "produce-of-old": produce_of_old,
    "init-producer-id": lambda raw: until(lambda: init_producer_id(raw), lambda got: got[0] not in LOADING),
    "fetch": lambda raw, topic, at, **more: fetch(raw, topic, place(raw, topic, at), **more),
    "offset": lambda raw, topic, at, **more: raw.list_offset(topic, int(at), **more),
    "end-of-epoch": lambda raw, topic, epoch, **more: end_offset_for(raw, topic, int(epoch), **more),
    "elect": lambda raw, how, topic, index="0": raw.elected(
        topic, unclean=how == "unclean", partition=int(index)),
    # the leader may be in the metadata before it knows of it
    "until-led": lambda raw, topic: until(
        lambda: raw.produce(topic, batch(b"w"), acks=1), lambda got: got == (0, 0)),
    "until-gone": lambda raw, topic: until(lambda: topic_metadata(raw, topic), lambda got: got[0][0] != 0),
}


def until(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    until_s = time.monotonic() + READY_S
    while not holds(answer := ask()):
        assert time.monotonic() < until_s, answer
        time.sleep(0.1)
    return answer


def answered(port: int, line: str) -> str:
    """The answer of the broker of this port, which had no topics before the first line."""
    verb, *words = line.split()
    plain = [TOPICS.get(word, word) for word in words if "=" not in word]
    given: dict[str, Any] = dict(word.split("=", 1) for word in words if "=" in word)
    if verb != "create":
        given = {name: int(value) for name, value in given.items()}
    try:
        with Raw(port) as raw:  # each on a connection of its own, because some requests close it
            told = str(VERBS[verb](raw, *plain, **given))
            return "= " + FIRST.sub(lambda at: f"{at[1]}{ERRORS.get(int(at[2]), at[2])}", told)
    except EOFError:
        return f"= {CLOSED}"
