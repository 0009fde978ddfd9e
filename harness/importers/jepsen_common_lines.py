"""Carries the common lines of a Jepsen history quickly: one pattern cuts a line of EDN, and format 1's line
is put together from its bytes.

Rules
1. What is carried here is what jepsen_ops.py would have made of it, byte by byte (tests hold the two to each
   other); whatever is not of the common shape, or finds its process in another state, is left to it.
2. Common is: the six fields of an op in any order that the file keeps to, a client's number, a send, poll or
   txn of plain numbers.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from floodmark.harness.importers.jepsen_ops import Asked, Carrier

ORDER = ("index", "time", "type", "process", "f", "value")  # as Jepsen prints an op today
LOOKED_AT = 40  # lines from which the order of the fields is learnt
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

# Of each micro-op: key and value; or key, offset and value; or what a poll found.
Parts = Sequence[tuple[bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]]


def pattern_of(order: Sequence[str]) -> re.Pattern[bytes]:
    """A whole line with the fields in this order."""
    fields = rb",? ".join(rb":" + name.encode() + rb" " + _FIELDS[name] for name in order)
    return re.compile(rb"^(?:#jepsen\.history\.Op ?)?\{" + fields + rb"\}\n", re.MULTILINE)


def order_in(text: bytes) -> tuple[str, ...]:
    """The order that most of the first lines have their fields in."""
    seen = Counter(
        tuple(sorted(ORDER, key=lambda name: line.find(b":%b " % name.encode())))
        for line in text.split(b"\n", LOOKED_AT)[:LOOKED_AT])
    return max(seen, key=lambda order: seen[order])


class Place(NamedTuple):
    """A key of Jepsen's as a partition, and what its records begin with."""

    partition: int
    send: bytes  # up to the value
    read: bytes  # up to the offset
    value: bytes  # before a value of twelve digits; nothing for partition 0, whose values stay as they are


class CommonLines:
    """Implements jepsen_read.Common for one import."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier, self._lines, self._reach = carrier, carrier.lines, carrier.reach
        self._places: dict[bytes, Place] = {}
        self._order: tuple[str, ...] = ORDER
        self.pattern = pattern_of(ORDER)

    def look(self, text: bytes) -> None:
        """Learns from the text in which order the fields stand."""
        order = order_in(text)
        if order != self._order:
            self._order, self.pattern = order, pattern_of(order)

    def take(self, line: re.Match[bytes]) -> bool:
        """Carries the line, if it is one for here; else nothing is changed."""
        index_told, time, kind, process_told, f, *part, many = line.group(*_GROUPS)
        parts: Parts = (part,) if many is None else _PARTS.findall(many)  # type: ignore[assignment]
        if f != b"txn":
            for one in parts:
                if (f == b"send") != bool(one[0]):
                    return False
        process, index, carrier, lines = int(process_told), int(index_told), self._carrier, self._lines
        shown: list[tuple[int, int]] = []
        if kind == b"invoke":
            invoked = self._asked(parts)
            if invoked is None:
                return False
            rest, sends = invoked
            carrier.records += 1
            carrier.processes.add(process)
            number = carrier.names.process(process)
            carrier.opened[process] = Asked(number, f, sends)
        else:
            asked = carrier.opened.get(process)
            if not isinstance(asked, Asked) or asked.f != f:
                return False
            answer = self._answered(asked, kind, f, parts, shown)
            if answer is None:
                return False
            rest = answer
            del carrier.opened[process]
            number = asked.process
        if index == carrier.next_index:
            carrier.next_index += 1
        else:
            carrier.count_index(index)
        if index != lines.count:
            rest += b',"jepsen":%d' % index
        lines.append(int(time), b',"process":%d,"type":"%b","f":"%b"%b}\n' % (number, kind, f, rest))
        if shown:
            self._note(number, process, shown)
        return True

    # -- ops ------------------------------------------------------------------------------------------------

    def _asked(self, parts: Parts) -> tuple[bytes, list[tuple[int, int]]] | None:
        """What an invocation's line ends with, and its sends; None: it is no common one."""
        sends: list[tuple[int, int]] = []
        told: list[bytes] = []
        for key, value, offset, _, found in parts:
            if offset or found:
                return None
            if key:
                assert value is not None
                place = self._places.get(key) or self._place(key)
                sends.append((place.partition, int(value)))
                told.append(b"%b%b}" % (place.send, value_at(place, value)))
        for partition, _ in sends:
            self._reach.sent[partition] = self._lines.count
        return b',"sends":[%b]' % b",".join(told) if told else b"", sends

    def _answered(
        self, asked: Asked, kind: bytes, f: bytes, parts: Parts, shown: list[tuple[int, int]]
    ) -> bytes | None:
        """What a completion's line ends with; in `shown` each partition read, with the highest offset."""
        sends: list[tuple[int, int | None, bytes]] = []
        told: list[bytes] = []
        reads: list[bytes] = []
        for key, bare, offset, value, found in parts:
            if key:
                place = self._places.get(key) or self._place(key)
                numbered = value_at(place, bare or value or b"")
                sends.append((place.partition, int(offset) if offset else None, numbered))
                told.append(b'%b%b,"offset":%b}' % (place.send, numbered, offset) if offset
                            else b"%b%b}" % (place.send, numbered))
            elif found and not self._found(found, reads, shown):
                return None
        if asked.sends and not sends:
            return None
        reach, after = self._reach, self._lines.count + 1
        for partition, at, numbered in sends:
            reach.sent[partition] = after
            if kind == b"ok":
                reach.was_acked(partition, at, int(numbered))
        rest = b',"sends":[%b]' % b",".join(told) if told else b""
        if reads or (f == b"poll" and kind == b"ok"):
            rest += b',"reads":[%b]' % b",".join(reads)
        return rest

    def _note(self, number: int, process: int, shown: list[tuple[int, int]]) -> None:
        """As Carrier notes it, of each partition the highest offset only."""
        positioned = self._carrier.positioned.setdefault(process, set())
        for partition, offset in shown:
            self._reach.was_read(number, partition, offset)
            positioned.add(partition)

    def _found(self, found: bytes, reads: list[bytes], shown: list[tuple[int, int]]) -> bool:
        """What a poll brought, `2 [[5 1] [6 2]], 7 [[0 1]]`; False where a key stands twice."""
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
                told = pairs.replace(b"] [", b"}," + place.read).replace(b" ", before)
                reads.append(b"%b%b}" % (place.read, told))
            else:
                reads += [b'%b%b,"value":%b}' % (place.read, offset, value_at(place, value))
                          for offset, value in zip(numbers[::2], values, strict=True)]
        return len(keys) == len(parts)

    def _place(self, key: bytes) -> Place:
        partition = self._carrier.names.partition(int(key))
        place = Place(
            partition=partition,
            send=b'{"partition":%d,"value":' % partition,
            read=b'{"partition":%d,"offset":' % partition,
            value=b"%d" % partition if partition else b"",
        )
        self._places[key] = place
        return place


def value_at(place: Place, value: bytes) -> bytes:
    """The number that jepsen_names.py gives a value: partition * 10^12 + value."""
    return place.value + value.rjust(12, b"0") if place.value else value
