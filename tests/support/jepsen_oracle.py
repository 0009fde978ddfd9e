"""Finds what Jepsen's own checker of Kafka-like logs finds, from its definitions: simple code, and slow.

Written from the text of jepsen.tests.kafka's anomalies, over Jepsen's ops, without any code of the judge:
`findings(ops)` gives {(name, key)}. It departs from Jepsen where the judge does so on purpose:
- the offset of a send in doubt is a remark: only acks and polls give a value its offset;
- a value that any poll returned is not lost, and a poll does not skip what it returns itself;
- a seek to the beginning drops the position, and an ok assign or subscribe that of the keys it drops;
- if a value has two offsets, or an offset two values, no order of that key is compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Op = dict[str, Any]  # process, type, f, value; rebalanced (keys), seek
Key = int
Found = tuple[str, Key]


def sends_of(op: Op) -> Iterator[tuple[Key, int | None, int]]:
    """Key, offset if there is one, and value of each micro-send of a send or txn."""
    for mop in op["value"] if op["f"] in ("send", "txn") else ():
        if mop[0] == "send":
            yield (mop[1], *mop[2]) if isinstance(mop[2], tuple) else (mop[1], None, mop[2])


def reads_of(op: Op) -> Iterator[tuple[Key, int, int]]:
    for mop in op["value"] if op["f"] in ("poll", "txn") and op["type"] != "invoke" else ():
        if mop[0] == "poll" and len(mop) > 1:
            yield from ((key, offset, value) for key, pairs in mop[1].items() for offset, value in pairs)


@dataclass(slots=True)
class Version:
    """One key's log as acks and polls show it."""

    cells: dict[int, set[int]] = field(default_factory=dict)

    @property
    def index(self) -> dict[int, int]:
        """Value -> its position among the offsets that have a value; gaps between offsets do not count."""
        return {value: number for number, offset in enumerate(sorted(self.cells))
                for value in self.cells[offset]}

    @property
    def duplicates(self) -> bool:
        values = [value for cell in self.cells.values() for value in cell]
        return len(values) > len(set(values))

    @property
    def inconsistent(self) -> bool:
        return any(len(cell) > 1 for cell in self.cells.values())


def versions(ops: list[Op]) -> dict[Key, Version]:
    found: dict[Key, Version] = {}
    for op in ops:
        placed = list(reads_of(op))
        if op["type"] == "ok":
            placed += [(key, offset, value) for key, offset, value in sends_of(op) if offset is not None]
        for key, offset, value in placed:
            found.setdefault(key, Version()).cells.setdefault(offset, set()).add(value)
    return found


def findings(ops: list[Op]) -> set[Found]:
    """All findings, by name and key."""
    logs = versions(ops)
    clear = {key for key, log in logs.items() if not log.duplicates and not log.inconsistent}
    order = {key: logs[key].index for key in clear}
    found = {("duplicate", key) for key, log in logs.items() if log.duplicates}
    found |= {("inconsistent-offsets", key) for key, log in logs.items() if log.inconsistent}
    found |= set(lost_writes(ops, logs)) | set(aborted_reads(ops)) | set(own_reads(ops))
    for op in ops:
        found |= set(inside(op, order))
    for process in {op["process"] for op in ops}:
        found |= set(across([op for op in ops if op["process"] == process], order))
    return found | set(cycles(ops))


def lost_writes(ops: list[Op], logs: dict[Key, Version]) -> Iterator[Found]:
    """Acked values that no poll returned, below a value that a poll returned."""
    returned = {(key, value) for op in ops for key, _, value in reads_of(op)}
    highest: dict[Key, int] = {}
    for op in ops:
        for key, offset, _ in reads_of(op) if op["type"] == "ok" else ():
            highest[key] = max(offset, highest.get(key, -1))
    for op in ops:
        for key, offset, value in sends_of(op) if op["type"] == "ok" else ():
            if offset is not None and offset < highest.get(key, -1) and (key, value) not in returned:
                yield "lost-write", key


