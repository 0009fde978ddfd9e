"""Writes big valid run folders for the bench: `python tests/support/big.py OUT --ops N --folders K [--lost
M]`.

Rules kept here: memory keeps one row of integers for each record and nothing else; the same arguments give
the same bytes; the folder is a run of a correct cluster, except for M acked records, spread over partition 0:
in their places every log has a record of another client, and no read returned them. So the judge finds
`lost-write` M times, and nothing else.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

NODES = ("n1", "n2", "n3")
PRODUCERS, CONSUMERS = 16, 4
CHUNK = 250  # records of one poll at the most
EPOCHS = 8  # epochs of each partition, one after the other
PROBER, READER = 900, 901

Record = tuple[int, int, int | None]  # offset, epoch, value


class Run:
    """A run of so many client ops, written line by line while its logs fill."""

    def __init__(self, *, ops: int, partitions: int, lost: int) -> None:
        self.ops, self.partitions, self.lost = ops, partitions, lost
        self.logs: list[list[Record]] = [[] for _ in range(partitions)]
        self.starts: list[list[list[int]]] = [[[0, 0]] for _ in range(partitions)]
        self.every = max(1, ops // max(1, lost * partitions * 2))
        self.epoch = 0
        self.index = 0
        self.value = 0
        self.acked = 0
        self.positions = [0] * CONSUMERS

    def line(self, process: int, kind: str, f: str, **fields: Any) -> bytes:
        line = {"index": self.index, "time": self.index * 10_000, "process": process, "type": kind, "f": f}
        self.index += 1
        return orjson.dumps(line | fields, option=orjson.OPT_APPEND_NEWLINE)

    def append(self, partition: int, value: int) -> int:
        """Appends a record. At intervals the logs keep another record than the acked one of partition 0."""
        log = self.logs[partition]
        self.acked += partition == 0
        losing = self.lost > 0 and partition == 0 and self.acked % self.every == 0
        self.lost -= losing
        log.append((len(log), self.epoch, None if losing else value))
        return len(log) - 1

    def history(self) -> Iterator[bytes]:
        """The lines of the history. The processes take turns: each completes its open op, then begins the
        next."""
        workers = PRODUCERS + CONSUMERS
        pending: list[dict[str, int] | None] = [None] * workers
        for consumer in range(CONSUMERS):
            yield from self.assign(PRODUCERS + consumer, [consumer % self.partitions])
        for op in range(self.ops):
            process = op % workers
            if op and op % max(1, self.ops // EPOCHS) == 0:
                yield from self.change_leaders()
            if op >= workers:
                yield self.completion(process, pending[process])
            pending[process] = None if process >= PRODUCERS else self.send()
            send = pending[process]
            yield self.line(process, "invoke", "poll") if send is None else self.line(
                process, "invoke", "send", sends=[send])
        for op in range(self.ops, self.ops + min(self.ops, workers)):
            yield self.completion(op % workers, pending[op % workers])
        yield from self.ending()

    def send(self) -> dict[str, int]:
        self.value += 1
        return {"partition": self.value % self.partitions, "value": self.value}

    def completion(self, process: int, send: dict[str, int] | None) -> bytes:
        if send is not None:
            return self.line(process, "ok", "send",
                             sends=[{**send, "offset": self.append(send["partition"], send["value"])}])
        consumer = process - PRODUCERS
        partition, start = consumer % self.partitions, self.positions[consumer]
        chunk = self.logs[partition][start:start + CHUNK]
        self.positions[consumer] += len(chunk)
        return self.line(process, "ok", "poll", reads=reads(partition, chunk))

    def assign(self, process: int, partitions: list[int]) -> Iterator[bytes]:
        yield self.line(process, "invoke", "assign", partitions=partitions)
        yield self.line(process, "ok", "assign", partitions=partitions)

    def change_leaders(self) -> Iterator[bytes]:
        """Kills a leader and starts it again; every partition goes on in the next epoch."""
        fault = {"nodes": [self.leader()], "moment": {"at": "time", "time": self.index * 10_000}}
        yield self.line(-1, "info", "kill", fault=fault)
        self.epoch += 1
        for log, starts in zip(self.logs, self.starts, strict=True):
            starts.append([self.epoch, len(log)])
        yield self.line(-1, "info", "start", fault=fault)

    def ending(self) -> Iterator[bytes]:
        """A probe of each partition, then a read of everything from the start."""
        assert self.lost == 0, f"{self.ops} ops are too few to lose {self.lost} more records of partition 0"
        for partition in range(self.partitions):
            self.value += 1
            send = {"partition": partition, "value": self.value}
            yield self.line(PROBER, "invoke", "send", sends=[send])
            send = {**send, "offset": self.append(partition, self.value)}
            yield self.line(PROBER, "ok", "send", sends=[send])
        yield from self.assign(READER, list(range(self.partitions)))
        for partition, log in enumerate(self.logs):
            for start in range(0, len(log), CHUNK):
                yield self.line(READER, "invoke", "poll")
                yield self.line(READER, "ok", "poll", reads=reads(partition, log[start:start + CHUNK]))

    def rows(self, node: str) -> Iterator[bytes]:
        for partition, (log, starts) in enumerate(zip(self.logs, self.starts, strict=True)):
            yield orjson.dumps({
                "node": node, "partition": partition, "leader": self.leader(), "epoch": self.epoch,
                "log_start": 0, "leo": len(log), "hw": len(log), "isr": NODES, "clean": True,
                "epochs": starts,
            }, option=orjson.OPT_APPEND_NEWLINE)

    def entries(self, node: str) -> Iterator[bytes]:
        for partition, log in enumerate(self.logs):
            for offset, epoch, value in log:
                yield orjson.dumps({"node": node, "partition": partition, "offset": offset, "epoch": epoch,
                                    "value": value, "crc": (value or 0) * 2654435761 % 2**32},
                                   option=orjson.OPT_APPEND_NEWLINE)

    def leader(self) -> str:
        return NODES[self.epoch % len(NODES)]

    def about(self) -> dict[str, Any]:
        keys = [str(partition) for partition in range(self.partitions)]
        return {
            "format": 1, "version": "0.1.0", "commit": "0000000", "seed": 0, "cluster": "local",
            "rules": "kip-320", "workload": "log", "nodes": NODES, "config": {}, "schedule": [], "missed": [],
            "died": [], "residue": None, "clock_error_ns": 0, "ended": "done", "settled": True,
            "partitions": {key: {"topic": "log", "partition": int(key), "replicas": NODES,
                                 "cleanup": "delete"} for key in keys},
            "guarantees": {"acks": "all", "min_insync_replicas": 2, "replication_factor": 3,
                           "unclean_leader_election": False, "idempotence": False, "retries": 0,
                           "flush": "os", "isolation": "read_committed"},
            "leaders": {key: {"leader": self.leader(), "epoch": self.epoch, "isr": NODES} for key in keys},
            "settle": {"timeout_s": 30, "processes": [PROBER], "no_leader": [], "no_ack": [], "isr_short": [],
                       "why": None},
            "final_reads": {"processes": [READER], "partitions": list(range(self.partitions))},
            "history_lines": self.index,
        }


def reads(partition: int, chunk: list[Record]) -> list[dict[str, int]]:
    return [{"partition": partition, "offset": offset, "value": value}
            for offset, _, value in chunk if value is not None]


def write(folder: Path, *, ops: int, partitions: int = 4, lost: int = 0) -> Path:
    """Writes one folder, which must not exist yet, and returns it."""
    run = Run(ops=ops, partitions=partitions, lost=lost)
    (folder / "logs").mkdir(parents=True)
    with (folder / "history.jsonl").open("wb", buffering=1 << 20) as history:
        history.writelines(run.history())
    with (folder / "replicas.jsonl").open("wb") as replicas:
        for node in NODES:
            replicas.writelines(run.rows(node))
    for node in NODES:
        with (folder / "logs" / f"{node}.jsonl").open("wb", buffering=1 << 20) as dump:
            dump.writelines(run.entries(node))
    (folder / "run.json").write_bytes(orjson.dumps(run.about(), option=orjson.OPT_INDENT_2))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description="Write big valid run folders.")
    parser.add_argument("out", type=Path, help="the folder itself, or with --folders the parent of many")
    parser.add_argument("--ops", type=int, default=10_000, help="client ops, two lines each")
    parser.add_argument("--folders", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--lost", type=int, default=0, help="acked records to lose")
    asked = parser.parse_args()
    for number in range(asked.folders):
        folder = asked.out if asked.folders == 1 else asked.out / f"run-{number:04}"
        print(write(folder, ops=asked.ops, partitions=asked.partitions, lost=asked.lost))


if __name__ == "__main__":
    main()
