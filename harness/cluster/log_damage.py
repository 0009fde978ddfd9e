"""Chooses where to damage a log so that its broker must notice: in the log's last batch.
A broker that was killed recovers its log by checksums and cuts it at the first bad batch. A power cut may
damage what comes after the last fsync; a bad disk may damage what comes before.
"""

from dataclasses import dataclass
from pathlib import Path

from floodmark.harness.cluster.log_extents import batches
from floodmark.harness.logdir.record_batches import CRC_FROM, Frame

FLIPPED = 0x40
TORN_BYTES = 7  # less than the size of any batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A change to one file, and the records that it loses."""

    partition: str  # "topic-partition"
    file: str  # in the log directory, with '/' between parts
    position: int  # corrupt: the byte's; truncated: the new end
    byte: int | None  # the byte's new value; None: truncated
    lost_records: int  # those of the damaged batch


def corrupt(log_dir: Path) -> Damage | None:
    """Flips a bit in the first log's last batch, where its checksum covers it. None: no log has a batch."""
    found = _last_batch(log_dir)
    if found is None:
        return None
    path, start, batch = found
    position = start + (CRC_FROM + batch.size) // 2
    with path.open("rb") as file:
        file.seek(position)
        byte = file.read(1)[0] ^ FLIPPED
    return _damage(log_dir, path, batch, position, byte)


def truncated(log_dir: Path) -> Damage | None:
    """Cuts off the last bytes of the first log's last batch. None: no log has a batch."""
    found = _last_batch(log_dir)
    if found is None:
        return None
    path, start, batch = found
    return _damage(log_dir, path, batch, start + batch.size - TORN_BYTES, None)


def _damage(log_dir: Path, path: Path, batch: Frame, position: int, byte: int | None) -> Damage:
    return Damage(
        partition=path.parent.name, file=path.relative_to(log_dir).as_posix(), position=position, byte=byte,
        lost_records=batch.last_offset - batch.base_offset + 1)


def _last_batch(log_dir: Path) -> tuple[Path, int, Frame] | None:
    """The last batch of the first partition, by name, that has one: its segment, its position, and the
    batch."""
    for folder in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        for path in sorted(folder.glob("*.log"), reverse=True):
            last = max(batches(path.read_bytes()), key=lambda one: one[0], default=None)
            if last is not None:
                return path, *last
    return None
