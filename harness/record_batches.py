"""Reads what Kafka stores and sends: record batches v2, and messages of formats v0 and v1; writes a run's own
batches, and recognizes its records.

It is written from the format's description and shares nothing with the broker's codec, so that the two check
each other.

A *batch* begins with an offset (8 bytes), a length (4) and 4 bytes that are the leader epoch in v2 and the
CRC in v0 and v1; then comes the magic, which is the format's number. In v2 a batch is a header and records;
in v0 and v1 it is one message, or a wrapper, which is a message whose value is compressed messages.

Rules
1. A batch is reported as it is stored: offset, epoch and CRC from the header, and whether the CRC is right.
2. The CRC does not cover base_offset and, in v2, the leader epoch.
3. `frame` returns None for bytes that are not a batch; records that cannot be read are a BatchError.
4. A wrapper's offset is that of its last message. Inside a wrapper, v1 has relative offsets (from 0, or from
   any number after compaction), and v0 has absolute ones.
5. A record of a run has a null key, the decimal digits of its value, and one header, `floodmark`, with the
   run's id. Formats v0 and v1 have no headers: there a record's value has all of it,
   `floodmark 0123456789abcdef 17`. Readers accept both in any format. Any other record was not sent by this
   run.
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import cramjam
from crc32c import crc32c

MAGIC = 2
MARK = b"floodmark"  # the name of our header
DIGITS_AT_MOST = 19  # values are below 2**63
HEADER = struct.Struct(">qiibIhiqqqhii")  # of a batch v2
HEADER_BYTES = 61
LENGTH_FROM = 12  # a batch's length counts the bytes after its own field
MAGIC_AT = 16
CRC_FROM = 21  # the CRC of v2 covers everything from the attributes on
CODEC_BITS = 0x07
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
NO_EPOCH = -1
NO_PRODUCER = -1
_START = struct.Struct(">qi4xb")
_OLD_CRC_FROM = 16  # the CRC of a message covers everything from the magic on
_OLD_BYTES = {0: 26, 1: 34}  # the size of a message without key and value; v1 has a timestamp
_KEY_AT = {0: 18, 1: 26}
_DELTA_AT = 23  # in a batch v2: the offset delta of its last record
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_NOT_PLAIN = CODEC_BITS | CONTROL_BIT | TRANSACTIONAL_BIT
_FEW = 64  # records, so that each offset's delta is one byte

Producer = tuple[int, int]  # the producer's id and epoch


class BatchError(ValueError):
    """The records of a batch cannot be read: it is damaged, or its compression is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Without its records. A wrapper's base_offset is its last message's; the first one is in its content."""

    magic: int
    base_offset: int
    last_offset: int
    epoch: int  # NO_EPOCH in v0 and v1
    crc: int
    crc_ok: bool
    attributes: int
    producer_id: int
    producer_epoch: int
    count: int  # of its records; 1 for a wrapper
    size: int

    @property
    def codec(self) -> str | None:
        bits = self.attributes & CODEC_BITS
        return _CODECS.get(bits, f"codec {bits}") if bits else None

    @property
    def control(self) -> bool:
        return self.magic == MAGIC and bool(self.attributes & CONTROL_BIT)

    @property
    def transactional(self) -> bool:
        return self.magic == MAGIC and bool(self.attributes & TRANSACTIONAL_BIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    crc_ok: bool = True  # a message inside a wrapper has a CRC of its own


def size_of(data: bytes, at: int) -> int | None:
    """Of the batch that seems to begin here; 0: too few bytes to know it; None: no batch begins here."""
    if at + _START.size > len(data):
        return 0
    base, length, magic = _START.unpack_from(data, at)
    size: int = LENGTH_FROM + length
    if base < 0:
        return None
    if magic == MAGIC:
        if at + _DELTA_AT >= len(data):
            return 0
        negative = data[at + _DELTA_AT] >= 0x80  # the delta of the last offset
        return None if negative or size < HEADER_BYTES else size
    return size if size >= _OLD_BYTES.get(magic, size + 1) else None


def last_offset(data: bytes, at: int) -> int:
    """The offset of the last record of the batch here, which must be complete."""
    base: int = _START.unpack_from(data, at)[0]
    if data[at + MAGIC_AT] != MAGIC:
        return base
    return base + int.from_bytes(data[at + _DELTA_AT:at + _DELTA_AT + 4], "big")


def frame(data: bytes, position: int) -> Frame | None:
    """The batch that begins here; None where there is no complete batch."""
    size = size_of(data, position)
    if not size or position + size > len(data):
        return None
    if data[position + MAGIC_AT] != MAGIC:
        base, _, crc, magic, attributes = struct.unpack_from(">qiIbb", data, position)
        intact = zlib.crc32(memoryview(data)[position + _OLD_CRC_FROM:position + size]) == crc
        return Frame(magic=magic, base_offset=base, last_offset=base, epoch=NO_EPOCH, crc=crc, crc_ok=intact,
                     attributes=attributes, producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH, count=1,
                     size=size)
    (base, _, epoch, _, crc, attributes, delta, _, _, producer, producer_epoch, _, count
     ) = HEADER.unpack_from(data, position)
    fits: bool = crc32c(memoryview(data)[position + CRC_FROM:position + size]) == crc
    return Frame(magic=MAGIC, base_offset=base, last_offset=base + delta, epoch=epoch, crc=crc, crc_ok=fits,
                 attributes=attributes, producer_id=producer, producer_epoch=producer_epoch, count=count,
                 size=size)


def records(data: bytes, position: int, header: Frame) -> list[Record]:
    """Read the records of the batch that `frame` found here, in order. BatchError if they cannot be read."""
    try:
        if header.magic != MAGIC:
            return _messages(data, position, header)
        body = data[position + HEADER_BYTES:position + header.size]
        if header.codec is not None:
            body = decompress(header.codec, body, magic=MAGIC)
        return _parsed(body, header)
    except (IndexError, ValueError, struct.error, cramjam.DecompressionError, EOFError, OSError,
            zlib.error) as error:
        why = error if header.codec is None else f"{header.codec}: {error}"
        raise BatchError(f"the records of the batch at offset {header.base_offset}: {why}") from error


def aborts(marker: Record) -> bool:
    """Whether a control record is an abort marker (type 0), not a commit marker (type 1)."""
    key = marker.key
    return key is not None and len(key) >= 4 and key[2:4] == b"\0\0"


# -- the records of a run -----------------------------------------------------------------------------------

_FRAME = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_BODY = struct.Struct(">hiqqqhii")  # attributes .. record count
_GZIP = 1
NOT_IDEMPOTENT = (-1, -1, -1)

Why = Literal["checksum", "magic", "length"]


def in_value(run_id: bytes, value: int) -> bytes:
    """The value of a record that cannot have headers."""
    return b"%b %b %d" % (MARK, run_id, value)


def header_ending(run_id: bytes) -> bytes:
    """The end of a record of format v2 that has our header alone; each length is a zig-zag varint."""
    return b"\x02" + bytes([2 * len(MARK)]) + MARK + bytes([2 * len(run_id)]) + run_id


def value_of(value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]], run_id: bytes) -> int | None:
    """The op's value, for a record of this run; None for any other record."""
    if value is None:
        return None
    digits = value
    if (MARK, run_id) not in headers:
        start = b"%b %b " % (MARK, run_id)
        if not value.startswith(start):
            return None
        digits = value[len(start):]
    return int(digits) if digits.isdigit() and len(digits) <= DIGITS_AT_MOST else None


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
    run, packed = run_id.encode(), bytearray()
    record_ending = header_ending(run) if headers else b"\x00"
    for index, value in enumerate(values):
        content = b"%d" % value if headers else in_value(run, value)
        # attributes, timestamp delta, offset delta, key length -1, value length
        head = b"\x00\x00" + varint(index) + b"\x01" + varint(len(content))
        packed += varint(len(head) + len(content) + len(record_ending))
        packed += head
        packed += content
        packed += record_ending
    count = len(values)
    if compressed:
        packed = bytearray(gzip.compress(packed, compresslevel=1, mtime=0))
    body = _BODY.pack(_GZIP if compressed else 0, count - 1, timestamp_ms, timestamp_ms, *producer, count
                      ) + packed
    length = _FRAME.size - LENGTH_FROM + len(body)
    return _FRAME.pack(0, length, -1, MAGIC, crc32c(body)) + body


