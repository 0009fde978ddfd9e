"""What a fault cost: the figures of the runs of stats.txt, each told by its ops and faults in seconds
(stories.py). Below a run `=` has its own figures, `*` those of a fault; what is null is left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_text import GOLDEN, as_written
from stories import in_seconds

from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.stats.measures import measured
from floodmark.checkers.stats.tables import KEPT
from floodmark.harness.errors import FloodmarkError


def shown(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={round(value, 6) if isinstance(value, float) else value}".replace(", ", ",")
                    for name, value in row.items() if value is not None)


def figures(story: list[str], folder: Path) -> Iterator[str]:
    row = measured(open_folder(in_seconds(folder, *story)))
    assert row.keys() == set(KEPT.names)
    faults = row.pop("of_faults")
    yield f"= {shown(row)}"
    yield from (f"* {shown(dict(fault))}" for fault in faults)


def test_the_figures_of_each_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    now = ""
    for number, part in enumerate((GOLDEN / "stats.txt").read_text().removeprefix("== ").split("\n== ")):
        given = [line for line in part.splitlines() if line[:2] not in ("= ", "* ")]
        story = [line for line in given[1:] if not line.startswith(("#", " "))]
        now += "\n".join([f"== {given[0]}", *given[1:], *figures(story, tmp_path / str(number)), ""])
    as_written("stats.txt", now, request)


def test_a_broken_line_is_counted_and_a_torn_last_one_is_not(tmp_path: Path) -> None:
    folder = in_seconds(tmp_path / "run", "1 8-9")
    with (folder / "history.jsonl").open("a") as history:
        history.write('{"index": 20}\n{"ind')
    row = measured(open_folder(folder))
    assert (row["broken_lines"], row["ok"]) == (1, 1)
    (folder / "history.jsonl").unlink()
    with pytest.raises(FloodmarkError, match=r"^history\.jsonl: No such file"):
        measured(open_folder(folder))
