"""Reads from trace.jsonl what the page shows: each replica's LEO and HW over time, leaders, elections,
truncations, starts, and all events of the partitions whose findings are shown.

Rules
1. The file is read once, in its order. For a long run a replica's LEO and HW are thinned to what the page can
   draw, except in the time around a finding.
2. For a partition that is shown, all events of its time are kept; its logs are rebuilt from the events
   before.
3. Most lines of a trace only change a replica's LEO and HW. Lines in the broker's own format are matched as
   bytes without parsing; all others are parsed.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from floodmark.harness.report.html.replica_log import ReplicaLog
from floodmark.harness.report.model import Line, int_in, text
from floodmark.harness.report.run_files import LineFile
from floodmark.harness.run import Run

# A line that is read without parsing: time, node, partition, event, LEO, HW.
_STATE = re.compile(
    rb'\{"time":(-?\d{1,18}),"node":"([\w.-]{1,64})","seq":\d+,"partition":(\d{1,9}),'
    rb'"event":"(append|hw|fetch|ack)","epoch":\d+,"leo":(\d{1,18}),"hw":(-?\d{1,18})[,}]'
)
MOVES = frozenset({b"append", b"hw"})
OF_REPLICAS = frozenset({"append", "truncate", "hw", "become_leader", "become_follower", "start"})
EVENTS_AT_MOST = 30_000  # of one partition, in the time shown
POINTS = 1_500  # of one replica, outside the times shown in full
MARKS_AT_MOST = 5_000

Point = tuple[int, int, int]  # ns, LEO, HW
Key = tuple[str, int]  # node, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Focus:
    """A partition and the time in which all of its events are wanted."""

    partition: int
    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """A time in which a node believed that it led an epoch of a partition."""

    node: str
    partition: int
    epoch: int
    since_ns: int
    until_ns: int | None


@dataclass(slots=True, kw_only=True)
class Shown:
    """A shown partition: its logs right before the focus's time, and every event of that time."""

    focus: Focus
    logs: dict[str, ReplicaLog] = field(default_factory=dict)
    events: list[tuple[int, Line]] = field(default_factory=list)  # line number from 1, its fields
    cut_short: bool = False


@dataclass(slots=True, kw_only=True)
class Traced:
    """Everything that the page needs from a trace."""

    lines: int = 0
    points: dict[Key, list[Point]] = field(default_factory=dict)
    reigns: list[Reign] = field(default_factory=list)
    elections: list[Line] = field(default_factory=list)
    truncations: list[tuple[int, Line]] = field(default_factory=list)
    starts: list[Line] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    first_ns: int = 0
    last_ns: int = 0

    @property
    def is_there(self) -> bool:
        return self.lines > 0


def traced(run: Run, focuses: Sequence[Focus]) -> Traced:
    """Reads the trace once."""
    traced_run = Traced(shown=[Shown(focus=focus) for focus in focuses])
    logs: dict[Key, ReplicaLog] = {}
    leading: dict[Key, Reign] = {}
    problems: list[str] = []
    file = LineFile(run.trace_path, run.folder)
    for number, line in file.objects(problems, lambda line: not applied_unparsed(traced_run, logs, line)):
        time, event = int_in(line, "time"), text(line, "event")
        if time is None or not event:
            continue
        count_line(traced_run, time)
        keep_marks(traced_run, leading, number, line)
        apply_line(traced_run, logs, number, line)
    traced_run.reigns += leading.values()
    for shown in traced_run.shown:  # if the time had no event
        shown.logs = shown.logs or before(logs, shown.focus.partition)
    traced_run.points = {key: thinned(points, focuses) for key, points in traced_run.points.items()}
    traced_run.problems = [] if isinstance(file.trouble, FileNotFoundError) else problems
    return traced_run


def count_line(traced_run: Traced, time: int) -> None:
    traced_run.first_ns = time if not traced_run.lines else traced_run.first_ns
    traced_run.lines, traced_run.last_ns = traced_run.lines + 1, max(traced_run.last_ns, time)


