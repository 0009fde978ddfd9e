"""Runs of any size in which nearly everything is odd in one way, to see how the work of the laws grows.

    tables = laws_shapes.tables("polls_skip", records=1000, root=Path("/tmp/x"))

Rules kept here: a shape takes the healthy run of so many records and makes one change to all of its lines, so
the change is there once for each record; the findings do not matter here.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import here
import pyarrow as pa

from floodmark.checkers.read.folder import open_folder
from histories import NODES, PROBER, READER, Line, RunFolder, checksum, run_json

PARTITIONS = 2  # few: growth with the square of a partition's records must be seen
PRODUCERS, CONSUMERS = 16, 4
CHUNK = 250  # records of one poll at the most
EPOCHS = 8  # of each partition, one after the other

Shape = Callable[[RunFolder], None]
SHAPES: dict[str, Shape] = {}


def shape(change: Shape) -> Shape:
    SHAPES[change.__name__] = change
    return change


def tables(*names: str, records: int, root: Path) -> dict[str, pa.Table]:
    """The tables of one unit with a run of each of these shapes; the runs are written into root."""
    return here.tables_of([open_folder(write_run(name, records, root / name)) for name in names])


def write_run(name: str, records: int, root: Path) -> Path:
    """Writes a run of this shape as the folder root."""
    run = Healthy(records).folder()
    SHAPES[name](run)
    number(run)
    return run.write(root)


def number(run: RunFolder) -> None:
    """Gives the lines indexes and times. A line of the trace keeps the time that a shape gave it."""
    for index, line in enumerate(run.lines):
        line |= {"index": index, "time": index * 10_000}
    seqs: dict[str, Iterator[int]] = {}
    for at, line in enumerate(run.trace or ()):
        line["seq"] = next(seqs.setdefault(line["node"], itertools.count()))
        line.setdefault("time", at * 1_000)


class Healthy:
    """A run without errors that sends so many records: processes take turns, each completes its open op, then
    begins the next."""

    def __init__(self, records: int) -> None:
        self.lines: list[Line] = []
        self.trace: list[Line] = [{"node": node, "event": "start", "clean": True} for node in NODES]
        self.logs: list[list[Line]] = [[] for _ in range(PARTITIONS)]
        self.starts = [[[0, 0]] for _ in range(PARTITIONS)]
        self.positions = [0] * CONSUMERS
        self.epoch = self.value = 0
        self.keys = list(range(PARTITIONS))
        workers, pending = PRODUCERS + CONSUMERS, dict[int, list[Line]]()
        ops = records * workers // PRODUCERS
        for consumer in range(CONSUMERS):
            self.op(PRODUCERS + consumer, "assign", {"partitions": [consumer % PARTITIONS]})
        for at in range(ops + workers):
            if at < ops and at and at % max(1, ops // EPOCHS) == 0:
                self.change_leaders()
            process = at % workers
            if process in pending:
                self.complete(process, pending.pop(process))
            if at < ops:
                pending[process] = self.begin(process)
        for key in self.keys:
            self.complete(PROBER, self.send(PROBER, key))
        self.op(READER, "assign", {"partitions": self.keys})
        for log in self.logs:
            for start in range(0, len(log), CHUNK):
                self.op(READER, "poll", {}, reads=reads(log[start:start + CHUNK]))
        traced = sorted(itertools.chain(*self.logs), key=lambda entry: int(entry["offset"]))
        for entry in traced[:records]:  # without the probes: so every run has reads above the HW
            self.trace_record(entry)

    def line(self, process: int, kind: str, f: str, **fields: object) -> None:
        self.lines.append({"process": process, "type": kind, "f": f, **fields})

    def op(self, process: int, f: str, asked: Line, **answer: object) -> None:
        self.line(process, "invoke", f, **asked)
        self.line(process, "ok", f, **asked, **answer)

    def begin(self, process: int) -> list[Line]:
        """Invokes an op; returns its sends."""
        if process < PRODUCERS:
            return self.send(process, self.value % PARTITIONS)
        self.line(process, "invoke", "poll")
        return []

    def send(self, process: int, key: int) -> list[Line]:
        self.value += 1
        sends: list[Line] = [{"partition": key, "value": self.value}]
        self.line(process, "invoke", "send", sends=sends)
        return sends

    def complete(self, process: int, sends: list[Line]) -> None:
        if sends:
            key, value = sends[0]["partition"], sends[0]["value"]
            entry = {"partition": key, "offset": len(self.logs[key]), "epoch": self.epoch, "value": value}
            self.logs[key].append(entry | {"crc": checksum(key, value)})
            self.line(process, "ok", "send", sends=[sends[0] | {"offset": entry["offset"]}])
            return
        consumer = process - PRODUCERS
        start = self.positions[consumer]
        chunk = self.logs[consumer % PARTITIONS][start:start + CHUNK]
        self.positions[consumer] += len(chunk)
        self.line(process, "ok", "poll", reads=reads(chunk))

    def leader(self, epoch: int) -> str:
        return NODES[epoch % len(NODES)]

    def change_leaders(self) -> None:
        """Kills a leader and starts it again; every partition goes on in the next epoch."""
        fault = {"nodes": [self.leader(self.epoch)], "moment": {"at": "time", "time": 0}}
        self.line(-1, "info", "kill", fault=fault)
        self.epoch += 1
        for log, starts in zip(self.logs, self.starts, strict=True):
            starts.append([self.epoch, len(log)])
        self.line(-1, "info", "start", fault=fault)

    def trace_record(self, entry: Line) -> None:
        """Traces one record, from its append until the followers know the HW; a clean election before it."""
        key, offset, epoch = entry["partition"], entry["offset"], entry["epoch"]
        leader = self.leader(epoch)
        others = [node for node in NODES if node != leader]
        state: Line = {"partition": key, "epoch": epoch, "leo": offset, "hw": offset}
        say = self.trace.append
        if [epoch, offset] in self.starts[key]:
            say({"node": "controller", "event": "elect", "partition": key, "leader": leader, "epoch": epoch,
                 "isr": NODES, "partition_epoch": epoch, "clean": True})
            say({"node": leader, "event": "become_leader", **state, "isr": NODES, "start": offset})
            self.trace += ({"node": node, "event": "become_follower", **state, "leader": leader}
                           for node in others)
        state["leo"] += 1
        appended = {"event": "append", **state, "offset": offset, "count": 1, "epochs": [[epoch, offset]]}
        say({"node": leader, **appended, "role": "leader"})
        self.trace += ({"node": node, **appended, "role": "follower"} for node in others)
        self.trace += ({"node": leader, "event": "fetch", **state, "follower": node, "offset": offset + 1,
                        "follower_epoch": epoch} for node in others)
        state["hw"] += 1
        say({"node": leader, "event": "hw", **state, "role": "leader"})
        say({"node": leader, "event": "ack", **state, "offset": offset, "acks": "all", "isr": NODES})
        self.trace += ({"node": node, "event": "hw", **state, "role": "follower"} for node in others)

    def folder(self) -> RunFolder:
        run, leader = run_json(self.keys), self.leader(self.epoch)
        led = {"leader": leader, "epoch": self.epoch, "isr": NODES}
        run["leaders"] = {str(key): led for key in self.keys}
        rows = [{"node": node, "partition": key, "leader": leader, "epoch": self.epoch, "log_start": 0,
                 "leo": len(log), "hw": len(log), "isr": NODES, "clean": True, "epochs": self.starts[key]}
                for node in NODES for key, log in enumerate(self.logs)]
        dumps = {node: [{"node": node, **entry} for log in self.logs for entry in log] for node in NODES}
        return RunFolder(run=run, lines=self.lines, dumps=dumps, rows=rows, trace=self.trace)


def reads(entries: list[Line]) -> list[Line]:
    return [{name: entry[name] for name in ("partition", "offset", "value")} for entry in entries]


def reads_of(run: RunFolder) -> Iterator[list[Line]]:
    return (line["reads"] for line in run.lines if line.get("reads"))


def acks_of(run: RunFolder) -> list[Line]:
    """The micro-sends of all ok sends."""
    lines = (line for line in run.lines if line["f"] == "send" and line["type"] == "ok")
    return [send for line in lines for send in line["sends"]]


# -- healthy runs ----------------------------------------------------------------------------------------


@shape
def healthy(run: RunFolder) -> None:
    """The healthy run without a change."""


@shape
def polls_of_one_record(run: RunFolder) -> None:
    lines, run.lines = run.lines, []
    for line in lines:
        reads = line.get("reads") or [None]
        for read in reads:
            if read is None:
                run.lines.append(line)
            else:
                asked = {"process": line["process"], "f": "poll", "type": "invoke"}
                run.lines += [asked, line | {"reads": [read]}]


# -- logs ------------------------------------------------------------------------------------------------


@shape
def all_overwritten(run: RunFolder) -> None:
    for entries in run.dumps.values():
        for entry in entries:
            entry["value"] = None


@shape
def all_lost_with_permission(run: RunFolder) -> None:
    """Elections were unclean, and the setting allows it."""
    all_overwritten(run)
    run.run["guarantees"]["unclean_leader_election"] = True
    for line in run.trace:
        if line["event"] == "elect":
            line["clean"] = False


@shape
def lost_of_the_leader_alone(run: RunFolder) -> None:
    run.dumps[run.run["leaders"]["0"]["leader"]] = []


@shape
def all_replicas_differ(run: RunFolder) -> None:
    for number_, entries in enumerate(run.dumps.values()):
        for entry in entries:
            entry |= {"value": entry["value"] * 10 + number_, "crc": number_}


@shape
def dumps_backwards(run: RunFolder) -> None:
    for entries in run.dumps.values():
        entries.reverse()


@shape
def all_at_one_offset(run: RunFolder) -> None:
    for entries in run.dumps.values():
        for entry in entries:
            entry["offset"] = 0


@shape
def one_value_everywhere(run: RunFolder) -> None:
    for entries in run.dumps.values():
        for entry in entries:
            entry["value"] = 1


@shape
def an_epoch_a_record(run: RunFolder) -> None:
    for entries in run.dumps.values():
        for entry in entries:
            entry["epoch"] = entry["offset"]


@shape
def nobody_leads(run: RunFolder) -> None:
    """No partition has a leader, and there is no log."""
    run.run["leaders"] = {key: {"leader": None} for key in run.run["partitions"]}
    run.dumps = {node: [] for node in run.dumps}


# -- sends -----------------------------------------------------------------------------------------------


@shape
def acks_backwards(run: RunFolder) -> None:
    acks = acks_of(run)
    for ack, offset in zip(acks, [ack["offset"] for ack in acks][::-1], strict=True):
        ack["offset"] = offset


@shape
def acks_at_one_offset(run: RunFolder) -> None:
    for ack in acks_of(run):
        ack["offset"] = 0


@shape
def acks_without_an_offset(run: RunFolder) -> None:
    for ack in acks_of(run):
        del ack["offset"]


@shape
def sends_fail(run: RunFolder) -> None:
    for line in run.lines:
        if line["f"] == "send" and line["type"] == "ok":
            line["type"] = "fail"


@shape
def sends_unknown(run: RunFolder) -> None:
    """All sends end as info, and their processes go on after it."""
    for line in run.lines:
        if line["f"] == "send" and line["type"] == "ok":
            line["type"] = "info"


@shape
def sent_twice(run: RunFolder) -> None:
    for line in run.lines:
        for send in line.get("sends", ()):
            send["value"] //= 2


@shape
def one_value_sent(run: RunFolder) -> None:
    for line in run.lines:
        for send in line.get("sends", ()):
            send["value"] = 1


@shape
def one_process(run: RunFolder) -> None:
    """One process makes all ops, and they overlap."""
    for line in run.lines:
        line["process"] = min(line["process"], 0)


# -- polls -----------------------------------------------------------------------------------------------


@shape
def polls_skip(run: RunFolder) -> None:
    for reads in reads_of(run):
        del reads[::2]


@shape
def polls_backwards(run: RunFolder) -> None:
    every = [read for reads in reads_of(run) for read in reads]
    reversed_reads = [dict(read) for read in reversed(every)]
    for read, other in zip(every, reversed_reads, strict=True):
        read |= other


@shape
def polls_fail(run: RunFolder) -> None:
    polls_skip(run)
    for line in run.lines:
        if line["f"] == "poll" and line["type"] == "ok":
            line["type"] = "fail"


@shape
def one_record_read_again_and_again(run: RunFolder) -> None:
    for reads in reads_of(run):
        for read in reads:
            read |= {"offset": 0, "value": 1}


@shape
def one_value_read_everywhere(run: RunFolder) -> None:
    for reads in reads_of(run):
        for read in reads:
            read["value"] = 1


@shape
def every_value_read_at_one_offset(run: RunFolder) -> None:
    for reads in reads_of(run):
        for read in reads:
            read["offset"] = 0


@shape
def ends_fall(run: RunFolder) -> None:
    lines, run.lines = run.lines, []
    for at, line in enumerate(lines):
        op = {"process": PRODUCERS, "f": "list_offsets"}
        ends = [{"partition": 0, "offset": len(lines) - at}]
        run.lines += [line, op | {"type": "invoke"}, op | {"type": "ok", "offsets": ends}]


@shape
def consumers_move(run: RunFolder) -> None:
    """Before every second line a consumer drops its partition; before the other lines it assigns it again."""
    lines, run.lines = run.lines, []
    for at, line in enumerate(lines):
        move = {"process": PRODUCERS, "f": ("assign", "subscribe")[at % 3 == 0]}
        move |= {"partitions": [0][: at % 2]}
        run.lines += [move | {"type": "invoke"}, move | {"type": "ok"}, line]
    polls_backwards(run)


# -- transactions ----------------------------------------------------------------------------------------


def as_transactions(run: RunFolder, seen: Callable[[int], int]) -> None:
    """Every send becomes a transaction, which reads the record at offset `seen`(its own offset)."""
    values = {(one["partition"], one["offset"]): one["value"] for one in acks_of(run)}
    for line in run.lines:
        if line["f"] == "send":
            line["f"] = "txn"
            for send in line["sends"] if line["type"] == "ok" else ():
                key, offset = send["partition"], seen(send["offset"])
                if (key, offset) in values:
                    line["reads"] = [{"partition": key, "offset": offset, "value": values[key, offset]}]


@shape
def transactions(run: RunFolder) -> None:
    as_transactions(run, lambda offset: offset - 1)


@shape
def transactions_in_pairs(run: RunFolder) -> None:
    """Each reads the other's write."""
    as_transactions(run, lambda offset: offset ^ 1)


