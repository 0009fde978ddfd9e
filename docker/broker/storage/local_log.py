"""Stores the log of one partition in Kafka's own directory `<log.dir>/<topic>-<partition>/`.

Rules
1. An append is one write to the page cache and no fsync, as in Kafka, unless flush.messages asks for it:
   then the bytes are durable when `append` returns. An acknowledged write is not a durable one. Likewise
   `configure` flushes what recovery found unflushed: a kill may have come between a write and its fsync.
2. Only the last segment has bytes that are not durable: a roll flushes the segment it closes. So what a
   power cut leaves is always a prefix of the log.
3. Offsets have no holes; a batch that does not begin at LEO is refused.
4. Recovery (log_recovery.py) keeps every good batch up to the first bad one. It reads all segments even
   after a clean shutdown: that is quick, and a marker may be wrong.
5. After a DiskError the log must not be used any more: open it again.
"""

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.protocol.rules import Rules
from floodmark.broker.storage.checkpoint_files import (
    EPOCHS,
    PARTITION_METADATA,
    ensure_partition_metadata,
    read_epoch_checkpoint,
    write_epoch_checkpoint,
)
from floodmark.broker.storage.log_directory import DiskError, LogDirectory
from floodmark.broker.storage.log_recovery import DEFAULT_RULES, Epochs, mend_epochs, scan_segment
from floodmark.broker.storage.log_segment import LogSegment, segment_base_offset, segment_name
from floodmark.broker.wire.record_batch import stamp_batch

DEFAULT_SEGMENT_BYTES = 1 << 30  # log.segment.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLog:
    """What the log held when it was opened: all that a Replica begins with except the checkpointed HW, which
    the replica manager adds."""

    log_start: int
    leo: int
    batches: tuple[Batch, ...]  # frames in order, data empty
    epochs: Epochs  # leader-epoch-checkpoint, mended: nothing beyond LEO, nothing that the batches contradict
    cut: str | None  # what was cut off and why, for people to read; None: nothing


