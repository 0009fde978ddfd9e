"""Tiny run folders written step by step, for tests of the judge: a healthy run, and a test's changes to it.

    tale = Tale().acked(1, 2, 3)              three acked records at offsets 0, 1, 2 of partition 0 everywhere
    tale.drop("n1", 2); tale.row("n1")["leo"] = 2
    tale.write(folder)

Rules kept here: n1 leads unless the tale says otherwise, all three are in the ISR, the run has settled, and a
final reader reads the leader's log; without changes the run is valid.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]
NODES = ("n1", "n2", "n3")
FINAL = 900


def settled_run(nodes: Sequence[str], partitions: int) -> Line:
    keys = [str(key) for key in range(partitions)]
    return {
        "format": 1, "nodes": list(nodes), "config": {}, "schedule": [], "missed": [], "died": [],
        "partitions": {key: {"topic": "t", "partition": int(key), "replicas": list(nodes)} for key in keys},
        "residue": None, "clock_error_ns": 0, "settled": True, "ended": "done",
        "guarantees": {"acks": "all", "min_insync_replicas": 2, "replication_factor": 3, "retries": 0,
                       "unclean_leader_election": False, "idempotence": False, "flush": "os",
                       "isolation": "read_committed"},
        "settle": {"timeout_s": 30, "processes": [], "no_leader": [], "no_ack": [], "isr_short": [],
                   "why": None},
        "leaders": {key: {"leader": nodes[0], "epoch": 0, "isr": list(nodes)} for key in keys},
        "final_reads": {"processes": [FINAL], "partitions": list(range(partitions))},
    }  # fmt: skip


def crc_of(value: int | None) -> int:
    return 1000 + (value if value is not None else 0) % 1000


@dataclass(slots=True)
class Tale:
    """A run folder as data, changed step by step; every step returns the tale."""

    partitions: int = 1
    run: Line = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    logs: dict[str, list[Line]] = field(default_factory=dict)
    rows: dict[tuple[str, int], Line] = field(default_factory=dict)
    trace: list[Line] | None = None
    final: bool = True  # a final reader reads the leader's log of every partition
    files: dict[str, str | None] = field(default_factory=dict)  # written last; None: removed
    edit: Any = None  # called with the lines of the history before they are written

    def __post_init__(self) -> None:
        self.run = settled_run(NODES, self.partitions)
        self.logs = {node: [] for node in NODES}

    # -- the history

    def line(self, process: int, kind: str, f: str, **fields: Any) -> "Tale":
        self.lines.append({"process": process, "type": kind, "f": f, **fields})
        return self

    def op(self, process: int, f: str, kind: str = "ok", asked: Line | None = None, **fields: Any) -> "Tale":
        """Adds an invocation and its completion."""
        return self.line(process, "invoke", f, **(asked or {})).line(process, kind, f, **fields)

    def send(
        self, process: int, *values: int, kind: str = "ok", at: Sequence[int | None] = (), partition: int = 0,
        f: str = "send",
    ) -> "Tale":  # fmt: skip
        """Adds a send of these values, acked at these offsets (None: not known)."""
        asked = [{"partition": partition, "value": value} for value in values]
        acked_sends = [
            {**send, "offset": offset} if offset is not None else send
            for send, offset in zip(asked, at or [None] * len(asked), strict=True)
        ]
        return self.op(process, f, kind, {"sends": asked}, sends=acked_sends)

    def poll(self, process: int, *reads: tuple[int, int], kind: str = "ok", partition: int = 0) -> "Tale":
        """Adds a poll that returned these (offset, value)s."""
        return self.op(process, "poll", kind, reads=reads_of(reads, partition))

    def assign(self, process: int, *partitions: int, f: str = "assign") -> "Tale":
        return self.op(process, f, "ok", {"partitions": list(partitions)}, partitions=list(partitions))

    def ends(self, process: int, end: int, partition: int = 0) -> "Tale":
        return self.op(process, "list_offsets", offsets=[{"partition": partition, "offset": end}])

    def fault(self, f: str, *nodes: str, **fields: Any) -> "Tale":
        return self.line(-1, "info", f, fault={"nodes": list(nodes), **fields})

    # -- the logs

    def logged(
        self, *values: int | None, epoch: int = 0, partition: int = 0, nodes: Sequence[str] = NODES
    ) -> "Tale":
        """Appends values to these nodes' logs."""
        for node in nodes:
            log = [entry for entry in self.logs[node] if entry["partition"] == partition]
            start = log[-1]["offset"] + 1 if log else 0
            for offset, value in enumerate(values, start):
                self.logs[node].append({"partition": partition, "offset": offset, "epoch": epoch,
                                        "value": value, "crc": crc_of(value)})  # fmt: skip
        return self

    def acked(self, *values: int, process: int = 1, epoch: int = 0, partition: int = 0) -> "Tale":
        """Sends values one by one: each is acked, and in every log."""
        for value in values:
            offset = len([entry for entry in self.logs["n1"] if entry["partition"] == partition])
            self.send(process, value, at=[offset], partition=partition).logged(
                value, epoch=epoch, partition=partition
            )
        return self

    def entry(self, node: str, offset: int, partition: int = 0) -> Line:
        return next(
            entry for entry in self.logs[node] if (entry["offset"], entry["partition"]) == (offset, partition)
        )

    def drop(self, node: str, offset: int, partition: int = 0) -> "Tale":
        self.logs[node].remove(self.entry(node, offset, partition))
        return self

    def row(self, node: str, partition: int = 0) -> Line:
        """The replica's row, with values in place of those that its log gives."""
        return self.rows.setdefault((node, partition), {})

    # -- the folder

    def write(self, path: Path) -> Path:
        (path / "logs").mkdir(parents=True)
        lines = list(self.lines)
        if self.final:
            lines += final_reads(self)
        numbered = [{"index": at, "time": 1000 * at, **line} for at, line in enumerate(lines)]
        self.run.setdefault("history_lines", len(numbered))
        numbered = self.edit(numbered) or numbered if self.edit else numbered
        write_lines(path / "history.jsonl", numbered)
        (path / "run.json").write_text(
            json.dumps({key: value for key, value in self.run.items() if value != "absent"})
        )
        write_lines(path / "replicas.jsonl", [row for row in map(self.row_of, sorted(self.places())) if row])
        for node, log in self.logs.items():
            write_lines(path / "logs" / f"{node}.jsonl", [{"node": node, **entry} for entry in log])
        if self.trace is not None:
            write_lines(path / "trace.jsonl", self.trace)
        for name, text in self.files.items():
            if text is None:
                (path / name).unlink()
            else:
                (path / name).write_text(text)
        return path

    def places(self) -> list[tuple[str, int]]:
        return [(node, key) for node in NODES for key in range(self.partitions)]

    def row_of(self, place: tuple[str, int]) -> Line | None:
        node, key = place
        edits = self.rows.get(place, {})
        log = [entry for entry in self.logs[node] if entry["partition"] == key]
        leo = log[-1]["offset"] + 1 if log else 0
        epochs: dict[int, int] = {}
        for entry in log:
            if entry["epoch"] is not None:
                epochs.setdefault(entry["epoch"], entry["offset"])
        leader = self.run.get("leaders", {}).get(str(key), {})
        row = {
            "node": node, "partition": key, "leader": leader.get("leader"), "epoch": leader.get("epoch", 0),
            "log_start": log[0]["offset"] if log else 0, "leo": leo, "hw": leo, "isr": leader.get("isr", []),
            "clean": True, "epochs": [list(pair) for pair in epochs.items()],
        } | edits  # fmt: skip
        if edits.get("absent"):
            return None
        return {name: value for name, value in row.items() if value != "absent"}


def reads_of(reads: Sequence[tuple[int, int]], partition: int) -> list[Line]:
    return [{"partition": partition, "offset": offset, "value": value} for offset, value in reads]


def final_reads(tale: Tale) -> list[Line]:
    """Reads of all our records in the leaders' logs, from the start."""
    lines: list[Line] = []
    keys = tale.run.get("final_reads", {}).get("partitions", [])
    for kind in ("invoke", "ok"):
        lines.append({"process": FINAL, "type": kind, "f": "assign", "partitions": keys})
    reads = [
        {name: entry[name] for name in ("partition", "offset", "value")}
        for key in keys
        for entry in tale.logs.get(tale.run["leaders"][str(key)]["leader"], [])
        if entry["partition"] == key and entry["value"] is not None and not entry.get("aborted")
    ]
    lines.append({"process": FINAL, "type": "invoke", "f": "poll"})
    lines.append({"process": FINAL, "type": "ok", "f": "poll", "reads": reads})
    return lines


def write_lines(path: Path, lines: Sequence[Any]) -> None:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
