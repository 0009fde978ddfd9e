"""The paragraph about a finding, made from a run's files: what it states, and which findings it joins."""

import html
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import pytest
from folders import lines_of, write_lines
from golden_text import as_written
from how_many import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judged_runs import finding
from stories import told

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.report import verdict_text
from floodmark.harness.report.model import Reading
from floodmark.harness.report.run_summary import ruling
from floodmark.harness.report.verdict_text import Outcome, markdown

LOST = {"partition": 0, "offset": 1, "value": 7, "how": "gone", "nodes": [], "ops": [0, 1],
        "text": "The send of 7 was acked (index 1) and is gone."}
# Acked by n1 at offset 1; in the end the leader's LEO is 1, n1 still has the record, n3 has no dump.
BASE = ("run rules=kip-320 leaders/0/leader=n2; no final reads; log n1 6e2 7e2; log n2 6e2; row n1 absent; "
        "row n3 absent; file logs/n3.jsonl absent")
SENT = "5 invoke send 7 time=1000; 5 ok send 7@1 time=9000"
ON_N1, ON_N2, ON_N3 = (f"say {node} append role=follower offset=0 count=2 epoch=2 leo=2 hw=2 time={time}"
                       for node, time in (("n1", 2000), ("n2", 3000), ("n3", 4999)))
ACK = "say n1 ack acks=all isr=n1,n2 offset=1 time=4000"
ACK_OF_N3 = "say n3 ack acks=all isr=n1,n2 offset=1 leo=2 hw=2"
TRACE = f"{ON_N1}; {ON_N2}; {ACK}"
TRUNCATED = "say n2 truncate from=2 to=1 time=5000"
ELECTED = "say controller elect leader=n2 epoch=3 isr=n2"
POWER_CUT = "fault power_cut n1 n2 lost=true time=2000000000"
UNCLEAN = "unclean.leader.election.enable"
DIFFERENT = {"name": "diverged", "found": {"ops": [], "nodes": ["n3"], "text": "They differ."}}
AT_THE_CUT, AT_THE_ACK = {"found": {"event": 3}}, {"found": {"event": 2}}


def doubtful(where: str) -> dict[str, Any]:
    reason = f"{where}nobody can say whether acks covers all of it"
    return {"by": "acks", "unknown": [{"names": ["lost-write"], "reason": reason}]}


