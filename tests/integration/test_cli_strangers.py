"""`floodmark check` of folders that strangers prepared: all are reported, none blocks, no file is lost."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import Answer, edit_run, floodmark, golden, verdict

pytestmark = pytest.mark.spark

VALID = "two-partitions-two-elections"
LOST = "a-kill-loses-the-tail"
ALARM_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    folder: Path
    answer: Answer
    mine: Path  # a file of the user's; the folders link to it


def prepare(parent: Path, mine: Path) -> None:
    """Folders with one thing wrong in each; `good` and `inside` are near misses."""
    for name, file in (("history", "history.jsonl"), ("replicas", "replicas.jsonl"),
                       ("dump", "logs/n2.jsonl"), ("trace", "trace.jsonl")):
        path = golden(parent, VALID, called=f"pipe-{name}") / file
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    for name, file in (("history", "history.jsonl"), ("dump", "logs/n2.jsonl")):
        path = golden(parent, VALID, called=f"device-{name}") / file
        path.unlink()
        path.symlink_to("/dev/zero")
    os.mkfifo(golden(parent, VALID, called="pipe-parquet") / "logs" / "n2.parquet")
    trapped = golden(parent, LOST, called="trapped")
    for name in ("verdict.json", ".verdict.json.fresh", ".history.parquet.new", "history.parquet"):
        (trapped / name).symlink_to(mine)
    edit_run(golden(parent, VALID, called="named"), nodes=["n1", "../../mine", "n3"])
    golden(parent, VALID, called="good")
    inside = golden(parent, VALID, called="inside")
    (inside / "history.jsonl").rename(inside / "kept.jsonl")
    (inside / "history.jsonl").symlink_to("kept.jsonl")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    parent, mine = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("home") / "mine"
    mine.write_text("precious")
    prepare(parent, mine)

    def ring(*_: object) -> None:
        raise TimeoutError(f"not judged after {ALARM_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, ALARM_S)
    try:
        answer = floodmark("check", "--keep-parquet", *sorted(parent.iterdir()))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return Judged(folder=parent, answer=answer, mine=mine)


@pytest.mark.parametrize(("name", "message"), [
    ("pipe-history", "history.jsonl: a pipe, and only regular files are opened"),
    ("pipe-replicas", "replicas.jsonl: a pipe"),
    ("pipe-dump", "logs/n2.jsonl: a pipe"),
    ("pipe-trace", "trace.jsonl: a pipe"),
    ("device-history", "history.jsonl: a link that leaves the folder"),
    ("device-dump", "logs/n2.jsonl: a link that leaves the folder"),
])
def test_what_is_no_file_is_unknown_by_name_and_no_alarm(judged: Judged, name: str, message: str) -> None:
    """Nothing is found in a healthy run with a file removed; checks that need the file are unknown."""
    saved = verdict(judged.folder / name)
    assert saved["valid"] == "unknown"
    assert [found for found in saved["findings"] if found["class"] == "bug"] == []
    assert any(message in entry["reason"] for entry in saved["unknown"])
    assert message in judged.answer.about(judged.folder / name)


def test_beside_good_lines_and_behind_a_link_inside_all_is_well(judged: Judged) -> None:
    for name in ("good", "inside", "pipe-parquet"):
        assert verdict(judged.folder / name)["valid"] is True, name


def test_a_prepared_folder_gets_its_verdict_and_the_user_keeps_the_file(judged: Judged) -> None:
    assert judged.mine.read_text() == "precious"
    assert verdict(judged.folder / "trapped")["valid"] is False
    assert not (judged.folder / "trapped" / "verdict.json").is_symlink()


def test_a_name_that_leads_elsewhere_is_reported_and_nothing_else_is_read(judged: Judged) -> None:
    assert "no file can be named for that" in judged.answer.about(judged.folder / "named")
    assert verdict(judged.folder / "named")["counts"] == {}
