"""Rebuilds a replica's log from its trace events, as ranges of offsets by epoch. Pure.
The viewer (viewer.js) is told what each event changes, and has no rules of its own.

Rules
1. `append` first removes what is at its offsets or above, then adds its records. `truncate` and `start` cut
   the log to the LEO they name.
2. What was cut is kept in `cut` until the same record (offset and epoch) is back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.report.model import int_in, items

Stretch = tuple[int, int, int]  # epoch, first offset, the offset after the last


@dataclass(slots=True, kw_only=True)
class ReplicaLog:
    """One replica of one partition, by its own trace."""

    log: list[Stretch] = field(default_factory=list)
    cut: list[Stretch] = field(default_factory=list)
    leo: int = 0
    hw: int = 0
    epoch: int = -1
    role: str = ""  # leader or follower; empty: none yet

    def apply(self, event: Mapping[str, Any]) -> None:
        """Applies one line of this replica's trace."""
        fields, name = dict(event), event.get("event")
        if name == "append":
            self._append(fields)
        elif name == "truncate":
            self._cut_to(int_in(fields, "to"))
        elif name == "start":
            self.role = ""
            self._start(fields)
        elif name in ("become_leader", "become_follower"):
            self.role = str(name)[len("become_") :]
        self.leo, self.hw, self.epoch = (
            kept if (value := int_in(fields, key)) is None else value
            for key, kept in (("leo", self.leo), ("hw", self.hw), ("epoch", self.epoch))
        )

    def _append(self, fields: dict[str, Any]) -> None:
        offset, count = int_in(fields, "offset"), int_in(fields, "count")
        if offset is None or count is None or count < 1:
            return
        self._cut_to(offset)
        for epoch, first, behind in stretches(items(fields, "epochs"), offset, offset + count):
            if self.log and self.log[-1][0] == epoch and self.log[-1][2] == first:
                self.log[-1] = epoch, self.log[-1][1], behind
            else:
                self.log.append((epoch, first, behind))
            self.cut = without(self.cut, (epoch, first, behind))

    def _start(self, fields: dict[str, Any]) -> None:
        leo = int_in(fields, "leo")
        if leo is None:
            return
        self._cut_to(leo)
        end = self.log[-1][2] if self.log else int_in(fields, "log_start") or 0
        if end < leo:
            self.log += stretches(items(fields, "epochs"), end, leo)

    def _cut_to(self, end: int | None) -> None:
        if end is None:
            return
        kept: list[Stretch] = []
        for epoch, first, behind in self.log:
            if first < end:
                kept.append((epoch, first, min(behind, end)))
            if behind > end:
                self.cut.append((epoch, max(first, end), behind))
        self.log = kept


def stretches(epochs: list[Any], first: int, behind: int) -> list[Stretch]:
    """[[epoch, first offset], ...] between two offsets; what no entry covers is of epoch -1."""
    marks = [
        (one[1], one[0])
        for one in epochs
        if isinstance(one, list) and len(one) == 2 and type(one[0]) is int and type(one[1]) is int
    ]
    marks = sorted(mark for mark in marks if mark[0] < behind)
    starts = [(max(first, offset), epoch) for offset, epoch in marks]
    if not starts or starts[0][0] > first:
        starts.insert(0, (first, -1))
    ends = [offset for offset, _ in starts[1:]] + [behind]
    return [(epoch, begin, end) for (begin, epoch), end in zip(starts, ends, strict=True) if begin < end]


def without(cut: list[Stretch], back: Stretch) -> list[Stretch]:
    """The stretches, less what is of the same epoch and between the same offsets."""
    left: list[Stretch] = []
    for epoch, first, behind in cut:
        if epoch != back[0] or behind <= back[1] or first >= back[2]:
            left.append((epoch, first, behind))
            continue
        left += [(epoch, first, back[1])] if first < back[1] else []
        left += [(epoch, back[2], behind)] if behind > back[2] else []
    return left
