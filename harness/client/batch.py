"""Encodes values into record batches v2, and decodes them, and messages v0 and v1; written for speed.

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
from kafka.errors import KafkaError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch

from floodmark.harness.signature import HEADER, in_value, value_of

_FRAME = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_BODY = struct.Struct(">hiqqqhii")  # attributes .. record count
_HEAD_BYTES = _FRAME.size + _BODY.size
_OVERHEAD_BYTES = 12  # base offset and length, which the length field does not count
_CONTROL = 0x20
_CODEC = 0x07
_GZIP = 1
_MAGIC = 2
_OLD_MAGICS = (0, 1)
_NO_HEADERS = b"\x00"
NOT_IDEMPOTENT = (-1, -1, -1)

Why = Literal["checksum", "magic", "length"]


class Corrupt(Exception):
    """A batch that cannot be read. why: its checksum or length is wrong, or its magic is of no format; None:
    this reader may lack its compression. offset: its base offset, as far as its bytes say; behind: the
    position after it in the same data, by its length."""

    def __init__(self, words: str, why: Why | None = None, offset: int = -1, behind: int = 0) -> None:
        super().__init__(words)
        self.why, self.offset, self.behind = why, offset, behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One decoded batch, or one message v0 or v1. values: (offset, value), with None for a record that is not
    ours.
    """

    last_offset: int
    epoch: int  # -1 in formats v0 and v1
    values: tuple[tuple[int, int | None], ...]


def varint(number: int) -> bytes:
    """Encode a signed varint (zig-zag), as in the record format."""
    return uvarint((number << 1) ^ (number >> 63))


def uvarint(number: int) -> bytes:
    """Encode an unsigned varint."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def ending(run_id: str) -> bytes:
    """The bytes at the end of every record of a run: its headers."""
    value = run_id.encode()
    return varint(1) + varint(len(HEADER)) + HEADER + varint(len(value)) + value


def encode(values: Sequence[int], record_ending: bytes, timestamp_ms: int, *, compressed: bool = False,
           producer: tuple[int, int, int] = NOT_IDEMPOTENT) -> bytes:
    """Encode one batch; the leader fills in offset and epoch. compressed: by gzip. producer: its id and
    epoch, and the first sequence number."""
    return _encode([b"%d" % value for value in values], record_ending, timestamp_ms, compressed=compressed,
                   producer=producer)


def encode_without_headers(values: Sequence[int], run_id: str, timestamp_ms: int) -> bytes:
    """Encode one batch for a topic of message format v0 or v1. The leader converts it, and refuses headers
    with UNKNOWN_SERVER_ERROR."""
    return _encode([in_value(run_id.encode(), value) for value in values], _NO_HEADERS, timestamp_ms)


def _encode(contents: Sequence[bytes], record_ending: bytes, timestamp_ms: int, *, compressed: bool = False,
            producer: tuple[int, int, int] = NOT_IDEMPOTENT) -> bytes:
    records = bytearray()
    for index, content in enumerate(contents):
        # attributes, timestamp delta, offset delta, key length -1, value length
        head = b"\x00\x00" + varint(index) + b"\x01" + varint(len(content))
        records += varint(len(head) + len(content) + len(record_ending))
        records += head
        records += content
        records += record_ending
    count = len(contents)
    if compressed:
        records = bytearray(gzip.compress(records, compresslevel=1, mtime=0))
    codec = _GZIP if compressed else 0
    body = _BODY.pack(codec, count - 1, timestamp_ms, timestamp_ms, *producer, count) + records
    return _FRAME.pack(0, len(body) + _FRAME.size - _OVERHEAD_BYTES, -1, _MAGIC, crc32c.crc32c(body)) + body


def decode(data: bytes, record_ending: bytes, run_id: str = "") -> Iterator[Batch]:
    """Decode the complete batches of a fetch response; Kafka may cut off the last one, which is left out.
    Without run_id, no record is recognized by its value alone."""
    position = 0
    while len(data) - position >= _FRAME.size:
        base_offset, length, _, magic, _ = _FRAME.unpack_from(data, position)
        end = position + _OVERHEAD_BYTES + length
        old = magic in _OLD_MAGICS
        if not old and (magic != _MAGIC or length < _HEAD_BYTES - _OVERHEAD_BYTES):
            raise Corrupt(f"not a batch at byte {position}: magic {magic}, length {length}",
                          "magic" if magic != _MAGIC else "length", base_offset, end)
        if end > len(data):
            return
        try:
            if old:
                yield _read_message(data[position:end], magic, run_id)
            else:
                yield _read_batch(data[position:end], record_ending, run_id)
        except Corrupt as corrupt:
            raise Corrupt(str(corrupt), corrupt.why, base_offset, end) from corrupt
        position = end


def offset_behind(data: bytes, corrupt: Corrupt, below: int) -> int | None:
    """The base offset of the batch after the corrupt one in the same data; None: there is none, or the
    corrupt one's length does not lead to one."""
    if not 0 < corrupt.behind <= len(data) - _FRAME.size:
        return None
    (offset,) = struct.unpack_from(">q", data, corrupt.behind)
    return offset if max(corrupt.offset, 0) < offset < below else None


