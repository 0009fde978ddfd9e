"""Findings of one event are one group: which join a graver one, and that nothing is told twice."""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from folders import write_lines
from judged_runs import finding

from floodmark.harness.report import verdict_text
from floodmark.harness.report.model import Reading
from floodmark.harness.report.run_summary import ruling
from floodmark.harness.report.verdict_text import Outcome, markdown

ABOUT: dict[str, Any] = {
    "format": 1, "rules": "kip-320", "nodes": ["n1", "n2", "n3"], "leaders": {"0": {"leader": "n3"}},
    "partitions": {"0": {"topic": "t", "partition": 0, "replicas": ["n1", "n2", "n3"]},
                   "1": {"topic": "t", "partition": 1, "replicas": ["n1", "n2", "n3"]}},
    "guarantees": {"acks": "all", "min_insync_replicas": 2, "unclean_leader_election": False, "flush": "os"},
    "ended": "done", "settled": True,
}
S = 1_000_000_000
LOST = {"partition": 0, "offset": 5, "value": 7, "how": "overwritten", "nodes": [], "ops": [1, 2], "event": 6,
        "text": "The send of 7 was acked, and is gone."}


def op(index: int, time: float, process: int, kind: str, f: str, **fields: Any) -> dict[str, Any]:
    return {"index": index, "time": int(time * S), "process": process, "type": kind, "f": f, **fields}


def send(value: int, offset: int | None = None) -> dict[str, Any]:
    return {"sends": [{"partition": 0, "value": value, **({} if offset is None else {"offset": offset})}]}


def act(
    index: int, time: float, f: str, *nodes: str, began: float | None = None, **fault: Any
) -> dict[str, Any]:
    recorded = {"nodes": list(nodes), **({} if began is None else {"began": int(began * S)}), **fault}
    return op(index, time, -1, "info", f, fault=recorded)


HISTORY = [
    act(0, 0.5, "kill", "n9"),
    op(1, 1.0, 3, "invoke", "send", **send(7)), op(2, 1.2, 3, "ok", "send", **send(7, 5)),
    act(3, 2.2, "kill", "n1", began=2.0), act(4, 2.9, "start", "n1", began=2.3), act(5, 3.0, "pause", "n9"),
    op(6, 4.0, 4, "invoke", "send", **send(8)), op(7, 4.1, 4, "ok", "send", **send(8, 5)),
    act(8, 9.0, "kill", "n2"),
]


def line(time: float, node: str, event: str, partition: int = 0, **fields: Any) -> dict[str, Any]:
    return {"time": int(time * S), "node": node, "seq": 0, "event": event, "partition": partition, "epoch": 2,
            "leo": 6, "hw": 6, **fields}


def elect(time: float, leader: str, epoch: int, **fields: Any) -> dict[str, Any]:
    event = line(time, "controller", "elect", leader=leader, isr=[leader], **{"clean": True, **fields})
    del event["leo"], event["hw"]
    return {**event, "epoch": epoch}


