"""The strikes that a report counts: those of the history, and those that were planned and never came."""

import json
from pathlib import Path
from typing import Any

import pytest

from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.report import verdict_text
from floodmark.harness.report.gate_outcomes import Outcome, markdown
from floodmark.harness.report.run_outcome import ruling
from floodmark.harness.report.schedule_outcome import strikes_of, strikes_text

KILL, START, WAIT = {"f": "kill", "nodes": ["leader"]}, {"f": "start", "nodes": ["down"]}, {"f": "wait"}
ELEVEN = [each for _ in range(11) for each in (KILL, START)]


def acts(*fs: str, error: str | None = None) -> list[Op]:
    return [Op(index=index, time=index, process=NEMESIS, type=Type.INFO, f=f,
               fault={"nodes": ["n1"], **({"error": error} if error else {})})
            for index, f in enumerate(fs)]


def about(schedule: list[dict[str, Any]], missed: list[int], ended: str | None = "done") -> dict[str, Any]:
    return {"format": 1, "nodes": ["n1"], "schedule": schedule, "missed": missed, "ended": ended}


@pytest.mark.parametrize(("fs", "run", "expected"), [
    # Eleven were planned; the moments of eight never came, and their starts found no node down.
    (("kill", "start") * 3, about(ELEVEN, list(range(6, 22, 2))),
     "3 kill; missed because the moment never came: 8 kill"),
    (("start",), about([KILL, START], [0, 1]),  # a start is carried out, whether its moment came or not
     "nothing; missed because the moment never came: 1 kill"),
    (("kill",), about([KILL, START, KILL, START], [], "interrupted"),
     "1 kill; not begun when the run ended: 1 kill"),
    (("arm", "kill", "release", "start", "heal", "resume", "mend_disk", "reset_clock", "free_memory"),
     about([], []), "1 kill"),  # only what harms is a strike
    (("kill",), about([KILL, START, KILL], [2], None),
     "1 kill; missed because the moment never came: 1 kill"),
    (("kill",), about([KILL, WAIT, {"f": "send"}], [1], "interrupted"), "1 kill"),
    (("kill", "cut"), about([], []), "1 cut, 1 kill"),  # of a history from elsewhere
    (("kill",), {"schedule": "none", "missed": 3}, "1 kill"),
    (("kill",), about([KILL, "no entry"], [1, 7, "x"], "done"),  # type: ignore[list-item]
     "1 kill; missed because the moment never came: 1 ?"),
    ((), about([KILL], []), ""),
])
def test_the_strikes_are_counted_and_not_the_plan(
        fs: tuple[str, ...], run: dict[str, Any], expected: str) -> None:
    assert strikes_text(strikes_of(acts(*fs), run)) == expected


def test_a_strike_that_failed_half_way_is_counted_as_such() -> None:
    ops = [*acts("kill"), *acts("cut", error="no such chain")]
    assert strikes_text(strikes_of(ops, about([], []))) == "1 cut, 1 kill; failed half-way: 1 cut"
    ops = [*acts("kill"), *acts("start", error="no such file")]
    assert strikes_text(strikes_of(ops, about([], []))) == "1 kill; failed half-way: 1 start"


@pytest.mark.parametrize("gap", ["", " "])
def test_every_report_has_the_same_count(tmp_path: Path, gap: str) -> None:
    """From the folder: `check`'s text, which is JUnit's too, and the page."""
    struck = {"process": -1, "type": "info", "fault": {"nodes": ["n1"]}}
    lines = [{"index": index, "time": index, "f": f, **struck}
             for index, f in enumerate(("kill", "start", "kill"))]
    client = {"index": 3, "time": 9, "process": 1, "type": "invoke", "f": "poll"}
    (tmp_path / "history.jsonl").write_text("".join(
        json.dumps(line, separators=("," + gap, ":" + gap)) + "\n" for line in [*lines, client]))
    run = about(ELEVEN, list(range(4, 22)))
    verdict = {"valid": "unknown", "findings": [], "unknown": [{"names": ["unfit"], "reason": "missed"}]}
    expected = "struck by  2 kill; missed because the moment never came: 9 kill"
    outcome = Outcome(folder=tmp_path, ruling=ruling(verdict, run), verdict=verdict, about=run)
    assert expected in outcome.report
    assert f"- {' '.join(expected.split())}" in markdown([outcome]).decode()
    assert expected in verdict_text.report(tmp_path, verdict, run)