@shape
def transactions_in_one_ring(run: RunFolder) -> None:
    """Each reads the next one's write; all but one of them began after their reader."""
    as_transactions(run, lambda offset: offset + 1)


# -- the trace -------------------------------------------------------------------------------------------


@shape
def clocks_apart(run: RunFolder) -> None:
    """No two lines of two nodes are in order."""
    run.run["clock_error_ns"] = 1 << 50


@shape
def all_at_once(run: RunFolder) -> None:
    for line in run.trace or ():
        line["time"] = 0


@shape
def acks_before_appends(run: RunFolder) -> None:
    """Followers append after all acks."""
    late = [line for line in run.trace if line.get("role") == "follower"]
    run.trace = [line for line in run.trace if line.get("role") != "follower"] + late


@shape
def followers_append_nothing(run: RunFolder) -> None:
    run.trace = [line for line in run.trace if line.get("role") != "follower"]


@shape
def an_election_a_record(run: RunFolder) -> None:
    elections(run, clean=True)


@shape
def an_unclean_election_a_record(run: RunFolder) -> None:
    elections(run, clean=False)


def elections(run: RunFolder, *, clean: bool) -> None:
    """An election before each append of a leader, so that each record has an epoch of its own."""
    epochs: dict[int, int] = {}
    trace, run.trace = [line for line in run.trace if line["event"] != "elect"], []
    for line in trace:
        key = line.get("partition", -1)
        if line["event"] == "append" and line["role"] == "leader":
            epochs[key] = epochs.get(key, -1) + 1
            run.trace += election(line, key, epochs[key], clean=clean)
        if "epoch" in line:
            line["epoch"] = epochs.get(key, 0)
        if line["event"] == "append":
            line["epochs"] = [[epochs[key], line["offset"]]]
        run.trace.append(line)


