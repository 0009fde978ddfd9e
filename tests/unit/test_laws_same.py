"""The same statements are executed for every folder, whatever is wrong with it; those of the trace only where
a folder of the unit has one, and the last ones of completeness where anything is suspected."""

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import corpus
import here
import pyarrow as pa
import pytest
import real_like
from folders import Tale
from txn_tales import busy

from floodmark.checkers.judge import passes
from floodmark.checkers.laws import values as of_values
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.unit import Unit, opened, run_families
from floodmark.checkers.read.folder import open_folder

GOLDEN = Path(__file__).parents[2] / "histories/golden"
Ran = tuple[tuple[str, ...], list[frozenset[str]]]


def healthy(tale: Tale) -> None:
    tale.acked(1, 2, 3, process=1).acked(4, 5, process=2).poll(3, (0, 1), (1, 2)).ends(3, 5)


def damaged(tale: Tale) -> None:
    """Some of each: lost, overwritten, duplicated, read too early, out of order, skipped."""
    tale.poll(3, (7, 12)).acked(1, 2, 3, 4, 5, 6).send(2, 7, at=[4]).send(2, 8, at=[2]).send(
        1, 9, kind="fail"
    )
    tale.logged(9, 2).logged(11, epoch=2, nodes=("n2",)).logged(12, epoch=1, nodes=("n2",)).drop("n1", 1)
    tale.poll(4, (0, 1), (5, 6), (3, 4)).poll(4, (1, 3)).ends(4, 2).ends(4, 1).send(5, 2)
    tale.op(6, "txn", asked={"sends": [{"partition": 0, "value": 12}]}, sends=[{"partition": 0, "value": 12}],
            reads=[{"partition": 0, "offset": 7, "value": 12}])  # fmt: skip
    tale.row("n3")["hw"] = 99


def ran_on(folders: Sequence[Path]) -> Ran:
    """The statements of every family for all folders in one unit, and the findings' names of each folder."""
    ran = list[str]()

    def recording(unit: Unit, families: Any) -> None:
        run_families(unit, families)
        ran.extend(unit.statements)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(passes, "run_families", recording)
        verdicts = here.judge(folders, FAMILIES)
    assert [verdict.failure for verdict in verdicts if verdict.failure] == []
    return tuple(ran), [frozenset(one.name for one in verdict.findings) for verdict in verdicts]


@pytest.fixture(scope="module", name="usual")
def statements_of_a_healthy_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    tale = Tale()
    healthy(tale)
    statements, (found,) = ran_on([tale.write(tmp_path_factory.mktemp("healthy") / "run")])
    assert not found
    return statements


def test_a_damaged_run(usual: tuple[str, ...], tmp_path: Path) -> None:
    tale = Tale()
    damaged(tale)

    statements, (found,) = ran_on([tale.write(tmp_path / "run")])

    assert statements == usual
    assert len(found) >= 12


def test_an_empty_run(usual: tuple[str, ...], tmp_path: Path) -> None:
    assert ran_on([Tale(final=False).write(tmp_path / "run")])[0] == usual


FOUND = [case for case in corpus.cases()
         if any(not line.startswith(("unknown", "not made")) for line in case.expected)]


@pytest.fixture(scope="module")
def damaged_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every fourth of the corpus's cases in which something is found, and damages by the hundred."""
    root = tmp_path_factory.mktemp("damaged")
    return [case.write(root / str(number)) for number, case in enumerate(FOUND[::4])] + [
        real_like.write(root / damage, ops=1000, damage=damage) for damage in real_like.DAMAGES]


@pytest.fixture(scope="module", name="together")
def judged_together(damaged_folders: list[Path]) -> Ran:
    return ran_on(damaged_folders)


def test_every_damage_in_one_unit(usual: tuple[str, ...], together: Ran) -> None:
    """The statements of a healthy run are executed, in their order, and those of the trace between them; each
    damage is found among the others."""
    statements, found = together

    others = iter(statements)
    assert all(statement in others for statement in usual)
    assert all(found)
    assert {*real_like.DAMAGES.values()} <= frozenset().union(*found)


# -- the order of rows --------------------------------------------------------------------------------------


def test_no_window_takes_rows_in_the_order_in_which_they_happen_to_be(together: Ran) -> None:
    """An aggregate of a whole partition needs no order; a place in it, or a frame, does."""
    windows = [window for statement in together[0] for window in re.findall(
        r"(?:(?:lag|lead|row_number|rank|first_value|last_value)\([^()]*\)(?: ignore nulls)?"
        r"|\)) over \(([^()]*)", statement)]
    assert len(windows) > 10
    assert [one for one in windows if "order by" not in one and not one.startswith("partition by")] == []


def laws_tables(folders: Sequence[Path]) -> dict[str, pa.Table]:
    """All tables of the laws, of these folders in one unit."""
    return here.tables_of([open_folder(path) for path in folders])


def found_in(tables: dict[str, pa.Table], threads: int = 1) -> list[str]:
    with opened(tables, threads=threads) as unit:
        if threads > 1:
            unit._db.execute("set preserve_insertion_order = false")
        run_families(unit, FAMILIES)
        return sorted(map(str, unit.rows("from claimed").to_pylist()))


def test_the_order_of_rows_and_the_number_of_threads_do_not_matter(
        damaged_folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every law finds the same in tables whose rows are in any order, and by slices of the values."""
    expected = set(damaged_folders)
    expected |= {busy(seed, 200).write(tmp_path / f"busy-{seed}") for seed in range(3)}
    tables = laws_tables(sorted(expected))
    usual = found_in(tables)

    for seed in range(2):
        random = Random(seed)
        shuffled = {name: table.take(pa.array(random.sample(range(len(table)), len(table)), pa.int64()))
                    for name, table in tables.items()}
        found = found_in(shuffled, threads=4)
        assert set(found) ^ set(usual) == set()
        assert len(found) == len(usual)
    assert len(usual) > 1000

    monkeypatch.setattr(of_values, "SLICE_ROWS", 500)
    assert found_in(tables) == usual
