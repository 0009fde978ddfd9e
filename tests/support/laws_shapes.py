"""Runs of any size in which nearly everything is odd in one way, to see how the work of the laws grows.

    tables = laws_shapes.tables("polls skip", ops=1000, root=Path("/tmp/x"))

Rules kept here: a shape takes a run like a real one (real_like) and makes one change to all of its lines, so
the change is there once for each record; the findings do not matter here.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import here
import pyarrow as pa
import real_like

from floodmark.checkers.read.folder import open_folder
from histories import NODES, Line, RunFolder

PARTITIONS = 2  # few: growth with the square of a partition's records must be seen
FAULTS = 4  # however many records there are
ONE_PROCESS = 0  # that moves, and asks for ends

Shape = Callable[[RunFolder], None]
Lines = Callable[[RunFolder], Iterable[Line]]


def tables(*names: str, ops: int, root: Path) -> dict[str, pa.Table]:
    """The tables of one unit with a run of each of these shapes; the runs are written into root."""
    return here.tables_of([open_folder(write_run(name, ops, root / name)) for name in names])


def write_run(name: str, ops: int, root: Path) -> Path:
    """Writes a run of this shape into the folder root; returns its own folder."""
    made = real_like.write(root / "made", ops=ops, partitions=PARTITIONS, trace=True, faults=FAULTS)
    run = RunFolder.read(made)
    for line in run.trace or ():
        del line["time"]
    SHAPES[name](run)
    number(run)
    return run.write(root / "run")


def number(run: RunFolder) -> None:
    """Gives the lines indexes and times. A line of the trace keeps the time that a shape gave it."""
    run.run["history_lines"] = len(run.lines)
    for index, line in enumerate(run.lines):
        line |= {"index": index, "time": index * 10_000}
    seqs: dict[str, Iterator[int]] = {}
    for at, line in enumerate(run.trace or ()):
        line["seq"] = next(seqs.setdefault(line["node"], itertools.count()))
        line.setdefault("time", at * 1_000)


# -- which lines ------------------------------------------------------------------------------------------

def dumped(run: RunFolder) -> Iterable[Line]:
    return itertools.chain(*run.dumps.values())


def sends(run: RunFolder) -> Iterable[Line]:
    """All micro-sends, of invocations too."""
    return (send for line in run.lines for send in line.get("sends", ()))


def acks(run: RunFolder) -> list[Line]:
    return [send for line in completed(run, "send") for send in line["sends"]]


def reads(run: RunFolder) -> list[Line]:
    return [read for line in run.lines for read in line.get("reads", ())]


def completed(run: RunFolder, f: str) -> list[Line]:
    return [line for line in run.lines if (line["f"], line["type"]) == (f, "ok")]


def traced(run: RunFolder) -> list[Line]:
    assert run.trace is not None
    return run.trace


# -- changes ----------------------------------------------------------------------------------------------

def each(lines: Lines, **fields: object) -> Shape:
    """These fields in every one of them; what can be called is asked for the field's value."""
    def change(run: RunFolder) -> None:
        for line in lines(run):
            line |= {name: value(line) if callable(value) else value for name, value in fields.items()}

    return change


def backwards(lines: Lines, *names: str) -> Shape:
    """The values of these fields, the last one first."""
    def change(run: RunFolder) -> None:
        found = list(lines(run))
        values = [{name: one[name] for name in names} for one in found]
        for one, other in zip(found, reversed(values), strict=True):
            one |= other

    return change


def polls(changed: Callable[[list[Line]], list[list[Line]]]) -> Shape:
    """Each poll's records, dealt to so many polls of its process."""
    def change(run: RunFolder) -> None:
        lines, run.lines = run.lines, []
        for line in lines:
            run.lines.append(line)
            if line.get("reads"):
                line["reads"], *others = changed(line["reads"])
                asked = {"process": line["process"], "f": "poll", "type": "invoke"}
                run.lines += [one for reads in others for one in (asked, line | {"reads": reads})]

    return change


