"""Faults that the history may have told of and does not show: what they may permit, nobody can rule out.

Rules
1. A line that cannot be read may have been of a fault that lost data, or of an unclean election
   (read/broken_lines.py). The torn last line is no line.
2. Where lines are unreadable or missing, so may have been any act of the schedule that the history lacks.
3. Indexes that do not rise, or a time that falls, leave open which sends came before a fault that is told.
4. A fault is written down when it has taken effect: of a killed harness's last one there may be no line.

Of all this a loss becomes one that is permitted perhaps. With nothing of the kind in sight it stands.
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
    """What may have happened besides what the history tells."""

    lost: bool = False  # a fault that lost data
    unclean: bool = False  # an unclean election
    asked: bool = False  # somebody who asked for one before it came
    disordered: bool = False  # lines may have come in another order
    untimely: bool = False  # or at another time


def unread_of(folder: Folder, seen: Preconditions) -> Unread:
    closed, bad = folder.about.get("history_lines"), seen.bad > folder.torn
    missing = is_int(closed) and seen.lines - folder.torn < closed
    lacks = lacking(folder, seen) if bad or missing else frozenset()
    # What a killed harness had set about it had no time to write down.
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
    """The fs of acts that were to lose data, or to elect uncleanly, more often than the history tells."""
    schedule, missed = folder.about.get("schedule"), {*ints(folder.about.get("missed"))}
    asked = Counter(
        entry["f"]
        for place, entry in enumerate(schedule if isinstance(schedule, list) else [])
        if isinstance(entry, dict) and is_grave(entry) and place not in missed
    )
    return frozenset(asked - Counter(op["f"] for op in seen.nemesis))


def is_grave(entry: Mapping[str, Any]) -> bool:
    """An act of a schedule that may cost records. Of one that is not floodmark's own, nobody knows here."""
    f = entry.get("f")
    if not isinstance(f, str) or f in ACTS:
        return False
    return f not in FAULTS or loses(f, entry) or (f == "elect" and entry.get("unclean") is True)
