"""Run folders told in a few words: `told(folder, "1 acked 1 2", "log n1 1")`.

tests/corpus/README.md documents the language. A run is healthy unless the story says otherwise: n1 leads, all
three are in the ISR, it has settled, and a final reader reads the leader's log. `in_seconds` has a shorter
language, for runs in which times matter.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from folders import FINAL, NODES, Line, RunFolder, settled_run

WORD = re.compile(r'(?:[^\s"]|"(?:\\.|[^"\\])*")+')
STATEMENT = re.compile(r'(?:[^;"]|;(?! )|"(?:\\.|[^"\\])*")+')
ITEM = re.compile(r"(?:(\d+):)?(-|-?\d+)(?:@(-?\d+))?(?:e(-?\d+))?(\{.*\})?$")
LISTS = ("isr", "by", "learners")
OF_A_PARTITION = ("epoch", "partition_epoch", "leader", "isr", "state")  # of a Trace


def told(path: Path, *story: str) -> Path:
    """Writes the folder that the lines of this story tell."""
    return Told(story).write(path)


def in_seconds(path: Path, *story: str) -> Path:
    return Timed(story).write(path)


def value_of(word: str) -> Any:
    """JSON, or a word as it is."""
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word


def fields_of(words: Iterable[str]) -> tuple[list[str], Line]:
    """The bare words, and the others as fields: NAME=JSON."""
    bare, fields = [], {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[\w.-]+", name):
            fields[name] = value_of(value)
        else:
            bare.append(word)
    return bare, fields


def item_of(word: str, f: str = "") -> Line:
    """PARTITION:VALUE@OFFSETeEPOCH{more} as an item of an op, or as an entry of a log."""
    found = ITEM.match(word)
    assert found, f"{word} is no [PARTITION:]VALUE[@OFFSET][eEPOCH]"
    partition, value, offset, epoch, more = found.groups()
    if f == "list_offsets":
        return {"partition": int(partition or 0), "offset": int(value), **json.loads(more or "{}")}
    item = {"partition": int(partition or 0), "offset": offset, "epoch": epoch}
    item = {key: int(number) for key, number in item.items() if number is not None}
    return {**item, "value": None if value == "-" else int(value), **json.loads(more or "{}")}


def invoked(f: str, fields: Line) -> Line:
    """The fields of the invocation of an op with these."""
    if "sends" in fields:
        return {"sends": [{key: item[key] for key in ("partition", "value") if key in item}
                          for item in fields["sends"]]}
    has_partitions = f in ("assign", "subscribe") and "partitions" in fields
    return {"partitions": fields["partitions"]} if has_partitions else {}


class Told:
    """The folder that a story tells."""

    def __init__(self, story: Sequence[str]) -> None:
        statements = [one.strip() for line in story for one in STATEMENT.findall(line)]
        partitions = [one for one in statements if one.startswith("partitions ")]
        self.partitions = int(partitions[0].split()[1]) if partitions else 1
        self.run = settled_run(NODES, range(self.partitions))
        self.lines: list[Line] = []
        self.logs: dict[str, list[Line]] = {node: [] for node in NODES}
        self.rows: dict[tuple[str, int], Line] = {}
        self.files: dict[str, bytes | None] = {}
        self.trace = Trace()
        self.final, self.final_time = True, 0
        for statement in statements:
            verb, *words = WORD.findall(statement)
            if re.fullmatch(r"-?\d+", verb):
                self.op_line(int(verb), *words)
            else:
                getattr(self, f"tell_{verb}", self.tell_step)(verb, *words)

    # -- the history

    def line(self, process: int, kind: str, f: str, **fields: Any) -> None:
        self.lines.append({"process": process, "type": kind, "f": f, **fields})

    def op_line(self, process: int, f: str, *words: str) -> None:
        """PROCESS [invoke|ok|fail|info] F [fail|info] ITEMS: both lines of an op, or the one named."""
        if f == "acked":
            bare, fields = fields_of(words)
            for item in map(item_of, bare):
                self.acked(process, item, **fields)
            return
        kind = f if f in ("invoke", "ok", "fail", "info") else ""
        if kind:
            f, *words = words
        outcome = "ok"
        if not kind and words[:1] in (("fail",), ("info",)):
            outcome, *words = words
        bare, more = fields_of(words)
        times = {key: more.pop(key) for key in ("index", "time") if key in more}
        fields = self.items_of(f, bare, kind) | more
        if not kind:
            self.line(process, "invoke", f, **invoked(f, fields))
        self.line(process, kind or outcome, f, **fields, **times)

    def acked(self, process: int, item: Line, epoch: int = 0) -> None:
        """A send that is acked, and in every log."""
        send = {"partition": item["partition"], "value": item["value"]}
        offset = sum(entry["partition"] == item["partition"] for entry in self.logs["n1"])
        self.line(process, "invoke", "send", sends=[send])
        self.line(process, "ok", "send", sends=[{**send, "offset": offset}])
        self.append(NODES, {**send, "epoch": epoch})

    def items_of(self, f: str, words: Sequence[str], kind: str) -> Line:
        if f in ("assign", "subscribe"):
            return {"partitions": [int(word) for word in words]}
        if f == "list_offsets":
            return {"offsets": [item_of(word, f) for word in words]} if words else {}
        at = words.index("reads") if "reads" in words else len(words) if f != "poll" else -1
        sends, reads = ([item_of(word) for word in some] for some in (words[:max(at, 0)], words[at + 1:]))
        found = {"sends": sends} if sends else {}
        return found | ({"reads": reads} if reads or (f == "poll" and kind != "invoke") else {})

    def tell_fault(self, _: str, f: str, *words: str) -> None:
        nodes, fields = fields_of(words)
        times = {key: fields.pop(key) for key in ("index", "time") if key in fields}
        self.line(-1, "info", f, fault={"nodes": nodes, **fields}, **times)

    def tell_line(self, _: str, line: str) -> None:
        self.lines.append(json.loads(line))

    def tell_raw(self, _: str, text: str) -> None:
        """Text as it stands in the place of a line."""
        self.lines.append({"raw": json.loads(text)})

    def tell_no(self, *_: str) -> None:
        """no final reads"""
        self.final = False

    def tell_final(self, _: str, *words: str) -> None:
        """final time=N: when the final reads begin."""
        self.final_time = fields_of(words)[1]["time"]

    def final_reads(self) -> list[Line]:
        """Reads of all our records in the leaders' logs, from the start."""
        keys = self.run.get("final_reads", {}).get("partitions", [])
        reads = [{name: entry[name] for name in ("partition", "offset", "value")}
                 for key in keys for entry in self.logs.get(self.run["leaders"][str(key)]["leader"], [])
                 if entry["partition"] == key and entry["value"] is not None and not entry.get("aborted")]
        return [{"process": FINAL, "type": kind, "f": f, **fields} for kind, f, fields in (
            ("invoke", "assign", {"partitions": keys}), ("ok", "assign", {"partitions": keys}),
            ("invoke", "poll", {}), ("ok", "poll", {"reads": reads}))]

    def in_time(self, final: list[Line]) -> list[Any]:
        """Numbered lines, whose times do not fall but where the story says so; raw text in its place."""
        time, first, lines = 0, len(self.lines), [*self.lines, *final]
        numbered: list[Line] = [{"index": at, "time": 1000 * at, **line} for at, line in enumerate(lines)]
        for at, line in enumerate(numbered):
            if "time" not in lines[at]:
                line["time"] = max(time, line["time"], self.final_time if at >= first else 0)
            time = line["time"] if isinstance(line["time"], int) else time
        return [line.get("raw", line) for line in numbered]

    # -- the logs and the other files

    def tell_partitions(self, *_: str) -> None:
        """It was looked for before all others."""

    def tell_log(self, _: str, *words: str) -> None:
        """log [NODE] ENTRIES: appended to all logs, or all that is in this one of that partition."""
        nodes = [word for word in words[:1] if word in NODES] or NODES
        items = [item_of(word) for word in words if word not in NODES] if "none" not in words else []
        partition = items[0]["partition"] if items else int(words[2]) if words[2:] else 0
        if len(nodes) == 1:
            self.logs[nodes[0]] = [one for one in self.logs[nodes[0]] if one["partition"] != partition]
        for item in items:
            self.append(nodes, item)

    def append(self, nodes: Sequence[str], item: Line) -> None:
        for node in nodes:
            log = [one for one in self.logs[node] if one["partition"] == item["partition"]]
            offset, crc = log[-1]["offset"] + 1 if log else 0, 1000 + (item["value"] or 0) % 1000
            self.logs[node].append({"offset": offset, "epoch": 0, "crc": crc, **item})

    def tell_row(self, _: str, node: str, *words: str) -> None:
        bare, fields = fields_of(words)
        node, _, partition = node.partition("/")
        self.rows.setdefault((node, int(partition or 0)), {}).update(fields | {
            word.removeprefix("-"): True if word == "absent" else "absent" for word in bare})

    def row_of(self, node: str, key: int) -> Line | None:
        """The replica's row of replicas.jsonl, with values in place of those that its log gives."""
        edits = self.rows.get((node, key), {})
        log = [entry for entry in self.logs[node] if entry["partition"] == key]
        leo = log[-1]["offset"] + 1 if log else 0
        epochs: dict[int, int] = {}
        for entry in log:
            if entry["epoch"] is not None:
                epochs.setdefault(entry["epoch"], entry["offset"])
        leader = self.run.get("leaders", {}).get(str(key), {})
        row = {
            "node": node, "partition": key, "leader": leader.get("leader"), "epoch": leader.get("epoch", 0),
            "log_start": log[0]["offset"] if log else 0, "leo": leo, "hw": leo, "isr": leader.get("isr", []),
            "clean": True, "epochs": [list(pair) for pair in epochs.items()],
        } | edits  # fmt: skip
        return None if edits.get("absent") else present(row)

    def tell_run(self, _: str, *words: str) -> None:
        for word in words:
            name, equals, value = word.partition("=")
            *way, last = name.removeprefix("-").split("/")
            place = self.run
            for step in way:
                place = place.setdefault(step, {})
            if equals:
                place[last] = value_of(value)
            elif name == "-history_lines":
                place[last] = "absent"
            else:
                del place[last]

    def tell_file(self, _: str, name: str, *text: str) -> None:
        self.files[name] = None if text == ("absent",) else json.loads(text[0]).encode()

    def tell_trace(self, _: str, line: str) -> None:
        self.trace.lines.append(json.loads(line))

    def tell_step(self, verb: str, *words: str) -> None:
        """A step of the trace."""
        bare, fields = fields_of(words)
        lists = {key: value.split(",") for key, value in fields.items()
                 if key in LISTS and isinstance(value, str)}
        args = [word.split(",") if "," in word else value_of(word) for word in bare]
        if verb == "ruling" and not isinstance(args[1], list):
            args[1] = [args[1]]
        getattr(self.trace, verb)(*args, **(fields | lists))

    def write(self, path: Path) -> Path:
        lines = self.in_time(self.final_reads() if self.final else [])
        self.run.setdefault("history_lines", len(lines))
        rows = [self.row_of(node, key) for node in NODES for key in range(self.partitions)]
        return RunFolder(
            run=present(self.run), lines=lines, rows=[row for row in rows if row is not None],
            dumps={node: [{"node": node, **entry} for entry in log] for node, log in self.logs.items()},
            trace=self.trace.lines or None, files=self.files).write(path)


