"""Whatever is wrong with a run, the laws' work grows linearly with its records, not quadratically.

Work is counted (laws_growth), not timed; each shape is a run in which nearly every record is odd in one way.
Several shapes are judged in one unit: quadratic growth of one shows in the sum, for the others grow
linearly.
"""

from pathlib import Path

import laws_growth
import laws_shapes
import pytest

FEW, MANY = 60, 240  # ops of each run
UNITS = 2
SHAPES = [tuple(laws_shapes.SHAPES)[number::UNITS] for number in range(UNITS)]


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The statements executed for a healthy run."""
    root = tmp_path_factory.mktemp("healthy") / "run"
    return laws_growth.work_of(laws_shapes.tables("healthy", ops=FEW, root=root)).statements


@pytest.mark.parametrize("names", SHAPES, ids=lambda names: f"{names[0]} and {len(names) - 1} more")
def test_the_work_grows_with_the_records(
        names: tuple[str, ...], statements: list[str], tmp_path: Path) -> None:
    """No statement is repeated because something was found; those of a healthy run are executed in their
    order."""
    few, many = (
        laws_growth.work_of(laws_shapes.tables(*names, ops=ops, root=tmp_path / str(ops)))
        for ops in (FEW, MANY)
    )

    assert laws_growth.grown(few, many, times=1.4 * MANY / FEW, floor=40 * MANY) == {}
    assert few.statements == many.statements
    others = iter(many.statements)
    assert all(statement in others for statement in statements)
