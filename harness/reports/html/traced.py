"""What the page takes from trace.jsonl: each replica's LEO and HW through time, who led, was elected,
truncated or started, and all events of the partitions whose findings are shown.

Rules
1. One pass, in the file's order. Of a long run a replica's LEO and HW are kept once a millisecond or so: the
   page draws no finer, and the seconds that a finding concerns are kept in full.
2. Of a partition that is shown, the events of its time are kept in full; before that its logs are followed.
3. Most lines of a trace say no more than a replica's LEO and HW. Those that are written as a broker's tracing
   writes them are read by their bytes alone; all others are parsed.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from floodmark.harness.reports.html.lines import Line, Lines, text, whole
from floodmark.harness.reports.html.replica_log import ReplicaLog
from floodmark.harness.run import Run

# A line that may be read by its bytes: time, node, partition, event, LEO, HW. Names beyond these are parsed.
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
    """A node led an epoch of a partition, as itself believed."""

    node: str
    partition: int
    epoch: int
    since_ns: int
    until_ns: int | None


@dataclass(slots=True, kw_only=True)
class Shown:
    """A partition in its time: its logs right before, and every event."""

    focus: Focus
    logs: dict[str, ReplicaLog] = field(default_factory=dict)
    events: list[tuple[int, Line]] = field(default_factory=list)  # line number from 1, its fields
    cut_short: bool = False


@dataclass(slots=True, kw_only=True)
class Traced:
    """All that the page needs of a trace."""

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
    """One pass over the trace."""
    told = Traced(shown=[Shown(focus=focus) for focus in focuses])
    logs: dict[Key, ReplicaLog] = {}
    leading: dict[Key, Reign] = {}
    lines = Lines(run=run, path=run.trace_path, wanted=lambda line: not followed_at_sight(told, logs, line))
    for number, line in lines:
        time, event = whole(line, "time"), text(line, "event")
        if time is None or not event:
            continue
        counted(told, time)
        keep_marks(told, leading, number, line)
        follow(told, logs, number, line)
    told.reigns += leading.values()
    for shown in told.shown:  # of a time in which nothing more came
        shown.logs = shown.logs or before(logs, shown.focus.partition)
    told.points = {key: thinned(points, focuses) for key, points in told.points.items()}
    told.problems = [] if lines.problems == [f"there is no {run.trace_path.name}"] else lines.problems
    return told


def counted(told: Traced, time: int) -> None:
    told.first_ns = time if not told.lines else told.first_ns
    told.lines, told.last_ns = told.lines + 1, max(told.last_ns, time)


def followed_at_sight(told: Traced, logs: dict[Key, ReplicaLog], line: bytes) -> bool:
    """Whether the line says no more than a replica's LEO and HW, of a partition or a time that is not shown;
    they are followed then."""
    found = _STATE.match(line)
    if found is None or line[-2:] != b"}\n":
        return False
    time, partition, event = int(found[1]), int(found[3]), found[4]
    for shown in told.shown:
        focus = shown.focus
        if focus.partition == partition and time <= focus.until_ns and (
                event == b"append" or time >= focus.since_ns):
            return False
    counted(told, time)
    if event in MOVES:
        key = found[2].decode(), partition
        if key not in logs:
            logs[key] = ReplicaLog()
        log = logs[key]
        log.leo, log.hw = int(found[5]), int(found[6])
        moved(told, key, time, log)
    return True


def moved(told: Traced, key: Key, time: int, log: ReplicaLog) -> None:
    points = told.points.setdefault(key, [])
    if not points or points[-1][1] != log.leo or points[-1][2] != log.hw:
        points.append((time, log.leo, log.hw))


def keep_marks(told: Traced, leading: dict[Key, Reign], number: int, line: Line) -> None:
    """Elections, truncations, starts, and who leads."""
    node, partition = text(line, "node"), whole(line, "partition")
    time, event = whole(line, "time") or 0, text(line, "event")
    if event == "elect" and len(told.elections) < MARKS_AT_MOST:
        told.elections.append(line)
    elif event == "truncate" and len(told.truncations) < MARKS_AT_MOST:
        told.truncations.append((number, line))
    elif event == "start" and partition is None:
        told.starts.append(line)
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
        told.reigns.append(
            Reign(
                node=one.node, partition=one.partition, epoch=one.epoch, since_ns=one.since_ns, until_ns=time
            )
        )
    if event == "become_leader" and partition is not None:
        leading[node, partition] = Reign(
            node=node, partition=partition, epoch=whole(line, "epoch") or 0, since_ns=time, until_ns=None
        )


def follow(told: Traced, logs: dict[Key, ReplicaLog], number: int, line: Line) -> None:
    """The replica's log, its LEO and HW; and the event itself, where its partition is shown."""
    node, partition = text(line, "node"), whole(line, "partition")
    time, event = whole(line, "time") or 0, text(line, "event")
    for shown in told.shown:
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
    moved(told, key, time, log)


def before(logs: Mapping[Key, ReplicaLog], partition: int) -> dict[str, ReplicaLog]:
    """The logs of a partition as they stand."""
    return {node: copy.deepcopy(log) for (node, of), log in logs.items() if of == partition}


def thinned(points: list[Point], focuses: Sequence[Focus]) -> list[Point]:
    """As many as can be seen: of each column of a drawing of all the time the first, the last, and the
    extremes; all of them in the times shown in full."""
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
