"""`floodmark scenario` and `demo`: lists, shows and refuses scenarios; plays rows at the same time and
compares each; the demo prints the README's table, and the page that builds a scenario from nothing is
played as written.
"""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import floodmark
from readme import README
from run_processes import wait_until_gone

from floodmark.harness import pipeline
from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.scenario import HEADINGS, WIDTH, Part, play, plays_of
from floodmark.harness.pipeline import TRIES
from floodmark.nemesis.scenario import FOLDER, load

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


@pytest.mark.parametrize("name", ["double-failover", "Z02", "z02"])
def test_a_scenario_is_shown_by_name_or_number(name: str) -> None:
    """Its story, its steps, its settings and what is expected under which rules."""
    answer = floodmark("scenario", "show", name)
    assert answer.code == 0
    words = ("KAFKA-1211", "expire n1", "min.insync.replicas=2", "kip-320 trunc_hw", "lost-write", "no harm")
    assert [word for word in words if word not in answer.out] == []


def test_a_send_that_no_promise_covers_is_told(tmp_path: Path) -> None:
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


def test_a_run_that_misses_a_moment_is_taken_anew_and_says_so(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three runs in all, each in a folder of its own; for the last one the line of the file is reported."""
    text = OWN.replace("start n1\n", "start n1\nwait n1.leo == 99 within 0.2s\n")
    scenario = load(own(tmp_path, text), scenario_words())
    (played,) = play([Part(scenario=scenario, row=scenario.rows[0])], "simulated", tmp_path / "out",
                     at_once=2)
    said = capsys.readouterr().err.splitlines()
    assert (played.tries, played.why is not None) == (TRIES, True)
    first, step, waited, seen, own_word, *likely = (played.why or "").splitlines()
    assert first == "missed: own.toml line 9"
    assert step == "  line 9: wait n1.leo == 99 within 0.2s"
    assert waited == "    waited for  n1.leo == 99 (0.2 s)"
    assert seen.startswith("    seen        partition 0: leader n1, epoch ")
    assert re.search(r"^ {18}n1: leads in epoch \d+, LEO 2, HW 2, epochs 0 from 0, ", own_word)
    assert likely == []  # no guess if no cause fits
    assert played.folder.name == "own-kip-320-again-3"
    assert len(list((tmp_path / "out").iterdir())) == TRIES
    assert sum("trying again: missed: own.toml line 9" in line for line in said) == TRIES - 1
    assert said[-1].startswith("[1/1] own on kip-320: ")


def test_a_killed_leader_that_is_waited_out_is_reported_with_what_replaces_it(tmp_path: Path) -> None:
    """Its session lasts a minute in a scenario: no other node leads before it is ended."""
    steps = ("send 0..2\nwait every.leo == 3 and leader == n1\nkill n1\n"
             "wait leader == n2 and n2.leader == n2 within 0.5s  # it does not come\n")
    text = OWN.replace("send 0..3\npower_cut n1 keep 2\n", steps).replace("nodes = 1", "nodes = 2")
    scenario = load(own(tmp_path, text), scenario_words())
    part = Part(scenario=scenario, row=scenario.rows[0])
    (one,) = plays_of([part], "simulated", tmp_path)
    (played,) = asyncio.run(pipeline.play([replace(one, tries=1)]))
    why = played.why or ""
    assert "line 9: wait leader == n2 and n2.leader == n2 within 0.5s  # it does not come" in why
    assert "partition 0: leader n1, epoch 0, ISR n1, n2; 3 records acked" in why
    assert "n1: down, its session not ended" in why
    assert "n2: follows n1 in epoch 0, LEO 3, HW " in why
    assert "likely      n1 is down and still leads partition 0: a leader is replaced when its session" in why
    assert "ends, and this one's has not: `expire n1`" in why


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
