"""Opens one run folder for the judge's driver: run.json, and which files are there and complete.

Rules
1. Whatever is wrong with run.json is a reason (names of checks, text), never an exception.
2. The big files are not read here, only checked: can the file be opened, and is its last line complete.
"""

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import orjson

from floodmark.checkers.laws.finding_names import MADE, UNFIT, If, Reason
from floodmark.checkers.read.guarantees import Guarantees, guarantees_of
from floodmark.checkers.read.observed import Observes, observes_of
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.parquet_dump import is_copy
from floodmark.harness.run import REPLICAS_BYTES_AT_MOST, SHRUNK, RunAt
from floodmark.harness.run_location import Place, is_named, is_safe_name, open_inside, refuse_larger

if TYPE_CHECKING:  # columns are imported where they are made, so that Spark's start does not wait for them
    from floodmark.checkers.read.partitions import Partitions
    from floodmark.checkers.read.replica_rows import Replicas

INT64 = 1 << 63
DIGITS_AT_MOST = 30  # of a key that is a number, leading zeros included
OBJECTS = ("guarantees", "settle", "leaders", "final_reads")  # of run.json
UNKNOWN_NS = 1 << 62  # more than the difference between any two times of a run
TAIL_BYTES = 1 << 16
PARQUET_FROM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Special:
    """The processes whose acks do not count, and those that read last of all."""

    settling: tuple[int, ...] = ()
    final: tuple[int, ...] = ()


NOBODY_SPECIAL = Special()


@dataclass(slots=True, kw_only=True)
class Folder:
    """What the driver knows about a run; `reasons` and what follows grow while the files are checked."""

    path: Place
    # without `partitions` and `leaders`
    about: Mapping[str, Any] = field(default_factory=lambda: {name: {} for name in OBJECTS})
    nodes: tuple[str, ...] = ()
    observes: Observes = field(default_factory=Observes)
    guarantees: Guarantees = field(default_factory=Guarantees)
    # The partitions of run.json; they become columns when they are first used, because that code is slow to
    # import.
    named: tuple[Mapping[str, Any], Mapping[str, Any]] = field(default_factory=lambda: ({}, {}))
    columns: "Partitions | None" = None
    replica_columns: "Replicas | None" = None  # None before the end of the first pass (with_replicas)
    rows: Place | None = None  # replicas.jsonl, where it can be read
    rows_damaged: bool = False  # replicas.jsonl is missing or a line of it is bad
    dumps: dict[str, Place] = field(default_factory=dict)  # node -> the file to read, if one can be read
    history: Place | None = None
    trace: Place | None = None
    undecided: str | None = None  # an open transaction at the freeze, in words: the run has not settled
    torn: int = 0  # half lines at the end of the history, ignored
    damaged: set[str] = field(default_factory=set)  # nodes whose dump is missing, torn or damaged
    flaws: dict[str, str] = field(default_factory=dict)  # node -> the error in its dump
    topic_gone: bool = False  # at the end no node knew our topics, and no act of the run explains that
    reasons: list[Reason] = field(default_factory=list)
    judged: bool = True  # False: run.json is missing or invalid, and nothing is judged

    @property
    def partitions(self) -> "Partitions":
        if self.columns is None:
            from floodmark.checkers.read.partitions import partitions_of

            with without_garbage_collection():
                self.columns = partitions_of(*self.named)
                self.named = ({}, {})
        return self.columns

    @property
    def replicas(self) -> "Replicas":
        """The replicas, as far as they are known."""
        if self.replica_columns is None:
            from floodmark.checkers.read.replica_rows import NO_REPLICAS

            return NO_REPLICAS
        return self.replica_columns

    @property
    def settled(self) -> bool:
        return self.about.get("settled") is True and not self.killed and self.undecided is None

    @property
    def killed(self) -> bool:
        return not is_int(self.about.get("history_lines"))

    @property
    def special(self) -> Special:
        settling = ints(self.about["settle"].get("processes"))
        return Special(settling=settling, final=self.final_processes)

    @property
    def final_processes(self) -> tuple[int, ...]:
        return ints(self.about["final_reads"].get("processes"))

    @property
    def final_partitions(self) -> tuple[int, ...]:
        return ints(self.about["final_reads"].get("partitions"))