def aborted_reads(ops: list[Op]) -> Iterator[Found]:
    failed = {(key, value) for op in ops if op["type"] == "fail" for key, _, value in sends_of(op)}
    for op in ops:
        for key, _, value in reads_of(op) if op["type"] == "ok" else ():
            if (key, value) in failed:
                yield "G1a", key


def own_reads(ops: list[Op]) -> Iterator[Found]:
    for op in ops:
        mine = {(key, value) for key, _, value in sends_of(op)} if op["type"] == "ok" else set()
        for key, _, value in reads_of(op):
            if (key, value) in mine:
                yield "precommitted-read", key


def inside(op: Op, order: dict[Key, dict[int, int]]) -> Iterator[Found]:
    """Findings inside one op: from each read of a key to the next, and from each send to the next."""
    for key, index in order.items():
        values = [value for k, _, value in reads_of(op) if k == key]
        shown = {index[value] for value in values}
        for one, other in pairwise(values if key not in op["rebalanced"] else ()):
            skipped = set(range(index[one] + 1, index[other])) - shown
            if skipped:
                yield "int-poll-skip", key
            if index[other] <= index[one]:
                yield "int-nonmonotonic-poll", key
        mine = [value for k, _, value in sends_of(op) if k == key and op["type"] == "ok" and value in index]
        if any(index[other] < index[one] for one, other in pairwise(mine)):
            yield "int-nonmonotonic-send", key


def across(mine: list[Op], order: dict[Key, dict[int, int]]) -> Iterator[Found]:
    """Findings between a process's ops: reads from the last ok op that read the key; sends in the same
    way."""
    position: dict[Key, int] = {}
    sent: dict[Key, int] = {}
    for op in mine:
        if op["f"] in ("assign", "subscribe") and op["type"] == "ok":
            position = {key: at for key, at in position.items() if key in op["value"] and not op["seek"]}
        for key, index in order.items():
            values = [index[value] for k, _, value in reads_of(op) if k == key]
            if values and key in position:
                if set(range(position[key] + 1, values[0])) - set(values):
                    yield "poll-skip", key
                if values[0] <= position[key]:
                    yield "nonmonotonic-poll", key
            if values and op["type"] == "ok":
                position[key] = values[-1]
            indexes = [index[value] for k, _, value in sends_of(op)
                       if k == key and op["type"] == "ok" and value in index]
            if indexes and key in sent and indexes[0] < sent[key]:
                yield "nonmonotonic-send", key
            if indexes:
                sent[key] = indexes[-1]


def cycles(ops: list[Op]) -> Iterator[Found]:
    """G1c: ops that read one another's writes in a cycle, also with real time; -1 is in the place of the
    key."""
    completed = [(number, op) for number, op in enumerate(ops) if op["type"] in ("ok", "info")]
    writer = {(key, value): number for number, op in completed for key, _, value in sends_of(op)}
    edges: dict[int, set[int]] = {number: set() for number, _ in completed}
    for number, op in completed:
        if op["type"] == "ok":
            for key, _, value in reads_of(op):
                if (key, value) in writer and writer[key, value] != number:
                    edges[writer[key, value]].add(number)
    if cycle(edges):
        yield "G1c", -1
    for number, op in completed:
        begun = op["invoked"]
        for before, other in completed if begun is not None else ():
            if other["type"] == "ok" and before < begun:
                edges[before].add(number)
    if cycle(edges):
        yield "G1c-realtime", -1


def cycle(edges: dict[int, set[int]]) -> bool:
    """Whether there is a cycle: removes the ops without a predecessor again and again until none is left."""
    left = {number: set(after) for number, after in edges.items()}
    while left:
        pointed = set().union(*left.values())
        free = [number for number in left if number not in pointed]
        if not free:
            return True
        for number in free:
            del left[number]
    return False
