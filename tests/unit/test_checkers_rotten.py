"""Damaged Parquet dumps: they are named, and everything else is judged all the same."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folders import Tale

from floodmark.checkers.judge import layout
from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.read.folder import open_folder
from floodmark.harness.parquet_dump import write_parquet


def in_parquet(folder: Path, *, alone: bool = True) -> Path:
    lines = folder / "logs" / "n2.jsonl"
    copy = write_parquet(lines)
    if alone:
        lines.unlink()
    return copy


def with_doubles(copy: Path) -> None:
    table = pq.read_table(copy)
    column = table.column_names.index("offset")
    doubles = table["offset"].cast(pa.float64())
    pq.write_table(table.set_column(column, "offset", doubles), copy)


def with_zeroed_pages(copy: Path) -> None:
    """Everything between the first four bytes and the footer, whose length precedes the last four."""
    content = bytearray(copy.read_bytes())
    ends = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:ends] = bytes(ends - 4)
    copy.write_bytes(content)


@pytest.mark.spark
def test_damaged_dumps_make_only_their_own_checks_unknown(tmp_path: Path) -> None:
    healthy, doubles, zeroed = (
        Tale().acked(1, 2).send(4, 5, at=[2]).write(tmp_path / name)
        for name in ("healthy", "doubles", "zeroed"))  # fmt: skip
    in_parquet(healthy)
    with_doubles(in_parquet(doubles))
    with_zeroed_pages(in_parquet(zeroed))
    valueless = Tale().acked(1, 2).write(tmp_path / "valueless")
    copy = in_parquet(valueless)
    pq.write_table(pq.read_table(copy).drop_columns(["value"]), copy)

    *verdicts, valueless_verdict = SparkJudge().judge([healthy, doubles, zeroed, valueless])

    # Records without values are not compared: no replica differs from what cannot be read.
    assert (valueless_verdict.valid, valueless_verdict.findings) == ("unknown", ())
    assert [one.reason for one in valueless_verdict.unknown] == [
        "logs/n2.parquet cannot be read: it has no column value"
    ]
    for verdict in verdicts:
        assert [(found.name, found.count) for found in verdict.findings] == [("lost-write", 1)]
    assert verdicts[0].unknown == ()
    for verdict in verdicts[1:]:
        [reason] = verdict.unknown
        assert reason.reason.startswith("logs/n2.parquet cannot be read: ")
        assert {"diverged", "malformed-log"} <= {*reason.names}
    assert "its column offset is of type double" in verdicts[1].unknown[0].reason


@pytest.mark.spark
def test_the_jsonl_dump_beside_a_damaged_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged by one task, and by many."""
    monkeypatch.setattr("floodmark.checkers.read.folder.PARQUET_FROM_BYTES", 0)
    path = Tale().acked(1, 2).send(4, 5, at=[2]).write(tmp_path / "run")
    with_zeroed_pages(in_parquet(path, alone=False))
    assert open_folder(path).dumps["n2"].name == "n2.parquet"

    for big_bytes in (layout.BIG_BYTES, 0):
        monkeypatch.setattr(layout, "BIG_BYTES", big_bytes)
        [verdict] = SparkJudge().judge([path])

        assert [(found.name, found.count) for found in verdict.findings] == [("lost-write", 1)]
        assert verdict.unknown == ()
