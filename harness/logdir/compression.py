"""Decompresses gzip, snappy, lz4 and zstd in the framings that Kafka's clients and brokers use.

Raises: DecompressionError, for bytes that are damaged or in a framing that Kafka does not know.
"""

import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam

_XERIAL = b"\x82SNAPPY\x00"  # Java's framing of snappy: separate blocks, each with its length
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT, _LZ4_BLOCK_SUMS, _LZ4_SIZE, _LZ4_DICTIONARY = 0x20, 0x10, 0x08, 0x01  # flags of a frame
_LZ4_PLAIN = 0x80000000  # the block is stored uncompressed


class DecompressionError(ValueError):
    """These bytes cannot be decompressed."""


def decompress(codec: str, body: bytes, *, magic: int) -> bytes:
    """Decompress the body. magic: the format of the batch; lz4 is framed differently in format v0."""
    try:
        if codec == "lz4" and magic == 0:
            return _lz4_of_v0(body)
        if (known := _CODECS.get(codec)) is not None:
            return known(body)
    except (cramjam.DecompressionError, IndexError, EOFError, OSError, ValueError, struct.error,
            zlib.error) as error:
        raise DecompressionError(f"{codec}: {error}") from error
    raise DecompressionError(f"compressed with {codec}, which Kafka's format does not have")


def _snappy(body: bytes) -> bytes:
    """Decompress Java's frame of blocks, or one raw block, which librdkafka writes."""
    if not body.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(body))
    blocks, at = [], len(_XERIAL) + 8  # then come two versions, four bytes each
    while at < len(body):
        (size,) = struct.unpack_from(">i", body, at)
        blocks.append(bytes(cramjam.snappy.decompress_raw(body[at + 4:at + 4 + size])))
        at += 4 + size
    return b"".join(blocks)


def _lz4_of_v0(body: bytes) -> bytes:
    """Decompress a frame block by block, without checking its header's checksum.

    In format v0, Kafka and its clients compute that checksum over the wrong bytes (KAFKA-3160), so lz4
    libraries refuse the frame. As in Kafka, blocks must be independent.
    """
    flags, sizes = body[4], body[5]
    if body[:4] != _LZ4_FRAME or not flags & _LZ4_INDEPENDENT or flags & _LZ4_DICTIONARY:
        raise DecompressionError("lz4: not a frame of independent blocks")
    at = 7 + (8 if flags & _LZ4_SIZE else 0)
    buffer = bytearray(1 << (8 + 2 * (sizes >> 4 & 7)))
    blocks: list[bytes] = []
    while True:
        (size,) = struct.unpack_from("<I", body, at)
        if size == 0:
            return b"".join(blocks)
        block = body[at + 4:at + 4 + (size & ~_LZ4_PLAIN)]
        if not size & _LZ4_PLAIN:
            block = bytes(buffer[:cramjam.lz4.decompress_block_into(block, buffer)])
        blocks.append(block)
        at += 4 + (size & ~_LZ4_PLAIN) + (4 if flags & _LZ4_BLOCK_SUMS else 0)


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "snappy": _snappy,
    "lz4": lambda body: bytes(cramjam.lz4.decompress(body)),
    "zstd": lambda body: bytes(cramjam.zstd.decompress(body)),
}
