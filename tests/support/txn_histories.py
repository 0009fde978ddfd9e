"""Makes small healthy run folders with transactions from a seed: it simulates a cluster without errors.

Rules kept here: a transaction appends and reads step by step, with others between its steps; its outcome is
decided at one moment, and partition by partition a marker (a record that is not ours) makes it visible; a
consumer sees nothing from the first record of an undecided transaction on, and nothing of an aborted one; a
client gets ok after the decision, and fail after every marker of an abort is written. So committed writes
become visible partition by partition, as isolation permits, and no reader sees what was decided after its
answer. Under read_uncommitted consumers see everything at once.
"""

from dataclasses import dataclass, field
from random import Random

from histories import Life, Line, RunFolder, lived, ours

OPEN, COMMIT, ABORT = "open", "commit", "abort"
FATES = ("ok", "fail", "info", "never")


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


class TxnLife(Life):
    """A simulated run whose processes also run transactions, each at most one at a time."""

    def __init__(self, random: Random, partitions: int, *, uncommitted: bool = False) -> None:
        super().__init__(random, partitions)
        self.uncommitted = uncommitted
        self.txns: list[Txn] = []  # not over, or not answered

    def end(self, key: int) -> int:
        return super().end(key) if self.uncommitted else self.last_stable(key)

    def last_stable(self, key: int) -> int:
        """The first record of a transaction without a marker, else the end."""
        waiting = [entry["offset"] for txn in self.txns if txn.decided == OPEN or key in txn.unmarked
                   for entry in txn.entries if entry["partition"] == key]
        return min(waiting, default=len(self.logs[key].entries))

    def show(self, entries: list[Line]) -> list[Line]:
        if not self.uncommitted:
            return ours(entries)
        return ours([{**entry, "aborted": False} for entry in entries])

    # -- steps

    def step(self) -> None:
        if self.txns and self.random.random() < 0.7:
            self.go_on(self.random.choice(self.txns))
        else:
            super().step()

    def ask(self, process: int) -> None:
        if self.random.random() < 0.35 and not any(txn.process == process for txn in self.txns):
            self.begin_txn(process)
        else:
            super().ask(process)

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
        """Open transactions are aborted by their time-out; decided ones get their markers."""
        for txn in list(self.txns):
            if txn.decided == OPEN:
                txn.decided, txn.steps = ABORT, []
                txn.unmarked = sorted({entry["partition"] for entry in txn.entries})
            while txn.unmarked:
                self.mark(txn)
        self.txns = []
        super().settle()


def healthy_txns(random: Random, *, steps: int = 60, settled: bool = True, trace: bool | None = None,
                 uncommitted: bool = False) -> RunFolder:
    """A run with transactions and without any fault; unsettled as in healthy()."""
    life = TxnLife(random, random.randrange(1, 4), uncommitted=uncommitted)
    folder = lived(life, random, steps=steps, settled=settled, trace=trace)
    folder.run["workload"] = "txn"
    if uncommitted:
        folder.run["guarantees"]["isolation"] = "read_uncommitted"
    for row in folder.rows:
        row["lso"] = min(row["hw"], life.last_stable(row["partition"]))
    return folder
