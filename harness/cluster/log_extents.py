"""Measures the logs of a node, and what they lost between two measurements; chooses where to damage a log so
that its broker must notice. Only `wipe` changes files."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from floodmark.harness.record_batches import CRC_FROM, Frame, frame

_SEGMENT = "[0-9]" * 20 + ".log"
METADATA = "__cluster_metadata-0"  # a broker's copy of the controller's records: it is fetched again anyway
FLIPPED = 0x40
TORN_BYTES = 7  # less than the size of any batch

LogExtents = Mapping[str, tuple[int, int]]  # "topic-partition" -> LEO, bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a power cut lost, by "topic-partition"; `kept` has only partitions with a log."""

    kept: Mapping[str, int]  # the remaining LEO
    records: Mapping[str, int] = field(default_factory=dict)  # lost, if any
    restored: tuple[str, ...] = ()  # files that got their previous content back
    how: str | None = None  # how it was simulated, if a cluster has several ways

    @property
    def lost_records(self) -> int:
        return sum(self.records.values())


class PowerLoss(Protocol):
    """By a dead broker's side file of what is durable, or by cutting its logs. keep: LEOs to cut to."""

    def power_cut(
        self, durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None) -> Lost: ...
    def mark_all_durable(  # everything is durable now; ends: where the logs end, if that was measured
        self, durable_file: Path, ends: Mapping[str, int] = ...) -> None: ...
    def fsynced(self, durable_file: Path) -> Mapping[str, int] | None: ...  # file -> bytes; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """A batch's last byte in its segment, and the offset after it (the LEO, if the log ends there)."""

    byte: int
    leo: int


def log_extents(log_dir: Path) -> LogExtents:
    return {name: (log_end_offset(log_dir / name),
                   sum(path.stat().st_size for path in segments_of(log_dir / name)))
            for name in partition_folders(log_dir)}


def records_between(before: LogExtents, after: LogExtents) -> Lost:
    gone = {name: leo - after.get(name, (0, 0))[0] for name, (leo, _) in before.items()}
    return Lost(kept={name: leo for name, (leo, _) in after.items()},
                records={name: records for name, records in gone.items() if records > 0})


def wipe(power: PowerLoss, durable_file: Path, log_dir: Path) -> Lost:
    """Empties the log directory of a dead broker, as if it were on a new disk."""
    records = {name: leo - base_offset(segments_of(log_dir / name)[0])
               for name, (leo, _) in log_extents(log_dir).items()}
    for path in sorted(log_dir.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    power.mark_all_durable(durable_file)
    return Lost(kept={}, records={name: count for name, count in records.items() if count})


def partition_folders(log_dir: Path) -> list[str]:
    """The names of the partitions' folders, which are those with a segment; without METADATA."""
    return sorted({path.parent.name for path in log_dir.glob(f"*-*/{_SEGMENT}")} - {METADATA})


def segments_of(folder: Path) -> list[Path]:
    return sorted(folder.glob(_SEGMENT))


def base_offset(segment: Path) -> int:
    return int(segment.stem)


def log_end_offset(folder: Path) -> int:
    """The offset after the log's last complete batch; 0 if it has no segment."""
    if not (segments := segments_of(folder)):
        return 0
    return max((end.leo for end in batch_ends(segments[-1])), default=base_offset(segments[-1]))


def batches(data: bytes) -> Iterator[tuple[int, Frame]]:
    """Valid ones with their positions, up to the first invalid one: recovery cuts there."""
    position = 0
    while (found := frame(data, position)) is not None and found.crc_ok:
        yield position, found
        position += found.size


def batch_ends(path: Path) -> Iterator[BatchEnd]:
    return (BatchEnd(byte=position + found.size, leo=found.last_offset + 1)
            for position, found in batches(path.read_bytes()))


# -- damage -------------------------------------------------------------------------------------------------
# In the log's last batch. A broker that was killed recovers its log by checksums and cuts it at the first bad
# batch. A power cut may damage what comes after the last fsync; a bad disk may damage what comes before.


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    partition: str  # "topic-partition"
    file: str  # in the log directory, with '/' between parts
    position: int  # corrupt: the byte's; truncated: the new end
    byte: int | None  # the byte's new value; None: truncated
    lost_records: int  # those of the damaged batch


def corrupt(log_dir: Path) -> Damage | None:
    """Flips a bit in the first log's last batch, where its checksum covers it. None: no log has a batch."""
    return _damage(log_dir, lambda batch: (CRC_FROM + batch.size) // 2, flips=True)


def truncated(log_dir: Path) -> Damage | None:
    """Cuts off the last bytes of the first log's last batch. None: no log has a batch."""
    return _damage(log_dir, lambda batch: batch.size - TORN_BYTES, flips=False)


def _damage(log_dir: Path, where: Callable[[Frame], int], *, flips: bool) -> Damage | None:
    """In the last batch of the first partition, by name, that has one. where: the position in it."""
    for name in partition_folders(log_dir):
        for path in reversed(segments_of(log_dir / name)):
            data = path.read_bytes()
            for start, batch in reversed(list(batches(data))):
                position = start + where(batch)
                return Damage(
                    partition=name, file=path.relative_to(log_dir).as_posix(), position=position,
                    byte=data[position] ^ FLIPPED if flips else None,
                    lost_records=batch.last_offset - batch.base_offset + 1)
    return None

