"""Facts that the twin derives before it judges: sends and reads with their outcomes, and the leaders.

Rules kept here: an op is matched with its completion by process, f and the names in it; an op still open at
the end is info; a value is sent once, so it has one outcome, that of its first completion.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import twin_observes
from twin_folder import Folder, Line


@dataclass(slots=True, kw_only=True)
class Send:
    """One micro-send with its outcome. Indexes are positions in the history."""

    partition: int
    value: int
    process: int
    f: str  # send, txn
    type: str  # ok, fail, info
    offset: int | None  # only an ok send's: an info send's is a remark, never evidence
    invoked: int | None  # None: the invocation is not in the history
    invoked_time: int
    completed: int | None  # None: never
    place: int  # position inside its op


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One record that a poll returned, whatever the poll's outcome."""

    partition: int
    offset: int
    value: int
    process: int
    index: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A client's op: its invocation, its completion, or both; and the evidence in its sends and reads."""

    process: int
    f: str
    type: str  # ok, fail, info (also if it never completed)
    invoked: int | None  # positions in the history
    completed: int | None
    sends: list[Send]
    reads: list[Read]


@dataclass(slots=True, kw_only=True)
class Partition:
    """One partition at the freeze."""

    key: int
    replicas: list[str]
    compact: bool
    keeps_all: bool
    leader: str | None  # None: unknown
    isr: list[str] | None
    rows: dict[str, Line]
    logs: dict[str, list[Line]]  # each readable dump's entries of it, in the file's order
    usable: bool  # the leader is known, and its row and all of its dump are here
    rows_promised: bool  # the system shows replicas' rows

    @property
    def leader_log(self) -> list[Line]:
        """The readable part of the leader's log: it proves the records in it, and only if usable the missing
        ones."""
        return self.logs.get(self.leader, []) if self.leader is not None else []

    @property
    def log_start(self) -> int:
        """The final log_start: the leader's, or the highest in any row."""
        if self.leader in self.rows:
            return int(self.rows[self.leader]["log_start"])
        return max((row["log_start"] for row in self.rows.values()), default=0)

    @property
    def log_start_known(self) -> bool:
        """Whether no row that is missing may have a higher one. (A system without rows is taken at its word:
        it deletes nothing.)"""
        if not self.rows_promised or self.leader in self.rows:
            return True
        return self.leader is None and all(node in self.rows for node in self.replicas)

    @property
    def decided_end(self) -> int:
        """The end of the decided records, which are committed and in no open transaction: the leader's high
        watermark, or its last stable offset if there is one and it is lower."""
        lso = self.rows.get(str(self.leader), {}).get("lso")
        return self.hw if lso is None else min(self.hw, int(lso))

    @property
    def hw(self) -> int:
        """The leader's."""
        return int(self.rows.get(str(self.leader), {"hw": 0})["hw"])

    def leader_holds(self, offset: int, value: int) -> bool:
        return any(entry["offset"] == offset and entry["value"] == value for entry in self.leader_log)

    def leader_offsets_of(self, value: int) -> list[int]:
        return [entry["offset"] for entry in self.leader_log if entry["value"] == value]


@dataclass(slots=True, kw_only=True)
class World:
    """Everything that a finding may use."""

    folder: Folder
    run: dict[str, Any]
    lines: list[Line]
    ops: list[Op] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    partitions: dict[int, Partition] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    complete: bool = True  # no line of the history is missing or bad, and the run was closed
    # processes with two ops open, or with an op after an info
    overlapping: set[int] = field(default_factory=set)
    repeated: set[int] = field(default_factory=set)  # values that were sent twice
    strange: set[str] = field(default_factory=set)  # guarantees that nobody knows
    settled: bool = False
    acked: int = 0  # micro-sends of ok ops, without the settling's probes

    def oks(self) -> Iterator[Send]:
        """Ok sends whose value can be followed: a value that was sent twice cannot."""
        return (send for send in self.sends if send.type == "ok" and send.value not in self.repeated)

    def has_txns(self) -> bool:
        return any(line["process"] >= 0 and line["f"] == "txn" for line in self.lines)

    def was_read(self, send: Send) -> bool:
        return any(read.partition == send.partition and read.value == send.value for read in self.reads)


def facts(folder: Folder) -> World:
    """Derives all facts of a folder whose run.json is valid."""
    assert folder.run is not None
    run = {**folder.run, "guarantees": twin_observes.weakened(folder.run)}
    world = World(folder=folder, run=run, lines=folder.lines, damaged=folder.damaged,
                  strange=twin_observes.strange_guarantees(folder.run))
    match_ops(world)
    world.sends = fates(world.lines)
    world.complete = not folder.breach and run.get("history_lines") is not None
    undecided = world.has_txns() and any(
        row.get("lso") is not None and row["lso"] < row["leo"] for row in folder.rows)
    closed = run.get("history_lines") is not None
    world.settled = run.get("settled") is True and closed and not undecided
    world.reads = [read for op in world.ops for read in op.reads]
    world.repeated = repeated_values(world.lines)
    probers = (run.get("settle") or {}).get("processes") or []
    world.acked = sum(len(sends_of(None, line)) for line in world.lines
                      if line["type"] == "ok" and line["process"] not in [*probers, -1])
    for key, spec in run["partitions"].items():
        world.partitions[int(key)] = partition_of(folder, int(key), spec)
    return world


# -- the history ------------------------------------------------------------------------------------------