def without(field: str, value: str) -> Shape:
    def change(run: RunFolder) -> None:
        run.trace = [line for line in traced(run) if line.get(field) != value]

    return change


def at_each_append(make: Callable[[Line, int], list[Line]], role: str = "leader", at: int = 1) -> Shape:
    """More lines after (at 0: before) each append in this role, made of the append and its number."""
    def change(run: RunFolder) -> None:
        trace, numbers, run.trace = traced(run), itertools.count(), []
        for line in trace:
            run.trace.append(line)
            if line["event"] == "append" and line["role"] == role:
                place = len(run.trace) - 1 + at
                run.trace[place:place] = make(line, next(numbers))

    return change


def in_turn(*shapes: Shape) -> Shape:
    def change(run: RunFolder) -> None:
        for shape in shapes:
            shape(run)

    return change


def skip_half(reads: list[Line]) -> list[list[Line]]:
    return [reads[1::2]]


def all_replicas_differ(run: RunFolder) -> None:
    for number, entries in enumerate(run.dumps.values()):
        for entry in entries:
            entry |= {"value": (entry["value"] or 0) * 10 + number, "crc": number}


def nobody_leads(run: RunFolder) -> None:
    """No partition has a leader, and there is no log."""
    run.run["leaders"] = {key: {"leader": None} for key in run.run["partitions"]}
    run.dumps = {node: [] for node in run.dumps}


def beside_each_line(*ops: Callable[[int, int], Line]) -> Shape:
    """One process makes these ops beside each line of the others, of the line's number and of how many there
    are."""
    def change(run: RunFolder) -> None:
        lines, run.lines = run.lines, []
        for at, line in enumerate(lines):
            made = [{"process": ONE_PROCESS, **op(at, len(lines))} for op in ops]
            run.lines += [line, *(one | {"type": kind} for one in made for kind in ("invoke", "ok"))]

    return change


def transactions(seen: Callable[[int], int]) -> Shape:
    """Every send becomes a transaction, which reads the record at offset `seen`(its own offset)."""
    def change(run: RunFolder) -> None:
        values = {(one["partition"], one["offset"]): one["value"] for one in acks(run)}
        for line in run.lines:
            if line["f"] == "send":
                line["f"] = "txn"
                if line["type"] == "ok":
                    places = [(one["partition"], seen(one["offset"])) for one in line["sends"]]
                    line["reads"] = [{"partition": key, "offset": offset, "value": values[key, offset]}
                                     for key, offset in places if (key, offset) in values]

    return change


def state_of(append: Line, *fields: str) -> Line:
    return {name: append[name] for name in ("node", "partition", *fields)}


def elected(append: Line, number: int, *, clean: bool) -> list[Line]:
    """An election of the leader that appends then; each has an epoch of its own."""
    word = {"partition": append["partition"], "epoch": number, "isr": NODES}
    return [{"node": "controller", "event": "elect", **word, "leader": append["node"],
             "partition_epoch": number, "clean": clean},
            {"node": append["node"], "event": "become_leader", **word, "leo": append["offset"],
             "hw": append["hw"], "start": append["offset"]}]


def in_epochs_of_elections(run: RunFolder) -> None:
    epochs: dict[int, int] = {}
    for line in traced(run):
        if line["event"] == "elect":
            epochs[line["partition"]] = line["epoch"]
        if "epoch" in line:
            line["epoch"] = epochs.get(line["partition"], 0)
        if line["event"] == "append":
            line["epochs"] = [[line["epoch"], line["offset"]]]


def an_election_a_record(*, clean: bool) -> Shape:
    made = at_each_append(lambda append, number: elected(append, number, clean=clean), at=0)
    return in_turn(without("event", "elect"), made, in_epochs_of_elections)


