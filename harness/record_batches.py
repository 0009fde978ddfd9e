"""Kafka's record batch v2, read: frames, checksums, records, compression. The harness's own codec.

Written from the format alone and sharing nothing with the broker's, so that the two check each other.

Rules
1. What is stored is told as it is stored: offset, epoch and CRC from the header, and whether the CRC fits.
2. base_offset and the leader epoch lie outside the CRC: they are never vouched for by it.
3. Bytes that do not frame a batch are no batch (`frame` says None); records not to be had are a BatchError.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

HEADER_BYTES = 61
LENGTH_FROM = 12  # a batch's length counts the bytes after its own field
CRC_FROM = 21  # the CRC covers everything from the attributes on
MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")
CODEC_BITS = 0x07
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"  # how Java frames snappy: blocks of their own, each with its length


class BatchError(ValueError):
    """The records of a batch cannot be had: it is damaged, or compressed by something unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The header of one batch. `size` is that of the whole batch in bytes."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    crc_ok: bool
    attributes: int
    producer_id: int
    count: int
    size: int

    @property
    def codec(self) -> str | None:
        """The name of the compression; None: none."""
        bits = self.attributes & CODEC_BITS
        return _CODECS.get(bits, f"codec {bits}") if bits else None

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def frame(data: bytes, position: int) -> Frame | None:
    """The batch that begins here and is there to its last byte; None where none does."""
    if position + HEADER_BYTES > len(data):
        return None
    (base, length, epoch, magic, crc, attributes, delta, _, _, producer, _, _, count
     ) = HEADER.unpack_from(data, position)
    end = position + LENGTH_FROM + length
    if magic != MAGIC or length < HEADER_BYTES - LENGTH_FROM or end > len(data) or base < 0 or delta < 0:
        return None
    fits: bool = crc32c(memoryview(data)[position + CRC_FROM:end]) == crc
    return Frame(base_offset=base, last_offset=base + delta, epoch=epoch, crc=crc, crc_ok=fits,
                 attributes=attributes, producer_id=producer, count=count, size=LENGTH_FROM + length)


def records(data: bytes, position: int, header: Frame) -> list[Record]:
    """The records of the batch that `frame` found here, in order. BatchError if they cannot be had."""
    body = data[position + HEADER_BYTES:position + header.size]
    try:
        if header.codec is not None:
            body = _decompressed(header.codec, body)
        return _parsed(body, header)
    except (IndexError, ValueError, OSError, struct.error, zlib.error) as error:
        raise BatchError(f"the records of the batch at offset {header.base_offset}: {error}") from error


def aborts(marker: Record) -> bool:
    """Whether a control record ends its transaction by an abort (type 0), not by a commit (type 1)."""
    key = marker.key
    return key is not None and len(key) >= 4 and key[2:4] == b"\0\0"


def is_legacy(data: bytes, position: int) -> bool:
    """Whether a message of format v0 or v1 stands here, its own CRC-32 fitting."""
    if position + 26 > len(data):
        return False
    _, length, crc, magic = struct.unpack_from(">qiIb", data, position)
    end = position + LENGTH_FROM + length
    whole = length >= 14 and end <= len(data)
    return magic in (0, 1) and whole and zlib.crc32(data[position + 16:end]) == crc


# -- records ------------------------------------------------------------------------------------------------

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
        raise BatchError(f"{len(body) - at} bytes after the last of {header.count} records")
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
        raise BatchError(f"a record's fields end {end - at} bytes before the record")
    return Record(offset=base_offset + delta, key=key, value=value, headers=tuple(headers))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise BatchError("a varint of more than ten bytes")


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    if at + length > len(data):
        raise BatchError("a field runs past the end")
    return data[at:at + length], at + length


# -- compression --------------------------------------------------------------------------------------------

def _decompressed(codec: str, body: bytes) -> bytes:
    decompress = _DECOMPRESS.get(codec)
    if decompress is None:
        raise BatchError(f"compressed by {codec}, which Kafka's format does not have")
    return decompress(body)


def _gzip(body: bytes) -> bytes:
    return zlib.decompress(body, wbits=31)


def _snappy(body: bytes) -> bytes:
    if not body.startswith(_XERIAL):
        return _raw_snappy(body)
    blocks, at = [], len(_XERIAL) + 8  # then come two versions, four bytes each
    while at < len(body):
        (size,) = struct.unpack_from(">i", body, at)
        blocks.append(_raw_snappy(body[at + 4:at + 4 + size]))
        at += 4 + size
    return b"".join(blocks)


def _raw_snappy(block: bytes) -> bytes:
    import pyarrow  # here, for it takes a third of a second and few logs are compressed

    size = shift = 0
    for byte in block[:5]:  # the preamble: how long it will be, as a plain varint
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    plain: bytes = pyarrow.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
    return plain


def _streamed(codec: str) -> Callable[[bytes], bytes]:
    def decompress(body: bytes) -> bytes:
        import pyarrow  # as above

        with pyarrow.CompressedInputStream(pyarrow.BufferReader(body), codec) as stream:
            plain: bytes = stream.read()
        return plain

    return decompress


_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip, "snappy": _snappy, "lz4": _streamed("lz4"), "zstd": _streamed("zstd"),
}
