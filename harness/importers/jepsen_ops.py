"""Converts Jepsen's Kafka ops (jepsen.tests.kafka), and its nemesis's acts, to format 1, one by one and in
order.

Rules
1. Nothing is invented: an op becomes one line or none. What is left out or changed is counted by kind.
2. What is left out must not cause findings: if the reads of a partition cannot be converted, the process has
   no position in its logs any more (it continues in another life, jepsen_file.py); if ops are missing that
   may have sent, `lines` says so, and no check depends on what was not sent.
3. A process that seeks to the beginning continues in another life too: it may read everything again.
4. If a partition was reassigned during an op, its reads in the op need not be in order. If they are not, each
   further run of such reads is put into a poll of its own after the op, before which the process gives the
   partition up and gets it again. All other partitions keep their order. If the process cannot continue (an
   info), or its position did not move (a fail), another process polls.
5. Outcomes are Jepsen's: ok happened, fail certainly did not, info is unknown.
6. Jepsen infers a lost write from reads alone: an acked record that no poll returned, though one returned a
   higher offset. So nothing can be inferred about records acked above all reads (`unread`), nor in partitions
   with reads that could not be converted (`blind`).
7. Jepsen's tests end with final polls: a process assigns, seeks the beginning and reads to the end. They are
   final reads of a partition if nothing was sent to it since then, and they reached the highest offset in any
   ack or read.
8. Jepsen records an act twice, at its begin and its end. Its one line has the end's time, `began` that of
   the begin. An act without an end gets its line when the next one begins, or at the end of the history: it
   may have struck until then.
9. An act with the meaning of one of floodmark's faults gets its name; any other keeps its own. An act that is
   not known to spare data (SPARES, or --spares) counts as one that loses data: findings that it might excuse
   are then no bugs. If it names no node, its node is called `unnamed`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, NamedTuple, TypeGuard

import orjson

from floodmark.harness.importers.edn import Keyword, Tagged, text_of
from floodmark.harness.importers.jepsen_file import LIFE, JepsenFile, JepsenOp, Names, name_of, shown
from floodmark.harness.op import NEMESIS
from floodmark.harness.run import json_line

TYPES = frozenset({"invoke", "ok", "fail", "info"})
RECORDS = frozenset({"send", "poll", "txn"})
ASSIGNMENTS = frozenset({"assign", "subscribe"})
QUERIES = frozenset({"debug-topic-partitions"})  # asks about the cluster; no sends or reads
FIELDS = frozenset({"index", "time", "process", "type", "f", "value", "error", "rebalance-log",
                    "seek-to-beginning?"})  # fmt: skip
ERRORS = {"timeout": "TIMEOUT", "kafka-timeout": "TIMEOUT", "disconnect": "CONNECTION",
          "connection-refused": "CONNECTION"}  # fmt: skip
SEQUENCE = (tuple, list)
_SIZES = {"send": (3, 3), "poll": (1, 2)}
_INT64 = 1 << 63
_FAR = 1 << 53  # more than any history's ops

Sends = list[dict[str, int]]
Reads = list[dict[str, int]]


@dataclass(slots=True, kw_only=True)
class Final:
    """What a process has read since it sought the beginning."""

    line: int  # of the history, after the seek
    partitions: frozenset[int]
    reached: dict[int, int] = field(default_factory=dict)  # the highest offset, by partition


@dataclass(slots=True, kw_only=True)
class Reach:
    """How far the history's reads reach."""

    acked: dict[int, int] = field(default_factory=dict)  # the highest offset that was acked, by partition
    read: dict[int, int] = field(default_factory=dict)  # the highest offset that a poll returned
    unplaced: dict[int, int] = field(default_factory=dict)  # value acked without an offset -> its partition
    blind: set[int] = field(default_factory=set)
    sent: dict[int, int] = field(default_factory=dict)  # the last line about a send, by partition
    finals: dict[int, Final] = field(default_factory=dict)  # by the process's number

    def was_read(self, process: int, partition: int, offset: int) -> None:
        if offset > self.read.get(partition, -1):
            self.read[partition] = offset
        if process in self.finals:
            reached = self.finals[process].reached
            reached[partition] = max(offset, reached.get(partition, -1))

    def unread(self, history: Path) -> list[int]:
        """Partitions with an acked record that may be above all reads. The history is read again if values
        were acked without an offset, which is rare."""
        above = {key for key, offset in self.acked.items() if offset > self.read.get(key, -1)}
        if never_read := dict(self.unplaced):
            with history.open("rb") as file:
                for read in (read for line in file if b'"reads":[{' in line
                             for read in orjson.loads(line)["reads"]):
                    never_read.pop(read["value"], None)
        return sorted({*above, *never_read.values()})

    def final_reads(self) -> tuple[list[int], list[int]]:
        """The processes of the final polls, and the partitions that they read to the end."""
        ends = [(process, partition) for process, final in self.finals.items()
                for partition in final.partitions - self.blind
                if final.line > self.sent.get(partition, -1) and final.reached.get(partition, -1) >= max(
                    self.acked.get(partition, -1), self.read.get(partition, -1))]
        return sorted({process for process, _ in ends}), sorted({partition for _, partition in ends})


