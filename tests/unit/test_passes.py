"""A run that is judged by many tasks gets the same verdict as in one task, byte for byte except timings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import here
import pytest
import real_like
from no_spark import NoSpark
from stories import told

from floodmark.checkers.judge import layout, passes
from floodmark.checkers.judge.layout import Layout, RunWork
from floodmark.checkers.judge.passes import judged_by_many
from floodmark.checkers.judge.report import as_json
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.read.folder import open_folder

RANGE_BYTES = 12_000
# Of sends, of reads and logs, and of the end offsets that clients got.
DAMAGES = ("lost", "disorder", "ends")
Json = dict[str, Any]
Pair = tuple[Json, Json]


def without_timings(verdict: Any) -> Json:
    return {key: value for key, value in as_json(verdict).items() if key != "timings_s"}


def in_pieces(folders: Sequence[Path], range_bytes: int = RANGE_BYTES) -> list[Json]:
    opened = [open_folder(folder) for folder in folders]
    works = [RunWork.of(run, folder, range_bytes) for run, folder in enumerate(opened)]
    judged = judged_by_many(NoSpark(), works)  # type: ignore[arg-type]
    return [without_timings(judged[run]) for run in range(len(opened))]


def both(folders: Sequence[Path], range_bytes: int = RANGE_BYTES) -> list[Pair]:
    """The verdicts on each folder: judged in pieces, and judged whole."""
    whole = [without_timings(verdict) for verdict in here.judge(folders)]
    return list(zip(in_pieces(folders, range_bytes), whole, strict=True))


@pytest.fixture(scope="module", autouse=True)
def small_units() -> Iterator[None]:
    """A unit for each partition."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layout, "UNIT_BYTES", 300)
        yield


def shuffled(folder: Path, *, without_first: bool) -> Path:
    lines = (folder / "trace.jsonl").read_bytes().splitlines(keepends=True)
    Random(7).shuffle(lines)
    (folder / "trace.jsonl").write_bytes(b"".join(lines[without_first:]))
    return folder


def found_together(root: Path) -> Iterator[Path]:
    """What is found only with several units together: a cycle through two partitions; a value that was sent
    to two."""
    cycle = ("5 invoke txn 1; 6 invoke txn 1:2", "5 ok txn 1@0 reads 1:2@0; 6 ok txn 1:2@0 reads 1@0",
             "log 1 1:2")
    for name, story in (("cycle", cycle), ("twice", ["1 acked 1; 2 send 1:1@0"])):
        yield told(root / name, "partitions 2", *story)
        assert len(Layout.of([RunWork.of(0, open_folder(root / name))], cores=1).units[0]) == 2


@pytest.fixture(scope="module")
def judged(small_units: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """By the name of the folder, all in one call."""
    root = tmp_path_factory.mktemp("runs")
    rowless = told(root / "rowless", "1 acked 1") / "replicas.jsonl"
    rowless.write_bytes(b"".join(rowless.read_bytes().splitlines(keepends=True)[:-1]))
    folders = [
        real_like.write(root / "traced", ops=100, trace=True, partitions=2),
        real_like.write(root / "txn", ops=200, transactions=True, partitions=2),
        *(real_like.write(root / damage, ops=600, damage=damage, partitions=2) for damage in DAMAGES),
        *(shuffled(real_like.write(root / name, ops=100, trace=True, partitions=1),
                   without_first=name == "gap") for name in ("whole", "gap")),
        *found_together(root), rowless.parent,
    ]
    return {folder.name: pair for folder, pair in zip(folders, both(folders), strict=True)}


def test_every_run_has_the_same_verdict(judged: dict[str, Pair]) -> None:
    assert len(judged) >= 10
    for name, (pieces, whole) in judged.items():
        assert pieces == whole, name


@pytest.mark.parametrize(("name", "found", "unknown"), [
    *((damage, real_like.DAMAGES[damage], None) for damage in DAMAGES),
    ("traced", None, None), ("txn", None, None),
    ("whole", None, None), ("gap", None, "seq has a gap"),  # the lines of a trace are shuffled
    ("cycle", "G1c", None), ("twice", None, "more than once"),
    # Others of its partition have a row, of which the driver of a big run knows only that it is there.
    ("rowless", None, "replicas.jsonl has no row of n"),
])
def test_what_many_tasks_find(
        judged: dict[str, Pair], name: str, found: str | None, unknown: str | None) -> None:
    verdict, _ = judged[name]
    assert (found is None) == (verdict["findings"] == [])
    assert found is None or found in {finding["name"] for finding in verdict["findings"]}
    assert (unknown or "()") in str(verdict["unknown"])


def test_a_unit_too_large_for_its_memory_is_put_into_tables_piece_by_piece(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended: list[str] = []
    append = Unit.append

    def recording(unit: Any, name: str, rows: Any) -> None:
        appended.append(name)
        append(unit, name, rows)

    monkeypatch.setattr(Unit, "append", recording)
    monkeypatch.setattr(passes, "ROW_BYTES", 1 << 30)
    folder = real_like.write(tmp_path / "run", ops=300, damage="disorder", partitions=1)
    (pieces, whole), = both([folder])
    assert pieces == whole
    assert {"sends", "reads", "entries"} <= set(appended)


@pytest.mark.long
def test_a_run_three_times_as_large_as_its_memory_is_judged(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit of 860,000 rows, which take some 200 MB. Tables go to disk, and there is no finding."""
    spilled: list[int] = []
    run_families = passes.run_families

    def recording(unit: Unit, families: Any) -> None:
        run_families(unit, families)
        spilled.append(int(unit.rows("select sum(size) as size from duckdb_temporary_files()")[0][0].as_py()))

    monkeypatch.setattr(passes, "run_families", recording)
    monkeypatch.setattr(passes, "MOST_MEMORY_MB", 64)
    folder = real_like.write(tmp_path / "run", ops=60_000, partitions=1)
    [verdict] = in_pieces([folder], 1 << 24)
    assert (verdict["valid"], verdict["findings"], [*verdict["unknown"]]) == (True, [], [])
    assert len(spilled) == 1
    assert spilled[0] > 10 << 20


def test_the_number_of_units_follows_from_bytes_cores_and_partitions(tmp_path: Path) -> None:
    folder = real_like.write(tmp_path / "run", ops=10, partitions=3)
    work = RunWork.of(7, open_folder(folder))
    sizes = (1, RANGE_BYTES * 3, 1 << 40)
    assert [len(Layout.of([replace(work, size=size)], 2).units[7]) for size in sizes] == [2, 3, 3]


def test_every_unit_has_a_partition_of_the_shuffle(tmp_path: Path) -> None:
    folder = open_folder(real_like.write(tmp_path / "run", ops=10, partitions=3))
    made = Layout.of([RunWork.of(run, folder) for run in (2, 5)], 8)
    assert made == Layout(across=8, units={2: range(8, 11), 5: range(11, 14)})
    assert [made.runs_in(index) for index in (7, 8, 13)] == [[], [2], [5]]
