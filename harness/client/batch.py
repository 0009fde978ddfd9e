"""Encodes values into record batches v2, and decodes them; written for speed.

A record of this run has a null key, the decimal digits of its value in ASCII, and one header, `floodmark`,
with the run's id. Any other record is not ours: it is from another run, or in a control batch.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import crc32c
from kafka.record.default_records import DefaultRecordBatch

HEADER = b"floodmark"
_FRAME = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_BODY = struct.Struct(">hiqqqhii")  # attributes .. record count
_HEAD_BYTES = _FRAME.size + _BODY.size
_OVERHEAD_BYTES = 12  # base offset and length, which the length does not count
_CONTROL = 0x20
_CODEC = 0x07
_MAGIC = 2


class Corrupt(Exception):
    """The bytes are no record batch v2, or their CRC does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch as read. `values` are (offset, value), None for a record that is not ours."""

    last_offset: int
    epoch: int
    values: tuple[tuple[int, int | None], ...]


def varint(number: int) -> bytes:
    """Encode a signed varint (zig-zag), as in the record format."""
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


def ending(run_id: str) -> bytes:
    """The end of every record of a run: its headers."""
    value = run_id.encode()
    return varint(1) + varint(len(HEADER)) + HEADER + varint(len(value)) + value


def encode(values: Sequence[int], record_ending: bytes, timestamp_ms: int) -> bytes:
    """Encode one batch, neither compressed nor idempotent; the leader fills in offset and epoch."""
    records = bytearray()
    for index, value in enumerate(values):
        digits = b"%d" % value
        # attributes, timestamp delta, offset delta, key length -1, value length
        head = b"\x00\x00" + varint(index) + b"\x01" + varint(len(digits))
        records += varint(len(head) + len(digits) + len(record_ending))
        records += head
        records += digits
        records += record_ending
    count = len(values)
    body = _BODY.pack(0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + records
    return _FRAME.pack(0, len(body) + _FRAME.size - _OVERHEAD_BYTES, -1, _MAGIC, crc32c.crc32c(body)) + body


def decode(data: bytes, record_ending: bytes) -> Iterator[Batch]:
    """Decode the complete batches of a fetch response; Kafka may cut off the last one, which is left out."""
    position = 0
    while len(data) - position >= _HEAD_BYTES:
        base_offset, length, epoch, magic, crc = _FRAME.unpack_from(data, position)
        end = position + _OVERHEAD_BYTES + length
        if magic != _MAGIC or length < _HEAD_BYTES - _OVERHEAD_BYTES:
            raise Corrupt(f"no batch of format 2 at byte {position}: magic {magic}, length {length}")
        if end > len(data):
            return
        body = data[position + _FRAME.size:end]
        if crc32c.crc32c(body) != crc:
            raise Corrupt(f"the CRC of the batch at offset {base_offset} does not fit its bytes")
        attributes, delta, *_, count = _BODY.unpack_from(body)
        if attributes & _CONTROL:
            values: tuple[tuple[int, int | None], ...] = ()
        elif attributes & _CODEC:
            values = _read_compressed_values(data[position:end], record_ending)
        else:
            values = _read_values(body, base_offset, count, record_ending)
        yield Batch(last_offset=base_offset + delta, epoch=epoch, values=values)
        position = end


def _read_values(body: bytes, base_offset: int, count: int, record_ending: bytes
            ) -> tuple[tuple[int, int | None], ...]:
    values = []
    position = _BODY.size
    try:
        for _ in range(count):
            length, position = _read_varint(body, position)
            end = position + length
            if length < 0 or end > len(body):
                raise Corrupt(f"a record of the batch at offset {base_offset} runs over its end")
            _, at = _read_varint(body, position + 1)  # behind the attributes: the timestamp delta
            delta, at = _read_varint(body, at)
            key_length, at = _read_varint(body, at)
            at += max(key_length, 0)
            value_length, at = _read_varint(body, at)
            ours = key_length == -1 and value_length > 0 and body[at + value_length:end] == record_ending
            digits = body[at:at + value_length] if ours else b""
            values.append((base_offset + delta, int(digits) if digits.isdigit() else None))
            position = end
    except IndexError as error:
        raise Corrupt(f"the batch at offset {base_offset} holds fewer records than it says") from error
    return tuple(values)


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


def _read_compressed_values(data: bytes, record_ending: bytes) -> tuple[tuple[int, int | None], ...]:
    """Read a compressed batch by kafka-python: it is rare, because we never write one."""
    values = []
    for record in DefaultRecordBatch(data):
        headers = b"".join(
            varint(len(key.encode())) + key.encode() + varint(len(value or b"")) + (value or b"")
            for key, value in record.headers
        )
        ours = record.key is None and varint(len(record.headers)) + headers == record_ending
        digits = record.value or b""
        values.append((record.offset, int(digits) if ours and digits.isdigit() else None))
    return tuple(values)
