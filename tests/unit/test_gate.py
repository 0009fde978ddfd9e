"""The gate itself: the folders that a call means, and the exit code for them; all without Spark."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import pytest
from command_line import floodmark, golden
from judged_runs import judge_by

from floodmark.checkers.judge import report
from floodmark.harness import pipeline
from floodmark.harness.commands import check, run
from floodmark.harness.commands.folder_arguments import chosen, chosen_runs
from floodmark.harness.errors import UsageError
from floodmark.harness.pipeline import shrink
from floodmark.harness.run import RUNS
from floodmark.harness.verdict import (
    EXIT_HARNESS,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
    Finding,
    NotMade,
    Policy,
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
    for name in ("b", "a", "c", ".begun"):
        (runs / name).mkdir(parents=True)
    (runs / "latest").symlink_to("b")
    (runs / "0-last-of-all").symlink_to("c")
    (runs / "gone").symlink_to("nowhere")
    (runs / "notes.txt").write_text("no run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("words", "folders"), [
    ((), ["b"]),
    (("{}/*",), ["a", "b", "c"]),  # in order; not the file, the links to b, c and nothing, the hidden one
    (("{}/l*",), ["b"]),  # by its own name
    (("{}/[ab]", "{}/?"), ["a", "b", "c"]),
    (("{}/c", "{}/*"), ["c", "a", "b"]),
    (("{}/latest", "{}/*"), ["b", "a", "c"]),
    (("{}/a", "{}/../runs/a", "{}/a"), ["a"]),
    (("{}/notes.txt",), ["notes.txt"]),  # named, so the judge reports it as no run
])
def test_names_and_patterns_give_each_folder_once(
        here: Path, words: tuple[str, ...], folders: list[str]) -> None:
    assert list(chosen([Path(word.format(RUNS)) for word in words])) == [RUNS / name for name in folders]


def test_a_name_with_a_wildcard_in_it_is_itself(here: Path) -> None:
    """If there is such a folder; what the pattern would match is not chosen."""
    (RUNS / "[ab]").mkdir()
    assert chosen([RUNS / "[ab]"]) == (RUNS / "[ab]",)


def test_a_name_that_is_no_utf_8_is_a_usage_error(here: Path) -> None:
    (RUNS / "caf\udcff").mkdir()
    with pytest.raises(UsageError, match="no UTF-8"):
        chosen([RUNS / "*"])


def test_folders_of_runs_are_entered(here: Path) -> None:
    """A demo, a campaign with a reproduction, a plain run and a link to one. What is hidden, a run's own
    folders and links inside are left out."""
    runs = ["demo/double-failover-kip-101", "night/again/0123456789/1", "night/runs/00001-a", "plain"]
    for name in (*runs, "night/runs/.00002-b", "plain/nodes/n1"):
        (RUNS / name).mkdir(parents=True)
        (RUNS / name / "run.json").touch()
    (RUNS / "night" / "loop").symlink_to("..")
    for name in ("a", "b", "c"):
        (RUNS / name / "history.jsonl").touch()
    everything = [*map(str, chosen_runs([RUNS / "*"]))]
    assert everything == [str(RUNS / name) for name in sorted(["a", "b", "c", *runs])]
    assert [*map(str, chosen_runs([RUNS]))] == everything
    assert chosen_runs([RUNS / "plain", RUNS / "night", RUNS / "[np]*"])[0] == RUNS / "plain"


# -- runs that a campaign has shrunk ------------------------------------------------------------------------


def test_a_shrunk_run_keeps_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """check reports the saved one and says so; rejudge leaves it out, and refuses if it is alone. Shrinking
    twice changes nothing."""
    folder = golden(tmp_path, "two-partitions-two-elections")
    twice = replace(PERMITTED, examples=({"text": "twice"},))
    without = NotMade(names=("unseen",), reason="no logs")
    report.write_verdict(
        folder, Verdict(valid=True, findings=(twice,), not_made=(without,), counts=COUNTS))
    before = json.loads((folder / "verdict.json").read_text())
    shrink(folder)
    shrink(folder)
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


@pytest.mark.parametrize("command", ["check", "rejudge"])
def test_a_run_that_its_campaign_shrinks_while_it_is_judged_keeps_its_verdict(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Half of its files may have been there."""
    folder = golden(tmp_path, "two-partitions-two-elections")
    report.write_verdict(folder, Verdict(valid=True, counts=COUNTS))
    before = (folder / "verdict.json").read_bytes()

    def half_judged(_: Path) -> Verdict:
        shrink(folder)
        lost = Unknown(names=("unseen",), reason="no logs")
        return Verdict(valid="unknown", unknown=(lost,), counts=COUNTS)

    judge_by(monkeypatch, half_judged)
    answer = floodmark(command, folder)
    assert (folder / "verdict.json").read_bytes() == before
    assert (answer.code, f"{folder.name}: valid" in answer.out) == ((0, True) if command == "check" else (
        3, False)), answer


def test_a_removed_run_is_not_shrunk(tmp_path: Path) -> None:
    shrink(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


# -- exit codes ---------------------------------------------------------------------------------------------


def test_the_worst_of_any_set_of_codes_masks_no_failure() -> None:
    """A bug before a broken harness, that before an unknown; in whatever order they are given."""
    order = (EXIT_INVALID, EXIT_HARNESS, EXIT_UNKNOWN, EXIT_VALID)
    for codes in chain.from_iterable(combinations(order, size) for size in range(1, 5)):
        assert worst(codes) == worst(codes[::-1]) == codes[0]
    assert worst([]) == EXIT_VALID


# -- the options --------------------------------------------------------------------------------------------


def test_run_and_check_go_through_the_same_gate_and_rejudge_writes_no_reports(
        here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gates: dict[str, pipeline.Gate] = {}

    def keep(command: str) -> Callable[..., int]:
        def kept(*_: object, gate: pipeline.Gate, **__: object) -> int:
            gates[command] = gate
            return 3

        return kept

    (RUNS / "b" / "run.json").touch()
    monkeypatch.setattr(run, "run_and_judge", keep("run"))
    monkeypatch.setattr(check, "check_folders", keep("check"))
    monkeypatch.setattr(check, "rejudge_folders", keep("rejudge"))
    words = ("--strict", "--allow", "lost-write", "--allow", "duplicate", "--allow-unknown", "--json", "all")
    reports = ("--junit", "junit.xml", "--markdown", "summary.md")
    assert [floodmark(command, *words, *reports).code for command in ("run", "check", "rejudge")] == [3, 3, 2]
    assert floodmark("rejudge", *words).code == 3
    policy = Policy(strict=True, allow=frozenset({"lost-write", "duplicate"}), allow_unknown=True)
    assert gates["run"] == gates["check"] == pipeline.Gate(
        policy=policy, json_file=Path("all"), junit_file=Path("junit.xml"), markdown_file=Path("summary.md"))
    assert gates["rejudge"] == pipeline.Gate(policy=policy, json_file=Path("all"))


def test_a_name_that_was_withdrawn_may_still_be_allowed() -> None:
    """Gates of before have it."""
    made = pipeline.gate(strict=True, allow=("G-single",), allow_unknown=False)

    assert made.policy.allow == {"G-single"}
