"""Ranges of run files: which line belongs to which range, and the facts of broken lines."""

import json
import pickle
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.checkers.judge.failures import failure_of
from floodmark.checkers.judge.preconditions import preconditions_of
from floodmark.checkers.read import json_lines
from floodmark.checkers.read.facts import DumpFacts, HistoryFacts, TraceFacts
from floodmark.checkers.read.field_table import HISTORY, TRACE, dump_of
from floodmark.checkers.read.folder import Special
from floodmark.checkers.read.ranges import Kind, Range, bytes_of
from floodmark.checkers.read.tables import intervals, read_bytes, read_range

TOP = (1 << 63) - 1


def op(index: int, **more: Any) -> dict[str, Any]:
    return {"index": index, "time": 10 * index, "process": 0, "type": "invoke", "f": "poll"} | more


def entry(offset: int, **more: Any) -> dict[str, Any]:
    return {"node": "n1", "partition": 0, "offset": offset, "epoch": 0, "value": offset, "crc": 7} | more


def text(*lines: dict[str, Any] | str) -> bytes:
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()


def a_range(
        kind: Kind, place: Path = Path("x.jsonl"), start: int = 0, end: int = 0, number: int = 0) -> Range:
    node = "n1" if kind == "dump" else None
    return Range(run=2, kind=kind, node=node, place=place, start=start, end=end, number=number)


# -- where lines start --------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"a", b"\n", b"abc\n", b"ab\n\n\ncdefgh\ni", b"\n\nabc\nd\n" * 3])
def test_every_line_is_in_the_range_it_starts_in(tmp_path: Path, data: bytes) -> None:
    place = tmp_path / "x"
    place.write_bytes(data)
    whole = a_range("history", place)
    for step in range(1, len(data) + 2):
        pieces = [
            bytes_of(replace(whole, start=start, end=min(start + step, len(data))))
            for start in range(0, len(data), step)
        ]
        assert b"".join(pieces) == data
        assert all(piece.endswith(b"\n") or piece == b"" for piece in pieces[:-1] if data.endswith(b"\n"))


def test_a_line_longer_than_many_ranges_is_in_one_of_them(tmp_path: Path) -> None:
    place = tmp_path / "x"
    place.write_bytes(b"a" * (3 << 20) + b"\nb\n")
    size = place.stat().st_size
    pieces = [bytes_of(a_range("history", place, start, min(start + 1000, size)))
              for start in (0, 1000, 1 << 20, size - size % 1000)]  # fmt: skip
    assert [len(piece) for piece in pieces] == [(3 << 20) + 1, 0, 0, 2]


# -- broken lines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [
    '{"index":0,"time":0,"process":0,"type":"ok","type":"invoke","f":"poll"}',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll","f":"poll","error":null,"error":"X"}',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll","x":"\\ud800"}',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll","x":1e400,"y":' + "9" * 6000 + "}",
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll","x":' + "[" * 3000 + "]" * 3000 + "}",
    '\t {"index":0,"time":0,"process":0,"type":"invoke","f":"poll"} \r',
    '{"index":0,"time":0,"process":-1,"type":"info","f":"kill","fault":{"x":"\\ud800"},"y":1e400}',
])  # fmt: skip
def test_odd_lines_that_are_good(line: str) -> None:
    """Whatever other lines the range has; a nemesis op's fault stays an object."""
    for beside in ("", json.dumps(op(1)), "nonsense"):
        parsed = read_bytes(a_range("history"), text(line, beside, beside))
        assert isinstance(parsed.facts, HistoryFacts)
        assert parsed.facts.broken == 2 * (beside == "nonsense")
        assert parsed.facts.order is not None
        assert parsed.facts.order.first_index == 0
        assert all(isinstance(one["fault"], dict) for one in parsed.facts.nemesis)


