"""One partition's log on disk. (being written: signatures are final)"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.files import Files
from broker.messages import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLog:
    """What was found at open: what Replica needs (with the checkpointed HW, which is the shell's to add)."""

    log_start: int
    leo: int
    batches: tuple[Batch, ...]  # frames in order, data empty
    epochs: tuple[tuple[int, int], ...]  # leader-epoch cache, mended: nothing beyond LEO, nothing missing
    cut: str | None  # what was thrown away and why, for the log; None: nothing


class PartitionLog:
    recovered: RecoveredLog

    @classmethod
    def open(cls, files: Files, topic: str, partition: int, *, topic_id: str, segment_bytes: int = 1 << 30,
             flush_messages: int | None = None, keep_epochs: bool = True) -> "PartitionLog":
        """Makes `<topic>-<partition>/` (and partition.metadata with topic_id, hex) or recovers what is there:
        scans, cuts at the first bad or torn batch, drops what lies behind it, mends leader-epoch-checkpoint.
        keep_epochs False (high-watermark): no leader-epoch-checkpoint is written."""
        raise NotImplementedError

    @property
    def log_start(self) -> int: ...
    @property
    def leo(self) -> int: ...
    @property
    def flushed(self) -> int:
        """The offset up to which the log has been fsynced by us (the recovery point)."""

    def append(self, batches: Sequence[Batch]) -> None:
        """Writes the batches (stamped) at the end; fdatasync first thing after, if flush.messages says so, before it
        returns. Raises ValueError when the first does not begin at LEO, DiskError when the disk refuses."""

    def truncate(self, to: int) -> None:
        """LEO = `to`, a batch boundary (else ValueError). No-op at or above LEO."""

    def reset(self, start: int) -> None: ...
    def read(self, start: int, end: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `start`, none with an offset >= `end`; at least one even above
        max_bytes; from one segment only (there may be more behind). b"" when start >= end."""
        raise NotImplementedError

    def flush(self) -> None: ...
    def save_epochs(self, entries: Iterable[tuple[int, int]]) -> None:
        """leader-epoch-checkpoint, durable when it returns (effect SaveEpochs)."""

    def close(self) -> None:
        """Closes the files; flushes nothing."""
