"""What a page shows of a run over time: when no client was acked, and the trace with each replica's log,
which is rebuilt from its events as ranges of offsets by epoch. The viewer (viewer.js) is told what each event
changes, and has no rules of its own.

Rules
1. The trace is read once, in its order. Most of its lines only change a replica's LEO and HW: those in the
   broker's own format are matched as bytes without parsing.
2. For a partition that the viewer shows, all events of its time are kept, and its logs right before that
   time. Elsewhere LEO and HW are thinned to what a page can draw.
3. `append` first removes what is at its offsets or above, then adds its records. `truncate` and `start` cut
   the log to the LEO they name. What was cut is kept in `cut` until the same record (offset and epoch) is
   back.
"""

import copy
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

from floodmark.harness.faults import FAULTS
from floodmark.harness.report.model import MOST, Line, TraceLine, int_in, items, text
from floodmark.harness.report.run_files import LineFile
from floodmark.harness.run import Run

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

    def apply(self, event: Line) -> None:
        """Applies one line of this replica's trace."""
        name, offset, leo = event.get("event"), int_in(event, "offset"), int_in(event, "leo")
        epochs, count = items(event, "epochs"), int_in(event, "count") or 0
        if name == "append" and offset is not None and count > 0:
            self._cut_to(offset)
            for epoch, first, behind in stretches(epochs, offset, offset + count):
                if self.log and self.log[-1][0] == epoch and self.log[-1][2] == first:
                    self.log[-1] = epoch, self.log[-1][1], behind
                else:
                    self.log.append((epoch, first, behind))
                self.cut = without(self.cut, (epoch, first, behind))
        elif name == "truncate":
            self._cut_to(int_in(event, "to"))
        elif name == "start":
            self.role = ""
            self._cut_to(leo)
            end = self.log[-1][2] if self.log else int_in(event, "log_start") or 0
            self.log += stretches(epochs, end, leo) if leo is not None and end < leo else []
        elif name in ("become_leader", "become_follower"):
            self.role = str(name).removeprefix("become_")
        self.leo, self.hw, self.epoch = (
            kept if (value := int_in(event, key)) is None else value
            for key, kept in (("leo", self.leo), ("hw", self.hw), ("epoch", self.epoch)))

    def _cut_to(self, end: int | None) -> None:
        if end is not None:
            self.cut += between(self.log, first=end)
            self.log = between(self.log, behind=end)


def between(log: Iterable[Stretch], *, first: int = 0, behind: int = MOST) -> list[Stretch]:
    """What of these stretches is between two offsets."""
    return [(epoch, begin, end) for epoch, begins, ends in log
            if (begin := max(begins, first)) < (end := min(ends, behind))]


def stretches(epochs: list[Any], first: int, behind: int) -> list[Stretch]:
    """[[epoch, first offset], ...] between two offsets; what no entry covers is of epoch -1."""
    marks = sorted((one[1], one[0]) for one in epochs if isinstance(one, list)
                   and list(map(type, one)) == [int, int] and one[1] < behind)
    starts = [(max(first, offset), epoch) for offset, epoch in marks]
    if not starts or starts[0][0] > first:
        starts.insert(0, (first, -1))
    ends = [offset for offset, _ in starts[1:]] + [behind]
    return [(epoch, begin, end) for (begin, epoch), end in zip(starts, ends, strict=True) if begin < end]


def without(cut: list[Stretch], back: Stretch) -> list[Stretch]:
    """The stretches, less what is of the same epoch and between the same offsets."""
    epoch, first, behind = back
    return [left for one in cut for left in (
        [one] if one[0] != epoch else [*between([one], behind=first), *between([one], first=behind)])]


QUIET_US = 1_000_000  # a shorter time without an ack is not mentioned
SEND_OK, SENDS = 0, (0, 1, 2)  # of the column `what`
EVENTS_AT_MOST = 30_000  # of one partition, in the time shown
POINTS = 1_500  # of one replica, outside the times shown in full
DOWN = frozenset(f for f, fault in FAULTS.items() if fault.takes_down)
# A line of the trace that is read without parsing: time, node, partition, event, LEO, HW.
_STATE = re.compile(
    rb'\{"time":(-?\d{1,18}),"node":"([\w.-]{1,64})","seq":\d+,"partition":(\d{1,9}),'
    rb'"event":"(append|hw|fetch|ack)","epoch":\d+,"leo":(\d{1,18}),"hw":(-?\d{1,18})[,}]'
)
MOVES = frozenset({"append", "truncate", "hw", "become_leader", "become_follower", "start"})

Point = tuple[int, int, int]  # ns, LEO, HW
Key = tuple[str, int]  # node, partition


# -- the clients --------------------------------------------------------------------------------------------

def silences(columns: Mapping[str, Sequence[int]]) -> list[tuple[int, int]]:
    """The times, in us, in which sends were tried, and none was acked for QUIET_US or more. Pure."""
    start, sends = 0, list[tuple[int, int]]()  # when each ended and began
    acks, stretches = list[int](), list[tuple[int, int]]()  # in a stretch sends were tried
    for more, lasted, what in zip(columns["began"], columns["lasted"], columns["what"], strict=True):
        start += more
        if what not in SENDS:
            continue
        sends.append((start + lasted, start))
        acks += [start + lasted] if what == SEND_OK else []
        if stretches and start - stretches[-1][1] < QUIET_US:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], start + lasted)
        else:
            stretches.append((start, start + lasted))
    acks.sort()
    sends.sort()
    firsts = [*accumulate((start for _, start in reversed(sends)), min)][::-1]  # begin of the first send that
    found = []                                                                  # ended then or later
    for first, end in stretches:
        for ack, after in pairwise((first, *acks[bisect_left(acks, first):bisect_right(acks, end)], end)):
            at = bisect_right(sends, ack, key=itemgetter(0))
            since = max(ack, firsts[at]) if at < len(firsts) else after
            found += [(since, after)] if after - since >= QUIET_US else []
    return found


