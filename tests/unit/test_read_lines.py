"""Lines of a run's files: which range has them, which are good, and what the judge's driver learns of them.

The judge's field table and the twin agree on odd lines; some odd ones that the twin cannot tell are listed.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twin_folder import (
    ENTRY,
    EVENT,
    OF_ENTRIES,
    OF_EVENTS,
    OF_REPLICAS,
    REPLICA,
    RULINGS,
    Row,
    fields_of,
    fits,
    fits_field_table,
    object_of,
)

from floodmark.checkers.judge.preconditions import preconditions_of
from floodmark.checkers.read import json_lines
from floodmark.checkers.read.facts import HistoryFacts
from floodmark.checkers.read.field_table import HISTORY, REPLICAS, TRACE, Table, dump_of
from floodmark.checkers.read.ranges import Kind, Range, bytes_of
from floodmark.checkers.read.tables import read_bytes

Line = dict[str, Any]


def a_range(
        kind: Kind, place: Path = Path("x.jsonl"), start: int = 0, end: int = 0, number: int = 0) -> Range:
    node = "n1" if kind == "dump" else None
    return Range(run=2, kind=kind, node=node, place=place, start=start, end=end, number=number)


# -- ranges -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [
    b"", b"a", b"\n", b"abc\n", b"ab\n\n\ncdefgh\ni", b"\n\nabc\nd\n" * 3, b"a" * 200_000 + b"\nb\n"])
def test_every_line_is_in_the_range_it_starts_in(tmp_path: Path, data: bytes) -> None:
    place = tmp_path / "x"
    place.write_bytes(data)
    whole = a_range("history", place)
    for step in range(1, len(data) + 2) if len(data) < 100 else (30_000,):
        pieces = [bytes(bytes_of(replace(whole, start=start, end=min(start + step, len(data)))))
                  for start in range(0, len(data), step)]
        assert b"".join(pieces) == data
        assert all(piece.endswith(b"\n") or piece == b"" for piece in pieces[:-1] if data.endswith(b"\n"))


# -- what a line must be ------------------------------------------------------------------------------------

def is_event(row: Row) -> bool:
    """Whether a line of the trace has what its event needs (the table of histories/README.md)."""
    if not fits(row, EVENT, OF_EVENTS):
        return False
    needed = fields_of(row, [] if row.event in RULINGS else [row.node])
    return ((needed is None or fits(row, needed, {}))
            and (row.event != "isr" or (row.leo is None) == (row.hw is None)))


LAWS: dict[Kind, tuple[Table, Callable[[Row], bool]]] = {
    "history": (HISTORY, fits_field_table),
    "dump": (dump_of("n1"),
             lambda row: "value" in row and row.node == "n1" and fits(row, ENTRY, OF_ENTRIES)),
    "replicas": (REPLICAS, lambda row: fits(row, REPLICA, OF_REPLICAS)),
    "trace": (TRACE, is_event),
}
# What replaces a value. GONE: the field is missing.
GONE = "gone"
ODD = (
    GONE, "null", "true", "false", "0", "-0", "1", "-1", "-2", "7", "1.0", "1.5", "1e3", "1E0", "1e400", "01",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "18446744073709551616", "1" * 5000, "NaN", "Infinity", "-Infinity", "'x'", '""', '"7"', '"x"', '"n1"',
    '"leader"', '"ok"', '"info"', '"send"', '"elect"', '"isr"', '"\\ud800"', '"\\u0000"', '"\N{SNOWMAN}"',
    '"\\ud83d\\ude00"', '"\\ude00\\ud83d"', '"\N{GRINNING FACE}"', '"\\u0431\\/\\n"', '"\\x41"', '"\x01"',
    "[]", "[null]", "[1]", "[1,null]", '["n1"]', '["n1",2]', "[[1,2]]", "[[1,2,3]]", "[[1,null]]",
    "[null,[1,2]]", "{}", '{"a":[1]}', '{"value":1}', "[{}]", '[{"partition":0,"value":1,"offset":2}]',
    '[{"partition":0,"value":1}]',
    '[{"partition":-1,"value":1,"offset":2}]', '[{"partition":0,"value":1,"offset":-1}]',
    '[{"partition":0,"value":1,"offset":2},null]', '[{"partition":0,"value":null,"offset":2}]',
    '[{"partition":0,"value":1,"offset":2,"epoch":"x"}]', '[{"partition":0,"offset":2,"value":1.5}]',
    "nonsense", "",
)  # fmt: skip

SENDS = [{"partition": 0, "value": 17, "offset": 5, "epoch": 2}, {"partition": 1, "value": -3}]
READS = [{"partition": 0, "offset": 5, "value": 17, "epoch": 2}, {"partition": 1, "offset": 0, "value": 18}]
OP = {"index": 0, "time": 5, "process": 3}
BY = {"time": -5, "node": "n1", "seq": 0}
STATE = {"partition": 0, "epoch": 1, "leo": 7, "hw": 6}
ISR = {"isr": ["n1", "n2"]}
GOOD: dict[Kind, list[Line]] = {
    "history": [
        {**OP, "type": "invoke", "f": "send", "sends": SENDS},
        {**OP, "type": "ok", "f": "txn", "sends": SENDS, "reads": SENDS[:1], "error": None},
        {**OP, "type": "ok", "f": "poll", "reads": SENDS[:1]},
        {**OP, "type": "ok", "f": "poll", "reads": READS},
        {**OP, "type": "ok", "f": "list_offsets", "offsets": [{"partition": 0, "offset": 9, "epoch": 2}],
         "starts": [{"partition": 0, "offset": 1}]},
        {**OP, "type": "ok", "f": "assign", "partitions": [0, 1]},
        {**OP, "type": "info", "f": "subscribe", "error": "TIMEOUT"},
        {**OP, "type": "fail", "f": "crash"},
        {**OP, "process": -1, "type": "info", "f": "kill", "fault": {"nodes": ["n1"]}},
    ],
    "dump": [
        {"node": "n1", "partition": 0, "offset": 1, "epoch": -1, "value": 4, "crc": 7},
        {"node": "n1", "partition": 0, "offset": 2, "epoch": 0, "value": None, "crc": 7, "crc_ok": False,
         "aborted": True},
    ],
    "replicas": [
        {"node": "n1", **STATE, **ISR, "log_start": 3},
        {"node": "n1", **STATE, **ISR, "log_start": 0, "leader": "n2", "lso": 5, "running": False,
         "epochs": [[0, 0]], "epochs_unreadable": True},
    ],
    "trace": [
        {**BY, "event": "append", **STATE, "role": "leader", "offset": 5, "count": 2, "epochs": [[1, 5]]},
        {**BY, "event": "truncate", **STATE, "from": 9, "to": 7, "why": "recovery"},
        {**BY, "event": "hw", **STATE, "role": "follower"},
        {**BY, "event": "become_leader", **STATE, **ISR, "start": 7},
        {**BY, "event": "become_follower", **STATE, "leader": "n2"},
        {**BY, "event": "fetch", **STATE, "follower": "n2", "offset": 5, "follower_epoch": 1},
        {**BY, "event": "ack", **STATE, **ISR, "offset": 5, "acks": "all"},
        {**BY, "event": "isr_proposed", **STATE, **ISR, "partition_epoch": 3},
        {**BY, "event": "isr", **STATE, **ISR},
        {**BY, "event": "isr", "partition": 0, "epoch": 1, **ISR, "leader": "n1", "partition_epoch": 3},
        {**BY, "event": "elect", "partition": 0, "epoch": 1, **ISR, "leader": "n1", "clean": True},
        {**BY, "event": "register", "broker": "n1", "clean": False},
        {**BY, "event": "fence", "broker": "n1"},
        {**BY, "event": "start", "clean": True},
        {**BY, "event": "start", **STATE, "clean": True},
        {**BY, "event": "checkpoint", "what": "hw", "value": 4},
    ],
}  # fmt: skip


def variants(line: Line) -> Iterator[str]:
    """The line with each of its fields, and each odd field, in turn replaced."""
    text = json.dumps(line)
    others = "sends", "reads", "offsets", "starts", "partitions", "isr", "epochs", "value", "error", "x"
    for name in (*line, *others):
        for odd in ODD:
            if odd == GONE:
                yield json.dumps({key: value for key, value in line.items() if key != name})
            else:
                yield json.dumps({**line, name: "HERE"}).replace('"HERE"', odd)
    yield from (text, f" {text}\t", text + text, text + ",", text + "//", "\ufeff" + text, text + "\0")
    yield from (f"[{text}]", text[:-1], text[1:], text.replace(":", ";"), text.replace('"', "'"))
    yield from ("{}", "null", "17", '"x"', "nonsense")
    yield text.replace('"index"', '"\\u0069ndex"').replace('"value"', '"v\\u0061lue"')


@pytest.mark.parametrize("kind", LAWS)
def test_a_line_is_good_or_broken_whatever_its_neighbours(kind: Kind) -> None:
    """The same lines are broken in one block, alone, and for the plain reader."""
    table, law = LAWS[kind]
    lines = [line for good in GOOD[kind] for line in variants(good)]
    rows = json_lines.rows_of("\n".join(lines).encode(), table)
    broken = [lines[place] for place in rows.broken]
    objects = [(line, object_of(line.encode(errors="surrogatepass"))) for line in lines]
    assert broken == [line for line, row in objects if row is None or not law(row)]
    assert rows.lines == len(lines) == len(rows.places) + len(broken)
    for place in range(0, len(lines), 211):
        alone = json_lines.rows_of(lines[place].encode(), table)
        assert list(alone.broken) == ([0] if place in rows.broken else []), lines[place]


POLL = '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll"'


@pytest.mark.parametrize(("line", "good"), [
    # A name that comes twice: all its values must be allowed.
    (POLL.replace('"type"', '"type":"ok","type"') + "}", True),
    (POLL + ',"f":"poll","error":null,"error":"X"}', True),
    (POLL.replace('"index"', '"index":0.5,"index"') + "}", False),
    (POLL + ',"sends":[{"partition":"x","partition":0,"value":1}]}', False),
    # Of what no check reads, anything that is JSON.
    (POLL + ',"x":' + "[" * 3000 + "]" * 3000 + "}", True), (POLL + ',"x":[-Infinity]}', False),
    (POLL + '},"x":5', False), (POLL.replace(',"f"', ',\n"f"') + "}", False),
    # A fault is an object.
    ('{"index":0,"time":0,"process":-1,"type":"info","f":"kill","fault":{"x":"\\ud800"},"y":1e400}', True),
    ('{"index":0,"time":0,"process":-1,"type":"info","f":"kill","fault":"{}"}', False),
    ('{"index":0,"time":0,"process":-1,"type":"info","f":"kill","fault":' + '{"a":' * 2000 + "1" + "}" * 2001,
     False),
])  # fmt: skip
def test_a_line_that_the_twin_cannot_tell(line: str, good: bool) -> None:
    for beside in (POLL + "}", "nonsense"):
        facts = read_bytes(a_range("history"), "\n".join((beside, line, beside)).encode()).facts
        assert isinstance(facts, HistoryFacts)
        assert facts.broken == (0 if good else line.count("\n") + 1) + 2 * (beside == "nonsense")
        assert all(isinstance(one["fault"], dict) for one in facts.nemesis)


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\0"])
def test_bytes_that_are_no_text_are_a_broken_line(bad: bytes) -> None:
    good = POLL.encode() + b',"error":"HERE"}\n'
    facts = read_bytes(a_range("history"), good + good.replace(b"HERE", bad) + good).facts
    assert (facts.broken, facts.first_broken) == (1, 1)


def test_blank_lines_have_positions_and_are_not_counted() -> None:
    data = "\n".join(("", POLL + "}", " \t\r", "nonsense", POLL.replace(":0", ":2", 1) + "}", "", ""))
    parsed = read_bytes(a_range("history", number=3), data.encode())
    facts = parsed.facts
    assert isinstance(facts, HistoryFacts)
    assert (facts.places, facts.lines, facts.broken, facts.first_broken) == (6, 3, 1, 3)
    assert facts.order is not None
    assert facts.order.shift == 0
    assert parsed.tables["lines"]["at"].to_pylist() == [(3 << 32) + 1, (3 << 32) + 4]


# -- a trace whose lines are in any order -------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "more"), [
    ([], []), ([777], []), ([], [777]), ([30], [777]), ([11_991], []), ([777], [3 << 20])])
def test_a_trace_is_complete_if_every_seq_is_there_once(missing: list[int], more: list[int]) -> None:
    """12,000 lines of three nodes, shuffled, in four ranges; and near misses, where one line makes up for
    another that is missing, or has a seq beyond all others."""
    lines = [(f"n{at % 3}", at // 3) for at in (*range(12_000), *more) if at not in missing or at in more]
    Random(1).shuffle(lines)
    form = '{"time":1,"node":"%s","seq":%d,"event":"checkpoint"}\n'
    parsed = [read_bytes(a_range("trace", number=at), "".join(form % line for line in lines[at::4]).encode())
              for at in range(4)]
    found = preconditions_of(2, [one.facts for one in parsed]).trace
    assert sum(node.lines for node in found.nodes.values()) == len(lines)
    wrong = {f"n{at % 3}" for at in (*missing, *more)}
    assert {name for name, node in found.nodes.items() if not node.complete} == wrong
