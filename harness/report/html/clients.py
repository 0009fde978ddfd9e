"""Reads from the history what a page shows of the clients: their ops, and how each fault affected them.
The history is parsed as for the judge and measured as for `campaign stats` (checkers/stats), so that the page
agrees with them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

from floodmark.harness import catalog
from floodmark.harness.report.model import Line
from floodmark.harness.report.run_files import fields_of
from floodmark.harness.run import Run

OPS_AT_MOST = 500_000  # more would make the page too large to send
BYTES_AT_MOST = 1 << 31

QUIET_US = 1_000_000  # a shorter time without an ack is not mentioned
SEND_OK, SENDS = 0, (0, 1, 2)  # of the column `what`

QUIET_US = 1_000_000  # a shorter time without an ack is not mentioned
SEND_OK, SENDS = 0, (0, 1, 2)  # of the column `what`

Near = tuple[int, int, int]  # partition, first offset, the offset after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """An acked record near a finding."""

    partition: int
    offset: int
    value: int
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients' ops of a run, and the measures of its faults."""

    ops: int = 0
    columns: Mapping[str, Sequence[int]] = field(
        default_factory=lambda: dict.fromkeys(("began", "lasted", "what", "records"), ()))
    silences: Sequence[tuple[int, int]] = ()
    acked: Sequence[Acked] = ()
    nemesis: Sequence[Line] = ()
    faults: Sequence[Mapping[str, Any]] = ()  # a row of measures for each
    unmeasured: str = ""  # why there are no measures
    last_ns: int = 0
    problems: Sequence[str] = ()


def clients(run: Run, near: Sequence[Near]) -> Clients:
    """Reads the history once. near: the ranges of offsets whose acked records are wanted."""
    name = run.history_path.name
    try:
        if run.history_path.stat().st_size > BYTES_AT_MOST:
            return unreadable(f"{name} has more than {BYTES_AT_MOST >> 20} MB: clients' ops are not shown")
        activity = catalog.client_activity(run.folder, near, OPS_AT_MOST)
    except FileNotFoundError:
        return unreadable(f"there is no {name}")
    except OSError as error:
        return unreadable(f"{name} cannot be read: {error.strerror or error}")
    problems = []
    if activity.broken:
        problems.append(f"{name}: {activity.broken:,} line(s) are not in format 1 and were skipped")
    if activity.ops > OPS_AT_MOST:
        problems.append(f"the drawings show the first {OPS_AT_MOST:,} of {activity.ops:,} ops")
    return Clients(
        ops=activity.ops,
        columns=activity.columns,
        silences=silences(activity.columns),
        acked=[Acked(partition=partition, offset=offset, value=value, began_ns=began, ended_ns=ended)
               for partition, offset, value, began, ended in activity.acked],
        nemesis=[line for each in activity.nemesis if (line := fields_of(each.encode())) is not None],
        faults=activity.faults,
        unmeasured=activity.unmeasured,
        last_ns=activity.last_ns,
        problems=problems,
    )  # fmt: skip


def unreadable(why: str) -> Clients:
    return Clients(problems=(why,), unmeasured=why)


def silences(columns: Mapping[str, Sequence[int]]) -> list[tuple[int, int]]:
    """The times, in us, in which sends were tried, and none was acked for QUIET_US or more. Pure."""
    began, sends = 0, list[tuple[int, int]]()  # when each ended and began
    acks, stretches = list[int](), list[tuple[int, int]]()  # in a stretch sends were tried
    of_ops = (columns.get(name, ()) for name in ("began", "lasted", "what"))  # no line, no columns
    for more, lasted, what in zip(*of_ops, strict=True):
        began += more
        if what not in SENDS:
            continue
        sends.append((began + lasted, began))
        acks += [began + lasted] if what == SEND_OK else []
        if stretches and began - stretches[-1][1] < QUIET_US:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], began + lasted)
        else:
            stretches.append((began, began + lasted))
    acks.sort()
    sends.sort()
    firsts = [*accumulate((began for _, began in reversed(sends)), min)][::-1]  # begin of the first send that
    found = []                                                                  # ended then or later
    for first, end in stretches:
        for ack, after in pairwise((first, *acks[bisect_left(acks, first):bisect_right(acks, end)], end)):
            at = bisect_right(sends, ack, key=itemgetter(0))
            since = max(ack, firsts[at]) if at < len(firsts) else after
            found += [(since, after)] if after - since >= QUIET_US else []
    return found


def silence_text(silence: tuple[int, int]) -> str:
    """`no ack from 16.3 to 27.1 s`."""
    return f"no ack from {silence[0] / 1e6:.1f} to {silence[1] / 1e6:.1f} s"
