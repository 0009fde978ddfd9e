"""Reads Kafka log directories, of our broker and of Apache Kafka, while the broker is frozen or dead: makes
the rows of a dump (logs/NODE.jsonl), and describes a replica's state. Nothing is written.

Rules
1. Rows are ordered by partition and offset, from log_start. A record that this run sent has a value
   (harness/record_batches.py); any other record has value null.
2. A tail of the last segment that is not a batch is torn: it is left out, and its bytes are counted. For a
   node that was not running, so is a last batch with a wrong CRC, because recovery would remove it. Any other
   wrong CRC is reported. Before another segment no tail is torn: nobody knows what stood there.
3. A log that cannot be read is a FloodmarkError, never an empty log: a missing record would be judged as a
   loss.
4. `resent` are the values that their own producer repeated under another producer id or epoch. A broker
   recognizes a repeated batch by its producer's id, epoch and sequence, so these repeats are not its fault.
   librdkafka makes them: when a broker refuses a batch as out of order, it takes a new epoch and sends again
   what is in flight, also what was appended before (confluentinc/librdkafka issue 4953). A repeat with the
   same id and epoch is the broker's fault, and is not among these.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from floodmark.harness import record_batches
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.record_batches import MAGIC, MAGIC_AT, Frame, Producer, frame, records

if TYPE_CHECKING:
    from floodmark.harness.protocols import PartitionSpec

# -- checkpoints: a version (0), the number of lines, the lines ---------------------------------------------

UNREADABLE: Final = "unreadable"  # a leader-epoch-checkpoint that is empty or torn
# (epoch, start offset) of each entry; None: there is no such file
Epochs = tuple[tuple[int, int], ...] | Literal["unreadable"] | None


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Read a checkpoint of offsets (`topic partition offset` in each line); empty if there is no file."""
    return offsets_in(_text(path) or "", str(path))


def offsets_in(text: str, source: str) -> dict[tuple[str, int], int]:
    """Parse the text of a checkpoint of offsets. source: the file's name, for errors."""
    lines = _lines_in(text, source, fields=3) if text else []  # Kafka creates it before it writes anything
    return {(line[0], int(line[1])): int(line[2]) for line in lines}


def read_epochs(folder: Path) -> Epochs:
    """Read leader-epoch-checkpoint in a partition's folder."""
    path = folder / "leader-epoch-checkpoint"
    try:
        text = _text(path)
        return None if text is None else tuple(
            (int(epoch), int(start)) for epoch, start in _lines_in(text, str(path), fields=2))
    except FloodmarkError:
        return UNREADABLE


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise FloodmarkError(f"the checkpoint {path} cannot be read: {error}") from error


