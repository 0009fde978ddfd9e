"""How far the reads of an imported history went: what may be inferred from them, and what is left open.

Jepsen infers a lost write from reads alone: an acked record that no poll ever returned, though one returned
a higher offset. So nothing can be inferred of a record acked above all that was read (`unread`), nor in a
partition of which something was returned and could not be carried (`blind`).

Its tests end with final polls: a process assigns, seeks the beginning and reads until it is through. They are
final reads of a partition if nothing was sent to it from then on, and they came to the highest offset that
anybody was told or shown.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson


@dataclass(slots=True, kw_only=True)
class Final:
    """What a process that sought the beginning has read since."""

    line: int  # of the history, where it had
    partitions: frozenset[int]
    reached: dict[int, int] = field(default_factory=dict)  # the highest offset, by partition


@dataclass(slots=True, kw_only=True)
class Reach:
    acked: dict[int, int] = field(default_factory=dict)  # the highest offset that was acked, by partition
    read: dict[int, int] = field(default_factory=dict)  # ... that a poll returned
    unplaced: dict[int, int] = field(default_factory=dict)  # value acked without an offset -> its partition
    blind: set[int] = field(default_factory=set)
    sent: dict[int, int] = field(default_factory=dict)  # the last line about a send, by partition
    finals: dict[int, Final] = field(default_factory=dict)  # by process, as it is numbered

    def was_acked(self, partition: int, offset: int | None, value: int) -> None:
        if offset is None:
            self.unplaced[value] = partition
        elif offset > self.acked.get(partition, -1):
            self.acked[partition] = offset

    def was_read(self, process: int, partition: int, offset: int) -> None:
        if offset > self.read.get(partition, -1):
            self.read[partition] = offset
        if process in self.finals:
            self.was_read_in_the_end(process, partition, offset)

    def was_read_in_the_end(self, process: int, partition: int, offset: int) -> None:
        reached = self.finals[process].reached
        reached[partition] = max(offset, reached.get(partition, -1))

    def unread(self, history: Path) -> list[int]:
        """Partitions with an acked record that may lie above everything that was read."""
        above = {key for key, offset in self.acked.items() if offset > self.read.get(key, -1)}
        return sorted(above | set(self._never_read(history)))

    def final_reads(self) -> tuple[list[int], list[int]]:
        """The processes of the final polls, and the partitions that they read to the end."""
        ends = [(process, partition) for process, final in self.finals.items()
                for partition in final.partitions if self._is_final(final, partition)]
        return sorted({process for process, _ in ends}), sorted({partition for _, partition in ends})

    def _is_final(self, final: Final, partition: int) -> bool:
        end = max(self.acked.get(partition, -1), self.read.get(partition, -1))
        return (partition not in self.blind and final.line > self.sent.get(partition, -1)
                and final.reached.get(partition, -1) >= end)

    def _never_read(self, history: Path) -> Iterable[int]:
        """Of the values whose offset no ack told: the history is read once more, for few have any."""
        left = dict(self.unplaced)
        if left:
            for value in read_values(history):
                left.pop(value, None)
        return left.values()


def read_values(history: Path) -> Iterator[int]:
    """Every value that some poll of the history returned."""
    with history.open("rb") as file:
        for line in file:
            if b'"reads":[{' in line:
                yield from (read["value"] for read in orjson.loads(line)["reads"])