def present(fields: Line) -> Line:
    return {name: value for name, value in fields.items() if value != "absent"}


class Trace:
    """A trace step by step, by a correct broker: the lines so far, and each node's epoch, LEO and HW. Every
    step stamps its lines 1000 ns apart."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.time, self.partition = 0, 0
        self.others: dict[int, Line] = {}  # what is so of the other partitions
        self.begin_partition()

    def begin_partition(self) -> None:
        self.epoch, self.partition_epoch = 0, 0
        self.leader, self.isr = "n1", list(NODES)
        self.state = {node: {"epoch": 0, "leo": 0, "hw": 0} for node in NODES}

    def on(self, partition: int) -> None:
        """The steps from here on are of this partition; at the first time n1 is elected."""
        self.others[self.partition] = {name: vars(self)[name] for name in OF_A_PARTITION}
        self.partition = partition
        if partition in self.others:
            vars(self).update(self.others[partition])
        else:
            self.begin_partition()
            self.epoch = -1
            self.elect("n1", *NODES)

    def say(self, node: str, event: str, **fields: Any) -> None:
        """Adds one line, with the node's state."""
        self.time = fields.get("time", self.time + 1000)
        state = self.state.get(node, {})
        state.update({key: fields[key] for key in state if key in fields})
        seq = sum(line["node"] == node for line in self.lines)
        place = {} if fields.pop("alone", False) else {"partition": self.partition, **state}
        self.lines.append({"time": self.time, "node": node, "seq": seq, "event": event, **place, **fields})

    def ruling(self, event: str, isr: Sequence[str], **fields: Any) -> None:
        self.partition_epoch += 1
        self.isr = list(isr)
        word = {"leader": self.leader if self.leader in NODES else None, "epoch": self.epoch, "isr": self.isr,
                "partition_epoch": self.partition_epoch}
        self.say("controller", event, **word, **fields)

    def begin(self) -> None:
        """All three start empty and register, and n1 is elected."""
        for node in NODES:
            self.say(node, "start", clean=False, alone=True)
            self.say("controller", "register", broker=node, broker_epoch=1, clean=False, alone=True)
            self.say("controller", "unfence", broker=node, broker_epoch=1, alone=True)
        self.epoch = -1
        self.elect("n1", *NODES)

    def elect(self, leader: str, *isr: str, clean: bool = True,
              learners: Sequence[str] | None = None) -> None:
        """Begin a new epoch; the members of the ISR (or `learners`) take their roles, the leader first."""
        self.epoch, self.leader = self.epoch + 1, leader
        self.ruling("elect", isr, clean=clean)
        for node in isr if learners is None else learners:
            self.take_role(node)

    def take_role(self, node: str) -> None:
        self.state[node]["epoch"] = self.epoch
        if node == self.leader:
            self.say(node, "become_leader", isr=self.isr, start=self.state[node]["leo"])
        else:
            self.say(node, "become_follower", leader=self.leader)

    def append(self, node: str, count: int = 1, epoch: int | None = None, epochs: bool = True) -> None:
        state, role = self.state[node], "leader" if node == self.leader else "follower"
        first, state["leo"] = state["leo"], state["leo"] + count
        parts = {"epochs": [[state["epoch"] if epoch is None else epoch, first]]} if epochs else {}
        self.say(node, "append", role=role, offset=first, count=count, **parts)

    def commit(self, node: str | None = None, to: int | None = None) -> None:
        state = self.state[node or self.leader]
        state["hw"] = state["leo"] if to is None else to
        self.say(node or self.leader, "hw", role="leader")

    def ack(self, offset: int, node: str | None = None, acks: str = "all",
            isr: Sequence[str] | None = None) -> None:
        isr = self.isr if isr is None else list(isr)
        self.say(node or self.leader, "ack", offset=offset, acks=acks, isr=isr)

    def produce(self, count: int = 1) -> None:
        """A record that the leader and the ISR append, committed and acked."""
        for node in (self.leader, *(node for node in self.isr if node != self.leader)):
            self.append(node, count)
        self.commit()
        self.ack(self.state[self.leader]["leo"] - 1)

    def truncate(self, node: str, to: int, cause: str = "hw", **fields: Any) -> None:
        state = self.state[node]
        was, state["leo"], state["hw"] = state["leo"], to, min(state["hw"], to)
        self.say(node, "truncate", cause=cause, **{"from": was, "to": to}, **fields)

    def restart(self, node: str, leo: int | None = None, hw: int = 0, **fields: Any) -> None:
        """The node is killed and started again; `leo`: the log that it finds."""
        state = self.state[node]
        state["leo"] = state["leo"] if leo is None else leo
        state["hw"] = min(hw, state["leo"])
        self.say(node, "start", clean=False, **fields)

    def register(self, node: str) -> None:
        """A new incarnation: fenced, out of the ISR and the lead, then unfenced; it learns its role if it has
        one."""
        self.say("controller", "register", broker=node, broker_epoch=2, clean=False, alone=True)
        led = node == self.leader
        if led:
            self.epoch, self.leader = self.epoch + 1, "nobody"
        if led or (node in self.isr and len(self.isr) > 1):
            self.ruling("isr", [each for each in self.isr if each != node] or [node], cause="registration")
        self.say("controller", "unfence", broker=node, broker_epoch=2, alone=True)
        if not led:
            self.take_role(node)


