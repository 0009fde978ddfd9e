"""Converts the most common lines of a Jepsen history fast: a pattern splits a line of EDN, and the line of
format 1 is built from its bytes.

Rules
1. The result is byte by byte that of jepsen_ops.py (tests compare the two); lines of another shape, or of a
   process in another state, are left to it.
2. A common line has the six fields of an op, in any order that is the same for the file, a client's number,
   and a send, poll or txn with plain numbers.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from floodmark.harness.importers.jepsen_ops import Converter, OpenCommonOp

ORDER = ("index", "time", "type", "process", "f", "value")  # as Jepsen prints an op today
SAMPLE_LINES = 40  # lines from which the order of the fields is learned
_N = rb"(?:0|[1-9][0-9]{0,%d})"
_KEY, _VALUE, _OFFSET = _N % 5, _N % 11, _N % 17
_PAIR = rb"\[" + _OFFSET + rb" " + _VALUE + rb"\]"
_PAIRS = _KEY + rb" \[" + _PAIR + rb"(?: " + _PAIR + rb")*+\]"
_FOUND = rb"(?:" + _PAIRS + rb"(?:, " + _PAIRS + rb")*+)?+"
_MOP = (rb"\[:(?:send " + _KEY + rb" (?:" + _VALUE + rb"|" + _PAIR + rb")|poll(?: \{" + _FOUND + rb"\})?+)\]")
_FIELDS = {
    "index": rb"(?P<index>" + _N % 14 + rb")",
    "time": rb"(?P<time>" + _N % 17 + rb")",
    "type": rb":(?P<type>invoke|ok|fail|info)",
    "process": rb"(?P<process>" + _N % 8 + rb")",
    "f": rb":(?P<f>send|poll|txn)",
    "value": (
        rb"\[(?:\[:(?:send (?P<key>" + _KEY + rb") (?:(?P<bare>" + _VALUE + rb")|\[(?P<offset>" + _OFFSET
        + rb") (?P<sent>" + _VALUE + rb")\])|(?P<poll>poll)(?: \{(?P<found>" + _FOUND + rb")\})?+)\]"
        rb"|(?P<many>" + _MOP + rb"(?: " + _MOP + rb")++))\]"),
}
_GROUPS = (*ORDER[:-1], "key", "bare", "offset", "sent", "found", "many")
_PARTS = re.compile(rb"\[:(?:send ([0-9]+) (?:([0-9]+)|\[([0-9]+) ([0-9]+)\])|poll(?: \{([^}]*)\})?)\]")

# For each micro-op: key and value; or key, offset and value; or what a poll returned.
Parts = Sequence[tuple[bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]]


def pattern_of(order: Sequence[str]) -> re.Pattern[bytes]:
    """The pattern of a complete line with the fields in this order."""
    fields = rb",? ".join(rb":" + name.encode() + rb" " + _FIELDS[name] for name in order)
    return re.compile(rb"^(?:#jepsen\.history\.Op ?)?\{" + fields + rb"\}\n", re.MULTILINE)


def order_in(text: bytes) -> tuple[str, ...]:
    """The most frequent order of the fields in the first lines."""
    seen = Counter(
        tuple(sorted(ORDER, key=lambda name: line.find(b":%b " % name.encode())))
        for line in text.split(b"\n", SAMPLE_LINES)[:SAMPLE_LINES])
    return max(seen, key=lambda order: seen[order])


class Place(NamedTuple):
    """The partition of one of Jepsen's keys, and the text that its records begin with."""

    partition: int
    send: bytes  # up to the value
    read: bytes  # up to the offset
    value: bytes  # before a value of twelve digits; empty for partition 0, whose values are unchanged