def decode(data: bytes, run_id: str) -> Iterator[Batch]:
    """The complete batches of a fetch response; Kafka may cut off the last one, which is left out."""
    run, at = run_id.encode(), 0
    ending = header_ending(run)
    while (size := size_of(data, at)) is None or 0 < size <= len(data) - at:
        base_offset, length = struct.unpack_from(">qi", data, at)
        try:
            if size is None:
                magic = data[at + MAGIC_AT]
                raise Corrupt(f"not a batch at byte {at}: magic {magic}, length {length}",
                              "length" if magic <= MAGIC else "magic")
            yield _read(data, at, size, ending, run)
        except Corrupt as corrupt:
            corrupt.offset, corrupt.behind = base_offset, at + LENGTH_FROM + length
            raise
        at += size


def offset_behind(data: bytes, corrupt: Corrupt, below: int) -> int | None:
    """The base offset of the batch after the corrupt one, if its length leads to one; else None."""
    if not 0 < corrupt.behind <= len(data) - _FRAME.size:
        return None
    (offset,) = struct.unpack_from(">q", data, corrupt.behind)
    return offset if max(corrupt.offset, 0) < offset < below else None


def _read(data: bytes, at: int, size: int, ending: bytes, run_id: bytes) -> Batch:
    if (own := read_own_batch(data, at, size, ending)) is not None:
        return Batch(last_offset=own.base_offset + len(own.values) - 1, epoch=own.epoch,
                     values=tuple(enumerate(own.values, own.base_offset)))
    header = frame(data, at)
    assert header is not None, at  # size_of has accepted it
    if not header.crc_ok:
        raise Corrupt(f"the CRC of the batch at offset {header.base_offset} is wrong", "checksum")
    try:
        found = () if header.control else records(data, at, header)
    except BatchError as error:
        ours_to_read = header.magic == MAGIC and header.codec is None
        raise Corrupt(str(error), "length" if ours_to_read else None) from error
    if not all(record.crc_ok for record in found):
        raise Corrupt(f"the CRC of a message before offset {header.last_offset} is wrong", "checksum")
    own_headers = ((), ((MARK, run_id),))
    values = tuple((record.offset, value_of(record.value, record.headers, run_id)
                    if record.key is None and record.headers in own_headers else None) for record in found)
    return Batch(last_offset=header.last_offset, epoch=header.epoch, values=values)


