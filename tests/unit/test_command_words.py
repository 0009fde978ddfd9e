"""The texts of ops, faults and the command that repeats a run."""

from pathlib import Path
from typing import Any

import pytest

from floodmark.harness.op import Op, Read, Send, Type
from floodmark.harness.report import verdict_text
from floodmark.harness.report.phrases import op_line
from floodmark.harness.report.verdict_text import shortened, worst_first


def fault(f: str, **fields: Any) -> Op:
    return Op(index=7, time=1_500_000_000, process=-1, type=Type.INFO, f=f, fault=fields)


@pytest.mark.parametrize(("op", "text"), [
    (fault("kill", nodes=["n1", "n2"]), "kill n1 n2"),
    (fault("heal", nodes=[]), "heal"),
    (fault("kill", nodes=["n1"], moment={"at": "ack", "partition": 2, "count": 5}),
     "kill n1; asked at ack 5 of p2"),
    (fault("kill", nodes=["n1"], moment={"at": "time", "time": 1}), "kill n1"),
    (fault("cut", nodes=["n1", "n2"], grudge={"n1": ["n2"], "n2": ["n1", "n3"]}),
     "cut; n1 receives nothing from n2; n2 receives nothing from n1 n3"),
    (fault("power_cut", nodes=["n1"], lost=True, lost_records={"n1": 1}, keep={"0": 5}),
     "power_cut n1; n1 lost 1 record; p0 to be kept to 5"),
    (fault("power_cut", nodes=["n1"], lost=True, lost_records={"n1": 1}, keep={"0": 5},
           kept={"n1": {"0": 5}}), "power_cut n1; n1 lost 1 record; p0 kept to 5"),
    (fault("power_cut", nodes=["n1"], lost=True, lost_records={"n1": 0}, keep={"0": 5},
           kept={"n1": {"0": 7, "1": 2}}), "power_cut n1; n1 lost 0 records; p0 kept to 7 (5 asked)"),
    (fault("power_cut", nodes=["n1", "n2"], lost=True, keep={"0": 5}, kept={"n1": {"0": 5}, "n2": {"0": 4}}),
     "power_cut n1 n2; what was not fsynced is lost; p0 kept to 5 on n1, 4 on n2 (5 asked)"),
    (fault("power_cut", nodes=["n1"], lost=True, lost_records={"n1": 3}, keep_share=0.5,
           kept={"n1": {"0": 5}}), "power_cut n1; n1 lost 3 records; 50% of each log asked to be kept"),
    (fault("power_cut", nodes=["n1"], lost=True), "power_cut n1; what was not fsynced is lost"),
    (fault("disk", nodes=["n1"], kind="wiped", lost=True), "disk n1; all data lost"),
    (fault("elect", nodes=[], partitions=[1], unclean=True), "elect; unclean p1"),
    (fault("elect", nodes=[], partitions=[1], leader="n2"), "elect; n2 p1"),
    (fault("elect", nodes=[], partitions=[1, 2], elected=[2], refused={"1": "no leader"}),
     "elect; preferred p1 p2; p1 refused (no leader)"),
    (fault("elect", nodes=[], partitions=[1], leader="n2", unclean=True), "elect; unclean n2 p1"),
    (fault("arm", nodes=["n2"], point={"name": "F.truncated", "action": "hold", "partition": 0, "epoch": 2}),
     "arm n2; F.truncated, hold, p0, epoch 2"),
    (fault("release", nodes=["n2"], released={"n2": 1}), "release n2"),
    (fault("kill", nodes=["n2"], moment={"at": "failpoint", "node": "n2", "name": "F.truncated"}),
     "kill n2; asked at failpoint F.truncated of n2"),
    (fault("kill", nodes=["n1"], moment={"at": "sequence", "of": [
        {"at": "ack", "partition": 0, "count": 2, "leader": "n1"}, {"at": "after", "after_ns": 1},
        {"at": "state", "healthy": True}]}),
     "kill n1; asked at ack 2 of p0 by n1 and then asked when the cluster is healthy"),
    (fault("elect", nodes="n1", partitions=None, lost="yes"), "elect; preferred"),
])
def test_a_fault_as_text(op: Op, text: str) -> None:
    """Fields of a foreign history with wrong types are left out."""
    assert op_line(op) == f"       7     1.500 s  nemesis          {text}"


def test_of_many_records_the_matching_ones_are_shown() -> None:
    """And the number of the others; if none is given, the first few."""
    reads = tuple(Read(partition=0, offset=offset, value=100 + offset, epoch=None) for offset in range(9))
    op = Op(index=1, time=0, process=3, type=Type.OK, f="poll", reads=reads)
    assert op_line(op, lambda record: record.offset == 6).endswith("poll  ok     p0: 106 at 6, 8 more")
    assert op_line(op).endswith("p0: 103 at 3, 5 more")


def test_a_failed_send_shows_its_error() -> None:
    send = Send(partition=1, value=5, offset=None, epoch=None)
    op = Op(index=1, time=0, process=3, type=Type.FAIL, f="send", sends=(send,), error="TIMEOUT")
    assert op_line(op).endswith("send  fail   p1: 5 TIMEOUT")


def test_a_loss_precedes_its_consequences_and_bugs_precede_permitted_findings() -> None:
    found = [{"name": name, "class": klass} for name, klass in (
        ("duplicate", "permitted"), ("inconsistent-offsets", "bug"), ("lost-write", "bug"),
        ("diverged", "permitted"))]
    assert [one["name"] for one in worst_first(found)] == [
        "lost-write", "inconsistent-offsets", "diverged", "duplicate"]


def test_very_many_names_are_shortened() -> None:
    from floodmark.checkers.laws.finding_names import MADE, If, unknown_if

    assert shortened(["unseen", "diverged"]) == "unseen, diverged"
    assert shortened([*MADE, "unfit"]) == "everything"
    assert shortened(unknown_if(If.BREACHED)).startswith("all checks of the history")
    assert shortened([f"check-{number}" for number in range(9)]).endswith("and 1 more (verdict.json has all)")



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


def test_a_run_without_its_history_cannot_be_reproduced(tmp_path: Path) -> None:
    """The history has the times of its faults."""
    assert verdict_text.reproduce_command(tmp_path, RUN_JSON) is None


@pytest.mark.parametrize("change", [
    {"cluster": "elsewhere"}, {"nodes": ["a", "b"]}, {"partitions": {}}, {"config": {}}, {"seed": "x"},
    {"guarantees": None}, {"partitions": {"0": {}}}])
def test_a_run_with_a_foreign_run_json_cannot_be_reproduced(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").touch()
    assert verdict_text.reproduce_command(tmp_path, RUN_JSON) is not None
    assert verdict_text.reproduce_command(tmp_path, {**RUN_JSON, **change}) is None
    incomplete = {key: value for key, value in RUN_JSON.items() if key not in change}
    assert verdict_text.reproduce_command(tmp_path, incomplete) is None
