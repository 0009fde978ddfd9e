"""The demo's table: as the README has it, no wider than a screen, and it says where a bug was put in."""

import json
from pathlib import Path

import pytest

from floodmark.checkers.judge import report
from floodmark.harness.commands import demo
from floodmark.harness.commands.demo import WIDTH, demo_acts, notes, table
from floodmark.harness.verdict import Finding, Verdict

README = Path(__file__).parents[2] / "README.md"


def rows_of(text: str) -> list[tuple[str, ...]]:
    """A Markdown table's rows, without the line under the head."""
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines()]
    return [rows[0], *rows[2:]]


def in_readme() -> list[tuple[str, ...]]:
    section = README.read_text().partition("## What you see in the demo")[2].partition("\n## ")[0]
    return rows_of("\n".join(line for line in section.splitlines() if line.startswith("|")))


def printed(text: str) -> list[tuple[str, ...]]:
    """The same of the table that the demo prints: its columns stand two spaces apart, by the ruling."""
    lines = text.splitlines()
    begins = [at for at, mark in enumerate(lines[1]) if mark == "-" and (at == 0 or lines[1][at - 1] == " ")]
    ends = [*begins[1:], None]
    rows = [tuple(line[begin:end].strip() for begin, end in zip(begins, ends, strict=True)) for line in lines]
    return [rows[0], *rows[2:]]


def lost(count: int, offset: int, by: str | None = None) -> Finding:
    klass = "bug" if by is None else "permitted"
    return Finding(name="lost-write", klass=klass, permitted_by=by, count=count,
                   examples=({"partition": 0, "offset": offset, "value": offset},))


PARTED = Finding(name="diverged", klass="bug", permitted_by=None, count=5,
                 examples=({"partition": 0, "offset": 5},))
COUNTS = {"ops": 5}
FOUND = (  # as the six runs come out
    Verdict(valid=False, findings=(lost(1, 3),), counts=COUNTS),
    Verdict(valid=True, counts=COUNTS),
    Verdict(valid=False, findings=(PARTED, lost(5, 5, "fault budget")), counts=COUNTS),
    Verdict(valid=True, findings=(lost(5, 5, "fault budget"),), counts=COUNTS),
    Verdict(valid=False, findings=(lost(1, 3),), counts=COUNTS),
    Verdict(valid=True, counts=COUNTS),
)


@pytest.fixture
def shown(tmp_path: Path) -> str:
    """The table of runs that came out so."""
    folders = []
    for number, verdict in enumerate(FOUND):
        folder = tmp_path / str(number)
        folder.mkdir()
        about = {"format": 1, "ended": "done", "died": [], "schedule": []}
        (folder / "run.json").write_text(json.dumps(about))
        report.write(folder, verdict)
        folders.append(folder)
    return table(demo_acts(), folders, FOUND)


def test_the_readme_has_the_demos_own_table(shown: str) -> None:
    """Headings and rows, in its order."""
    assert in_readme() == printed(shown)


def test_it_fits_a_screen_and_says_where_a_bug_was_put_in_and_why(shown: str) -> None:
    """Numbers of two more digits fit too."""
    told = notes(demo_acts())
    assert max(map(len, shown.splitlines())) <= WIDTH - 4
    assert max(map(len, told.splitlines())) <= WIDTH
    assert {row[0] for row in printed(shown) if row[1].endswith("*")} == {"restart-cuts-follower"}
    assert "no_epoch_bump_on_bounce" in told
    assert "KAFKA-1120" in told
    assert demo.WHY_A_BUG.keys() == {bug for part in demo_acts() for bug in part.row.bugs}
