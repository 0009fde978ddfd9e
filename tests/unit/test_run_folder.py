"""A run folder: how it is made, that no file in it is ever half-written, which folders a call means, a shrunk
run, whether it can be had again; and the exit code of many; all without Spark."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
from command_line import floodmark, golden
from judged_runs import judge_by

from floodmark.checkers.judge import report
from floodmark.harness import pipeline
from floodmark.harness.commands.folder_arguments import chosen
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import shrink
from floodmark.harness.report import verdict_text
from floodmark.harness.run import RUNS, create, link_latest, write_pieces
from floodmark.harness.verdict import (
    EXIT_HARNESS,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
    Finding,
    NotMade,
    Unknown,
    Verdict,
    worst,
)

PERMITTED = Finding(name="duplicate", klass="permitted", permitted_by="retries", count=1)
COUNTS = {"ops": 5}


# -- made ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_that_is_absent_or_empty_gets_run_json_alone(tmp_path: Path, exists: bool) -> None:
    """It is replaced as a whole."""
    folder, about = tmp_path / "deep" / "run", {"format": 1, "seed": 7}
    if exists:
        folder.mkdir(parents=True)
    run = create(folder, about)
    assert run.about() == about
    run.rewrite({**about, "settled": True})
    assert run.about()["settled"] is True
    assert [path.name for path in (*folder.parent.iterdir(), *folder.iterdir())] == ["run", "run.json"]


def test_a_file_whose_writing_fails_stays_as_it_was(tmp_path: Path) -> None:
    def half() -> Iterator[bytes]:
        yield b"half"
        raise FloodmarkError("no more")

    path = tmp_path / "n1.jsonl"
    path.write_bytes(b"whole")
    with pytest.raises(FloodmarkError, match="no more"):
        write_pieces(path, half())
    assert path.read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["n1.jsonl"]


def test_an_import_does_not_move_latest_and_a_link_is_not_printed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a run into another folder (tests/integration/test_sigterm.py)."""
    monkeypatch.chdir(tmp_path)
    text = '{:index 0, :time 1, :process 0, :type :%s, :f :send, :value [[:send 0 %s]]}\n'
    (tmp_path / "history.edn").write_text(text % ("invoke", "7") + text % ("ok", "[0 7]"))
    for words in (("--out", tmp_path / "elsewhere"), ()):
        answer = floodmark("import", "jepsen", "history.edn", *words)
        assert answer.code == 0, answer.err
    assert (answer.last[:15], answer.last[-7:]) == ("histories/runs/", "-jepsen"), answer.last
    assert not Path("histories/runs/latest").is_symlink()
    for folder in tmp_path, Path(answer.last):  # the later one counts
        link_latest(folder)
    for command in (("show",), ("show", "histories/runs/latest"), ("report",)):
        assert floodmark(*command).last.startswith(answer.last), command
    Path(answer.last).rename("elsewhere/moved")
    gone = floodmark("show")
    assert (gone.code, "histories/runs/latest, and its run is gone" in gone.err) == (2, True), gone


# -- the folders of a call ----------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """histories/runs as runs leave it; the working directory is above it."""
    runs = tmp_path / RUNS
    for name in ("b", "a", "c", "[xy]", ".begun"):
        (runs / name).mkdir(parents=True)
    (runs / "latest").symlink_to("b")
    (runs / "0-last-of-all").symlink_to("c")
    (runs / "gone").symlink_to("nowhere")
    (runs / "notes.txt").write_text("no run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("words", "folders"), [
    ((), ["b"]),
    (("{}/*",), ["[xy]", "a", "b", "c"]),  # not the file, the links to b, c and nothing, the hidden one
    (("{}/l*",), ["b"]),  # by its own name
    (("{}/[ab]", "{}/?"), ["a", "b", "c"]),
    (("{}/c", "{}/*"), ["c", "[xy]", "a", "b"]),
    (("{}/latest", "{}/?"), ["b", "a", "c"]),
    (("{}/a", "{}/../runs/a", "{}/a"), ["a"]),
    (("{}/notes.txt",), ["notes.txt"]),  # named, so the judge reports it as no run
    (("{}/[xy]",), ["[xy]"]),  # a folder of that name
])
def test_names_and_patterns_give_each_folder_once(
        here: Path, words: tuple[str, ...], folders: list[str]) -> None:
    assert list(chosen([Path(word.format(RUNS)) for word in words])) == [RUNS / name for name in folders]


# -- runs that a campaign has shrunk ------------------------------------------------------------------------


def test_a_shrunk_run_keeps_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """check reports the saved one and says so; rejudge leaves it out, and refuses if it is alone. Shrinking
    twice changes nothing, nor does that of a removed run."""
    folder = golden(tmp_path, "two-partitions-two-elections")
    twice = replace(PERMITTED, examples=({"text": "twice"},))
    without = NotMade(names=("unseen",), reason="no logs")
    report.write_verdict(
        folder, Verdict(valid=True, findings=(twice,), not_made=(without,), counts=COUNTS))
    before = json.loads((folder / "verdict.json").read_text())
    shrink(folder)
    shrink(folder)
    shrink(tmp_path / "gone")
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "verdict.json"]
    checked = floodmark("check", folder, "--json", tmp_path / "all.json")
    assert (checked.code, checked.last) == (0, str(folder))
    assert f"{folder.name}: valid" in checked.out
    assert "shrunk     only run.json, the verdict and the measures are left" in checked.out
    again = floodmark("rejudge", folder)
    assert (again.code, "campaign run --keep keeps whole runs" in again.out) == (4, True), again
    assert "the saved verdict stays" in again.out
    assert json.loads((folder / "verdict.json").read_text()) == before
    assert json.loads((tmp_path / "all.json").read_text())[str(folder)] == before
    whole = golden(tmp_path, "two-partitions-two-elections", called="whole")
    judge_by(monkeypatch, lambda _: Verdict(valid=True, counts=COUNTS))
    night = floodmark("rejudge", folder, whole)
    assert (night.code, night.out.count(folder.name), night.last) == (0, 0, str(whole)), night
    assert "left out: 1 run that a campaign has shrunk" in night.err
    assert floodmark("check", folder, "--strict").code == 1
    shown = floodmark("show", folder)
    assert (shown.code, "shrunk     only run.json" in shown.out) == (0, True), shown
    assert "struck by" not in shown.out  # what struck is nowhere any more