class OwnBatch(NamedTuple):
    base_offset: int
    epoch: int
    values: list[int]
    crc: int
    producer: Producer


def read_own_batch(data: bytes, at: int, size: int, ending: bytes) -> OwnBatch | None:
    """Fast, for nearly all batches of a run: few plain, valid records that end so. None: another batch."""
    if data[at + MAGIC_AT] != MAGIC:
        return None
    (base, _, epoch, _, crc, attributes, delta, _, _, producer, producer_epoch, _, count
     ) = HEADER.unpack_from(data, at)
    if not 0 <= delta == count - 1 < _FEW or attributes & _NOT_PLAIN or base < 0:
        return None
    end = at + size
    body = at + HEADER_BYTES
    values = []
    for doubled in range(0, 2 * count, 2):
        if body + 2 > end:
            return None
        length = data[body]
        if length >= 0x80:  # two bytes, else a check below fails
            body += 1
            length += (data[body] - 1) << 7
        body += 1
        value_at, record_end = body + 5, body + length // 2
        value_end = record_end - len(ending)
        digits = data[value_at:value_end]
        if length & 1 or len(digits) > DIGITS_AT_MOST or not digits.isdigit():
            return None
        head = bytes((0, 0, doubled, 1, 2 * len(digits)))  # attributes, time, offset, no key
        if data[body:value_at] != head or data[value_end:record_end] != ending:
            return None
        values.append(int(digits))
        body = record_end
    if body != end or crc32c(data[at + CRC_FROM:end]) != crc:
        return None
    return OwnBatch(base, epoch, values, crc, (producer, producer_epoch))


# -- formats v0 and v1 --------------------------------------------------------------------------------------

def _messages(data: bytes, at: int, header: Frame) -> list[Record]:
    key, value = _key_and_value(data, at, header)
    if header.codec is None:
        return [Record(offset=header.base_offset, key=key, value=value)]
    if value is None:
        raise BatchError("the wrapper has no messages")
    inside = decompress(header.codec, value, magic=header.magic)
    wrapped: list[Record] = []
    position = 0
    while position < len(inside):
        inner = frame(inside, position)
        if inner is None or inner.magic != header.magic or inner.codec is not None:
            raise BatchError(f"no plain message of format v{header.magic} at byte {position} of the wrapper")
        key, value = _key_and_value(inside, position, inner)
        wrapped.append(Record(offset=inner.base_offset, key=key, value=value, crc_ok=inner.crc_ok))
        position += inner.size
    if not wrapped:
        raise BatchError("the wrapper has no messages")
    first = header.last_offset - wrapped[-1].offset if header.magic == 1 else 0
    if first < 0 or first + wrapped[-1].offset != header.last_offset:
        raise BatchError(f"the wrapper's last message has offset {wrapped[-1].offset}")
    return [Record(offset=first + one.offset, key=one.key, value=one.value, crc_ok=one.crc_ok)
            for one in wrapped]


def _key_and_value(data: bytes, at: int, header: Frame) -> tuple[bytes | None, bytes | None]:
    end = at + header.size
    key, at = _field(data, at + _KEY_AT[header.magic], end)
    value, at = _field(data, at, end)
    if at != end:
        raise BatchError(f"the message's fields end {end - at} bytes before the message")
    return key, value


