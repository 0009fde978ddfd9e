"""The paragraph about a finding, made from a run's files: what it states and what it leaves out."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from folders import write_lines
from golden_text import as_written
from how_many import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judged_runs import finding

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.report import verdict_text

RUN_JSON: dict[str, Any] = {
    "format": 1, "rules": "kip-320", "nodes": ["n1", "n2", "n3"], "leaders": {"0": {"leader": "n2"}},
    "partitions": {"0": {"topic": "t", "partition": 0, "replicas": ["n1", "n2", "n3"]}},
    "guarantees": {"acks": "all", "min_insync_replicas": 2, "unclean_leader_election": False, "flush": "os"},
}
LOST = {"partition": 0, "offset": 1, "value": 7, "how": "gone", "nodes": [], "ops": [0, 1],
        "text": "The send of 7 was acked (index 1) and is gone."}
SENT = [
    {"index": 0, "time": 1_000, "process": 5, "type": "invoke", "f": "send",
     "sends": [{"partition": 0, "value": 7}]},
    {"index": 1, "time": 9_000, "process": 5, "type": "ok", "f": "send",
     "sends": [{"partition": 0, "value": 7, "offset": 1}]},
]


def line(time: int, node: str, event: str, **fields: Any) -> dict[str, Any]:
    return {"time": time, "node": node, "seq": time, "event": event, "partition": 0, "epoch": 2, "leo": 2,
            "hw": 2, **fields}


def ack(time: int, node: str = "n1", **fields: Any) -> dict[str, Any]:
    return line(time, node, "ack", **{"offset": 1, "acks": "all", "isr": ["n1", "n2"], **fields})


def appended(time: int, node: str, **fields: Any) -> dict[str, Any]:
    return line(time, node, "append", **{"role": "follower", "offset": 0, "count": 2, **fields})


TRACE = [appended(2_000, "n1"), appended(3_000, "n2"), ack(4_000)]


def fill(folder: Path) -> None:
    """Acked by n1 at offset 1; in the end the leader's LEO is 1, n1 still has the record, n3 has no dump."""
    first = {"node": "n1", "partition": 0, "offset": 0, "epoch": 2, "value": 6, "crc": 1}
    write_lines(folder / "logs" / "n1.jsonl", [first, {**first, "offset": 1, "value": 7}])
    write_lines(folder / "logs" / "n2.jsonl", [{**first, "node": "n2"}])
    write_lines(folder / "replicas.jsonl",
                [{"node": "n2", "partition": 0, "log_start": 0, "leo": 1, "hw": 1}])


def fault_op(index: int, f: str, **fault: Any) -> dict[str, Any]:
    return {"index": index, "time": index * 1_000_000_000, "process": -1, "type": "info", "f": f,
            "fault": fault}


def elected(time: int, **fields: Any) -> dict[str, Any]:
    return {"time": time, "node": "controller", "seq": time, "event": "elect", "partition": 0, "leader": "n2",
            "epoch": 3, "isr": ["n2"], "clean": True, **fields}


def sent(at: int = 0, **changes: Any) -> list[dict[str, Any]]:
    """The send and its ack from this index on, the ack with these changes."""
    return [{**one, "index": number, **(changes if number > at else {})}
            for number, one in enumerate(SENT, at)]


TRUNCATED = line(5_000, "n2", "truncate", **{"from": 2, "to": 1})
HIGH_WATERMARK = {"rules": "high-watermark"}
ENDS = [{"index": index, "time": time, "process": 5, "type": "ok", "f": "list_offsets",
         "offsets": [{"partition": 0, "offset": end}]} for index, time, end in ((0, 5_000, 4), (1, 7_000, 3))]
FSYNCED = {"guarantees": {**RUN_JSON["guarantees"], "flush": "every"}}
UNCLEAN = "unclean.leader.election.enable"
DIFFERENT = {"name": "diverged", "found": {"ops": [], "nodes": ["n3"], "text": "They differ."}}
OTHER = {"process": 1, "sends": [{"partition": 0, "value": 77, "offset": 1}]}


def lost_in(*kinds: str, **more: Any) -> dict[str, Any]:
    return {"history": [*SENT, *(fault_op(2, kind, nodes=["n2"], lost=True, **more) for kind in kinds)]}


def cut_both(**lost: int) -> dict[str, Any]:
    return {"history": [*SENT, fault_op(2, "power_cut", nodes=["n1", "n2"], lost=True, lost_records=lost)]}


def in_order(error_ns: int, *later: Any) -> dict[str, Any]:
    return {"trace": [*TRACE, *later], "about": {"clock_error_ns": error_ns}}


def doubtful(where: str) -> dict[str, Any]:
    reason = f"{where}nobody can say whether acks covers all of it"
    return {"by": "acks", "unknown": [{"names": ["lost-write"], "reason": reason}]}


