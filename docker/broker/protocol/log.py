"""Models the log of a replica: where each batch begins and in which epoch it was written, never its bytes.

Rules
1. Batches are contiguous: each begins where the last one ended, and the LEO is where the last one ends.
2. Epochs never fall along the log, where the rules keep lineage.
3. A truncation lands on a batch boundary at or below the offset asked for, as a file can be cut nowhere else.
4. A batch costs twelve bytes here: a partition of a long run has a million.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from floodmark.broker.protocol.errors import IllegalEvent
from floodmark.broker.protocol.messages import NO_EPOCH, Batch


class Log:
    """Batch boundaries and epochs from `start` up to `end` (the LEO)."""

    __slots__ = ("_bases", "_epochs", "end", "start")

    def __init__(self, start: int, batches: Iterable[Batch] = ()) -> None:
        self.start = start
        self.end = start
        self._bases = array("q")
        self._epochs = array("i")
        for batch in batches:
            self.append(batch)

    def __len__(self) -> int:
        """Batches, not records."""
        return len(self._bases)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch, NO_EPOCH if there is none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def append(self, batch: Batch, *, anywhere: bool = False) -> None:
        """IllegalEvent if it does not begin at the LEO; `anywhere` is a mutant's rule."""
        misplaced = batch.base_offset != self.end and not anywhere
        if misplaced or batch.last_offset < batch.base_offset:
            frame = f"{batch.base_offset}-{batch.last_offset}"
            raise IllegalEvent(f"batch {frame} does not continue a log of LEO {self.end}")
        self._bases.append(batch.base_offset)
        self._epochs.append(batch.epoch)
        self.end = batch.last_offset + 1

    def epoch_at(self, offset: int) -> int:
        """The epoch of the batch that holds `offset`, NO_EPOCH if none does."""
        if not self.start <= offset < self.end:
            return NO_EPOCH
        return self._epochs[bisect_right(self._bases, offset) - 1]

    def batch_boundary(self, offset: int) -> int:
        """The nearest offset at or below `offset` where the log can be cut."""
        if offset >= self.end:
            return self.end
        index = bisect_right(self._bases, offset) - 1
        return self._bases[index] if index >= 0 else self.start

    def truncate_to(self, offset: int) -> int:
        """Cut at the boundary at or below `offset`; the new LEO."""
        to = self.batch_boundary(offset)
        if to < self.end:
            keep = bisect_left(self._bases, to)
            del self._bases[keep:]
            del self._epochs[keep:]
            self.end = to
        return to

    def reset(self, start: int) -> None:
        """Drop everything; the log is then empty and begins at `start`."""
        del self._bases[:]
        del self._epochs[:]
        self.start = self.end = start
