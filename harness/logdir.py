"""A Kafka log directory, read: the rows of a dump (logs/NODE.jsonl), and what else a replica's files say.

Rules
1. Only files are read, and nothing is written: it serves our broker and Apache Kafka, frozen or dead.
2. Rows run by partition and offset, from log_start. A record is ours, and has a value, by its header
   `floodmark` that names the run; every other record has value null.
3. A tail that frames no batch is left out and counted as torn bytes; of a node that was not running so is a
   last batch whose CRC does not fit: its recovery would cut it. Any other bad CRC is told as it is.
4. What cannot be read is refused (FloodmarkError), never told as empty: a record missing here is a charge.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from crc32c import crc32c

from harness.errors import FloodmarkError
from harness.record_batches import (
    CODEC_BITS,
    CONTROL_BIT,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchError,
    Frame,
    Record,
    aborts,
    frame,
    is_legacy,
    records,
)

HEADER_NAME = b"floodmark"  # of our records: its value is the run's id
WINDOW_BYTES = 4 << 20  # read at a time; a larger batch makes it larger
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    base_offset: int
    path: Path


def dump(log_dir: Path, partitions: Sequence[Place], run_id: str, node: str, *,
         running: bool = True) -> Iterator[dict[str, Any]]:
    """The rows of logs/NODE.jsonl, in order. A partition without a folder here has no rows."""
    starts = read_offsets(log_dir / "log-start-offset-checkpoint")
    for spec in sorted(partitions, key=lambda spec: spec.key):
        segments = _segments(_folder(log_dir, spec))
        if segments:
            start = _log_start(segments, starts, spec)
            for row in _rows(segments, start, run_id.encode(), running=running):
                yield {"node": node, "partition": spec.key, **row}


def describe(log_dir: Path, spec: Place, *, running: bool = True) -> LogState:
    """What the files say of one replica. It walks the last segment only, for the LEO and a torn tail."""
    folder = _folder(log_dir, spec)
    segments = _segments(folder)
    start = _log_start(segments, read_offsets(log_dir / "log-start-offset-checkpoint"), spec)
    leo, torn = start, 0
    if segments:
        leo, torn = _end(segments[-1], running)
        leo = max(leo, start)
    hws = read_offsets(log_dir / "replication-offset-checkpoint")
    return LogState(log_start=start, leo=leo, torn_bytes=torn, epochs=read_epochs(folder),
                    checkpointed_hw=hws.get((spec.topic, spec.partition), 0))


# -- rows ---------------------------------------------------------------------------------------------------

def _rows(segments: Sequence[_Segment], start: int, run_id: bytes, *,
          running: bool) -> Iterator[dict[str, Any]]:
    # As our own records end: one header, its name and its value, each after its zigzag length.
    tail = b"\x02" + bytes([2 * len(HEADER_NAME)]) + HEADER_NAME + bytes([2 * len(run_id)]) + run_id
    fates: _Fates | None = None
    for segment in segments:
        last = segment is segments[-1]
        for data, at, size in _batches(segment, drop_bad_last=last and not running):
            quick = _quick(data, at, size, tail)
            if quick is not None:
                offset, epoch, value, crc = quick
                if offset >= start:
                    yield {"offset": offset, "epoch": epoch, "value": value, "crc": crc}
                continue
            header = frame(data, at)
            assert header is not None, (segment.path, at)  # _batches gives only what frame() takes
            if header.transactional and fates is None:
                fates = _fates(segments, running)
            gone = fates is not None and fates.aborted(header)
            for offset, ours in _values(data, at, header, run_id, segment.path):
                if offset >= start:
                    yield _row(offset, ours, header, gone)


def _quick(data: bytes, at: int, size: int, tail: bytes) -> tuple[int, int, int, int] | None:
    """(offset, epoch, value, crc) of a batch that is one plain, sound record of ours; None: the long way."""
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


def _values(data: bytes, at: int, header: Frame, run_id: bytes, path: Path) -> list[tuple[int, int | None]]:
    """Offset and value of each record. A damaged batch has all the offsets it claims, and no values."""
    try:
        return [(record.offset, None if header.control else _value(record, run_id))
                for record in records(data, at, header)]
    except BatchError as error:
        if header.crc_ok:  # what was written is there, and it is we who cannot read it
            _refuse(path, str(error))
    claimed = range(header.base_offset, header.last_offset + 1)
    return [(offset, None) for offset in claimed[:header.size]]  # a damaged header may claim anything


def _row(offset: int, value: int | None, header: Frame, gone: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"offset": offset, "epoch": header.epoch, "value": value, "crc": header.crc}
    if not header.crc_ok:
        row["crc_ok"] = False
    if gone:
        row["aborted"] = True
    return row


def _value(record: Record, run_id: bytes) -> int | None:
    if record.value is None or not record.value.isdigit() or (HEADER_NAME, run_id) not in record.headers:
        return None
    return int(record.value)


# -- transactions -------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class _Fates:
    """How each producer's transactions ended: offset of each marker, ascending, and whether it aborts."""

    markers: Mapping[int, list[tuple[int, bool]]]

    def aborted(self, header: Frame) -> bool:
        """Whether the first marker of its producer after this batch is an abort; an open one is not."""
        if not header.transactional or header.control:
            return False
        markers = self.markers.get(header.producer_id, [])
        after = bisect_right(markers, (header.last_offset, True))
        return after < len(markers) and markers[after][1]


