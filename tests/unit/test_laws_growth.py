"""Whatever is wrong with a run, the laws' work grows with its records, not with their square.

Work is counted (laws_growth), not timed; each shape is a run in which nearly every record is odd in one way.
"""

from pathlib import Path

import laws_growth
import laws_shapes
import pytest

FEW, MANY = 200, 800  # records


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The statements that a healthy run is asked."""
    root = tmp_path_factory.mktemp("healthy") / "run"
    return laws_growth.work_of(laws_shapes.tables("healthy", records=FEW, root=root)).statements


@pytest.mark.parametrize("name", laws_shapes.SHAPES)
def test_the_work_grows_with_the_records(name: str, asked: list[str], tmp_path: Path) -> None:
    """And nothing is asked again, or left out, because something was found."""
    few, many = (
        laws_growth.work_of(laws_shapes.tables(name, records=records, root=tmp_path / str(records)))
        for records in (FEW, MANY)
    )

    assert laws_growth.grown(few, many, times=1.4 * MANY / FEW, floor=40 * MANY) == {}
    assert few.statements == many.statements == asked
