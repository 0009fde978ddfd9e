"""Random small runs: legal ones, and damages to them, of which two judges must find the same.

A run is one that a correct cluster leaves (with transactions, with a trace) or a case of the corpus; a damage
changes, removes, doubles or adds one thing in its history, logs, replicas, trace or run.json.

Rules kept here: a seed and a number determine a run, whoever asks and in whatever order; a damage that does
not fit a run raises Unfit and has changed nothing.
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import corpus
from folders import NODES, Line, RunFolder
from traces import traced

from floodmark.checkers.laws.finding_names import FILES, LAWS
from histories import READER, checksum, healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A run that was written."""

    story: str  # what it is, and what was done to it
    path: Path
    legal: bool  # a correct cluster may leave it, so no bug may be found in it


class Unfit(Exception):
    """There is nothing in this run that this damage could change."""


Damage = Callable[[RunFolder, Random], None]


def run_of(seed: str, number: int, root: Path, *, traced_share: float = 0.25) -> Made:
    """The run of this number, damaged but for every tenth."""
    random = Random(f"{seed} {number}")
    story, folder, legal = base_of(random, traced_share)
    folder, done = (folder, []) if number % 10 == 0 else damaged(folder, random)
    return Made(story=f"{story}: {', '.join(done) or 'as it is'}", legal=legal and not done,
                path=folder.write(root / f"{number:05}"))


# -- runs ---------------------------------------------------------------------------------------------------

def base_of(random: Random, traced_share: float) -> tuple[str, RunFolder, bool]:
    """A run, what it is, and whether it is legal."""
    if random.random() < traced_share:
        rough = random.random() < 0.3
        folder = traced(random, rough=rough, clock_error_ns=random.choice((0, 0, 0, 500_000)))
        if rough:
            other_permissions(folder, random)
        return "rough trace" if rough else "trace", folder, not rough
    steps, settled, kind = random.randrange(15, 90), random.random() < 0.85, random.random()
    if kind < 0.35:
        return "log", healthy(random, steps=steps, settled=settled), True
    if kind < 0.65:
        few = random.random() < 0.2
        return "txn", healthy(random, steps=steps, settled=settled, transacts=True, uncommitted=few), True
    case = random.choice([*told()])
    return case, copy.deepcopy(told()[case]), False


@cache
def told() -> dict[str, RunFolder]:
    """The corpus's cases that are runs all of whose lines can be read."""
    found = {}
    for ident, case in by_ident().items():
        with TemporaryDirectory() as root, suppress(OSError, ValueError, AssertionError):
            found[ident] = RunFolder.read(case.write(Path(root) / "run"))
    return found


@cache
def by_ident() -> dict[str, corpus.Case]:
    return {case.ident: case for case in corpus.cases() if case.for_the_twin}


# -- damages ------------------------------------------------------------------------------------------------

DAMAGES: dict[str, Damage] = {}
OF_TRACES: dict[str, Damage] = {}


def damage(change: Damage) -> Damage:
    DAMAGES[change.__name__] = change
    return change


def of_traces(change: Damage) -> Damage:
    OF_TRACES[change.__name__] = change
    return change


MISFITS = (Unfit, AttributeError, KeyError, TypeError)  # where cases, or damages, left nothing


def damaged(folder: RunFolder, random: Random) -> tuple[RunFolder, list[str]]:
    """The run damaged in some ways, and their names."""
    done = []
    for _ in range(random.choice((1, 1, 2, 2, 3, 5))):
        some = OF_TRACES if folder.trace and random.random() < 0.6 else DAMAGES
        name, attempt = random.choice(sorted(some)), copy.deepcopy(folder)
        try:
            some[name](attempt, random)
        except MISFITS:
            continue
        folder = attempt
        done.append(name)
    return folder, done


def one(random: Random, some: Sequence[Any]) -> Any:
    if not some:
        raise Unfit
    return random.choice(some)


