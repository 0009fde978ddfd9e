"""Every law finds the same whatever the order of rows and the number of threads.

That the same statements are executed whatever is wrong: test_laws_growth.py.
"""

import re
from random import Random

import corpus
import here
import pyarrow as pa
import pytest
import real_like

from floodmark.checkers.laws import values as of_values
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.unit import opened, run_families
from floodmark.checkers.read.folder import open_folder
from histories import healthy

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
