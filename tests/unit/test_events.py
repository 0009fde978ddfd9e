"""Findings of one event are one group: which join a graver one, and that nothing is told twice."""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from judged_runs import finding
from stories import told

from floodmark.harness.report import verdict_text
from floodmark.harness.report.model import Reading
from floodmark.harness.report.run_summary import ruling
from floodmark.harness.report.verdict_text import Outcome, markdown

LOST = {"partition": 0, "offset": 5, "value": 7, "how": "overwritten", "nodes": [], "ops": [1, 2], "event": 6,
        "text": "The send of 7 was acked, and is gone."}
# n1 acked 7 and n2 had it; both truncated it; n3, which never had it, was elected and appended 8 there.
STORY = (
    "partitions 2; run leaders/0/leader=n3 -leaders/1 rules=kip-320; no final reads; log 8@5e4",
    "fault kill n9; 3 invoke send 7; 3 ok send 7@5 time=3500; fault kill n1; fault start n1; fault pause n9",
    "4 invoke send 8; 4 ok send 8@5; fault kill n2",
    "say n1 append role=leader offset=5 count=1 epoch=2 leo=6 hw=6",
    "say n2 append role=follower offset=5 count=1 epoch=2 leo=6 hw=6",
    "say n1 ack offset=5 acks=all isr=n1,n2",
    "say controller elect leader=n2 isr=n2 epoch=3 clean=true; say n2 become_leader epoch=3 isr=n2 start=6",
    "say n3 truncate partition=1 from=9 to=0; say n2 truncate epoch=4 from=6 to=5 why=so",
    "say controller elect leader=n3 isr=n3 epoch=4 clean=true",
    "say n3 become_leader epoch=4 leo=5 hw=5 isr=n3 start=5",
    "say controller elect leader=n1 isr=n1 epoch=5 clean=true; say n1 truncate epoch=5 from=6 to=4",
    "say controller elect leader=n2 isr=n2 epoch=9 clean=true",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return told(tmp_path / "run", *STORY)


def group(name: str, *examples: dict[str, Any], by: str | None = None, count: int = 0) -> dict[str, Any]:
    return finding(name, *({"text": f"{name} it is.", **one} for one in examples), by=by, count=count)


def read(folder: Path, *groups: dict[str, Any]) -> Reading:
    verdict = {"valid": False, "findings": list(groups)}
    return verdict_text.reading_of(folder, verdict, json.loads((folder / "run.json").read_text()))


def events(folder: Path, *groups: dict[str, Any]) -> list[list[str]]:
    return [[account.found["name"], *(one.found["name"] for one in account.followers)]
            for account in read(folder, *groups).accounts]


# -- what is one event --------------------------------------------------------------------------------------


def at(name: str, offset: int | None = None, value: int | None = None, partition: int | None = 0,
       count: int = 0, **more: Any) -> dict[str, Any]:
    """A finding with one example, about this record."""
    place = {"partition": partition, "offset": offset, "value": value, **more}
    return group(name, {key: word for key, word in place.items() if word is not None}, count=count)


OTHER = {**LOST, "offset": 6, "value": 9}
ONE, TWO = group("lost-write", LOST), group("lost-write", LOST, OTHER)
MANY = group("lost-write", LOST, {**LOST, "offset": 9, "value": 9}, count=40)
N3_LEADS = group("lost-write", {**LOST, "event": 8})  # its first line is blamed
SEEN = "saw-then-lost"
BOTH = group(SEEN, {"partition": 0, "offset": 5}, {"partition": 0, "offset": 6})
LEADERS_LOG = "log n3 0 1 2 3 4 5 6 7 8 9 10 11; row n3/1 leo=12 hw=12"
DIFFERENT_LOGS = "log n1 0 0 0 0 0 0 0 0 1 1 1 1; log n2 0 0 0 0 1 1 1 1 2 2 2 2"
POLLS = "9 ok poll 103@3 104@4; 9 ok poll 106@6 107@7; 9 ok poll 104@4 107@7; 9 ok poll 109@9"


@pytest.mark.parametrize(("grave", "consequences", "others", "more"), [
    # The same place, record, or line that is blamed; a truncation with the offset in it. Not the record
    # before, one of another partition or of none, a line that is no truncation or not there, other laws.
    (ONE, [at("inconsistent-offsets", 5, 8), at(SEEN, 9, 7), at("candidate-incomplete", 9, event=6),
           at("unsafe-truncation", 4, event=10), at("hw-regressed", event=6),
           *(at(name, 5) for name in ("realtime-order", "leader-incomplete", "diverged"))],
     [at(SEEN, 4, 6), at(SEEN, 5, 7, partition=1), at(SEEN, 5, 7, partition=None),
      at("unsafe-truncation", 4, event=7), at("unsafe-truncation", 5, event=5, partition=1),
      at("unsafe-truncation", 4, event=99), *(at(name, 5, 7) for name in ("G1a", "unseen", "stuck"))], ""),
    # A second event would be hidden.
    (ONE, [], [BOTH], ""), (TWO, [BOTH], [], ""),
    # The examples of very many losses are the first; the leader's log tells of those behind.
    (MANY, [at(SEEN, 5, 50), at(SEEN, 9, 90), at(SEEN, 10, 100), at(SEEN, 12, 120)],
     [at(SEEN, 4, 40), at(SEEN, 6, 60), at(SEEN, 10, 10), at(SEEN, 10), at(SEEN, 0, 10, partition=1)],
     LEADERS_LOG),
    (MANY, [], [at(SEEN, 10, 1)], f"{LEADERS_LOG}; file logs/n3.jsonl absent"),
    # Very many truncated or different records: what the truncation removed, where the logs differ.
    (at("unsafe-truncation", 4, event=10, count=9), [at("leader-incomplete", 5, 1)],
     [at("leader-incomplete", 6, 1)], ""),
    (at("diverged", 2, count=9), [at(SEEN, 4)], [at(SEEN, 3), at(SEEN, 20)], DIFFERENT_LOGS),
    # The unclean election of the leader who is to blame; another election is another event.
    (N3_LEADS, [at("unclean-election", event=7)],
     [at("unclean-election", event=number) for number in (9, 3, 99)], ""),
    # A skip of lost records alone: one that exists and was not returned is a bug of its own.
    (ONE, [at("poll-skip", 6, ops=[9, 10])], [
        at("int-poll-skip", 7, ops=[11]), at("poll-skip", 9, ops=[10, 12]), at("poll-skip", 6, ops=[]),
        at("poll-skip", 6, ops=[99])], POLLS),
    (TWO, [at("int-poll-skip", 7, ops=[11])], [], POLLS),
])
def test_consequences_of_one_event_are_grouped_and_others_are_not(
        tmp_path: Path, grave: dict[str, Any], consequences: Sequence[dict[str, Any]],
        others: Sequence[dict[str, Any]], more: str) -> None:
    folder = told(tmp_path / "run", *STORY, more)
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


def test_nothing_is_told_twice(folder: Path) -> None:
    """The lines of the summary already give the time and the nodes that have it now; on the page too."""
    reading = read(folder, group("lost-write", LOST), group(SEEN, {"partition": 0, "offset": 5}))
    page = html.unescape(markdown([Outcome(
        reading=reading, ruling=ruling({**reading.verdict, "counts": {"ops": 9}}, reading.about))]).decode())
    assert "- acked: 0.000 s 7 at offset 5 of partition 0, by leader n1" in page
    assert "  - the same, as other checks saw it:\n    - saw-then-lost: saw-then-lost it is\n" in page
    assert "process 3 was acked" not in page
    (account,) = reading.accounts
    assert {"what", "guilty", "why"} == dict(account.shown).keys()
    assert {"what", "when", "held", "guilty", "copies", "why"} == dict(account.parts).keys()
