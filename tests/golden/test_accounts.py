"""What people are told of ten saved runs, word for word (`pytest --rewrite` writes it anew; then read it).

Beside each text lies the verdict that it tells of, as the judge gave it: what is under test is the telling.
"""

import json
import re
from pathlib import Path

import click
import pytest
from golden_text import as_written

from floodmark.harness.report import verdict_text
from floodmark.harness.report.narrative import WIDE
from floodmark.harness.report.phrases import WIDTH

RUNS = Path(__file__).parents[2] / "histories" / "golden"
VERDICTS = sorted((Path(__file__).parent / "accounts").glob("*.json"))
SCREEN = 24  # lines of one finding, at most
ORDER = ["acked", "seen", "struck", "truncated", "elected", "gone", "now", "found"]  # of the first lines


def report_of(path: Path) -> str:
    folder = RUNS / path.stem
    verdict = json.loads(path.read_text())
    about = json.loads((folder / "run.json").read_text())
    return click.unstyle(verdict_text.report(verdict_text.reading_of(folder, verdict, about))).replace(
        str(folder), folder.name) + "\n"


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_a_saved_run_is_told_as_written(path: Path, request: pytest.FixtureRequest) -> None:
    """Every sentence of its report is the one in its file. It begins with five lines at most; each finding
    fits on a screen, and each line on a terminal that is somewhat wide."""
    as_written(f"accounts/{path.stem}.txt", report_of(path), request)
    lines = report_of(path).splitlines()
    begun = [number for number, line in enumerate(lines) if re.match("  [^ ]", line)]
    ends = [*begun[1:], len(lines)]
    assert max(end - begin for begin, end in zip(begun, ends, strict=True)) <= SCREEN
    assert all(len(line) <= WIDE for line in lines if not line.startswith("  cannot tell"))
    assert all(len(line) <= WIDTH for line in lines if re.match(r" {4}(\w| {7})", line))
    first, _, _ = report_of(path).partition("\n  ran ")
    heads = [line.split()[0] for line in first.splitlines()[1:]]
    assert len(heads) <= 5
    assert heads == [head for head in ORDER if head in heads]


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_every_line_that_is_named_is_the_one_meant(path: Path) -> None:
    """It is there, and what is told of it has its time, and of a client's its process."""
    folder, words = RUNS / path.stem, " ".join(report_of(path).split())
    for file, number in re.findall(r"((?:history|trace|logs/\w+)\.jsonl):(\d+)", words):
        assert int(number) <= len((folder / file).read_text().splitlines())
    for file, who in (("history", r"process (\d+) "), ("trace", "()")):
        told = rf"at (-?[\d.]+) s {who}(?:(?!at -?[\d.]+ s |\.jsonl:).)*?\({file}\.jsonl:(\d+)[;)]"
        for time, process, number in re.findall(told, words):
            line = json.loads((folder / f"{file}.jsonl").read_text().splitlines()[int(number) - 1])
            assert f"{line['time'] / 1e9:.3f}" == time
            assert process in ("", str(line.get("process")))
