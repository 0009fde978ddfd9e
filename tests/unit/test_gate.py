"""The gate itself: the folders that a call means, and the exit code for them; all without Spark."""

import json
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import pytest
from command_line import floodmark, golden
from judged_runs import judge_by

from floodmark.checkers.judge import report
from floodmark.harness import pipeline
from floodmark.harness.commands.folder_arguments import chosen
from floodmark.harness.pipeline import shrink
from floodmark.harness.run import RUNS
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


# -- exit codes ---------------------------------------------------------------------------------------------


def test_the_worst_of_any_set_of_codes_masks_no_failure() -> None:
    """A bug before a broken harness, that before an unknown; in whatever order they are given."""
    order = (EXIT_INVALID, EXIT_HARNESS, EXIT_UNKNOWN, EXIT_VALID)
    for codes in chain.from_iterable(combinations(order, size) for size in range(1, 5)):
        assert worst(codes) == worst(codes[::-1]) == codes[0]
    assert worst([]) == EXIT_VALID


def test_a_name_that_was_withdrawn_may_still_be_allowed() -> None:
    """Gates of before have it."""
    made = pipeline.gate(strict=True, allow=("G-single",), allow_unknown=False)

    assert made.policy.allow == {"G-single"}