def near(random: Random, number: int) -> int:
    return max(0, number + random.choice((-2, -1, -1, 1, 1, 2, 50)))


def number_of(folder: RunFolder) -> None:
    """Gives lines that were moved their place again, and times that do not fall."""
    time = 0
    for index, line in enumerate(folder.lines):
        time = max(time, line["time"])
        line |= {"index": index, "time": time}


def insert(folder: RunFolder, at: int, *lines: Line) -> None:
    time = folder.lines[at - 1]["time"] if at else 0
    folder.lines[at:at] = [{"index": 0, "time": time, **line} for line in lines]
    number_of(folder)


def items(folder: RunFolder, *names: str, kinds: Sequence[str] = ("ok", "fail", "info")
          ) -> list[tuple[Line, str]]:
    """Lines of clients that have something under one of these names."""
    return [(line, name) for line in folder.lines for name in names
            if line["type"] in kinds and isinstance(line.get(name), list) and line[name]]


def some_nodes(random: Random) -> list[str]:
    return list(NODES) if random.random() < 0.5 else random.sample(NODES, random.choice((1, 1, 2)))


def partition_of(folder: RunFolder, random: Random) -> int:
    return int(one(random, sorted(folder.run["partitions"])))


def records(folder: RunFolder) -> list[Line]:
    """Our records in any log, as reads show them."""
    return [{key: entry[key] for key in ("partition", "offset", "value")}
            for entries in folder.dumps.values() for entry in entries if entry["value"] is not None]


def fit_row(folder: RunFolder, node: str, partition: int) -> None:
    """Makes the replica's row fit its log."""
    log, leo = folder.log(node, partition), 0
    leo = log[-1]["offset"] + 1 if log else 0
    for row in folder.rows:
        if (row["node"], row["partition"]) == (node, partition):
            full = row["hw"] >= row["leo"]
            row |= {"leo": leo, "hw": leo if full else min(row["hw"], leo)}
            if row.get("epochs"):
                row["epochs"] = [pair for pair in row["epochs"] if pair[1] <= leo]


# -- the logs

@damage
def records_go(folder: RunFolder, random: Random) -> None:
    """From the end of some logs, or one in the middle."""
    lost = one(random, records(folder))
    for node in some_nodes(random):
        log = folder.log(node, lost["partition"])
        if random.random() < 0.6:
            folder.set_log(node, lost["partition"], log[:-random.choice((1, 1, 2, 4))])
            fit_row(folder, node, lost["partition"])
        else:
            kept = [entry for entry in log if entry["offset"] != lost["offset"]]
            folder.set_log(node, lost["partition"], kept)


@damage
def records_come(folder: RunFolder, random: Random) -> None:
    """At the end of some logs: a new value, one that is there, or a record that is not ours."""
    partition, seen = partition_of(folder, random), [record["value"] for record in records(folder)]
    sent = [send["value"] for line, name in items(folder, "sends", kinds=("invoke",)) for send in line[name]]
    some = random.sample([*seen, *sent], min(2, len(seen)))
    value = random.choice((folder.fresh_value(), None, *seen[:1], *some))
    raised = random.choice((0, 0, 0, 1, -1))
    for node in some_nodes(random):
        log = folder.log(node, partition)
        epoch = log[-1]["epoch"] if log else 0
        offset = log[-1]["offset"] + 1 if log else 0
        entry = {"partition": partition, "offset": offset, "epoch": epoch + raised, "value": value,
                 "crc": checksum(partition, value)}
        folder.set_log(node, partition, [*log, entry])
        if random.random() < 0.9:
            fit_row(folder, node, partition)


@damage
def records_change(folder: RunFolder, random: Random) -> None:
    """One field of a record, in some logs or in all."""
    place = one(random, records(folder))
    value = one(random, [None, folder.fresh_value(), one(random, records(folder))["value"]])
    change: Line = random.choice((
        {"value": value}, {"value": value, "crc": checksum(place["partition"], value)},
        {"epoch": random.randrange(-1, 4)}, {"crc": 1}, {"crc_ok": False},
        {"aborted": random.random() < 0.8}, {"offset": near(random, place["offset"])}))
    for node in some_nodes(random):
        for entry in folder.dumps.get(node, []):
            if (entry["partition"], entry["offset"]) == (place["partition"], place["offset"]):
                entry |= change