def election(line: Line, key: int, epoch: int, *, clean: bool) -> Iterator[Line]:
    word = {"partition": key, "leader": line["node"], "epoch": epoch, "isr": NODES}
    yield {"node": "controller", "event": "elect", **word, "partition_epoch": epoch, "clean": clean}
    state = {"partition": key, "epoch": epoch, "leo": line["offset"], "hw": line["offset"]}
    yield {"node": line["node"], "event": "become_leader", **state, "isr": NODES, "start": line["offset"]}


@shape
def the_isr_changes_with_every_record(run: RunFolder) -> None:
    trace, run.trace = run.trace, []
    for at, line in enumerate(trace):
        run.trace.append(line)
        if line["event"] == "append" and line["role"] == "leader":
            isr = [line["node"]] if at % 2 else list(NODES)
            change = {"event": "isr", "partition": line["partition"], "epoch": line["epoch"], "isr": isr}
            change |= {"partition_epoch": at, "leader": line["node"]}
            proposed = change | {"event": "isr_proposed", "leo": line["leo"], "hw": line["hw"]}
            learnt = change | {"leo": line["leo"], "hw": line["hw"]}
            mine = {"node": line["node"]}
            run.trace += [proposed | mine, change | {"node": "controller"}, learnt | mine]


@shape
def brokers_come_and_go(run: RunFolder) -> None:
    trace, run.trace = run.trace, []
    for at, line in enumerate(trace):
        run.trace.append(line)
        if line["event"] == "append":
            event = ("fence", "unfence", "register")[at % 3]
            word = {"node": "controller", "event": event, "broker": NODES[at % 2]}
            run.trace.append(word | {"clean": False})


@shape
def followers_truncate_all_the_time(run: RunFolder) -> None:
    trace, run.trace = run.trace, []
    for line in trace:
        run.trace.append(line)
        if line["event"] == "append" and line["role"] == "follower":
            cut = {"event": "truncate", "from": line["leo"], "to": 0, "cause": "diverged", "leo": 0}
            run.trace.append({key: line[key] for key in ("node", "partition", "epoch", "hw")} | cut)


@shape
def the_high_watermark_falls(run: RunFolder) -> None:
    for at, line in enumerate(run.trace):
        if "hw" in line:
            line["hw"] = -line["hw"] if at % 2 else line["hw"] + len(run.trace)


@shape
def starts_everywhere(run: RunFolder) -> None:
    """Nodes start again and again, with an empty log."""
    trace, run.trace = run.trace, []
    for line in trace:
        run.trace.append(line)
        if line["event"] == "append":
            found = {"event": "start", "clean": False, "leo": 0, "hw": 0, "log_start": 0}
            run.trace.append({key: line[key] for key in ("node", "partition", "epoch")} | found)
