"""Finds offsets by timestamp: the first record not older than a time, or the one with the greatest timestamp.

Rules
1. Batch headers are read in order, without an index: the oldest batch that reaches the time is the one.
2. Inside it the record itself is found where the batch is not compressed, or by gzip, which Python can read.
   In any other batch its first record is returned (for MAX_TIMESTAMP: its last), so that a reader who asks
   for a time may begin some records early, never late.
"""

import zlib
from dataclasses import dataclass
from struct import Struct

from floodmark.broker.storage.local_log import LocalLog
from floodmark.broker.wire.record_batch import HEADER_BYTES

EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP = -2, -1, -3  # ListOffsets' special timestamps
_HEAD = Struct(">q4xi5xhiqq")  # base offset, epoch, attributes, last offset delta, base and max timestamp
_CODEC, _GZIP, _APPEND_TIME = 0x07, 1, 0x08
_GZIP_WINDOW = 31
_BYTES_MAX = 64 << 20  # of a batch once it is decompressed
_NO_TIME = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampAndOffset:
    """A record's offset, timestamp (ms) and leader epoch."""

    offset: int
    timestamp: int
    epoch: int


def find_offset(log: LocalLog, timestamp: int, end: int) -> TimestampAndOffset | None:
    """The first record below offset `end` whose timestamp is at least this one (MAX_TIMESTAMP: the first
    of those with the greatest). None if there is none."""
    best: tuple[TimestampAndOffset, int] | None = None
    for data, start, stop in log.batches():
        base, epoch, attributes, delta, _, max_time = _HEAD.unpack_from(data, start)
        if base >= end:
            break
        if timestamp != MAX_TIMESTAMP and max_time >= timestamp:
            return _search_batch(data[start:stop], timestamp)
        if timestamp == MAX_TIMESTAMP and max_time != _NO_TIME and (best is None or max_time > best[1]):
            last = TimestampAndOffset(offset=base + delta, timestamp=max_time, epoch=epoch)
            known = attributes & _CODEC in (0, _GZIP)
            best = (_search_batch(data[start:stop], max_time) if known else last), max_time
    return None if best is None else best[0]


def _search_batch(batch: bytes, timestamp: int) -> TimestampAndOffset:
    """Find the record in a batch that has one with at least this timestamp."""
    base, epoch, attributes, _, base_time, max_time = _HEAD.unpack_from(batch)
    if attributes & _APPEND_TIME:
        return TimestampAndOffset(offset=base, timestamp=max_time, epoch=epoch)
    first = TimestampAndOffset(offset=base, timestamp=base_time, epoch=epoch)
    try:
        records = _decompress_records(batch, attributes & _CODEC)
        at = 0
        while records is not None and at < len(records):
            size, at = _read_varint(records, at)
            time_delta, delta_at = _read_varint(records, at + 1)  # behind the attributes
            if base_time + time_delta >= timestamp:
                delta, _ = _read_varint(records, delta_at)
                return TimestampAndOffset(offset=base + delta, timestamp=base_time + time_delta, epoch=epoch)
            at += size
    except (IndexError, zlib.error):
        pass  # the producer wrote no valid records: the broker never decodes them
    return first


def _decompress_records(batch: bytes, codec: int) -> bytes | None:
    if codec == 0:
        return batch[HEADER_BYTES:]
    if codec == _GZIP:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(batch[HEADER_BYTES:], _BYTES_MAX)
    return None


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise IndexError("no varint")