@damage
def records_change_places(folder: RunFolder, random: Random) -> None:
    a, b = one(random, records(folder)), one(random, records(folder))
    for node in some_nodes(random):
        places = {(entry["partition"], entry["offset"]): entry for entry in folder.dumps.get(node, [])}
        here, there = (places.get((at["partition"], at["offset"])) for at in (a, b))
        if here is not None and there is not None:
            for key in random.choice((("value",), ("value", "crc"))):
                here[key], there[key] = there[key], here[key]


@damage
def a_row_changes(folder: RunFolder, random: Random) -> None:
    row = one(random, folder.rows)
    if random.random() < 0.1:
        folder.rows.remove(row)
        return
    leo, changed = row["leo"], [*(row.get("epochs") or [[0, 0]])]
    changed[-1] = [near(random, changed[-1][0]), near(random, changed[-1][1])]
    row |= random.choice((
        {"leo": near(random, leo)}, {"hw": near(random, row["hw"])}, {"lso": near(random, leo)},
        {"log_start": random.choice((1, 2, leo))}, {"running": False}, {"running": False, "hw": leo + 1},
        {"epochs": changed}, {"epochs": []}, {"epochs": None}, {"epochs": None, "epochs_unreadable": True}))


# -- the history

@damage
def an_ack_changes(folder: RunFolder, random: Random) -> None:
    """Its offset is another, or that of another record, or is not known."""
    line, name = one(random, items(folder, "sends", kinds=("ok",)))
    send = random.choice(line[name])
    others = [other["offset"] for other in records(folder) if other["partition"] == send["partition"]]
    near_it = near(random, send.get("offset") or 0)
    send["offset"] = random.choice((near_it, random.choice(others or [0]), None))


@damage
def an_answer_is_another(folder: RunFolder, random: Random) -> None:
    line = one(random, [line for line in folder.lines if line["process"] >= 0 and line["type"] != "invoke"])
    line["type"] = random.choice(("ok", "fail", "info"))


@damage
def a_value_is_sent_again(folder: RunFolder, random: Random) -> None:
    line, name = one(random, items(folder, "sends", kinds=("invoke", "ok", "info")))
    random.choice(line[name])["value"] = one(random, records(folder))["value"]


@damage
def reads_go(folder: RunFolder, random: Random) -> None:
    line, name = one(random, items(folder, "reads"))
    at = random.randrange(len(line[name]))
    del line[name][at:at + random.choice((1, 1, 2, 9))]


@damage
def a_value_is_never_read(folder: RunFolder, random: Random) -> None:
    gone = one(random, records(folder))["value"]
    for line, name in items(folder, "reads"):
        line[name] = [read for read in line[name] if read["value"] != gone]


@damage
def reads_come(folder: RunFolder, random: Random) -> None:
    """A poll or a transaction gets any of the records, of which some were written later."""
    line = one(random, [line for line in folder.lines
                        if line["f"] in ("poll", "txn") and line["type"] != "invoke"])
    reads = line.setdefault("reads", []) or []
    at = random.choice((len(reads), random.randrange(len(reads) + 1)))
    line["reads"] = [*reads[:at], dict(one(random, records(folder))), *reads[at:]]


@damage
def reads_change(folder: RunFolder, random: Random) -> None:
    line, name = one(random, items(folder, "reads"))
    read = random.choice(line[name])
    read |= random.choice(({"offset": near(random, read["offset"])}, {"value": folder.fresh_value()},
                           {"value": one(random, records(folder))["value"]}))


