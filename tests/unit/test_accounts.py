"""The paragraph about a finding, made from a run's files: what it states and what it leaves out."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from how_many import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def write_lines(path: Path, rows: Sequence[Any], spaced: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    separators = (", ", ": ") if spaced else (",", ":")
    path.write_text("".join(json.dumps(row, separators=separators) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Acked by n1 at offset 1; in the end the leader's LEO is 1, n1 still has the record, n3 has no dump."""
    write_lines(tmp_path / "history.jsonl", SENT)
    write_lines(tmp_path / "trace.jsonl", TRACE)
    first = {"node": "n1", "partition": 0, "offset": 0, "epoch": 2, "value": 6, "crc": 1}
    write_lines(tmp_path / "logs" / "n1.jsonl", [first, {**first, "offset": 1, "value": 7}])
    write_lines(tmp_path / "logs" / "n2.jsonl", [{**first, "node": "n2"}])
    write_lines(tmp_path / "replicas.jsonl",
                [{"node": "n2", "partition": 0, "log_start": 0, "leo": 1, "hw": 1}])
    return tmp_path


def group(name: str = "lost-write", *examples: dict[str, Any], by: str | None = None) -> dict[str, Any]:
    return {"name": name, "class": "permitted" if by else "bug", "permitted_by": by,
            "count": len(examples) or 1, "examples": list(examples or [LOST])}


def accounts_of(folder: Path, *groups: dict[str, Any], run_json: dict[str, Any] = RUN_JSON,
                unknown: Sequence[Any] = ()) -> list[dict[str, str]]:
    verdict = {"valid": False, "findings": list(groups), "unknown": list(unknown)}
    return [dict(account.parts) for account in verdict_text.reading_of(folder, verdict, run_json).accounts]


@pytest.mark.parametrize(("trace", "claimed"), [
    (TRACE, "n1"),
    ([*TRACE, ack(5_000, offset=9)], "n1"),  # a later one of the same leader
    ([ack(500, "n3", epoch=1), *TRACE], "n1"),  # before it was sent: another record at that offset
    ([*TRACE, ack(9_500, "n3", epoch=3)], "n1"),  # after the client got its ack
    ([*TRACE, ack(5_000, "n3", epoch=3)], None),  # two leaders may have acked it
    ([appended(2_000, "n1"), ack(4_000, offset=0)], None),  # acks only the offset before it
    ([appended(2_000, "n1"), ack(4_000, partition=1)], None),
    ([appended(2_000, "n1"), {**ack(4_000), "offset": "1"}], None),
    ([], None),
])
def test_an_ack_is_attributed_only_if_a_single_leader_can_have_sent_it(
        folder: Path, trace: list[Any], claimed: str | None) -> None:
    write_lines(folder / "trace.jsonl", trace)
    (account,) = accounts_of(folder, group())
    assert (f"; by {claimed} as the leader" in account["when"]) == (claimed is not None)
    assert ("; by " in account["when"]) == (claimed is not None)
    assert "process 5 was acked 7 at offset 1 (history.jsonl:2" in account["when"]


def test_the_epoch_in_the_clients_ack_decides(folder: Path) -> None:
    (invoked, completed) = SENT
    write_lines(folder / "history.jsonl", [
        invoked, {**completed, "sends": [{"partition": 0, "value": 7, "offset": 1, "epoch": 3}]}])
    write_lines(folder / "trace.jsonl", [*TRACE, ack(5_000, "n3", epoch=3)])
    (account,) = accounts_of(folder, group())
    assert "; by n3 as the leader of epoch 3" in account["when"]


def test_the_holders_are_the_replicas_that_appended_before_the_ack(folder: Path) -> None:
    """Not those that appended it later or appended other offsets."""
    write_lines(folder / "trace.jsonl", [
        appended(2_000, "n1"), appended(3_000, "n2", offset=0, count=1), ack(4_000), appended(5_000, "n3")])
    (account,) = accounts_of(folder, group())
    assert account["held"].startswith("when it was acked, n1 had appended it; ")


@pytest.mark.parametrize(("error_ns", "later", "held"), [
    (0, [], "when it was acked, n1 and n2 had appended it; "),
    (999, [], "when it was acked, n1 and n2 had appended it; "),
    (1_000, [], "at offset 1 in the end"),  # n2's append may have been after the ack
    (999, [appended(4_999, "n3")], "at offset 1 in the end"),  # n3's before it
    (998, [appended(4_999, "n3")], "when it was acked, n1 and n2 had appended it; "),
])
def test_of_times_that_are_in_no_order_nobody_says_who_had_it(
        folder: Path, error_ns: int, later: list[Any], held: str) -> None:
    """Except of what is on the acker's own node."""
    write_lines(folder / "trace.jsonl", [*TRACE, *later])
    about = {**RUN_JSON, "clock_error_ns": error_ns}
    (account,) = accounts_of(folder, group(), run_json=about)
    assert account["held"].startswith(held)


