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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.checkers.judge.preconditions import Preconditions
from floodmark.checkers.read.folder import Folder, ints, is_int
from floodmark.harness.faults import FAULTS, LOSES, SPARES_FLUSHED, loses
from floodmark.harness.schedule.entry import ACTS

ENDING = frozenset(f for f, fault in FAULTS.items() if fault.may_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What may have happened that the history does not show."""

    lost: bool = False  # a fault that lost data
    unflushed: bool = False  # one that lost data although every write is flushed
    ended: bool = False  # the end of a process that flushed nothing
    unclean: bool = False  # an unclean election
    asked: bool = False  # a request for one before it happened
    disordered: bool = False  # lines may have come in another order
    untimely: bool = False  # or at another time


def unread_of(folder: Folder, seen: Preconditions) -> Unread:
    closed, bad = folder.about.get("history_lines"), seen.bad > folder.torn
    missing = is_int(closed) and seen.lines - folder.torn < closed
    lacks = lacking(folder, seen, is_grave) if bad or missing else frozenset()
    # A killed harness had no time to record the fault that it had begun.
    unplanned = isinstance(folder.about.get("schedule"), list)
    unplanned = unplanned and "elect" not in lacking(folder, seen, is_grave)
    may_be = seen.broken_faults | (frozenset() if folder.torn else seen.last_broken_faults)
    losing = (lacks - {"elect"}) | (may_be & LOSES)
    ended = bool((losing | may_be) & ENDING or ((bad or missing) and lacking(folder, seen, is_ending)))
    may_end = not flushes_at_recovery(folder) and (ended or folder.about.get("died") or ends_of(seen.nemesis))
    return Unread(
        lost=bool(losing),
        unflushed=bool(losing if may_end else losing - SPARES_FLUSHED),
        ended=ended and not flushes_at_recovery(folder),
        unclean="elect" in lacks | may_be,
        asked="elect" in lacks | may_be or ((bad or missing or folder.killed) and not unplanned),
        disordered=seen.disordered,
        untimely=seen.falls is not None,
    )


def flushes_at_recovery(folder: Folder) -> bool:
    """Whether a starting broker flushes what it finds written, where every write is to be flushed."""
    system = folder.about.get("system")
    return isinstance(system, dict) and system.get("flushes_at_recovery") is True


def ends_of(nemesis: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    """When the process of each node had ended, or may have, with writes that were not flushed: (index, time)
    of the fault, or of the start of a node that nothing had ended."""
    ends, down = dict[str, list[tuple[int, int]]](), set[str]()
    for op in nemesis:
        f = op["f"]
        for node in (node for node in listed(op["fault"].get("nodes")) if isinstance(node, str)):
            if f in ENDING or f not in FAULTS or (f == "start" and node not in down):
                ends.setdefault(node, []).append((op["index"], op["time"]))
            if f == "start":
                down.discard(node)
            elif f in FAULTS and FAULTS[f].takes_down:
                down.add(node)
    return ends


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def lacking(
    folder: Folder, seen: Preconditions, counts: Callable[[Mapping[str, Any]], bool]
) -> frozenset[str]:
    """The fs of such acts that the schedule has more often than the history."""
    schedule, missed = folder.about.get("schedule"), {*ints(folder.about.get("missed"))}
    asked = Counter(
        entry["f"]
        for place, entry in enumerate(schedule if isinstance(schedule, list) else [])
        if isinstance(entry, dict) and counts(entry) and place not in missed
    )
    return frozenset(asked - Counter(op["f"] for op in seen.nemesis))


def is_ending(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("f"), str) and entry["f"] in ENDING


def is_grave(entry: Mapping[str, Any]) -> bool:
    """Whether an act of a schedule may cost records. For acts that are not floodmark's own, nobody knows."""
    f = entry.get("f")
    if not isinstance(f, str) or f in ACTS:
        return False
    return f not in FAULTS or loses(f, entry) or (f == "elect" and entry.get("unclean") is True)
