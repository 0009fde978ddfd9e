"""Every law finds the same whatever the order of rows and the number of threads; many transactions too.

That the same statements are executed whatever is wrong: test_laws_growth.py.
"""

import re
from pathlib import Path
from random import Random

import corpus
import here
import pyarrow as pa
import pytest
import real_like
from stories import told

from floodmark.checkers.laws import cycles
from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.laws import values as of_values
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.unit import opened, run_families
from floodmark.checkers.read.folder import open_folder
from histories import RunFolder, healthy

Tables = dict[str, pa.Table]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """All tables of the laws, of one unit: some of the corpus's cases in which something is found, damages by
    the hundred, and transactions."""
    root = tmp_path_factory.mktemp("damaged")
    found = [case for case in corpus.cases()
             if any(not line.startswith(("unknown", "not made")) for line in case.expected)]
    folders = [*(case.write(root / str(number)) for number, case in enumerate(found[::8])),
               *(real_like.write(root / damage, ops=1000, damage=damage) for damage in real_like.DAMAGES),
               *(healthy(Random(seed), steps=900, transacts=True).write(root / f"busy-{seed}")
                 for seed in range(3))]
    return here.tables_of([open_folder(path) for path in sorted(folders)])


def found_in(tables: Tables, threads: int = 1) -> tuple[list[str], list[str]]:
    """What is claimed, and the statements."""
    with opened(tables, threads=threads) as unit:
        if threads > 1:
            unit._db.execute("set preserve_insertion_order = false")
        run_families(unit, FAMILIES)
        return sorted(map(str, unit.rows("from claimed").to_pylist())), list(unit.statements)


def test_the_order_of_rows_and_the_number_of_threads_do_not_matter(
        tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables whose rows are in any order, and slices of the values. An aggregate of a whole window needs no
    order; a place in it, or a frame, does."""
    usual, statements = found_in(tables)
    random = Random(1)
    shuffled = {name: table.take(pa.array(random.sample(range(len(table)), len(table)), pa.int64()))
                for name, table in tables.items()}
    found, _ = found_in(shuffled, threads=4)
    assert set(found) ^ set(usual) == set()
    assert len(found) == len(usual) > 1000

    monkeypatch.setattr(of_values, "SLICE_ROWS", 2_000)
    assert found_in(tables)[0] == usual

    windows = [window for statement in statements for window in re.findall(
        r"(?:(?:lag|lead|row_number|rank|first_value|last_value)\([^()]*\)(?: ignore nulls)?"
        r"|\)) over \(([^()]*)", statement)]
    assert len(windows) > 10
    assert [one for one in windows if "order by" not in one and not one.startswith("partition by")] == []


# -- runs with many transactions -----------------------------------------------------------------------------


def busy(steps: int) -> RunFolder:
    return healthy(Random(3), steps=steps, transacts=True)


def test_thousands_of_transactions_of_a_correct_cluster_have_no_bug(tmp_path: Path) -> None:
    """Records of two may lie between one another, which Kafka permits."""
    (verdict,) = here.judge([busy(9_000).write(tmp_path / "run")])

    assert (verdict.valid, {one.name for one in verdict.findings}) == (True, {names.G0})


def test_a_run_with_too_many_edges_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reason; its neighbour is judged."""
    few = told(tmp_path / "few", "partitions 2; log 10 1:20; 1 invoke txn 10; 2 invoke txn 1:20",
               "1 ok txn 10@0 reads 1:20@0; 2 ok txn 1:20@0 reads 10@0")
    many = busy(90).write(tmp_path / "many")
    monkeypatch.setattr(cycles, "MOST_EDGES", 10)

    by_name, left_out = here.judge([few, many])

    assert [one.name for one in by_name.findings] == ["G1c"]
    assert by_name.unknown == ()
    (unknown,) = left_out.unknown
    assert {*unknown.names} == {*names.CYCLES}
    assert re.match(r"\d\d+ dependencies among the ops of this run .* among 10 at the most", unknown.reason)
