"""The class archive's file: one an environment, and only the newest few are kept."""

import os
from pathlib import Path

from checkers import archive


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for age in range(6):
        path = tmp_path / f"spark-4.3.0-{age}.jsa"
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "something-else").touch()
    newest = tmp_path / "spark-4.3.0-5.jsa"  # by its time the oldest, and yet the one just made

    archive.prune(newest)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "something-else", "spark-4.3.0-0.jsa", "spark-4.3.0-1.jsa", "spark-4.3.0-5.jsa"]  # fmt: skip
