"""Encodes the three most frequent messages by hand: Produce and Fetch responses, and a follower's Fetch.

Rules
1. Every byte is what kio would write; a test compares them, version by version.
2. A message is here only if that is measurably faster than kio, whose writer is plain Python (about 20 us
   a message).
"""

import struct
from collections.abc import Sequence

import msgspec

from floodmark.broker.protocol.messages import EpochEnd
from floodmark.broker.wire.api_keys import FETCH
from floodmark.broker.wire.codec import frame_request, frame_response
from floodmark.broker.wire.frame_validation import write_varint

_I32 = struct.Struct(">i")
_I16 = struct.Struct(">h")
FOLLOWER_FETCH_VERSION = 15  # between brokers: it has topic ids and the follower's broker epoch


def _write_string(value: str, compact: bool) -> bytes:
    data = value.encode()
    return (write_varint(len(data) + 1) if compact else _I16.pack(len(data))) + data


def _write_count(value: int, compact: bool) -> bytes:
    return write_varint(value + 1) if compact else _I32.pack(value)


# -- the Produce response ------------------------------------------------------------------------------

ProduceTopic = tuple[str, Sequence[tuple[int, int, int, int]]]  # partition, error, base offset, log start

_PRODUCED = struct.Struct(">ihqq")  # partition, error, base offset, log append time (-1: create time)
_PRODUCED_START = struct.Struct(">ihqqq")


def write_produce_response(version: int, correlation: int, topics: Sequence[ProduceTopic]) -> bytes:
    """A whole frame of Produce 3-9."""
    compact = version >= 9
    parts = [_write_count(len(topics), compact)]
    for name, partitions in topics:
        parts += (_write_string(name, compact), _write_count(len(partitions), compact))
        for partition, error, base_offset, log_start in partitions:
            if version < 5:
                parts.append(_PRODUCED.pack(partition, error, base_offset, -1))
                continue
            parts.append(_PRODUCED_START.pack(partition, error, base_offset, -1, log_start))
            if compact:
                parts.append(b"\1\0\0")  # no record errors, no message, no tags
            elif version == 8:
                parts.append(b"\0\0\0\0\xff\xff")
        if compact:
            parts.append(b"\0")
    parts.append(b"\0\0\0\0\0" if compact else b"\0\0\0\0")  # throttle time
    return frame_response(correlation, compact, b"".join(parts))


# -- the Fetch response ---------------------------------------------------------------------------------


class FetchedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a response. Without transactions the last stable offset is the HW."""

    partition: int
    error: int
    hw: int
    log_start: int
    records: bytes
    diverging: EpochEnd | None = None


FetchedTopic = tuple[str, Sequence[FetchedPartition]]  # from version 13 the topic is its id, as hex

_FETCHED_4 = struct.Struct(">ihqqi")  # partition, error, HW, last stable offset, no aborted transactions
_FETCHED_5 = struct.Struct(">ihqqqi")  # and log start
_FETCHED_11 = struct.Struct(">ihqqqii")  # and preferred read replica
_FETCHED_12 = struct.Struct(">ihqqqbi")  # the same, compact
_DIVERGING = struct.Struct(">bbbiqb")  # one tag: 0, its size 13, epoch, end offset, no tags inside


def write_fetch_response(
    version: int, correlation: int, topics: Sequence[FetchedTopic], *, error: int = 0
) -> bytes:
    """A whole frame of Fetch 4-12 and 15; no session."""
    compact = version >= 12
    parts = [b"\0\0\0\0"]  # throttle time
    if version >= 7:
        parts.append(struct.pack(">hi", error, 0))
    parts.append(_write_count(len(topics), compact))
    for name, partitions in topics:
        parts += (bytes.fromhex(name) if version >= 13 else _write_string(name, compact),)
        parts.append(_write_count(len(partitions), compact))
        for each in partitions:
            if compact:
                _append_compact_partition(parts, each)
            else:
                _append_partition(parts, each, version)
        if compact:
            parts.append(b"\0")
    if compact:
        parts.append(b"\0")
    return frame_response(correlation, compact, b"".join(parts))


def _append_partition(parts: list[bytes], each: FetchedPartition, version: int) -> None:
    if version >= 11:
        parts.append(_FETCHED_11.pack(each.partition, each.error, each.hw, each.hw, each.log_start, -1, -1))
    elif version >= 5:
        parts.append(_FETCHED_5.pack(each.partition, each.error, each.hw, each.hw, each.log_start, -1))
    else:
        parts.append(_FETCHED_4.pack(each.partition, each.error, each.hw, each.hw, -1))
    parts += (_I32.pack(len(each.records)), each.records)


def _append_compact_partition(parts: list[bytes], each: FetchedPartition) -> None:
    parts.append(_FETCHED_12.pack(each.partition, each.error, each.hw, each.hw, each.log_start, 0, -1))
    parts += (write_varint(len(each.records) + 1), each.records)
    if each.diverging is None:
        parts.append(b"\0")
    else:
        parts.append(_DIVERGING.pack(1, 0, 13, each.diverging.epoch, each.diverging.end_offset, 0))


# -- a follower's Fetch ----------------------------------------------------------------------------------


class FetchPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a follower's request."""

    partition: int
    current_leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int
    max_bytes: int


_FETCH_HEAD = struct.Struct(">iiibii")  # wait, min bytes, max bytes, isolation, session id, session epoch
_FETCH_PARTITION = struct.Struct(">iiqiqib")  # the last is the end of the tags
_REPLICA_STATE = struct.Struct(">bbbiqb")  # one tag: 1, its size 13, replica, its epoch, no tags inside


def write_follower_fetch(
    correlation: int,
    client: str,
    topics: Sequence[tuple[str, Sequence[FetchPartition]]],
    *,
    replica: int,
    broker_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
) -> bytes:
    """A whole frame of Fetch 15; topics by id, as hex."""
    parts = [_FETCH_HEAD.pack(max_wait_ms, min_bytes, max_bytes, 0, 0, -1), write_varint(len(topics) + 1)]
    for topic_id, partitions in topics:
        parts += (bytes.fromhex(topic_id), write_varint(len(partitions) + 1))
        parts += [
            _FETCH_PARTITION.pack(
                each.partition,
                each.current_leader_epoch,
                each.offset,
                each.last_fetched_epoch,
                each.log_start,
                each.max_bytes,
                0,
            )
            for each in partitions
        ]
        parts.append(b"\0")
    parts.append(b"\1\1")  # nothing forgotten, no rack
    parts.append(_REPLICA_STATE.pack(1, 1, 13, replica, broker_epoch, 0))
    return frame_request(FETCH, FOLLOWER_FETCH_VERSION, correlation, client, b"".join(parts), tagged=True)
