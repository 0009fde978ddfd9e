"""Faults that may have happened although the history does not show them, and what they may permit.

Rules
1. A line that cannot be read may have been a fault that lost data, or an unclean election
   (read/broken_lines.py). The torn last line does not count as a line.
2. Where lines are unreadable or missing, any act of the schedule that the history lacks may be among them.
3. If indexes do not rise, or a time falls, nobody knows which sends came before a fault.
4. A fault is recorded when it has taken effect: the last fault of a killed harness may have no line.

Each of these makes a loss possibly permitted. If there is none of them, a loss is a bug.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.checkers.judge.preconditions import Preconditions
from floodmark.checkers.read.folder import Folder, ints, is_int
from floodmark.harness.faults import FAULTS, LOSES, loses
from floodmark.harness.schedule.entry import ACTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What may have happened that the history does not show."""

    lost: bool = False  # a fault that lost data
    unclean: bool = False  # an unclean election
    asked: bool = False  # a request for one before it happened
    disordered: bool = False  # lines may have come in another order
    untimely: bool = False  # or at another time


def unread_of(folder: Folder, seen: Preconditions) -> Unread:
    closed, bad = folder.about.get("history_lines"), seen.bad > folder.torn
    missing = is_int(closed) and seen.lines - folder.torn < closed
    lacks = lacking(folder, seen) if bad or missing else frozenset()
    # A killed harness had no time to record the fault that it had begun.
    unplanned = isinstance(folder.about.get("schedule"), list) and "elect" not in lacking(folder, seen)
    may_be = seen.broken_faults | (frozenset() if folder.torn else seen.last_broken_faults)
    return Unread(
        lost=bool(lacks - {"elect"} or may_be & LOSES),
        unclean="elect" in lacks | may_be,
        asked="elect" in lacks | may_be or ((bad or missing or folder.killed) and not unplanned),
        disordered=seen.disordered,
        untimely=seen.falls is not None,
    )


def lacking(folder: Folder, seen: Preconditions) -> frozenset[str]:
    """The fs of acts that lose data or elect uncleanly, and that the schedule has more often than the
    history."""
    schedule, missed = folder.about.get("schedule"), {*ints(folder.about.get("missed"))}
    asked = Counter(
        entry["f"]
        for place, entry in enumerate(schedule if isinstance(schedule, list) else [])
        if isinstance(entry, dict) and is_grave(entry) and place not in missed
    )
    return frozenset(asked - Counter(op["f"] for op in seen.nemesis))


def is_grave(entry: Mapping[str, Any]) -> bool:
    """Whether an act of a schedule may cost records. For acts that are not floodmark's own, nobody knows."""
    f = entry.get("f")
    if not isinstance(f, str) or f in ACTS:
        return False
    return f not in FAULTS or loses(f, entry) or (f == "elect" and entry.get("unclean") is True)
