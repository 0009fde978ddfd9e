"""`floodmark demo` for real: six runs and one table, the one in the README."""

from pathlib import Path

import pytest
from command_line import floodmark

from floodmark.harness.commands.scenario import HEADINGS, WIDTH

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.spark]
README = Path(__file__).parents[2] / "README.md"


def test_the_demo_prints_the_readmes_table(tmp_path: Path) -> None:
    """Every row's cells are in the README, in order; only paths are wider than a screen."""
    answer = floodmark("demo", "--out", tmp_path / "demo")
    assert answer.code == 0, answer.out + answer.err
    lines = answer.out.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith(HEADINGS[0]))
    rows = [" ".join(line.split()) for line in (lines[begin], *lines[begin + 2:begin + 8])]
    section = README.read_text().partition("## What you see in the demo")[2].partition("\n## ")[0]
    table = [line.strip("| ").replace(" | ", " ") for line in section.splitlines() if line.startswith("| ")]
    assert table == rows
    wide = [line for line in answer.out.splitlines() if len(line) > WIDTH and str(tmp_path) not in line]
    assert wide == []
    assert [line for line in answer.err.splitlines() if len(line) > WIDTH and str(tmp_path) not in line] == []
    assert "* both runs have the known bug no_epoch_bump_on_bounce" in answer.out
