"""How ops, faults and the command that repeats a run are put into words."""

from pathlib import Path
from typing import Any

import pytest

from floodmark.harness.op import Op, Read, Send, Type
from floodmark.harness.reports import reproduce_command
from floodmark.harness.reports.phrases import op_line
from floodmark.harness.reports.verdict_text import shortened, worst_first


def act(f: str, **fault: Any) -> Op:
    return Op(index=7, time=1_500_000_000, process=-1, type=Type.INFO, f=f, fault=fault)


@pytest.mark.parametrize(("op", "told"), [
    (act("kill", nodes=["n1", "n2"]), "kill n1 n2"),
    (act("heal", nodes=[]), "heal"),
    (act("kill", nodes=["n1"], moment={"at": "ack", "partition": 2, "count": 5}),
     "kill n1; asked at ack 5 of p2"),
    (act("kill", nodes=["n1"], moment={"at": "time", "time": 1}), "kill n1"),
    (act("cut", nodes=["n1", "n2"], grudge={"n1": ["n2"], "n2": ["n1", "n3"]}),
     "cut; n1 receives nothing from n2; n2 receives nothing from n1 n3"),
    (act("power_cut", nodes=["n1"], lost=True, lost_records={"n1": 1}, keep={"0": 5}),
     "power_cut n1; n1 lost 1 record; p0 kept to 5"),
    (act("power_cut", nodes=["n1"], lost=True), "power_cut n1; what was not fsynced is lost"),
    (act("disk", nodes=["n1"], kind="wiped", lost=True), "disk n1; all data lost"),
    (act("elect", nodes=[], partitions=[1], unclean=True), "elect; unclean p1"),
    (act("elect", nodes=[], partitions=[1], leader="n2"), "elect; n2 p1"),
    (act("elect", nodes=[], partitions=[1], leader="n2", unclean=True), "elect; unclean n2 p1"),
    (act("arm", nodes=["n2"], point={"name": "F.truncated", "action": "hold", "partition": 0, "epoch": 2}),
     "arm n2; F.truncated, hold, p0, epoch 2"),
    (act("release", nodes=["n2"], released={"n2": 1}), "release n2"),
    (act("kill", nodes=["n2"], moment={"at": "failpoint", "node": "n2", "name": "F.truncated"}),
     "kill n2; asked at failpoint F.truncated of n2"),
    (act("kill", nodes=["n1"], moment={"at": "sequence", "of": [
        {"at": "ack", "partition": 0, "count": 2, "leader": "n1"}, {"at": "after", "after_ns": 1},
        {"at": "state", "healthy": True}]}),
     "kill n1; asked at ack 2 of p0 by n1 and then asked when the cluster is healthy"),
    (act("elect", nodes="n1", partitions=None, lost="yes"), "elect; preferred"),
])
def test_a_fault_in_words(op: Op, told: str) -> None:
    """Fields of a foreign history that are not what they should be are left out."""
    assert op_line(op) == f"       7     1.500 s  nemesis          {told}"


def test_of_many_records_those_asked_about_are_shown() -> None:
    """And how many there are besides; where none is asked about, the first few."""
    reads = tuple(Read(partition=0, offset=offset, value=100 + offset, epoch=None) for offset in range(9))
    op = Op(index=1, time=0, process=3, type=Type.OK, f="poll", reads=reads)
    assert op_line(op, lambda record: record.offset == 6).endswith("poll  ok     p0: 106 at 6, 8 more")
    assert op_line(op).endswith("p0: 103 at 3, 5 more")


def test_a_send_that_failed_says_why() -> None:
    send = Send(partition=1, value=5, offset=None, epoch=None)
    op = Op(index=1, time=0, process=3, type=Type.FAIL, f="send", sends=(send,), error="TIMEOUT")
    assert op_line(op).endswith("send  fail   p1: 5 TIMEOUT")


def test_a_loss_comes_before_what_comes_of_it_and_bugs_before_what_is_permitted() -> None:
    found = [{"name": name, "class": klass} for name, klass in (
        ("duplicate", "permitted"), ("inconsistent-offsets", "bug"), ("lost-write", "bug"),
        ("diverged", "permitted"))]
    assert [one["name"] for one in worst_first(found)] == [
        "lost-write", "inconsistent-offsets", "diverged", "duplicate"]


def test_names_that_are_very_many_are_said_in_a_word() -> None:
    from floodmark.checkers.laws.finding_names import MADE, OF_THE_HISTORY

    assert shortened(["unseen", "diverged"]) == "unseen, diverged"
    assert shortened([*MADE, "unfit"]) == "everything"
    assert shortened(OF_THE_HISTORY).startswith("all checks of the history")
    assert shortened([f"check-{number}" for number in range(9)]).endswith("and 1 more (verdict.json has all)")



ABOUT: dict[str, Any] = {
    "cluster": "local", "seed": 3, "rules": "high-watermark", "workload": "log", "nodes": ["n1", "n2"],
    "partitions": {"0": {"topic": "t", "partition": 0, "replicas": ["n1", "n2"]}},
    "schedule": [{"f": "kill", "nodes": ["n1"], "moment": {"at": "time", "time": 1}}],
    "concurrency": 4, "rate": None, "duration_s": 30.0, "guarantees": {"acks": "1"},
    "config": {node: {"min.insync.replicas": 1, "floodmark.bugs": "ack_on_append"} for node in ("n1", "n2")},
}


def test_a_run_is_had_again_from_its_folder(tmp_path: Path) -> None:
    """The one command, with the finding that is looked for where one was asked about."""
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "history.jsonl").touch()
    assert reproduce_command.reproduce_command(folder, ABOUT) == f"floodmark reproduce '{folder}'"
    with_finding = f"floodmark reproduce '{folder}' --finding duplicate"
    assert reproduce_command.reproduce_command(folder, ABOUT, "duplicate") == with_finding


def test_a_run_without_its_history_is_not_had_again(tmp_path: Path) -> None:
    """Where its faults struck stands there."""
    assert reproduce_command.reproduce_command(tmp_path, ABOUT) is None


@pytest.mark.parametrize("change", [
    {"cluster": "elsewhere"}, {"nodes": ["a", "b"]}, {"partitions": {}}, {"config": {}}, {"seed": "x"},
    {"guarantees": None}, {"partitions": {"0": {}}}])
def test_a_run_of_somebody_elses_making_is_not_had_again(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").touch()
    assert reproduce_command.reproduce_command(tmp_path, ABOUT) is not None
    assert reproduce_command.reproduce_command(tmp_path, {**ABOUT, **change}) is None
    lacking = {key: value for key, value in ABOUT.items() if key not in change}
    assert reproduce_command.reproduce_command(tmp_path, lacking) is None