def isr_changes(append: Line, number: int) -> list[Line]:
    word = {"partition": append["partition"], "epoch": append["epoch"], "partition_epoch": number,
            "leader": append["node"], "isr": [append["node"]] if number % 2 else NODES}
    learnt = state_of(append, "leo", "hw") | word
    return [learnt | {"event": "isr_proposed"}, word | {"node": "controller", "event": "isr"},
            learnt | {"event": "isr"}]


SHAPES: Mapping[str, Shape] = {
    "healthy": lambda run: None,
    "polls of one record": polls(lambda reads: [[read] for read in reads]),
    # logs
    "all overwritten": each(dumped, value=None),
    "lost of the leader alone": lambda run: run.dumps[run.leader(0)].clear(),
    "all replicas differ": all_replicas_differ,
    "dumps backwards": backwards(dumped, "partition", "offset", "epoch", "value", "crc"),
    "all at one offset": each(dumped, offset=0),
    "one value everywhere": each(dumped, value=1),
    "an epoch a record": each(dumped, epoch=lambda entry: entry["offset"]),
    "nobody leads": nobody_leads,
    # sends
    "acks backwards": backwards(acks, "offset"),
    "acks at one offset": each(acks, offset=0),
    "acks without an offset": lambda run: [ack.pop("offset") for ack in acks(run)] and None,
    "sends fail": each(lambda run: completed(run, "send"), type="fail"),
    "sends unknown": each(lambda run: completed(run, "send"), type="info"),
    "sent twice": each(sends, value=lambda send: send["value"] // 2),
    "one value sent": each(sends, value=1),
    "one process": each(lambda run: run.lines, process=lambda line: min(line["process"], 0)),
    # polls
    "polls skip": polls(skip_half),
    "all is read before it is sent": lambda run: run.lines.sort(key=lambda line: line["f"] == "send"),
    "polls backwards": backwards(reads, "partition", "offset", "value"),
    "polls fail": in_turn(polls(skip_half), each(lambda run: completed(run, "poll"), type="fail")),
    "one record read again and again": each(reads, offset=0, value=1),
    "one value read everywhere": each(reads, value=1),
    "every value read at one offset": each(reads, offset=0),
    "ends fall": beside_each_line(lambda at, of: {
        "f": "list_offsets", "offsets": [{"partition": 0, "offset": of - at}]}),
    "consumers move": in_turn(backwards(reads, "partition", "offset", "value"), beside_each_line(
        lambda at, of: {"f": ("assign", "subscribe")[at % 3 == 0], "partitions": [0][:at % 2]})),
    # transactions
    "transactions": transactions(lambda offset: offset - 1),
    "transactions in pairs": transactions(lambda offset: offset ^ 1),
    "transactions in one ring": transactions(lambda offset: offset + 1),
    # the trace
    "clocks apart": lambda run: run.run.update(clock_error_ns=1 << 50),
    "all at once": each(traced, time=0),
    "acks before appends": lambda run: traced(run).sort(key=lambda line: line.get("role") == "follower"),
    "followers append nothing": without("role", "follower"),
    "an election a record": an_election_a_record(clean=True),
    "all lost with permission": in_turn(
        each(dumped, value=None), an_election_a_record(clean=False),
        lambda run: run.run["guarantees"].update(unclean_leader_election=True)),
    "the ISR changes with every record": at_each_append(isr_changes),
    "brokers come and go": at_each_append(lambda _, number: [{
        "node": "controller", "event": ("fence", "unfence", "register")[number % 3],
        "broker": NODES[number % 2], "broker_epoch": number, "clean": False}]),
    "followers truncate all the time": at_each_append(lambda append, _: [{
        **state_of(append, "epoch", "hw"), "event": "truncate", "from": append["leo"], "to": 0, "leo": 0,
        "cause": "diverged"}], "follower"),
    "the high watermark falls": each(
        lambda run: (line for line in traced(run) if "hw" in line), hw=lambda line: -line["hw"]),
    "nodes start again with an empty log": at_each_append(lambda append, _: [{
        **state_of(append, "epoch"), "event": "start", "clean": False, "leo": 0, "hw": 0, "log_start": 0}]),
}
