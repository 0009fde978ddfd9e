"""Remembers the last batches of each idempotent producer (KIP-98), so that a retry is recognized.

Rules
1. Of each producer id the last five batches are known; a batch that is one of them is a duplicate and is
   answered with the offset it was given.
2. A batch must continue its producer's sequence, else OUT_OF_ORDER_SEQUENCE_NUMBER; a lower producer epoch is
   fenced, a higher one begins at sequence 0; a producer id not known here may begin anywhere.
3. The state is a function of the log: it is rebuilt from it at a restart and after a truncation.
4. The sequence number after 2**31 - 1 is 0.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import Batch

REMEMBERED_BATCHES = 5
SEQUENCES = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMetadata:
    """One batch of a producer: first and last sequence, and where it lies."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass(slots=True, kw_only=True)
class _ProducerStateEntry:
    epoch: int
    batches: deque[BatchMetadata]


class ProducerStateManager:
    """The producers of one partition. Idempotent batches are columns beside the log, 34 bytes each."""

    __slots__ = ("_base_sequences", "_bases", "_by_id", "_epochs", "_ids", "_lasts")

    def __init__(self, batches: Iterable[Batch] = ()) -> None:
        self._by_id: dict[int, _ProducerStateEntry] = {}
        self._bases = array("q")
        self._lasts = array("q")
        self._ids = array("q")
        self._epochs = array("h")
        self._base_sequences = array("q")
        for batch in batches:
            self.update(batch)

    def check_batch(self, batch: Batch) -> tuple[int, BatchMetadata | None]:
        """(error, the batch this one repeats): (0, None) means that it may be appended."""
        producer = self._by_id.get(batch.producer_id)
        if batch.producer_id < 0 or producer is None:
            return errors.NONE, None
        if batch.producer_epoch < producer.epoch:
            return errors.INVALID_PRODUCER_EPOCH, None
        if batch.producer_epoch > producer.epoch:
            return (errors.NONE if batch.base_sequence == 0 else errors.OUT_OF_ORDER_SEQUENCE_NUMBER), None
        last = _last_sequence(batch.base_sequence, batch.count)
        for known in producer.batches:
            if known.first_sequence == batch.base_sequence and known.last_sequence == last:
                return errors.NONE, known
        expected = (producer.batches[-1].last_sequence + 1) % SEQUENCES
        if batch.base_sequence != expected:
            return errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None
        return errors.NONE, None

    def update(self, batch: Batch) -> None:
        """The batch is in the log, whatever its sequence: a follower takes what its leader took."""
        if batch.producer_id < 0:
            return
        self._bases.append(batch.base_offset)
        self._lasts.append(batch.last_offset)
        self._ids.append(batch.producer_id)
        self._epochs.append(batch.producer_epoch)
        self._base_sequences.append(batch.base_sequence)
        self._remember(len(self._ids) - 1)

    def truncate_to(self, to: int) -> None:
        """The log now ends at `to`: drop the batches above, and rebuild the state of their producers."""
        keep = bisect_left(self._bases, to)
        if keep == len(self._bases):
            return
        touched = set(self._ids[keep:])
        for column in (self._bases, self._lasts, self._ids, self._epochs, self._base_sequences):
            del column[keep:]
        for producer_id in touched:
            del self._by_id[producer_id]
        for index, producer_id in enumerate(self._ids):
            if producer_id in touched:
                self._remember(index)

    def clear(self) -> None:
        for column in (self._bases, self._lasts, self._ids, self._epochs, self._base_sequences):
            del column[:]
        self._by_id.clear()

    def _remember(self, index: int) -> None:
        epoch, first = self._epochs[index], self._base_sequences[index]
        producer = self._by_id.get(self._ids[index])
        if producer is None or producer.epoch != epoch:
            producer = _ProducerStateEntry(epoch=epoch, batches=deque(maxlen=REMEMBERED_BATCHES))
            self._by_id[self._ids[index]] = producer
        base, last = self._bases[index], self._lasts[index]
        producer.batches.append(
            BatchMetadata(
                first_sequence=first,
                last_sequence=_last_sequence(first, last - base + 1),
                base_offset=base,
                last_offset=last,
            )
        )


def _last_sequence(first: int, count: int) -> int:
    return (first + count - 1) % SEQUENCES