@pytest.mark.parametrize("line", [
    '{"index":0.5,"index":0,"time":0,"process":0,"type":"invoke","f":"poll"}',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll",'
    '"sends":[{"partition":"x","partition":0,"value":1}]}',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll","x":NaN}',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll","x":[-Infinity]}',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll"},',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll"},"x":5',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll"}{}',
    '{"index":0,"time":0,"process":0,"type":"invoke","f":"poll"}//',
    '\ufeff{"index":0,"time":0,"process":0,"type":"invoke","f":"poll"}',
    '{"index":0,"time":0,"process":0,"type":"invoke",\n"f":"poll"}',
    '{"index":0,"time":0,"process":-1,"type":"info","f":"kill","fault":"{}"}',
    '{"index":0,"time":0,"process":-1,"type":"info","f":"kill","fault":' + '{"a":' * 2000 + "1" + "}" * 2001,
])  # fmt: skip
def test_lines_that_are_broken(line: str) -> None:
    for beside in (json.dumps(op(1)), "nonsense"):
        facts = read_bytes(a_range("history"), text(beside, line, beside)).facts
        assert facts.broken == line.count("\n") + 1 + 2 * (beside == "nonsense")


def test_bytes_that_are_no_text_are_a_broken_line() -> None:
    good = text(op(0, error="HERE"))
    for bad in (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\0"):
        facts = read_bytes(a_range("history"), good + good.replace(b"HERE", bad) + good).facts
        assert (facts.broken, facts.first_broken) == (1, 1), bad


def test_blank_lines_have_positions_and_are_not_counted() -> None:
    data = text("", op(0), " \t\r", "nonsense", op(2), "")
    parsed = read_bytes(a_range("history", number=3), data)
    facts = parsed.facts
    assert isinstance(facts, HistoryFacts)
    assert (facts.places, facts.lines, facts.broken, facts.first_broken) == (6, 3, 1, 3)
    assert facts.order is not None
    assert facts.order.shift == 0
    assert parsed.tables["lines"]["at"].to_pylist() == [(3 << 32) + 1, (3 << 32) + 4]


def test_the_field_value_must_be_there() -> None:
    """Null is a value. The field of a nested object does not count."""
    lines = [entry(0, value=None), {k: v for k, v in entry(1).items() if k != "value"},
             {**{k: v for k, v in entry(2).items() if k != "value"}, "x": {"value": None}},
             entry(3, value=None, x={"value": 1})]  # fmt: skip
    facts = read_bytes(a_range("dump"), text(*lines)).facts
    assert facts.broken == 2
    assert json_lines.rows_of(text(*lines), dump_of("n1")).broken.tolist() == [1, 2]


@pytest.mark.parametrize("bad", ["nonsense", '{"index":1.5}', '{"index":"x"}', "{}"])
def test_many_broken_lines_take_no_longer_than_few(bad: str) -> None:
    """Two hundred times as many of them, at most six times as long."""
    good = json.dumps(op(1))
    took = []
    for every in (400, 2):
        data = text(*(bad if number % every == 0 else good for number in range(40_000)))
        began = time.process_time()
        rows = json_lines.rows_of(data, HISTORY)
        took.append(time.process_time() - began)
        assert len(rows.broken) == 40_000 // every
    assert took[1] < 6 * took[0] + 0.5


# -- facts and tables ---------------------------------------------------------------------------------------


def test_facts_of_extreme_numbers() -> None:
    lines = [op(TOP, time=TOP, process=TOP), op(0, time=0, type="ok", reads=[
        {"partition": TOP, "value": -TOP - 1, "offset": TOP}, {"partition": 0, "value": TOP, "offset": 0}])]
    facts = read_bytes(a_range("history"), text(*lines)).facts
    assert isinstance(facts, HistoryFacts)
    assert facts.order is not None
    assert (facts.order.shift, facts.order.rises, facts.order.falls) == (None, False, 0)
    assert facts.used == ((0, 0), (TOP, TOP))
    assert pickle.loads(pickle.dumps(facts)) == facts


def test_intervals() -> None:
    import numpy as np

    for numbers, expected in (
        ([], ()), ([5], ((5, 5),)), ([3, 1, 2, 2], ((1, 3),)),
        ([-TOP - 1, TOP], ((-TOP - 1, -TOP - 1), (TOP, TOP))),
        ([1, 2, 4, 5, 7], ((1, 2), (4, 5), (7, 7))),
    ):  # fmt: skip
        assert intervals(np.array(numbers, dtype=np.int64)) == expected


def test_idents_depend_on_the_order_of_the_sends() -> None:
    lists: list[Any] = [
        None, [], [(0, 1)], [(1, 0)], [(0, 1), (0, 2)], [(0, 2), (0, 1)], [(0, 1), (0, 2)], [(0, 1), (0, 1)]]
    lines = [op(number, f="txn", sends=pairs and [{"partition": p, "value": v} for p, v in pairs])
             for number, pairs in enumerate(lists)]  # fmt: skip
    ident = read_bytes(a_range("history"), text(*lines)).tables["lines"]["ident"].to_pylist()
    assert ident[:2] == [None, None]
    assert ident[4] == ident[6]
    assert len(set(ident)) == 6


def test_acks_of_the_harnesss_own_processes_do_not_count() -> None:
    sends = [{"partition": 0, "value": 1}, {"partition": 0, "value": 2}]
    lines = [op(0, type="ok", f="send", sends=sends), op(1, type="ok", f="send", sends=sends, process=7)]
    facts = read_bytes(a_range("history"), text(*lines), Special(settling=(7,))).facts
    assert isinstance(facts, HistoryFacts)
    assert (facts.ok, facts.acked) == (2, 2)


def test_trace_fields_that_are_no_text() -> None:
    state = {"time": 1, "node": "n1", "partition": 0, "epoch": 0, "leo": 1, "hw": 0}
    lines = [
        {**state, "seq": 0, "event": "ack", "offset": 0, "acks": -1, "isr": ["n1"]},
        {**state, "seq": 1, "event": "truncate", "from": 2, "to": 1, "why": {"a": 1}},
        {**state, "seq": 3, "event": "hw", "role": 5},
    ]
    parsed = read_bytes(a_range("trace"), text(*lines))
    assert parsed.tables["trace"]["acks"].to_pylist() == ["-1", None]
    assert isinstance(parsed.facts, TraceFacts)
    assert (parsed.facts.broken, parsed.facts.nodes["n1"].lines) == (1, 2)
    assert json_lines.rows_of(text(*lines), TRACE).broken.tolist() == [2]


@pytest.mark.parametrize("wrong", ["nothing", "gap", "twice", "both", "gap near the end", "beyond"])
def test_a_trace_in_any_order_is_complete_if_every_seq_is_there_once(wrong: str) -> None:
    """12,000 lines of three nodes, shuffled, in four ranges; and near misses, where one line makes up for
    another that is missing, or has a seq beyond all others."""
    random = Random(wrong)
    lines = [(f"n{at % 3}", at // 3) for at in range(12_000)]
    spoilt: dict[str, list[tuple[int | None, int | None]]]
    spoilt = {"nothing": [], "gap": [(777, None)], "twice": [(None, 777)], "both": [(30, 777)],
              "gap near the end": [(11_991, None)], "beyond": [(777, 3 << 20)]}  # fmt: skip
    for missing, more in spoilt[wrong]:
        lines += [] if more is None else [("n0", more // 3)]
        if missing is not None:
            lines.remove((f"n{missing % 3}", missing // 3))
    random.shuffle(lines)
    quarters = [lines[at::4] for at in range(4)]
    form = '{"time":1,"node":"%s","seq":%d,"event":"checkpoint"}'
    parsed = [read_bytes(a_range("trace", number=number), text(*(form % line for line in quarter)))
              for number, quarter in enumerate(quarters)]  # fmt: skip
    found = preconditions_of(2, [one.facts for one in parsed]).trace
    assert sum(node.lines for node in found.nodes.values()) == len(lines)
    assert [name for name, node in found.nodes.items() if not node.complete] == (
        [] if wrong == "nothing" else ["n0"])


def test_a_trace_of_many_nodes_takes_no_longer_than_one_of_few() -> None:
    took = []
    for nodes in (3, 60_000):
        line = '{"time":1,"node":"n%d","seq":%d,"event":"checkpoint"}'
        data = text(*(line % (seq % nodes, seq) for seq in range(60_000)))
        began = time.process_time()
        facts = read_bytes(a_range("trace"), data).facts
        took.append(time.process_time() - began)
        assert isinstance(facts, TraceFacts)
        assert len(facts.nodes) == nodes
    assert took[1] < 4 * took[0] + 2


# -- Parquet ------------------------------------------------------------------------------------------------


def write(place: Path, columns: dict[str, Any], rows: int = 2) -> Range:
    pq.write_table(pa.table(columns), place, row_group_size=rows)
    return a_range("dump", place, 0, 1)


PLAIN = {"partition": [0, 0], "offset": [0, 1], "epoch": [0, -1], "value": [5, None], "crc": [7, 8]}


def test_a_row_group_is_a_range(tmp_path: Path) -> None:
    one = write(tmp_path / "n1.parquet", PLAIN | {"node": ["n1", "n2"], "x": ["a", "b"]}, rows=1)
    parsed = [read_range(replace(one, start=number, end=number + 1, number=number)) for number in (0, 1)]
    assert [each.facts.broken for each in parsed] == [0, 1]
    row = parsed[0].tables["entries"].to_pylist()
    assert row == [{"run": 2, "node": "n1", "partition": 0, "at": 0, "offset": 0, "epoch": 0, "value": 5,
                    "crc": 7, "crc_ok": True, "aborted": False}]  # fmt: skip


def test_integers_of_any_width(tmp_path: Path) -> None:
    kinds = dict(zip(PLAIN, (pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.uint64()), strict=True))
    columns = {name: pa.array(values, type=kinds[name]) for name, values in PLAIN.items()}
    columns["crc"] = pa.array([7, 1 << 63], type=pa.uint64())
    facts = read_range(write(tmp_path / "n1.parquet", columns)).facts
    assert (facts.lines, facts.broken) == (2, 1)


@pytest.mark.parametrize(("columns", "flaw"), [
    ({"offset": ["a", "b"]}, "its column offset is of type string"),
    ({"crc": [1.0, 2.0]}, "its column crc is of type double"),
    ({"aborted": [1, 0]}, "its column aborted is of type int64"),
    ({"value": None}, "it has no column value"),
])  # fmt: skip
def test_a_column_of_a_wrong_type_is_a_flaw(tmp_path: Path, columns: dict[str, Any], flaw: str) -> None:
    changed = {name: values for name, values in (PLAIN | columns).items() if values is not None}
    facts = read_range(write(tmp_path / "n1.parquet", changed)).facts
    assert isinstance(facts, DumpFacts)
    assert (facts.flaw, facts.lines) == (flaw, 0)


def test_a_corrupt_file_has_a_flaw(tmp_path: Path) -> None:
    place = tmp_path / "n1.parquet"
    one = write(place, PLAIN)
    for data in (b"PAR1" + bytes(40) + b"PAR1", place.read_bytes()[:-20] + b"PAR1", b""):
        place.write_bytes(data)
        facts = read_range(one).facts
        assert isinstance(facts, DumpFacts)
        assert facts.flaw


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "history.jsonl"
    place.write_bytes(b"{}\n" * 10)
    with pytest.raises(OSError, match="shorter than when its ranges were cut"):
        bytes_of(a_range("history", place, 0, 31))


def test_a_file_that_a_worker_does_not_see_is_named(tmp_path: Path) -> None:
    """A dump in Parquet that is not there is not a damaged one."""
    kinds: tuple[tuple[Kind, str], ...] = (("history", "history.jsonl"), ("dump", "n1.parquet"))
    for kind, name in kinds:
        with pytest.raises(FileNotFoundError) as unseen:
            read_range(a_range(kind, tmp_path / name, 0, 1))
        words = failure_of(unseen.value).words
        assert words.startswith(f"{tmp_path / name} is not there for the machine that was to read it")
        assert "every worker must see" in words
