"""The page that `check` writes into an invalid run: printed before the folder, never another exit code."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import floodmark
from judged_runs import judge_by, judged, saved_verdict

from floodmark.harness.cli import main
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import run_page

LOST, FINE = "double-failover", "traced-and-in-order"


@pytest.fixture(autouse=True)
def _judge(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_by(monkeypatch, saved_verdict)


def test_a_valid_run_gets_no_page_and_each_of_several_its_own(tmp_path: Path) -> None:
    lost, fine = judged(tmp_path, LOST), judged(tmp_path, FINE)

    answer = floodmark("check", fine, lost)

    assert not (fine / "report.html").exists()
    assert answer.about(lost).splitlines()[-1] == f"  page       {lost / 'report.html'}"
    assert "page" not in answer.about(fine)


def test_an_existing_page_is_updated_to_the_new_verdict(tmp_path: Path) -> None:
    fine = judged(tmp_path, FINE)
    for command in ("check", "rejudge"):
        (fine / "report.html").write_text("invalid")

        assert floodmark(command, fine).code == 0

        assert "<title>valid" in (fine / "report.html").read_text()


@pytest.mark.parametrize("error", [FloodmarkError("cannot write it: the disk is full"), ValueError("odd")])
def test_a_page_that_cannot_be_made_is_reported_and_fails_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    folder = judged(tmp_path, LOST)

    def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(run_page, "page_of", fail)
    ran = CliRunner().invoke(main, ["check", str(folder)])  # `floodmark` would fail at a bug of our own

    assert ran.exit_code == 1
    assert ran.stdout.splitlines()[-1] == str(folder)
    assert "page   " not in ran.stdout
    assert f"{folder}: its page was not written: " in ran.stderr
    assert str(error) in ran.stderr
    assert not (folder / "report.html").exists()


def test_nothing_is_written_into_a_folder_that_is_no_run(tmp_path: Path) -> None:
    folder = judged(tmp_path, LOST)
    (folder / "run.json").unlink()
    (folder / "history.jsonl").unlink()

    floodmark("check", folder)

    assert not (folder / "report.html").exists()


def test_a_large_run_gets_its_page_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = judged(tmp_path, LOST)
    monkeypatch.setattr(run_page, "AT_ONCE_BYTES", 100)

    answer = floodmark("check", folder)

    assert (answer.code, answer.last) == (1, str(folder))
    assert f"its page takes a while: floodmark report {folder}" in answer.err
    assert not (folder / "report.html").exists()


def test_a_link_in_the_pages_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder, outside = judged(tmp_path, LOST), tmp_path / "precious"
    outside.write_text("mine")
    (folder / "report.html").symlink_to(outside)

    floodmark("check", folder)

    assert outside.read_text() == "mine"
    assert not (folder / "report.html").is_symlink()