@damage
def ends_change(folder: RunFolder, random: Random) -> None:
    line, name = one(random, items(folder, "offsets"))
    end = random.choice(line[name])
    end["offset"] = near(random, end["offset"])
    if random.random() < 0.3:
        end["epoch"] = random.randrange(3)


@damage
def a_batch_cannot_be_read(folder: RunFolder, random: Random) -> None:
    """A poll says so, mostly one of the final reader."""
    polls = [line for line in folder.lines if line["f"] == "poll" and line["type"] != "invoke"]
    final = [line for line in polls if line["process"] == READER]
    line = one(random, final if final and random.random() < 0.8 else polls)
    place = {"partition": partition_of(folder, random), "offset": random.randrange(9)}
    line["corrupt"] = [{**place, "why": random.choice(("checksum", "magic", "length", "codec"))}]


@damage
def a_line_goes(folder: RunFolder, random: Random) -> None:
    """It never was there, or is missing."""
    if not folder.lines:
        raise Unfit
    count = len(folder.lines)
    del folder.lines[random.randrange(count)]
    number_of(folder)
    if folder.run.get("history_lines") == -1 and random.random() < 0.3:
        folder.run["history_lines"] = count


@damage
def a_line_moves(folder: RunFolder, random: Random) -> None:
    """Nearly always so that its process still asks before it is answered."""
    at = one(random, range(len(folder.lines)))
    line = folder.lines[at]
    same = [place for place, other in enumerate(folder.lines) if other["process"] == line["process"]]
    first = max((place + 1 for place in same if place < at), default=0)
    last = min((place - 1 for place in same if place > at), default=len(folder.lines) - 1)
    to = random.randrange(first, last + 1) if random.random() < 0.9 else one(random, range(len(folder.lines)))
    folder.lines.insert(to, folder.lines.pop(at))
    number_of(folder)


@damage
def a_line_is_of_another_process(folder: RunFolder, random: Random) -> None:
    line = one(random, [line for line in folder.lines if line["process"] >= 0])
    line["process"] = random.choice((folder.fresh_process(), one(random, folder.lines)["process"] or 0))
    line["process"] = max(0, line["process"])


@damage
def an_op_comes(folder: RunFolder, random: Random) -> None:
    """By a new process, in one place or around others: what it sends is in all logs, its reads are any."""
    seen, process, value = records(folder), folder.fresh_process(), folder.fresh_value()
    f = random.choice(("send", "txn", "txn", "poll", "list_offsets"))
    sends = [{"partition": partition_of(folder, random), "value": value + number}
             for number in range(random.choice((0, 1, 1, 2)) if f == "txn" else 1)]
    kind = random.choice(("ok", "ok", "ok", "info", "fail"))
    answers: Line = {}
    if f in ("send", "txn") and sends:
        answers["sends"] = [dict(send) for send in sends]
        for send in answers["sends"]:
            if kind == "ok" or random.random() < 0.5:
                send["offset"] = extended(folder, random, send)
            seen = records(folder)
    if f in ("poll", "txn"):
        count = min(len(seen), random.choice((0, 1, 1, 3)))
        answers["reads"] = [dict(read) for read in random.sample(seen, count)]
    if f == "list_offsets":
        answers["offsets"] = [{"partition": partition_of(folder, random), "offset": random.randrange(40)}]
    asked = {"sends": sends} if "sends" in answers else {}
    first, last = sorted(random.randrange(len(folder.lines) + 1) for _ in range(2))
    insert(folder, last, {"process": process, "type": kind, "f": f, **answers})
    insert(folder, first, {"process": process, "type": "invoke", "f": f, **asked})


def extended(folder: RunFolder, random: Random, send: Line) -> int:
    """Appends it to all logs; returns the offset, of the leader's."""
    offset = 0
    for node in NODES:
        log = folder.log(node, send["partition"])
        last = log[-1] if log else {"offset": -1, "epoch": 0}
        entry = {"partition": send["partition"], "offset": last["offset"] + 1, "epoch": last["epoch"],
                 "value": send["value"], "crc": checksum(send["partition"], send["value"])}
        folder.set_log(node, send["partition"], [*log, entry])
        fit_row(folder, node, send["partition"])
        if node == folder.leader(send["partition"]):
            offset = entry["offset"]
    return offset


