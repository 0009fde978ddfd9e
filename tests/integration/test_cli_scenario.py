"""`floodmark scenario` and `demo`: lists, shows and refuses scenarios; plays rows at the same time and
compares each; the demo prints the README's table, and the page that builds a scenario from nothing is
played as written.
"""

import json
import re
from pathlib import Path

import pytest
from command_line import floodmark
from readme import README
from run_processes import wait_until_gone

from floodmark.harness.commands.scenario import HEADINGS, WIDTH
from floodmark.harness.pipeline import TRIES
from floodmark.nemesis.scenario import FOLDER

OWN = '''\
name = "own"
zoo = "Z27"
title = "one node loses power"
story = "What one copy alone held is gone, unless it was flushed."
steps = """
send 0..3
power_cut n1 keep 2
start n1
wait healthy
"""
[cluster]
nodes = 1

[[run]]
rules = "kip-320"
permitted = ["lost-write"]

[[run]]
rules = "kip-320"
config = { "log.flush.interval.messages" = 1 }
control = true

[[run]]
rules = "high-watermark"
control = true
'''


ENDS_OF_TWO = ("2 of 2 as expected", "2 of 2 as expected", "0 of 2 as expected")


def own(folder: Path, text: str = OWN) -> Path:
    file = folder / "own.toml"
    file.write_text(text)
    return file


def test_a_scenario_is_shown_by_name_or_number(tmp_path: Path) -> None:
    """Its story, its steps, its settings, what is expected on which rules, sends that no promise covers."""
    words = ("KAFKA-1211", "expire n1", "min.insync.replicas=2", "kip-320 trunc_hw", "lost-write", "no harm")
    for name in ("double-failover", "Z02", "z02"):
        answer = floodmark("scenario", "show", name)
        assert (answer.code, [word for word in words if word not in answer.out]) == (0, [])
    answer = floodmark("scenario", "show", own(tmp_path, OWN.replace("send 0..3", "send 0..3 acks 1")))
    assert "line 6, send 0..3 acks 1: recorded as info" in answer.out
    assert "recorded as info" not in floodmark("scenario", "show", own(tmp_path)).out


@pytest.mark.spark
def test_each_row_is_played_as_often_as_asked_and_counted(tmp_path: Path) -> None:
    """Three rows twice, at the same time: a line for each row, a folder for each play, a complaint for each
    that is not as expected; the exit code, the JSON and the folders show it."""
    parent = tmp_path / "out"
    answer = floodmark("scenario", "run", own(tmp_path), "--times", "2", "--cluster", "simulated",
                       "--out", parent)
    assert (answer.code, answer.last) == (1, str(parent)), answer.out + answer.err
    rows = [line for line in answer.out.splitlines() if line.startswith("own ")]
    ends = [row.rstrip().endswith(end) for row, end in zip(rows, ENDS_OF_TWO, strict=True)]
    assert ends == [True] * 3, rows
    complaints = [line for line in answer.out.splitlines() if line.startswith("NOT as expected: ")]
    assert [line.partition(": permitted ")[0] for line in complaints] == [
        "NOT as expected: own on high-watermark", "NOT as expected: own on high-watermark, time 2"]
    assert "6 plays, 4 as expected" in answer.out
    saved = json.loads((parent / "scenarios.json").read_text())
    assert [(row["rules"], bool(row["off"]), row["valid"], row["tries"], row["time"]) for row in saved] == [
        (rules, rules != "kip-320", True, 1, time)
        for time in (1, 2) for rules in ("kip-320", "kip-320", "high-watermark")]
    assert sorted(path.name for path in parent.iterdir()) == sorted(
        [*{row["folder"] for row in saved}, "scenarios.json"])
    assert [(parent / row["folder"] / "verdict.json").is_file() for row in saved] == [True] * 6
    assert answer.err.index("[1/6]") < answer.err.index("[6/6]") < answer.err.index("judging 6 runs")


@pytest.mark.spark
def test_a_run_that_misses_a_moment_is_taken_anew_and_says_so(tmp_path: Path) -> None:
    """Three runs in all, each in a folder of its own; then the line of the file, what was seen, and why it is
    so: no other node leads before the session of one that was killed is ended."""
    steps = "send 0..3\nkill n1\nwait leader == n2 within 0.5s  # it does not come\n"
    text = OWN.replace("send 0..3\npower_cut n1 keep 2\n", steps).replace("nodes = 1", "nodes = 2")
    answer = floodmark("scenario", "run", own(tmp_path, text), "--rules", "high-watermark", "--cluster",
                       "simulated", "--out", tmp_path / "out")
    assert answer.code == 4
    assert len(list((tmp_path / "out").iterdir())) == TRIES + 1
    assert answer.err.count("trying again:\n  missed: own.toml line 8") == TRIES - 1
    for words in ("line 8: wait leader == n2 within 0.5s  # it does not come",
                  "waited for  leader == n2 (0.5 s)", "n1: down, its session not ended",
                  "likely      n1 is down and still leads partition 0"):
        assert words in answer.err + answer.out


# -- the pages -------------------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
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
    assert [line for line in (answer.out + answer.err).splitlines()
            if len(line) > WIDTH and str(tmp_path) not in line] == []
    assert "* both runs have the known bug no_epoch_bump_on_bounce" in answer.out


BLOCK = re.compile(r"^```(toml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = "$ floodmark scenario run mine.toml"
# These differ from run to run: seconds, and the width of the columns next to them.
VARIES = ((re.compile(r"\b\d+\.\d\b"), "S"), (re.compile(r" {2,}"), "  "))


def normalize(line: str) -> str:
    """The line without what differs from run to run."""
    for pattern, by in VARIES:
        line = pattern.sub(by, line)
    return line.strip()


def pages() -> list[tuple[str, list[str]]]:
    """(file, the lines of output that the page shows under it), in the page's order."""
    found: list[tuple[str, list[str]]] = []
    for kind, text in BLOCK.findall((FOLDER / "TEN_MINUTES.md").read_text(encoding="utf-8")):
        if kind == "toml":
            found.append((text, []))
            continue
        command, *lines = text.splitlines()
        assert command == COMMAND
        found[-1][1].extend(lines)
    return found


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
def test_each_file_of_ten_minutes_does_what_the_page_shows(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line and in that order; between them there may be more."""
    monkeypatch.chdir(tmp_path)
    assert len(pages()) == 4
    for number, (text, shown) in enumerate(pages()):
        assert shown, f"file {number} of the page shows nothing"
        Path("mine.toml").write_text(text, encoding="utf-8")
        answer = floodmark("scenario", "run", "mine.toml", "--out", f"out-{number}")
        lines = iter([normalize(line) for line in (answer.err + answer.out).splitlines()])
        for line in shown:
            assert normalize(line) in lines, f"file {number}: {line}\n{answer.err}{answer.out}"
        assert answer.code == {0: 0, 1: 4, 2: 1, 3: 0}[number]
        wait_until_gone(tmp_path / f"out-{number}")
