"""A run that is cut up over many tasks has the verdict it has in one task, byte for byte but for timings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import here
import pytest
import real_like
from folders import Tale
from no_spark import NoSpark
from txn_tales import began, ended

from floodmark.checkers.judge import two_passes
from floodmark.checkers.judge.report import as_json
from floodmark.checkers.judge.two_passes import Layout, judged_in_pieces
from floodmark.checkers.judge.whole_runs import RunWork
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.read import seqs
from floodmark.checkers.read.folder import open_folder

RANGE_BYTES = 12_000
# Of sends, of reads and logs, and of the ends that clients are told; test_real_like.py has all of them.
DAMAGES = (None, "lost", "disorder", "ends")
GOLDEN = Path(__file__).parents[2] / "histories" / "golden"


def told(verdict: Any) -> dict[str, Any]:
    return {key: value for key, value in as_json(verdict).items() if key != "timings_s"}


def in_pieces(folders: Sequence[Path], range_bytes: int = RANGE_BYTES) -> list[dict[str, Any]]:
    opened = [open_folder(folder) for folder in folders]
    works = [RunWork.of(run, folder, range_bytes) for run, folder in enumerate(opened)]
    judged = judged_in_pieces(NoSpark(), works)  # type: ignore[arg-type]
    return [told(judged[run]) for run in range(len(opened))]


def both(folders: Sequence[Path], range_bytes: int = RANGE_BYTES) -> list[dict[str, Any]]:
    """As judged in pieces, which is as they are judged whole."""
    verdicts = in_pieces(folders, range_bytes)
    for folder, verdict, whole in zip(folders, verdicts, here.judge(folders), strict=True):
        assert verdict == told(whole), folder
    return verdicts


@pytest.fixture(scope="module", autouse=True)
def small_units() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(two_passes, "UNIT_BYTES", RANGE_BYTES)
        yield


def test_golden_folders() -> None:
    """Those that have more than one unit, and a few others."""
    folders = sorted(path.parent for path in GOLDEN.glob("*/run.json"))
    several = [folder for folder in folders if len(open_folder(folder).partitions) > 1]
    assert several
    both(list(dict.fromkeys([*several, *folders[::8]])))


@pytest.fixture(scope="module")
def judged(small_units: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, dict[str, Any]]:
    """A healthy run and one of each damage, all in one call."""
    root = tmp_path_factory.mktemp("damaged")
    folders = [real_like.write(root / str(damage), ops=600, damage=damage, partitions=2)
               for damage in DAMAGES]
    return dict(zip(DAMAGES, both(folders), strict=True))


@pytest.mark.parametrize("damage", DAMAGES)
def test_healthy_and_damaged(judged: dict[str | None, dict[str, Any]], damage: str | None) -> None:
    found = {finding["name"] for finding in judged[damage]["findings"]}
    assert found >= ({real_like.DAMAGES[damage]} if damage else set())
    assert judged[damage]["unknown"] == []


def test_a_trace_and_transactions(tmp_path: Path) -> None:
    both([
        real_like.write(tmp_path / "traced", ops=200, trace=True, partitions=2),
        real_like.write(tmp_path / "txn", ops=400, transactions=True, partitions=2),
    ])  # fmt: skip


def test_a_trace_in_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seqs are too scattered for the driver; tasks find that none is missing, or one."""
    monkeypatch.setattr(seqs, "SEQ_INTERVALS", 5)
    whole, gap = (real_like.write(tmp_path / name, ops=100, trace=True, partitions=1)
                  for name in ("whole", "gap"))
    for folder in (whole, gap):
        lines = (folder / "trace.jsonl").read_bytes().splitlines(keepends=True)
        Random(7).shuffle(lines)
        (folder / "trace.jsonl").write_bytes(b"".join(lines[folder == gap:]))
    verdicts = both([whole, gap])
    assert [verdict["findings"] for verdict in verdicts] == [[], []]
    assert ["seq has a gap" in str(verdict["unknown"]) for verdict in verdicts] == [False, True]
    assert [verdict["valid"] for verdict in verdicts] == [True, "unknown"]


def test_what_only_several_units_show_together(tmp_path: Path) -> None:
    """A cycle through two partitions; a value that was sent to two."""
    cycle = Tale(partitions=2)
    began(cycle, 5, (0, 0, 1))
    began(cycle, 6, (1, 0, 2))
    ended(cycle, 5, (0, 0, 1), reads=[(1, 0, 2)])
    ended(cycle, 6, (1, 0, 2), reads=[(0, 0, 1)])
    cycle.logged(1, partition=0).logged(2, partition=1)
    cycle.write(tmp_path / "cycle")
    twice = Tale(partitions=2).acked(1)
    twice.send(2, 1, at=[0], partition=1)
    twice.write(tmp_path / "twice")
    found = both([tmp_path / "cycle", tmp_path / "twice"], 300)
    assert [finding["name"] for finding in found[0]["findings"]] == ["G1c"]
    assert "more than once" in str(found[1]["unknown"])


def test_a_unit_beyond_its_memory_is_put_into_tables_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[str] = []
    append = Unit.append

    def noting(unit: Any, name: str, rows: Any) -> None:
        appended.append(name)
        append(unit, name, rows)

    monkeypatch.setattr(Unit, "append", noting)
    monkeypatch.setattr(two_passes, "ROW_BYTES", 1 << 30)
    folder = real_like.write(tmp_path / "run", ops=300, damage="disorder", partitions=1)
    both([folder])
    assert {"sends", "reads", "entries"} <= set(appended)


def test_a_run_three_times_as_large_as_its_memory_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit of 860,000 rows, which take some 200 MB; tables go to disk, and nothing is found amiss."""
    spilled: list[int] = []
    run_families = two_passes.run_families

    def noting(unit: Unit, families: Any) -> Any:
        found = run_families(unit, families)
        spilled.append(int(unit.rows("select sum(size) as size from duckdb_temporary_files()")[0][0].as_py()))
        return found

    monkeypatch.setattr(two_passes, "run_families", noting)
    monkeypatch.setattr(two_passes, "MOST_MEMORY_MB", 64)
    folder = real_like.write(tmp_path / "run", ops=60_000, partitions=1)
    [verdict] = in_pieces([folder], 1 << 24)
    assert (verdict["valid"], verdict["findings"], verdict["unknown"]) == (True, [], [])
    assert len(spilled) == 1
    assert spilled[0] > 10 << 20


def test_units_follow_from_bytes_cores_and_partitions(tmp_path: Path) -> None:
    folder = real_like.write(tmp_path / "run", ops=10, partitions=3)
    work = RunWork.of(7, open_folder(folder))
    counts = {
        size: Layout.of([replace(work, size=size)], 2).count[7] for size in (1, RANGE_BYTES * 3, 1 << 40)
    }
    assert counts == {1: 2, RANGE_BYTES * 3: 3, 1 << 40: 3}


def test_every_unit_has_its_place(tmp_path: Path) -> None:
    folder = open_folder(real_like.write(tmp_path / "run", ops=10, partitions=3))
    layout = Layout.of([RunWork.of(run, folder) for run in (2, 5)], 8)
    every = [target for run in (2, 5) for target in layout.needing(run, two_passes.EVERY)]
    assert every == list(layout.of_units)
    assert list(layout.units) == [(run, number) for run in (2, 5) for number in range(3)]
    assert [*layout.needing(5, 1)] == [every[4]]