TRACE = [
    line(1.05, "n1", "append", role="leader", offset=5, count=1),
    line(1.07, "n2", "append", role="follower", offset=5, count=1),
    line(1.1, "n1", "ack", offset=5, acks="all", isr=["n1", "n2"]),
    elect(2.1, "n2", 3), line(2.15, "n2", "become_leader", epoch=3, isr=["n2"], start=6),
    line(2.4, "n3", "truncate", partition=1, **{"from": 9, "to": 0}),
    line(2.5, "n2", "truncate", why="so", epoch=4, **{"from": 6, "to": 5}),
    elect(2.6, "n3", 4), line(2.7, "n3", "become_leader", epoch=4, leo=5, hw=5, isr=["n3"], start=5),
    elect(2.8, "n1", 5), line(3.2, "n1", "truncate", epoch=5, **{"from": 6, "to": 4}),
    elect(8.0, "n2", 9),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """n1 acked 7 and n2 had it; both truncated it; n3, which never had it, was elected and appended 8 at
    its offset."""
    write_lines(tmp_path / "history.jsonl", HISTORY)
    write_lines(tmp_path / "trace.jsonl", TRACE)
    for node in ABOUT["nodes"]:
        write_lines(tmp_path / "logs" / f"{node}.jsonl", [
            {"node": node, "partition": 0, "offset": 5, "epoch": 4, "value": 8, "crc": 1}])
    (tmp_path / "run.json").write_text(json.dumps(ABOUT))
    return tmp_path


def group(name: str, *examples: dict[str, Any], by: str | None = None, count: int = 0) -> dict[str, Any]:
    return finding(name, *({"text": f"{name} it is.", **one} for one in examples), by=by, count=count)


def read(folder: Path, *groups: dict[str, Any]) -> Reading:
    return verdict_text.reading_of(folder, {"valid": False, "findings": list(groups)}, ABOUT)


def events(folder: Path, *groups: dict[str, Any]) -> list[list[str]]:
    return [[account.found["name"], *(one.found["name"] for one in account.followers)]
            for account in read(folder, *groups).accounts]


# -- what is one event --------------------------------------------------------------------------------------


def at(name: str, offset: int | None = None, value: int | None = None, partition: int | None = 0,
       count: int = 0, **more: Any) -> dict[str, Any]:
    """A finding with one example, about this record."""
    place = {"partition": partition, "offset": offset, "value": value, **more}
    return group(name, {key: word for key, word in place.items() if word is not None}, count=count)


def dump(node: str, *values: int) -> dict[str, Any]:
    return {f"logs/{node}.jsonl": [
        {"node": node, "partition": 0, "offset": offset, "epoch": 4, "value": value, "crc": 1}
        for offset, value in enumerate(values)]}


def poll(index: int, *offsets: int) -> dict[str, Any]:
    return op(index, 5.0 + index, 9, "ok", "poll", reads=[
        {"partition": 0, "offset": offset, "value": 100 + offset} for offset in offsets])


def put(folder: Path, files: dict[str, list[Any]]) -> None:
    """Writes these lines; without any the file is gone."""
    for name, rows in files.items():
        write_lines(folder / name, rows) if rows else (folder / name).unlink()


OTHER = {**LOST, "offset": 6, "value": 9}
ONE, TWO = group("lost-write", LOST), group("lost-write", LOST, OTHER)
MANY = group("lost-write", LOST, {**LOST, "offset": 9, "value": 9}, count=40)
N3_LEADS = group("lost-write", {**LOST, "event": 8})  # its first line is blamed
SEEN = "saw-then-lost"
BOTH = group(SEEN, {"partition": 0, "offset": 5}, {"partition": 0, "offset": 6})
LEADERS_LOG = {**dump("n3", *range(12)), "replicas.jsonl": [
    {"node": "n3", "partition": number, "log_start": 0, "leo": 12, "hw": 12} for number in (0, 1)]}
DIFFERENT_LOGS = {**dump("n1", *[at // 8 for at in range(12)]), **dump("n2", *[at // 4 for at in range(12)])}
POLLS = {"history.jsonl": [*HISTORY, poll(9, 3, 4), poll(10, 6, 7), poll(11, 4, 7), poll(12, 9)]}


@pytest.mark.parametrize(("grave", "consequences", "others", "files"), [
    # The same place, record, or line that is blamed; a truncation with the offset in it. Not the record
    # before, one of another partition or of none, a line that is no truncation or not there, other laws.
    (ONE, [at("inconsistent-offsets", 5, 8), at(SEEN, 9, 7), at("candidate-incomplete", 9, event=6),
           at("unsafe-truncation", 4, event=10), at("hw-regressed", event=6),
           *(at(name, 5) for name in ("realtime-order", "leader-incomplete", "diverged"))],
     [at(SEEN, 4, 6), at(SEEN, 5, 7, partition=1), at(SEEN, 5, 7, partition=None),
      at("unsafe-truncation", 4, event=7), at("unsafe-truncation", 5, event=5, partition=1),
      at("unsafe-truncation", 4, event=99), *(at(name, 5, 7) for name in ("G1a", "unseen", "stuck"))], {}),
    # A second event would be hidden.
    (ONE, [], [BOTH], {}), (TWO, [BOTH], [], {}),
    # The examples of very many losses are the first; the leader's log tells of those behind.
    (MANY, [at(SEEN, 5, 50), at(SEEN, 9, 90), at(SEEN, 10, 100), at(SEEN, 12, 120)],
     [at(SEEN, 4, 40), at(SEEN, 6, 60), at(SEEN, 10, 10), at(SEEN, 10), at(SEEN, 0, 10, partition=1)],
     LEADERS_LOG),
    (MANY, [], [at(SEEN, 10, 1)], {**LEADERS_LOG, "logs/n3.jsonl": []}),
    # Very many truncated or different records: what the truncation removed, where the logs differ.
    (at("unsafe-truncation", 4, event=10, count=9), [at("leader-incomplete", 5, 1)],
     [at("leader-incomplete", 6, 1)], {}),
    (at("diverged", 2, count=9), [at(SEEN, 4)], [at(SEEN, 3), at(SEEN, 20)], DIFFERENT_LOGS),
    # The unclean election of the leader who is to blame; another election is another event.
    (N3_LEADS, [at("unclean-election", event=7)],
     [at("unclean-election", event=number) for number in (9, 3, 99)], {}),
    # A skip of lost records alone: one that exists and was not returned is a bug of its own.
    (ONE, [at("poll-skip", 6, ops=[9, 10])], [
        at("int-poll-skip", 7, ops=[11]), at("poll-skip", 9, ops=[10, 12]), at("poll-skip", 6, ops=[]),
        at("poll-skip", 6, ops=[99])], POLLS),
    (TWO, [at("int-poll-skip", 7, ops=[11])], [], POLLS),
])
def test_consequences_of_one_event_are_grouped_and_others_are_not(
        folder: Path, grave: dict[str, Any], consequences: Sequence[dict[str, Any]],
        others: Sequence[dict[str, Any]], files: dict[str, list[Any]]) -> None:
    put(folder, files)
    for one in consequences:
        (event,) = events(folder, grave, one)
        assert sorted(event) == sorted([grave["name"], one["name"]]), one
    for one in others:
        assert sorted(events(folder, grave, one)) == sorted([[grave["name"]], [one["name"]]]), one


def test_an_unclean_election_has_its_clause(folder: Path) -> None:
    (account,) = read(folder, N3_LEADS, at("unclean-election", event=7, nodes=["n3"])).accounts
    assert [(one.clause, one.places) for one in account.followers] == [
        ("n3 was elected uncleanly, which nothing allowed", "trace.jsonl:8")]


def test_a_bug_is_not_grouped_with_a_permitted_finding(folder: Path) -> None:
    seen = {"partition": 0, "offset": 5, "value": 7}
    lost = group("lost-write", LOST, by="acks")
    for by, groups in ((None, [["saw-then-lost"], ["lost-write"]]),
                       ("retries", [["lost-write"], ["saw-then-lost"]]),
                       ("acks", [["lost-write", "saw-then-lost"]])):
        assert events(folder, lost, group("saw-then-lost", seen, by=by)) == groups


def test_the_summary_is_on_the_page_too_and_nothing_is_repeated(folder: Path) -> None:
    """The lines above already give the time and the nodes that have it now."""
    groups = [group("lost-write", LOST), group("saw-then-lost", {"partition": 0, "offset": 5})]
    verdict = {"valid": False, "findings": groups, "counts": {"ops": 9}}
    outcome = Outcome(
        reading=verdict_text.reading_of(folder, verdict, ABOUT), ruling=ruling(verdict, ABOUT))
    page = html.unescape(markdown([outcome]).decode())
    assert "- acked: 1.100 s 7 at offset 5 of partition 0, by leader n1" in page
    assert "  - the same, as other checks saw it:\n    - saw-then-lost: saw-then-lost it is\n" in page
    assert "process 3 was acked" not in page
    reading = read(folder, group("lost-write", LOST), group("stuck", {"partition": 0}))
    assert [dict(account.shown).keys() >= {"when"} for account in reading.accounts] == [False, False]
    assert {"what", "guilty", "why"} == dict(reading.accounts[0].shown).keys()
    assert {"what", "when", "held", "guilty", "copies", "why"} == dict(reading.accounts[0].parts).keys()