def reads_of(line: Line) -> list[Read]:
    """The records in a completion of a poll or transaction, of any outcome."""
    if line["f"] not in ("poll", "txn") or line["type"] == "invoke":
        return []
    return [Read(partition=read["partition"], offset=read["offset"], value=read["value"],
                 process=line["process"], index=line["position"], place=place)
            for place, read in enumerate(line.get("reads") or [])]


def names_of(line: Line) -> tuple[Any, ...]:
    """What an op's invocation and its completion must have in common."""
    sends = tuple((send["partition"], send["value"]) for send in line.get("sends") or [])
    return (line["process"], line["f"], sends if line["f"] in ("send", "txn") else ())


def match_ops(world: World) -> None:
    """Pairs invocations with completions in one walk over the history; notes breaches and overlaps."""
    open_ops: list[Line] = []
    over: set[int] = set()  # processes with an info, or a completion that fits no invocation
    for line in world.lines:
        process = line["process"]
        if process < 0:
            continue
        if line["type"] == "invoke":
            if process in over or any(other["process"] == process for other in open_ops):
                world.overlapping.add(process)
            open_ops.append(line)
            continue
        opened = next((other for other in open_ops if names_of(other) == names_of(line)), None)
        if opened is None:
            world.folder.breach = True
            over.add(process)
        else:
            open_ops.remove(opened)
        if line["type"] == "info":
            over.add(process)
        world.ops.append(op_of(opened, line, sends_of(opened, line)))
    world.ops += [op_of(line, None, sends_of(line, None)) for line in open_ops]


def fates(lines: list[Line]) -> list[Send]:
    """Every value that was sent to a partition, once: with its first completion, and its first invocation."""
    asked: dict[tuple[int, int], Send] = {}
    answered: dict[tuple[int, int], Send] = {}
    for line in (line for line in lines if line["process"] >= 0):
        invokes = line["type"] == "invoke"
        for send in sends_of(line, None) if invokes else sends_of(None, line):
            (asked if invokes else answered).setdefault((send.partition, send.value), send)
    for key, send in answered.items():
        if key in asked:
            send.invoked, send.invoked_time = asked[key].invoked, asked[key].invoked_time
    return list((asked | answered).values())


def op_of(opened: Line | None, closed: Line | None, sends: list[Send]) -> Op:
    line = closed or opened
    assert line is not None
    return Op(process=line["process"], f=line["f"], type=closed["type"] if closed is not None else "info",
              invoked=opened["position"] if opened else None,
              completed=closed["position"] if closed else None, sends=sends,
              reads=reads_of(closed) if closed is not None else [])


def sends_of(opened: Line | None, closed: Line | None) -> list[Send]:
    line = closed or opened
    assert line is not None
    if line["f"] not in ("send", "txn"):
        return []
    fate = closed["type"] if closed is not None else "info"
    return [Send(partition=send["partition"], value=send["value"], process=line["process"], f=line["f"],
                 type=fate, offset=send.get("offset") if fate == "ok" else None,
                 invoked=opened["position"] if opened else None,
                 invoked_time=opened["time"] if opened else -1,
                 completed=closed["position"] if closed else None, place=place)
            for place, send in enumerate(line.get("sends") or [])]


def repeated_values(lines: list[Line]) -> set[int]:
    """Values in two micro-sends of invocations."""
    seen: set[int] = set()
    twice: set[int] = set()
    for line in lines:
        if line["type"] == "invoke" and line["process"] >= 0:
            for send in sends_of(line, None):
                (twice if send.value in seen else seen).add(send.value)
    return twice


# -- the freeze -------------------------------------------------------------------------------------------

def partition_of(folder: Folder, key: int, spec: dict[str, Any]) -> Partition:
    rows = {row["node"]: row for row in folder.rows
            if row["partition"] == key and row["node"] in spec["replicas"]}
    logs = {node: [entry for entry in folder.dumps[node] if entry["partition"] == key]
            for node in spec["replicas"] if node in folder.dumps}
    leader, isr = leader_of(folder, key, spec["replicas"], rows)
    usable = leader is not None and leader in rows and leader in logs and leader not in folder.damaged
    return Partition(key=key, replicas=spec["replicas"], compact="compact" in (spec.get("cleanup") or ""),
                     keeps_all=spec.get("keeps_all") is True,
                     leader=leader, isr=isr, rows=rows, logs=logs, usable=usable,
                     rows_promised=twin_observes.shows(folder.run or {}, "replicas"))


def leader_of(folder: Folder, key: int, replicas: list[str], rows: dict[str, Line]
              ) -> tuple[str | None, list[str] | None]:
    """The controller's leader; without it the leader of the highest epoch, if every replica has a row and the
    named one agrees."""
    assert folder.run is not None
    word = (folder.run.get("leaders") or {}).get(str(key))
    if word is not None:
        # other nodes have stray copies
        leader = word.get("leader") if word.get("leader") in replicas else None
        isr = word.get("isr")
        return leader, isr if leader is not None else None
    if set(rows) != set(replicas) or any(
            row.get("running") is False and row.get("epochs_unreadable") for row in rows.values()):
        return None, None  # the epoch of a node that does not run is the last of its cache
    epoch = max((row["epoch"] for row in rows.values() if row.get("epoch") is not None), default=None)
    named = {row["leader"] for row in rows.values() if row.get("epoch") == epoch and row.get("leader")}
    if len(named) != 1:
        return None, None
    (leader,) = named
    own = rows.get(leader)
    if own is None or own.get("leader") != leader or own.get("epoch") != epoch:
        return None, None
    return leader, own.get("isr")
