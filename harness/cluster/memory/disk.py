"""One node's disk in memory: what survives its process, and which part of that survives a power cut.

Rules
1. An append is durable after a flush (a start makes up for one that is due); checkpoints are durable when
   they are written, and so is a truncation below the flushed end. So a power cut always leaves a prefix of
   the log.
2. A power cut cuts at a batch boundary: there are no files that could be torn.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from floodmark.broker.protocol.leader_epoch_cache import rebuild_cache
from floodmark.broker.protocol.messages import Batch
from floodmark.broker.protocol.replica import RecoveredState
from floodmark.broker.protocol.rules import Rules

Key = tuple[str, int]  # topic, partition
_FRAME_BYTES = 61  # of a record batch v2, without its records


def encode_values(values: Sequence[int]) -> bytes:
    """The records of one batch."""
    return b",".join(b"%d" % value for value in values)


def decode_values(batch: Batch) -> list[tuple[int, int]]:
    """(offset, value) of each record."""
    return [(batch.base_offset + at, int(digits)) for at, digits in enumerate(batch.data.split(b","))]


def size_of(batch: Batch) -> int:
    return _FRAME_BYTES + len(batch.data)


@dataclass(slots=True, kw_only=True, eq=False)
class PartitionLog:
    """The log of one replica, and its leader-epoch-checkpoint (None: there is no such file)."""

    topic_id: str
    start: int = 0
    leo: int = 0
    recovery_point: int = 0  # everything below is flushed
    epochs: tuple[tuple[int, int], ...] | None = None
    batches: list[Batch] = field(default_factory=list)
    _bases: list[int] = field(default_factory=list)

    def append(self, batches: Sequence[Batch], flush_messages: int | None) -> None:
        for batch in batches:
            self.batches.append(batch)
            self._bases.append(batch.base_offset)
        self.leo = self.batches[-1].last_offset + 1
        self.flush_if_due(flush_messages)

    def flush_if_due(self, flush_messages: int | None) -> None:
        if flush_messages is not None and self.leo - self.recovery_point >= flush_messages:
            self.flush()

    def flush(self) -> None:
        self.recovery_point = self.leo

    def truncate(self, to: int) -> None:
        """Sets the LEO to `to`, a batch boundary; does nothing at or above the LEO."""
        if to < self.leo:
            keep = bisect_left(self._bases, to)
            del self.batches[keep:], self._bases[keep:]
            self.leo, self.recovery_point = to, min(self.recovery_point, to)

    def drop_last_batch(self) -> None:
        """Drops the last batch, as a recovery that is one batch short does; does nothing to an empty log."""
        if self.batches:
            self.truncate(self.batches[-1].base_offset)

    def reset(self, start: int) -> None:
        self.batches.clear()
        self._bases.clear()
        self.start = self.leo = self.recovery_point = start

    def read(self, start: int, end: int, max_bytes: int) -> tuple[Batch, ...]:
        """Complete batches from the one with `start` on, none with an offset at or above `end`, of at most
        max_bytes, but at least one."""
        found: list[Batch] = []
        size = 0
        for at in range(max(0, bisect_right(self._bases, start) - 1), len(self.batches)):
            batch = self.batches[at]
            size += size_of(batch)
            if batch.last_offset >= end or (found and size > max_bytes):
                break
            found.append(batch)
        return tuple(found)

    def recover(self, rules: Rules, hw: int) -> RecoveredState:
        """Recovers the log as a starting broker does; rebuilds the epoch checkpoint if the rules say so."""
        epochs = self.epochs or ()
        if rules.keeps_epochs and rules.recovery_mends_epochs:
            written = ((batch.epoch, batch.base_offset) for batch in self.batches)
            mended = tuple(rebuild_cache(written, epochs, self.leo).entries)
            if mended != epochs:
                self.epochs = epochs = mended
        return RecoveredState(log_start=self.start, batches=self.batches, epochs=epochs, hw=hw)

    def cut_power(self, keep: int | None) -> int:
        """Loses what was not flushed, or all above the batch boundary at or below `keep`; returns the lost
        records."""
        was, to = self.leo, self.recovery_point
        for batch in self.batches:
            if keep is not None and self.recovery_point < batch.last_offset + 1 <= keep:
                to = max(to, batch.last_offset + 1)
        self.truncate(to)
        return was - self.leo

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields the rows of logs/NODE.jsonl, without node and partition."""
        for batch in self.batches:
            crc = crc32c(batch.data)
            for offset, value in decode_values(batch):
                yield {"offset": offset, "epoch": batch.epoch, "value": value, "crc": crc}


@dataclass(slots=True, kw_only=True, eq=False)
class Disk:
    """All logs of a node, replication-offset-checkpoint, and the marker of an orderly stop."""

    logs: dict[Key, PartitionLog] = field(default_factory=dict)
    high_watermarks: dict[Key, int] = field(default_factory=dict)
    clean_epoch: int | None = None  # the broker epoch of the last orderly stop; None: it was not orderly

    def cut_power(self, keep: Mapping[Key, int]) -> tuple[dict[Key, int], int]:
        """Makes a power cut; returns each log's LEO now, and the number of lost records."""
        lost = sum(log.cut_power(keep.get(key)) for key, log in self.logs.items())
        return {key: log.leo for key, log in self.logs.items()}, lost

    def wipe(self) -> int:
        """Empties the disk; returns the number of lost records."""
        lost = sum(log.leo - log.start for log in self.logs.values())
        self.logs.clear()
        self.high_watermarks.clear()
        self.clean_epoch = None
        return lost
