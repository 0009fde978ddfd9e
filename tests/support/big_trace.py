"""Writes a big trace of a correct cluster for a big run: `python tests/support/big_trace.py FOLDER --lines
N`.

Rules kept here: memory keeps a few numbers for each node; every record is an append on three nodes, two
fetches, a move of the HW, an ack, and the HW that the followers learn; at intervals a clean election.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

NODES = ("n1", "n2", "n3")
ELECTIONS = 8  # of each partition


class TraceLines:
    """Makes trace lines, with a clock and each node's sequence number."""

    def __init__(self) -> None:
        self.time = 0
        self.seqs: dict[str, int] = {}

    def line(self, node: str, event: str, **fields: Any) -> bytes:
        self.time += 1_000
        seq = self.seqs.get(node, 0)
        self.seqs[node] = seq + 1
        line = {"time": self.time, "node": node, "seq": seq, "event": event, **fields}
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def elected(trace: TraceLines, key: int, epoch: int, leo: int) -> Iterator[bytes]:
    leader = NODES[epoch % len(NODES)]
    word = {"partition": key, "leader": leader, "epoch": epoch, "isr": NODES, "partition_epoch": epoch}
    yield trace.line("controller", "elect", **word, clean=True)
    state = {"partition": key, "epoch": epoch, "leo": leo, "hw": leo}
    yield trace.line(leader, "become_leader", **state, isr=NODES, start=leo)
    for node in NODES:
        if node != leader:
            yield trace.line(node, "become_follower", **state, leader=leader)


def record(trace: TraceLines, key: int, epoch: int, offset: int) -> Iterator[bytes]:
    """One record, from its append until the followers know the HW: nine lines."""
    leader = NODES[epoch % len(NODES)]
    others = [node for node in NODES if node != leader]
    state = {"partition": key, "epoch": epoch, "leo": offset + 1, "hw": offset}
    what = {"offset": offset, "count": 1, "epochs": [[epoch, offset]]}
    yield trace.line(leader, "append", **state, role="leader", **what)
    for node in others:
        yield trace.line(node, "append", **state, role="follower", **what)
    for node in others:
        yield trace.line(leader, "fetch", **state, follower=node, offset=offset + 1, follower_epoch=epoch)
    state["hw"] = offset + 1
    yield trace.line(leader, "hw", **state, role="leader")
    yield trace.line(leader, "ack", **state, offset=offset, acks="all", isr=NODES)
    for node in others:
        yield trace.line(node, "hw", **state, role="follower")


def write_trace(folder: Path, lines: int) -> None:
    """Writes trace.jsonl with about so many lines, over all partitions of the run."""
    trace = TraceLines()
    keys = [int(key) for key in json.loads((folder / "run.json").read_text())["partitions"]]
    records = max(ELECTIONS, lines // (9 * len(keys)))
    with (folder / "trace.jsonl").open("wb") as file:
        for node in NODES:
            file.write(trace.line(node, "start", clean=True))
        for offset in range(records):
            epoch = offset * ELECTIONS // records
            for key in keys:
                if offset == 0 or epoch != (offset - 1) * ELECTIONS // records:
                    file.writelines(elected(trace, key, epoch, offset))
                file.writelines(record(trace, key, epoch, offset))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=1_000_000)
    arguments = parser.parse_args()
    write_trace(arguments.folder, arguments.lines)


if __name__ == "__main__":
    main()
