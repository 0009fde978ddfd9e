"""Runs of any size in which nearly everything is odd in one way, to see how the work of the laws grows.

    tables = laws_shapes.tables("polls_skip", records=1000, root=Path("/tmp/x"))

Rules kept here: a shape takes the healthy run of so many records (big.py, big_trace.py) and makes one change
to all of its lines, so the change is there once for each record; the findings do not matter here.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import big
import big_trace
import here
import pyarrow as pa

from floodmark.checkers.read.folder import open_folder

Line = dict[str, Any]
PARTITIONS = 2  # few: growth with the square of a partition's records must be seen


@dataclass(slots=True, kw_only=True)
class Run:
    about: Line
    lines: list[Line]  # they get new indexes and times
    logs: dict[str, list[Line]]
    trace: list[Line]  # these get new times and seqs, unless a shape keeps them
    keeps_times: bool = False


Shape = Callable[[Run], None]
SHAPES: dict[str, Shape] = {}


def shape(change: Shape) -> Shape:
    SHAPES[change.__name__] = change
    return change


def tables(*names: str, records: int, root: Path) -> dict[str, pa.Table]:
    """The tables of one unit with a run of each of these shapes; the runs are written into root."""
    return here.tables_of([open_folder(write_run(name, records, root / name)) for name in names])


def write_run(name: str, records: int, root: Path) -> Path:
    """Writes a run of this shape into root; returns its folder."""
    folder = big.write(root, ops=records * 5 // 4, partitions=PARTITIONS)
    big_trace.write_trace(folder, 9 * records)
    run = Run(
        about=json.loads((folder / "run.json").read_text()),
        lines=read(folder / "history.jsonl"),
        logs={node: read(folder / "logs" / f"{node}.jsonl") for node in big.NODES},
        trace=read(folder / "trace.jsonl"),
    )
    SHAPES[name](run)
    number(run)
    run.about["history_lines"] = len(run.lines)
    (folder / "run.json").write_text(json.dumps(run.about))
    write(folder / "history.jsonl", run.lines)
    write(folder / "trace.jsonl", run.trace)
    for node, entries in run.logs.items():
        write(folder / "logs" / f"{node}.jsonl", entries)
    return folder


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, rows: list[Line]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def number(run: Run) -> None:
    for index, line in enumerate(run.lines):
        line |= {"index": index, "time": index * 10_000}
    seqs: dict[str, Iterator[int]] = {}
    for at, line in enumerate(run.trace):
        line["seq"] = next(seqs.setdefault(line["node"], count()))
        if not run.keeps_times:
            line["time"] = at * 1_000


def reads_of(run: Run) -> Iterator[list[Line]]:
    return (line["reads"] for line in run.lines if line.get("reads"))


def acks_of(run: Run) -> list[Line]:
    """The micro-sends of all ok sends."""
    lines = (line for line in run.lines if line["f"] == "send" and line["type"] == "ok")
    return [send for line in lines for send in line["sends"]]


# -- healthy runs ----------------------------------------------------------------------------------------


@shape
def healthy(run: Run) -> None:
    """The healthy run without a change."""


@shape
def polls_of_one_record(run: Run) -> None:
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
def all_overwritten(run: Run) -> None:
    for entries in run.logs.values():
        for entry in entries:
            entry["value"] = None


@shape
def all_lost_with_permission(run: Run) -> None:
    """Elections were unclean, and the setting allows it."""
    all_overwritten(run)
    run.about["guarantees"]["unclean_leader_election"] = True
    for line in run.trace:
        if line["event"] == "elect":
            line["clean"] = False


@shape
def lost_of_the_leader_alone(run: Run) -> None:
    run.logs[run.about["leaders"]["0"]["leader"]] = []


@shape
def all_replicas_differ(run: Run) -> None:
    for number_, entries in enumerate(run.logs.values()):
        for entry in entries:
            entry |= {"value": entry["value"] * 10 + number_, "crc": number_}


@shape
def dumps_backwards(run: Run) -> None:
    for entries in run.logs.values():
        entries.reverse()


@shape
def all_at_one_offset(run: Run) -> None:
    for entries in run.logs.values():
        for entry in entries:
            entry["offset"] = 0


@shape
def one_value_everywhere(run: Run) -> None:
    for entries in run.logs.values():
        for entry in entries:
            entry["value"] = 1


@shape
def an_epoch_a_record(run: Run) -> None:
    for entries in run.logs.values():
        for entry in entries:
            entry["epoch"] = entry["offset"]


@shape
def nobody_leads(run: Run) -> None:
    """No partition has a leader, and there is no log."""
    run.about["leaders"] = {key: {"leader": None} for key in run.about["partitions"]}
    run.logs = {node: [] for node in run.logs}


# -- sends -----------------------------------------------------------------------------------------------


@shape
def acks_backwards(run: Run) -> None:
    acks = acks_of(run)
    for ack, offset in zip(acks, [ack["offset"] for ack in acks][::-1], strict=True):
        ack["offset"] = offset


@shape
def acks_at_one_offset(run: Run) -> None:
    for ack in acks_of(run):
        ack["offset"] = 0


@shape
def acks_without_an_offset(run: Run) -> None:
    for ack in acks_of(run):
        del ack["offset"]


@shape
def sends_fail(run: Run) -> None:
    for line in run.lines:
        if line["f"] == "send" and line["type"] == "ok":
            line["type"] = "fail"


@shape
def sends_unknown(run: Run) -> None:
    """All sends end as info, and their processes go on after it."""
    for line in run.lines:
        if line["f"] == "send" and line["type"] == "ok":
            line["type"] = "info"


@shape
def sent_twice(run: Run) -> None:
    for line in run.lines:
        for send in line.get("sends", ()):
            send["value"] //= 2


@shape
def one_value_sent(run: Run) -> None:
    for line in run.lines:
        for send in line.get("sends", ()):
            send["value"] = 1


@shape
def one_process(run: Run) -> None:
    """One process makes all ops, and they overlap."""
    for line in run.lines:
        line["process"] = min(line["process"], 0)


# -- polls -----------------------------------------------------------------------------------------------


@shape
def polls_skip(run: Run) -> None:
    for reads in reads_of(run):
        del reads[::2]


@shape
def polls_backwards(run: Run) -> None:
    every = [read for reads in reads_of(run) for read in reads]
    reversed_reads = [dict(read) for read in reversed(every)]
    for read, other in zip(every, reversed_reads, strict=True):
        read |= other


@shape
def polls_fail(run: Run) -> None:
    polls_skip(run)
    for line in run.lines:
        if line["f"] == "poll" and line["type"] == "ok":
            line["type"] = "fail"


@shape
def one_record_read_again_and_again(run: Run) -> None:
    for reads in reads_of(run):
        for read in reads:
            read |= {"offset": 0, "value": 1}


@shape
def one_value_read_everywhere(run: Run) -> None:
    for reads in reads_of(run):
        for read in reads:
            read["value"] = 1


@shape
def every_value_read_at_one_offset(run: Run) -> None:
    for reads in reads_of(run):
        for read in reads:
            read["offset"] = 0


@shape
def ends_fall(run: Run) -> None:
    lines, run.lines = run.lines, []
    for at, line in enumerate(lines):
        op = {"process": big.PRODUCERS, "f": "list_offsets"}
        ends = [{"partition": 0, "offset": len(lines) - at}]
        run.lines += [line, op | {"type": "invoke"}, op | {"type": "ok", "offsets": ends}]


@shape
def consumers_move(run: Run) -> None:
    """Before every second line a consumer drops its partition; before the other lines it assigns it again."""
    lines, run.lines = run.lines, []
    for at, line in enumerate(lines):
        move = {"process": big.PRODUCERS, "f": ("assign", "subscribe")[at % 3 == 0]}
        move |= {"partitions": [0][: at % 2]}
        run.lines += [move | {"type": "invoke"}, move | {"type": "ok"}, line]
    polls_backwards(run)


# -- transactions ----------------------------------------------------------------------------------------


def as_transactions(run: Run, seen: Callable[[int], int]) -> None:
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
def transactions(run: Run) -> None:
    as_transactions(run, lambda offset: offset - 1)


@shape
def transactions_in_pairs(run: Run) -> None:
    """Each reads the other's write."""
    as_transactions(run, lambda offset: offset ^ 1)


