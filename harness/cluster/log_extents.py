"""Counts what the logs of a node hold, and what they have lost between two looks. Files are only read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.harness.logdir.record_batches import frame

_SEGMENT = "[0-9]" * 20 + ".log"

Held = Mapping[str, tuple[int, int]]  # "topic-partition" -> LEO, bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a power cut took, by "topic-partition"; only partitions that have a log are named in `kept`."""

    kept: Mapping[str, int]  # the LEO that is left
    records: Mapping[str, int] = field(default_factory=dict)  # lost; partitions that lost none are left out
    bytes: Mapping[str, int] = field(default_factory=dict)  # likewise, a torn last batch among them
    restored: tuple[str, ...] = ()  # files that got their previous content back
    removed: tuple[str, ...] = ()  # files that are gone
    how: str | None = None  # by what it was played, where a cluster has several ways

    @property
    def lost_records(self) -> int:
        return sum(self.records.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """Where a batch ends: at `byte` of its segment, and the log with it at offset `leo`."""

    byte: int
    leo: int


def log_extents(log_dir: Path) -> Held:
    """What each log holds: its LEO and its bytes."""
    return {name: (log_end_offset(log_dir / name), _size(log_dir / name))
            for name in partition_folders(log_dir)}


def records_between(before: Held, after: Held) -> Lost:
    """What the logs have lost from one look to the next."""
    gone = {name: (leo - after.get(name, (0, 0))[0], size - after.get(name, (0, 0))[1])
            for name, (leo, size) in before.items()}
    return Lost(
        kept={name: leo for name, (leo, _) in after.items()},
        records={name: records for name, (records, _) in gone.items() if records > 0},
        bytes={name: size for name, (_, size) in gone.items() if size > 0},
    )


def partition_folders(log_dir: Path) -> list[str]:
    """The folders of partitions, which are those with a segment."""
    return sorted({path.parent.name for path in log_dir.glob(f"*-*/{_SEGMENT}")})


def segments_of(folder: Path) -> list[Path]:
    return sorted(folder.glob(_SEGMENT))


def base_offset(segment: Path) -> int:
    return int(segment.stem)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in segments_of(folder))


def log_end_offset(folder: Path) -> int:
    """The offset after the last whole batch of the log; 0 when it has no segment."""
    leo = 0
    for path in segments_of(folder):
        leo = base_offset(path)
        for end in batch_ends(path):
            leo = end.leo
    return leo


def records_in(folder: Path) -> int:
    segments = segments_of(folder)
    return log_end_offset(folder) - base_offset(segments[0]) if segments else 0


def batch_ends(path: Path) -> Iterator[BatchEnd]:
    """Where each whole, sound batch of a segment ends, up to the first that is not: there recovery will
    cut."""
    data = path.read_bytes()
    position = 0
    while (found := frame(data, position)) is not None and found.crc_ok:
        position += found.size
        yield BatchEnd(byte=position, leo=found.last_offset + 1)
