"""A run has the same verdict by every path: in ranges of any size, by one task or many, in memory or on disk,
through Spark, from Parquet, and as other programs write its lines.

test_corpus.py judges every case whole, without Spark. Here are enough of them to show each finding, each
unknown name and each file of cases, and some saved runs; all of them with FLOODMARK_ALL_CASES (make soak).
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import corpus
import here
import pytest
import real_like
from command_line import GOLDEN
from corpus import Case
from how_many import cases
from no_spark import NoSpark
from stories import told

from floodmark.checkers.judge import layout, passes
from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.judge.report import as_json
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.read import history_parquet
from floodmark.checkers.read.folder import open_folder
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.parquet_dump import write_parquet
from floodmark.harness.verdict import Verdict

Folders = dict[str, Path]
MANY = 6  # cases that are judged in pieces: a unit of one run costs as much as one of hundreds
# What the driver knows of processes must reach the task that looks for cycles.
ALWAYS = "unknown: ops of a process after an info have no order"
TOLD = {  # what only several tasks together can know: values of many bags, a row that others need
    "values": "partitions 2; 1 acked 1 2 3 4 5 6; 2 send 1:6@0; 2 send 1:5@1; 2 send 1:4@2; 2 send 1:3@3",
    "rowless": "partitions 2; 1 acked 1; 1 acked 1:2; row n3/1 absent",
}


def json_of(verdict: Verdict) -> dict[str, Any]:
    """verdict.json without the timings."""
    kept = {key: value for key, value in as_json(verdict).items() if key != "timings_s"}
    return dict(json.loads(json.dumps(kept)))


def labels_of(case: Case) -> set[str]:
    """The findings and unknown names that a case shows, and its file."""
    found = [line for line in case.expected if ": " not in line]
    kinds = {f"{line.split()[0]} {'(' in line}" for line in found}
    unknown = {name for line in case.expected if ": " in line for name in line.split(": ")[1].split(", ")}
    return {case.file, f"{len(found)} of them at once", *kinds, *unknown}


def chosen(every: Iterable[Case], at_most: int = 1000) -> Iterator[Case]:
    """Cases that together show all labels, or most."""
    labels = {case: labels_of(case) for case in every}
    missing = set[str]().union(*labels.values())
    while missing and (at_most := at_most - 1) >= 0:
        best = max(labels, key=lambda case: len(labels[case] & missing))
        missing -= labels[best]
        yield best


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Enough cases, and saved runs."""
    root, every = tmp_path_factory.mktemp("few"), corpus.cases()
    some = every[:cases(len(every), few=0)] or list(chosen(every))
    saved = sorted(GOLDEN.iterdir())[::cases(1, few=4)]
    assert len(some) > 40
    written = {case.ident: case.write(root / str(number)) for number, case in enumerate(some)}
    return {name: path for name, path in written.items() if open_folder(path).judged} | {
        folder.name: folder for folder in saved}


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Runs of several partitions, and some of many lines: damaged, traced, with transactions."""
    root = tmp_path_factory.mktemp("big")
    every = [case for case in corpus.cases() if case.story[0].startswith("partitions ")]
    some = [*chosen(every, MANY), *(case for case in corpus.cases() if case.ident == ALWAYS)]
    many: dict[str, dict[str, Any]] = {
        "lost": {"ops": 300, "damage": "lost"}, "disorder": {"ops": 300, "damage": "disorder"},
        "traced": {"ops": 100, "trace": True}, "txn": {"ops": 200, "transactions": True}}
    return {
        **{case.ident: case.write(root / str(number)) for number, case in enumerate(some)},
        **{name: told(root / name, story) for name, story in TOLD.items()},
        **{name: real_like.write(root / name, partitions=2, **how) for name, how in many.items()}}


@pytest.fixture(scope="module")
def whole(few: Folders, big: Folders) -> dict[str, dict[str, Any]]:
    """The verdict on each, judged whole."""
    folders = few | big
    return dict(zip(folders, map(json_of, here.judge([*folders.values()])), strict=True))


# -- who reads and judges ---------------------------------------------------------------------------------

def in_pieces(folders: Sequence[Path], range_bytes: int = 12_000) -> list[Verdict]:
    """By many tasks."""
    works = [RunWork.of(run, open_folder(folder), range_bytes) for run, folder in enumerate(folders)]
    judged = passes.judged_by_many(NoSpark(), works)  # type: ignore[arg-type]
    return [judged[run] for run in range(len(works))]  # type: ignore[misc]


def test_by_many_tasks(big: Folders, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit for each partition."""
    monkeypatch.setattr(layout, "UNIT_BYTES", 300)
    for name, verdict in zip(big, in_pieces([*big.values()]), strict=True):
        assert json_of(verdict) == whole[name], name


@pytest.mark.parametrize(("range_bytes", "row_bytes"), [(300, passes.ROW_BYTES), (1 << 24, 1 << 30)])
def test_in_small_ranges_and_on_disk(
        few: Folders, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch, range_bytes: int,
        row_bytes: int) -> None:
    """A unit that is too large for its memory is put into tables piece by piece."""
    monkeypatch.setattr(passes, "ROW_BYTES", row_bytes)
    for name, verdict in zip(few, here.judge([*few.values()], range_bytes=range_bytes), strict=True):
        assert json_of(verdict) == whole[name], name