def open_folder(path: Place) -> Folder:
    """Read the small files. A folder that is no run is returned with judged=False and the reason."""
    folder = Folder(path=path)
    try:
        with without_garbage_collection():
            folder.about = checked(RunAt(folder=path).about())
            take_partitions(folder)
    except FloodmarkError as error:
        folder.judged = False
        folder.reasons.append(((*MADE, UNFIT), str(error)))
        return folder
    if isinstance(path, Path):
        folder.path = path.absolute()  # Spark's workers may run in another directory
    folder.nodes = tuple(folder.about["nodes"])
    folder.observes = observes_of(folder.about)
    folder.guarantees = guarantees_of(folder.about["guarantees"], folder.about.get("isolation_of"))
    check_files(folder)
    return folder


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Turn the garbage collector off: nothing made here is garbage, and it would take half the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def take_partitions(folder: Folder) -> None:
    """Move the partitions of run.json into `named`."""
    about = dict(folder.about)
    folder.about = about
    folder.named = about.pop("partitions"), about.pop("leaders")


def with_replicas(folder: Folder, replicas: "Replicas", bad: int, first_bad: int | None) -> None:
    """Add the rows of replicas.jsonl. bad: lines that are no rows; first_bad: number of the first."""
    from floodmark.checkers.read.partitions import with_leaders

    folder.replica_columns, reasons = replicas, []
    if bad:
        more = f", nor are {bad - 1} lines after it" if bad > 1 else ""
        reasons.append(damaged_rows(f"replicas.jsonl:{first_bad} is no replica's row{more}"))
    for node, count in sorted(replicas.second.items()):
        rows = f"{count} rows of {node} are second ones" if count > 1 else f"a row of {node} is a second one"
        reasons.append(damaged_rows(f"replicas.jsonl: {rows} of the same partition"))
    folder.rows_damaged = folder.rows_damaged or bool(reasons)
    folder.reasons[:0] = reasons
    folder.columns = with_leaders(folder.partitions, replicas)


def damaged_rows(reason: str) -> Reason:
    return If.LOG, reason