@shape
def transactions_in_one_ring(run: Run) -> None:
    """Each reads the next one's write; all but one of them began after their reader."""
    as_transactions(run, lambda offset: offset + 1)


# -- the trace -------------------------------------------------------------------------------------------


@shape
def clocks_apart(run: Run) -> None:
    """No two lines of two nodes are in order."""
    run.about["clock_error_ns"] = 1 << 50


@shape
def all_at_once(run: Run) -> None:
    run.keeps_times = True
    for line in run.trace:
        line["time"] = 0


@shape
def acks_before_appends(run: Run) -> None:
    """Followers append after all acks."""
    late = [line for line in run.trace if line.get("role") == "follower"]
    run.trace = [line for line in run.trace if line.get("role") != "follower"] + late


@shape
def followers_append_nothing(run: Run) -> None:
    run.trace = [line for line in run.trace if line.get("role") != "follower"]


@shape
def an_election_a_record(run: Run) -> None:
    elections(run, clean=True)


@shape
def an_unclean_election_a_record(run: Run) -> None:
    elections(run, clean=False)


def elections(run: Run, *, clean: bool) -> None:
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
    word = {"partition": key, "leader": line["node"], "epoch": epoch, "isr": big.NODES}
    yield {"node": "controller", "event": "elect", **word, "partition_epoch": epoch, "clean": clean}
    state = {"partition": key, "epoch": epoch, "leo": line["offset"], "hw": line["offset"]}
    yield {"node": line["node"], "event": "become_leader", **state, "isr": big.NODES, "start": line["offset"]}