def applied_unparsed(traced_run: Traced, logs: dict[Key, ReplicaLog], line: bytes) -> bool:
    """Applies a line without parsing it, if it only changes LEO and HW and is outside the partitions and
    times shown; returns whether it did."""
    found = _STATE.match(line)
    if found is None or line[-2:] != b"}\n":
        return False
    time, partition, event = int(found[1]), int(found[3]), found[4]
    for shown in traced_run.shown:
        focus = shown.focus
        if focus.partition == partition and time <= focus.until_ns and (
                event == b"append" or time >= focus.since_ns):
            return False
    count_line(traced_run, time)
    if event in MOVES:
        key = found[2].decode(), partition
        if key not in logs:
            logs[key] = ReplicaLog()
        log = logs[key]
        log.leo, log.hw = int(found[5]), int(found[6])
        add_point(traced_run, key, time, log)
    return True


def add_point(traced_run: Traced, key: Key, time: int, log: ReplicaLog) -> None:
    points = traced_run.points.setdefault(key, [])
    if not points or points[-1][1] != log.leo or points[-1][2] != log.hw:
        points.append((time, log.leo, log.hw))


def keep_marks(traced_run: Traced, leading: dict[Key, Reign], number: int, line: Line) -> None:
    """Keeps elections, truncations and starts, and who leads since when."""
    node, partition = text(line, "node"), int_in(line, "partition")
    time, event = int_in(line, "time") or 0, text(line, "event")
    if event == "elect" and len(traced_run.elections) < MARKS_AT_MOST:
        traced_run.elections.append(line)
    elif event == "truncate" and len(traced_run.truncations) < MARKS_AT_MOST:
        traced_run.truncations.append((number, line))
    elif event == "start" and partition is None:
        traced_run.starts.append(line)
    ended = [
        key
        for key in leading
        if key[0] == node
        and event in ("crash", "start", "become_follower")
        and (partition is None or key[1] == partition)
    ]
    if event == "become_leader" and partition is not None:
        ended += [(node, partition)] if (node, partition) in leading else []
    for key in ended:
        one = leading.pop(key)
        traced_run.reigns.append(
            Reign(
                node=one.node, partition=one.partition, epoch=one.epoch, since_ns=one.since_ns, until_ns=time
            )
        )
    if event == "become_leader" and partition is not None:
        leading[node, partition] = Reign(
            node=node, partition=partition, epoch=int_in(line, "epoch") or 0, since_ns=time, until_ns=None
        )


def apply_line(traced_run: Traced, logs: dict[Key, ReplicaLog], number: int, line: Line) -> None:
    """Applies a line to its replica's log, LEO and HW; keeps the event if its partition and time are
    shown."""
    node, partition = text(line, "node"), int_in(line, "partition")
    time, event = int_in(line, "time") or 0, text(line, "event")
    for shown in traced_run.shown:
        focus = shown.focus
        if time < focus.since_ns or time > focus.until_ns:
            continue
        if not shown.logs:
            shown.logs = before(logs, focus.partition)
        if partition == focus.partition or (partition is None and event in ("fence", "unfence", "crash")):
            shown.cut_short = len(shown.events) >= EVENTS_AT_MOST
            shown.events += [] if shown.cut_short else [(number, line)]
    if partition is None or event not in OF_REPLICAS:
        return
    key = node, partition
    log = logs.setdefault(key, ReplicaLog())
    log.apply(line)
    add_point(traced_run, key, time, log)


def before(logs: Mapping[Key, ReplicaLog], partition: int) -> dict[str, ReplicaLog]:
    """A copy of the partition's logs by node, in their present state."""
    return {node: copy.deepcopy(log) for (node, of), log in logs.items() if of == partition}


def thinned(points: list[Point], focuses: Sequence[Focus]) -> list[Point]:
    """The points that a drawing can show: of each column of pixels the first, the last and the extremes; in
    the times shown in full, all points."""
    if len(points) <= POINTS:
        return points
    begin, width = points[0][0], max(1, (points[-1][0] - points[0][0]) * 4 // POINTS)
    kept: dict[int, Point] = {}
    column: list[tuple[int, Point]] = []

    def close() -> None:
        for pick in (
            (
                column[0],
                column[-1],
                min(column, key=lambda one: one[1][1]),
                max(column, key=lambda one: one[1][1]),
            )
            if column
            else ()
        ):
            kept[pick[0]] = pick[1]
        column.clear()

    for at, point in enumerate(points):
        if any(focus.since_ns <= point[0] <= focus.until_ns for focus in focuses[:1]):
            kept[at] = point
        if column and (point[0] - begin) // width != (column[0][1][0] - begin) // width:
            close()
        column.append((at, point))
    close()
    return [kept[at] for at in sorted(kept)]