def _lines_in(text: str, source: str, *, fields: int) -> list[list[str]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    valid = (len(lines) >= 2 and lines[0] == ["0"] and lines[1] == [str(len(lines) - 2)]
             and all(len(line) == fields and all(field.lstrip("-").isdecimal() for field in line[fields - 2:])
                     for line in lines[2:]))
    if not valid:
        raise FloodmarkError(f"the checkpoint {source} is damaged: it should be 0, a count and that many "
                             f"lines of {fields} fields")
    return lines[2:]


# -- segments, and the batches in them ----------------------------------------------------------------------
# The log cleaner writes a file with the suffix .cleaned; when it is complete it has the suffix .swap until it
# replaces the segments that it was made from. A broker that was killed in between replaces them at its next
# start. So a .swap counts, and the segments that begin inside it do not. A .swap that begins at or after a
# .cleaned one is of an incomplete split: the broker deletes it (KAFKA-6264).

SUFFIX = ".log"
WINDOW_BYTES = 4 << 20  # read at a time; more for a larger batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    base_offset: int
    path: Path


def segments_of(folder: Path) -> list[Segment]:
    """The segments of a log, ordered by base offset; none where there is no such folder."""
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FloodmarkError(f"the log folder {folder} cannot be read: {error}") from error
    segments = _named(paths, SUFFIX)
    cleaned = [int(path.name[:20]) for path in paths
               if path.suffix == ".cleaned" and path.name[:20].isdecimal()]
    for swapped in _named(paths, SUFFIX + ".swap"):
        if cleaned and swapped.base_offset >= min(cleaned):
            continue
        end, _ = end_of(swapped, running=True)
        segments = [one for one in segments if not swapped.base_offset <= one.base_offset < end]
        segments = [*(one for one in segments if one.base_offset != swapped.base_offset), swapped]
    return sorted(segments, key=lambda segment: segment.base_offset)


def why_no_log(folder: Path) -> str | None:
    """By its names and how each segment begins (zeros if preallocated); None: it may be a partition's."""
    if not (segments := segments_of(folder)):
        return f"it has no {folder.name}/*{SUFFIX}"
    for segment in segments:
        with _reading(segment), segment.path.open("rb") as file:
            head = file.read(MAGIC_AT + 1)
        if len(head) > MAGIC_AT and any(head) and (head[MAGIC_AT] > MAGIC or not (
                0 <= int.from_bytes(head[:8], "big") - segment.base_offset < 1 << 32)):
            return f"{folder.name}/{segment.path.name} does not begin as a log does"
    return None


def _named(paths: Sequence[Path], suffix: str) -> list[Segment]:
    return [Segment(base_offset=int(stem), path=path) for path in paths
            if path.name.endswith(suffix) and (stem := path.name.removesuffix(suffix)).isdecimal()]


def batches_of(segment: Segment, *, is_last: bool = True, drop_bad_last: bool = False
               ) -> Iterator[tuple[bytes, int, int]]:
    """As (window, position, size), up to bytes that are no batch; refused if a segment follows."""
    with _reading(segment), segment.path.open("rb") as file:
        data, at = file.read(WINDOW_BYTES), 0
        left = segment.path.stat().st_size - len(data)
        while (size := record_batches.size_of(data, at)) is not None:
            if size and at + size <= len(data):
                if is_last and drop_bad_last and left <= 0 and frame(data, at + size) is None and not (
                        (header := frame(data, at)) is not None and header.crc_ok):
                    return
                yield data, at, size
                at += size
                continue
            more = file.read(max(WINDOW_BYTES, size)) if size <= left + len(data) - at else b""
            if not more:
                break
            left -= len(more)
            data, at = data[at:] + more, 0
    if not is_last and (torn := left + len(data) - at) > 0:
        refuse(segment.path, f"its last {torn} bytes are no batch, and another segment follows")


@contextmanager
def _reading(segment: Segment) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        refuse(segment.path, str(error))


def end_of(segment: Segment, *, running: bool) -> tuple[int, int]:
    """The LEO by this segment, if it is the last, and the number of its torn bytes."""
    leo, valid_bytes = segment.base_offset, 0
    for data, at, size in batches_of(segment, drop_bad_last=not running):
        leo = record_batches.last_offset(data, at) + 1
        valid_bytes += size
    with _reading(segment):
        return leo, segment.path.stat().st_size - valid_bytes


def refuse(path: Path, why: str) -> NoReturn:
    raise FloodmarkError(f"the log segment {path} cannot be read: {why}")


# -- which records were aborted -----------------------------------------------------------------------------
# The log decides: the producer's first marker after a batch says how the batch's transaction ended. If
# compaction has removed that marker, the segments' index of aborted transactions (.txnindex) may still have
# the abort; brokers use it to answer consumers. Otherwise the transaction counts as open.

_ENTRY = struct.Struct(">hqqqq")  # version, producer, first offset, last offset (the marker's), last stable
_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """One entry of an index: the offsets from this producer's first record to the marker, both included."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """How each producer's transactions ended: the offset of each marker, ascending, and whether it aborts."""

    markers: Mapping[int, list[tuple[int, bool]]]
    index: Sequence[Aborted]

    def aborted(self, header: Frame) -> bool:
        """Whether the records of this batch were aborted; those of an open transaction were not."""
        if not header.transactional or header.control:
            return False
        markers = self.markers.get(header.producer_id, [])
        after = bisect_right(markers, (header.last_offset, True))
        if after < len(markers):
            return markers[after][1]
        return any(entry.producer_id == header.producer_id
                   and entry.first_offset <= header.base_offset <= entry.last_offset for entry in self.index)


def transactions_of(segments: Sequence[Segment], *, running: bool) -> Transactions:
    markers: dict[int, list[tuple[int, bool]]] = {}
    for segment in segments:
        for data, at, _ in batches_of(segment, is_last=segment is segments[-1], drop_bad_last=not running):
            header = frame(data, at)
            if header is not None and header.control and header.crc_ok:
                for record in records(data, at, header):
                    markers.setdefault(header.producer_id, []).append(
                        (record.offset, record_batches.aborts(record)))
    index = [entry for segment in segments for entry in aborted_index(segment)]
    return Transactions(markers=markers, index=index)


def aborted_index(segment: Segment) -> list[Aborted]:
    """None where there is no such file. An incomplete last entry is left out."""
    path = segment.path.with_name(segment.path.name.replace(SUFFIX, ".txnindex"))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FloodmarkError(f"the index {path} cannot be read: {error}") from error
    entries = []
    for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
        version, producer, first, last, _ = _ENTRY.unpack_from(data, at)
        if version != _VERSION:
            refuse(path, f"entry {at // _ENTRY.size} has version {version}, not {_VERSION}")
        entries.append(Aborted(producer_id=producer, first_offset=first, last_offset=last))
    return entries


# -- rows and state ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """leo is exclusive; epochs as checkpointed, and UNREADABLE only beside records that have an epoch."""

    log_start: int
    leo: int
    torn_bytes: int
    epochs: Epochs
    checkpointed_hw: int  # 0 if none was written yet


def dump(log_dir: Path, partitions: Sequence["PartitionSpec"], run_id: str, node: str, *,
         running: bool = True, resent: set[int] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of logs/NODE.jsonl; none without a folder. resent: the values of rule 4 are added to it."""
    for spec in sorted(partitions, key=lambda spec: spec.key):
        if segments := segments_of(_folder(log_dir, spec)):
            start = log_start(log_dir, spec.place, segments)
            found = set() if resent is None else resent
            for row in _rows(segments, start, run_id.encode(), found, running=running):
                yield {"node": node, "partition": spec.key, **row}


def describe(log_dir: Path, spec: "PartitionSpec", *, running: bool = True) -> LogState:
    """Read the state of one replica. Only the last segment is read, for the LEO and a torn tail."""
    folder = _folder(log_dir, spec)
    segments = segments_of(folder)
    start = log_start(log_dir, spec.place, segments)
    leo, torn = start, 0
    if segments:
        leo, torn = end_of(segments[-1], running=running)
        leo = max(leo, start)
    hws = read_offsets(log_dir / "replication-offset-checkpoint")
    epochs = read_epochs(folder)
    has_epochs = leo > start and any(  # those of the first formats have none
        (header := frame(data, at)) is not None and header.epoch >= 0
        for segment in reversed(segments) for data, at, _ in batches_of(segment))
    if epochs == UNREADABLE and not has_epochs:
        epochs = ()  # Kafka creates the file before it has anything to write
    return LogState(log_start=start, leo=leo, torn_bytes=torn, epochs=epochs,
                    checkpointed_hw=hws.get(spec.place, 0))


def _rows(segments: Sequence[Segment], start: int, run_id: bytes, resent: set[int], *,
          running: bool) -> Iterator[dict[str, Any]]:
    ending = record_batches.header_ending(run_id)
    producers: dict[int, Producer] = {}  # of each value's first copy

    def note(value: int | None, producer: Producer) -> None:
        if value is not None and producer[0] != record_batches.NO_PRODUCER and (
                producers.setdefault(value, producer) != producer):
            resent.add(value)

    transactions: Transactions | None = None
    for segment in segments:
        for data, at, size in batches_of(segment, is_last=segment is segments[-1], drop_bad_last=not running):
            if (own := record_batches.read_own_batch(data, at, size, ending)) is not None:
                for offset, value in enumerate(own.values, own.base_offset):
                    note(value, own.producer)
                    if offset >= start:
                        yield {"offset": offset, "epoch": own.epoch, "value": value, "crc": own.crc}
                continue
            header = frame(data, at)
            assert header is not None, (segment.path, at)  # batches_of yields only what frame() accepts
            if header.transactional and transactions is None:
                transactions = transactions_of(segments, running=running)
            aborted = transactions is not None and transactions.aborted(header)
            for offset, own_value, fits in _values(data, at, header, run_id, segment.path):
                note(own_value, (header.producer_id, header.producer_epoch))
                if offset >= start:
                    yield {"offset": offset, "epoch": header.epoch, "value": own_value, "crc": header.crc,
                           **({} if fits else {"crc_ok": False}), **({"aborted": True} if aborted else {})}


def _values(data: bytes, at: int, header: Frame, run_id: bytes,
            path: Path) -> list[tuple[int, int | None, bool]]:
    try:
        return [(record.offset,
                 None if header.control else record_batches.value_of(record.value, record.headers, run_id),
                 header.crc_ok and record.crc_ok) for record in records(data, at, header)]
    except record_batches.BatchError as error:
        if header.crc_ok:  # the batch is intact, but we cannot read it
            refuse(path, str(error))
    claimed = range(header.base_offset, header.last_offset + 1)
    return [(offset, None, False) for offset in claimed[:header.size]]  # a damaged header may have any


def _folder(log_dir: Path, spec: "PartitionSpec") -> Path:
    return log_dir / f"{spec.topic}-{spec.partition}"


def log_start(log_dir: Path, place: tuple[str, int], segments: Sequence[Segment]) -> int:
    first = segments[0].base_offset if segments else 0
    return max(first, read_offsets(log_dir / "log-start-offset-checkpoint").get(place, 0))
