"""The trace: what happened here, one JSON line an event, written before anything of it leaves."""

from collections.abc import Mapping, Sequence
from typing import Any


class Trace:
    """Lines with a clock and a sequence; `on` is false where nobody asked for one."""

    def __init__(self) -> None:
        self.on = False

    def replica(self, topic: str, partition: int, lines: Sequence[Mapping[str, Any]]) -> None:
        """The lines of one step of a replica, by one write."""