FAULTS = ("kill", "stop", "start", "pause", "power_cut", "power_cut", "disk", "bad_disk", "elect", "elect",
          "memory", "mend_disk", "cut", "of_another_package")


@damage
def a_fault_strikes(folder: RunFolder, random: Random) -> None:
    f = random.choice(FAULTS)
    unplaced = f == "elect" or (f == "of_another_package" and random.random() < 0.5)
    fault: Line = {"nodes": [] if unplaced else some_nodes(random)}
    if f in ("power_cut", "disk", "bad_disk", "of_another_package") and random.random() < 0.8:
        fault["lost"] = True
    if f == "elect":
        where = random.choice(({}, {"partitions": [partition_of(folder, random)]}))
        fault |= {"unclean": random.random() < 0.7, **where}
    at = random.randrange(len(folder.lines) + 1)
    insert(folder, at, {"process": -1, "type": "info", "f": f, "fault": fault})
    if random.random() < 0.3:
        folder.run["schedule"] = [*(folder.run.get("schedule") or []), {"f": f, "nodes": fault["nodes"]}]


# -- run.json and whole files

@damage
def it_promises_something_else(folder: RunFolder, random: Random) -> None:
    folder.run["guarantees"] |= other_promises(random)


@damage
def it_shows_something_else(folder: RunFolder, random: Random) -> None:
    folder.run |= other_sights(random)


@damage
def another_leads(folder: RunFolder, random: Random) -> None:
    key = str(partition_of(folder, random))
    leads = folder.run["leaders"].get(key) or {}
    folder.run["leaders"] |= {key: random.choice((
        {"leader": None}, {**leads, "leader": random.choice(NODES)}, {**leads, "isr": some_nodes(random)}))}


@damage
def it_ended_otherwise(folder: RunFolder, random: Random) -> None:
    keys, run = [partition_of(folder, random)], folder.run
    settle = run.get("settle") or {}
    run |= random.choice((
        {"settled": False}, {"settled": True}, {"final_reads": {}}, {"died": ["n1"]}, {"died": "n1"},
        {"settled": False, "settle": {**settle, "no_leader": keys}}, {"residue": "a rule"}, {"missed": [0]},
        {"settled": False, "settle": {**settle, "no_ack": keys}}, {"unstruck": ["cut"]},
        {"history_lines": None}, {"clock_error_ns": 1_000_000}, {"system": {"flushes_at_recovery": True}},
        {"final_reads": {"processes": [READER], "partitions": keys}}))


@damage
def it_was_compacted(folder: RunFolder, random: Random) -> None:
    folder.run["partitions"][str(partition_of(folder, random))]["cleanup"] = "compact"


@damage
def it_was_imported(folder: RunFolder, random: Random) -> None:
    """From a history of somebody else, which says what it could not carry."""
    keys = [int(key) for key in folder.run["partitions"] if random.random() < 0.2]
    named = {} if random.random() < 0.3 else {"blind": keys, "unread": keys[:1]}
    left_out = random.choice(({}, {}, {"words of an error": 1}, {"read without an offset": 1}))
    folder.run |= {"leaders": {}, "settled": False, "settle": {"why": "imported"}, "final_reads": {},
                   "imported": {"left_out": left_out, **named}}
    if random.random() < 0.8:
        folder.run |= {"observes": {"dumps": False, "replicas": False, "trace": []}}
    folder.dumps, folder.trace = {}, None
    folder.files["replicas.jsonl"] = None


# -- what runs promise and show

