"""run.json's `observes`: which checks are not made on a system that shows less, what stays unknown, and what
is found all the same."""

from collections.abc import Callable
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
import twin
from folders import FINAL, NODES, Tale
from judging import Tales
from traced_story import Story, traced_in

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.read import observed
from floodmark.checkers.read.observed import Observes, observes_of
from floodmark.harness.commands.explain import explain_finding
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
traced = traced_in(TALES)
NEEDED_EVENTS = {name: names.LAWS[name].needs - names.FILES for name in names.OF_THE_TRACE}
EVENTS = frozenset().union(*NEEDED_EVENTS.values())
OF_FILES = tuple(name for name, law in names.LAWS.items() if "dumps" in law.needs)
CLIENTS_ONLY = {"dumps": False, "replicas": False, "trace": []}
COMMIT_CHECKS = ("leader-incomplete", "candidate-incomplete", "unsafe-truncation")
NOT_MADE: dict[str, set[str]] = {}  # by the name of a tale


def without(*checks: str, observes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks these checks as not made for the tale, and sets its run's `observes`."""

    def mark(teller: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*args: Any) -> Any:
            args[-1].run["observes"] = observes
            return teller(*args)

        marked.__name__ = teller.__name__
        NOT_MADE[teller.__name__] = set(checks)
        return marked

    return mark


def remove_logs(tale: Tale) -> None:
    """No dumps and no replicas.jsonl: final reads alone."""
    tale.files |= {f"logs/{node}.jsonl": None for node in NODES} | {"replicas.jsonl": None}


# -- files that are not observed ----------------------------------------------------------------------------


@TALES.tale()
@without(*names.OF_THE_TRACE, observes={"dumps": True, "replicas": True, "trace": []})
def a_healthy_run_of_a_system_without_a_trace_is_valid(tale: Tale) -> None:
    tale.acked(1, 2, 3)


@TALES.tale("lost-write bug 1")
@without(*names.OF_THE_TRACE, observes={"trace": []})
def a_loss_is_found_without_a_trace(tale: Tale) -> None:
    tale.acked(1).send(2, 5, at=[1])


@TALES.tale("lost-write bug 1", unknown=[])
@without(*names.OF_THE_TRACE, observes={"trace": []})
def a_trace_that_is_not_observed_is_ignored(tale: Tale) -> None:
    story = Story().begin()
    story.elect("n2", "n2", clean=False)  # it permits nothing either
    tale.acked(1).send(2, 5, at=[1]).trace = story.lines


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=["lost-write"])
@without(*names.OF_THE_TRACE, observes={"trace": []})
def without_a_trace_an_allowed_unclean_election_permits_a_loss_and_is_unknown(tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    tale.acked(1).send(2, 5, at=[1])


@TALES.tale(unknown=["lost-write"])
@without(*OF_FILES, *names.OF_THE_TRACE, observes=CLIENTS_ONLY)
def without_logs_and_final_reads_a_loss_is_unknown(tale: Tale) -> None:
    tale.acked(1).send(2, 5, at=[1]).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}
    remove_logs(tale)


@TALES.tale(unknown=["lost-write"])
@without(*OF_FILES, observes={"dumps": False})
def dumps_that_are_not_observed_are_ignored(tale: Tale) -> None:
    tale.acked(1).send(2, 5, at=[1]).logged(77, nodes=["n1"]).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}


@TALES.tale(unknown=["lost-write"])
@without(*OF_FILES, *names.OF_THE_TRACE, observes=CLIENTS_ONLY)
def not_settled_and_no_logs(tale: Tale) -> None:
    tale.acked(1).run["settled"] = False
    tale.run["settle"]["why"] = "the LEO and HW of partition 0 on n2 are not visible"
    remove_logs(tale)


@TALES.tale("malformed-log bug 1", unknown=["lost-write"])
@without(*OF_FILES, observes={"dumps": False})
def findings_of_the_rows_alone_are_made(tale: Tale) -> None:
    tale.acked(1).row("n2").update(leo=1, hw=2)
    tale.run["final_reads"] = {"processes": [], "partitions": []}


@TALES.tale("malformed-log bug 1", unknown=["lost-write"])
@without(*OF_FILES, *COMMIT_CHECKS, observes={"replicas": False})
def findings_of_the_dumps_alone_are_made(tale: Tale) -> None:
    tale.acked(1, 2).entry("n3", 0)["crc_ok"] = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}
    tale.files["replicas.jsonl"] = None


