"""Defines entries, of which schedules are made: run.json's `schedule`, scenario steps and random plans.

nemesis/README.md describes their JSON form, which json_form.py reads and writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.schedule.moments import Moment

ACTS = frozenset({"send", "poll", "list_offsets", "wait"})  # entries that are no faults
MOMENT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a schedule. `nodes`: names, or roles, which are resolved when it strikes."""

    f: str
    nodes: tuple[str, ...] = ()
    moment: Moment | None = None  # None: at once
    timeout_s: float = MOMENT_TIMEOUT_S  # of the moment
    args: Mapping[str, Any] = field(default_factory=dict)  # grudge, unclean, sends, keep, ...: by f

    def text(self) -> str:
        """`kill n1 n2`."""
        return " ".join((self.f, *self.nodes))

    @property
    def partition(self) -> int:
        """The partition for which roles are resolved: the entry's, that of its ops or its point, else 0."""
        named = [self.args, *self.args.get("sends", ()), self.args.get("point", {})]
        partitions = (one["partition"] for one in named if "partition" in one)
        return int(next(partitions, next(iter(self.args.get("partitions", ())), 0)))


Schedule = tuple[Entry, ...]