def other_promises(random: Random) -> Line:
    """One guarantee with an unusual value."""
    return random.choice((
        {"acks": "1"}, {"acks": "0"}, {"retries": 5}, {"retries": 5, "idempotence": True}, {"flush": "every"},
        {"unclean_leader_election": True}, {"min_insync_replicas": 1}, {"min_insync_replicas": 3},
        {"isolation": "read_uncommitted"}, {"acks": "-1"}, {"acks": -1}, {"acks": 1}, {"acks": None},
        {"ack": "1"}, {"min_insync_replicas": "2"}, {"min.insync.replicas": 1}, {"flush": True},
        {"unclean_leader_election": "yes"}, {"unclean_leader_elections": False}, {"retries": "5"},
        {"retries": 5, "idempotence": 1}, {"isolation": "none"}, {"exactly_once": "on"}))


def other_sights(random: Random) -> Line:
    """run.json's `observes` of a system that shows less; sometimes an invalid one."""
    if random.random() < 0.1:
        return {"observes": random.choice((None, 7, {"dumps": "no"}, {"trace": "all"}, {"trace": [1]}))}
    promised = {name: random.random() < 0.6 for name in ("dumps", "replicas") if random.random() < 0.8}
    needs = frozenset().union(*(law.needs for law in LAWS.values())) - FILES
    events = sorted(needs | {"fetch", "checkpoint", "crash"})
    some = random.choice(([], events, ["elect", "isr", "truncate"], sorted(set(events) - {"ack"}),
                          random.sample(events, random.randrange(len(events)))))
    return {"observes": {**promised, "trace": some} if random.random() < 0.8 else promised}


