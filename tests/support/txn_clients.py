"""Adds transactions, sends and polls to the end of a run folder, step by step, for damages planted there.

Rules kept here: each op has a process of its own and sends new values; its records go to the end of every
log, in the order of the calls that append them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from damages import Expect, extend, rewrite, some_partition

from histories import READER, Line, RunFolder

BY_PROCESS = frozenset({"G0-process", "G1c-process"})
CYCLES = BY_PROCESS | {"G0", "G0-realtime", "G1c", "G1c-realtime"}
OF_TXNS = CYCLES | {"precommitted-read"}
PERMITTED = ("permitted", "isolation")


@dataclass(slots=True, kw_only=True)
class Client:
    """One op that is being made: the values that it will send, by a process of its own."""

    folder: RunFolder
    f: str
    process: int
    sends: list[Line]

    def asks(self) -> None:
        sends = [{"partition": send["partition"], "value": send["value"]} for send in self.sends]
        self.folder.add(self.process, "invoke", self.f, **({"sends": sends} if sends else {}))

    def appends(self, which: int = 0, *, aborted: bool = False) -> Line:
        """Appends its record to every log; returns the record as a reader gets it."""
        send = self.sends[which]
        send["offset"] = extend(self.folder, send["partition"], send["value"])
        if aborted:
            rewrite(self.folder, send["partition"], send["offset"], aborted=True)
        return dict(send)

    def answers(self, kind: str, *reads: Line) -> None:
        known = ("partition", "value", "offset") if kind == "ok" else ("partition", "value")
        fields: dict[str, Any] = {"reads": list(reads)} if self.f != "send" else {}
        if self.sends:
            fields["sends"] = [{key: send[key] for key in known if key in send} for send in self.sends]
        self.folder.add(self.process, kind, self.f, **fields)


def clients(folder: RunFolder, *partitions: Sequence[int], f: str = "txn") -> list[Client]:
    """New clients that each send a new value to each of these partitions, by a process of its own."""
    logged = [entry["value"] for log in folder.dumps.values() for entry in log if entry["value"] is not None]
    value = max(folder.fresh_value(), *(one + 1 for one in logged))
    made = []
    for number, mine in enumerate(partitions):
        sends = [{"partition": key, "value": value + place} for place, key in enumerate(mine)]
        value += len(sends)
        made.append(Client(folder=folder, f=f, process=folder.fresh_process() + number, sends=sends))
    return made


def picks(folder: RunFolder, random: Random, count: int) -> list[int]:
    return [some_partition(folder, random) for _ in range(count)]


def two_partitions(folder: RunFolder, random: Random) -> list[int]:
    """Two different partitions, or none."""
    keys = sorted(int(key) for key in folder.run["partitions"])
    return random.sample(keys, 2) if len(keys) > 1 else []


def last_record(folder: RunFolder, partition: int) -> Line | None:
    """The last record of ours, not aborted, as a reader gets it."""
    ours = [entry for entry in folder.log(folder.leader(partition), partition)
            if entry["value"] is not None and not entry.get("aborted")]
    return {key: ours[-1][key] for key in ("partition", "offset", "value")} if ours else None


def read_to_the_end(folder: RunFolder) -> None:
    """Extends the final reader's reads to the new records."""
    if not folder.run.get("settled"):
        return
    reads = []
    for key in folder.run["final_reads"]["partitions"]:
        seen = max((read["offset"] for line, read in folder.reads()
                    if line["process"] == READER and read["partition"] == key), default=-1)
        reads += [{name: entry[name] for name in ("partition", "offset", "value")}
                  for entry in folder.log(folder.leader(key), key)
                  if entry["offset"] > seen and entry["value"] is not None and not entry.get("aborted")]
    folder.add(READER, "invoke", "poll")
    folder.add(READER, "ok", "poll", reads=reads)


def after(folder: RunFolder, expect: Expect) -> Expect:
    read_to_the_end(folder)
    return expect


def must_permit(*names: str) -> Expect:
    return Expect(must=dict.fromkeys(names, PERMITTED), valid=True)
