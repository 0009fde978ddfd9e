"""`floodmark reproduce` and `rejudge` for real: a loss under the oldest rules, reproduced from its folder."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import GOLDEN, floodmark, golden, verdict

from floodmark.harness.commands.scenario import demo_acts, plan_of
from floodmark.harness.pipeline import record


@pytest.mark.spark
def test_a_loss_is_had_again_from_its_folder(tmp_path: Path) -> None:
    """The same finding in the same partition; the new run is linked to the first; the first, moved, is not
    changed."""
    first = tmp_path / "first"
    loss = demo_acts()[0]
    record(plan_of(loss, "simulated", tmp_path / "made"))
    shutil.move(tmp_path / "made", first)
    shutil.rmtree(first / "nodes")
    before = sorted(path.name for path in first.iterdir())
    answer = floodmark("reproduce", first, "--runs", 1, "--out", tmp_path / "out", "--json",
                       tmp_path / "reproduced.json")
    assert answer.code == 0, answer.out + answer.err
    assert answer.last == str(tmp_path / "out")
    assert "lost-write, a bug: 1/1" in answer.out
    assert "in the same partition (0): 1/1" in answer.out
    assert "as asked" in answer.out
    assert sorted(path.name for path in first.iterdir()) == before
    again, report = tmp_path / "out" / "first-1", json.loads((tmp_path / "reproduced.json").read_text())
    about, made = json.loads((again / "run.json").read_text()), json.loads((first / "run.json").read_text())
    assert about["reproduces"] == {"folder": str(first), "id": made["id"], "run": 1}
    for name in ("seed", "rules", "links", "nodes", "partitions", "config", "guarantees", "schedule"):
        assert about[name] == made[name], name
    assert verdict(again)["valid"] is False
    assert (report["shown"], report["of"], report["finding"]["name"]) == (1, 1, "lost-write")


@pytest.mark.spark
def test_saved_folders_are_judged_again_and_what_changed_is_reported(tmp_path: Path) -> None:
    """One without a verdict, one whose verdict has a finding that is not there, one that is unchanged."""
    names = ("a-kill-loses-the-tail", "a-member-is-behind", "nobody-ever-read-it")
    fresh, wrong, same = (golden(tmp_path, name) for name in names)
    assert floodmark("check", wrong, same).code == 1
    saved = verdict(wrong)
    claimed = {"name": "phantom", "class": "bug", "permitted_by": None, "count": 3, "examples": []}
    (wrong / "verdict.json").write_text(json.dumps({**saved, "findings": [claimed]}))
    answer = floodmark("rejudge", fresh, wrong, same)
    assert answer.code == 1
    assert "a-kill-loses-the-tail: no verdict was saved, is INVALID" in answer.out
    assert "gone       phantom: 3 findings, a bug" in answer.out
    assert f"nobody-ever-read-it: unchanged, {'INVALID'}" in answer.out
    assert "3 runs: 3 invalid; 2 changed" in answer.err
    assert verdict(wrong)["findings"] == saved["findings"]
    files = {path.name for path in (GOLDEN / names[1]).iterdir()}
    assert {path.name for path in wrong.iterdir()} == files | {"verdict.json", "report.html"}