class CommonLines:
    """Converts common lines of one import, see jepsen_file.Common."""

    def __init__(self, converter: Converter) -> None:
        self._converter, self._lines, self._reach = converter, converter.lines, converter.reach
        self._places: dict[bytes, Place] = {}
        self._order: tuple[str, ...] = ORDER
        self.pattern = pattern_of(ORDER)

    def learn_order(self, text: bytes) -> None:
        """Learns the order of the fields from the text."""
        order = order_in(text)
        if order != self._order:
            self._order, self.pattern = order, pattern_of(order)

    def convert(self, line: re.Match[bytes]) -> bool:
        """Converts the line and returns True, if it is common; else changes nothing."""
        index_text, time, kind, process_text, f, *part, many = line.group(*_GROUPS)
        parts: Parts = (part,) if many is None else _PARTS.findall(many)  # type: ignore[assignment]
        if f != b"txn":
            for one in parts:
                if (f == b"send") != bool(one[0]):
                    return False
        process, index, converter, lines = int(process_text), int(index_text), self._converter, self._lines
        shown: list[tuple[int, int]] = []
        if kind == b"invoke":
            invoked = self._invocation(parts)
            if invoked is None:
                return False
            rest, sends = invoked
            converter.records += 1
            converter.processes.add(process)
            number = converter.names.process(process)
            converter.opened[process] = OpenCommonOp(number, f, sends)
        else:
            invoked_op = converter.opened.get(process)
            if not isinstance(invoked_op, OpenCommonOp) or invoked_op.f != f:
                return False
            answer = self._completion(invoked_op, kind, f, parts, shown)
            if answer is None:
                return False
            rest = answer
            del converter.opened[process]
            number = invoked_op.process
        if index == converter.next_index:
            converter.next_index += 1
        else:
            converter.count_index(index)
        if index != lines.count:
            rest += b',"jepsen":%d' % index
        lines.append(int(time), b',"process":%d,"type":"%b","f":"%b"%b}\n' % (number, kind, f, rest))
        if shown:
            self._note_reads(number, process, shown)
        return True

    # -- ops ------------------------------------------------------------------------------------------------

    def _invocation(self, parts: Parts) -> tuple[bytes, list[tuple[int, int]]] | None:
        """The end of an invocation's line, and its sends; None: it is not common."""
        sends: list[tuple[int, int]] = []
        parts_written: list[bytes] = []
        for key, value, offset, _, found in parts:
            if offset or found:
                return None
            if key:
                assert value is not None
                place = self._places.get(key) or self._place(key)
                sends.append((place.partition, int(value)))
                parts_written.append(b"%b%b}" % (place.send, value_at(place, value)))
        for partition, _ in sends:
            self._reach.sent[partition] = self._lines.count
        return b',"sends":[%b]' % b",".join(parts_written) if parts_written else b"", sends

    def _completion(
        self, invoked_op: OpenCommonOp, kind: bytes, f: bytes, parts: Parts, shown: list[tuple[int, int]]
    ) -> bytes | None:
        """The end of a completion's line; adds to `shown` each partition read, with its highest offset."""
        sends: list[tuple[int, int | None, bytes]] = []
        parts_written: list[bytes] = []
        reads: list[bytes] = []
        for key, bare, offset, value, found in parts:
            if key:
                place = self._places.get(key) or self._place(key)
                numbered = value_at(place, bare or value or b"")
                sends.append((place.partition, int(offset) if offset else None, numbered))
                parts_written.append(b'%b%b,"offset":%b}' % (place.send, numbered, offset) if offset
                            else b"%b%b}" % (place.send, numbered))
            elif found and not self._found(found, reads, shown):
                return None
        if invoked_op.sends and not sends:
            return None
        reach, after = self._reach, self._lines.count + 1
        for partition, at, numbered in sends:
            reach.sent[partition] = after
            if kind == b"ok":
                reach.was_acked(partition, at, int(numbered))
        rest = b',"sends":[%b]' % b",".join(parts_written) if parts_written else b""
        if reads or (f == b"poll" and kind == b"ok"):
            rest += b',"reads":[%b]' % b",".join(reads)
        return rest

    def _note_reads(self, number: int, process: int, shown: list[tuple[int, int]]) -> None:
        """Notes the reads like Converter, but only the highest offset of each partition."""
        positioned = self._converter.positioned.setdefault(process, set())
        for partition, offset in shown:
            self._reach.was_read(number, partition, offset)
            positioned.add(partition)

    def _found(self, found: bytes, reads: list[bytes], shown: list[tuple[int, int]]) -> bool:
        """Adds a poll's reads, `2 [[5 1] [6 2]], 7 [[0 1]]`; False if a key occurs twice."""
        keys = set()
        parts = found[:-2].split(b"]], ")
        for part in parts:
            key, _, pairs = part.partition(b" [[")
            place = self._places.get(key) or self._place(key)
            keys.add(key)
            numbers = pairs.replace(b"] [", b" ").split(b" ")
            values = numbers[1::2]
            shown.append((place.partition, max(map(int, numbers[::2]))))
            if not place.value or len(set(map(len, values))) == 1:
                before = b',"value":%b' % place.value + (b"0" * (12 - len(values[0])) if place.value else b"")
                parts_written = pairs.replace(b"] [", b"}," + place.read).replace(b" ", before)
                reads.append(b"%b%b}" % (place.read, parts_written))
            else:
                reads += [b'%b%b,"value":%b}' % (place.read, offset, value_at(place, value))
                          for offset, value in zip(numbers[::2], values, strict=True)]
        return len(keys) == len(parts)

    def _place(self, key: bytes) -> Place:
        partition = self._converter.names.partition(int(key))
        place = Place(
            partition=partition,
            send=b'{"partition":%d,"value":' % partition,
            read=b'{"partition":%d,"offset":' % partition,
            value=b"%d" % partition if partition else b"",
        )
        self._places[key] = place
        return place


def value_at(place: Place, value: bytes) -> bytes:
    """The number of a value as in jepsen_names.py: partition * 10^12 + value."""
    return place.value + value.rjust(12, b"0") if place.value else value
