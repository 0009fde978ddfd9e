"""`floodmark check`: its output, files and exit codes for every kind of folder, most of them in one call.

Every outcome under every option: tests/unit/test_gate_files.py; folders that a stranger prepared:
test_strange_folders.py.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import Answer, edit_lines, edit_run, floodmark, golden, verdict

from floodmark.harness.pipeline import shrink

pytestmark = pytest.mark.spark

VALID = "two-partitions-two-elections"
INVALID = "a-kill-loses-the-tail"
UNKNOWN = "a-dead-replica-keeps-an-old-tail"
PERMITTED = "the-last-in-the-isr-loses-power"
KILLED = "the-harness-was-killed"
HEADING = "17 runs: 6 invalid, 3 failed in the harness, 5 unknown, 3 valid"
@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Folders of every kind, judged in one call."""

    folder: Path
    answer: Answer
    json_file: Path
    junit_file: Path
    markdown_file: Path

    def said(self, name: str) -> str:
        return self.answer.about(self.folder / name)

    def verdict(self, name: str) -> dict[str, Any]:
        return verdict(self.folder / name)


def damage(parent: Path) -> None:
    """Copies of saved runs, each with one thing wrong."""
    torn = golden(parent, VALID, called="torn") / "history.jsonl"
    torn.write_bytes(torn.read_bytes() + b'{"index":28,"ti')
    edit_lines(golden(parent, INVALID, called="no-json") / "history.jsonl",
               lambda lines: [*lines[:2], "oops", *lines[3:]])
    edit_lines(golden(parent, INVALID, called="wrong-type") / "history.jsonl", lambda lines: [
        re.sub('"process":.*?,', '"process":"zero",', line) if at == 2 else line
        for at, line in enumerate(lines)])
    edit_lines(golden(parent, INVALID, called="twice") / "history.jsonl", lambda lines: [*lines, json.dumps({
        **json.loads(lines[1]), "index": len(lines), "time": json.loads(lines[-1])["time"]})])
    (golden(parent, INVALID, called="no-run") / "run.json").unlink()
    (golden(parent, INVALID, called="half-a-run") / "run.json").write_text('{"format":1}')
    edit_lines(golden(parent, VALID, called="bad-dump") / "logs" / "n2.jsonl", lambda lines: [
        re.sub('"offset":.*?,', '"offset":"one",', line) if at == 1 else line
        for at, line in enumerate(lines)])
    (golden(parent, VALID, called="no-dump") / "logs" / "n2.jsonl").unlink()
    edit_run(golden(parent, VALID, called="died-valid"), died=["n2"], died_words={
        "n2": "it ended with exit code 1\nFile replica.py\n  in step\nAssertionError: HW 7 above LEO 6"})
    edit_run(golden(parent, INVALID, called="died-invalid"), died=["n2"])
    for name in (VALID, INVALID, UNKNOWN, PERMITTED, KILLED):
        golden(parent, name)
    pipe = golden(parent, VALID, called="pipe") / "history.jsonl"
    pipe.unlink()
    os.mkfifo(pipe)
    edit_run(golden(parent, VALID, called="named"), nodes=["n1", "../../mine", "n3"])


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    parent = tmp_path_factory.mktemp("runs")
    damage(parent)
    files = [tmp_path_factory.mktemp("files") / "deep" / name for name in ("all.json", "j.xml", "page.md")]
    answer = floodmark("check", "--keep-parquet", *sorted(parent.iterdir()), "--json", files[0],
                       "--junit", files[1], "--markdown", files[2])
    return Judged(folder=parent, answer=answer, json_file=files[0], junit_file=files[1],
                  markdown_file=files[2])


# -- several folders in one call ----------------------------------------------------------------------------


def test_the_exit_code_of_many_is_the_worst_and_every_run_has_its_verdict(judged: Judged) -> None:
    """One invalid run outranks folders that are no runs, and unknown ones. The last line is a folder."""
    assert (judged.answer.code, judged.answer.last) == (1, str(judged.folder / "wrong-type"))
    assert judged.answer.out.splitlines()[0] == HEADING
    assert "judging 17 runs" in judged.answer.err
    together = json.loads(judged.json_file.read_text())
    assert together == {str(path): verdict(path) for path in judged.folder.iterdir()}


