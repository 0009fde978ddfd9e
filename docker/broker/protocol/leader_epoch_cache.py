"""Keeps which leader epoch began at which offset of this log (KIP-101, Kafka's LeaderEpochFileCache).

The file itself, leader-epoch-checkpoint, is written when the effect SaveEpochs is carried out.

Rules
1. Epochs rise strictly and start offsets never fall from entry to entry.
2. An assignment drops every entry it contradicts: those of the same or a later epoch, those at or above its
   start.
3. The last entry may start at the LEO: its leader has written nothing yet (KAFKA-7415).
4. `end_offset_for` answers with the largest epoch <= the requested one (KIP-279), never with an epoch that
   the cache lacks. One exception: an epoch older than all entries ended where the first entry begins.
   `kip_101_end_offset_for` answers as before KIP-279: the start of the first larger epoch.
"""

from collections.abc import Iterable

from floodmark.broker.protocol.messages import NO_EPOCH, EpochEnd


class LeaderEpochFileCache:
    """Entries (epoch, start offset), ascending. Methods that change it say whether they did."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries: list[tuple[int, int]] = []
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def latest_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def assign(self, epoch: int, start: int) -> bool:
        """The epoch begins at `start`, unless it is already the latest."""
        if epoch < 0 or epoch == self.latest_epoch:
            return False
        entries = self.entries
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start):
            entries.pop()
        entries.append((epoch, start))
        return True

    def end_offset_for(self, epoch: int, leo: int) -> EpochEnd | None:
        """Where the largest epoch <= `epoch` ends; None if `epoch` is later than all there are."""
        entries = self.entries
        if epoch == NO_EPOCH or not entries or epoch > entries[-1][0]:
            return None
        if epoch == entries[-1][0]:
            return EpochEnd(epoch=epoch, end_offset=leo)
        later = next(index for index, entry in enumerate(entries) if entry[0] > epoch)
        found = entries[later - 1][0] if later else epoch
        return EpochEnd(epoch=found, end_offset=entries[later][1])

    def kip_101_end_offset_for(self, epoch: int, leo: int) -> EpochEnd | None:
        """The end of `epoch` as KIP-101 answered it: an offset alone, perhaps of an epoch that is not
        here; None for an epoch older or later than all there are."""
        entries = self.entries
        if epoch < 0 or not entries or not entries[0][0] <= epoch <= entries[-1][0]:
            return None
        if epoch == entries[-1][0]:
            return EpochEnd(epoch=NO_EPOCH, end_offset=leo)
        later = next(start for known, start in entries if known > epoch)
        return EpochEnd(epoch=NO_EPOCH, end_offset=later)

    def truncate_from_end(self, to: int) -> bool:
        """The log now ends at `to`: drop the entries at or above it (KAFKA-10706)."""
        before = len(self.entries)
        while self.entries and self.entries[-1][1] >= to:
            self.entries.pop()
        return len(self.entries) != before

    def clear(self) -> bool:
        changed = bool(self.entries)
        self.entries.clear()
        return changed


def rebuild_cache(
    written: Iterable[tuple[int, int]], checkpoint: Iterable[tuple[int, int]], leo: int
) -> LeaderEpochFileCache:
    """The cache that fits a recovered log: `written` is (epoch, first offset) of its batches.

    From the checkpoint it keeps only an entry at the LEO whose epoch is higher than any record's: its leader
    has written nothing yet, or those records are lost; in either case that epoch begins at the LEO here.
    """
    cache = LeaderEpochFileCache(written)
    for epoch, start in checkpoint:
        if start == leo and epoch > cache.latest_epoch:
            cache.assign(epoch, start)
    return cache
