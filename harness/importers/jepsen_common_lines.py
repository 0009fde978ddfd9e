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

from floodmark.harness.importers.jepsen_file import EVERY
from floodmark.harness.importers.jepsen_ops import Converter, OpenOp

ORDER = ("index", "time", "type", "process", "f", "value")  # as Jepsen prints an op today
SAMPLE_BYTES = 1 << 13  # of the file, from which the order of the fields is learned
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
Sent = tuple[int, int | None, int]  # partition, offset, value
F = {b"send": "send", b"poll": "poll", b"txn": "txn"}


def pattern_of(order: Sequence[str]) -> re.Pattern[bytes]:
    """The pattern of a complete line with the fields in this order."""
    fields = rb",? ".join(rb":" + name.encode() + rb" " + _FIELDS[name] for name in order)
    return re.compile(rb"(?:#jepsen\.history\.Op ?)?\{" + fields + rb"\}\n")


def order_in(text: bytes) -> tuple[str, ...]:
    """The most frequent order of the fields in these lines."""
    seen = Counter(tuple(sorted(ORDER, key=lambda name: line.find(b":%b " % name.encode())))
                   for line in text.split(b"\n"))
    return max(seen, key=lambda order: seen[order])


class Place(NamedTuple):
    """The partition of one of Jepsen's keys, and the text that its records begin with."""

    partition: int
    send: bytes  # up to the value
    read: bytes  # up to the offset
    value: bytes  # before a value of twelve digits; empty for partition 0, whose values are unchanged

    def value_at(self, value: bytes) -> bytes:
        """The number of a value as in jepsen_names.py: partition * 10^12 + value."""
        return self.value + value.rjust(12, b"0") if self.value else value


class CommonLines:
    """Converts the common lines of one import."""

    def __init__(self, converter: Converter) -> None:
        self._converter, self._lines = converter, converter.lines
        self._places: dict[bytes, Place] = {}
        self.pattern = pattern_of(order_in(converter.source.text[:SAMPLE_BYTES]))

    def convert_from(self, at: int) -> int:
        """Converts the common lines from this byte of the file on, and returns where the first other line
        begins; not too many at once."""
        source = self._converter.source
        text, match, convert = source.text, self.pattern.match, self.convert
        for _ in range(EVERY):
            line = match(text, at)
            if line is None or not convert(line):
                return at
            at = line.end()
        source.on_read(at)
        return at

    def convert(self, line: re.Match[bytes]) -> bool:
        """Converts the line and returns True, if it is common; else changes nothing."""
        index_text, time, kind, process_text, f, *part, many = line.group(*_GROUPS)
        parts: Parts = (part,) if many is None else _PARTS.findall(many)  # type: ignore[assignment]
        if f != b"txn":
            for one in parts:
                if (f == b"send") != bool(one[0]):
                    return False
        process, index, converter = int(process_text), int(index_text), self._converter
        sends: list[Sent] = []
        shown: list[tuple[int, int]] = []  # of each partition read, with its highest offset
        if kind == b"invoke":
            rest = self._invocation(process, f, parts)
        else:
            invoked = converter.opened.get(process)
            if invoked is None or not invoked.is_common or invoked.f != F[f]:
                return False
            rest = self._completion(parts, sends, shown, has_polled=f == b"poll" and kind == b"ok")
            if invoked.sends and not sends:
                return False
        if rest is None:
            return False
        number = converter.opened[process].process
        if index == converter.next_index:
            converter.next_index += 1
        else:
            converter.count_index(index)
        if index != self._lines.count:
            rest += b',"jepsen":%d' % index
        self._lines.append(int(time), b',"process":%d,"type":"%b","f":"%b"%b}\n' % (number, kind, f, rest))
        if kind != b"invoke":
            del converter.opened[process]
            for send in sends:
                converter.note_send(*send, ok=kind == b"ok")
            if shown:
                converter.note_reads(number, process, shown)
        return True

    # -- ops ------------------------------------------------------------------------------------------------

    def _invocation(self, process: int, f: bytes, parts: Parts) -> bytes | None:
        """The end of an invocation's line; None: it is not common."""
        sends: list[tuple[int, int]] = []
        texts: list[bytes] = []
        for key, value, offset, _, found in parts:
            if offset or found:
                return None
            if key:
                assert value is not None
                place = self._places.get(key) or self._place(key)
                sends.append((place.partition, int(value)))
                texts.append(b"%b%b}" % (place.send, place.value_at(value)))
        converter = self._converter
        for partition, _ in sends:
            converter.reach.sent[partition] = self._lines.count
        converter.records += 1
        converter.processes.add(process)
        number = converter.names.process(process)
        converter.opened[process] = OpenOp(number, F[f], F[f], sends, is_common=True)
        return b',"sends":[%b]' % b",".join(texts) if texts else b""

    def _completion(self, parts: Parts, sends: list[Sent], shown: list[tuple[int, int]], *,
                    has_polled: bool) -> bytes | None:
        """The end of a completion's line; None: it is not common. Adds to `sends` and `shown`."""
        texts: list[bytes] = []
        reads: list[bytes] = []
        for key, bare, offset, value, found in parts:
            if key:
                place = self._places.get(key) or self._place(key)
                number = place.value_at(bare or value or b"")
                sends.append((place.partition, int(offset) if offset else None, int(number)))
                texts.append(b'%b%b,"offset":%b}' % (place.send, number, offset) if offset
                             else b"%b%b}" % (place.send, number))
            elif found and not self._found(found, reads, shown):
                return None
        rest = b',"sends":[%b]' % b",".join(texts) if texts else b""
        if reads or has_polled:
            rest += b',"reads":[%b]' % b",".join(reads)
        return rest

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
                reads += [b'%b%b,"value":%b}' % (place.read, offset, place.value_at(value))
                          for offset, value in zip(numbers[::2], values, strict=True)]
        return len(keys) == len(parts)

    def _place(self, key: bytes) -> Place:
        partition = self._converter.names.partition(int(key))
        place = self._places[key] = Place(
            partition=partition,
            send=b'{"partition":%d,"value":' % partition,
            read=b'{"partition":%d,"offset":' % partition,
            value=b"%d" % partition if partition else b"")
        return place

