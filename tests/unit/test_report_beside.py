"""The page that `check` writes into an invalid run: printed before the folder, never another exit code."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import floodmark
from judged_runs import judged

from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import run_page
from floodmark.harness.verdict import Finding, NotMade, Unknown, Verdict

LOST, FINE = "double-failover", "traced-and-in-order"


def verdict_of(folder: Path) -> Verdict:
    """The saved verdict."""
    saved: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    return Verdict(
        valid=saved["valid"], counts=saved["counts"],
        findings=tuple(Finding(
            name=one["name"], klass=one["class"], permitted_by=one["permitted_by"], count=one["count"],
            examples=tuple(one["examples"])) for one in saved["findings"]),
        unknown=tuple(Unknown(names=tuple(one["names"]), reason=one["reason"]) for one in saved["unknown"]),
        not_made=tuple(NotMade(names=tuple(one["names"]), reason=one["reason"])
                       for one in saved.get("not_made") or ()))  # fmt: skip


class Judge:
    def judge(self, chosen: Sequence[Path]) -> list[Verdict]:
        return [verdict_of(folder) for folder in chosen]


@pytest.fixture(autouse=True)
def _judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "judge", lambda *_: Judge())
    monkeypatch.setattr(catalog, "prepare_next_judge", lambda: False)


def test_an_invalid_run_gets_its_page_on_the_line_before_its_folder(tmp_path: Path) -> None:
    folder = judged(tmp_path, LOST)

    answer = floodmark("check", folder)

    assert answer.code == 1
    assert answer.out.splitlines()[-2:] == [f"  page       {folder / 'report.html'}", str(folder)]
    assert "<title>invalid: 1 lost write" in (folder / "report.html").read_text()


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
    # Not by `floodmark`, which fails at any bug of our own: this one is made on purpose.
    from click.testing import CliRunner

    from floodmark.harness.cli import main

    ran = CliRunner().invoke(main, ["check", str(folder)])

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
