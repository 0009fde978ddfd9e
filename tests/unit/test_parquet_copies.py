"""Parquet copies of a history and of a dump: the same lines, and void as soon as they change."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pyarrow
import pyarrow.parquet as pq
import pytest
import real_like

from floodmark.checkers.read import history_parquet, ranges
from floodmark.checkers.read.history_parquet import copy_of, is_copy, keep, with_parquet
from floodmark.checkers.read.ranges import Range
from floodmark.checkers.read.tables import read_range
from floodmark.harness import parquet_dump
from floodmark.harness.commands.check import keep_parquet_copies
from floodmark.harness.errors import FloodmarkError


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_parquet, "FROM_BYTES", 1)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Sends, polls and more, and a nemesis's line with a text that needs quoting."""
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


def test_it_gives_the_same_as_the_lines(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read(cut(lines))
    assert keep(lines) == copy_of(lines)
    several = list(with_parquet(cut(lines)))
    monkeypatch.setattr(ranges, "bytes_of", None)  # the lines themselves are not parsed

    [(facts, tables)] = read(several)

    assert [(facts, tables)] == expected
    assert facts["nemesis"][-1]["fault"]["why"] == "a \"brace\": }{, é"
    assert tables["sends"]
    assert tables["reads"]
    assert not list(lines.parent.glob(".*"))


def test_of_several_ranges_each_keeps_its_place(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_parquet, "cut", lambda *given: cut(given[-1], 12_288))
    keep(lines)
    assert pq.read_metadata(copy_of(lines)).num_row_groups > 5

    assert read(list(with_parquet(cut(lines, 12_288)))) == read(cut(lines, 12_288))


def test_it_is_void_beside_other_lines_or_when_they_are_read_in_another_way(
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


def test_with_a_corrupt_twin_the_lines_are_read(lines: Path) -> None:
    keep(lines)
    copy = copy_of(lines)
    content = bytearray(copy.read_bytes())
    content[200:600] = bytes(400)
    copy.write_bytes(content)
    assert is_copy(lines)
    several = list(with_parquet(cut(lines)))
    with pytest.raises(history_parquet.Rotten):
        history_parquet.group_of(several[0])

    assert read(several) == read(cut(lines))


@pytest.mark.parametrize("line", [b"no object", b'{"index": 1}', b"", None])
def test_a_small_history_and_one_with_a_broken_line_have_none(
        lines: Path, monkeypatch: pytest.MonkeyPatch, line: bytes | None) -> None:
    if line is None:
        monkeypatch.setattr(history_parquet, "FROM_BYTES", lines.stat().st_size + 1)
    else:
        lines.write_bytes(lines.read_bytes() + line + b"\n")

    assert keep(lines) is None
    assert not list(lines.parent.glob("*history.parquet*"))


def test_check_reports_a_twin_it_could_not_write(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy_of(lines).mkdir()

    keep_parquet_copies([lines.parent])

    assert f"{lines.parent}: history.parquet could not be written: Is a directory" in capsys.readouterr().err
    assert not list(lines.parent.glob(".*"))


# -- of a dump --------------------------------------------------------------------------------------------


ROWS = [
    {"node": "n1", "partition": 0, "offset": 5, "epoch": 2, "value": 17, "crc": 2774521},
    {"node": "n1", "partition": 0, "offset": 6, "epoch": 2, "value": None, "crc": 1, "crc_ok": False},
    {"node": "n1", "partition": 1, "offset": 1 << 62, "epoch": -1, "value": -5, "crc": 0, "aborted": True},
]


def dump(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "n1.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("rows", [ROWS, []])
def test_it_has_the_same_rows(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    copy = parquet_dump.write_parquet(dump(tmp_path, rows))

    found = pq.read_table(copy).to_pylist()
    assert [{name: row[name] for name in row if row[name] is not None} for row in found] == [
        {name: value for name, value in row.items() if value is not None} for row in rows]
    assert parquet_dump.is_copy(copy, tmp_path / "n1.jsonl")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["n1.jsonl", "n1.parquet"]


def test_what_is_no_copy(tmp_path: Path) -> None:
    """After a digit was changed (as many bytes as before); no Parquet; another program's."""
    copy = parquet_dump.write_parquet(dump(tmp_path, ROWS))
    lines = tmp_path / "n1.jsonl"
    lines.write_text(lines.read_text().replace("17", "18"))
    assert not parquet_dump.is_copy(copy, lines)
    for rubbish in (b"", b"PAR1", b"PAR1 and no more PAR1"):
        copy.write_bytes(rubbish)
        assert not parquet_dump.is_copy(copy, lines)
    pq.write_table(pyarrow.table({"offset": [1]}), copy)
    assert not parquet_dump.is_copy(copy, lines)


def test_invalid_lines_leave_no_file_behind(tmp_path: Path) -> None:
    lines = tmp_path / "n1.jsonl"
    lines.write_text('{"node": "n1", "partition": "zero"}\n')

    with pytest.raises(FloodmarkError, match=r"cannot write .*n1.parquet"):
        parquet_dump.write_parquet(lines)
    assert [path.name for path in tmp_path.iterdir()] == ["n1.jsonl"]
