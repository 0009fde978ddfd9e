"""Parquet beside, or in the place of, the lines of a history and of a dump: it is void as soon as they
change; where it is damaged the lines are read, or the checks of that node are unknown.

That the verdict is the same from either: test_every_path.py.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import here
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import real_like
from no_spark import NoSpark
from stories import told

from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.judge.passes import judged_by_many
from floodmark.checkers.read import history_parquet, ranges
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.read.history_parquet import copy_of, is_copy, keep, with_parquet
from floodmark.checkers.read.ranges import Range
from floodmark.checkers.read.tables import read_range
from floodmark.harness import parquet_dump
from floodmark.harness.commands.check import keep_parquet_copies
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.verdict import Verdict

# -- of a history -------------------------------------------------------------------------------------------


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sends, polls and more, and a nemesis's line with a text that needs quoting."""
    monkeypatch.setattr(history_parquet, "FROM_BYTES", 1)
    history = real_like.write(tmp_path / "run", ops=300) / "history.jsonl"
    at = len(history.read_bytes().splitlines())
    fault = {"name": "kill", "nodes": ["n1"], "why": "a \"brace\": }{, \u00e9"}
    nemesis = {"index": at, "time": 1 << 40, "process": -1, "type": "info", "f": "kill", "fault": fault}
    with history.open("ab") as file:
        file.write(orjson.dumps(nemesis) + b"\n")
    return history


def cut(history: Path, range_bytes: int = ranges.RANGE_BYTES) -> list[Range]:
    return list(ranges.cut(0, "history", None, history, range_bytes))


def read(several: Sequence[Range]) -> list[tuple[Any, dict[str, list[object]]]]:
    return [(asdict(one.facts), {name: table.to_pylist() for name, table in one.tables.items()})
            for one in map(read_range, several)]


def test_a_copy_gives_the_same_as_the_lines(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines themselves are not parsed; of several ranges each keeps its place."""
    monkeypatch.setattr(history_parquet, "cut", lambda *given: cut(given[-1], 12_288))
    expected = read(cut(lines, 12_288))
    assert keep(lines) == copy_of(lines)
    several = list(with_parquet(cut(lines, 12_288)))
    monkeypatch.setattr(ranges, "bytes_of", None)

    found = read(several)

    assert found == expected
    assert len(found) > 5
    assert found[-1][0]["nemesis"][-1]["fault"]["why"] == "a \"brace\": }{, é"
    assert not list(lines.parent.glob(".*"))


def test_a_copy_is_void_beside_other_lines_or_when_they_are_read_in_another_way(
        lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes as before."""
    keep(lines)
    content = lines.read_bytes()
    lines.write_bytes(content.replace(b'"process":1,', b'"process":9,'))
    [one] = with_parquet(cut(lines))
    assert (is_copy(lines), one.copy) == (False, None)

    lines.write_bytes(content)
    assert is_copy(lines)
    monkeypatch.setattr(history_parquet, "READING", history_parquet.READING + b"1")
    assert not is_copy(lines)


def test_beside_a_corrupt_copy_the_lines_are_read(lines: Path) -> None:
    """Whichever bit is wrong."""
    keep(lines)
    copy = copy_of(lines)
    content = copy.read_bytes()
    for place in range(200, 800, 20):
        copy.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1:])
        [one] = with_parquet(cut(lines))
        with pytest.raises(history_parquet.Rotten):
            history_parquet.group_of(one)
    assert read([one]) == read(cut(lines))


@pytest.mark.parametrize("line", [b"no object", b'{"index": 1}', b"", None])
def test_a_small_history_and_one_with_a_broken_line_have_no_copy(
        lines: Path, monkeypatch: pytest.MonkeyPatch, line: bytes | None) -> None:
    if line is None:
        monkeypatch.setattr(history_parquet, "FROM_BYTES", lines.stat().st_size + 1)
    else:
        lines.write_bytes(lines.read_bytes() + line + b"\n")

    assert keep(lines) is None
    assert not list(lines.parent.glob("*history.parquet*"))