class Timed(Told):
    """A story in seconds. `1 8-9 fail p1`: a send of process 1 to partition 1 (`11-`: without an answer);
    `poll 1 8-9`; `kill n1 10-10.5`: a fault, in effect from 10.5 s on; `trace 11 isr {...}`: a line of n1;
    `about {...}`: of run.json. Lines of the same time keep the order in which they are told."""

    def __init__(self, story: Sequence[str]) -> None:
        self.values = 0
        super().__init__(story)
        self.final = False
        self.lines.sort(key=lambda line: int(line["time"]))

    def both(self, times: str, process: int, kind: str, f: str, asked: Line, answer: Line) -> None:
        """Both lines of an op, or the one."""
        began_s, _, ended_s = times.partition("-")
        self.line(process, "invoke", f, time=ns(began_s), **asked)
        if ended_s:
            self.line(process, kind, f, time=ns(ended_s), **answer)

    def op_line(self, process: int, f: str, *words: str) -> None:
        kind = next((word for word in words if not word.startswith("p")), "ok")
        partition = next((int(word[1:]) for word in words if word.startswith("p")), 0)
        self.values += 1
        sends = {"sends": [{"partition": partition, "value": self.values}]}
        self.both(f, process, kind, "send", sends, sends)

    def tell_poll(self, _: str, process: str, times: str) -> None:
        self.both(times, int(process), "ok", "poll", {}, {"reads": []})

    def tell_step(self, verb: str, *words: str) -> None:
        (times,) = (word for word in words if word[0].isdigit())
        nodes, more = fields_of(word for word in words if word != times)
        began_s, _, effect_s = times.partition("-")
        fault = {"nodes": nodes, "began": ns(began_s), **more}
        self.line(-1, "info", verb, time=ns(effect_s or began_s), fault=fault)

    def tell_trace(self, _: str, time_s: str, *words: str) -> None:
        event, *more = words
        self.trace.lines.append({"time": ns(time_s), "node": "n1", "seq": len(self.trace.lines),
                                 "event": event, "partition": 0, "epoch": 1, **json.loads(" ".join(more))})

    def tell_about(self, _: str, *words: str) -> None:
        self.run |= json.loads(" ".join(words))

    def tell_steady(self, _: str, until_s: str) -> None:
        """Two processes send in turn, every 0.1 s each, and are acked after 0.01 s; until a cut at 10 s, and
        from its end."""
        for tenth in [*range(50, 100), *range(10 * int(until_s), 200)]:
            for process in (1, 2):
                self.op_line(process, f"{tenth / 10}-{tenth / 10 + 0.01:.2f}", f"p{process - 1}")
        self.tell_step("cut", "10")
        self.tell_step("heal", until_s)

    def tell_uninvoked(self, _: str, process: str) -> None:
        self.lines = [line for line in self.lines
                      if (line["process"], line["type"]) != (int(process), "invoke")]


def ns(time_s: str) -> int:
    return round(float(time_s) * 1_000_000_000)