# title -> what differs from the story of the folder: files, the finding, run.json
STORIES: dict[str, dict[str, Any]] = {
    "acked by n1": {},
    "n1 acks a later one too": {"trace": [*TRACE, ack(5_000, offset=9)]},
    "n3 acked that offset before this was sent": {"trace": [ack(500, "n3", epoch=1), *TRACE]},
    "n3 acks that offset after the client got its ack": {"trace": [*TRACE, ack(9_500, "n3", epoch=3)]},
    "n1 or n3 may have acked it": {"trace": [*TRACE, ack(5_000, "n3", epoch=3)]},
    "the client's ack has n3's epoch": {
        "trace": [*TRACE, ack(5_000, "n3", epoch=3)],
        "history": sent(sends=[{"partition": 0, "value": 7, "offset": 1, "epoch": 3}])},
    "n1 acked the offset before alone": {"trace": [appended(2_000, "n1"), ack(4_000, offset=0)]},
    "n1 acked in another partition": {"trace": [appended(2_000, "n1"), ack(4_000, partition=1)]},
    "an ack of a text": {"trace": [appended(2_000, "n1"), {**ack(4_000), "offset": "1"}]},
    "no trace": {"trace": []},
    "n2 appended another offset, n3 appended it later": {"trace": [
        appended(2_000, "n1"), appended(3_000, "n2", offset=0, count=1), ack(4_000), appended(5_000, "n3")]},
    "clocks that differ less than the events": in_order(999),
    "n2's append may have been after the ack": in_order(1_000),
    "n3's append may have been before the ack": in_order(999, appended(4_999, "n3")),
    "n3's append was after the ack": in_order(998, appended(4_999, "n3")),
    **{f"a leader whose log ends at {leo} gives the offset to one of its next records": {
        "name": "leader-incomplete", "found": {"event": 0, "ops": []},
        "trace": [line(5_000, "n2", "become_leader", leo=leo, isr=["n2"])]} for leo in (1, 0)},
    # what many believe is quoted if the run is a case of it
    "truncated by the rules of before KIP-101": {
        "found": {"event": 3}, "trace": [*TRACE, TRUNCATED], "about": HIGH_WATERMARK},
    "so it is, and permitted": {
        "found": {"event": 3}, "trace": [*TRACE, TRUNCATED], "about": HIGH_WATERMARK, "by": "fault budget"},
    "truncated by the rules of today": {"found": {"event": 3}, "trace": [*TRACE, TRUNCATED]},
    "those rules, but no truncation": {
        "found": {"event": 2}, "trace": [*TRACE, TRUNCATED], "about": HIGH_WATERMARK},
    "the ack did not wait for the final leader": {"about": {"leaders": {"0": {"leader": "n3"}}}},
    "an ack by a member": {"name": "ack-rule", "found": {"how": "member"}},
    "an ack above the HW": {"name": "ack-rule", "found": {"how": "hw"}},
    **{f"a read of what failed with {error}": {"name": "G1a", "history": sent(type="fail", error=error)}
       for error in ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS")},
    **{f"different after {'a clean' if clean else 'an unclean'} election": {
        "name": "diverged", "trace": [*TRACE, elected(6_000, clean=clean)]} for clean in (False, True)},
    **{f"{name} by {event}": {"name": name, "found": {"event": number}, "trace": [*TRACE, TRUNCATED]}
       for name, event, number in (("poll-skip", "a truncation", 3), ("poll-skip", "an ack", 2),
                                   ("saw-then-lost", "a truncation", 3))},
    **{f"an end that falls after an election {where}": {
        "name": "end-offset-regressed", "history": ENDS, "trace": [*TRACE, elected(time)]}
       for where, time in (("in between", 6_000), ("later", 8_000))},
    **{f"twice, by {cause}, {resent} repeated": {"name": "duplicate", "by": cause, "about": {
        "resent": resent}} for cause, resent in (("retries", [7]), ("retries", None), ("acks", [7]))},
    "the power cuts before it, of another node, and one that failed half-way": {
        "by": "fault budget", "found": {"ops": [1, 2]}, "history": [
            fault_op(0, "power_cut", nodes=["n1"], lost=True), *sent(1), fault_op(3, "kill", nodes=["n1"]),
            fault_op(4, "power_cut", nodes=["n9"], lost=True), fault_op(5, "disk", nodes=["n2"], lost=False),
            fault_op(6, "power_cut", nodes=["n2"], lost=True, error="no engine")]},
    "a power cut that does not permit it": lost_in("power_cut"),
    "a lost disk that does not, although each write is fsynced": {**lost_in("disk"), "about": FSYNCED},
    "a power cut that does not, as each write is fsynced": {**lost_in("power_cut"), "about": FSYNCED},
    "a power cut of two that lost nothing": cut_both(n1=0, n2=0),
    "a power cut of two that lost five": cut_both(n1=2, n2=3),
    "a power cut of two that lost nobody knows what": cut_both(),
    "permitted perhaps": doubtful(""),
    "permitted perhaps, without a trace": doubtful("without a trace "),
    "the unclean election is the one of this partition, after the send": {"by": UNCLEAN, "trace": [
        elected(0, clean=False), *TRACE, elected(5_000), elected(6_000, partition=1, clean=False),
        elected(7_000, clean=False)]},
    "without a trace it is the nemesis's": {"by": UNCLEAN, "trace": [], "history": [
        *SENT, *(fault_op(2 + key, "elect", partitions=[1 - key], unclean=True) for key in (0, 1))]},
    "a send of 77, which begins with the same digit, is another": {
        **DIFFERENT, "history": [*sent(0, **OTHER), *sent(2)]},
    "lines with spaces, and a dump out of order": {**DIFFERENT, "dump": (0, 3, 4, 5, 1)},
    "only the verdict": {"files": False},
}


def parts_of(folder: Path, story: Mapping[str, Any]) -> dict[str, str]:
    """What is told of the finding, by its parts, and what struck, when the folder has this story."""
    folder.mkdir(exist_ok=True)
    if story.get("files", True):
        fill(folder)
        for name, usual in (("history", SENT), ("trace", TRACE)):
            write_lines(folder / f"{name}.jsonl", story.get(name, usual),
                        (", ", ": ") if "dump" in story else (",", ":"))
    if "dump" in story:
        write_lines(folder / "logs" / "n1.jsonl", [
            {"node": "n1", "partition": 0, "offset": at, "epoch": 2, "value": 6 + at, "crc": 1}
            for at in story["dump"]], (", ", ": "))
    found = finding(story.get("name", "lost-write"), {**LOST, **story.get("found", {})}, by=story.get("by"))
    verdict = {"valid": False, "findings": [found], "unknown": story.get("unknown", [])}
    reading = verdict_text.reading_of(folder, verdict, {**RUN_JSON, **story.get("about", {})})
    (account,) = reading.accounts
    return {**dict(account.parts), "struck": dict(reading.summary).get("struck", "")}


def test_what_is_told_of_a_finding(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """golden/told.txt: of the first story all, of the others the clauses that the first one has not."""
    first = parts_of(tmp_path / "first", {})
    now = "".join(f"{head}: {words}\n" for head, words in first.items())
    for number, (title, story) in enumerate(STORIES.items()):
        now += f"== {title}\n"
        parts = parts_of(tmp_path / str(number), story)
        for head in {**first, **parts}:
            before, after = ([*re.split(r"(?<=[.;:,]) ", one.get(head, ""))] for one in (first, parts))
            new = " ".join(words for words in after if words not in before)
            now += f"{head}: {new or '-'}\n" if before != after else ""
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
       about=st.dictionaries(st.sampled_from(sorted(RUN_JSON)), JUNK), position=st.integers(0, 2),
       field=st.sampled_from(["partition", "time", "event", "from", "offset"]), junk=JUNK)
def test_any_content_of_a_folder_gives_an_account(
        tmp_path: Path, example: dict[str, Any], name: str, by: str | None, about: dict[str, Any],
        position: int, field: str, junk: Any) -> None:
    """Any verdict, run.json or lines: no exception."""
    damaged = [{**row, field: junk, "clean": junk} if at == position else row for at, row in enumerate(TRACE)]
    told = parts_of(tmp_path, {
        "name": name, "found": example, "by": by, "about": about, "trace": [*damaged, junk],
        "history": [*SENT, fault_op(2, "power_cut", nodes=junk, lost=True),
                    fault_op(3, "elect", partitions=junk, unclean=True)]})
    assert told["what"]
    assert told["why"]


def test_counts_are_grouped_by_thousands_and_names_are_not() -> None:
    counts = {"ops": 123456, "ok": 1234, "acked": 1, "torn": 2, "records": {"1001": 4321}}
    assert verdict_text.looked_at(counts, grouped=True) == (
        "123,456 lines of history (1,234 ok, 0 fail, 0 info), 1 acked record, 2 incomplete lines ignored; "
        "records in the final logs: 1001 4,321")


def test_logs_that_nobody_collected_are_not_empty_logs() -> None:
    assert verdict_text.looked_at({"ops": 2, "records": {}}).endswith("; no final logs were collected")
    assert verdict_text.looked_at({"ops": 2, "records": {"n1": 0}}).endswith("in the final logs: n1 0")
