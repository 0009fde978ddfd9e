"""Recovers a log after a crash: finds where it must be truncated, and which leader epochs it contains.

Rules
1. A scan keeps every batch up to the first that is torn, fails its CRC, or does not begin where the one
   before ended (base offset lies outside the CRC, so only this shows it damaged). Leader epochs lie outside
   it too, but an epoch that falls is no reason to cut: before KIP-101 correct logs had such epochs.
2. Batches are the authority on epochs, leader-epoch-checkpoint is not: it is fsynced when an epoch begins,
   while the records of that epoch may be lost, or come back, in a power cut.
"""

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from floodmark.broker.protocol.leader_epoch_cache import rebuild_cache
from floodmark.broker.protocol.messages import Batch
from floodmark.broker.protocol.rules import KIP_320, Rules
from floodmark.broker.wire.record_batch import CorruptBatch, batch_end, read_frame, read_unverified_frame

DEFAULT_RULES = KIP_320  # for a log that is opened without naming its rules

Epochs = tuple[tuple[int, int], ...]  # (epoch, start offset), both ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedSegment:
    """The good batches of one segment, in order (data empty), and where each ends."""

    batches: Sequence[Batch]
    ends: Sequence[int]
    bad: str | None  # why it was not good to the end

    @property
    def end(self) -> int:
        """The position after the last good batch."""
        return self.ends[-1] if self.ends else 0


def scan_segment(descriptor: int, size: int, expected: int, rules: Rules = DEFAULT_RULES) -> ScannedSegment:
    """Scan a segment's first `size` bytes, whose first batch must begin at offset `expected`."""
    batches: list[Batch] = []
    ends: list[int] = []
    if size == 0:
        return ScannedSegment(batches=batches, ends=ends, bad=None)
    bad = None
    position = 0
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
        while position < size:
            try:
                end = batch_end(view, position)
                if not rules.recovery_checks_batches:
                    end = min(end, size)
                    batch = read_unverified_frame(view, position)
                elif end > size:
                    raise CorruptBatch(position, f"torn: {size - position} of {end - position} bytes")
                else:
                    batch = read_frame(view, position, end)
                if batch.base_offset != expected:
                    raise CorruptBatch(position, f"begins at offset {batch.base_offset}, not {expected}")
            except CorruptBatch as error:
                bad = str(error)
                break
            batches.append(batch)
            ends.append(end)
            expected, position = batch.last_offset + 1, end
    if bad is not None and not rules.recovery_keeps_segments:
        return ScannedSegment(batches=(), ends=(), bad=bad)
    return ScannedSegment(batches=batches, ends=ends, bad=bad)


def mend_epochs(found: Iterable[tuple[int, int]], batches: Iterable[Batch], leo: int) -> Epochs:
    """Fit the entries of leader-epoch-checkpoint (`found`) to the batches."""
    return tuple(rebuild_cache(((batch.epoch, batch.base_offset) for batch in batches), found, leo).entries)