@TALES.tale("duplicate bug 1", "phantom bug 1", unknown=["lost-write"])
@without(*OF_FILES, *names.OF_THE_TRACE, observes=CLIENTS_ONLY)
def findings_of_the_clients_ops_alone_are_made(tale: Tale) -> None:
    tale.acked(1).poll(4, (0, 1), (1, 1)).poll(5, (2, 77)).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}
    remove_logs(tale)


@TALES.tale(unknown=["stuck", "lost-write"])
@without(*OF_FILES, *names.OF_THE_TRACE, observes=CLIENTS_ONLY)
def without_replicas_jsonl_stuck_is_unknown(tale: Tale) -> None:
    tale.acked(1).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}
    tale.run["settled"] = False
    tale.run["settle"]["no_leader"] = [0]
    remove_logs(tale)


# -- only the wire is seen: who answered while the cluster should have settled ------------------------------

BY_WIRE = without(*OF_FILES, *names.OF_THE_TRACE, observes=CLIENTS_ONLY)


def stopped(tale: Tale, **settle: object) -> Tale:
    """Nothing was acked after mending, nobody leads, and nothing could be read."""
    tale.final = False
    tale.run |= {"settled": False, "final_reads": {"processes": [], "partitions": []},
                 "leaders": {"0": {"leader": None, "epoch": 0, "isr": []}}}
    tale.run["settle"] |= {"no_ack": [0], **settle}
    remove_logs(tale)
    return tale


@TALES.tale("stuck bug 1", unknown=["lost-write"])
@BY_WIRE
def every_node_answered_and_nothing_was_acked_any_more(tale: Tale) -> None:
    stopped(tale.acked(1).fault("kill", "n2"), answering=["n3", "n2", "n1"])


@TALES.tale("stuck bug 1", unknown=["lost-write"])
@BY_WIRE
def every_node_answered_and_nothing_had_struck(tale: Tale) -> None:
    stopped(tale.acked(1), answering=list(NODES))


@TALES.tale(unknown=["stuck", "lost-write"])
@BY_WIRE
def one_node_did_not_answer_all_the_time(tale: Tale) -> None:
    stopped(tale.acked(1), answering=["n1", "n3"])


@TALES.tale(unknown=["stuck", "lost-write"])
@BY_WIRE
def the_partition_first_acked_after_a_fault(tale: Tale) -> None:
    stopped(tale.fault("kill", "n2").acked(1), answering=list(NODES))


@TALES.tale("stuck bug 1", unknown=["stuck", "lost-write"])
@BY_WIRE
def only_one_of_two_partitions_had_ever_acked(tale: Tale) -> Tale:
    tale = Tale(partitions=2).acked(1)
    tale.run["observes"] = CLIENTS_ONLY
    stopped(tale, answering=list(NODES), no_ack=[0, 1])
    tale.run["leaders"]["1"] = {"leader": None, "epoch": 0, "isr": []}
    return tale


GONE: dict[str, object] = {"answering": list(NODES), "topic_unknown": list(NODES)}


@TALES.tale("lost-write bug 2", "stuck bug 1")
@BY_WIRE
def no_node_knows_the_topic_any_more(tale: Tale) -> None:
    stopped(tale.acked(1, 2).fault("kill", *NODES), **GONE)


@TALES.tale("lost-write acks 1", "stuck bug 1")
@BY_WIRE
def no_node_knows_the_topic_and_acks_were_weak(tale: Tale) -> None:
    tale.run["guarantees"]["acks"] = "1"
    stopped(tale.acked(1), **GONE)


@TALES.tale("stuck bug 1", unknown=["lost-write"])
@BY_WIRE
def one_node_still_knows_the_topic(tale: Tale) -> None:
    stopped(tale.acked(1), answering=list(NODES), topic_unknown=["n1", "n2"])


@TALES.tale("stuck bug 1", unknown=["lost-write"])
@BY_WIRE
def the_topic_was_known_again_at_the_end(tale: Tale) -> None:
    stopped(tale.acked(1), **GONE).run["leaders"]["0"] = {"leader": "n1", "epoch": 3, "isr": ["n1"]}


