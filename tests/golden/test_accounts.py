"""What people are told of the saved runs, word for word (`pytest --rewrite` writes it anew; then read it).

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
WITHOUT_A_COURSE = {  # the finding is all there is to tell
    "a-consumer-jumps-and-falls", "from-nowhere-and-from-the-dead", "no-ack-after-mending"}
SCREEN = 24  # lines of one finding, at most


def report_of(path: Path) -> str:
    folder = RUNS / path.stem
    verdict = json.loads(path.read_text())
    about = json.loads((folder / "run.json").read_text())
    return click.unstyle(verdict_text.report(verdict_text.reading_of(folder, verdict, about))).replace(
        str(folder), folder.name) + "\n"


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_a_saved_run_is_told_as_written(path: Path, request: pytest.FixtureRequest) -> None:
    """Every sentence of its report is the one in its file."""
    as_written(f"accounts/{path.stem}.txt", report_of(path), request)


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_each_finding_fits_on_a_screen(path: Path) -> None:
    """And no line is longer than a terminal that is somewhat wide."""
    begun: list[int] = []
    for number, line in enumerate(lines := report_of(path).splitlines()):
        if line.startswith("  ") and not line.startswith("   "):
            begun.append(number)
    heights = [after - before for before, after in zip(begun, [*begun[1:], len(lines)], strict=True)]
    assert max(heights) <= SCREEN
    assert all(len(line) <= WIDE for line in lines if not line.startswith("  cannot tell"))
    assert all(len(line) <= WIDTH for line in lines if re.match(r" {4}(\w| {7})", line))


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


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_a_report_begins_with_five_lines_at_most_each_true(path: Path) -> None:
    """In one order; of each clause that names a line of the trace the time is that line's."""
    folder, lines = RUNS / path.stem, report_of(path).splitlines()
    begin = lines[1:next(number for number, line in enumerate(lines) if line.startswith("  ran "))]
    order = ["acked", "seen", "struck", "truncated", "elected", "gone", "now", "found"]
    heads = [line.split()[0] for line in begin]
    assert heads == [head for head in order if head in heads]
    assert len(begin) <= 5
    assert bool(begin) == (path.stem not in WITHOUT_A_COURSE)
    trace = (folder / "trace.jsonl").read_text().splitlines() if (folder / "trace.jsonl").exists() else []
    for line in begin:
        assert line.count("trace.jsonl") <= 1
        for time, number in re.findall(r"(-?\d+\.\d{3}) s (?:(?! s ).)*?\((?:trace\.jsonl)?:(\d+)\)", line):
            assert f"{json.loads(trace[int(number) - 1])['time'] / 1e9:.3f}" == time


def test_there_are_saved_verdicts() -> None:
    """The folder is found."""
    assert len(VERDICTS) >= 25
