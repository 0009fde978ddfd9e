"""Reads the rows of a dump (logs/NODE.jsonl) and a replica's state from a Kafka log directory.

Rules
1. Rows are ordered by partition and offset, from log_start. A record that this run sent has a value
   (recognized as signature.py describes); any other record has value null.
2. A tail that is not a batch is left out and counted as torn bytes. For a node that was not running, so is a
   last batch with a wrong CRC, because recovery would remove it. Any other wrong CRC is reported.
3. A log that cannot be read is a FloodmarkError, never an empty log: a missing record would be judged as a
   loss.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crc32c import crc32c

from floodmark.harness.logdir.checkpoints import UNREADABLE, Epochs, read_epochs, read_offsets
from floodmark.harness.logdir.record_batches import (
    CODEC_BITS,
    CONTROL_BIT,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchError,
    Frame,
    frame,
    records,
)
from floodmark.harness.logdir.resends import Producer, Resends
from floodmark.harness.logdir.segments import Segment, batches_of, end_of, refuse, segments_of
from floodmark.harness.logdir.transactions import Transactions, transactions_of
from floodmark.harness.signature import DIGITS_AT_MOST, value_of
from floodmark.harness.signature import HEADER as HEADER_NAME

_NOT_SIMPLE = CODEC_BITS | CONTROL_BIT | TRANSACTIONAL_BIT  # attributes that the fast path does not handle
_FEW = 64  # records, so that each offset's delta is one byte


class Place(Protocol):
    """A partition: its key in the history and its folder's name (protocols.PartitionSpec is one)."""

    @property
    def key(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The state of one replica by its files. leo is exclusive; epochs as checkpointed, and UNREADABLE only
    beside records that have an epoch."""

    log_start: int
    leo: int
    torn_bytes: int
    epochs: Epochs
    checkpointed_hw: int  # 0 if none was written yet


def dump(log_dir: Path, partitions: Sequence[Place], run_id: str, node: str, *,
         running: bool = True, resent: set[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of logs/NODE.jsonl, in order. A partition without a folder here has no rows. resent: the
    values that their producer itself repeated (resends.py) are added to it."""
    starts = read_offsets(log_dir / "log-start-offset-checkpoint")
    for spec in sorted(partitions, key=lambda spec: spec.key):
        segments = segments_of(_folder(log_dir, spec))
        if segments:
            start = _log_start(segments, starts, spec)
            resends = Resends()
            for row in _rows(segments, start, run_id.encode(), resends, running=running):
                yield {"node": node, "partition": spec.key, **row}
            if resent is not None:
                resent |= resends.values


def describe(log_dir: Path, spec: Place, *, running: bool = True) -> LogState:
    """Read the state of one replica. Only the last segment is read, for the LEO and a torn tail."""
    folder = _folder(log_dir, spec)
    segments = segments_of(folder)
    start = _log_start(segments, read_offsets(log_dir / "log-start-offset-checkpoint"), spec)
    leo, torn = start, 0
    if segments:
        leo, torn = end_of(segments[-1], running=running)
        leo = max(leo, start)
    hws = read_offsets(log_dir / "replication-offset-checkpoint")
    epochs = read_epochs(folder)
    if epochs == UNREADABLE and not (leo > start and _have_epochs(segments)):
        epochs = ()  # Kafka creates the file before it has anything to write
    return LogState(log_start=start, leo=leo, torn_bytes=torn, epochs=epochs,
                    checkpointed_hw=hws.get((spec.topic, spec.partition), 0))


# -- rows ---------------------------------------------------------------------------------------------------

def _rows(segments: Sequence[Segment], start: int, run_id: bytes, resends: Resends, *,
          running: bool) -> Iterator[dict[str, Any]]:
    # The end of our own records: one header, its name and its value, each after its zigzag length.
    tail = b"\x02" + bytes([2 * len(HEADER_NAME)]) + HEADER_NAME + bytes([2 * len(run_id)]) + run_id
    transactions: Transactions | None = None
    for segment in segments:
        last = segment is segments[-1]
        for data, at, size in batches_of(segment, drop_bad_last=last and not running):
            simple = _read_simple_batch(data, at, size, tail)
            if simple is not None:
                base, epoch, values, crc, producer = simple
                for offset, value in enumerate(values, base):
                    resends.note(value, producer)
                    if offset >= start:
                        yield {"offset": offset, "epoch": epoch, "value": value, "crc": crc}
                continue
            header = frame(data, at)
            assert header is not None, (segment.path, at)  # batches_of yields only what frame() accepts
            if header.transactional and transactions is None:
                transactions = transactions_of(segments, running=running)
            aborted = transactions is not None and transactions.aborted(header)
            for offset, own_value, fits in _values(data, at, header, run_id, segment.path):
                resends.note(own_value, (header.producer_id, header.producer_epoch))
                if offset >= start:
                    yield _row(offset, own_value, header, fits=fits, aborted=aborted)


def _read_simple_batch(
    data: bytes, at: int, size: int, tail: bytes
) -> tuple[int, int, list[int], int, Producer] | None:
    """Read (base offset, epoch, values, crc, producer) of a batch of few plain, valid records of ours; None:
    it is another batch."""
    if data[at + MAGIC_AT] != MAGIC:
        return None
    (base, _, epoch, _, crc, attributes, delta, _, _, producer, producer_epoch, _, count
     ) = HEADER.unpack_from(data, at)
    if not 0 <= delta == count - 1 < _FEW or attributes & _NOT_SIMPLE or base < 0:
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
        value_end = record_end - len(tail)
        digits = data[value_at:value_end]
        if length & 1 or len(digits) > DIGITS_AT_MOST or not digits.isdigit():
            return None
        head = bytes((0, 0, doubled, 1, 2 * len(digits)))  # attributes, time, offset, no key
        if data[body:value_at] != head or data[value_end:record_end] != tail:
            return None
        values.append(int(digits))
        body = record_end
    if body != end or crc32c(data[at + CRC_FROM:end]) != crc:
        return None
    return base, epoch, values, crc, (producer, producer_epoch)


def _values(data: bytes, at: int, header: Frame, run_id: bytes,
            path: Path) -> list[tuple[int, int | None, bool]]:
    """The offset and value of each record, and whether all its CRCs are right. A damaged batch has all the
    offsets in its header, and no values."""
    try:
        return [(record.offset,
                 None if header.control else value_of(record.value, record.headers, run_id),
                 header.crc_ok and record.crc_ok) for record in records(data, at, header)]
    except BatchError as error:
        if header.crc_ok:  # the batch is intact, but we cannot read it
            refuse(path, str(error))
    claimed = range(header.base_offset, header.last_offset + 1)
    return [(offset, None, False) for offset in claimed[:header.size]]  # a damaged header may have any


def _row(offset: int, value: int | None, header: Frame, *, fits: bool, aborted: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"offset": offset, "epoch": header.epoch, "value": value, "crc": header.crc}
    if not fits:
        row["crc_ok"] = False
    if aborted:
        row["aborted"] = True
    return row


def _have_epochs(segments: Sequence[Segment]) -> bool:
    """Whether the records of these segments have leader epochs, as those of the first formats have not."""
    return any((header := frame(data, at)) is not None and header.epoch >= 0
               for segment in reversed(segments)
               for data, at, _ in batches_of(segment, drop_bad_last=False))


# -- places -------------------------------------------------------------------------------------------------

def _folder(log_dir: Path, spec: Place) -> Path:
    return log_dir / f"{spec.topic}-{spec.partition}"


def _log_start(segments: Sequence[Segment], starts: Mapping[tuple[str, int], int], spec: Place) -> int:
    first = segments[0].base_offset if segments else 0
    return max(first, starts.get((spec.topic, spec.partition), 0))
