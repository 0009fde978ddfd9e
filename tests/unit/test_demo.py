"""The demo's table: as in the README, no wider than a screen, with a mark where a bug was put in."""

import json
from pathlib import Path

import pytest

from floodmark.checkers.judge import report
from floodmark.harness.commands.scenario import WHY_A_BUG, WIDTH, Outcome, demo_acts, demo_table, notes
from floodmark.harness.pipeline import Play, Played
from floodmark.harness.verdict import Finding, Verdict

README = Path(__file__).parents[2] / "README.md"


def printed(text: str) -> list[tuple[str, ...]]:
    """The same of the table that the demo prints: columns two spaces apart, found by the rule in line 2."""
    lines = text.splitlines()
    begins = [at for at, mark in enumerate(lines[1]) if mark == "-" and (at == 0 or lines[1][at - 1] == " ")]
    ends = [*begins[1:], None]
    rows = [tuple(line[begin:end].strip() for begin, end in zip(begins, ends, strict=True)) for line in lines]
    return [rows[0], *rows[2:]]


def lost(count: int, offset: int, by: str | None = None) -> Finding:
    klass = "bug" if by is None else "permitted"
    return Finding(name="lost-write", klass=klass, permitted_by=by, count=count,
                   examples=({"partition": 0, "offset": offset, "value": offset},))


DIVERGED = Finding(name="diverged", klass="bug", permitted_by=None, count=5,
                 examples=({"partition": 0, "offset": 5},))
COUNTS = {"ops": 5}
FOUND = (  # the verdicts of the six runs
    Verdict(valid=False, findings=(lost(1, 3),), counts=COUNTS),
    Verdict(valid=True, counts=COUNTS),
    Verdict(valid=False, findings=(DIVERGED, lost(5, 5, "fault budget")), counts=COUNTS),
    Verdict(valid=True, findings=(lost(5, 5, "fault budget"),), counts=COUNTS),
    Verdict(valid=False, findings=(lost(1, 3),), counts=COUNTS),
    Verdict(valid=True, counts=COUNTS),
)


@pytest.fixture
def shown(tmp_path: Path) -> str:
    """The table of runs with these verdicts."""
    outcomes = []
    for number, (part, verdict) in enumerate(zip(demo_acts(), FOUND, strict=True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        about = {"format": 1, "ended": "done", "died": [], "schedule": []}
        (folder / "run.json").write_text(json.dumps(about))
        report.write_verdict(folder, verdict)
        play = Play(title="", folder=folder, plan=pytest.fail)
        played = Played(play=play, folder=folder, tries=1, seconds=1.0)
        outcomes.append(Outcome(part=part, played=played, verdict=verdict, differences=()))
    return demo_table(outcomes)


def test_it_fits_a_screen_and_shows_where_and_why_a_bug_was_put_in(shown: str) -> None:
    """With room for numbers of two more digits."""
    notes_text = notes(demo_acts())
    assert max(map(len, shown.splitlines())) <= WIDTH - 4
    assert max(map(len, notes_text.splitlines())) <= WIDTH
    assert {row[0] for row in printed(shown) if row[1].endswith("*")} == {"restart-cuts-follower"}
    assert "no_epoch_bump_on_bounce" in notes_text
    assert "KAFKA-1120" in notes_text
    assert WHY_A_BUG.keys() == {bug for part in demo_acts() for bug in part.row.bugs}
