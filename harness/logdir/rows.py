"""Makes the rows of a dump (logs/NODE.jsonl), and describes a replica's state, from a Kafka log directory.

Rules
1. Rows are ordered by partition and offset, from log_start. A record that this run sent has a value
   (recognized as harness/signature.py describes); any other record has value null.
2. A tail of the log that is not a batch is left out and counted as torn bytes. For a node that was not
   running, so is a last batch with a wrong CRC, because recovery would remove it. Any other wrong CRC is
   reported.
3. A log that cannot be read is a FloodmarkError, never an empty log: a missing record would be judged as a
   loss.
4. `resent` are the values that their own producer repeated under another producer id or epoch. A broker
   recognizes a repeated batch by its producer's id, epoch and sequence, so these repeats are not its fault.
   librdkafka makes them: when a broker refuses a batch as out of order, it takes a new epoch and sends again
   what is in flight, also what was appended before (confluentinc/librdkafka issue 4953). A repeat with the
   same id and epoch is the broker's fault, and is not among these.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from floodmark.harness import record_batches
from floodmark.harness.logdir.checkpoints import UNREADABLE, Epochs, read_epochs, read_offsets
from floodmark.harness.logdir.segments import Segment, batches_of, end_of, refuse, segments_of
from floodmark.harness.logdir.transactions import Transactions, transactions_of
from floodmark.harness.signature import header_ending, value_of


class Partition(Protocol):
    """A partition: its key in the history and its folder's name (protocols.PartitionSpec is one)."""

    @property
    def key(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """leo is exclusive; epochs as checkpointed, and UNREADABLE only beside records that have an epoch."""

    log_start: int
    leo: int
    torn_bytes: int
    epochs: Epochs
    checkpointed_hw: int  # 0 if none was written yet


def dump(log_dir: Path, partitions: Sequence[Partition], run_id: str, node: str, *,
         running: bool = True, resent: set[int] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of logs/NODE.jsonl; none without a folder. resent: the values of rule 4 are added to it."""
    starts = read_offsets(log_dir / "log-start-offset-checkpoint")
    for spec in sorted(partitions, key=lambda spec: spec.key):
        segments = segments_of(_folder(log_dir, spec))
        if segments:
            start = _log_start(segments, starts, spec)
            found = _Resent(set() if resent is None else resent)
            for row in _rows(segments, start, run_id.encode(), found, running=running):
                yield {"node": node, "partition": spec.key, **row}


def describe(log_dir: Path, spec: Partition, *, running: bool = True) -> LogState:
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
    has_epochs = leo > start and any(  # those of the first formats have none
        (header := record_batches.frame(data, at)) is not None and header.epoch >= 0
        for segment in reversed(segments) for data, at, _ in batches_of(segment))
    if epochs == UNREADABLE and not has_epochs:
        epochs = ()  # Kafka creates the file before it has anything to write
    return LogState(log_start=start, leo=leo, torn_bytes=torn, epochs=epochs,
                    checkpointed_hw=hws.get((spec.topic, spec.partition), 0))


class _Resent:
    """Adds the values of rule 4 in one replica's log to `values`."""

    def __init__(self, values: set[int]) -> None:
        self._values = values
        self._producers: dict[int, record_batches.Producer] = {}  # value -> of its first copy

    def note(self, value: int | None, producer: record_batches.Producer) -> None:
        if value is None or producer[0] == record_batches.NO_PRODUCER:
            return
        if self._producers.setdefault(value, producer) != producer:
            self._values.add(value)


def _rows(segments: Sequence[Segment], start: int, run_id: bytes, resent: _Resent, *,
          running: bool) -> Iterator[dict[str, Any]]:
    ending = header_ending(run_id)
    transactions: Transactions | None = None
    for segment in segments:
        for data, at, size in batches_of(segment, is_last=segment is segments[-1], drop_bad_last=not running):
            own = record_batches.read_own_batch(data, at, size, ending)
            if own is not None:
                for offset, value in enumerate(own.values, own.base_offset):
                    resent.note(value, own.producer)
                    if offset >= start:
                        yield {"offset": offset, "epoch": own.epoch, "value": value, "crc": own.crc}
                continue
            header = record_batches.frame(data, at)
            assert header is not None, (segment.path, at)  # batches_of yields only what frame() accepts
            if header.transactional and transactions is None:
                transactions = transactions_of(segments, running=running)
            aborted = transactions is not None and transactions.aborted(header)
            for offset, own_value, fits in _values(data, at, header, run_id, segment.path):
                resent.note(own_value, (header.producer_id, header.producer_epoch))
                if offset >= start:
                    yield {"offset": offset, "epoch": header.epoch, "value": own_value, "crc": header.crc,
                           **({} if fits else {"crc_ok": False}), **({"aborted": True} if aborted else {})}


def _values(data: bytes, at: int, header: record_batches.Frame, run_id: bytes,
            path: Path) -> list[tuple[int, int | None, bool]]:
    try:
        return [(record.offset,
                 None if header.control else value_of(record.value, record.headers, run_id),
                 header.crc_ok and record.crc_ok) for record in record_batches.records(data, at, header)]
    except record_batches.BatchError as error:
        if header.crc_ok:  # the batch is intact, but we cannot read it
            refuse(path, str(error))
    claimed = range(header.base_offset, header.last_offset + 1)
    return [(offset, None, False) for offset in claimed[:header.size]]  # a damaged header may have any


def _folder(log_dir: Path, spec: Partition) -> Path:
    return log_dir / f"{spec.topic}-{spec.partition}"


def _log_start(segments: Sequence[Segment], starts: Mapping[tuple[str, int], int], spec: Partition) -> int:
    first = segments[0].base_offset if segments else 0
    return max(first, starts.get((spec.topic, spec.partition), 0))