# -- the trace ----------------------------------------------------------------------------------------------

@dataclass(slots=True, kw_only=True)
class Reign:
    """A time in which a node believed that it led an epoch of a partition."""

    node: str
    partition: int
    epoch: int
    since_ns: int
    until_ns: int | None = None


@dataclass(slots=True, kw_only=True)
class Shown:
    """A partition and a time of which the viewer shows every event."""

    partition: int
    since_ns: int
    until_ns: int
    logs: dict[str, ReplicaLog] | None = None  # by node, right before that time; None: it did not come
    events: list[TraceLine] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Traced:
    """Everything that the page needs from a trace."""

    shown: Sequence[Shown] = ()
    is_there: bool = False
    last_ns: int = 0
    points: dict[Key, list[Point]] = field(default_factory=lambda: defaultdict(list))
    reigns: list[Reign] = field(default_factory=list)
    elections: list[Line] = field(default_factory=list)
    truncations: list[tuple[int, Line]] = field(default_factory=list)  # with its number
    _logs: dict[Key, ReplicaLog] = field(default_factory=lambda: defaultdict(ReplicaLog))
    _leading: dict[Key, Reign] = field(default_factory=dict)

    def skim(self, line: bytes) -> bool:
        """Takes a line without parsing it, if it only changes LEO and HW outside the times shown."""
        found = _STATE.match(line)
        if found is None or line[-2:] != b"}\n":
            return False
        time, partition, event = int(found[1]), int(found[3]), found[4]
        for one in self.shown:
            if one.partition == partition and time <= one.until_ns and (
                    event == b"append" or time >= one.since_ns):
                return False
        self.is_there, self.last_ns = True, max(self.last_ns, time)
        if event in (b"append", b"hw"):
            key = found[2].decode(), partition
            log = self._logs[key]
            log.leo, log.hw = int(found[5]), int(found[6])
            self._add_point(key, time, log)
        return True

    def take(self, number: int, line: Line) -> None:
        """Takes a line that was not skimmed."""
        time, event = int_in(line, "time"), text(line, "event")
        node, partition = text(line, "node"), int_in(line, "partition")
        if time is None or not event:
            return
        self.is_there, self.last_ns = True, max(self.last_ns, time)
        if event == "elect":
            self.elections.append(line)
        elif event == "truncate":
            self.truncations.append((number, line))
        elif event in ("crash", "start", "become_follower", "become_leader"):
            for key in [key for key in self._leading if key[0] == node and partition in (None, key[1])]:
                self._leading.pop(key).until_ns = time
        for one in self.shown:
            if one.since_ns <= time <= one.until_ns:
                if one.logs is None:
                    one.logs = {of: copy.deepcopy(log) for (of, where), log in self._logs.items()
                                if where == one.partition}
                of_all = partition is None and event in ("fence", "unfence", "crash")
                if (of_all or partition == one.partition) and len(one.events) < EVENTS_AT_MOST:
                    one.events.append(TraceLine(number=number, fields=line))
        if partition is None or event not in MOVES:
            return
        key = node, partition
        if event == "become_leader":
            reign = Reign(node=node, partition=partition, epoch=int_in(line, "epoch") or 0, since_ns=time)
            self._leading[key] = reign
            self.reigns.append(reign)
        log = self._logs[key]
        log.apply(line)
        self._add_point(key, time, log)

    def _add_point(self, key: Key, time: int, log: ReplicaLog) -> None:
        points = self.points[key]
        if not points or points[-1][1:] != (log.leo, log.hw):
            points.append((time, log.leo, log.hw))


def traced(run: Run, shown: Sequence[Shown], problems: list[str]) -> Traced:
    """Reads the trace once. What is wrong with it goes to `problems`; a run need not have one."""
    found, trouble = Traced(shown=shown), list[str]()
    file = LineFile(run.trace_path, run.folder)
    for number, line in file.objects(trouble, lambda line: not found.skim(line)):
        found.take(number, line)
    found.points = {key: thinned(points, shown[:1]) for key, points in found.points.items()}
    problems += [] if isinstance(file.trouble, FileNotFoundError) else trouble
    return found


def thinned(points: list[Point], shown: Sequence[Shown]) -> list[Point]:
    """What a drawing can show: the first, last and extremes of each column; of the times shown all."""
    if len(points) <= POINTS:
        return points
    begin, width = points[0][0], max(1, (points[-1][0] - points[0][0]) * 4 // POINTS)
    columns: dict[int, list[int]] = {}
    for at, point in enumerate(points):
        columns.setdefault((point[0] - begin) // width, []).append(at)
    kept = {at for at, point in enumerate(points)
            if any(one.since_ns <= point[0] <= one.until_ns for one in shown)}
    for column in columns.values():
        kept |= {column[0], column[-1], min(column, key=lambda at: points[at][1]),
                 max(column, key=lambda at: points[at][1])}
    return [points[at] for at in sorted(kept)]