def other_permissions(folder: RunFolder, random: Random) -> None:
    """For a run whose trace has unclean elections: the setting may be off, or missing, and the nemesis may
    have requested some elections at about the time of one."""
    elections = [line["time"] for line in folder.trace or [] if line.get("clean") is False
                 and line["event"] == "elect"]
    if not elections:
        return
    if random.random() < 0.6:
        folder.run["guarantees"]["unclean_leader_election"] = random.choice((False, False, False, None, 1))
    for _ in range(random.choice((0, 1, 1, 2))):
        error = folder.run.get("clock_error_ns") or 0
        began = random.choice(elections) + random.choice((-3, -1, 0, 1, 3)) * (error // 2 + 1)
        index = next((line["index"] for line in folder.lines if line["time"] >= began), len(folder.lines))
        keys = random.choice((None, [], [0], [1], [0, 1]))
        fault = {"nodes": [], "unclean": random.random() < 0.8, "began": began}
        fault |= {} if keys is None else {"partitions": keys}
        insert(folder, index, {"process": -1, "type": "info", "f": "elect", "fault": fault})


# -- the trace: a node's own lines stay in their order

NUMBERS = ("hw", "partition_epoch")


def a_line(folder: RunFolder, random: Random, *events: str) -> tuple[list[Line], Line]:
    """The trace, and some line of it, of these events."""
    trace = folder.trace or []
    return trace, one(random, [line for line in trace if not events or line["event"] in events])


@of_traces
def a_number_in_the_trace_changes(folder: RunFolder, random: Random) -> None:
    _, line = a_line(folder, random)
    name = one(random, [name for name in NUMBERS if isinstance(line.get(name), int)])
    line[name] = near(random, line[name])


@of_traces
def a_start_finds_less(folder: RunFolder, random: Random) -> None:
    """A replica starts with a shorter log than it did."""
    _, line = a_line(folder, random, "start")
    line["leo"] = random.randrange(line["leo"] or 1)


@of_traces
def no_hw_is_that_high(folder: RunFolder, random: Random) -> None:
    """All lines of a partition have an HW below its highest."""
    partition = a_line(folder, random, "hw")[1]["partition"]
    mine = [line for line in folder.trace or [] if line.get("partition") == partition and line.get("hw")]
    most = random.randrange(max((line["hw"] for line in mine), default=1))
    for line in mine:
        line["hw"] = min(line["hw"], most)


@of_traces
def a_name_in_the_trace_changes(folder: RunFolder, random: Random) -> None:
    _, line = a_line(folder, random)
    node, nodes = random.choice(NODES), sorted(some_nodes(random))
    changes = {"isr": nodes, "leader": node, "broker": node, "clean": random.random() < 0.3,
               "cause": random.choice(("hw", "epoch", "recovery", None)),
               "acks": random.choice(("all", "1"))}
    name = one(random, [name for name in changes if name in line])
    line[name] = changes[name]


@of_traces
def a_line_of_the_trace_goes(folder: RunFolder, random: Random) -> None:
    """It was never written, or (if it says what a log has) it is missing."""
    trace, line = a_line(folder, random)
    trace.remove(line)
    if line["event"] not in ("append", "truncate") and random.random() < 0.9:
        renumber(trace, line["node"], line["seq"], -1)


@of_traces
def a_node_says_it_too(folder: RunFolder, random: Random) -> None:
    """At once again, or another node, in its own state, acts as the leader as well."""
    trace, line = a_line(folder, random, "hw", "ack", "become_leader", "become_follower")
    again, at = dict(line), trace.index(line)
    if line["event"] in ("hw", "ack") and random.random() < 0.7:
        again["node"] = random.choice(NODES)
        before = [other for other in trace[:at] if other["node"] == again["node"] and "leo" in other
                  and other.get("partition") == line["partition"]]
        again |= {name: one(random, before[-1:])[name] for name in ("leo", "hw")}
    add(trace, at + 1, again)


@of_traces
def a_node_says_it_at_another_time(folder: RunFolder, random: Random) -> None:
    """Any time between its lines before and after. The judge asks nothing of a ruling that holds for less
    than two nanoseconds: a controller's line keeps as far away."""
    trace, line = a_line(folder, random)
    apart = 0 if line["node"] in folder.run["nodes"] else 2
    mine = [other["time"] for other in trace if other["node"] == line["node"] and other is not line]
    first = max((time for time in mine if time <= line["time"]), default=0)
    last = min((time for time in mine if time >= line["time"]), default=line["time"] + 1_000_000)
    others = [other["time"] + random.choice((-1, 0, 1)) for other in trace if first <= other["time"] <= last]
    if last - first < 2 * apart:
        raise Unfit
    line["time"] = min(max(one(random, others), first + apart), last - apart)
    trace.sort(key=lambda line: (int(line["time"]), line["seq"]))


@of_traces
def a_node_truncates(folder: RunFolder, random: Random) -> None:
    """Near its end, after its last append, and all its later lines know it."""
    trace, line = a_line(folder, random, "append", "fetch", "hw")
    of_replica = (line["node"], line["partition"])
    later = [other for other in trace[trace.index(line) + 1:]
             if (other["node"], other.get("partition")) == of_replica]
    if any(other["event"] in ("append", "truncate", "start") for other in later):
        raise Unfit
    to, cause = max(0, line["leo"] - random.choice((1, 1, 2, 9))), random.choice(("hw", "epoch", "recovery"))
    short = {"leo": to, "hw": min(line["hw"], to)}
    for other in later:
        other |= {name: min(other[name], short[name]) for name in short if name in other}
    cut = {name: line[name] for name in ("time", "node", "seq", "partition", "epoch")} | short
    cut |= {"event": "truncate", "from": line["leo"], "to": to, "cause": cause}
    add(trace, trace.index(line) + 1, cut)


def add(trace: list[Line], at: int, line: Line) -> None:
    """Adds a line behind those that its node has there already."""
    line["seq"] = 1 + max((other["seq"] for other in trace[:at] if other["node"] == line["node"]), default=-1)
    renumber(trace, line["node"], line["seq"], 1)
    trace.insert(at, line)


def renumber(trace: list[Line], node: str, since: int, by: int) -> None:
    """Moves the numbers of the node's lines from this one on; a gap stays a gap."""
    for line in trace:
        if line["node"] == node and line["seq"] >= since:
            line["seq"] += by