def _field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    return _sliced(data, at + 4, struct.unpack_from(">i", data, at)[0], end)


def _sliced(data: bytes, at: int, length: int, end: int) -> tuple[bytes | None, int]:
    if length < 0:
        return None, at
    if at + length > end:
        raise BatchError("a field runs past the end")
    return data[at:at + length], at + length


# -- records of format v2 -----------------------------------------------------------------------------------

def _parsed(body: bytes, header: Frame) -> list[Record]:
    found: list[Record] = []
    at = 0
    for _ in range(header.count):
        length, at = _varint(body, at)
        end = at + length
        if length < 0 or end > len(body):
            raise BatchError(f"record {len(found)} of {header.count} runs past the end")
        found.append(_record(body, at, end, header.base_offset))
        at = end
    if at != len(body):
        raise BatchError(f"there are {len(body) - at} bytes after the last of {header.count} records")
    return found


def _record(body: bytes, at: int, end: int, base_offset: int) -> Record:
    _, at = _varint(body, at + 1)  # the timestamp's delta; before it one byte of attributes, unused
    delta, at = _varint(body, at)
    key, at = _sized(body, at)
    value, at = _sized(body, at)
    count, at = _varint(body, at)
    headers = []
    for _ in range(count):
        name, at = _sized(body, at)
        content, at = _sized(body, at)
        headers.append((name or b"", content))
    if at != end:
        raise BatchError(f"the record's fields end {end - at} bytes before the record")
    return Record(offset=base_offset + delta, key=key, value=value, headers=tuple(headers))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint; returns it and the position after it."""
    shift = number = 0
    while shift <= 63:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise BatchError("a varint has more than ten bytes")


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    return _sliced(data, at, length, len(data))


# -- compression --------------------------------------------------------------------------------------------
# gzip, snappy, lz4 and zstd, in the framings that Kafka's clients and brokers use.

_XERIAL = b"\x82SNAPPY\x00"  # Java's framing of snappy: separate blocks, each with its length
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT, _LZ4_BLOCK_SUMS, _LZ4_SIZE, _LZ4_DICTIONARY = 0x20, 0x10, 0x08, 0x01  # flags of a frame
_LZ4_PLAIN = 0x80000000  # the block is stored uncompressed


def decompress(codec: str, body: bytes, *, magic: int) -> bytes:
    """magic: that of the batch; lz4 is framed differently in format v0."""
    if codec == "lz4" and magic == 0:
        return _lz4_of_v0(body)
    if codec not in _DECOMPRESS:
        raise BatchError(f"compressed with {codec}, which Kafka's format does not have")
    return _DECOMPRESS[codec](body)


def _snappy(body: bytes) -> bytes:
    """Java's frame of blocks, or one raw block, which librdkafka writes."""
    if not body.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(body))
    blocks, at = [], len(_XERIAL) + 8  # then come two versions, four bytes each
    while at < len(body):
        (size,) = struct.unpack_from(">i", body, at)
        blocks.append(bytes(cramjam.snappy.decompress_raw(body[at + 4:at + 4 + size])))
        at += 4 + size
    return b"".join(blocks)


def _lz4_of_v0(body: bytes) -> bytes:
    """Decompress a frame block by block, without checking its header's checksum. In format v0, Kafka and its
    clients compute that checksum over the wrong bytes (KAFKA-3160), so lz4 libraries refuse the frame. As in
    Kafka, blocks must be independent."""
    flags, sizes = body[4], body[5]
    if body[:4] != _LZ4_FRAME or not flags & _LZ4_INDEPENDENT or flags & _LZ4_DICTIONARY:
        raise BatchError("lz4: not a frame of independent blocks")
    at = 7 + (8 if flags & _LZ4_SIZE else 0)
    buffer = bytearray(1 << (8 + 2 * (sizes >> 4 & 7)))
    blocks: list[bytes] = []
    while (size := struct.unpack_from("<I", body, at)[0]) != 0:
        block = body[at + 4:at + 4 + (size & ~_LZ4_PLAIN)]
        if not size & _LZ4_PLAIN:
            block = bytes(buffer[:cramjam.lz4.decompress_block_into(block, buffer)])
        blocks.append(block)
        at += 4 + (size & ~_LZ4_PLAIN) + (4 if flags & _LZ4_BLOCK_SUMS else 0)
    return b"".join(blocks)


_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "snappy": _snappy,
    "lz4": lambda body: bytes(cramjam.lz4.decompress(body)),
    "zstd": lambda body: bytes(cramjam.zstd.decompress(body)),
}
