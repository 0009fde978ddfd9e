"""Reads record batches v2 (`parse_batches`) and writes a batch's offset and epoch into it (`stamp_batch`).

Rules
1. Only the 61-byte frame is read; the records stay opaque, compressed or not, and are never decoded here.
2. Every batch that comes from outside has its CRC-32C verified. The CRC covers attributes to the end, so
   base offset, length, leader epoch and magic are outside it: a leader rewrites offset and epoch without a
   new CRC.
3. Followers get a leader's bytes: `stamp_batch` changes nothing but bytes 0-7 and 12-15.
4. A fetch response may end in the middle of a batch (Kafka cuts at max bytes): a reader passes
   `partial_tail=True`, and the fragment is left out. A produce request may not.

Layout (all big endian): base offset i64 | length i32 of what follows | partition leader epoch i32 | magic i8
| crc u32 | attributes i16 | last offset delta i32 | base timestamp i64 | max timestamp i64 | producer id i64
| producer epoch i16 | base sequence i32 | count i32 | records.
"""

from struct import Struct

from crc32c import crc32c

from floodmark.broker.protocol.messages import Batch

HEADER_BYTES = 61
LENGTH_END = 12  # base offset and length: what must be there to know how long a batch is
CRC_START = 21  # the CRC covers from here (attributes) to the end
MAGIC = 2
_MIN_LENGTH = HEADER_BYTES - LENGTH_END
# base offset, length, epoch, magic, crc, attributes (skipped), last offset delta, times (skipped),
# producer, count
_FRAME = Struct(">qiibI2xi16xqhii")
_LENGTH = Struct(">i")
_HEAD = Struct(">qii")


class CorruptBatch(Exception):
    """The bytes at `position` are no complete, valid record batch v2; `why` says what is wrong with them."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"no valid record batch at byte {position}: {why}")
        self.position = position
        self.why = why


class BatchTooLarge(Exception):
    """A batch is longer than max.message.bytes allows (Kafka's error 10, MESSAGE_TOO_LARGE)."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a record batch of {size} bytes, where {limit} are allowed")
        self.size = size
        self.limit = limit


def parse_batches(
    data: bytes | memoryview, *, max_batch_bytes: int | None = None, partial_tail: bool = False
) -> list[Batch]:
    """The batches of `data`, in order, each with its own bytes.

    Raises CorruptBatch with the byte position of the first that is bad, BatchTooLarge with its size. With
    partial_tail a last batch that is cut short is left out; b"" has no batches. Base offset and epoch are
    those in the header (a client's batches begin at 0).
    """
    view = memoryview(data)
    size = len(view)
    batches: list[Batch] = []
    position = 0
    while position < size:
        end = batch_end(view, position)
        if end > size:
            if partial_tail:
                break
            raise CorruptBatch(position, f"cut short: {size - position} of {end - position} bytes")
        if max_batch_bytes is not None and end - position > max_batch_bytes:
            raise BatchTooLarge(end - position, max_batch_bytes)
        body = data if position == 0 and end == size and type(data) is bytes else bytes(view[position:end])
        batches.append(_parse_frame(view, position, end, body))
        position = end
    return batches


def batch_end(view: memoryview, position: int) -> int:
    """Where the batch at `position` ends by its own length field, which may be beyond the buffer.

    A fragment too short to say is taken to need a whole header. Raises CorruptBatch on an impossible length.
    """
    if len(view) - position < LENGTH_END:
        return position + HEADER_BYTES
    length: int = _LENGTH.unpack_from(view, position + 8)[0]
    if length < _MIN_LENGTH:
        raise CorruptBatch(position, f"length {length} is less than a header's {_MIN_LENGTH}")
    return position + LENGTH_END + length


def read_frame(view: memoryview, position: int, end: int) -> Batch:
    """The whole batch between `position` and `end`, verified, without its bytes. Raises CorruptBatch."""
    return _parse_frame(view, position, end, b"")


def read_unverified_frame(view: memoryview, position: int) -> Batch:
    """Read the header of the batch at `position` without verifying it. CorruptBatch where there cannot
    be a header."""
    if len(view) - position < HEADER_BYTES:
        raise CorruptBatch(position, f"torn: {len(view) - position} bytes")
    found = _FRAME.unpack_from(view, position)
    base, _, epoch, magic, _, delta, producer, producer_epoch, sequence, _ = found
    if magic != MAGIC or base < 0 or delta < 0:
        raise CorruptBatch(position, f"magic {magic}, base offset {base}, last offset delta {delta}")
    return Batch(base_offset=base, last_offset=base + delta, epoch=epoch, producer_id=producer,
                 producer_epoch=producer_epoch, base_sequence=sequence)


def _parse_frame(view: memoryview, position: int, end: int, body: bytes) -> Batch:
    (base, _, epoch, magic, crc, delta,
     producer, producer_epoch, sequence, count) = _FRAME.unpack_from(view, position)
    if magic != MAGIC:
        raise CorruptBatch(position, f"magic {magic}, only {MAGIC} is supported")
    if crc32c(view[position + CRC_START:end]) != crc:
        raise CorruptBatch(position, f"CRC-32C is not the {crc:#010x} that the header says")
    # A log that is never compacted has no holes inside a batch.
    if count < 1 or delta != count - 1:
        raise CorruptBatch(position, f"{count} records but last offset delta {delta}")
    if base < 0:
        raise CorruptBatch(position, f"base offset {base}")
    return Batch(base_offset=base, last_offset=base + delta, epoch=epoch, data=body, producer_id=producer,
                 producer_epoch=producer_epoch, base_sequence=sequence)


def stamp_batch(batch: Batch) -> bytes:
    """The batch's bytes with its base offset and leader epoch in the header; the CRC stays valid."""
    data = batch.data
    base, length, epoch = _HEAD.unpack_from(data)
    if base == batch.base_offset and epoch == batch.epoch:
        return data
    return _HEAD.pack(batch.base_offset, length, batch.epoch) + data[16:]