@pytest.mark.parametrize(("command", "shrunk", "code", "says"), [
    ("check", True, 0, ": valid"),  # half of its files may have been there
    ("rejudge", True, 3, "unseen: no logs"),
    ("rejudge", False, 4, "nothing was judged: the saved verdict stays"),
])
def test_a_run_of_which_little_can_be_judged_keeps_its_verdict(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, shrunk: bool, code: int, says: str
) -> None:
    """Its campaign shrinks it while it is judged, or nothing can be judged now."""
    folder = golden(tmp_path, "two-partitions-two-elections")
    report.write_verdict(folder, Verdict(valid=True, counts=COUNTS))
    before = (folder / "verdict.json").read_bytes()

    def judged(_: Path) -> Verdict:
        if shrunk:
            shrink(folder)
        lost = Unknown(names=("unseen",), reason="no logs")
        return Verdict(valid="unknown", unknown=(lost,), counts=COUNTS if shrunk else {})

    judge_by(monkeypatch, judged)
    answer = floodmark(command, folder)
    assert (answer.code, says in answer.out) == (code, True), answer
    assert (folder / "verdict.json").read_bytes() == before


# -- had again ----------------------------------------------------------------------------------------------

RUN_JSON: dict[str, Any] = {
    "cluster": "local", "seed": 3, "rules": "high-watermark", "workload": "log", "nodes": ["n1", "n2"],
    "partitions": {"0": {"topic": "t", "partition": 0, "replicas": ["n1", "n2"]}},
    "schedule": [{"f": "kill", "nodes": ["n1"], "moment": {"at": "time", "time": 1}}],
    "concurrency": 4, "rate": None, "duration_s": 30.0, "guarantees": {"acks": "1"},
    "config": {node: {"min.insync.replicas": 1, "floodmark.bugs": "ack_on_append"} for node in ("n1", "n2")},
}


@pytest.mark.parametrize("change", [
    {"cluster": "elsewhere"}, {"nodes": ["a", "b"]}, {"partitions": {}}, {"config": {}}, {"seed": "x"},
    {"guarantees": None}, {"partitions": {"0": {}}}])
def test_a_run_with_a_foreign_run_json_cannot_be_reproduced(change: dict[str, Any], tmp_path: Path) -> None:
    """Nor one without its history, which has the times of its faults."""
    assert verdict_text.reproduce_command(tmp_path, RUN_JSON) is None
    (tmp_path / "history.jsonl").touch()
    command = verdict_text.reproduce_command(tmp_path, RUN_JSON, "duplicate")
    assert command == f"floodmark reproduce {tmp_path} --finding duplicate"
    assert verdict_text.reproduce_command(tmp_path, {**RUN_JSON, **change}) is None
    incomplete = {key: value for key, value in RUN_JSON.items() if key not in change}
    assert verdict_text.reproduce_command(tmp_path, incomplete) is None


# -- exit codes ---------------------------------------------------------------------------------------------


def test_the_worst_of_any_set_of_codes_masks_no_failure() -> None:
    """A bug before a broken harness, that before an unknown; in whatever order they are given."""
    order = (EXIT_INVALID, EXIT_HARNESS, EXIT_UNKNOWN, EXIT_VALID)
    for codes in chain.from_iterable(combinations(order, size) for size in range(1, 5)):
        assert worst(codes) == worst(codes[::-1]) == codes[0]
    assert worst([]) == EXIT_VALID


LOSS = Verdict(valid=False, findings=(replace(PERMITTED, klass="bug", permitted_by=None),), counts=COUNTS)
UNSEEN = Verdict(valid="unknown", unknown=(Unknown(names=("unseen",), reason="no logs"),), counts=COUNTS)


@pytest.mark.parametrize(("verdict", "words", "codes", "says"), [
    (LOSS, ("--allow", "duplicate"), (1, 0), "--allow: duplicate let through"),
    (LOSS, ("--allow", "lost-write", "--allow-unknown"), (1, 1), "1 finding, a bug"),
    (UNSEEN, ("--allow-unknown",), (3, 0), "--allow-unknown: unknown let through"),
    (Verdict(valid=True, findings=(PERMITTED,), counts=COUNTS), ("--strict",), (0, 1),
     "--strict: duplicate counted as bugs")])
def test_a_gate_lets_through_what_it_is_told_and_says_so(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, words: tuple[str, ...],
        codes: tuple[int, int], says: str) -> None:
    """Without the words, and with them."""
    judge_by(monkeypatch, lambda _: verdict)
    folder = golden(tmp_path, "two-partitions-two-elections")
    without, told = floodmark("check", folder), floodmark("check", folder, *words)
    assert (without.code, told.code, says in told.out) == (*codes, True), told
    assert floodmark("rejudge", folder, *words).code == told.code


def test_a_name_that_was_withdrawn_may_still_be_allowed() -> None:
    """Gates of before have it."""
    made = pipeline.gate(strict=True, allow=("G-single",), allow_unknown=False)
    assert made.policy.allow == {"G-single"}