def _fates(segments: Sequence[_Segment], running: bool) -> _Fates:
    """The markers of a whole log: read ahead once, at its first transactional batch."""
    markers: dict[int, list[tuple[int, bool]]] = {}
    for segment in segments:
        for data, at, _ in _batches(segment, drop_bad_last=segment is segments[-1] and not running):
            header = frame(data, at)
            if header is not None and header.control and header.crc_ok:
                for record in records(data, at, header):
                    markers.setdefault(header.producer_id, []).append((record.offset, aborts(record)))
    return _Fates(markers=markers)


# -- segments -----------------------------------------------------------------------------------------------

def _folder(log_dir: Path, spec: Place) -> Path:
    return log_dir / f"{spec.topic}-{spec.partition}"


def _segments(folder: Path) -> list[_Segment]:
    """The segments of a log by base offset; none where there is no such folder."""
    try:
        names = [path for path in folder.iterdir() if path.suffix == ".log" and path.stem.isdigit()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FloodmarkError(f"the log folder {folder} cannot be read: {error}") from error
    return sorted((_Segment(base_offset=int(path.stem), path=path) for path in names),
                  key=lambda segment: segment.base_offset)


def _log_start(segments: Sequence[_Segment], starts: Mapping[tuple[str, int], int], spec: Place) -> int:
    first = segments[0].base_offset if segments else 0
    return max(first, starts.get((spec.topic, spec.partition), 0))


def _end(segment: _Segment, running: bool) -> tuple[int, int]:
    """The LEO that a last segment gives, and how many bytes of it are torn."""
    leo, whole = segment.base_offset, 0
    for data, at, size in _batches(segment, drop_bad_last=not running):
        base, _, _, _, _, _, delta = HEADER.unpack_from(data, at)[:7]
        leo = base + delta + 1
        whole += size
    return leo, segment.path.stat().st_size - whole


def _batches(segment: _Segment, *, drop_bad_last: bool) -> Iterator[tuple[bytes, int, int]]:
    """Each framed batch as (window, position in it, size), up to the first bytes that frame none."""
    unpack = HEADER.unpack_from
    try:
        with segment.path.open("rb") as file:
            data, at = file.read(WINDOW_BYTES), 0
            left = segment.path.stat().st_size - len(data)
            while True:
                size = 0
                if at + HEADER_BYTES <= len(data):
                    base, length, _, magic, _, _, delta = unpack(data, at)[:7]
                    if magic != MAGIC or length < HEADER_BYTES - LENGTH_FROM or base < 0 or delta < 0:
                        _refuse_legacy(segment.path, data, at)
                        return
                    size = LENGTH_FROM + length
                if size and at + size <= len(data):
                    if drop_bad_last and left <= 0 and _bad_last(data, at, size):
                        return
                    yield data, at, size
                    at += size
                    continue
                more = file.read(max(WINDOW_BYTES, size)) if size <= left + len(data) - at else b""
                if not more:
                    _refuse_legacy(segment.path, data, at)
                    return
                left -= len(more)
                data, at = data[at:] + more, 0
    except OSError as error:
        raise FloodmarkError(f"the log segment {segment.path} cannot be read: {error}") from error


def _bad_last(data: bytes, at: int, size: int) -> bool:
    """Whether this batch's CRC does not fit and nothing that frames a batch comes after it."""
    header = frame(data, at)
    return (header is None or not header.crc_ok) and frame(data, at + size) is None


def _refuse_legacy(path: Path, data: bytes, at: int) -> None:
    if is_legacy(data, at):
        _refuse(path, "holds messages of format v0 or v1, which are not read yet")


def _refuse(path: Path, why: str) -> NoReturn:
    raise FloodmarkError(f"the log segment {path} cannot be read: {why}")


# -- checkpoints --------------------------------------------------------------------------------------------

def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """A checkpoint of offsets (`topic partition offset` a line): empty where the file is not there."""
    found = {}
    for line in _checkpoint_lines(path, fields=3) or ():
        found[(line[0], int(line[1]))] = int(line[2])
    return found


def read_epochs(folder: Path) -> tuple[tuple[int, int], ...] | None:
    """leader-epoch-checkpoint of a partition's folder: (epoch, start offset); None: there is no such file."""
    lines = _checkpoint_lines(folder / "leader-epoch-checkpoint", fields=2)
    return None if lines is None else tuple((int(line[0]), int(line[1])) for line in lines)


def _checkpoint_lines(path: Path, *, fields: int) -> list[list[str]] | None:
    """Kafka's checkpoint files: a version (0), how many lines, the lines."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise FloodmarkError(f"the checkpoint {path} cannot be read: {error}") from error
    lines = [line.split() for line in text.splitlines() if line.strip()]
    sound = (len(lines) >= 2 and lines[0] == ["0"] and lines[1] == [str(len(lines) - 2)]
             and all(len(line) == fields and all(word.lstrip("-").isdecimal() for word in line[fields - 2:])
                     for line in lines[2:]))
    if not sound:
        raise FloodmarkError(f"the checkpoint {path} is damaged: it should be 0, a count and that many lines "
                             f"of {fields} words")
    return lines[2:]
