"""Texts of a folder are printed escaped: they neither control a terminal nor begin a line."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import GOLDEN, edit_run, golden, verdict
from folders import lines_of, write_lines
from judged_runs import finding, judge_by
from junit import suite_of

from floodmark.checkers.judge.report import of_json
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.text.blame_words import blame_in, knows_blame
from floodmark.harness.cli import main
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report.run_files import read_verdict
from floodmark.harness.report.safe_text import escape_controls, escaped_data, is_plain
from floodmark.harness.run import Run
from floodmark.harness.run_location import is_safe_name

LOST = "a-kill-loses-the-tail"
MARKUP = "<b></script><script>alert(1)</script><img src=x onerror=alert(2)>"
EVIL = f"\x1b]0;owned\x07\x1b[8m\x9b2J\u202egnp.exe\r\nvalid: yes | `x` {MARKUP}"
RAW = re.compile("\x1b(?!\\[[0-9;]*m)|[\x07\x08\r\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]|\x1b\\[8m")


KEPT = {"nodes", "replicas", "type", "process", "class", "name", "names", "permitted_by", "leader", "isr",
        "how", "format", "node", "event"}


def poisoned(data: Any, evil: str) -> Any:
    """This text appended to every text in it that is not a name."""
    if isinstance(data, dict):
        return {key: value if key in KEPT else poisoned(value, evil) for key, value in data.items()}
    if isinstance(data, list):
        return [poisoned(item, evil) for item in data]
    return data + evil if isinstance(data, str) else data


def strangers_run(parent: Path, evil: str = EVIL) -> Path:
    """A saved run in which every free text is evil; also the name of its folder."""
    folder = Path(shutil.copytree(GOLDEN / LOST, parent / f"run{EVIL.replace('/', '')}"))
    about = poisoned(json.loads((folder / "run.json").read_text()), evil)
    about["died"], about["died_words"] = ["../../evil", "n1"], {"n1": f"one {evil}\ntwo\x1b[8m"}
    (folder / "run.json").write_text(json.dumps(about))
    lines = [poisoned(line, evil) for line in lines_of(folder / "history.jsonl")]
    for line in lines:
        line["f"] = line["f"].removesuffix(evil) if line["process"] >= 0 else line["f"]
        line |= {"error": f"BAD{evil}"} if line["type"] in ("fail", "info") else {}
    write_lines(folder / "history.jsonl", lines)
    (folder / "verdict.json").write_text(json.dumps({
        "format": 1, "valid": False, "counts": {"ops": 5, f"rec{evil}": 1, "records": {f"n1{evil}": 6}},
        "findings": [{"name": "lost-write", "class": "bug", "permitted_by": None, "count": 1, "examples": [
            {"partition": 0, "offset": 5, "value": 1, "ops": [0, 1], "how": f"gone{evil}",
             "nodes": ["../../../etc/passwd", f"n2{evil}"], "text": f"text {evil}"}]}],
        "unknown": [{"names": ["unseen", f"un{evil}"], "reason": f"why {evil}"}], "not_made": [],
    }))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return strangers_run(tmp_path)


def output_of(*words: object) -> str:
    """Everything a command prints, with colours."""
    ran = CliRunner().invoke(main, [str(word) for word in words], prog_name="floodmark", color=True)
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    assert "a bug of floodmark's own" not in ran.output
    return ran.stdout + ran.stderr


def assert_harmless(text: str) -> None:
    found = RAW.search(text)
    assert found is None, text[max(0, found.start() - 100):found.end() + 50]
    assert [line for line in text.splitlines() if line.startswith("valid: yes")] == []


def test_invisible_characters_are_escaped() -> None:
    """Letters of other scripts, signs and spaces are not."""
    assert escape_controls("\x1b[2J\x9b\u202e\n\x7f\udc80") == r"\x1b[2J\x9b\u202e\n\x7f\udc80"
    assert escape_controls("a\nb\r", breaks=True) == "a\nb\\r"
    for text in ("n1", "caf\u00e9 \u65e5\u672c \U0001f40d", "a `b` <c>|d", ""):
        assert escape_controls(text) is text


def test_every_text_in_a_value_is_escaped_and_harmless_values_are_not_copied() -> None:
    harmless_value = {"a": ["b", {"c": 1.5, "d": None}], "e": "\u00e9"}
    assert escaped_data(harmless_value) == harmless_value
    plain = {"a": ["b", 5, True]}
    assert escaped_data(plain) is plain
    assert escaped_data({"a\n": ["\x1b", {"b": "\u2066"}, 2**70]}) == {
        "a\\n": ["\\x1b", {"b": "\\u2066"}, 2**70]}
    assert is_plain(b'{"a":"b"}')
    assert not is_plain(b'{"a":"\x7f"}')
    assert not is_plain(json.dumps({"a": "\x1b"}).encode())


@pytest.mark.parametrize("evil", [EVIL, EVIL + "x" * 1_000_000], ids=["evil", "a megabyte"])
def test_every_output_about_a_strangers_run_is_harmless(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evil: str) -> None:
    """What commands print (the escapes are legible), the page, and the reports for CI servers, which are
    short."""
    folder = strangers_run(tmp_path, evil)
    judge_by(monkeypatch, lambda _: of_json(verdict(folder)))
    for words in ("", "--finding lost-write", "--partition 0 --offset 1", "--finding unseen"):
        text = output_of("show", folder, *words.split())
        assert_harmless(text)
        assert "\\x1b]0;owned\\x07" in text
    assert_harmless(output_of("reproduce", folder))
    page, suite, summary = tmp_path / "page.html", tmp_path / "junit.xml", tmp_path / "page.md"
    assert_harmless(output_of("check", folder, "--junit", suite, "--markdown", summary))
    for file in (folder / "run.json", *folder.glob("*.jsonl")):  # it shows names too, and keys
        file.write_text(file.read_text().replace('"n1"', json.dumps(f"n1{MARKUP}")))
    edit_run(folder, config={evil: {evil: evil}}, guarantees={evil: evil})
    assert_harmless(output_of("report", folder, "--out", page))
    suite_of(suite.read_bytes())
    for file in (page, suite, summary):
        text = file.read_text()
        assert_harmless(text)
        assert file == page or len(text) < 30_000
        if file != summary:  # there commands stand in a fence that nothing in it ends (test_gate_files.py)
            assert "<img" not in text
            assert "<script>alert" not in text
            assert text.count("</script") == text.count("<script")


def test_show_reads_no_file_outside_the_folder_for_a_nodes_name(folder: Path) -> None:
    """There is a file at `../../evil`; also for the replicas of a partition."""
    (folder / "work").mkdir()
    (folder.parent / "evil.log").write_text("secret")
    (folder.parent / "evil.jsonl").write_text('{"partition":0,"offset":1,"epoch":7,"value":777,"crc":1}')
    about = json.loads((folder / "run.json").read_text())
    about["partitions"]["0"]["replicas"] = ["../../evil", "n1"]
    (folder / "run.json").write_text(json.dumps(about))
    text = output_of("show", folder) + output_of("show", folder, "--partition", 0, "--offset", 1)
    assert "secret" not in text
    assert "7/777" not in text
    assert "no broker has such a name" in text
    assert "no file can be named for the replica" in text


def saved(folder: Path, **example: object) -> Run:
    (folder / "verdict.json").write_text(json.dumps({
        "format": 1, "valid": False, "findings": [finding("lost-write", example)]}))
    return Run(folder=folder)


@pytest.mark.parametrize(("blame", "known"), [
    ("n2, which truncated its log to 1.", True), ("nobody can tell: no line shows a step.", False)])
def test_a_saved_verdict_of_an_earlier_version_has_the_blame_in_its_text(
        tmp_path: Path, blame: str, known: bool) -> None:
    """It is shown like others."""
    text = "Lost (n1, seq 30 of its trace)."
    [example] = read_verdict(saved(tmp_path, text=f"{text} To blame: {blame}"))["findings"][0]["examples"]
    assert (example["text"], knows_blame(example)) == (text, known)
    assert blame_in(example) == f"To blame: {blame}"
    assert example["blame"]["shown_by"] == {"node": "n1", "seq": 30}


@pytest.mark.parametrize("change", [
    {"examples": [5]}, {"examples": {"a": 1}}, {"count": "3"}, {"name": ["lost-write"]},
    *({"unknown": [{"names": names, "reason": "x"}]} for names in ("unseen", [5])),
    *({"examples": [{"text": "A record is lost.", "blame": blame}]} for blame in (
        "n2", {"text": "n2."}, {"text": 2, "known": True}, {"text": "n2.", "known": "no"},
        {"text": "n2.", "known": True, "shown_by": {"node": "n1"}}))], ids=repr)
def test_a_saved_verdict_of_another_shape_is_refused(folder: Path, change: dict[str, Any]) -> None:
    """Invalid examples, names, counts and blames; nothing crashes."""
    run = saved(folder, text="A record is lost.")
    assert read_verdict(run)["valid"] is False
    verdict = json.loads((folder / "verdict.json").read_text())
    (verdict if "unknown" in change else verdict["findings"][0]).update(change)
    (folder / "verdict.json").write_text(json.dumps(verdict))
    with pytest.raises(FloodmarkError, match="judge again"):
        read_verdict(run)
    assert "is no verdict of format 1" in output_of("show", folder)


# -- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("safe", "names"), [
    (False, ["../n1", "..", ".", "", "a/b", "n1\n", "n\x1b", "n\0", "\u202en1", "n" * 201]),
    (True, ["n1", "broker-3.example.org", "10.0.0.1:9092", "a b", "\u00e9", "..n", "n" * 200]),
])
def test_which_names_can_be_part_of_a_path(safe: bool, names: list[str]) -> None:
    assert [is_safe_name(name) for name in names] == [safe] * len(names)


def test_the_judge_reports_such_a_name(tmp_path: Path) -> None:
    folder = edit_run(golden(tmp_path, LOST), nodes=["n1", "\u202e../n1", "n3"])
    opened = open_folder(folder)
    assert not opened.judged
    reason = opened.reasons[0][1]
    assert "run.json: `nodes`" in reason
    assert (reason.isascii(), reason.isprintable()) == (True, True)


def test_a_foreign_scenario_is_shown_escaped_and_names_no_path(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "nemesis" / "scenarios" / "double-failover.toml").read_text()
    file = tmp_path / "evil.toml"
    title = re.search(r'^title = "', text, re.MULTILINE)
    assert title is not None
    at = title.end()
    file.write_text(text[:at] + "\\u001b]0;owned\\u0007\\u202e\\n" + text[at:])
    shown = output_of("scenario", "show", file)
    assert_harmless(shown)
    assert "\\x1b]0;owned\\x07\\u202e\\n" in shown
    file.write_text(re.sub(r'^name = ".*"$', 'name = "../../outside"', text, flags=re.MULTILINE))
    assert "which no folder can have" in output_of("scenario", "show", file)


def test_an_import_escapes_the_texts_of_its_history(tmp_path: Path) -> None:
    """Ops that are not converted are listed by their kind, which is a word from the history."""
    file = tmp_path / "history.json"
    lines = [{"index": 0, "time": 1, "process": 0, "type": "invoke", "f": "send", "value": [["send", 0, 7]]},
             {"index": 1, "time": 2, "process": 0, "type": "ok", "f": "send", "value": [["send", 0, [0, 7]]]},
             {"index": 2, "time": 3, "process": 1, "type": "invoke", "f": f"strange{EVIL}", "value": None},
             {"index": 3, "time": 4, "process": "nemesis", "type": "info", "f": f"odd{EVIL}", "value": EVIL}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = output_of("import", "jepsen", file, "--out", tmp_path / "run")
    assert_harmless(text)
    assert "\\x1b]0;owned" in text