class LocalLog:
    """An open log. Use `open`; a directory may have only one at a time."""

    def __init__(self, files: LogDirectory, folder: str, *, segment_bytes: int, flush_messages: int | None,
                 rules: Rules) -> None:
        self.folder = folder
        self._rules = rules
        self.flush_messages = flush_messages  # flush.messages: fsync after so many records; None: never
        self._files = files
        self._segment_bytes = segment_bytes
        self._segments: list[LogSegment] = []
        self._recovery_point = 0
        self.recovered = RecoveredLog(log_start=0, leo=0, batches=(), epochs=(), cut=None)

    @classmethod
    def open(cls, files: LogDirectory, topic: str, partition: int, *, topic_id: str,
             segment_bytes: int = DEFAULT_SEGMENT_BYTES, flush_messages: int | None = None,
             rules: Rules = DEFAULT_RULES) -> "LocalLog":
        """Create the directory (with partition.metadata; topic_id is hex), or recover the existing log.

        Recovery cuts at the first bad or torn batch, drops the segments after it, and rewrites
        leader-epoch-checkpoint where it does not fit what is left; by rules that keep no epochs it
        neither reads nor writes that file. Raises DiskError, and CheckpointError for a
        damaged checkpoint or another topic's id.
        """
        folder = f"{topic}-{partition}"
        log = cls(files, folder, segment_bytes=segment_bytes, flush_messages=flush_messages, rules=rules)
        files.make_folder(folder)
        ensure_partition_metadata(files, folder, topic_id)
        try:
            log._recover()
        except BaseException:
            log.close()
            raise
        return log

    def release_recovered_batches(self) -> None:
        """Release the memory of the frames, once a Replica has been built from them."""
        self.recovered = replace(self.recovered, batches=())

    @property
    def log_start(self) -> int:
        return self._segments[0].base

    @property
    def leo(self) -> int:
        return self._segments[-1].leo

    @property
    def recovery_point(self) -> int:
        """The offset below which every record is known to be durable."""
        return self._recovery_point

    def append(self, batches: Sequence[Batch]) -> None:
        """Write the batches (each stamped with its offset and epoch) at the end; flush if flush.messages
        says so.

        Raises ValueError, with nothing written, when they do not continue the log. DiskError when the disk
        refuses: complete batches that were written to an earlier segment are there, and nothing of the rest.
        """
        expected = self.leo
        for batch in batches:
            if batch.base_offset != expected and self._rules.checks_base_offsets:
                raise ValueError(f"{self.folder}: a batch at offset {batch.base_offset}, not {expected}")
            expected = batch.last_offset + 1
        active = self._segments[-1]
        chunk: list[tuple[Batch, bytes]] = []
        room = active.size  # bytes in the active segment with the chunk in it
        for batch in batches:
            data = stamp_batch(batch)
            if not active.has_room_for(batch.last_offset, room, len(data), self._segment_bytes):
                self._write_batches(active, chunk)
                active, chunk, room = self._roll(), [], 0
            chunk.append((batch, data))
            room += len(data)
        self._write_batches(active, chunk)
        self._flush_if_due()

    def truncate(self, to: int) -> None:
        """Truncate to LEO `to`, a batch boundary not below log_start (else ValueError); do nothing at or
        above the LEO."""
        if to >= self.leo:
            return
        if to < self.log_start:
            raise ValueError(f"{self.folder}: cannot truncate to {to}, the log begins at {self.log_start}")
        segment = self._find_segment(to)
        position = segment.position_of(to)
        if position is None:
            raise ValueError(f"{self.folder}: cannot truncate to {to}, which lies inside a batch")
        self._truncate_segment(segment, to, position)

    def reset(self, start: int) -> None:
        """Delete every record and begin an empty log at `start`. (A kill on the way leaves a shorter or empty
        log.)"""
        self._delete_segments(self._segments)
        self._segments = []
        self._new_segment(start)
        self._recovery_point = start

    def read(self, start: int, end: int, max_bytes: int) -> bytes:
        """Read complete batches from the one that contains `start`, none with an offset at or above `end`, of
        at most max_bytes but at least one. It reads one segment only: there may be more after it. b"" for
        start >= end.

        Raises ValueError when `start` is not in the log.
        """
        end = min(end, self.leo)
        if start >= end:
            return b""
        if start < self.log_start:
            raise ValueError(f"{self.folder}: offset {start} is below the log's start {self.log_start}")
        segment = self._find_segment(start)
        begin, stop = segment.batch_range(start, end, max_bytes)
        try:
            data = os.pread(segment.descriptor, stop - begin, begin)
        except OSError as error:
            raise DiskError(f"cannot read {self._files.path(segment.name)}: {error.strerror}") from error
        if len(data) != stop - begin:
            raise DiskError(f"{self._files.path(segment.name)} ends before byte {stop}: another has cut it")
        return data

    def batches(self) -> Iterator[tuple[mmap.mmap, int, int]]:
        """Yield (the bytes of a segment, begin, end) for every batch in order. The bytes are valid until the
        next one is requested."""
        for segment in list(self._segments):
            if segment.size:
                with mmap.mmap(segment.descriptor, segment.size, prot=mmap.PROT_READ) as data:
                    yield from ((data, *span) for span in pairwise((*segment.positions, segment.size)))

    def flush(self) -> None:
        """Make every record durable."""
        if self._recovery_point < self.leo:
            active = self._segments[-1]
            self._files.sync(active.name, active.descriptor, active.size)
            self._recovery_point = self.leo

    def save_epochs(self, entries: Iterable[tuple[int, int]]) -> None:
        """Write leader-epoch-checkpoint with these (epoch, start offset), durable when this returns."""
        write_epoch_checkpoint(self._files, f"{self.folder}/{EPOCHS}", entries)

    def configure(self, *, segment_bytes: int, flush_messages: int | None) -> None:
        """Use the topic's configs from now on, flush.messages also for what is unflushed already."""
        self._segment_bytes, self.flush_messages = segment_bytes, flush_messages
        self._flush_if_due()

    def delete(self) -> None:
        """Delete the directory, newest segment first, partition.metadata last. Descriptors stay open until
        `close`, so that a reader can finish."""
        newest_first = [segment.name for segment in reversed(self._segments)]
        self._files.remove(newest_first)
        others = sorted(
            self._files.list_folder(self.folder), key=lambda name: (name == PARTITION_METADATA, name)
        )
        self._files.remove(f"{self.folder}/{name}" for name in others)
        self._files.remove_folder(self.folder)

    def close(self) -> None:
        """Close the files without a flush; safe to call twice."""
        for segment in self._segments:
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
                segment.descriptor = -1

    def _write_batches(self, segment: LogSegment, chunk: Sequence[tuple[Batch, bytes]]) -> None:
        if not chunk:
            return
        data = chunk[0][1] if len(chunk) == 1 else b"".join([data for _, data in chunk])
        self._files.write(segment.name, segment.descriptor, data, segment.size)
        for batch, stamped in chunk:
            segment.add_batch(batch.base_offset, batch.last_offset, len(stamped))

    def _flush_if_due(self) -> None:
        if self.flush_messages is not None and self.leo - self._recovery_point >= self.flush_messages:
            self.flush()

    def _roll(self) -> LogSegment:
        self.flush()
        return self._new_segment(self.leo)

    def _new_segment(self, base: int) -> LogSegment:
        name = segment_name(self.folder, base)
        segment = LogSegment(name=name, base=base, descriptor=self._files.create(name), leo=base)
        self._segments.append(segment)
        return segment

    def _find_segment(self, offset: int) -> LogSegment:
        return self._segments[bisect_right(self._segments, offset, key=_base_offset) - 1]

    def _delete_segments(self, segments: Sequence[LogSegment]) -> None:
        """Delete the newest first, so that what is left at any instant is a prefix of the log."""
        newest_first = list(reversed(segments))
        self._files.remove(segment.name for segment in newest_first)
        for segment in newest_first:
            os.close(segment.descriptor)
            segment.descriptor = -1

    def _truncate_segment(self, segment: LogSegment, to: int, position: int) -> None:
        later = self._segments[self._segments.index(segment) + 1:]
        if later:
            self._delete_segments(later)
            del self._segments[-len(later):]
        self._files.truncate(segment.name, segment.descriptor, position)
        segment.truncate_to(to, position)
        self._recovery_point = min(self._recovery_point, to)

    def _recover(self) -> None:
        batches: list[Batch] = []
        cut = self._scan_segments(batches)
        if not self._segments:
            self._new_segment(0)
        if batches and not self._rules.recovery_keeps_last_batch:
            self.truncate(batches.pop().base_offset)
        active = self._segments[-1]
        self._recovery_point = active.offset_at(min(self._files.durable_length(active.name), active.size))
        epochs: Epochs = ()
        if self._rules.keeps_epochs:
            found = read_epoch_checkpoint(self._files.path(f"{self.folder}/{EPOCHS}")) or ()
            mends = self._rules.recovery_mends_epochs
            epochs = mend_epochs(found, batches, self.leo) if mends else found
            if epochs != found:
                self.save_epochs(epochs)
        self.recovered = RecoveredLog(log_start=self.log_start, leo=self.leo, batches=tuple(batches),
                                      epochs=epochs, cut=cut)

    def _scan_segments(self, batches: list[Batch]) -> str | None:
        """Open the segments up to the first bad batch; returns a description of what was cut off, if any."""
        names = [
            name for name in self._files.list_folder(self.folder) if segment_base_offset(name) is not None
        ]
        for number, file_name in enumerate(names):
            base = int(file_name[:20])
            if number and base != self.leo:
                return self._drop_unreadable(names[number:], f"{file_name} does not begin at {self.leo}")
            name = segment_name(self.folder, base)
            descriptor = self._files.open_file(name)
            segment = LogSegment(name=name, base=base, descriptor=descriptor, leo=base)
            self._segments.append(segment)
            size = os.fstat(descriptor).st_size
            found = scan_segment(descriptor, size, base, self._rules)
            for batch, end in zip(found.batches, found.ends, strict=True):
                segment.add_batch(batch.base_offset, batch.last_offset, end - segment.size)
            batches.extend(found.batches)
            if found.bad is not None:
                self._files.truncate(name, descriptor, segment.size)
                why = f"{name}: {size - segment.size} of {size} bytes cut off, {found.bad}"
                return self._drop_unreadable(names[number + 1:], why)
        return None

    def _drop_unreadable(self, file_names: Sequence[str], why: str) -> str:
        if not file_names:
            return why
        self._files.remove(f"{self.folder}/{name}" for name in reversed(file_names))
        return f"{why}; segments dropped: {', '.join(file_names)}"


def _base_offset(segment: LogSegment) -> int:
    return segment.base
