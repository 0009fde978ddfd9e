"""The rows of a dump (logs/NODE.jsonl) from a Kafka log directory, and what else a replica's files say.

Rules
1. Rows run by partition and offset, from log_start. A record that this run sent has a value (signature.py
   says how it is known); every other record has value null.
2. A tail that frames no batch is left out and counted as torn bytes; of a node that was not running so is a
   last batch whose CRC does not fit: its recovery would cut it. Any other bad CRC is told as it is.
3. What cannot be read is refused (FloodmarkError), never told as empty: a record missing here is a charge.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crc32c import crc32c

from floodmark.harness.logdir.checkpoints import read_epochs, read_offsets
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
from floodmark.harness.logdir.segments import Segment, batches_of, end_of, refuse, segments_of
from floodmark.harness.logdir.transactions import Fates, fates_of
from floodmark.harness.signature import HEADER as HEADER_NAME
from floodmark.harness.signature import value_of

_PLAIN = CODEC_BITS | CONTROL_BIT | TRANSACTIONAL_BIT  # attributes that the fast path leaves alone
_NO_KEY = b"\x00\x00\x00\x01"  # a first record's attributes, both deltas zero, and no key


class Place(Protocol):
    """Where a partition is kept, and its key in the history (protocols.PartitionSpec has these)."""

    @property
    def key(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """What one replica's files say of it. leo is exclusive; epochs None: no leader-epoch-checkpoint."""

    log_start: int
    leo: int
    torn_bytes: int
    epochs: tuple[tuple[int, int], ...] | None  # (epoch, start offset), as checkpointed
    checkpointed_hw: int  # 0 where none was written yet


def dump(log_dir: Path, partitions: Sequence[Place], run_id: str, node: str, *,
         running: bool = True) -> Iterator[dict[str, Any]]:
    """The rows of logs/NODE.jsonl, in order. A partition without a folder here has no rows."""
    starts = read_offsets(log_dir / "log-start-offset-checkpoint")
    for spec in sorted(partitions, key=lambda spec: spec.key):
        segments = segments_of(_folder(log_dir, spec))
        if segments:
            start = _log_start(segments, starts, spec)
            for row in _rows(segments, start, run_id.encode(), running=running):
                yield {"node": node, "partition": spec.key, **row}


def describe(log_dir: Path, spec: Place, *, running: bool = True) -> LogState:
    """What the files say of one replica. It walks the last segment only, for the LEO and a torn tail."""
    folder = _folder(log_dir, spec)
    segments = segments_of(folder)
    start = _log_start(segments, read_offsets(log_dir / "log-start-offset-checkpoint"), spec)
    leo, torn = start, 0
    if segments:
        leo, torn = end_of(segments[-1], running=running)
        leo = max(leo, start)
    hws = read_offsets(log_dir / "replication-offset-checkpoint")
    return LogState(log_start=start, leo=leo, torn_bytes=torn, epochs=read_epochs(folder),
                    checkpointed_hw=hws.get((spec.topic, spec.partition), 0))


# -- rows ---------------------------------------------------------------------------------------------------

def _rows(segments: Sequence[Segment], start: int, run_id: bytes, *,
          running: bool) -> Iterator[dict[str, Any]]:
    # As our own records end: one header, its name and its value, each after its zigzag length.
    tail = b"\x02" + bytes([2 * len(HEADER_NAME)]) + HEADER_NAME + bytes([2 * len(run_id)]) + run_id
    fates: Fates | None = None
    for segment in segments:
        last = segment is segments[-1]
        for data, at, size in batches_of(segment, drop_bad_last=last and not running):
            quick = _quick(data, at, size, tail)
            if quick is not None:
                offset, epoch, value, crc = quick
                if offset >= start:
                    yield {"offset": offset, "epoch": epoch, "value": value, "crc": crc}
                continue
            header = frame(data, at)
            assert header is not None, (segment.path, at)  # batches_of gives only what frame() takes
            if header.transactional and fates is None:
                fates = fates_of(segments, running=running)
            gone = fates is not None and fates.aborted(header)
            for offset, ours, fits in _values(data, at, header, run_id, segment.path):
                if offset >= start:
                    yield _row(offset, ours, header, fits=fits, gone=gone)


def _quick(data: bytes, at: int, size: int, tail: bytes) -> tuple[int, int, int, int] | None:
    """(offset, epoch, value, crc) of a batch that is one plain, sound record of ours; None: the long way."""
    if data[at + MAGIC_AT] != MAGIC:
        return None
    (base, _, epoch, _, crc, attributes, delta, _, _, _, _, _, count) = HEADER.unpack_from(data, at)
    if count != 1 or delta or attributes & _PLAIN or base < 0:
        return None
    end = at + size
    body = at + HEADER_BYTES
    body += 1 if data[body] < 0x80 else 2  # the record's length: one byte or two, or the next line fails
    value_at = body + 5
    value_end = end - len(tail)
    if data[body:body + 4] != _NO_KEY or data[value_end:end] != tail:
        return None
    digits = data[value_at:value_end]
    if data[body + 4] != 2 * len(digits) or not digits.isdigit():
        return None
    if crc32c(data[at + CRC_FROM:end]) != crc:
        return None
    return base, epoch, int(digits), crc


def _values(data: bytes, at: int, header: Frame, run_id: bytes,
            path: Path) -> list[tuple[int, int | None, bool]]:
    """Offset and value of each record, and whether every CRC over it fits. A damaged batch has all the
    offsets it claims, and no values."""
    try:
        return [(record.offset,
                 None if header.control else value_of(record.value, record.headers, run_id),
                 header.crc_ok and record.crc_ok) for record in records(data, at, header)]
    except BatchError as error:
        if header.crc_ok:  # what was written is there, and it is we who cannot read it
            refuse(path, str(error))
    claimed = range(header.base_offset, header.last_offset + 1)
    return [(offset, None, False) for offset in claimed[:header.size]]  # a damaged header may claim anything


def _row(offset: int, value: int | None, header: Frame, *, fits: bool, gone: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"offset": offset, "epoch": header.epoch, "value": value, "crc": header.crc}
    if not fits:
        row["crc_ok"] = False
    if gone:
        row["aborted"] = True
    return row


# -- places -------------------------------------------------------------------------------------------------

def _folder(log_dir: Path, spec: Place) -> Path:
    return log_dir / f"{spec.topic}-{spec.partition}"


def _log_start(segments: Sequence[Segment], starts: Mapping[tuple[str, int], int], spec: Place) -> int:
    first = segments[0].base_offset if segments else 0
    return max(first, starts.get((spec.topic, spec.partition), 0))