@pytest.mark.spark
def test_by_spark(few: Folders, whole: dict[str, Any]) -> None:
    for name, verdict in zip(few, SparkJudge().judge([*few.values()]), strict=True):
        assert json_of(verdict) == whole[name], name


@pytest.mark.spark
def test_by_spark_in_pieces(
        big: Folders, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BIG_BYTES", 0)
    some = [ALWAYS, *list(big)[:2], "values"]
    for name, verdict in zip(some, SparkJudge().judge([big[name] for name in some]), strict=True):
        assert json_of(verdict) == whole[name], name


@pytest.mark.long
def test_a_run_three_times_as_large_as_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit of 860,000 rows, which take some 200 MB. Tables go to disk, and there is no finding."""
    spilled: list[int] = []
    run_families = passes.run_families

    def recording(unit: Unit, families: Any) -> None:
        run_families(unit, families)
        spilled.append(int(unit.rows("select sum(size) as size from duckdb_temporary_files()")[0][0].as_py()))

    monkeypatch.setattr(passes, "run_families", recording)
    monkeypatch.setattr(passes, "MOST_MEMORY_MB", 64)
    [verdict] = in_pieces([real_like.write(tmp_path / "run", ops=60_000, partitions=1)], 1 << 24)
    assert (verdict.valid, verdict.findings, verdict.unknown) == (True, (), ())
    assert [size > 10 << 20 for size in spilled] == [True]


# -- who wrote --------------------------------------------------------------------------------------------

LINES = ("history.jsonl", "trace.jsonl", "logs/*.jsonl")


def extended(value: Any, top: bool = True) -> Any:
    """With more fields in every object."""
    if isinstance(value, list):
        return [extended(each, top=False) for each in value]
    if not isinstance(value, dict):
        return value
    more = {"\N{SNOWMAN}": "h-1", "load": 0.25} if top else {"age_ms": None}
    return {**more, **{name: extended(each, top=False) for name, each in value.items()}}


def in_cyrillic(text: str) -> str:
    """With node names in Cyrillic."""
    return re.sub(r"\bn([0-9])\b", "\N{CYRILLIC SMALL LETTER EN}\\1", text)


WRITERS: dict[str, Callable[[Any], str]] = {
    "sorted": lambda row: json.dumps(row, sort_keys=True),
    "spaced": lambda row: json.dumps(row, separators=(" , ", " : ")),
    "extended": lambda row: json.dumps(extended(row), ensure_ascii=False),
    "UTF-8": lambda row: json.dumps(row, ensure_ascii=False, separators=(",", ":")),
    "escaped": json.dumps,
}
NAMES_CHANGE = ("UTF-8", "escaped")


def rewritten(folder: Path, to: Path, writer: str) -> Path:
    """A copy of the folder with each JSON line rewritten; other lines stay."""
    shutil.copytree(folder, to)
    if writer in NAMES_CHANGE:
        for path in [*to.glob("*.json"), *to.glob("*.jsonl"), *to.glob("logs/*.jsonl")]:
            path.write_text(in_cyrillic(path.read_text(errors="surrogateescape")), errors="surrogateescape")
            path.rename(path.with_name(in_cyrillic(path.name)))
    for path in (path for each in LINES for path in to.glob(each) if path.is_file()):
        lines = path.read_text(errors="surrogateescape").split("\n")
        text = "\n".join(line_of(line, writer) for line in lines)
        path.write_text(text, errors="surrogateescape")
    return to


def line_of(line: str, writer: str) -> str:
    try:
        return WRITERS[writer](json.loads(line))
    except ValueError:
        return line


def test_as_another_program_writes_it(few: Folders, whole: dict[str, Any], tmp_path: Path) -> None:
    """Each by one of the writers; by each with FLOODMARK_ALL_CASES."""
    names, some = list(WRITERS), cases(len(WRITERS), few=1)
    pairs = [(name, names[(at + more) % len(names)]) for at, name in enumerate(few) for more in range(some)]
    folders = [rewritten(few[name], tmp_path / str(at), writer) for at, (name, writer) in enumerate(pairs)]
    for (name, writer), verdict in zip(pairs, here.judge(folders), strict=True):
        expected = json.dumps(whole[name], ensure_ascii=False)
        expected = in_cyrillic(expected) if writer in NAMES_CHANGE else expected
        assert json_of(verdict) == json.loads(expected), (name, writer)


def test_from_parquet(
        few: Folders, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dumps without their lines, and a history beside them, where all lines are good."""
    monkeypatch.setattr(history_parquet, "FROM_BYTES", 1)
    folders, written = [], 0
    for at, folder in enumerate(few.values()):
        folders.append(Path(shutil.copytree(folder, tmp_path / str(at))))
        for lines in folders[-1].glob("logs/*.jsonl"):
            try:
                write_parquet(lines)
            except FloodmarkError:
                continue
            lines.unlink()
            written += 1
        history = folders[-1] / "history.jsonl"
        written += history.is_file() and history_parquet.keep(history) is not None
    assert written > 3 * len(few)
    for name, verdict in zip(few, here.judge(folders), strict=True):
        assert json_of(verdict) == whole[name], name