@pytest.mark.parametrize(("leo", "gets"), [(1, "record will"), (0, "records will")])
def test_a_leader_without_the_offset_gives_it_to_one_of_its_next_records(
        folder: Path, leo: int, gets: str) -> None:
    write_lines(folder / "trace.jsonl", [line(5_000, "n2", "become_leader", leo=leo, isr=["n2"])])
    (account,) = accounts_of(folder, group("leader-incomplete", {"partition": 0, "offset": 1, "event": 0}))
    assert f": without offset 1, which its next {gets} get." in account["guilty"]


NOT_WAITED_FOR = {**RUN_JSON, "leaders": {"0": {"leader": "n3"}}}
TRUNCATED = line(5_000, "n2", "truncate", **{"from": 2, "to": 1})
ELECTED = {"time": 6_000, "node": "controller", "seq": 6_000, "event": "elect", "partition": 0,
           "leader": "n2", "epoch": 3, "isr": ["n2"], "clean": True}
FAILED = {**SENT[1], "type": "fail", "error": "NOT_LEADER_OR_FOLLOWER"}
ENDS = [{"index": index, "time": time, "process": 5, "type": "ok", "f": "list_offsets",
         "offsets": [{"partition": 0, "offset": end}]} for index, time, end in ((0, 5_000, 4), (1, 7_000, 3))]


@pytest.mark.parametrize(("fact", "name", "example", "trace", "history", "run_json"), [
    ("S20", "lost-write", {"event": 3}, [*TRACE, TRUNCATED], SENT, {**RUN_JSON, "rules": "high-watermark"}),
    ("", "lost-write", {"event": 3}, [*TRACE, TRUNCATED], SENT, RUN_JSON),  # truncated under other rules
    ("", "lost-write", {"event": 2}, [*TRACE, TRUNCATED], SENT, {**RUN_JSON, "rules": "high-watermark"}),
    ("S1", "lost-write", {}, TRACE, SENT, NOT_WAITED_FOR),
    ("", "lost-write", {}, TRACE, SENT, RUN_JSON),  # the final leader was in the ISR: the ack waited for it
    ("S2", "ack-rule", {"how": "member"}, TRACE, SENT, RUN_JSON),
    ("", "ack-rule", {"how": "hw"}, TRACE, SENT, RUN_JSON),
    ("S6", "G1a", {}, TRACE, [SENT[0], FAILED], RUN_JSON),
    ("", "G1a", {}, TRACE, [SENT[0], {**FAILED, "error": "NOT_ENOUGH_REPLICAS"}], RUN_JSON),
    ("S10", "diverged", {}, [*TRACE, {**ELECTED, "clean": False}], SENT, RUN_JSON),
    ("", "diverged", {}, [*TRACE, ELECTED], SENT, RUN_JSON),
    ("S16", "poll-skip", {"event": 3}, [*TRACE, TRUNCATED], SENT, RUN_JSON),
    ("", "poll-skip", {"event": 2}, [*TRACE, TRUNCATED], SENT, RUN_JSON),
    ("", "saw-then-lost", {"event": 3}, [*TRACE, TRUNCATED], SENT, RUN_JSON),  # no reads afterwards
    ("S15", "end-offset-regressed", {}, [*TRACE, ELECTED], ENDS, RUN_JSON),
    ("", "end-offset-regressed", {}, [*TRACE, {**ELECTED, "time": 8_000}], ENDS, RUN_JSON),
])
def test_a_misread_fact_is_quoted_only_if_the_run_is_a_case_of_it(
        folder: Path, fact: str, name: str, example: dict[str, Any], trace: list[Any], history: list[Any],
        run_json: dict[str, Any]) -> None:
    """And never for a permitted finding: there the setting explains it."""
    write_lines(folder / "trace.jsonl", trace)
    write_lines(folder / "history.jsonl", history)
    (account,) = accounts_of(folder, group(name, {**LOST, **example}), run_json=run_json)
    assert re.findall(r"Many believe that .*? \((S\d+)\)\. ", account["why"]) == ([fact] if fact else [])
    (permitted,) = accounts_of(folder, group(name, {**LOST, **example}, by="fault budget"), run_json=run_json)
    assert not re.search(r"\bS\d+\b", permitted["why"])


@pytest.mark.parametrize(("cause", "resent", "named"), [
    ("retries", [7], True), ("retries", None, False), ("acks", [7], False)])