# title -> what is told after the story, or in place of its trace or history, and the finding
STORIES: dict[str, dict[str, Any]] = {
    "acked by n1": {},
    "n1 acks a later one too": {"more": "say n1 ack acks=all isr=n1,n2 offset=9 time=5000"},
    "n3 acked that offset before this was sent": {"trace": f"{ACK_OF_N3} epoch=1 time=500; {TRACE}"},
    "n3 acks that offset after the client got its ack": {"more": f"{ACK_OF_N3} epoch=3 time=9500"},
    "n1 or n3 may have acked it": {"more": f"{ACK_OF_N3} epoch=3 time=5000"},
    "the client's ack has n3's epoch": {
        "more": f"{ACK_OF_N3} epoch=3 time=5000", "history": SENT.replace("7@1", "7@1e3")},
    "n1 acked the offset before alone": {"trace": f"{ON_N1}; {ACK.replace('offset=1', 'offset=0')}"},
    "n1 acked in another partition": {"trace": f"{ON_N1}; {ACK} partition=1"},
    "an ack of a text": {"trace": ON_N1 + "; " + ACK.replace("offset=1", 'offset="1"')},
    "no trace": {"trace": ""},
    "n2 appended another offset, n3 appended it later": {
        "trace": f"{ON_N1}; {ON_N2.replace('count=2', 'count=1')}; {ACK}; {ON_N3}"},
    "clocks that differ less than the events": {"more": "run clock_error_ns=999"},
    "n2's append may have been after the ack": {"more": "run clock_error_ns=1000"},
    "n3's append may have been before the ack": {"more": f"run clock_error_ns=999; {ON_N3}"},
    "n3's append was after the ack": {"more": f"run clock_error_ns=998; {ON_N3}"},
    **{f"a leader whose log ends at {leo} gives the offset to one of its next records": {
        "name": "leader-incomplete", "found": {"event": 0, "ops": []},
        "trace": f"say n2 become_leader epoch=2 leo={leo} hw=2 isr=n2 time=5000"} for leo in (1, 0)},
    # what many believe is quoted if the run is a case of it
    "truncated by the rules of before KIP-101": {
        **AT_THE_CUT, "more": f"run rules=high-watermark; {TRUNCATED}"},
    "so it is, and permitted": {
        **AT_THE_CUT, "more": f"run rules=high-watermark; {TRUNCATED}", "by": "fault budget"},
    "truncated by the rules of today": {**AT_THE_CUT, "more": TRUNCATED},
    "those rules, but no truncation": {**AT_THE_ACK, "more": f"run rules=high-watermark; {TRUNCATED}"},
    "the ack did not wait for the final leader": {"more": "run leaders/0/leader=n3"},
    "what a reader saw was committed, whatever acks says": {
        "name": "saw-then-lost", "more": 'run guarantees/acks="1"'},
    "an ack by a member": {"name": "ack-rule", "found": {"how": "member"}},
    "an ack above the HW": {"name": "ack-rule", "found": {"how": "hw"}},
    **{f"a read of what failed with {error}": {
        "name": "G1a", "more": "run -guarantees/isolation",
        "history": f"{SENT.replace(' ok ', ' fail ')} error={error}"}
       for error in ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS")},
    **{f"different after {'a clean' if clean == 'true' else 'an unclean'} election": {
        "name": "diverged", "more": f"{ELECTED} clean={clean} time=6000"} for clean in ("false", "true")},
    **{f"{name} by {event}": {"name": name, **found, "more": TRUNCATED} for name, event, found in (
        ("poll-skip", "a truncation", AT_THE_CUT), ("poll-skip", "an ack", AT_THE_ACK),
        ("saw-then-lost", "a truncation", AT_THE_CUT))},
    **{f"an end that falls after an election {where}": {
        "name": "end-offset-regressed", "more": f"{ELECTED} clean=true time={time}",
        "history": "5 ok list_offsets 4 time=5000; 5 ok list_offsets 3 time=7000"}
       for where, time in (("in between", 6_000), ("later", 8_000))},
    **{f"twice, by {cause}, {resent} repeated": {
        "name": "duplicate", "by": cause, "more": f"run resent={str(resent).replace('None', 'null')}"}
       for cause, resent in (("retries", [7]), ("retries", None), ("acks", [7]))},
    "the power cuts before it, of another node, and one that failed half-way": {
        "by": "fault budget", "found": {"ops": [1, 2]}, "history":
            f"fault power_cut n1 lost=true; {SENT}; fault kill n1 time=3000000000; "
            "fault power_cut n9 lost=true time=4000000000; fault disk n2 lost=false time=5000000000; "
            'fault power_cut n2 lost=true error="no engine" time=6000000000'},
    "a power cut that does not permit it": {"more": POWER_CUT.replace(" n1", "")},
    "a lost disk that does not, although each write is fsynced": {
        "more": "run guarantees/flush=every; fault disk n2 lost=true time=2000000000"},
    "a power cut that does not, as each write is fsynced": {
        "more": f"run guarantees/flush=every; {POWER_CUT.replace(' n1', '')}"},
    "a power cut of two that lost nothing": {"more": f'{POWER_CUT} lost_records={{"n1":0,"n2":0}}'},
    "a power cut of two that lost five": {"more": f'{POWER_CUT} lost_records={{"n1":2,"n2":3}}'},
    "a power cut of two that lost nobody knows what": {"more": f"{POWER_CUT} lost_records={{}}"},
    "permitted perhaps": doubtful(""),
    "permitted perhaps, without a trace": doubtful("without a trace "),
    "the unclean election is the one of this partition, after the send": {
        "by": UNCLEAN, "trace": f"{ELECTED} clean=false time=0; {TRACE}; {ELECTED} clean=true time=5000; "
        f"{ELECTED} clean=false partition=1 time=6000; {ELECTED} clean=false time=7000"},
    "without a trace it is the nemesis's": {
        "by": UNCLEAN, "trace": "", "more": "fault elect partitions=[1] unclean=true time=2000000000; "
        "fault elect partitions=[0] unclean=true time=3000000000"},
    "a send of 77, which begins with the same digit, is another": {
        **DIFFERENT, "history": f"5 invoke send 7 time=1000; 1 ok send 77@1 time=9000; {SENT}"},
    "lines with spaces, and a dump out of order": {
        **DIFFERENT, "more": "log n1 6@0e2 9@3e2 10@4e2 11@5e2 7@1e2", "separators": (", ", ": ")},
    "only the verdict": {"files": False},
}


def parts_of(folder: Path, story: Mapping[str, Any]) -> dict[str, str]:
    """What is told of the finding when the folder has this story."""
    told(folder, BASE, story.get("history", SENT), story.get("trace", TRACE), story.get("more", ""))
    for file in folder.rglob("*.jsonl") if "separators" in story else ():
        write_lines(file, lines_of(file), story["separators"])
    return parts_in(folder, story)


def parts_in(folder: Path, story: Mapping[str, Any]) -> dict[str, str]:
    """By its parts, and what struck. Without files it is told of the verdict alone."""
    about = {**json.loads((folder / "run.json").read_text()), **story.get("about", {})}
    found = finding(story.get("name", "lost-write"), {**LOST, **story.get("found", {})}, by=story.get("by"))
    verdict = {"valid": False, "findings": [found], "unknown": story.get("unknown", [])}
    reading = verdict_text.reading_of(folder if story.get("files", True) else folder / "none", verdict, about)
    (account,) = reading.accounts
    return {**dict(account.parts), "struck": dict(reading.summary).get("struck", "")}


def test_what_is_told_of_a_finding(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """golden/told.txt: of the first story all, of the others the clauses that are new (+) or gone (-)."""
    first = parts_of(tmp_path / "first", {})
    now = "".join(f"{head}: {words}\n" for head, words in first.items())
    for number, (title, story) in enumerate(STORIES.items()):
        now += f"== {title}\n"
        parts = parts_of(tmp_path / str(number), story)
        for head in {**first, **parts}:
            before, after = (re.split(r"(?<=[.;:,]) ", one.get(head, "")) for one in (first, parts))
            for sign, these, others in (("+", after, before), ("-", before, after)):
                words = " ".join(one if sign == "+" else shorten(one, 32, placeholder=" ...")
                                 for one in these if one not in others)
                now += f"{head}: {sign} {words}\n" if words else ""
    as_written("told.txt", now, request)


def test_a_sentence_is_limited_in_length(tmp_path: Path) -> None:
    assert len(parts_of(tmp_path, {"found": {"text": "x" * 9_000}})["what"]) < 1_100


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**63) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["0", "nodes", "leader", "isr"]), inner),
    max_leaves=4)