def _read_batch(data: bytes, record_ending: bytes, run_id: str) -> Batch:
    base_offset, _, epoch, _, crc = _FRAME.unpack_from(data)
    body = data[_FRAME.size:]
    if crc32c.crc32c(body) != crc:
        raise Corrupt(f"the CRC of the batch at offset {base_offset} is wrong", "checksum")
    attributes, delta, *_, count = _BODY.unpack_from(body)
    if attributes & _CONTROL:
        values: tuple[tuple[int, int | None], ...] = ()
    elif attributes & _CODEC:
        values = _read_compressed_values(data, record_ending, run_id)
    else:
        values = _read_values(body, base_offset, count, record_ending, run_id)
    return Batch(last_offset=base_offset + delta, epoch=epoch, values=values)


def _read_values(body: bytes, base_offset: int, count: int, record_ending: bytes, run_id: str
                 ) -> tuple[tuple[int, int | None], ...]:
    values = []
    position = _BODY.size
    try:
        for _ in range(count):
            length, position = _read_varint(body, position)
            end = position + length
            if length < 0 or end > len(body):
                raise Corrupt(f"a record of the batch at offset {base_offset} runs over its end", "length")
            _, at = _read_varint(body, position + 1)  # after the attributes: the timestamp delta
            delta, at = _read_varint(body, at)
            key_length, at = _read_varint(body, at)
            at += max(key_length, 0)
            value_length, at = _read_varint(body, at)
            content, rest = body[at:at + max(value_length, 0)], body[at + max(value_length, 0):end]
            value = None
            if key_length == -1 and rest == record_ending:
                value = int(content) if content.isdigit() else None
            elif key_length == -1 and rest == _NO_HEADERS:
                value = _read_value_alone(content, run_id)
            values.append((base_offset + delta, value))
            position = end
    except IndexError as error:
        words = f"the batch at offset {base_offset} has fewer records than its count"
        raise Corrupt(words, "length") from error
    return tuple(values)


def _read_value_alone(content: bytes | None, run_id: str) -> int | None:
    """The value of a record without headers; None: it is not ours."""
    return value_of(content, (), run_id.encode()) if run_id else None


def _read_message(data: bytes, magic: int, run_id: str) -> Batch:
    """Read a message of format v0 or v1, or the messages inside it, by kafka-python. Its offset is that of
    the last message."""
    try:
        message = LegacyRecordBatch(data, magic)
        if not message.validate_crc():
            raise Corrupt(f"the CRC of the message at offset {message.base_offset} is wrong", "checksum")
        values = tuple(
            (record.offset, _read_value_alone(record.value, run_id) if record.key is None else None)
            for record in message)
        return Batch(last_offset=message.base_offset, epoch=-1, values=values)
    except (AssertionError, IndexError, ValueError, struct.error, KafkaError) as error:
        raise Corrupt(f"a message of format v{magic} that cannot be read: {error}") from error


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _read_compressed_values(data: bytes, record_ending: bytes, run_id: str
                            ) -> tuple[tuple[int, int | None], ...]:
    """Read a compressed batch by kafka-python; it need not be fast."""
    values = []
    try:
        records = list(DefaultRecordBatch(data))
    except Exception as error:  # of any library for any compression
        raise Corrupt(f"a compressed batch that cannot be read: {error}") from error
    for record in records:
        headers = b"".join(
            varint(len(key.encode())) + key.encode() + varint(len(value or b"")) + (value or b"")
            for key, value in record.headers
        )
        ours = record.key is None and varint(len(record.headers)) + headers == record_ending
        digits = record.value or b""
        value = int(digits) if ours and digits.isdigit() else None
        if record.key is None and not record.headers:
            value = _read_value_alone(digits, run_id)
        values.append((record.offset, value))
    return tuple(values)
