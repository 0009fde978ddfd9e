"""Record batches, and messages of the formats before them, as kafka-python builds them."""

import struct
import warnings
from collections.abc import Sequence
from typing import Any

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated call
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

NOW_MS = 1_700_000_000_000


def batch(base: int, values: Sequence[bytes | None], *, epoch: int = 0, codec: int = 0, producer: int = -1,
          producer_epoch: int = -1, sequence: int = -1, transactional: bool = False, headers: Any = (),
          key: bytes | None = None, times: Sequence[int] | None = None) -> bytes:
    """times: each record's; a millisecond apart if not given."""
    builder = DefaultRecordBatchBuilder(
        2, codec, transactional, producer, producer_epoch, sequence, 1 << 24)
    for at, value in enumerate(values):
        builder.append(at, NOW_MS + at if times is None else times[at], key, value, list(headers))
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


def messages(magic: int, base: int, values: Sequence[bytes | None], *, codec: int = 0,
             stamped: int | None = None, key: bytes | None = None) -> bytes:
    """Of format v0 or v1 as a client makes them; a wrapper has the offset of its last message, unless
    `stamped` is given."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for at, value in enumerate(values):
        offset = at if codec and magic == 1 else base + at
        builder.append(offset, NOW_MS + at, key, value)
    data = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", data, 0, base + len(values) - 1 if stamped is None else stamped)
    return bytes(data)
