"""A history's Parquet twin: the same lines for the judge, and void as soon as they are others."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import big
import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest

from checkers import history_twin
from checkers.columns import History, history_of
from checkers.history_twin import is_twin, keep, read, twin_of
from harness.commands.check import keep_twins


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as made:
        yield made


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_twin, "FROM_BYTES", 1)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Sends, polls and more, and a nemesis's line of a fault with words that need quoting."""
    history = big.write(tmp_path / "run", ops=300) / "history.jsonl"
    at = len(history.read_bytes().splitlines())
    fault = {"name": "kill", "nodes": ["n1"], "why": "a \"brace\": }{, \u00e9"}
    nemesis = {"index": at, "time": 1 << 40, "process": -1, "type": "info", "f": "kill", "fault": fault}
    with history.open("ab") as file:
        file.write(orjson.dumps(nemesis) + b"\n")
    return history


def parsed(history: Path, pool: Executor, monkeypatch: pytest.MonkeyPatch) -> History:
    with monkeypatch.context() as without:
        without.setattr(history_twin, "is_twin", lambda _: False)
        return history_of(read(history, pool, 3))


def same(one: History, other: History) -> bool:
    columns = ("time", "process", "type", "f")
    items = [(getattr(one, name), getattr(other, name)) for name in ("sends", "reads", "ends", "held")]
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
        and one.nemesis == other.nemesis
        and all(
            np.array_equal(getattr(mine, name), getattr(theirs, name))
            for mine, theirs in items
            for name in ("line", "partition", "value", "offset")
        )
    )


def test_it_gives_what_the_lines_give(lines: Path, pool: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(lines) == twin_of(lines)
    monkeypatch.setattr(history_twin, "read_lines", None)  # the lines themselves are not parsed

    told = history_of(read(lines, pool, 3))

    monkeypatch.undo()
    assert same(told, parsed(lines, pool, monkeypatch))
    assert orjson.loads(told.nemesis[-1])["fault"]["why"] == "a \"brace\": }{, é"
    assert len(told.sends.line)
    assert len(told.reads.line)
    assert [path.name for path in lines.parent.iterdir() if path.name.startswith(".")] == []


def test_of_several_pieces_each_keeps_its_place(
    lines: Path, pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkers.chunks.CHUNK_BYTES", 4_096)
    keep(lines)
    assert pq.read_metadata(twin_of(lines)).num_row_groups > 5

    assert same(history_of(read(lines, pool, 3)), parsed(lines, pool, monkeypatch))


def test_it_is_void_beside_other_lines(lines: Path, pool: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(lines)
    content = lines.read_bytes()
    changed = content.replace(b'"process":1,', b'"process":9,')
    assert len(changed) == len(content)
    assert changed != content
    lines.write_bytes(changed)

    assert not is_twin(lines)
    told = history_of(read(lines, pool, 3))
    assert 9 in told.process
    assert same(told, parsed(lines, pool, monkeypatch))


def test_it_is_void_when_a_line_is_read_otherwise(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(lines)
    monkeypatch.setattr(history_twin, "READING", history_twin.READING + b"1")

    assert not is_twin(lines)


def test_one_that_is_rotten_inside_costs_nothing_but_time(
    lines: Path, pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(lines)
    twin = twin_of(lines)
    content = bytearray(twin.read_bytes())
    content[200:600] = bytes(400)
    twin.write_bytes(content)
    assert is_twin(lines)

    assert same(history_of(read(lines, pool, 3)), parsed(lines, pool, monkeypatch))


@pytest.mark.parametrize("line", [b"no object", b'{"index": 1}'])
def test_a_history_with_a_broken_line_has_none(lines: Path, line: bytes) -> None:
    with lines.open("ab") as file:
        file.write(line + b"\n")

    assert keep(lines) is None
    assert not list(lines.parent.glob("*history.parquet*"))


def test_a_small_one_needs_none(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_twin, "FROM_BYTES", lines.stat().st_size + 1)

    assert keep(lines) is None
    assert not twin_of(lines).exists()


def test_check_says_where_it_could_not_be_kept(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin_of(lines).mkdir()

    keep_twins([lines.parent])

    assert f"{lines.parent}: history.parquet could not be kept: Is a directory" in capsys.readouterr().err
    assert [path.name for path in lines.parent.iterdir() if path.name.startswith(".")] == []