@TALES.tale("stuck bug 1", unknown=["lost-write"])
@BY_WIRE
def a_final_read_got_a_record_of_the_topic(tale: Tale) -> None:
    tale.acked(1, 2).assign(FINAL, 0).poll(FINAL, (0, 1))
    stopped(tale, **GONE)
    tale.run["final_reads"]["processes"] = [FINAL]


@TALES.tale("stuck bug 1", unknown=["lost-write"])
@BY_WIRE
def somebody_who_may_have_been_a_controller_lost_data(tale: Tale) -> None:
    stopped(tale.acked(1).fault("power_cut", "n1", lost=True), **GONE)


@TALES.tale("stuck bug 1", unknown=["lost-write"])
@BY_WIRE
def an_act_that_may_delete_a_topic(tale: Tale) -> None:
    stopped(tale.acked(1).fault("delete_topic"), **GONE)


@TALES.tale(unknown=[*names.unknown_if(names.If.LOG), "saw-then-lost", "unseen"])
@without(*names.OF_THE_TRACE, observes={"trace": []})
def a_dump_that_is_observed_and_missing_is_unknown(tale: Tale) -> None:
    tale.acked(1).files["logs/n1.jsonl"] = None


# -- a trace with some events -------------------------------------------------------------------------------

CONTROLLER_EVENTS = ["elect", "isr", "truncate"]
ALL_BUT_UNCLEAN_ELECTION = set(names.OF_THE_TRACE) - {names.UNCLEAN_ELECTION}  # which needs elect alone


@traced()
@without(*ALL_BUT_UNCLEAN_ELECTION, observes={"trace": CONTROLLER_EVENTS})
def a_healthy_run_with_few_traced_events_is_valid(story: Story, tale: Tale) -> None:
    story.produce()
    story.lines = renumbered([line for line in story.lines if line["event"] in CONTROLLER_EVENTS])
    tale.trace = story.lines


@traced()
@without(*ALL_BUT_UNCLEAN_ELECTION, observes={"trace": CONTROLLER_EVENTS})
def a_truncation_without_observed_commits_is_no_finding(story: Story, tale: Tale) -> None:
    """The file has all lines that would show it, but `observes` does not state that it has them all."""
    story.produce().elect("n2", "n1", "n2").truncate("n1", 0)


@traced()
@without("ack-rule", "recovery-loss", "unsafe-isr", observes={"trace": sorted(EVENTS - {"ack"})})
def without_acks_three_checks_are_not_made(story: Story, tale: Tale) -> None:
    story.produce().ack(5)


@traced("two-leaders bug 1")
@without("ack-rule", "recovery-loss", "unsafe-isr", observes={"trace": sorted(EVENTS - {"ack"}), "colour": 7})
def without_acks_two_leaders_are_found_by_their_appends(story: Story, tale: Tale) -> None:
    story.produce()
    story.leader = "n2"
    story.append("n2")


@traced("candidate-incomplete bug 1", "unsafe-truncation bug 1")
@without(observes={"trace": sorted(EVENTS), "dumps": True, "replicas": True})
def with_all_needed_events_all_checks_are_made(story: Story, tale: Tale) -> None:
    story.produce().truncate("n2", 0)


@traced("hw-regressed bug 1", unknown=["lost-write"])
@without(*OF_FILES, *COMMIT_CHECKS, observes={"dumps": True, "replicas": False})
def without_rows_it_is_unknown_what_retention_deleted(story: Story, tale: Tale) -> None:
    story.produce().truncate("n1", 0).commit("n1")
    tale.run["final_reads"] = {"processes": [], "partitions": []}


@traced(unknown=sorted(names.OF_THE_TRACE))
@without(observes={"trace": sorted(EVENTS)})
def a_broker_without_trace_lines_makes_all_checks_of_the_trace_unknown(story: Story, tale: Tale) -> None:
    story.produce()
    story.lines = [line for line in story.lines if line["node"] != "n3"]


@TALES.tale(unknown=sorted(names.OF_THE_TRACE))
@without(observes={"trace": sorted(EVENTS)})
def a_trace_that_is_observed_and_missing_is_unknown(tale: Tale) -> None:
    tale.acked(1)


@TALES.tale(unknown=sorted(set(names.OF_THE_TRACE) & {"hw-regressed"}))
@without(*set(names.OF_THE_TRACE) - {"hw-regressed"}, observes={"trace": ["hw"]})
def with_a_missing_trace_the_observed_checks_are_unknown(tale: Tale) -> None:
    tale.acked(1)