class OpenOp(NamedTuple):
    process: int  # its number in the run
    jepsen_f: str
    f: str  # the f that was written
    sends: Sequence[tuple[int, Any]] = ()  # partition, and Jepsen's value
    partitions: Sequence[int] = ()  # of an assign or subscribe
    seeks: bool = False  # to the beginning


class ConvertedOp(NamedTuple):
    """The converted completion of a send, poll or txn."""

    f: str
    rest: dict[str, Any]  # sends and reads
    blind: set[int]  # partitions with a read that could not be converted
    apart: list[Reads]  # reads for polls of their own, in order


@dataclass(slots=True, kw_only=True)
class HistoryLines:
    """Writes history.jsonl in format 1: indexes without gaps, times that never fall."""

    file: BinaryIO
    count: int = 0
    clamped: int = 0  # lines whose time was earlier than that of the line before
    _time: int = 0

    def write(self, time: int | None, process: int, kind: str, f: str, rest: Mapping[str, Any]) -> None:
        self.clamped += time is not None and time < self._time
        self._time = max(self._time, time or 0)
        self.file.write(json_line({"index": self.count, "time": self._time, "process": process, "type": kind,
                                   "f": f, **rest}))
        self.count += 1


# -- the nemesis ---------------------------------------------------------------------------------------------

UNNAMED = "unnamed"
NAME_CHARS = 100
DEEPEST = 8  # nesting in which nodes' names are searched
OURS: Mapping[str, str] = {
    "kill": "kill", "start": "start", "pause": "pause", "resume": "resume",
    "start-partition": "cut", "stop-partition": "heal", "start-packet": "packet", "stop-packet": "heal",
    "bump-clock": "clock", "strobe-clock": "clock", "reset-clock": "reset_clock",
    "bump": "clock", "strobe": "clock", "reset": "reset_clock",
}
SPARES = frozenset({
    *OURS, "stop", "check-offsets", "check-clock-offsets", "add-node", "join-node", "remove-node",
    "leave-node", "decommission", "recommission", "rebalance", "slow", "fast", "flaky",
})  # fmt: skip


class Act(NamedTuple):
    """One of the two records of an act."""

    f: str
    time: int
    value: object