@shape
def the_isr_changes_with_every_record(run: Run) -> None:
    trace, run.trace = run.trace, []
    for at, line in enumerate(trace):
        run.trace.append(line)
        if line["event"] == "append" and line["role"] == "leader":
            isr = [line["node"]] if at % 2 else list(big.NODES)
            change = {"event": "isr", "partition": line["partition"], "epoch": line["epoch"], "isr": isr}
            change |= {"partition_epoch": at, "leader": line["node"]}
            proposed = change | {"event": "isr_proposed", "leo": line["leo"], "hw": line["hw"]}
            learnt = change | {"leo": line["leo"], "hw": line["hw"]}
            mine = {"node": line["node"]}
            run.trace += [proposed | mine, change | {"node": "controller"}, learnt | mine]


@shape
def brokers_come_and_go(run: Run) -> None:
    trace, run.trace = run.trace, []
    for at, line in enumerate(trace):
        run.trace.append(line)
        if line["event"] == "append":
            event = ("fence", "unfence", "register")[at % 3]
            word = {"node": "controller", "event": event, "broker": big.NODES[at % 2]}
            run.trace.append(word | {"clean": False})


@shape
def followers_truncate_all_the_time(run: Run) -> None:
    trace, run.trace = run.trace, []
    for line in trace:
        run.trace.append(line)
        if line["event"] == "append" and line["role"] == "follower":
            cut = {"event": "truncate", "from": line["leo"], "to": 0, "cause": "diverged", "leo": 0}
            run.trace.append({key: line[key] for key in ("node", "partition", "epoch", "hw")} | cut)


@shape
def the_high_watermark_falls(run: Run) -> None:
    for at, line in enumerate(run.trace):
        if "hw" in line:
            line["hw"] = -line["hw"] if at % 2 else line["hw"] + len(run.trace)


@shape
def starts_everywhere(run: Run) -> None:
    """Nodes start again and again, with an empty log."""
    trace, run.trace = run.trace, []
    for line in trace:
        run.trace.append(line)
        if line["event"] == "append":
            found = {"event": "start", "clean": False, "leo": 0, "hw": 0, "log_start": 0}
            run.trace.append({key: line[key] for key in ("node", "partition", "epoch")} | found)