FIELDS = st.sampled_from([*LOST, "event", "epoch", "nodes", "process"])


@settings(max_examples=cases(150, few=40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(example=st.dictionaries(FIELDS, JUNK | st.integers(0, 3)), name=st.sampled_from(names.MADE),
       by=st.sampled_from([None, "fault budget", UNCLEAN, "acks", "else"]),
       about=st.dictionaries(st.sampled_from(["nodes", "leaders", "partitions", "guarantees"]), JUNK),
       position=st.integers(0, 2),
       field=st.sampled_from(["partition", "time", "event", "from", "offset"]), junk=JUNK)
def test_any_content_of_a_folder_gives_an_account(
        tmp_path: Path, example: dict[str, Any], name: str, by: str | None, about: dict[str, Any],
        position: int, field: str, junk: Any) -> None:
    """Any verdict, run.json or lines: no exception."""
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    folder = told(tmp_path / "run", BASE, SENT, TRACE, "fault power_cut lost=true; fault elect unclean=true")
    history, trace = lines_of(folder / "history.jsonl"), lines_of(folder / "trace.jsonl")
    trace[position] |= {field: junk, "clean": junk}
    history[2]["fault"]["nodes"] = history[3]["fault"]["partitions"] = junk
    write_lines(folder / "trace.jsonl", [*trace, f"{json.dumps(junk)}\n"])
    write_lines(folder / "history.jsonl", history)
    said = parts_in(folder, {"name": name, "found": example, "by": by, "about": about})
    assert said["what"]
    assert said["why"]


def test_counts_are_grouped_by_thousands_and_names_are_not() -> None:
    counts = {"ops": 123456, "ok": 1234, "acked": 1, "torn": 2, "records": {"1001": 4321}}
    assert verdict_text.looked_at(counts, grouped=True) == (
        "123,456 lines of history (1,234 ok, 0 fail, 0 info), 1 acked record, 2 incomplete lines ignored; "
        "records in the final logs: 1001 4,321")


def test_logs_that_nobody_collected_are_not_empty_logs() -> None:
    assert verdict_text.looked_at({"ops": 2, "records": {}}).endswith("; no final logs were collected")
    assert verdict_text.looked_at({"ops": 2, "records": {"n1": 0}}).endswith("in the final logs: n1 0")


# -- which findings are one event, and that nothing is told twice --------------------------------------------

GONE = {"partition": 0, "offset": 5, "value": 7, "how": "overwritten", "nodes": [], "ops": [1, 2], "event": 6,
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


OTHER = {**GONE, "offset": 6, "value": 9}
ONE, TWO = group("lost-write", GONE), group("lost-write", GONE, OTHER)
MANY = group("lost-write", GONE, {**GONE, "offset": 9, "value": 9}, count=40)
N3_LEADS = group("lost-write", {**GONE, "event": 8})  # its first line is blamed
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
    lost = group("lost-write", GONE, by="acks")
    for by, groups in ((None, [["saw-then-lost"], ["lost-write"]]),
                       ("retries", [["lost-write"], ["saw-then-lost"]]),
                       ("acks", [["lost-write", "saw-then-lost"]])):
        assert events(folder, lost, group("saw-then-lost", seen, by=by)) == groups


def test_nothing_is_told_twice(folder: Path) -> None:
    """The lines of the summary already give the time and the nodes that have it now; on the page too."""
    reading = read(folder, group("lost-write", GONE), group(SEEN, {"partition": 0, "offset": 5}))
    page = html.unescape(markdown([Outcome(
        reading=reading, ruling=ruling({**reading.verdict, "counts": {"ops": 9}}, reading.about))]).decode())
    assert "- acked: 0.000 s 7 at offset 5 of partition 0, by leader n1" in page
    assert "  - the same, as other checks saw it:\n    - saw-then-lost: saw-then-lost it is\n" in page
    assert "process 3 was acked" not in page
    (account,) = reading.accounts
    assert {"what", "guilty", "why"} == dict(account.shown).keys()
    assert {"what", "when", "held", "guilty", "copies", "why"} == dict(account.parts).keys()
