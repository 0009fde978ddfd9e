"""One run folder as the judge's driver sees it: run.json, replicas.jsonl, which dumps are there and whole.

Rules
1. Whatever is wrong with the small files is a reason (names of checks, words), never an exception.
2. The big files are not read here, only looked at: is it a file that opens, and is its last line whole.
"""

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import orjson

from checkers.laws import finding_names
from checkers.read.observed import Observes, observes_of
from harness.errors import FloodmarkError
from harness.parquet_dump import is_twin
from harness.run import REPLICAS_BYTES_AT_MOST, RunAt
from harness.run_location import Place, is_named, is_safe_name, open_inside

T = TypeVar("T")
Shared = dict[Any, Any]

INT64 = 1 << 63
UNKNOWN_NS = 1 << 62  # more than any two times of a run lie apart
TAIL_BYTES = 1 << 16
TWIN_FROM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One row of replicas.jsonl."""

    node: str
    partition: int
    leader: str | None
    epoch: int
    log_start: int
    leo: int
    hw: int
    isr: tuple[str, ...]
    running: bool
    epochs: tuple[tuple[int, int], ...] | None  # leader-epoch cache as (epoch, start)
    lso: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of run.json, with the leader as the format defines it. What a node holds of it that is
    none of `replicas` is a stray copy, which no check looks at: it neither leads nor is in the ISR."""

    key: int
    replicas: tuple[str, ...]
    compact: bool
    leader: str | None  # None: nobody knows
    isr: frozenset[str]  # the final leader's; empty where it is not known


@dataclass(slots=True, kw_only=True)
class Folder:
    """What the driver knows of a run; `reasons` and what follows them grow while it is looked at."""

    path: Place
    about: Mapping[str, Any] = field(default_factory=dict)  # without `partitions` and `leaders`
    nodes: tuple[str, ...] = ()
    observes: Observes = field(default_factory=Observes)
    partitions: dict[int, Partition] = field(default_factory=dict)
    replicas: dict[tuple[str, int], Replica] = field(default_factory=dict)
    rows_damaged: bool = False  # replicas.jsonl is missing or a line of it is bad
    stray_leaders: list[int] = field(default_factory=list)  # partitions led by none of their replicas
    dumps: dict[str, Place] = field(default_factory=dict)  # node -> the file to read, where one can be read
    history: Place | None = None
    trace: Place | None = None
    torn: int = 0  # half lines at the end of the history, ignored
    damaged: set[str] = field(default_factory=set)  # nodes whose dump is missing, torn or damaged
    flaws: dict[str, str] = field(default_factory=dict)  # node -> what is wrong with its dump
    reasons: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    judged: bool = True  # False: run.json is none, nothing is judged

    def guarantee(self, name: str, default: Any) -> Any:
        return self.about["guarantees"].get(name, default)

    def is_stray(self, node: str, key: int) -> bool:
        """Whether run.json does not assign the partition to this node."""
        partition = self.partitions.get(key)
        return partition is None or node not in partition.replicas

    @property
    def settled(self) -> bool:
        return self.about.get("settled") is True and not self.killed

    @property
    def killed(self) -> bool:
        return not is_int(self.about.get("history_lines"))

    @property
    def settle_processes(self) -> tuple[int, ...]:
        return ints((self.about.get("settle") or {}).get("processes"))

    @property
    def final_processes(self) -> tuple[int, ...]:
        return ints((self.about.get("final_reads") or {}).get("processes"))

    @property
    def final_partitions(self) -> tuple[int, ...]:
        return ints((self.about.get("final_reads") or {}).get("partitions"))

    def leader_row(self, key: int) -> Replica | None:
        """The leader's own row, if the leader is known and has one."""
        partition = self.partitions.get(key)
        return (
            None
            if partition is None or partition.leader is None
            else self.replicas.get((partition.leader, key))
        )