def checked(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """run.json, if the fields that every check needs are valid; else FloodmarkError. OBJECTS that it lacks
    are empty."""
    if about.get(SHRUNK) is True:
        raise FloodmarkError("a campaign has shrunk this run, so it cannot be judged again: only run.json, "
                             "the verdict and the measures are left; campaign run --keep keeps whole runs")
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
    for name in OBJECTS:
        if not isinstance(about.get(name, {}), dict | None):
            raise FloodmarkError(f"run.json: `{name}` is no object")
    return {**about, **{name: about.get(name) or {} for name in OBJECTS}}


def is_partition(key: str, assignment: Any) -> bool:
    return (
        is_number(key)
        and isinstance(assignment, dict)
        and isinstance(assignment.get("replicas"), list)
        and all(isinstance(node, str) for node in assignment["replicas"])
    )


def is_number(key: str) -> bool:
    """Whether a key of run.json is the number of a partition or a process."""
    return key.isascii() and key.isdigit() and len(key) <= DIGITS_AT_MOST and int(key) < INT64


# the big files, without reading them


def check_files(folder: Folder) -> None:
    """Check which of the big files can be read, and whether their last lines are complete."""
    run = RunAt(folder=folder.path)
    if folder.observes.replicas:
        why = unreadable(run.replicas_path, folder.path, REPLICAS_BYTES_AT_MOST)
        if why is None:
            folder.rows = run.replicas_path
        else:
            folder.rows_damaged = True
            folder.reasons.append(damaged_rows(f"replicas.jsonl: {why}"))
    why = unreadable(run.history_path, folder.path)
    if why is None:
        folder.history = run.history_path
        folder.torn = int(torn_tail(run.history_path))
    else:
        folder.reasons.append((If.BREACHED, f"history.jsonl: {why}"))
    if not folder.observes.traceless:  # the trace may be missing
        why = unreadable(run.trace_path, folder.path)
        if why is None:
            folder.trace = run.trace_path
        elif is_named(run.trace_path):
            folder.reasons.append((If.TRACE, f"trace.jsonl: {why}"))
    if not folder.observes.dumps:
        folder.damaged.update(folder.nodes, folder.partitions.nodes)  # no check can rely on a dump
        return
    for node in folder.nodes:
        lines, parquet = run.logs_folder / f"{node}.jsonl", run.logs_folder / f"{node}.parquet"
        if not isinstance(lines, Path) and node.startswith(("_", ".")):
            words = "Spark reads no file of such a name where it lies; judge a copy on this machine"
            damage_dump(folder, node, f"logs/{lines.name}: {words}")
        elif replaces_lines(parquet, lines, folder.path):
            folder.dumps[node] = parquet
        elif (why := unreadable(lines, folder.path)) is not None:
            damage_dump(folder, node, f"logs/{node}.jsonl: {why}")
        else:
            folder.dumps[node] = lines
    for node in sorted({*folder.partitions.nodes} - {*folder.nodes}):
        damage_dump(folder, node, f"run.json: {node[:60]!a} has replicas, but `nodes` lacks it: its log was "
                    "not read")


def damage_dump(folder: Folder, node: str, reason: str) -> None:
    """Mark a dump as incomplete. (If its node leads, more checks are unknown: reasons.py.) The dump of a node
    without replicas would have had only stray copies."""
    folder.damaged.add(node)
    folder.flaws[node] = reason
    if node in folder.partitions.nodes:
        folder.reasons.append((If.LOG, reason))


def unreadable(path: Place, folder: Place, at_most: int | None = None) -> str | None:
    """Why a file of the folder cannot be read, or is too big; None if it can be read. Callers need not check
    the path again: it is a regular file inside the folder."""
    try:
        with open_inside(path, folder) as file:
            file.read(1)
            if at_most is not None:
                refuse_larger(file, path, at_most)
    except OSError as error:
        return error.strerror or str(error)
    return None


def replaces_lines(parquet: Place, lines: Place, folder: Place) -> bool:
    """Whether to read the Parquet file: there are no lines, or it is a copy of so many that it pays."""
    if not is_parquet(parquet, folder):
        return False
    if unreadable(lines, folder) is not None:
        return True
    if not (isinstance(parquet, Path) and isinstance(lines, Path)):
        return False  # to check that, all of the lines would have to be fetched
    return lines.stat().st_size >= PARQUET_FROM_BYTES and is_copy(parquet, lines)


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
    """Whether the last line lacks its LF and is no JSON object (which is never the beginning of another)."""
    last = b"".join(reversed(list(last_line(path))))
    if not last.strip():
        return False
    try:
        return not isinstance(orjson.loads(last), dict)
    except orjson.JSONDecodeError:
        return True


def last_line(path: Place) -> Iterator[bytes]:
    """Yield the bytes after the last LF, in pieces from the end."""
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
    """How far two nodes' stamps may differ. If run.json's value is invalid, no two times can be ordered."""
    stated = folder.about.get("clock_error_ns", 0)
    return stated if is_int(stated) and 0 <= stated < UNKNOWN_NS else UNKNOWN_NS


def is_int(value: Any) -> TypeGuard[int]:
    """Whether it is an integer of 64 bits; true and false are not."""
    return type(value) is int and -INT64 <= value < INT64


def ints(values: Any) -> tuple[int, ...]:
    return tuple(value for value in values if is_int(value)) if isinstance(values, list) else ()


def names(values: Any) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str)) if isinstance(values, list) else ()
