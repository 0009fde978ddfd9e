"""What a line must be: the judge's field table and the twin agree on odd lines."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twin_folder import CAUSES, EVENT, OF_EVENTS, fits, fits_field_table, is_entry, is_int, object_of

from floodmark.checkers.read import json_lines
from floodmark.checkers.read.field_table import HISTORY, TRACE, Table, dump_of

Line = dict[str, Any]
STATES = ("partition", "epoch", "leo", "hw")
NEEDED = {  # what a line of the trace must have
    "append": (*STATES, "role", "offset", "count"), "truncate": (*STATES, "from", "to"),
    "hw": (*STATES, "role"),
    "become_leader": (*STATES, "isr", "start"), "become_follower": STATES, "fetch": STATES,
    "ack": (*STATES, "offset", "acks", "isr"), "isr_proposed": (*STATES, "isr"),
    "isr": ("partition", "epoch", "isr"), "elect": ("partition", "epoch", "isr", "clean"),
    "register": ("broker",), "fence": ("broker",), "unfence": ("broker",),
}  # fmt: skip
AT_LEAST = {"append": {"offset": 0, "count": 1}, "ack": {"offset": 0}}


def is_event(row: Line) -> bool:
    """Whether a line of the trace has what its event needs (the table of histories/README.md)."""
    event = row.get("event")
    if not fits(row, EVENT, {**OF_EVENTS, "partition": is_int}):
        return False
    needed = NEEDED.get(event, STATES if event == "start" and row.get("partition") is not None else ())
    return (all(row.get(name) is not None for name in needed)
            and all(row[name] >= 0 for name in ("partition", "leo") if name in needed)
            and all(row[name] >= least for name, least in AT_LEAST.get(event, {}).items())
            and ("role" not in needed or row["role"] in ("leader", "follower"))
            and (event != "truncate" or row.get("cause") in CAUSES)
            and (event != "isr" or (row.get("leo") is None) == (row.get("hw") is None)))


Law = Callable[[Line], bool]
LAWS: dict[str, tuple[Table, Law]] = {
    "history": (HISTORY, fits_field_table),
    "dump": (dump_of("n1"), lambda row: is_entry(row, "n1")),
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
    "[null,[1,2]]", "{}", '{"a":[1]}', "[{}]", '[{"partition":0,"value":1,"offset":2}]',
    '[{"partition":0,"value":1}]',
    '[{"partition":-1,"value":1,"offset":2}]', '[{"partition":0,"value":1,"offset":-1}]',
    '[{"partition":0,"value":1,"offset":2},null]', '[{"partition":0,"value":null,"offset":2}]',
    '[{"partition":0,"value":1,"offset":2,"epoch":"x"}]', '[{"partition":0,"offset":2,"value":1.5}]',
    "nonsense", "",
)  # fmt: skip

SENDS = [{"partition": 0, "value": 17, "offset": 5, "epoch": 2}, {"partition": 1, "value": -3}]
READS = [{"partition": 0, "offset": 5, "value": 17, "epoch": 2}, {"partition": 1, "offset": 0, "value": 18}]
OP = {"index": 0, "time": 5, "process": 3}
GOOD: dict[str, list[Line]] = {
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
}  # fmt: skip
BY = {"time": -5, "node": "n1", "seq": 0}
STATE = {"partition": 0, "epoch": 1, "leo": 7, "hw": 6}
ISR = {"isr": ["n1", "n2"]}
GOOD["trace"] = [
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
]


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


def is_good_plainly(line: str, law: Law) -> bool:
    row = object_of(line.encode(errors="surrogatepass"))
    return row is not None and law(row)


@pytest.mark.parametrize("kind", LAWS)
def test_a_line_is_good_or_broken_whatever_its_neighbours(kind: str) -> None:
    """The same lines are broken in one block, alone, and for the plain reader."""
    table, law = LAWS[kind]
    lines = [line for good in GOOD[kind] for line in variants(good)]
    data = "\n".join(lines).encode()
    rows = json_lines.rows_of(data, table)
    broken = [lines[place] for place in rows.broken]
    assert broken == [line for line in lines if not is_good_plainly(line, law)]
    assert rows.lines == len(lines)
    assert len(rows.places) + len(broken) == len(lines)
    for place in range(0, len(lines), 211):
        alone = json_lines.rows_of(lines[place].encode(), table)
        assert list(alone.broken) == ([0] if place in rows.broken else []), lines[place]