@dataclass(slots=True, kw_only=True)
class Nemesis:
    """The open act, the nodes and the names of all acts, and those that count as losing data."""

    json: bool  # JSON has strings for keywords: a single string is no node's name then
    spares: frozenset[str] = SPARES
    begun: Act | None = None
    nodes: set[str] = field(default_factory=set)
    acts: set[str] = field(default_factory=set)
    counted_as_losing: Counter[str] = field(default_factory=Counter)

    def add(self, act: Act | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Adds a record (None: the history has ended); yields f and fault of the act that it ends."""
        begun, self.begun = self.begun, act
        if begun is not None and act is not None and begun.f == act.f:
            self.begun = None
            yield self._line_of(begun, act)
        elif begun is not None:
            yield self._line_of(begun, begun)

    def _line_of(self, begun: Act, done: Act) -> tuple[str, dict[str, Any]]:
        grudge = grudge_of(done.value)
        values = (done.value, begun.value) if grudge is None else (tuple(grudge.items()),)
        named = (value for value in values if not (self.json and isinstance(value, str)))
        nodes = set().union(*map(nodes_of, named))
        f = "cut" if grudge and done.f == "start" else OURS.get(done.f, done.f)
        fault: dict[str, Any] = {"began": begun.time, "jepsen": f":{done.f} {shown(done.value)}"}
        if grudge:
            fault["grudge"] = grudge
        if done.f not in self.spares:
            self.counted_as_losing[done.f] += 1
            fault["lost"] = True
            nodes = nodes or {UNNAMED}
        self.nodes |= nodes
        self.acts.add(done.f)
        return f, {"nodes": sorted(nodes), **fault}


def nodes_of(value: object, depth: int = 0) -> set[str]:
    """The nodes that an act's value names: one, several, or a map with the result for each."""
    if isinstance(value, str):
        return {value} if _is_name(value) else set()
    if isinstance(value, dict) and depth <= DEEPEST:
        values = next((node for key, node in value.items() if name_of(key) == "node"), None)
        return {key for key in value if _is_name(key)} if values is None else nodes_of(values, depth + 1)
    parts = (value.form,) if isinstance(value, Tagged) else value
    if not isinstance(parts, tuple | list | frozenset) or depth > DEEPEST:
        return set()
    return set().union(*(nodes_of(part, depth + 1) for part in parts))


def grudge_of(value: object) -> dict[str, list[str]] | None:
    """Node -> the nodes it receives nothing from, from `[:isolated {node #{node ...} ...}]`."""
    if not isinstance(value, tuple | list) or len(value) != 2 or name_of(value[0]) != "isolated":
        return None
    if not isinstance(value[1], dict):
        return None
    named = [(node, others) for node, others in value[1].items() if _is_name(node)]
    return {node: sorted(nodes_of(others)) for node, others in sorted(named)}


def _is_name(text: object) -> bool:
    """Whether the text could be a node's name (in JSON, keywords and people's texts are strings too)."""
    return isinstance(text, str) and 0 < len(text) <= NAME_CHARS and not set(text) & set(" /\\\0\t\n:[]{}#")


# -- all ops -------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Converter:
    """Converts every op of the file and writes it in format 1."""

    source: JepsenFile
    lines: HistoryLines
    names: Names
    nemesis: Nemesis
    left_out: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    missing: int = 0  # ops that may have sent or read, and are not converted or not in the file
    records: int = 0  # sends, polls and txns
    reach: Reach = field(default_factory=Reach)
    processes: set[int] = field(default_factory=set)
    opened: dict[int, OpenOp] = field(default_factory=dict)
    # The partitions of which a process read records in this life.
    positioned: dict[int, set[int]] = field(default_factory=dict)
    _assigned: dict[int, Sequence[int]] = field(default_factory=dict)  # by its last ok assign or subscribe
    _subscribed: set[int] = field(default_factory=set)
    _next_index: int = 0  # the expected index of Jepsen's next op

    def convert(self, op: JepsenOp) -> None:
        fields = op.fields
        kind, f, process = name_of(fields.get("type")), name_of(fields.get("f")), fields.get("process")
        if f is None:
            raise self.source.wrong(op.at, f"an op without :f: {shown(dict(fields))}")
        self._count_index(fields.get("index"))
        if not fields.keys() <= FIELDS:
            self.left_out.update(f"field :{name}" for name in sorted(fields.keys() - FIELDS))
        if type(process) is not int:
            self._convert_other(op, f, name_of(process))
        elif not 0 <= process < LIFE:
            raise self.source.wrong(op.at, f":process is {process}, and clients are 0 to {LIFE - 1}")
        elif kind not in TYPES:
            raise self.source.wrong(op.at, f":type is {shown(fields.get('type'))}, "
                                               f"not one of {', '.join(sorted(TYPES))}")
        elif f in QUERIES:
            self.left_out[f"{f} (line)"] += 1
        elif f not in RECORDS and f not in ASSIGNMENTS and f != "crash":
            self.left_out[f"op :{f} (line)"] += 1
            self.missing += 1
        else:
            self.processes.add(process)
            step = self._convert_invocation if kind == "invoke" else self._convert_completion
            step(op, process, str(kind), f)

    def end(self) -> None:
        for f, fault in self.nemesis.add(None):
            self.lines.write(None, NEMESIS, "info", f, {"fault": fault})

    # -- processes other than clients -----------------------------------------------------------------------

    def _convert_other(self, op: JepsenOp, f: str, who: str | None) -> None:
        if who != "nemesis":
            self.left_out[f"process {who or shown(op.fields.get('process'))} (line)"] += 1
            self.missing += f in RECORDS
            return
        time = self._time(op)
        for name, fault in self.nemesis.add(Act(f, time or 0, op.fields.get("value"))):
            self.lines.write(time, NEMESIS, "info", name, {"fault": fault, **self._from(op)})

    # -- clients ------------------------------------------------------------------------------------------

    def _convert_invocation(self, op: JepsenOp, process: int, kind: str, f: str) -> None:
        rest: dict[str, Any] = {}
        sends: list[tuple[int, Any]] = []
        as_f, seeks = f, bool(op.fields.get("seek-to-beginning?"))
        if f in ASSIGNMENTS:
            rest["partitions"] = self._keys(op)
            if seeks and process in self.positioned:
                self._forget(process)
                self.changed["process in another life: it sought the beginning"] += 1
        elif f in RECORDS:
            self.records += 1
            micro = list(self._micro(op))
            sends = [(self.names.partition(mop[1]), mop[2]) for name, mop in micro if name == "send"]
            if sends:
                rest["sends"] = self._sends(sends)
            self.reach.sent.update((partition, self.lines.count) for partition, _ in sends)
            as_f = named_rightly(f, micro)
        number = self.names.process(process)
        self.lines.write(self._time(op), number, kind, as_f, rest | self._from(op))
        self.opened[process] = OpenOp(number, f, as_f, sends, rest.get("partitions", ()), seeks)

    def _convert_completion(self, op: JepsenOp, process: int, kind: str, f: str) -> None:
        invocation = self.opened.pop(process, None)
        number = self.names.process(process) if invocation is None else invocation.process
        converted = ConvertedOp(f, {}, set(), [])
        if f in ASSIGNMENTS:
            partitions: Sequence[int] = (
                self._keys(op) if invocation is None or op.fields.get("value") is not None
                else invocation.partitions)
            converted.rest["partitions"] = partitions
            if kind == "ok":
                self._assigned[process] = partitions
                (self._subscribed.add if f == "subscribe" else self._subscribed.discard)(process)
        elif f in RECORDS:
            converted = self._convert(op, kind, invocation, f)
        else:
            self.reach.finals.pop(number, None)
        rest, time = converted.rest, self._time(op)
        if error := self._error(op.fields.get("error")):
            rest["error"] = error
        self.lines.write(time, number, kind, converted.f, rest | self._from(op))
        for send in rest.get("sends", ()):
            self.reach.sent[send["partition"]] = self.lines.count
            if kind == "ok" and "offset" in send:
                self.reach.acked[send["partition"]] = max(
                    send["offset"], self.reach.acked.get(send["partition"], -1))
            elif kind == "ok":
                self.reach.unplaced[send["value"]] = send["partition"]
        for read in (read for part in (rest.get("reads", ()), *converted.apart) for read in part):
            self.reach.was_read(number, read["partition"], read["offset"])
            self.positioned.setdefault(process, set()).add(read["partition"])
        if kind == "ok" and f in ASSIGNMENTS:  # a possible final read begins, or another move ends it
            self.reach.finals.pop(number, None)
            if invocation is not None and invocation.seeks:
                self.reach.finals[number] = Final(line=self.lines.count, partitions=frozenset(partitions))
        for reads in converted.apart:
            self._poll_apart(time, process, kind, reads)
        if converted.blind and process not in self._subscribed:  # a group member's position may move anyway
            self._forget(process)

    def _poll_apart(self, time: int | None, process: int, kind: str, reads: Reads) -> None:
        """Writes a poll of its own for reads that need not be ordered after earlier ones."""
        self.changed["reads in a poll of their own: their partition was reassigned in the op"] += 1
        if kind == "ok":
            number = self.names.process(process)
            again = {read["partition"] for read in reads}
            assigned = {*self._assigned.get(process, ()), *self.positioned.get(process, ()), *again}
            f = "subscribe" if process in self._subscribed else "assign"
            for keys in (sorted(assigned - again), sorted(assigned)):
                self.lines.write(time, number, "invoke", f, {"partitions": keys})
                self.lines.write(time, number, "ok", f, {"partitions": keys})
        else:
            number = self.names.another(process)
        self.lines.write(time, number, "invoke", "poll", {})
        self.lines.write(time, number, kind, "poll", {"reads": reads})

    def _convert(self, op: JepsenOp, kind: str, invocation: OpenOp | None, f: str) -> ConvertedOp:
        rest: dict[str, Any] = {}
        sends: Sends = []
        reads: Reads = []
        blind: set[int] = set()
        micro = list(self._micro(op, or_none=True))
        for name, mop in micro:
            if name == "send":
                sends.append(self._sent(mop, invocation, len(sends)))
            else:
                reads += self._read(op, mop, blind)
        if blind:
            kept = [read for read in reads if read["partition"] not in blind]
            self.left_out["read of a partition of which one had no offset"] += len(reads) - len(kept)
            reads = kept
            self.reach.blind |= blind
        if invocation is not None and invocation.jepsen_f == f:
            sends, f = sends or self._sends(invocation.sends), invocation.f
        else:
            f = named_rightly(f, micro)
        reads, apart = split_reads(reads, self._reassigned(op))
        if sends:
            rest["sends"] = sends
        if reads or (f == "poll" and kind == "ok"):
            rest["reads"] = reads
        return ConvertedOp(f, rest, blind, apart)

    def _micro(self, op: JepsenOp, *, or_none: bool = False) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yields each micro-op with its name: [:send key value], [:poll] or [:poll {key pairs}]."""
        value = op.fields.get("value")
        if value is None and or_none:
            return
        for mop in value if isinstance(value, SEQUENCE) else (value,):
            name = name_of(mop[0]) if isinstance(mop, SEQUENCE) and mop else None
            if name not in ("send", "poll") or not _SIZES[name][0] <= len(mop) <= _SIZES[name][1]:
                raise self.source.wrong(op.at, f"{shown(mop)} is no micro-op of jepsen.tests.kafka: "
                                                   "those are [:send key value] and [:poll]")
            yield name, mop

    def _sent(self, mop: Sequence[Any], invocation: OpenOp | None, place: int) -> dict[str, int]:
        """The send of a completion's micro-send: `[offset value]`, or the value alone."""
        partition, content = self.names.partition(mop[1]), mop[2]
        value, offset = content, None
        asked = invocation.sends[place:place + 1] if invocation is not None else ()
        if isinstance(content, SEQUENCE) and len(content) == 2 and not (asked and asked[0][1] == content):
            offset, value = content
        send = {"partition": partition, "value": self._value(partition, value)}
        if offset is not None:
            if _is_below(offset, _INT64):
                send["offset"] = offset
            else:
                self.left_out["invalid offset of a send"] += 1
        return send

    def _read(self, op: JepsenOp, mop: Sequence[Any], blind: set[int]) -> Iterator[dict[str, int]]:
        """Yields the reads of a micro-poll; adds partitions with a read without offset to `blind`."""
        found = mop[1] if len(mop) > 1 and mop[1] is not None else {}
        if not isinstance(found, dict):
            raise self.source.wrong(op.at, f"a poll brings {{key [[offset value]]}}, not {shown(found)}")
        for key, pairs in found.items():
            partition = self.names.partition(key)
            if not isinstance(pairs, (*SEQUENCE, NoneType)):
                raise self.source.wrong(op.at, f"a poll brings [[offset value]], not {shown(pairs)}")
            for pair in pairs or ():
                if not isinstance(pair, SEQUENCE) or len(pair) != 2:
                    raise self.source.wrong(op.at, f"a poll brings [offset value], not {shown(pair)}")
                offset, value = pair
                number = self.names.value(partition, value, new=value is not None)
                if not _is_below(offset, _INT64):
                    self.left_out["read without an offset"] += 1
                    blind.add(partition)
                elif number is None:
                    self.left_out["read of nil, which was not sent"] += 1
                else:
                    yield {"partition": partition, "offset": offset, "value": number}

    def _reassigned(self, op: JepsenOp) -> set[int] | None:
        """The partitions that were reassigned during the op; None: unknown, any may have been."""
        found: set[int] = set()
        log = op.fields.get("rebalance-log") or ()
        for event in log if isinstance(log, SEQUENCE) else (log,):
            keys = _get(event, "keys")
            if not isinstance(keys, (*SEQUENCE, frozenset)):
                return None
            found.update(self._partitions(keys))
        return found

    def _keys(self, op: JepsenOp) -> list[int]:
        value = op.fields.get("value")
        if not isinstance(value, (*SEQUENCE, frozenset, NoneType)):
            raise self.source.wrong(op.at, f":value names no keys: {shown(value)}")
        return sorted(set(self._partitions(value or ())))

    def _partitions(self, keys: Iterable[object]) -> Iterator[int]:
        """The partitions that these keys name, without using them; of a set sorted, for the same numbers."""
        ordered = sorted(keys, key=text_of) if isinstance(keys, frozenset) else keys
        return (self.names.partition(key, used=False) for key in ordered)

    # -- fields -------------------------------------------------------------------------------------

    def _sends(self, sends: Iterable[tuple[int, object]]) -> Sends:
        return [{"partition": partition, "value": self._value(partition, value)}
                for partition, value in sends]

    def _value(self, partition: int, value: object) -> int:
        number = self.names.value(partition, value)
        assert number is not None, f"no number for {value!r}"
        return number

    def _time(self, op: JepsenOp) -> int | None:
        time = op.fields.get("time")
        if _is_below(time, _INT64):
            return time
        self.changed["invalid time: replaced by that of the line before"] += 1
        return None

    def _from(self, op: JepsenOp) -> dict[str, int]:
        """Jepsen's index, if it differs from ours."""
        index = op.fields.get("index")
        return {"jepsen": index} if _is_below(index, _FAR) and index != self.lines.count else {}

    def _error(self, error: object) -> str | None:
        """The error as one word: the first of Jepsen's, by Kafka's name if there is one."""
        if error is None:
            return None
        said = _get(error, "type") if isinstance(error, dict) else error
        name = name_of(said[0]) if isinstance(said, SEQUENCE) and said else name_of(said)
        if said is not error or not isinstance(said, str | Keyword):
            self.left_out["text of an error"] += 1
        return ERRORS.get(name, name.upper().replace("-", "_")) if name else "UNKNOWN"

    def _count_index(self, index: object) -> None:
        """Counts an op's index; a gap means that ops are missing in the file."""
        if not _is_below(index, _FAR):
            if index is not None:
                self.changed["invalid index"] += 1
            return
        if index > self._next_index:
            self.left_out["op missing in the file (by its :index)"] += index - self._next_index
            self.missing += index - self._next_index
        elif index < self._next_index:
            self.changed["index that is not above the one before"] += 1
        self._next_index = max(self._next_index, index + 1)

    def _forget(self, process: int) -> None:
        self.names.new_life(process)
        self.positioned.pop(process, None)


def named_rightly(f: str, micro: Iterable[tuple[str, object]]) -> str:
    """What an op with these micro-ops is called in format 1."""
    names = {name for name, _ in micro}
    return f if names == {f} or (f == "poll" and not names) else "txn"


def split_reads(reads: Reads, reassigned: set[int] | None) -> tuple[Reads, list[Reads]]:
    """Splits an op's reads into those of the op, and further parts: if a read of a reassigned partition
    (None: any) does not directly follow the one before, it and the later reads of that partition go into the
    next part."""
    if reassigned is not None and not reassigned:
        return reads, []
    parts: list[Reads] = [[]]
    last: dict[int, int] = {}
    part_of: dict[int, int] = {}
    for read in reads:
        partition, offset = read["partition"], read["offset"]
        moved = reassigned is None or partition in reassigned
        if moved and last.get(partition, offset - 1) != offset - 1:
            part_of[partition] = part_of.get(partition, 0) + 1
            if len(parts) == part_of[partition]:
                parts.append([])
        last[partition] = offset
        parts[part_of.get(partition, 0)].append(read)
    return parts[0], parts[1:]


def _get(form: object, name: str) -> Any:
    """A field of a map, by a keyword or JSON's string."""
    if not isinstance(form, dict):
        return None
    return next((value for key, value in form.items() if name_of(key) == name), None)


def _is_below(number: object, end: int) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < end
