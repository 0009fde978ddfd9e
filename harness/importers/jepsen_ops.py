"""Carries Jepsen's Kafka ops (jepsen.tests.kafka) into format 1, one by one and in their order.

Rules
1. Nothing is invented: an op becomes one line or none. What is left out or changed is counted by kind.
2. What is left out excuses: where the reads of a partition cannot be carried, the process has no position in
   its logs any more (it goes on in another life, jepsen_names.py); where ops are missing that may have sent,
   `lines`   says so, and no check rests on what was not sent.
3. A process that seeks to the beginning goes on in another life too: it may be shown everything again.
4. Of a partition that was reassigned during an op, the op owes no order inside itself. Where it has none,
   each further run of such reads is told in a poll of its own behind it, before which the process has given
   the partition up and has it again. All other partitions keep their order. Where the process cannot go on
   (an info), or its position stays where it was (a fail), another one polls.
5. Jepsen's word is taken for what an outcome is: ok happened, fail certainly did not, info nobody knows.
6. Jepsen infers a lost write from reads alone: an acked record that no poll ever returned, though one
   returned a higher offset. So nothing can be inferred of a record acked above all that was read (`unread`),
   nor in a partition of which something was returned and could not be carried (`blind`).
7. Its tests end with final polls: a process assigns, seeks the beginning and reads until it is through. They
   are final reads of a partition if nothing was sent to it from then on, and they came to the highest offset
   that anybody was told or shown.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeGuard

import orjson

from floodmark.harness.importers.edn import Keyword, text_of
from floodmark.harness.importers.history_writer import HistoryLines
from floodmark.harness.importers.jepsen_file import JepsenFile, Told, shown, word
from floodmark.harness.importers.jepsen_names import LIFE, Names
from floodmark.harness.importers.jepsen_nemesis import Act, Nemesis
from floodmark.harness.op import NEMESIS

TYPES = frozenset({"invoke", "ok", "fail", "info"})
RECORDS = frozenset({"send", "poll", "txn"})
HOLDS = frozenset({"assign", "subscribe"})
LOOKS = frozenset({"debug-topic-partitions"})  # asks about the cluster, sends and reads nothing
FIELDS = frozenset({"index", "time", "process", "type", "f", "value", "error", "rebalance-log",
                    "seek-to-beginning?"})  # fmt: skip
ERRORS = {"timeout": "TIMEOUT", "kafka-timeout": "TIMEOUT", "disconnect": "CONNECTION",
          "connection-refused": "CONNECTION"}  # fmt: skip
SEQUENCE = (tuple, list)
_SIZES = {"send": (3, 3), "poll": (1, 2)}
_INT64 = 1 << 63
_FAR = 1 << 53  # no history has so many ops

Sends = list[dict[str, int]]
Reads = list[dict[str, int]]


@dataclass(slots=True, kw_only=True)
class Final:
    """What a process that sought the beginning has read since."""

    line: int  # of the history, where it had
    partitions: frozenset[int]
    reached: dict[int, int] = field(default_factory=dict)  # the highest offset, by partition


@dataclass(slots=True, kw_only=True)
class Reach:
    """How far the reads of the history went."""

    acked: dict[int, int] = field(default_factory=dict)  # the highest offset that was acked, by partition
    read: dict[int, int] = field(default_factory=dict)  # ... that a poll returned
    unplaced: dict[int, int] = field(default_factory=dict)  # value acked without an offset -> its partition
    blind: set[int] = field(default_factory=set)
    sent: dict[int, int] = field(default_factory=dict)  # the last line about a send, by partition
    finals: dict[int, Final] = field(default_factory=dict)  # by process, as it is numbered

    def was_acked(self, partition: int, offset: int | None, value: int) -> None:
        if offset is None:
            self.unplaced[value] = partition
        elif offset > self.acked.get(partition, -1):
            self.acked[partition] = offset

    def was_read(self, process: int, partition: int, offset: int) -> None:
        if offset > self.read.get(partition, -1):
            self.read[partition] = offset
        if process in self.finals:
            self.was_read_in_the_end(process, partition, offset)

    def was_read_in_the_end(self, process: int, partition: int, offset: int) -> None:
        reached = self.finals[process].reached
        reached[partition] = max(offset, reached.get(partition, -1))

    def unread(self, history: Path) -> list[int]:
        """Partitions with an acked record that may lie above everything that was read."""
        above = {key for key, offset in self.acked.items() if offset > self.read.get(key, -1)}
        return sorted(above | set(self._never_read(history)))

    def final_reads(self) -> tuple[list[int], list[int]]:
        """The processes of the final polls, and the partitions that they read to the end."""
        ends = [(process, partition) for process, final in self.finals.items()
                for partition in final.partitions if self._is_final(final, partition)]
        return sorted({process for process, _ in ends}), sorted({partition for _, partition in ends})

    def _is_final(self, final: Final, partition: int) -> bool:
        end = max(self.acked.get(partition, -1), self.read.get(partition, -1))
        return (partition not in self.blind and final.line > self.sent.get(partition, -1)
                and final.reached.get(partition, -1) >= end)

    def _never_read(self, history: Path) -> Iterable[int]:
        """Of the values whose offset no ack told: the history is read once more, for few have any."""
        left = dict(self.unplaced)
        if left:
            for value in read_values(history):
                left.pop(value, None)
        return left.values()


def read_values(history: Path) -> Iterator[int]:
    """Every value that some poll of the history returned."""
    with history.open("rb") as file:
        for line in file:
            if b'"reads":[{' in line:
                yield from (read["value"] for read in orjson.loads(line)["reads"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """An op without its completion."""

    process: int
    told_f: str
    f: str  # as it was written
    sends: Sends
    values: list[object]  # of the sends, as Jepsen has them
    partitions: list[int]  # of an assign or subscribe
    seeks: bool  # the beginning


class Asked(NamedTuple):
    """An op without its completion, whose values are plain numbers (jepsen_common.py)."""

    process: int  # as it is numbered
    f: bytes
    sends: list[tuple[int, int]]  # partition, and the value as Jepsen has it


class Carried(NamedTuple):
    """What a completion of a send, poll or txn becomes."""

    f: str
    rest: dict[str, Any]  # sends and reads
    blind: set[int]  # partitions of which a read could not be carried
    apart: list[Reads]  # reads that have a poll of their own, one behind the other


@dataclass(slots=True, kw_only=True)
class Carrier:
    """Takes every op of the file and writes what format 1 has for it."""

    source: JepsenFile
    lines: HistoryLines
    names: Names
    nemesis: Nemesis
    left_out: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    missing: int = 0  # ops that may have sent or read, and are not carried or not in the file
    records: int = 0  # sends, polls and txns
    reach: Reach = field(default_factory=Reach)
    processes: set[int] = field(default_factory=set)
    opened: dict[int, "Open | Asked"] = field(default_factory=dict)
    # The partitions of which a process was shown records in this life.
    positioned: dict[int, set[int]] = field(default_factory=dict)
    _holds: dict[int, list[int]] = field(default_factory=dict)  # by its last ok assign or subscribe
    _subscribed: set[int] = field(default_factory=set)
    next_index: int = 0  # the index that Jepsen's next op should have

    def take(self, told: Told) -> None:
        fields = told.fields
        kind, f, process = word(fields.get("type")), word(fields.get("f")), fields.get("process")
        if f is None:
            raise self.source.wrong(told.line, f"an op without :f: {shown(dict(fields))}")
        self.count_index(fields.get("index"))
        if not fields.keys() <= FIELDS:
            self.left_out.update(f"field :{name}" for name in sorted(fields.keys() - FIELDS))
        if type(process) is not int:
            self._other(told, f, word(process))
        elif not 0 <= process < LIFE:
            raise self.source.wrong(told.line, f":process is {process}, and clients are 0 to {LIFE - 1}")
        elif kind not in TYPES:
            raise self.source.wrong(told.line, f":type is {shown(fields.get('type'))}, "
                                               f"not one of {', '.join(sorted(TYPES))}")
        elif f in LOOKS:
            self.left_out[f"{f} (line)"] += 1
        elif f not in RECORDS and f not in HOLDS and f != "crash":
            self.left_out[f"op :{f} (line)"] += 1
            self.missing += 1
        else:
            self.processes.add(process)
            step = self._invoked if kind == "invoke" else self._completed
            step(told, process, str(kind), f)

    def end(self) -> None:
        """The history ends here."""
        for f, fault in self.nemesis.end():
            self._struck(None, None, f, fault)

    # -- who is no client ---------------------------------------------------------------------------------

    def _other(self, told: Told, f: str, who: str | None) -> None:
        if who != "nemesis":
            self.left_out[f"process {who or shown(told.fields.get('process'))} (line)"] += 1
            self.missing += f in RECORDS
            return
        time = self._time(told)
        for name, fault in self.nemesis.take(Act(f=f, time=time or 0, value=told.fields.get("value"))):
            self._struck(told, time, name, fault)

    def _struck(self, told: Told | None, time: int | None, f: str, fault: dict[str, Any]) -> None:
        self.lines.write(time, NEMESIS, "info", f, {"fault": fault, **self._from(told)})

    # -- clients ------------------------------------------------------------------------------------------

    def _invoked(self, told: Told, process: int, kind: str, f: str) -> None:
        rest: dict[str, Any] = {}
        sends: Sends = []
        values: list[object] = []
        partitions: list[int] = []
        micro: list[tuple[str, Sequence[Any]]] = []
        if f in HOLDS:
            rest["partitions"] = partitions = self._keys(told)
            if told.fields.get("seek-to-beginning?") and process in self.positioned:
                self._forget(process)
                self.changed["process in another life: it sought the beginning"] += 1
        elif f in RECORDS:
            self.records += 1
            micro = list(self._micro(told))
            for name, mop in micro:
                if name == "send":
                    partition = self.names.partition(mop[1])
                    values.append(mop[2])
                    sends.append({"partition": partition, "value": self._value(partition, mop[2])})
                    self.reach.sent[partition] = self.lines.count
            if sends:
                rest["sends"] = sends
        as_f = f if f not in RECORDS or is_what_it_says(f, {name for name, _ in micro}) else "txn"
        number = self.names.process(process)
        self.lines.write(self._time(told), number, kind, as_f, rest | self._from(told))
        self.opened[process] = Open(
            process=number, told_f=f, f=as_f, sends=sends, values=values, partitions=partitions,
            seeks=bool(told.fields.get("seek-to-beginning?")))

    def _completed(self, told: Told, process: int, kind: str, f: str) -> None:
        asked = self.opened.pop(process, None)
        if isinstance(asked, Asked):
            asked = self._spelt_out(asked)
        number = self.names.process(process) if asked is None else asked.process
        carried = Carried(f, {}, set(), [])
        if f in HOLDS:
            asked_for = asked.partitions if asked is not None and told.fields.get("value") is None else None
            carried.rest["partitions"] = self._keys(told) if asked_for is None else asked_for
            self._moved(process, kind, f, carried.rest["partitions"])
        elif f in RECORDS:
            carried = self._carried(told, kind, asked, f)
        else:
            self.reach.finals.pop(number, None)
        rest, time = carried.rest, self._time(told)
        if error := self._error(told.fields.get("error")):
            rest["error"] = error
        self.lines.write(time, number, kind, carried.f, rest | self._from(told))
        self._note(number, kind, rest, carried.apart)
        if rest.get("reads"):
            self.positioned.setdefault(process, set()).update(read["partition"] for read in rest["reads"])
        if kind == "ok" and f in HOLDS:
            self._seek(number, rest["partitions"], seeks=asked is not None and asked.seeks)
        for reads in carried.apart:
            self._poll_apart(time, process, kind, reads)
        if carried.blind and process not in self._subscribed:  # whose position may move anyway
            self._forget(process)

    def _spelt_out(self, asked: Asked) -> Open:
        sends = [{"partition": partition, "value": self._value(partition, value)}
                 for partition, value in asked.sends]
        f = asked.f.decode()
        return Open(process=asked.process, told_f=f, f=f, sends=sends,
                    values=[value for _, value in asked.sends], partitions=[], seeks=False)

    def _note(self, number: int, kind: str, rest: Mapping[str, Any], apart: list[Reads]) -> None:
        """How far this went."""
        for send in rest.get("sends", ()):
            self.reach.sent[send["partition"]] = self.lines.count
            if kind == "ok":
                self.reach.was_acked(send["partition"], send.get("offset"), send["value"])
        for reads in (rest.get("reads", ()), *apart):
            for read in reads:
                self.reach.was_read(number, read["partition"], read["offset"])

    def _seek(self, number: int, partitions: Iterable[int], *, seeks: bool) -> None:
        """Who has sought the beginning may be about to read to the end; who has moved otherwise is not."""
        self.reach.finals.pop(number, None)
        if seeks:
            final = Final(line=self.lines.count, partitions=frozenset(partitions))
            self.reach.finals[number] = final

    def _poll_apart(self, time: int | None, process: int, kind: str, reads: Reads) -> None:
        """A poll of its own for these reads, which owe the ones before no order."""
        self.changed["reads in a poll of their own: their partition was reassigned in the op"] += 1
        if kind == "ok":
            number = self.names.process(process)
            again = {read["partition"] for read in reads}
            holds = {*self._holds.get(process, ()), *self.positioned.get(process, ()), *again}
            f = "subscribe" if process in self._subscribed else "assign"
            for keys in (sorted(holds - again), sorted(holds)):
                self.lines.write(time, number, "invoke", f, {"partitions": keys})
                self.lines.write(time, number, "ok", f, {"partitions": keys})
        else:
            number = self.names.another(process)
        self.lines.write(time, number, "invoke", "poll", {})
        self.lines.write(time, number, kind, "poll", {"reads": reads})

    def _carried(self, told: Told, kind: str, asked: Open | None, f: str) -> Carried:
        rest: dict[str, Any] = {}
        sends: Sends = []
        reads: Reads = []
        blind: set[int] = set()
        micro = list(self._micro(told, or_none=True))
        for name, mop in micro:
            if name == "send":
                sends.append(self._sent(mop, asked, len(sends)))
            else:
                reads += self._read(told, mop, blind)
        if blind:
            kept = [read for read in reads if read["partition"] not in blind]
            self.left_out["read of a partition of which one had no offset"] += len(reads) - len(kept)
            reads = kept
            self.reach.blind |= blind
        if asked is not None and asked.told_f == f:
            sends, f = sends or asked.sends, asked.f
        elif not is_what_it_says(f, {name for name, _ in micro}):
            f = "txn"
        reads, apart = in_step(reads, self._reassigned(told))
        if sends:
            rest["sends"] = sends
        if reads or (f == "poll" and kind == "ok"):
            rest["reads"] = reads
        return Carried(f, rest, blind, apart)

    def _micro(self, told: Told, *, or_none: bool = False) -> Iterator[tuple[str, Sequence[Any]]]:
        """Each micro-op with its name, as [:send key value] and [:poll] or [:poll {key pairs}]."""
        value = told.fields.get("value")
        if value is None and or_none:
            return
        for mop in value if isinstance(value, SEQUENCE) else (value,):
            name = word(mop[0]) if isinstance(mop, SEQUENCE) and mop else None
            if name not in ("send", "poll") or not _SIZES[name][0] <= len(mop) <= _SIZES[name][1]:
                raise self.source.wrong(told.line, f"{shown(mop)} is no micro-op of jepsen.tests.kafka: "
                                                   "those are [:send key value] and [:poll]")
            yield name, mop

    def _sent(self, mop: Sequence[Any], asked: Open | None, place: int) -> dict[str, int]:
        """A micro-send of a completion: `[offset value]`, or the value alone."""
        partition, told = self.names.partition(mop[1]), mop[2]
        value, offset = told, None
        if isinstance(told, SEQUENCE) and len(told) == 2 and not self._was_asked(told, asked, place):
            offset, value = told
        send = {"partition": partition, "value": self._value(partition, value)}
        if offset is not None:
            if _is_offset(offset):
                send["offset"] = offset
            else:
                self.left_out["offset of a send that is none"] += 1
        return send

    def _was_asked(self, told: object, asked: Open | None, place: int) -> bool:
        """Whether this pair is the value itself, as it was to be sent."""
        return asked is not None and place < len(asked.values) and bool(told == asked.values[place])

    def _read(self, told: Told, mop: Sequence[Any], blind: set[int]) -> Iterator[dict[str, int]]:
        """The reads of a micro-poll; the partitions of which one had no offset are put into `blind`."""
        found = mop[1] if len(mop) > 1 and mop[1] is not None else {}
        if not isinstance(found, dict):
            raise self.source.wrong(told.line, f"a poll brings {{key [[offset value]]}}, not {shown(found)}")
        for key, pairs in found.items():
            partition = self.names.partition(key)
            if not isinstance(pairs, (*SEQUENCE, NoneType)):
                raise self.source.wrong(told.line, f"a poll brings [[offset value]], not {shown(pairs)}")
            for pair in pairs or ():
                if not isinstance(pair, SEQUENCE) or len(pair) != 2:
                    raise self.source.wrong(told.line, f"a poll brings [offset value], not {shown(pair)}")
                offset, value = pair
                number = self.names.value(partition, value, new=value is not None)
                if not _is_offset(offset):
                    self.left_out["read without an offset"] += 1
                    blind.add(partition)
                elif number is None:
                    self.left_out["read of nil, which nobody sent"] += 1
                else:
                    yield {"partition": partition, "offset": offset, "value": number}

    def _reassigned(self, told: Told) -> set[int] | None:
        """The partitions that came or went during the op; None: any may have."""
        found: set[int] = set()
        log = told.fields.get("rebalance-log") or ()
        for event in log if isinstance(log, SEQUENCE) else (log,):
            keys = _get(event, "keys")
            if not isinstance(keys, (*SEQUENCE, frozenset)):
                return None
            found.update(map(self.names.partition, in_order(keys)))
        return found

    def _keys(self, told: Told) -> list[int]:
        value = told.fields.get("value")
        if not isinstance(value, (*SEQUENCE, frozenset, NoneType)):
            raise self.source.wrong(told.line, f":value names no keys: {shown(value)}")
        return sorted(map(self.names.partition, in_order(value or ())))

    # -- small things -------------------------------------------------------------------------------------

    def _value(self, partition: int, value: object) -> int:
        number = self.names.value(partition, value)
        assert number is not None, f"no number for {value!r}"
        return number

    def _time(self, told: Told) -> int | None:
        time = told.fields.get("time")
        if type(time) is int and 0 <= time < _INT64:
            return time
        self.changed["time that is none: that of the line before"] += 1
        return None

    def _from(self, told: Told | None) -> dict[str, int]:
        """Jepsen's index, where it is another than ours."""
        index = None if told is None else told.fields.get("index")
        return {"jepsen": index} if _is_index(index) and index != self.lines.count else {}

    def _error(self, error: object) -> str | None:
        """The error by one word: the first of Jepsen's, as Kafka writes it where Kafka has it."""
        if error is None:
            return None
        said = _get(error, "type") if isinstance(error, dict) else error
        name = word(said[0]) if isinstance(said, SEQUENCE) and said else word(said)
        if said is not error or not isinstance(said, str | Keyword):
            self.left_out["words of an error"] += 1
        return ERRORS.get(name, name.upper().replace("-", "_")) if name else "UNKNOWN"

    def count_index(self, index: object) -> None:
        """An index that leaps tells of ops that are not in the file."""
        if not _is_index(index):
            if index is not None:
                self.changed["index that is none"] += 1
            return
        if index > self.next_index:
            self.left_out["op that the file lacks (its :index)"] += index - self.next_index
            self.missing += index - self.next_index
        elif index < self.next_index:
            self.changed["index that is not above the one before"] += 1
        self.next_index = max(self.next_index, index + 1)

    def _moved(self, process: int, kind: str, f: str, partitions: list[int]) -> None:
        if kind != "ok":
            return
        self._holds[process] = partitions
        if f == "subscribe":
            self._subscribed.add(process)
        else:
            self._subscribed.discard(process)

    def _forget(self, process: int) -> None:
        self.names.new_life(process)
        self.positioned.pop(process, None)


def is_what_it_says(f: str, names: set[str]) -> bool:
    """Whether an op of these micro-ops may be called so in format 1."""
    return f == "txn" or names == {f} or (f == "poll" and not names)


def in_step(reads: Reads, reassigned: set[int] | None) -> tuple[Reads, list[Reads]]:
    """The reads of an op, and those that are apart: where a read of a partition that was reassigned (None:
    any) is not right behind the one before, it and what follows of that partition come in the next part."""
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
    """A field of a map, by a keyword or by JSON's string."""
    if not isinstance(form, dict):
        return None
    return next((value for key, value in form.items() if word(key) == name), None)


def in_order(keys: Iterable[object]) -> Iterable[object]:
    """A set's keys by their text: the same numbers whenever it is read."""
    return sorted(keys, key=text_of) if isinstance(keys, frozenset) else keys


def _is_index(index: object) -> TypeGuard[int]:
    return type(index) is int and 0 <= index < _FAR


def _is_offset(offset: object) -> bool:
    return type(offset) is int and 0 <= offset < _INT64
