"""A run folder as data, for all that make one: stories.py from a few words, histories.py from a seed."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]
NODES = ("n1", "n2", "n3")
FINAL = 900


@dataclass(slots=True, kw_only=True)
class RunFolder:
    """`files` replaces files or (None) leaves them out, after everything else is written. In the place of a
    line may be a text."""

    run: Line
    lines: list[Any]
    dumps: dict[str, list[Line]]
    rows: list[Line]
    trace: list[Line] | None = None
    files: dict[str, bytes | None] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        if self.run.get("history_lines") == -1:
            self.run["history_lines"] = len(self.lines)
        write_lines(path / "history.jsonl", self.lines)
        (path / "run.json").write_text(json.dumps(self.run))
        write_lines(path / "replicas.jsonl", self.rows)
        (path / "logs").mkdir(exist_ok=True)
        for node, entries in self.dumps.items():
            write_lines(path / "logs" / f"{node}.jsonl", entries)
        if self.trace is not None:
            write_lines(path / "trace.jsonl", self.trace)
        for name, data in self.files.items():
            if data is None:
                (path / name).unlink()
            else:
                (path / name).write_bytes(data)
        return path

    @classmethod
    def read(cls, path: Path) -> "RunFolder":
        """A folder that was written, all of whose lines can be read."""
        logs, trace = sorted((path / "logs").glob("*.jsonl")), path / "trace.jsonl"
        return cls(
            run=json.loads((path / "run.json").read_text()), lines=lines_of(path / "history.jsonl"),
            dumps={log.stem: lines_of(log) for log in logs}, rows=lines_of(path / "replicas.jsonl"),
            trace=lines_of(trace) if trace.exists() else None)

    def log(self, node: str, partition: int) -> list[Line]:
        """This node's entries of a partition (copies of the list, not of the entries)."""
        return [entry for entry in self.dumps.get(node, []) if entry["partition"] == partition]

    def set_log(self, node: str, partition: int, entries: list[Line]) -> None:
        others = [entry for entry in self.dumps.get(node, []) if entry["partition"] != partition]
        self.dumps[node] = sorted(others + [{**entry, "node": node} for entry in entries],
                                  key=lambda entry: int(entry["partition"]))

    def row(self, node: str, partition: int) -> Line:
        return next(row for row in self.rows if (row["node"], row["partition"]) == (node, partition))

    def leader(self, partition: int) -> str:
        return str(self.run["leaders"][str(partition)]["leader"])

    def add(self, process: int, kind: str, f: str, **fields: Any) -> Line:
        """Adds a line at the end of the history."""
        last = self.lines[-1]["time"] if self.lines else 0
        head = {"index": len(self.lines), "time": last + 1000, "process": process, "type": kind, "f": f}
        self.lines.append(head | fields)
        line: Line = self.lines[-1]
        return line

    def reads(self) -> Iterator[tuple[Line, Line]]:
        """Each read with its line."""
        for line in self.lines:
            for read in line.get("reads") or []:
                yield line, read

    def fresh_process(self) -> int:
        return 1 + max((line["process"] for line in self.lines), default=0)

    def fresh_value(self) -> int:
        return 1 + max((send["value"] for line in self.lines for send in line.get("sends") or []), default=0)


def lines_of(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: Sequence[Any], separators: tuple[str, str] = (",", ":")) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line, separators=separators) + "\n"
                            for line in lines))


def settled_run(nodes: Sequence[str], partitions: Iterable[int]) -> Line:
    """run.json of a correct cluster that has settled; the first node leads, and all are in the ISR."""
    keys = list(partitions)
    return {
        "format": 1, "nodes": list(nodes), "config": {}, "schedule": [], "missed": [], "died": [],
        "partitions": {str(key): {"topic": "t", "partition": key, "replicas": list(nodes)} for key in keys},
        "residue": None, "clock_error_ns": 0, "settled": True, "ended": "done",
        "guarantees": {"acks": "all", "min_insync_replicas": 2, "replication_factor": 3, "retries": 0,
                       "unclean_leader_election": False, "idempotence": False, "flush": "os",
                       "isolation": "read_committed"},
        "settle": {"timeout_s": 30, "processes": [], "no_leader": [], "no_ack": [], "isr_short": [],
                   "why": None},
        "leaders": {str(key): {"leader": nodes[0], "epoch": 0, "isr": list(nodes)} for key in keys},
        "final_reads": {"processes": [FINAL], "partitions": keys},
    }  # fmt: skip