def test_what_the_clients_library_repeated_itself_is_named(
    folder: Path, cause: str, resent: list[int] | None, named: bool
) -> None:
    (account,) = accounts_of(folder, group("duplicate", by=cause), run_json={**RUN_JSON, "resent": resent})
    assert ("library itself repeated records" in account["why"]) == named


def fault_op(index: int, f: str, **fault: Any) -> dict[str, Any]:
    return {"index": index, "time": index * 1_000_000_000, "process": -1, "type": "info", "f": f,
            "fault": fault}


def test_the_faults_that_permit_a_loss_are_named(folder: Path) -> None:
    """Those that took data, of nodes that hold the partition, after the send."""
    early, *after = (
        fault_op(0, "power_cut", nodes=["n1"], lost=True), fault_op(3, "kill", nodes=["n1"]),
        fault_op(4, "power_cut", nodes=["n9"], lost=True), fault_op(5, "disk", nodes=["n2"], lost=False),
        fault_op(6, "power_cut", nodes=["n2"], lost=True, error="no engine"))
    sent = [{**op, "index": at} for at, op in enumerate(SENT, 1)]
    write_lines(folder / "history.jsonl", [early, *sent, *after])
    found = {**LOST, "ops": [1, 2]}
    (account,) = accounts_of(folder, group("lost-write", found, by="fault budget"))
    here = ("Here: at 6.000 s power_cut n2; what was not fsynced is lost; failed half-way: no engine "
            "(history.jsonl:7). With")
    assert here in account["why"]


@pytest.mark.parametrize(("flush", "f", "reason"), [
    ("os", "power_cut", "but no leader was chosen from such copies alone."),
    ("every", "disk", "but no leader was chosen from such copies alone."),
    ("every", "power_cut", "but flush.messages=1 guarantees that acked records are on disk.")])
def test_a_loss_that_a_fault_does_not_permit_says_why_not(
        folder: Path, flush: str, f: str, reason: str) -> None:
    write_lines(folder / "history.jsonl", [*SENT, fault_op(2, f, nodes=["n2"], lost=True)])
    run_json = {**RUN_JSON, "guarantees": {**RUN_JSON["guarantees"], "flush": flush}}
    (account,) = accounts_of(folder, group(), run_json=run_json)
    assert reason in account["why"]


@pytest.mark.parametrize(("lost", "short"), [
    ({"n1": 0, "n2": 0}, "power_cut n1 n2 (lost 0)"), ({"n1": 2, "n2": 3}, "power_cut n1 n2 (lost 5)"),
    ({}, "power_cut n1 n2 (data lost)")])
def test_a_power_cut_of_several_nodes_says_how_much_was_lost(
        folder: Path, lost: dict[str, int], short: str) -> None:
    fault = fault_op(2, "power_cut", nodes=["n1", "n2"], lost=True, lost_records=lost)
    write_lines(folder / "history.jsonl", [*SENT, fault])
    reading = verdict_text.reading_of(folder, {"findings": [group()]}, RUN_JSON)
    assert dict(reading.summary)["struck"] == f"2.000 s {short}"


@pytest.mark.parametrize("where", ["without a trace ", ""])
def test_a_doubtful_permission_has_the_judges_reason(folder: Path, where: str) -> None:
    """A trace does not always decide it either."""
    reason = f"{where}nobody can say whether acks covers all of it"
    (account,) = accounts_of(folder, group(by="acks"), unknown=[{"names": ["lost-write"], "reason": reason}])
    assert f"Perhaps: {reason}." in account["why"]


def test_the_unclean_election_is_named_from_the_trace_or_the_nemesis_op(folder: Path) -> None:
    """The one of this partition, after the send."""
    cause = "unclean.leader.election.enable"

    def elected(time: int, **fields: Any) -> dict[str, Any]:
        return {"time": time, "node": "controller", "seq": time, "event": "elect", "partition": 0,
                "leader": "n2", "epoch": 3, "isr": ["n2"], "clean": False, **fields}

    write_lines(folder / "trace.jsonl", [
        elected(0), *TRACE, elected(5_000, clean=True), elected(6_000, partition=1), elected(7_000)])
    (account,) = accounts_of(folder, group(by=cause))
    assert ("Here: at 0.000 s the controller chose n2 to lead epoch 3, its ISR n2 (an UNCLEAN election) "
            "(trace.jsonl:7).") in account["why"]

    (folder / "trace.jsonl").unlink()
    write_lines(folder / "history.jsonl", [*SENT, fault_op(2, "elect", partitions=[1], unclean=True),
                                           fault_op(3, "elect", partitions=[0], unclean=True)])
    (account,) = accounts_of(folder, group(by=cause))
    assert "Here: at 3.000 s elect; unclean p0 (history.jsonl:4)." in account["why"]


