"""The texts of ops, faults and the command that repeats a run."""

from pathlib import Path
from typing import Any

import pytest

from floodmark.harness.op import Op, Read, Type
from floodmark.harness.report import verdict_text
from floodmark.harness.report.phrases import op_line
from floodmark.harness.report.verdict_text import worst_first


def test_of_many_records_the_matching_ones_are_shown() -> None:
    """And the number of the others; if none is given, the first few."""
    reads = tuple(Read(partition=0, offset=offset, value=100 + offset, epoch=None) for offset in range(9))
    op = Op(index=1, time=0, process=3, type=Type.OK, f="poll", reads=reads)
    assert op_line(op, lambda record: record.offset == 6).endswith("poll  ok     p0: 106 at 6, 8 more")
    assert op_line(op).endswith("p0: 103 at 3, 5 more")


def test_a_loss_precedes_its_consequences_and_bugs_precede_permitted_findings() -> None:
    found = [{"name": name, "class": klass} for name, klass in (
        ("duplicate", "permitted"), ("inconsistent-offsets", "bug"), ("lost-write", "bug"),
        ("diverged", "permitted"))]
    assert [one["name"] for one in worst_first(found)] == [
        "lost-write", "inconsistent-offsets", "diverged", "duplicate"]


RUN_JSON: dict[str, Any] = {
    "cluster": "local", "seed": 3, "rules": "high-watermark", "workload": "log", "nodes": ["n1", "n2"],
    "partitions": {"0": {"topic": "t", "partition": 0, "replicas": ["n1", "n2"]}},
    "schedule": [{"f": "kill", "nodes": ["n1"], "moment": {"at": "time", "time": 1}}],
    "concurrency": 4, "rate": None, "duration_s": 30.0, "guarantees": {"acks": "1"},
    "config": {node: {"min.insync.replicas": 1, "floodmark.bugs": "ack_on_append"} for node in ("n1", "n2")},
}


def test_a_run_is_reproduced_from_its_folder(tmp_path: Path) -> None:
    """By one command, with the finding if one is given."""
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "history.jsonl").touch()
    assert verdict_text.reproduce_command(folder, RUN_JSON) == f"floodmark reproduce '{folder}'"
    with_finding = f"floodmark reproduce '{folder}' --finding duplicate"
    assert verdict_text.reproduce_command(folder, RUN_JSON, "duplicate") == with_finding


@pytest.mark.parametrize("change", [
    {"cluster": "elsewhere"}, {"nodes": ["a", "b"]}, {"partitions": {}}, {"config": {}}, {"seed": "x"},
    {"guarantees": None}, {"partitions": {"0": {}}}])
def test_a_run_with_a_foreign_run_json_cannot_be_reproduced(change: dict[str, Any], tmp_path: Path) -> None:
    """Nor one without its history, which has the times of its faults."""
    assert verdict_text.reproduce_command(tmp_path, RUN_JSON) is None
    (tmp_path / "history.jsonl").touch()
    assert verdict_text.reproduce_command(tmp_path, RUN_JSON) is not None
    assert verdict_text.reproduce_command(tmp_path, {**RUN_JSON, **change}) is None
    incomplete = {key: value for key, value in RUN_JSON.items() if key not in change}
    assert verdict_text.reproduce_command(tmp_path, incomplete) is None
