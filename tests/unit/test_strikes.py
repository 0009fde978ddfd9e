"""The strikes that a report counts: those of the history, and those that were planned and never came."""

import json
from pathlib import Path

import pytest

from floodmark.harness.report import verdict_text
from floodmark.harness.report.run_summary import ruling
from floodmark.harness.report.verdict_text import Outcome, markdown

ELEVEN = 11 * [{"f": "kill", "nodes": ["leader"]}, {"f": "start", "nodes": ["down"]}]


@pytest.mark.parametrize("gap", ["", " "])
def test_every_report_has_the_same_count(tmp_path: Path, gap: str) -> None:
    """From the folder: `check`'s text, which is JUnit's too, and the page."""
    struck = {"process": -1, "type": "info", "fault": {"nodes": ["n1"]}}
    lines = [{"index": index, "time": index, "f": f, **struck}
             for index, f in enumerate(("kill", "start", "kill"))]
    client = {"index": 3, "time": 9, "process": 1, "type": "invoke", "f": "poll"}
    (tmp_path / "history.jsonl").write_text("".join(
        json.dumps(line, separators=("," + gap, ":" + gap)) + "\n" for line in [*lines, client]))
    run = {"format": 1, "nodes": ["n1"], "schedule": ELEVEN, "missed": list(range(4, 22)), "ended": "done"}
    verdict = {"valid": "unknown", "findings": [], "unknown": [{"names": ["unfit"], "reason": "missed"}]}
    expected = "struck by  2 kill; missed because the moment never came: 9 kill"
    reading = verdict_text.reading_of(tmp_path, verdict, run)
    outcome = Outcome(reading=reading, ruling=ruling(verdict, run))
    assert expected in outcome.report
    assert f"- {' '.join(expected.split())}" in markdown([outcome]).decode()
    assert expected in verdict_text.report(reading)