def test_the_send_of_a_record_in_the_logs_is_found_by_its_value(folder: Path) -> None:
    """A send of 77, which begins with the same digit, is not taken for it."""
    invoked, completed = (
        {**op, "process": 1, "index": op["index"], "sends": [{**op["sends"][0], "value": 77}]} for op in SENT)
    write_lines(folder / "history.jsonl", [
        invoked, completed, *({**op, "index": op["index"] + 2} for op in SENT)])
    example = {"partition": 0, "offset": 1, "value": 7, "nodes": ["n3"], "text": "They differ."}
    (account,) = accounts_of(folder, group("diverged", example))
    assert account["when"].startswith("at 0.000 s process 5 was acked 7 at offset 1 (history.jsonl:4; by n1")


@pytest.mark.parametrize("spaced", [False, True])
def test_a_dump_that_is_out_of_order_and_one_with_spaces_are_read(folder: Path, spaced: bool) -> None:
    rows = [{"node": "n1", "partition": 0, "offset": offset, "epoch": 2, "value": 6 + offset, "crc": 1}
            for offset in (0, 3, 4, 5, 1)]
    write_lines(folder / "logs" / "n1.jsonl", rows, spaced)
    write_lines(folder / "history.jsonl", SENT, spaced)
    example = {"partition": 0, "offset": 1, "value": 7, "nodes": ["n3"], "text": "They differ."}
    (account,) = accounts_of(folder, group("diverged", example))
    assert "n1 has 7 of epoch 2 (logs/n1.jsonl:5)" in account["held"]
    assert "process 5 was acked 7" in account["when"]


def test_a_finding_of_a_folder_with_only_its_verdict_is_described(tmp_path: Path) -> None:
    """By the sentence with its op indexes, and the law."""
    (account,) = accounts_of(tmp_path, group("lost-write", LOST))
    assert account["what"] == LOST["text"]
    assert set(account) == {"what", "held", "why"}
    assert account["held"] == "at offset 1 in the end n2 (the leader), n1 and n3 have no dump."


def test_a_sentence_is_limited_in_length(folder: Path) -> None:
    (account,) = accounts_of(folder, group("lost-write", {**LOST, "text": "x" * 9_000}))
    assert len(account["what"]) < 1_100


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**63) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["0", "nodes", "leader", "isr"]), inner),
    max_leaves=4)
FIELDS = st.sampled_from([*LOST, "event", "epoch", "nodes", "process"])


@settings(max_examples=cases(150, few=40),
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(example=st.dictionaries(FIELDS, JUNK | st.integers(0, 3)), name=st.sampled_from(names.MADE),
       by=st.sampled_from([None, "fault budget", "unclean.leader.election.enable", "acks", "else"]),
       run_json=st.dictionaries(st.sampled_from(sorted(RUN_JSON)), JUNK), position=st.integers(0, 2),
       field=st.text("ptefo"), junk=JUNK)
def test_any_content_of_a_folder_gives_an_account(
        folder: Path, example: dict[str, Any], name: str, by: str | None, run_json: dict[str, Any],
        position: int, field: str, junk: Any) -> None:
    """Any verdict, run.json or lines: no exception."""
    keys = {"p": "partition", "t": "time", "e": "event", "f": "from", "o": "offset"}
    damaged = [{**row, keys[field[:1] or "o"]: junk, "clean": junk} if at == position else row
              for at, row in enumerate(TRACE)]
    write_lines(folder / "trace.jsonl", [*damaged, junk])
    write_lines(folder / "history.jsonl", [*SENT, fault_op(2, "power_cut", nodes=junk, lost=True),
                                           fault_op(3, "elect", partitions=junk, unclean=True)])
    (account,) = accounts_of(
        folder, group(name, {**LOST, **example}, by=by), run_json={**RUN_JSON, **run_json})
    assert account["what"]
    assert account["why"]


def test_counts_are_grouped_by_thousands_and_names_are_not() -> None:
    counts = {"ops": 123456, "ok": 1234, "acked": 1, "torn": 2, "records": {"1001": 4321}}
    assert verdict_text.looked_at(counts, grouped=True) == (
        "123,456 lines of history (1,234 ok, 0 fail, 0 info), 1 acked record, 2 incomplete lines ignored; "
        "records in the final logs: 1001 4,321")


def test_logs_that_nobody_collected_are_not_empty_logs() -> None:
    assert verdict_text.looked_at({"ops": 2, "records": {}}).endswith("; no final logs were collected")
    assert verdict_text.looked_at({"ops": 2, "records": {"n1": 0}}).endswith("in the final logs: n1 0")