def open_folder(path: Place) -> Folder:
    """Reads the small files. A folder that is no run comes back with judged=False and the reason."""
    folder = Folder(path=path)
    try:
        folder.about = checked(RunAt(folder=path).about())
    except FloodmarkError as error:
        folder.judged = False
        folder.reasons.append(((*finding_names.MADE, finding_names.UNFIT), str(error)))
        return folder
    if isinstance(path, Path):
        folder.path = path.absolute()  # Spark's workers may have been started in another directory
    folder.nodes = tuple(folder.about["nodes"])
    folder.observes = observes_of(folder.about)
    with uncollected():
        read_small_files(folder)
    look_at_files(folder)
    return folder


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing that is made here is garbage: of a million replicas the search for some is half the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def read_small_files(folder: Folder) -> None:
    """The replicas and the partitions; what run.json says of these is let go of on the way."""
    shared: Shared = {}
    if folder.observes.replicas:
        read_replicas(folder, shared)
    about = dict(folder.about)
    partitions, leaders = about.pop("partitions"), about.pop("leaders", None) or {}
    folder.about = about
    for key in list(partitions):
        assignment, leadership = partitions.pop(key), leaders.get(str(int(key)))
        folder.partitions[int(key)] = partition_of(folder, int(key), assignment, leadership, shared)


def same(shared: Shared, value: T) -> T:
    """The first that was equal: nearly all rows of a run say the same."""
    first: T = shared.setdefault(value, value)
    return first