def test_check_reports_a_copy_it_could_not_write(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy_of(lines).mkdir()

    keep_parquet_copies([lines.parent])

    assert f"{lines.parent}: history.parquet could not be written: Is a directory" in capsys.readouterr().err
    assert not list(lines.parent.glob(".*"))


# -- of a dump ----------------------------------------------------------------------------------------------

ROWS = [
    {"node": "n1", "partition": 0, "offset": 5, "epoch": 2, "value": 17, "crc": 2774521},
    {"node": "n1", "partition": 0, "offset": 6, "epoch": 2, "value": None, "crc": 1, "crc_ok": False},
    {"node": "n1", "partition": 1, "offset": 1 << 62, "epoch": -1, "value": -5, "crc": 0, "aborted": True},
]


@pytest.mark.parametrize("rows", [ROWS, []])
def test_a_dump_in_parquet_has_its_rows_and_is_void_beside_others(
        tmp_path: Path, rows: list[dict[str, object]]) -> None:
    """A digit is changed, as many bytes as before; no Parquet; another program's."""
    dump = tmp_path / "n1.jsonl"
    dump.write_text("".join(json.dumps(row) + "\n" for row in rows))
    copy = parquet_dump.write_parquet(dump)

    found = pq.read_table(copy).to_pylist()
    assert [{name: value for name, value in row.items() if value is not None} for row in found] == [
        {name: value for name, value in row.items() if value is not None} for row in rows]
    assert parquet_dump.is_copy(copy, dump)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["n1.jsonl", "n1.parquet"]
    if rows:
        dump.write_text(dump.read_text().replace("17", "18"))
        assert not parquet_dump.is_copy(copy, dump)
    for rubbish in (b"", b"PAR1", b"PAR1 and no more PAR1"):
        copy.write_bytes(rubbish)
        assert not parquet_dump.is_copy(copy, dump)
    pq.write_table(pa.table({"offset": [1]}), copy)
    assert not parquet_dump.is_copy(copy, dump)


def test_invalid_lines_leave_no_file_behind(tmp_path: Path) -> None:
    lines = tmp_path / "n1.jsonl"
    lines.write_text('{"node": "n1", "partition": "zero"}\n')

    with pytest.raises(FloodmarkError, match=r"cannot write .*n1.parquet"):
        parquet_dump.write_parquet(lines)
    assert [path.name for path in tmp_path.iterdir()] == ["n1.jsonl"]


# -- another program's dump, and a damaged one --------------------------------------------------------------

Change = Callable[[Path], object]  # of the file


def cast(**types: pa.DataType) -> Change:
    """These columns in another type; each row is a row group, and there is one column more."""
    def change(file: Path) -> None:
        table = pq.read_table(file).append_column("x", [["a", "b"]])
        for name, kind in types.items():
            at = table.column_names.index(name)
            table = table.set_column(at, name, table[name].cast(kind))
        pq.write_table(table, file, row_group_size=1)

    return change


def with_zeroed_pages(file: Path) -> None:
    """Everything between the first four bytes and the footer, whose length precedes the last four."""
    content = bytearray(file.read_bytes())
    ends = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:ends] = bytes(ends - 4)
    file.write_bytes(content)


DUMPS: dict[str, tuple[Change, str | None]] = {  # how n2's is changed, and why it cannot be read then
    "whole": (lambda file: None, None),
    "narrow": (cast(partition=pa.int8(), offset=pa.uint16(), epoch=pa.int32(), value=pa.uint64()), None),
    "doubles": (cast(offset=pa.float64()), "its column offset is of type double"),
    "texts": (cast(crc=pa.string()), "its column crc is of type string"),
    "numbers": (cast(aborted=pa.int64()), "its column aborted is of type int64"),
    "valueless": (lambda file: pq.write_table(pq.read_table(file).drop_columns(["value"]), file),
                  "it has no column value"),
    "zeroed": (with_zeroed_pages, ""),
    "cut off": (lambda file: file.write_bytes(file.read_bytes()[:-20] + b"PAR1"), ""),
    "no parquet": (lambda file: file.write_bytes(b"PAR1 is no Parquet PAR1"), ""),
}


def in_parquet(folder: Path) -> Path:
    """A run that has lost a record, with n2's dump in Parquet as well."""
    return parquet_dump.write_parquet(told(folder, "1 acked 1 2; 4 send 5@2") / "logs" / "n2.jsonl")


def lost_one(verdict: Verdict) -> bool:
    found = [(one.name, one.count) for one in verdict.findings]
    return verdict.valid is False and found == [("lost-write", 1)]


def test_a_damaged_dump_makes_only_its_own_checks_unknown(tmp_path: Path) -> None:
    """What needs no dump of that node is judged."""
    for name, (change, _) in DUMPS.items():
        file = in_parquet(tmp_path / name)
        change(file)
        file.with_suffix(".jsonl").unlink()
    verdicts = here.judge([tmp_path / name for name in DUMPS])
    for (name, (_, why)), verdict in zip(DUMPS.items(), verdicts, strict=True):
        assert lost_one(verdict), name
        assert len(verdict.unknown) == (why is not None), name
        for unknown in verdict.unknown:
            assert unknown.reason.startswith("logs/n2.parquet cannot be read: "), name
            assert str(why) in unknown.reason, name
            assert {"diverged", "malformed-log"} <= {*unknown.names}, name


@pytest.mark.parametrize(("name", "values"), [
    ("value", pa.array([1, 1 << 63], pa.uint64())), ("crc", pa.array([1, 1 << 63], pa.uint64())),
    ("crc", [1, None]), ("epoch", [0, -2]), ("offset", [0, -1]), ("node", ["n2", "n3"])])
def test_a_row_that_is_no_entry_of_its_node_is_broken(tmp_path: Path, name: str, values: Any) -> None:
    """As a line is; the row beside it is good."""
    table = pq.read_table(file := in_parquet(tmp_path / "run"))
    pq.write_table(table.set_column(table.column_names.index(name), name, [values]), file)
    (facts, tables), = read(list(ranges.cut(0, "dump", "n2", file, ranges.RANGE_BYTES)))
    assert (facts["lines"], facts["broken"], len(tables["entries"])) == (2, 1, 1)


def test_lines_beside_a_damaged_copy_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one task and by many."""
    monkeypatch.setattr("floodmark.checkers.read.folder.PARQUET_FROM_BYTES", 0)
    with_zeroed_pages(in_parquet(tmp_path / "run"))
    folder = open_folder(tmp_path / "run")
    assert folder.dumps["n2"].name == "n2.parquet"
    (by_many,) = judged_by_many(NoSpark(), [RunWork.of(0, folder)]).values()  # type: ignore[arg-type]
    for verdict in (by_many, *here.judge([tmp_path / "run"])):
        assert isinstance(verdict, Verdict)
        assert (lost_one(verdict), verdict.unknown) == (True, ())
