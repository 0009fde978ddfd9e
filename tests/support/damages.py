"""The damages that tests plant in a healthy run folder, by name, with what a judge must find at least.

Rules kept here: a damage changes a healthy folder and returns what must be found, or None if it does not fit
this folder; NEAR_MISSES are changes after which nothing may be found; `may` names the findings that a damage
can bring along, and any other finding is an error of the judge.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from histories import NODES, READER, Line, RunFolder, checksum

BUG = ("bug", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What the judge must find. must: name -> (class, permitted_by) of a required group; may: further allowed
    names."""

    must: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    may: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()  # names that must be listed
    valid: bool | str | None = None  # None: False if a bug must be found, else as it was before


Damage = Callable[[RunFolder, Random], Expect | None]
DAMAGES: dict[str, Damage] = {}
NEAR_MISSES: dict[str, Damage] = {}
FILES: dict[str, Damage] = {}


def damage(plant: Damage) -> Damage:
    DAMAGES[plant.__name__] = plant
    return plant


def near_miss(plant: Damage) -> Damage:
    NEAR_MISSES[plant.__name__] = plant
    return plant


def spoilt_file(plant: Damage) -> Damage:
    FILES[plant.__name__] = plant
    return plant


def found(*names: str, may: tuple[str, ...] = ()) -> Expect:
    return Expect(must=dict.fromkeys(names, BUG), may=frozenset(may))


NOTHING = Expect()


# -- picking and changing -----------------------------------------------------------------------------------

def acks(folder: RunFolder) -> list[tuple[int, int, int]]:
    """(partition, offset, value) of every acked micro-send whose ack names the offset."""
    return [(send["partition"], send["offset"], send["value"]) for line in folder.lines
            if line["type"] == "ok" and line["f"] == "send" for send in line["sends"] if "offset" in send]


def any_ack(folder: RunFolder, random: Random, *, tail: bool = False) -> tuple[int, int, int] | None:
    """Some ack; with `tail` one of a partition's last record."""
    some = [ack for ack in acks(folder)
            if not tail or ack[1] == folder.log(folder.leader(ack[0]), ack[0])[-1]["offset"]]
    return random.choice(some) if some else None


def follower(folder: RunFolder, random: Random, partition: int) -> str:
    return random.choice([node for node in NODES if node != folder.leader(partition)])


def shorten(folder: RunFolder, node: str, partition: int, count: int = 1) -> None:
    """Removes the last records, and adjusts LEO, HW and epoch cache."""
    kept = folder.log(node, partition)[:-count]
    folder.set_log(node, partition, kept)
    row = folder.row(node, partition)
    row["leo"] -= count
    row["hw"] = min(row["hw"], row["leo"])
    if "lso" in row:
        row["lso"] = min(row["lso"], row["hw"])
    row["epochs"] = [pair for pair in row["epochs"] if pair[1] <= row["leo"]]


def extend(folder: RunFolder, partition: int, value: int | None, nodes: tuple[str, ...] = NODES) -> int:
    """Adds one committed record at the end of every log; returns its offset."""
    offset = 0
    for node in nodes:
        row = folder.row(node, partition)
        offset = row["leo"]
        epoch = row["epochs"][-1][0]
        entry = {"partition": partition, "offset": offset, "epoch": epoch, "value": value,
                 "crc": checksum(partition, value)}
        folder.set_log(node, partition, [*folder.log(node, partition), entry])
        row["leo"] += 1
        row["hw"] = row["leo"]
        if "lso" in row:
            row["lso"] = row["hw"]
    return offset


def rewrite(folder: RunFolder, partition: int, offset: int, nodes: tuple[str, ...] = NODES, **fields: Any
            ) -> None:
    for node in nodes:
        folder.set_log(node, partition, [{**entry, **fields} if entry["offset"] == offset else entry
                                         for entry in folder.log(node, partition)])


def unread(folder: RunFolder, value: int) -> None:
    """Removes this value from every read."""
    for line in folder.lines:
        if line.get("reads"):
            line["reads"] = [read for read in line["reads"] if read["value"] != value]


def was_read(folder: RunFolder, value: int) -> bool:
    return any(read["value"] == value for _, read in folder.reads())


def index_of_invocation(folder: RunFolder, value: int) -> int:
    return next(int(line["index"]) for line in folder.lines if line["type"] == "invoke"
                for send in line.get("sends") or [] if send["value"] == value)


def insert(folder: RunFolder, index: int, process: int, kind: str, f: str, **fields: Any) -> None:
    """Inserts a line in the middle; all later lines move on by one."""
    time = folder.lines[index - 1]["time"] if index else 0
    line = {"index": index, "time": time, "process": process, "type": kind, "f": f, **fields}
    folder.lines.insert(index, line)
    for position, line in enumerate(folder.lines):
        line["index"] = position


def failed_or_info(folder: RunFolder, partition: int, kind: str) -> int:
    """Adds a send of a new value by a new process, with this outcome, at the end of the history."""
    value, process = folder.fresh_value(), folder.fresh_process()
    folder.add(process, "invoke", "send", sends=[{"partition": partition, "value": value}])
    folder.add(process, kind, "send", sends=[{"partition": partition, "value": value}], error="TIMEOUT")
    return value


def some_partition(folder: RunFolder, random: Random) -> int:
    return int(random.choice(sorted(folder.run["partitions"])))


def final_reads(folder: RunFolder, partition: int) -> list[tuple[Line, Line]]:
    return [(line, read) for line, read in folder.reads()
            if line["process"] == READER and read["partition"] == partition]
