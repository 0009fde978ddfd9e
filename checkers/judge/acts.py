"""What the nemesis did, as rows; and what it may have done that the history does not show.

Rules
1. A line that cannot be read may have been a fault that lost data, or an unclean election
   (read/tables.py). The torn last line does not count as a line.
2. Where lines are unreadable or missing, any act of the schedule that the history lacks may be among them.
3. If indexes do not rise, or a time falls, nobody knows which sends came before a fault.
4. A fault is recorded when it has taken effect: the last fault of a killed harness may have no line.
5. A fault that names no node, as another package's may, may have struck any.

Each of these makes a loss possibly permitted. If there is none of them, a loss is a bug.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from floodmark.checkers.judge.preconditions import Preconditions, faults_in_broken, is_cut_short
from floodmark.checkers.read.folder import INT64, Folder, ints, is_int, names
from floodmark.harness.faults import FAULTS, LOSES, SPARES_FLUSHED, loses
from floodmark.harness.schedule.moments import ACTS as OURS

ENDING = frozenset(f for f, fault in FAULTS.items() if fault.may_end)
# One row for each node of a line of the nemesis (null: it names none). began: when it was set about; time:
# nothing more is lost after this; ended: the process had ended, or may have, with writes that were not
# flushed; spares_flushed: it loses only such writes; asks: for an unclean election of `partitions` (null:
# all).
ACTS = pa.schema([
    ("run", pa.int32()), ("index", pa.int64()), ("began", pa.int64()), ("time", pa.int64()),
    ("node", pa.string()), ("lost", pa.bool_()), ("ended", pa.bool_()), ("spares_flushed", pa.bool_()),
    ("asks", pa.bool_()), ("partitions", pa.list_(pa.int64())),
])  # fmt: skip


def acts_of(nemesis: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of one run, without its number and with their f. A start of a node that nothing had ended
    shows that its process had ended."""
    down: set[str | None] = set()
    for op in nemesis:
        f, fault = op["f"], op["fault"]
        asked = fault.get("partitions", [fault["partition"]] if is_int(fault.get("partition")) else None)
        for node in dict.fromkeys(names(fault.get("nodes"))) or (None,):
            yield {
                "f": f, "index": op["index"], "time": op["time"], "node": node,
                "began": fault["began"] if is_int(fault.get("began")) else op["time"],
                "lost": fault.get("lost") is True,
                "ended": f in ENDING or f not in FAULTS or (f == "start" and node not in down),
                "spares_flushed": f in SPARES_FLUSHED,
                "asks": f == "elect" and fault.get("unclean") is True,
                "partitions": [*map(int, filter(is_whole, asked))] if isinstance(asked, list) else None,
            }  # fmt: skip
            if f == "start":
                down.discard(node)
            elif f in FAULTS and FAULTS[f].takes_down:
                down.add(node)


def is_whole(key: object) -> bool:
    """Whether it is the number of a partition, perhaps as a float."""
    return is_int(key) or (isinstance(key, float) and key.is_integer() and abs(key) < INT64)


def unread_of(folder: Folder, seen: Preconditions) -> dict[str, bool]:
    """What may have happened that the history does not show, or not on which node: a fault that `lost` data;
    one that did although every write is flushed (`lost_flushed`); the `ended` process of one that flushed
    nothing; an unclean election (`elected`), or a request for one before it happened (`asked`). disordered:
    lines may have come in another order; untimely: or at another time."""
    incomplete = seen.history.broken > folder.torn or is_cut_short(folder, seen)
    lacks, acts = lacking(folder, seen, is_grave), [*acts_of(seen.history.nemesis)]
    may_be = faults_in_broken(folder, seen) | (lacks if incomplete else frozenset())
    losing = {f for f in may_be if f in LOSES or f not in FAULTS}
    losing |= {act["f"] for act in acts if act["lost"] and act["node"] is None}
    ended = bool(may_be & ENDING or any(act["ended"] and act["node"] is None for act in acts)
                 or (incomplete and lacking(folder, seen, is_ending)))  # fmt: skip
    may_end = ended or folder.about.get("died") or any(act["ended"] for act in acts)
    recovers = flushes_at_recovery(folder)
    # A killed harness had no time to record the fault that it had begun.
    due = not isinstance(folder.about.get("schedule"), list) or "elect" in lacks | may_be
    return {
        "lost": bool(losing),
        "lost_flushed": bool(losing if may_end and not recovers else losing - SPARES_FLUSHED),
        "ended": ended and not recovers,
        "elected": "elect" in may_be,
        "asked": (incomplete or folder.killed) and due,
        "disordered": seen.disordered,
        "untimely": seen.falls is not None,
    }


def flushes_at_recovery(folder: Folder) -> bool:
    """Whether a starting broker flushes what it finds written, where every write is to be flushed."""
    system = folder.about.get("system")
    return isinstance(system, dict) and system.get("flushes_at_recovery") is True


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
    return frozenset(asked - Counter(op["f"] for op in seen.history.nemesis))


def is_ending(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("f"), str) and entry["f"] in ENDING


def is_grave(entry: Mapping[str, Any]) -> bool:
    """Whether an act of a schedule may cost records. For acts that are not floodmark's own, nobody knows."""
    f = entry.get("f")
    if not isinstance(f, str) or f in OURS:
        return False
    return f not in FAULTS or loses(f, entry) or entry.get("unclean") is True