@TALES.tale()
@without(observes={})
def an_empty_observes_promises_all_logs_and_no_trace(tale: Tale) -> None:
    tale.acked(1)


UNSURE = sorted({"lost-write", *OF_FILES, *names.OF_THE_TRACE})


@TALES.tale(unknown=UNSURE)
@without(observes=None)
def a_null_observes_is_unknown(tale: Tale) -> None:
    tale.acked(1)


@TALES.tale("lost-write bug 1", unknown=UNSURE)
@without(observes={"dumps": 1})
def with_a_dumps_value_that_is_no_boolean_a_loss_is_found(tale: Tale) -> None:
    tale.acked(1).send(2, 5, at=[1])


@traced(unknown=UNSURE)
@without(observes={"trace": "all"})
def a_trace_value_that_is_no_list_is_unknown(story: Story, tale: Tale) -> None:
    story.produce().truncate("n2", 0)


@traced(unknown=UNSURE)
@without(observes={"trace": ["append", 7]})
def a_trace_value_that_lists_a_number_is_unknown(story: Story, tale: Tale) -> None:
    story.produce().truncate("n2", 0)


def renumbered(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each node's seq without a gap."""
    last_seq: dict[str, int] = {}
    for line in lines:
        line["seq"] = last_seq[line["node"]] = last_seq.get(line["node"], -1) + 1
    return lines


# -- the tests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    """The tale's name states what is expected; the twin agrees."""
    TALES.check(name, verdicts)
    TALES.check_twin(name, verdicts, tmp_path / "run")
    assert {check for one in verdicts[name].not_made for check in one.names} == NOT_MADE[name]


def test_the_reason_names_what_the_system_does_not_show(verdicts: dict[str, Verdict]) -> None:
    reasons = {name: [one.reason for one in verdicts[name].not_made] for name in NOT_MADE}
    assert reasons["without_acks_three_checks_are_not_made"] == ["this system's trace has no ack"]
    assert reasons["without_logs_and_final_reads_a_loss_is_unknown"] == [
        "this system shows no dumps and no replicas.jsonl", "this system has no trace"]
    assert reasons["without_rows_it_is_unknown_what_retention_deleted"] == [
        "this system shows no replicas.jsonl"]
    (reason,) = [one.reason for one in verdicts["not_settled_and_no_logs"].unknown]
    assert reason.endswith("not settled: the LEO and HW of partition 0 on n2 are not visible")
    (reason,) = [one.reason for one in verdicts["a_null_observes_is_unknown"].unknown]
    assert reason == "run.json: `observes` is no object, so nobody knows what could be seen"


def test_every_check_of_the_trace_has_its_events() -> None:
    """And each is an event of the format's table."""
    format_events = {
        "append", "truncate", "hw", "become_leader", "become_follower", "fetch", "ack", "isr_proposed", "isr",
        "elect", "register", "fence", "unfence", "checkpoint", "crash", "start", "failpoint"}  # fmt: skip
    assert format_events >= EVENTS
    assert names.LOST_WRITE not in OF_FILES


def test_explain_says_what_a_check_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """For every check that may be not made, and nothing for the others."""
    for name in names.MADE:
        assert explain_finding(name) == 0
        output = capsys.readouterr().out
        assert ("  needs      " in output) == (name in {*OF_FILES, *NEEDED_EVENTS}), name
        for event in NEEDED_EVENTS.get(name, ()):
            assert event in output.split("  needs      ")[1], (name, event)


def test_with_more_observed_events_no_check_is_dropped() -> None:
    """And lost-write is always made."""
    events = sorted(EVENTS)
    for few in chain.from_iterable(combinations(events, number) for number in range(3)):
        less = observes_of({"observes": {"dumps": False, "trace": list(few)}})
        more = observes_of({"observes": {"dumps": False, "trace": [*few, "ack", "hw"]}})
        left_out = [{name for one in observed.not_made(each) for name in one.names} for each in (less, more)]
        assert left_out[1] <= left_out[0]
        assert names.LOST_WRITE not in left_out[0]
    assert observed.not_made(Observes()) == ()
    assert twin.judge(Path("/nowhere"))["not_made"] == []