def test_the_reports_for_ci_servers_say_the_same_as_the_console(judged: Judged) -> None:
    """Of 17 runs 6 are invalid and 5 unknown (failures), 3 failed in the harness (errors)."""
    suite = ElementTree.parse(judged.junit_file).getroot()[0]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["17", "11", "3", "0"]
    folders = {one.get("name"): Path(one.get("value", "")).name for one in suite.iter("property")}
    cases = {folders[f"{case.get('name')}: folder"]: case for case in suite.findall("testcase")}
    assert {name for name, case in cases.items() if case.find("error") is not None} == {
        "half-a-run", "named", "no-run"}
    failure = cases[INVALID].find("failure")
    assert failure is not None
    *said, page_line = judged.said(INVALID).splitlines()
    assert page_line == f"  page       {judged.folder / INVALID / 'report.html'}"
    assert failure.text == "\n".join(said)
    assert (failure.get("message") or "").startswith("lost-write: 1 finding, a bug. The send of 3 to")
    page = judged.markdown_file.read_text()
    assert page.startswith(f"## floodmark: {HEADING}\n")
    assert page.count("\n### ") == 14
    assert f"/{INVALID} | **invalid** | lost-write 1 |  |  |\n" in page
    assert f"\nfloodmark show {judged.folder / INVALID} --finding lost-write\n" in page


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "valid", "message"), [
    ("torn", True, "1 incomplete line ignored"),  # it does not count against the run
    ("no-json", False, "history.jsonl:3: not JSON"),
    ("wrong-type", False, "history.jsonl:3: process is 'zero', not an integer"),
    ("twice", False, "history.jsonl:15: a completion that fits no invocation"),
    ("bad-dump", "unknown", "logs/n2.jsonl:2: offset is 'one', not an integer"),
    ("no-dump", "unknown", "logs/n2.jsonl: No such file or directory"),
    ("pipe", "unknown", "history.jsonl: a pipe, and only regular files are opened"),
    ("no-run", "unknown", "has no run.json"),
    ("half-a-run", "unknown", "`nodes` is no list"),
    ("named", "unknown", "no file can be named for that"),
])
def test_what_is_damaged_is_named_and_the_checks_that_need_it_are_unknown(
        judged: Judged, name: str, valid: object, message: str) -> None:
    """It is never a bug, and a loss that was found stays found."""
    verdict, said = judged.verdict(name), judged.said(name)
    bugs = [found["name"] for found in verdict["findings"] if found["class"] == "bug"]
    unknown = {check for entry in verdict["unknown"] for check in entry["names"]}
    assert message in said
    assert (verdict["valid"], bugs) == (valid, ["lost-write"] if valid is False else [])
    if message.startswith("history"):
        assert {"lost-write", "phantom", "G1a", "poll-skip"} <= unknown
        assert unknown.isdisjoint({"diverged", "malformed-log"})  # the logs are complete
    elif message.startswith("logs"):
        assert {"diverged", "epoch-lineage", "malformed-log"} <= unknown
        assert unknown.isdisjoint({"phantom", "G1a", "nonmonotonic-send"})
    elif valid == "unknown" and ".jsonl" not in message:
        assert "cannot tell: everything" in said
        assert "looked at  nothing" in said
        assert verdict["counts"] == {}


def test_a_node_that_died_is_named_with_its_last_words(judged: Judged) -> None:
    """The words in run.json are in the finding; without them the end of its log, if there is one."""
    said = judged.said("died-valid")
    assert said.startswith("died-valid: INVALID")
    assert "broker-died: 1 finding, a bug" in said
    assert "The process of n2 ended by itself after it had been ready" in said
    assert re.search("words +it ended with exit code 1\n +File replica.py\n +in step\n +AssertionError", said)
    assert "its last words" not in said
    assert "n2 ended by itself; its last words: none (" in judged.said("died-invalid")
    assert [found["name"] for found in judged.verdict("died-invalid")["findings"]] == [
        "broker-died", "lost-write"]


# -- a user's folder ---------------------------------------------------------------------------------------


def test_one_pattern_judges_everything_that_the_product_has_made(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo, a scenario's rows, a reproduction, a campaign with a shrunk run, two plain runs and the link to
    the later one: ten runs. The shrunk one, whose permitted loss only its saved verdict knows, counts as it
    was judged."""
    monkeypatch.chdir(tmp_path)
    runs = Path("histories/runs")
    layout = {
        "20260301T020304-7": VALID, "20260301T020404-8": UNKNOWN,
        "demo-20260301T020504/double-failover-high-watermark": INVALID,
        "demo-20260301T020504/double-failover-kip-320": VALID,
        "scenario-20260301T020604/idle-leader-kip-101": INVALID,
        "scenario-20260301T020604/idle-leader-kip-320": VALID,
        "reproduce-20260301T020704/double-failover-high-watermark-1": INVALID,
        "campaign-20260301T020804/runs/00001-crash-kip-320": PERMITTED,
        "campaign-20260301T020804/runs/00002-crash-high-watermark": INVALID,
        "campaign-20260301T020804/again/c939d7d889/1": INVALID,
    }
    for place, name in layout.items():
        golden(runs, name, called=place)
    (runs / "latest").symlink_to("20260301T020404-8")
    (runs / "scenario-20260301T020604" / "outcomes.json").write_text("{}")
    night = runs / "campaign-20260301T020804"
    for name in ("campaign.json", "journal.jsonl", "lock", "index.html", "players.log"):
        (night / name).touch()
    golden(night / "runs", INVALID, called=".00003-crash-kip-320.x")  # has not begun
    (night / "again" / "loop").symlink_to("../..")
    shrunk = night / "runs" / "00001-crash-kip-320"
    floodmark("check", shrunk)
    shrink(shrunk)

    answer = floodmark("check", "histories/runs/*")
    heading = "10 runs: 5 invalid, 1 unknown, 4 valid"
    assert (answer.code, answer.out.splitlines()[0]) == (1, heading), answer
    lines = answer.out.splitlines()
    folders = [line for line in lines if line.startswith("histories/")]
    assert folders == sorted(str(runs / place) for place in layout)
    assert f"{shrunk.name}: valid" in lines
    strict = floodmark("check", str(shrunk), "--strict")
    assert (strict.code, f"{shrunk.name}: INVALID by --strict" in strict.out) == (1, True), strict


# -- the gate -----------------------------------------------------------------------------------------------


def test_a_verdict_that_cannot_be_written_fails_the_harness_and_hides_nothing(judged: Judged) -> None:
    """A folder is in its place."""
    place = judged.folder / "torn" / "verdict.json"
    place.unlink()
    place.mkdir()
    answer = floodmark("check", judged.folder / "torn")
    assert answer.code == 4
    assert "cannot write" in answer.err
    assert "torn: failed in the harness (judged valid)" in answer.out
    assert answer.last == str(judged.folder / "torn")