def checked(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """run.json, if what every check stands on has the right shape; else FloodmarkError."""
    nodes, partitions = about.get("nodes"), about.get("partitions")
    if not (isinstance(nodes, list) and all(isinstance(node, str) and node for node in nodes)):
        raise FloodmarkError("run.json: `nodes` is no list of names")
    if len(set(nodes)) != len(nodes):
        raise FloodmarkError("run.json: `nodes` names one node twice")
    for node in nodes:
        if not is_safe_name(node):
            raise FloodmarkError(f"run.json: `nodes` has {node[:60]!a}, and no file can be named for that")
    if not isinstance(partitions, dict) or not all(is_partition(*item) for item in partitions.items()):
        raise FloodmarkError("run.json: `partitions` is no map of numbers to partitions with `replicas`")
    for name in ("guarantees", "settle", "leaders", "final_reads"):
        if not isinstance(about.get(name) or {}, dict):
            raise FloodmarkError(f"run.json: `{name}` is no object")
    return {**about, "guarantees": about.get("guarantees") or {}}


def is_partition(key: str, assignment: Any) -> bool:
    return (
        key.isascii()
        and key.isdigit()
        and isinstance(assignment, dict)
        and isinstance(assignment.get("replicas"), list)
        and all(isinstance(node, str) for node in assignment["replicas"])
    )


def partition_of(
    folder: Folder, key: int, assignment: Mapping[str, Any], leadership: Any, shared: Shared
) -> Partition:
    """The partition with its leader: the controller's word (`leadership`); without that, the replicas' if
    they agree."""
    replicas = same(shared, tuple(assignment["replicas"]))
    if isinstance(leadership, dict):
        leader = leadership.get("leader") if isinstance(leadership.get("leader"), str) else None
        row = folder.replicas.get((leader, key)) if leader is not None else None
        isr = leadership.get("isr")
        if not isinstance(isr, list):
            isr = list(row.isr) if row else []
    else:
        row = agreed_leader([folder.replicas.get((node, key)) for node in replicas])
        leader, isr = (row.node, list(row.isr)) if row else (None, [])
    if leader is not None and leader not in replicas:
        folder.stray_leaders.append(key)
        leader, isr = None, []
    cleanup = assignment.get("cleanup", "delete")
    return Partition(
        key=key,
        replicas=replicas,
        compact="compact" in str(cleanup),
        leader=same(shared, leader),
        isr=same(shared, frozenset([node for node in replicas if node in isr])),
    )


def agreed_leader(rows: Sequence[Replica | None]) -> Replica | None:
    """The row of the leader named by the highest epoch among all rows, if all are there and its own
    agrees."""
    there = [row for row in rows if row is not None]
    if not there or len(there) < len(rows):
        return None
    highest = max(row.epoch for row in there)
    named = {row.leader for row in there if row.epoch == highest and row.leader is not None}
    own = [row for row in there if {row.node} == named and row.leader == row.node and row.epoch == highest]
    return own[0] if own else None


# -- replicas.jsonl ---------------------------------------------------------------------------------------


def read_replicas(folder: Folder, shared: Shared) -> None:
    """Every good row; a missing file, a bad line or a missing row is told and makes the logs' checks
    unknown."""
    run = RunAt(folder=folder.path)
    try:
        lines = run.read(run.replicas_path, at_most=REPLICAS_BYTES_AT_MOST).split(b"\n")
    except OSError as error:
        folder.rows_damaged = True
        folder.reasons.append(damaged_rows(f"replicas.jsonl: {error.strerror or error}"))
        return
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = replica_of(line, shared)
        if row is None or (row.node, row.partition) in folder.replicas:
            folder.rows_damaged = True
            what = "is no replica's row" if row is None else f"is a second row of {row.node}"
            folder.reasons.append(damaged_rows(f"replicas.jsonl:{number} {what}"))
        else:
            folder.replicas[row.node, row.partition] = row


def damaged_rows(reason: str) -> tuple[tuple[str, ...], str]:
    return finding_names.OF_THE_LOGS, reason


def replica_of(line: bytes, shared: Shared) -> Replica | None:
    """One line of replicas.jsonl; None where a field is missing or of the wrong type."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(row, dict):
        return None
    running, leader, isr, lso = row.get("running", True), row.get("leader"), row.get("isr"), row.get("lso")
    counted = [row.get(name) for name in ("partition", "log_start", "leo", "hw")]
    good = (
        isinstance(row.get("node"), str)
        and all(is_int(number) and number >= 0 for number in counted)
        and is_int(row.get("epoch"))
        and isinstance(running, bool)
        and (leader is None or isinstance(leader, str))
        and (lso is None or is_int(lso))
        and isinstance(isr, list)
        and all(isinstance(node, str) for node in isr)
        and is_cache(row.get("epochs"))
    )
    if not good:
        return None
    cache = row.get("epochs")
    assert isinstance(isr, list)
    return Replica(
        node=same(shared, row["node"]),
        partition=row["partition"],
        leader=same(shared, leader),
        epoch=row["epoch"],
        log_start=row["log_start"],
        leo=row["leo"],
        hw=row["hw"],
        isr=same(shared, tuple(isr)),
        running=running,
        lso=lso,
        epochs=None if cache is None else same(shared, tuple(map(tuple, cache))),
    )


def is_cache(cache: Any) -> bool:
    return cache is None or (
        isinstance(cache, list)
        and all(
            isinstance(entry, list) and len(entry) == 2 and all(is_int(number) for number in entry)
            for entry in cache
        )
    )


# -- the big files, from outside --------------------------------------------------------------------------


def look_at_files(folder: Folder) -> None:
    """Which of the big files can be read, and whether their last lines are whole."""
    run = RunAt(folder=folder.path)
    why = unreadable(run.history_path, folder.path)
    if why is None:
        folder.history = run.history_path
        folder.torn = int(torn_tail(run.history_path))
    else:
        folder.reasons.append((finding_names.IF_BREACHED, f"history.jsonl: {why}"))
    if not folder.observes.traceless:
        look_at_trace(folder, run)
    if not folder.observes.dumps:
        folder.damaged.update(folder.nodes)  # no check can rely on a dump
        return
    for node in folder.nodes:
        lines, parquet = run.logs_folder / f"{node}.jsonl", run.logs_folder / f"{node}.parquet"
        if not isinstance(lines, Path) and node.startswith(("_", ".")):
            words = "Spark reads no file of such a name where it lies; judge a copy on this machine"
            damage_dump(folder, node, f"logs/{lines.name}: {words}")
        elif stands_for(parquet, lines, folder.path):
            folder.dumps[node] = parquet
        elif (why := unreadable(lines, folder.path)) is not None:
            damage_dump(folder, node, f"logs/{node}.jsonl: {why}")
        else:
            folder.dumps[node] = lines
            if torn_tail(lines):
                damage_dump(folder, node, f"logs/{node}.jsonl ends in half a line")


def look_at_trace(folder: Folder, run: RunAt[Place]) -> None:
    """A trace may be missing. One that is there and cannot be read is a reason."""
    why = unreadable(run.trace_path, folder.path)
    if why is None:
        folder.trace = run.trace_path
    elif is_named(run.trace_path):
        folder.reasons.append((finding_names.OF_THE_TRACE, f"trace.jsonl: {why}"))


def damage_dump(folder: Folder, node: str, reason: str) -> None:
    """A dump that cannot be relied on: of a leader, the checks that stand on its log know nothing either (of
    losses reads may tell, see reasons.py). One of a node that has no replica at all would have held stray
    copies alone."""
    folder.damaged.add(node)
    folder.flaws[node] = reason
    if not any(node in partition.replicas for partition in folder.partitions.values()):
        return
    leads = any(partition.leader == node for partition in folder.partitions.values())
    of_the_leader = finding_names.OF_THE_LOG_ALONE if leads else ()
    folder.reasons.append(((*finding_names.OF_THE_LOGS, *of_the_leader), reason))


def unreadable(path: Place, folder: Place) -> str | None:
    """Why a file of the folder cannot be read; None if it can. Whoever is told of a path by this module need
    not ask again: it is a regular file inside the folder."""
    try:
        with open_inside(path, folder) as file:
            file.read(1)
    except OSError as error:
        return error.strerror or str(error)
    return None


def stands_for(parquet: Place, lines: Place, folder: Place) -> bool:
    """Whether to read the Parquet file: where it is alone, or was made of these lines, and there are so many
    that this pays."""
    if not is_parquet(parquet, folder):
        return False
    if unreadable(lines, folder) is not None:
        return True
    if not (isinstance(parquet, Path) and isinstance(lines, Path)):
        return False  # to know whose twin it is all of the lines would have to be fetched
    return lines.stat().st_size >= TWIN_FROM_BYTES and is_twin(parquet, lines)


def is_parquet(path: Place, folder: Place) -> bool:
    """Whether the file begins and ends as Parquet does."""
    try:
        with open_inside(path, folder) as file:
            head = file.read(4)
            file.seek(-4, os.SEEK_END)
            return head == file.read(4) == b"PAR1"
    except OSError:
        return False


def torn_tail(path: Place) -> bool:
    """Whether the last line lacks its LF and is no JSON object (a whole one is never the beginning of
    another)."""
    last = b"".join(reversed(list(last_line(path))))
    if not last.strip():
        return False
    try:
        return not isinstance(orjson.loads(last), dict)
    except orjson.JSONDecodeError:
        return True


def last_line(path: Place) -> Iterator[bytes]:
    """What stands behind the last LF, in pieces from the end."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        while at > 0:
            size = min(TAIL_BYTES, at)
            at -= size
            file.seek(at)
            piece = file.read(size)
            cut = piece.rfind(b"\n")
            yield piece[cut + 1 :]
            if cut >= 0:
                return


def clock_error_ns(folder: Folder) -> int:
    """How far two nodes' stamps may lie apart. Where it is told in a way that nobody understands, no two
    times are far enough apart."""
    stated = folder.about.get("clock_error_ns", 0)
    return stated if is_int(stated) and 0 <= stated < UNKNOWN_NS else UNKNOWN_NS


def is_int(value: Any) -> TypeGuard[int]:
    """An integer of 64 bits; true and false are none."""
    return type(value) is int and -INT64 <= value < INT64


def ints(values: Any) -> tuple[int, ...]:
    return tuple(value for value in values if is_int(value)) if isinstance(values, list) else ()
