"""Encodes values into record batches v2, and decodes the batches of a fetch response; written for speed.

A record of this run has a null key, the decimal digits of its value in ASCII, and one header, `floodmark`,
with the run's id. In topics of message formats v0 and v1, which have no headers, the value contains all of it
(harness/signature.py). Any other record is not ours: it is from another run, or in a control batch.
"""

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import crc32c

from floodmark.harness import record_batches
from floodmark.harness.record_batches import MAGIC, records
from floodmark.harness.signature import HEADER, header_ending, in_value, value_of

_FRAME = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_BODY = struct.Struct(">hiqqqhii")  # attributes .. record count
_GZIP = 1
NOT_IDEMPOTENT = (-1, -1, -1)

Why = Literal["checksum", "magic", "length"]


class Corrupt(Exception):
    """why: None: this reader may lack its compression. offset: its base offset, as far as its bytes say;
    behind: the position after it in the same data, by its length."""

    def __init__(self, words: str, why: Why | None) -> None:
        super().__init__(words)
        self.why, self.offset, self.behind = why, -1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    last_offset: int
    epoch: int  # -1 in formats v0 and v1
    values: tuple[tuple[int, int | None], ...]


def varint(number: int) -> bytes:
    """Zig-zag, as in the record format."""
    return uvarint((number << 1) ^ (number >> 63))


def uvarint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(values: Sequence[int], run_id: str, timestamp_ms: int, *, headers: bool = True,
           compressed: bool = False, producer: tuple[int, int, int] = NOT_IDEMPOTENT) -> bytes:
    """The leader fills in offset and epoch. headers: False for a topic of message format v0 or v1, whose
    leader converts the batch, and refuses headers with UNKNOWN_SERVER_ERROR. compressed: by gzip. producer:
    its id and epoch, and the first sequence number."""
    run, records = run_id.encode(), bytearray()
    record_ending = header_ending(run) if headers else b"\x00"
    for index, value in enumerate(values):
        content = b"%d" % value if headers else in_value(run, value)
        # attributes, timestamp delta, offset delta, key length -1, value length
        head = b"\x00\x00" + varint(index) + b"\x01" + varint(len(content))
        records += varint(len(head) + len(content) + len(record_ending))
        records += head
        records += content
        records += record_ending
    count = len(values)
    if compressed:
        records = bytearray(gzip.compress(records, compresslevel=1, mtime=0))
    body = _BODY.pack(_GZIP if compressed else 0, count - 1, timestamp_ms, timestamp_ms, *producer, count
                      ) + records
    length = _FRAME.size - record_batches.LENGTH_FROM + len(body)
    return _FRAME.pack(0, length, -1, MAGIC, crc32c.crc32c(body)) + body


def decode(data: bytes, run_id: str) -> Iterator[Batch]:
    """The complete batches of a fetch response; Kafka may cut off the last one, which is left out."""
    run, at = run_id.encode(), 0
    ending = header_ending(run)
    while (size := record_batches.size_of(data, at)) is None or 0 < size <= len(data) - at:
        base_offset, length = struct.unpack_from(">qi", data, at)
        try:
            if size is None:
                magic = data[at + record_batches.MAGIC_AT]
                raise Corrupt(f"not a batch at byte {at}: magic {magic}, length {length}",
                              "length" if magic <= MAGIC else "magic")
            yield _read(data, at, size, ending, run)
        except Corrupt as corrupt:
            corrupt.offset, corrupt.behind = base_offset, at + record_batches.LENGTH_FROM + length
            raise
        at += size


def offset_behind(data: bytes, corrupt: Corrupt, below: int) -> int | None:
    """The base offset of the batch after the corrupt one, if its length leads to one; else None."""
    if not 0 < corrupt.behind <= len(data) - _FRAME.size:
        return None
    (offset,) = struct.unpack_from(">q", data, corrupt.behind)
    return offset if max(corrupt.offset, 0) < offset < below else None


def _read(data: bytes, at: int, size: int, ending: bytes, run_id: bytes) -> Batch:
    own = record_batches.read_own_batch(data, at, size, ending)
    if own is not None:
        return Batch(last_offset=own.base_offset + len(own.values) - 1, epoch=own.epoch,
                     values=tuple(enumerate(own.values, own.base_offset)))
    header = record_batches.frame(data, at)
    assert header is not None, at  # size_of has accepted it
    if not header.crc_ok:
        raise Corrupt(f"the CRC of the batch at offset {header.base_offset} is wrong", "checksum")
    try:
        found = () if header.control else records(data, at, header)
    except record_batches.BatchError as error:
        ours_to_read = header.magic == MAGIC and header.codec is None
        raise Corrupt(str(error), "length" if ours_to_read else None) from error
    if not all(record.crc_ok for record in found):
        raise Corrupt(f"the CRC of a message before offset {header.last_offset} is wrong", "checksum")
    own_headers = ((), ((HEADER, run_id),))
    values = tuple((record.offset, value_of(record.value, record.headers, run_id)
                    if record.key is None and record.headers in own_headers else None) for record in found)
    return Batch(last_offset=header.last_offset, epoch=header.epoch, values=values)
