"""A dump's Parquet copy: the same rows, and void as soon as the lines change."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.parquet_dump import is_copy, write_parquet

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
    copy = write_parquet(dump(tmp_path, rows))

    found = pyarrow.parquet.read_table(copy).to_pylist()
    assert [{name: row[name] for name in row if row[name] is not None} for row in found] == [
        {name: value for name, value in row.items() if value is not None} for row in rows]
    assert is_copy(copy, tmp_path / "n1.jsonl")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["n1.jsonl", "n1.parquet"]


def test_what_is_no_copy(tmp_path: Path) -> None:
    """After a digit was changed (as many bytes as before); no Parquet; another program's."""
    copy = write_parquet(dump(tmp_path, ROWS))
    lines = tmp_path / "n1.jsonl"
    lines.write_text(lines.read_text().replace("17", "18"))
    assert not is_copy(copy, lines)
    for rubbish in (b"", b"PAR1", b"PAR1 and no more PAR1"):
        copy.write_bytes(rubbish)
        assert not is_copy(copy, lines)
    pyarrow.parquet.write_table(pyarrow.table({"offset": [1]}), copy)
    assert not is_copy(copy, lines)


def test_invalid_lines_leave_no_file_behind(tmp_path: Path) -> None:
    lines = tmp_path / "n1.jsonl"
    lines.write_text('{"node": "n1", "partition": "zero"}\n')

    with pytest.raises(FloodmarkError, match=r"cannot write .*n1.parquet"):
        write_parquet(lines)
    assert [path.name for path in tmp_path.iterdir()] == ["n1.jsonl"]
