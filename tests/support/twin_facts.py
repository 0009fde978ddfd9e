"""What the twin knows of a run before it judges: sends and reads with their fates, and who led what.

Rules kept here: an op is matched with its completion by process, f and what it names; an op still open at
the end is info; a value is sent once, so it has one fate, the first that any completion tells.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from twin_folder import Folder, Line


@dataclass(slots=True, kw_only=True)
class Send:
    """One micro-send with its fate. Indexes are positions in the history."""

    partition: int
    value: int
    process: int
    f: str  # send, txn
    type: str  # ok, fail, info
    offset: int | None  # only of an ok send: of an info send it is a remark, never evidence
    invoked: int | None  # None: the invocation is not in the history
    invoked_time: int
    completed: int | None  # None: never
    place: int  # position inside its op


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One record that a poll showed, whatever became of the poll."""

    partition: int
    offset: int
    value: int
    process: int
    index: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A client's op: its invocation, its completion, or both; and what of its sends and reads is evidence."""

    process: int
    f: str
    type: str  # ok, fail, info (also where it never completed)
    invoked: int | None  # positions in the history
    completed: int | None
    sends: list[Send]
    reads: list[Read]


@dataclass(slots=True, kw_only=True)
class Partition:
    """One partition as it stood at the freeze."""

    key: int
    replicas: list[str]
    compact: bool
    leader: str | None  # None: nobody knows
    isr: list[str] | None
    rows: dict[str, Line]
    logs: dict[str, list[Line]]  # what each readable dump holds of it, in the file's order
    usable: bool  # the leader is known, and its row and its whole dump are here

    @property
    def leader_log(self) -> list[Line]:
        """What can be read of the leader's log: it may prove what it holds, and only if usable what it
        lacks."""
        return self.logs.get(self.leader, []) if self.leader is not None else []

    @property
    def log_start(self) -> int:
        """The final log_start: the leader's, or the highest that any row tells of."""
        if self.leader in self.rows:
            return int(self.rows[self.leader]["log_start"])
        return max((row["log_start"] for row in self.rows.values()), default=0)

    @property
    def decided_end(self) -> int:
        """All below is committed and no transaction there is open: the leader's high watermark, or its last
        stable offset where that is told and lower."""
        row = self.rows.get(str(self.leader), {"hw": 0})
        return min(int(row["hw"]), int(row["lso"]) if row.get("lso") is not None else int(row["hw"]))

    def leader_holds(self, offset: int, value: int) -> bool:
        return any(entry["offset"] == offset and entry["value"] == value for entry in self.leader_log)

    def leader_offsets_of(self, value: int) -> list[int]:
        return [entry["offset"] for entry in self.leader_log if entry["value"] == value]


@dataclass(slots=True, kw_only=True)
class World:
    """Everything a finding may be drawn from."""

    folder: Folder
    run: dict[str, Any]
    lines: list[Line]
    ops: list[Op] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    partitions: dict[int, Partition] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    complete: bool = True  # no line of the history is missing or bad, and the run was closed
    overlapping: set[int] = field(default_factory=set)  # had two ops open, or went on after an info
    repeated: set[int] = field(default_factory=set)  # values that were sent twice
    settled: bool = False
    acked: int = 0  # micro-sends of ok ops, probes of the settling aside

    def oks(self) -> Iterator[Send]:
        """Ok sends whose value can be traced: one that was sent twice cannot."""
        return (send for send in self.sends if send.type == "ok" and send.value not in self.repeated)

    def was_read(self, send: Send) -> bool:
        return any(read.partition == send.partition and read.value == send.value for read in self.reads)


def facts(folder: Folder) -> World:
    """Everything derived, from a folder whose run.json is in order."""
    assert folder.run is not None
    run = folder.run
    world = World(folder=folder, run=run, lines=folder.lines, damaged=folder.damaged)
    match_ops(world)
    world.sends = fates(world.lines)
    world.complete = not folder.breach and run.get("history_lines") is not None
    world.settled = run.get("settled") is True and run.get("history_lines") is not None
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
    """What a completion of a poll or transaction showed, of any outcome."""
    if line["f"] not in ("poll", "txn") or line["type"] == "invoke":
        return []
    return [Read(partition=read["partition"], offset=read["offset"], value=read["value"],
                 process=line["process"], index=line["position"], place=place)
            for place, read in enumerate(line.get("reads") or [])]


def names_of(line: Line) -> tuple[Any, ...]:
    """What an op's invocation and its completion must both say."""
    sends = tuple((send["partition"], send["value"]) for send in line.get("sends") or [])
    return (line["process"], line["f"], sends if line["f"] in ("send", "txn") else ())


def match_ops(world: World) -> None:
    """Walk the history once, pairing invocations with completions; note breaches and overlaps."""
    open_ops: list[Line] = []
    over: set[int] = set()  # processes that have seen an info
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
        else:
            open_ops.remove(opened)
        if line["type"] == "info":
            over.add(process)
        world.ops.append(op_of(opened, line, sends_of(opened, line)))
    world.ops += [op_of(line, None, sends_of(line, None)) for line in open_ops]


def fates(lines: list[Line]) -> list[Send]:
    """Every value that was sent to a partition, once: by its first completion, asked for by whoever asked
    first."""
    asked: dict[tuple[int, int], Send] = {}
    told: dict[tuple[int, int], Send] = {}
    for line in (line for line in lines if line["process"] >= 0):
        invokes = line["type"] == "invoke"
        for send in sends_of(line, None) if invokes else sends_of(None, line):
            (asked if invokes else told).setdefault((send.partition, send.value), send)
    for key, send in told.items():
        if key in asked:
            send.invoked, send.invoked_time = asked[key].invoked, asked[key].invoked_time
    return list((asked | told).values())


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
    """Values that stand in two micro-sends of invocations."""
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
                     leader=leader, isr=isr, rows=rows, logs=logs, usable=usable)


def leader_of(folder: Folder, key: int, replicas: list[str], rows: dict[str, Line]
              ) -> tuple[str | None, list[str] | None]:
    """The controller's word; without it the highest epoch's, if every replica has a row and the named one
    agrees."""
    assert folder.run is not None
    word = (folder.run.get("leaders") or {}).get(str(key))
    if word is not None:
        leader = word.get("leader") if word.get("leader") in replicas else None  # elsewhere are stray copies
        isr = word.get("isr")
        return leader, isr if leader is not None else None
    if set(rows) != set(replicas):
        return None, None
    epoch = max((row["epoch"] for row in rows.values() if row.get("epoch") is not None), default=None)
    named = {row["leader"] for row in rows.values() if row.get("epoch") == epoch and row.get("leader")}
    if len(named) != 1:
        return None, None
    (leader,) = named
    own = rows.get(leader)
    if own is None or own.get("leader") != leader or own.get("epoch") != epoch:
        return None, None
    return leader, own.get("isr")
