"""Makes small healthy run folders from a seed, some with transactions: it simulates a cluster without errors.

Rules kept here: every choice comes from the Random that is passed; a folder is one that a correct cluster
could leave, so a judge must find nothing in it.

A transaction appends and reads step by step, with others between its steps; its outcome is decided at one
moment, and partition by partition a marker (a record that is not ours) makes it visible; a consumer sees
nothing from the first record of an undecided transaction on, and nothing of an aborted one; a client gets ok
after the decision, and fail after every marker of an abort is written. So committed writes become visible
partition by partition, as isolation permits, and no reader sees what was decided after its answer. Under
read_uncommitted consumers see everything at once.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from folders import NODES, Line, RunFolder, settled_run

PROBER, READER = 900, 901
OPEN, COMMIT, ABORT = "open", "commit", "abort"
FATES = ("ok", "fail", "info", "never")


def checksum(partition: int, value: int | None) -> int:
    return zlib.crc32(f"{partition}/{value}".encode())


@dataclass(slots=True, kw_only=True)
class Log:
    """One simulated partition: its log, which every replica copies at once."""

    leader: str
    epoch: int = 0
    entries: list[Line] = field(default_factory=list)
    boundaries: list[list[int]] = field(default_factory=lambda: [[0, 0]])


@dataclass(slots=True, kw_only=True)
class Txn:
    """An open transaction."""

    process: int
    sends: list[Line]
    fate: str  # its client's answer
    steps: list[str]  # its remaining steps
    decided: str = OPEN
    entries: list[Line] = field(default_factory=list)  # its records in the logs
    unmarked: list[int] = field(default_factory=list)  # partitions whose marker is not written yet
    reads: list[Line] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    answered: bool = False

    @property
    def over(self) -> bool:
        return self.decided != OPEN and not self.unmarked


class Life:
    """A simulated run while it is made: clients take steps, one at a time and in random order, on the logs.
    transacts: they also run transactions, each at most one at a time. moves: `seek` if they also seek the
    beginning, `subscribe` if they subscribe, and their partitions change under them."""

    def __init__(self, random: Random, partitions: int, *, transacts: bool = False, uncommitted: bool = False,
                 moves: str | None = None) -> None:
        self.random, self.transacts, self.uncommitted, self.moves = random, transacts, uncommitted, moves
        self.time = 0
        self.lines: list[Line] = []
        self.logs = {key: Log(leader=random.choice(NODES)) for key in range(partitions)}
        self.next_value = 1
        self.next_process = 0
        self.idle: list[int] = []
        self.open: list[Line] = []  # invocations, each with its private "_fate" and "_offsets"
        self.ghosts: list[tuple[int, int]] = []  # appended later: (partition, value) of an info send
        self.positions: dict[int, dict[int, int]] = {}
        self.txns: list[Txn] = []  # not over, or not answered

    def record(self, process: int, kind: str, f: str, **fields: Any) -> Line:
        self.time += self.random.randrange(1, 5_000_000)
        head = {"index": len(self.lines), "time": self.time, "process": process, "type": kind, "f": f}
        self.lines.append(head | fields)
        return self.lines[-1]

    def append(self, key: int, value: int | None) -> int:
        log = self.logs[key]
        offset = len(log.entries)
        log.entries.append({"partition": key, "offset": offset, "epoch": log.epoch, "value": value,
                            "crc": checksum(key, value)})
        return offset

    def end(self, key: int) -> int:
        """The end offset that consumers see."""
        return len(self.logs[key].entries) if self.uncommitted else self.last_stable(key)

    def last_stable(self, key: int) -> int:
        """The first record of a transaction without a marker, else the end."""
        waiting = [entry["offset"] for txn in self.txns if txn.decided == OPEN or key in txn.unmarked
                   for entry in txn.entries if entry["partition"] == key]
        return min(waiting, default=len(self.logs[key].entries))

    def show(self, entries: list[Line]) -> list[Line]:
        """The records that a consumer gets of these."""
        return [{"partition": entry["partition"], "offset": entry["offset"], "value": entry["value"]}
                for entry in entries
                if entry["value"] is not None and (self.uncommitted or not entry.get("aborted"))]

    def elect(self, key: int, leader: str) -> None:
        log = self.logs[key]
        log.epoch += self.random.choice((1, 1, 2))
        log.leader = leader
        end = len(log.entries)
        log.boundaries = [pair for pair in log.boundaries if pair[1] < end] + [[log.epoch, end]]
        if self.random.random() < 0.2:
            self.append(key, None)  # a record that is not ours

    # -- steps

    def step(self) -> None:
        if self.txns and self.random.random() < 0.7:
            self.go_on(self.random.choice(self.txns))
            return
        roll = self.random.random()
        if roll < 0.06:
            self.strike()
        elif roll < 0.12 and self.ghosts:
            self.append(*self.ghosts.pop(self.random.randrange(len(self.ghosts))))
        elif roll < 0.55 and self.open:
            self.advance(self.random.choice(self.open))
        else:
            self.ask(self.process())

    def strike(self) -> None:
        node = self.random.choice(NODES)
        self.record(-1, "info", "kill", fault={"nodes": [node], "moment": {"at": "time", "time": self.time}})
        for key in sorted(self.logs):
            if self.logs[key].leader == node:
                self.elect(key, self.random.choice([other for other in NODES if other != node]))
        self.record(-1, "info", "start", fault={"nodes": [node], "moment": {"at": "time", "time": self.time}})

    def process(self) -> int:
        if self.idle and self.random.random() < (0.95 if self.moves else 0.8):
            return self.idle.pop(self.random.randrange(len(self.idle)))
        self.next_process += 1
        return self.next_process - 1

    def ask(self, process: int) -> None:
        if (self.transacts and self.random.random() < 0.35
                and not any(txn.process == process for txn in self.txns)):
            self.begin_txn(process)
            return
        fs = ("send", "poll", "assign", "list_offsets", "crash")
        f = self.random.choices(fs, (12, 10 if self.moves else 6, 6 if self.moves else 2, 2, 1))[0]
        if f in ("poll", "crash") and process not in self.positions:
            f = "assign"
        key = self.random.choice(sorted(self.logs))
        if f == "send":
            values = range(self.next_value, self.next_value + self.random.randrange(1, 5))
            self.next_value = values.stop
            fate = self.random.choices(FATES, (12, 2, 2, 1))[0]
            sends = [{"partition": key, "value": value} for value in values]
            line = self.record(process, "invoke", f, sends=sends)
            self.open.append({**line, "_fate": fate, "_applied": fate == "fail", "_offsets": []})
            return
        held = sorted(self.random.sample(sorted(self.logs), self.random.randrange(1, len(self.logs) + 1)))
        fields: Line = {"partitions": held} if f == "assign" else {}
        if f == "assign" and self.moves == "seek" and self.random.random() < 0.6:
            fields["seek"] = True
        f = "subscribe" if f == "assign" and self.moves == "subscribe" else f
        self.open.append(self.record(process, "invoke", f, **fields))

    def advance(self, op: Line) -> None:
        """Takes an open op one step further: a send is applied, then answered; anything else is answered."""
        if op["f"] == "send" and not op["_applied"]:
            op["_applied"] = True
            for send in op["sends"]:
                if op["_fate"] == "ok" or self.random.random() < 0.5:
                    op["_offsets"].append(self.append(send["partition"], send["value"]))
                elif self.random.random() < 0.5:
                    self.ghosts.append((send["partition"], send["value"]))
            return
        if op.get("_fate") == "never":
            return
        self.open.remove(op)
        answer = {"send": self.answer_send, "poll": self.answer_poll, "assign": self.answer_assign,
                  "subscribe": self.answer_assign, "list_offsets": self.answer_offsets,
                  "crash": self.answer_crash}[op["f"]]
        if answer(op) == "info":
            return  # this process invokes nothing more
        self.idle.append(op["process"])

    def answer_send(self, op: Line) -> str:
        fate = str(op["_fate"])
        sends = [dict(send) for send in op["sends"]]
        if fate == "ok":
            epoch = self.logs[sends[0]["partition"]].entries[op["_offsets"][0]]["epoch"]
            has_offsets = self.random.random() < 0.95  # else this client gets no offsets
            for send, offset in zip(sends, op["_offsets"], strict=True):
                if has_offsets:
                    send |= {"offset": offset} | ({"epoch": epoch} if self.random.random() < 0.3 else {})
        elif fate == "info" and self.random.random() < 0.3:
            sends[0]["offset"] = self.random.randrange(40)  # a remark, which may be wrong
        error = {} if fate == "ok" else {"error": self.random.choice(("TIMEOUT", "CONNECTION"))}
        self.record(op["process"], fate, "send", sends=sends, **error)
        return fate

    def answer_poll(self, op: Line) -> str:
        kind = self.random.choices(("ok", "fail", "info"), (12, 1, 1))[0]
        reads, more, turns = list[Line](), dict[str, Any](), [self.positions[op["process"]]]
        if kind == "ok" and self.moves == "subscribe" and self.random.random() < 0.3:
            some = self.random.sample(sorted(self.logs), min(2, len(self.logs)))
            turns.append({key: self.random.randrange(self.end(key) + 1) for key in some})
            more = {"rebalanced": sorted(self.logs)}
        for positions in turns:
            for key in self.random.sample(sorted(positions), self.random.randrange(len(positions) + 1)):
                end = max(positions[key], min(self.end(key), positions[key] + self.random.randrange(1, 6)))
                reads += self.show(self.logs[key].entries[positions[key]:end])
                if kind == "ok":
                    positions[key] = end
        self.positions[op["process"]] = turns[-1]
        self.record(op["process"], kind, "poll", reads=reads, **more)
        return kind

    def answer_assign(self, op: Line) -> str:
        before = dict.fromkeys(op["partitions"], 0) if "seek" in op else self.positions.get(op["process"], {})
        self.positions[op["process"]] = {
            key: before.get(key, self.random.choice((0, self.end(key) // 2)))
            for key in op["partitions"]}
        self.record(op["process"], "ok", op["f"], partitions=op["partitions"])
        return "ok"

    def answer_crash(self, op: Line) -> str:
        """Whatever the answer, the consumer has ended; the process assigns again before it polls."""
        kind = self.random.choices(("ok", "fail", "info"), (6, 1, 1))[0]
        self.positions.pop(op["process"], None)
        self.record(op["process"], kind, "crash")
        return kind

    def answer_offsets(self, op: Line) -> str:
        ends = [{"partition": key, "offset": self.end(key)} for key in sorted(self.logs)]
        self.record(op["process"], "ok", "list_offsets", offsets=ends)
        return "ok"

    # -- transactions

    def begin_txn(self, process: int) -> None:
        count = self.random.choice((0, 1, 2, 2, 3, 4))
        if count == 0 and not self.positions.get(process):
            count = 1
        values = range(self.next_value, self.next_value + count)
        self.next_value = values.stop
        sends = [{"partition": self.random.choice(sorted(self.logs)), "value": value} for value in values]
        reading = self.random.randrange(3) if self.positions.get(process) else 0
        steps = ["send"] * count + ["read"] * reading
        self.random.shuffle(steps)
        fate = self.random.choices(FATES, (12, 3, 3, 1))[0]
        self.txns.append(Txn(process=process, sends=sends, fate=fate, steps=steps,
                             positions=dict(self.positions.get(process, {}))))
        self.record(process, "invoke", "txn", **({"sends": sends} if sends else {}))

    def go_on(self, txn: Txn) -> None:
        """One more step: append, read, decide, write a marker, answer. A transaction that will get fail, info
        or no answer may stop at any step."""
        if txn.steps and (txn.fate == "ok" or self.random.random() < 0.8):
            if txn.steps.pop() == "send":
                self.send_one(txn)
            else:
                self.read_some(txn)
        elif txn.decided == OPEN:
            self.decide(txn)
        elif txn.unmarked and (txn.answered or self.random.random() < 0.7):
            self.mark(txn)
        elif not txn.answered and (txn.fate != "fail" or txn.over):
            self.answer_txn(txn)
        if txn.over and txn.answered:
            self.txns.remove(txn)

    def send_one(self, txn: Txn) -> None:
        send = txn.sends[len(txn.entries)]
        offset = self.append(send["partition"], send["value"])
        txn.entries.append(self.logs[send["partition"]].entries[offset])

    def read_some(self, txn: Txn) -> None:
        key = self.random.choice(sorted(txn.positions))
        position = txn.positions[key]
        end = max(position, min(self.end(key), position + self.random.randrange(1, 6)))
        txn.reads += self.show(self.logs[key].entries[position:end])
        txn.positions[key] = end

    def decide(self, txn: Txn) -> None:
        """Only a complete transaction can commit; one that will be answered info commits or not at random."""
        complete = len(txn.entries) == len(txn.sends) and txn.fate != "fail"
        txn.decided = COMMIT if complete and (txn.fate == "ok" or self.random.random() < 0.5) else ABORT
        txn.steps = []
        txn.unmarked = sorted({entry["partition"] for entry in txn.entries})
        txn.answered = txn.fate == "never"  # it never gets an answer

    def mark(self, txn: Txn) -> None:
        key = txn.unmarked.pop(self.random.randrange(len(txn.unmarked)))
        self.append(key, None)
        if txn.decided == ABORT:
            for entry in txn.entries:
                if entry["partition"] == key:
                    entry["aborted"] = True

    def answer_txn(self, txn: Txn) -> None:
        """An ok has offsets, seldom not; a client that got info may not have kept what it read."""
        txn.answered = True
        sends = [dict(send) for send in txn.sends]
        if txn.fate == "ok":
            for send, entry in zip(sends, txn.entries, strict=True):
                if self.random.random() < 0.9:
                    send["offset"] = entry["offset"]
            if txn.process in self.positions:
                self.positions[txn.process] = txn.positions
        reads = txn.reads if txn.fate == "ok" or self.random.random() < 0.7 else []
        fields = {"sends": sends} if sends else {}
        error = {} if txn.fate == "ok" else {"error": "TIMEOUT"}
        self.record(txn.process, txn.fate, "txn", **fields, reads=reads, **error)
        if txn.fate != "info":
            self.idle.append(txn.process)

    # -- the end of a run

    def settle(self) -> None:
        """Open transactions are aborted by their time-out, decided ones get their markers. A probe is sent to
        each partition, and acked; then one new process reads everything to the end."""
        for txn in self.txns:
            if txn.decided == OPEN:
                txn.decided, txn.steps = ABORT, []
                txn.unmarked = sorted({entry["partition"] for entry in txn.entries})
            while txn.unmarked:
                self.mark(txn)
        self.txns = []
        for key in sorted(self.logs):
            send = {"partition": key, "value": self.next_value}
            self.next_value += 1
            self.record(PROBER, "invoke", "send", sends=[send])
            self.record(PROBER, "ok", "send", sends=[{**send, "offset": self.append(key, send["value"])}])
        self.record(READER, "invoke", "assign", partitions=sorted(self.logs))
        self.record(READER, "ok", "assign", partitions=sorted(self.logs))
        for _, log in sorted(self.logs.items()):
            middle = self.random.randrange(len(log.entries) + 1)
            for part in (log.entries[:middle], log.entries[middle:]):
                self.record(READER, "invoke", "poll")
                self.record(READER, "ok", "poll", reads=self.show(part))


# -- folders ------------------------------------------------------------------------------------------------

def healthy(random: Random, *, steps: int = 60, settled: bool = True, transacts: bool = False,
            uncommitted: bool = False, moves: str | None = None) -> RunFolder:
    """A run of so many steps, in which nothing goes wrong. Unsettled: only the main phase, followers behind,
    one of them down or lagging."""
    life = Life(random, random.randrange(1, 4), transacts=transacts, uncommitted=uncommitted, moves=moves)
    for _ in range(steps):
        life.step()
    while not any(line["type"] == "ok" and line["f"] == "send" for line in life.lines):
        life.step()
    if settled:
        life.settle()
    folder = RunFolder(run=run_json(life.logs, settled=settled), lines=life.lines, rows=[],
                       dumps={node: [] for node in NODES})
    for key, log in sorted(life.logs.items()):
        freeze(folder, random, key, log, settled=settled)
    if transacts:
        folder.run["workload"] = "txn"
        for row in folder.rows:
            row["lso"] = min(row["hw"], life.last_stable(row["partition"]))
    if uncommitted:
        folder.run["guarantees"]["isolation"] = "read_uncommitted"
    return folder


def freeze(folder: RunFolder, random: Random, key: int, log: Log, *, settled: bool) -> None:
    """Writes every replica's dump and row of one partition. Unsettled: each follower has a prefix of the log,
    and one of them may be out of the ISR and down."""
    down = random.choice([node for node in NODES if node != log.leader]) if not settled else None
    isr = [node for node in NODES if node != down]
    folder.run["leaders"][str(key)] = {"leader": log.leader, "epoch": log.epoch, "isr": isr}
    behind = {node: 0 if settled or node == log.leader else random.randrange(3) for node in NODES}
    ends = {node: max(0, len(log.entries) - behind[node]) for node in NODES}
    hw = min(ends[node] for node in isr)
    for node in NODES:
        folder.set_log(node, key, [dict(entry) for entry in log.entries[:ends[node]]])
        own_hw = hw if node == log.leader or settled else min(ends[node], max(0, hw - random.randrange(3)))
        row = {"node": node, "partition": key, "leader": log.leader, "epoch": log.epoch, "log_start": 0,
               "leo": ends[node], "hw": own_hw, "isr": isr, "clean": True,
               "epochs": [pair for pair in log.boundaries if pair[1] <= ends[node]]}
        if node == down and random.random() < 0.5:
            row |= {"leader": None, "running": False, "clean": False}
        folder.rows.append(row)


def run_json(partitions: Iterable[int], *, settled: bool = True) -> Line:
    """run.json of a correct cluster; the leaders are added, and history_lines by write()."""
    keys = sorted(partitions)
    run = settled_run(NODES, keys) | {
        "version": "0.1.0", "commit": "0" * 7, "seed": 1, "cluster": "local", "rules": "kip-320",
        "workload": "log", "config": {node: {"min.insync.replicas": 2} for node in NODES}, "leaders": {},
        "history_lines": -1, "settled": settled,
    }
    run["settle"] |= {"processes": [PROBER], "isr_short": [] if settled else keys,
                      "why": None if settled else "a follower is behind"}
    for partition in run["partitions"].values():
        partition["cleanup"] = "delete"
    final = run.pop("final_reads")
    return run | ({"final_reads": {**final, "processes": [READER]}} if settled else {})
