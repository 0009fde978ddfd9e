"""Measures the logs of a node, and what they lost between two measurements. It only reads files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.harness.logdir.record_batches import Frame, frame

_SEGMENT = "[0-9]" * 20 + ".log"

LogExtents = Mapping[str, tuple[int, int]]  # "topic-partition" -> LEO, bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a power cut lost, by "topic-partition"; `kept` has only partitions with a log."""

    kept: Mapping[str, int]  # the remaining LEO
    records: Mapping[str, int] = field(default_factory=dict)  # lost, if any
    bytes: Mapping[str, int] = field(default_factory=dict)  # lost, also of a torn last batch
    restored: tuple[str, ...] = ()  # files that got their previous content back
    removed: tuple[str, ...] = ()  # files that were removed
    how: str | None = None  # how it was simulated, if a cluster has several ways

    @property
    def lost_records(self) -> int:
        return sum(self.records.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """The end of a batch: the byte in its segment, and the offset after it (the LEO, if the log ends
    there)."""

    byte: int
    leo: int


def log_extents(log_dir: Path) -> LogExtents:
    """The LEO and the bytes of each log."""
    return {name: (log_end_offset(log_dir / name), _size(log_dir / name))
            for name in partition_folders(log_dir)}


def records_between(before: LogExtents, after: LogExtents) -> Lost:
    """What the logs lost between two measurements."""
    gone = {name: (leo - after.get(name, (0, 0))[0], size - after.get(name, (0, 0))[1])
            for name, (leo, size) in before.items()}
    return Lost(
        kept={name: leo for name, (leo, _) in after.items()},
        records={name: records for name, (records, _) in gone.items() if records > 0},
        bytes={name: size for name, (_, size) in gone.items() if size > 0},
    )


def partition_folders(log_dir: Path) -> list[str]:
    """The names of the partitions' folders, which are those with a segment."""
    return sorted({path.parent.name for path in log_dir.glob(f"*-*/{_SEGMENT}")})


def segments_of(folder: Path) -> list[Path]:
    return sorted(folder.glob(_SEGMENT))


def base_offset(segment: Path) -> int:
    return int(segment.stem)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in segments_of(folder))


def log_end_offset(folder: Path) -> int:
    """The offset after the log's last complete batch; 0 if it has no segment."""
    leo = 0
    for path in segments_of(folder):
        leo = base_offset(path)
        for end in batch_ends(path):
            leo = end.leo
    return leo


def records_in(folder: Path) -> int:
    segments = segments_of(folder)
    return log_end_offset(folder) - base_offset(segments[0]) if segments else 0


def batches(data: bytes) -> Iterator[tuple[int, Frame]]:
    """Yields each valid batch of a segment with its position, up to the first invalid one: recovery cuts
    there."""
    position = 0
    while (found := frame(data, position)) is not None and found.crc_ok:
        yield position, found
        position += found.size


def batch_ends(path: Path) -> Iterator[BatchEnd]:
    return (BatchEnd(byte=position + found.size, leo=found.last_offset + 1)
            for position, found in batches(path.read_bytes()))
