"""run.json's `observes`: which checks are not made on a system that shows less, what stays unknown, and what
is found all the same."""

import re
from collections.abc import Callable
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
import twin
from folders import Tale
from judging import Tales
from traced_story import Story, traced_in

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.read import observed
from floodmark.checkers.read.observed import EVENTS, NEEDED_EVENTS, OF_FILES, Observes, observes_of
from floodmark.harness.commands.explain import explain_finding
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
traced = traced_in(TALES)
BLIND = {"dumps": False, "replicas": False, "trace": []}
OF_COMMITS = ("leader-incomplete", "candidate-incomplete", "unsafe-truncation")
NOT_MADE: dict[str, set[str]] = {}  # of a tale, by its name


def without(*checks: str, observes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Of the tale these checks are not made; its run promises so much."""

    def mark(teller: Callable[..., Any]) -> Callable[..., Any]:
        def told(*args: Any) -> Any:
            args[-1].run["observes"] = observes
            return teller(*args)

        told.__name__ = teller.__name__
        NOT_MADE[teller.__name__] = set(checks)
        return told

    return mark


def blinded(tale: Tale) -> None:
    """No dump, no row of a replica: final reads alone."""
    tale.files |= {f"logs/{node}.jsonl": None for node in ("n1", "n2", "n3")} | {"replicas.jsonl": None}


# -- files that are not promised ----------------------------------------------------------------------------


@TALES.tale()
@without(*names.OF_THE_TRACE, observes={"dumps": True, "replicas": True, "trace": []})
def a_healthy_run_of_a_system_without_a_trace_is_valid(tale: Tale) -> None:
    tale.acked(1, 2, 3)


@TALES.tale("lost-write bug 1")
@without(*names.OF_THE_TRACE, observes={"trace": []})
def what_is_lost_without_a_trace_is_lost(tale: Tale) -> None:
    tale.acked(1).send(2, 5, at=[1])


@TALES.tale("lost-write bug 1", unknown=[])
@without(*names.OF_THE_TRACE, observes={"trace": []})
def a_trace_that_is_not_promised_is_not_looked_at(tale: Tale) -> None:
    story = Story().begin()
    story.elect("n2", "n2", clean=False)  # nor does it excuse anything
    tale.acked(1).send(2, 5, at=[1]).trace = story.lines


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=["lost-write"])
@without(*names.OF_THE_TRACE, observes={"trace": []})
def an_unclean_election_that_nobody_could_see_permits_perhaps(tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    tale.acked(1).send(2, 5, at=[1])


@TALES.tale(unknown=["lost-write"])
@without(*OF_FILES, *names.OF_THE_TRACE, observes=BLIND)
def nothing_shows_a_loss_so_the_run_is_unknown(tale: Tale) -> None:
    tale.acked(1).send(2, 5, at=[1]).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}
    blinded(tale)


@TALES.tale(unknown=["lost-write"])
@without(*OF_FILES, observes={"dumps": False})
def dumps_that_are_not_promised_are_not_looked_at(tale: Tale) -> None:
    tale.acked(1).send(2, 5, at=[1]).logged(77, nodes=["n1"]).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}


@TALES.tale("malformed-log bug 1", unknown=["lost-write"])
@without(*OF_FILES, observes={"dumps": False})
def what_the_rows_alone_show_stands(tale: Tale) -> None:
    tale.acked(1).row("n2").update(leo=1, hw=2)
    tale.run["final_reads"] = {"processes": [], "partitions": []}


@TALES.tale("malformed-log bug 1", unknown=["lost-write"])
@without(*OF_FILES, *OF_COMMITS, observes={"replicas": False})
def what_the_dumps_alone_show_stands(tale: Tale) -> None:
    tale.acked(1, 2).entry("n3", 0)["crc_ok"] = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}
    tale.files["replicas.jsonl"] = None


@TALES.tale("duplicate bug 1", "phantom bug 1", unknown=["lost-write"])
@without(*OF_FILES, *names.OF_THE_TRACE, observes=BLIND)
def what_clients_saw_is_judged_all_the_same(tale: Tale) -> None:
    tale.acked(1).poll(4, (0, 1), (1, 1)).poll(5, (2, 77)).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}
    blinded(tale)


@TALES.tale(unknown=["stuck", "lost-write"])
@without(*OF_FILES, *names.OF_THE_TRACE, observes=BLIND)
def who_was_up_is_asked_of_replicas_that_are_not_shown(tale: Tale) -> None:
    tale.acked(1).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}
    tale.run["settled"] = False
    tale.run["settle"]["no_leader"] = [0]
    blinded(tale)


@TALES.tale(unknown=[*names.OF_THE_LOGS, "saw-then-lost", "unseen"])
@without(*names.OF_THE_TRACE, observes={"trace": []})
def what_is_promised_and_missing_is_unknown(tale: Tale) -> None:
    tale.acked(1).files["logs/n1.jsonl"] = None


# -- a trace that tells something ---------------------------------------------------------------------------

CONTROLLERS = ["elect", "isr", "truncate"]
BUT_THEIR_CLEANNESS = set(names.OF_THE_TRACE) - {names.UNCLEAN_ELECTION}  # which an elect alone tells


@traced()
@without(*BUT_THEIR_CLEANNESS, observes={"trace": CONTROLLERS})
def a_quiet_system_that_tells_little_is_valid(story: Story, tale: Tale) -> None:
    story.produce()
    story.lines = renumbered([line for line in story.lines if line["event"] in CONTROLLERS])
    tale.trace = story.lines


@traced()
@without(*BUT_THEIR_CLEANNESS, observes={"trace": CONTROLLERS})
def a_truncation_without_what_was_committed_is_no_finding(story: Story, tale: Tale) -> None:
    """All that would show it is in the file, but nobody said that the file has all of it."""
    story.produce().elect("n2", "n1", "n2").truncate("n1", 0)


@traced()
@without("ack-rule", "recovery-loss", "unsafe-isr", observes={"trace": sorted(EVENTS - {"ack"})})
def without_acks_three_checks_are_not_made(story: Story, tale: Tale) -> None:
    story.produce().ack(5)


@traced("two-leaders bug 1")
@without("ack-rule", "recovery-loss", "unsafe-isr", observes={"trace": sorted(EVENTS - {"ack"}), "colour": 7})
def without_acks_two_leaders_are_found_by_what_they_append(story: Story, tale: Tale) -> None:
    story.produce()
    story.leader = "n2"
    story.append("n2")


@traced("candidate-incomplete bug 1", "unsafe-truncation bug 1")
@without(observes={"trace": sorted(EVENTS), "dumps": True, "replicas": True})
def all_that_the_checks_need_is_all(story: Story, tale: Tale) -> None:
    story.produce().truncate("n2", 0)


@traced("hw-regressed bug 1", unknown=["lost-write"])
@without(*OF_FILES, *OF_COMMITS, observes={"dumps": True, "replicas": False})
def without_rows_nobody_knows_what_retention_took(story: Story, tale: Tale) -> None:
    story.produce().truncate("n1", 0).commit("n1")
    tale.run["final_reads"] = {"processes": [], "partitions": []}


@traced(unknown=sorted(names.OF_THE_TRACE))
@without(observes={"trace": sorted(EVENTS)})
def a_broker_that_is_to_tell_and_does_not(story: Story, tale: Tale) -> None:
    story.produce()
    story.lines = [line for line in story.lines if line["node"] != "n3"]


@TALES.tale(unknown=sorted(names.OF_THE_TRACE))
@without(observes={"trace": sorted(EVENTS)})
def a_trace_that_is_promised_and_missing(tale: Tale) -> None:
    tale.acked(1)


@TALES.tale(unknown=sorted(set(names.OF_THE_TRACE) & {"hw-regressed"}))
@without(*set(names.OF_THE_TRACE) - {"hw-regressed"}, observes={"trace": ["hw"]})
def of_a_missing_trace_what_was_promised_is_unknown(tale: Tale) -> None:
    tale.acked(1)


@TALES.tale()
@without(observes={})
def nothing_is_said_so_all_is_promised_and_no_trace_is_no_matter(tale: Tale) -> None:
    tale.acked(1)


UNSURE = sorted({"lost-write", *OF_FILES, *names.OF_THE_TRACE})


@TALES.tale(unknown=UNSURE)
@without(observes=None)
def null_is_no_object(tale: Tale) -> None:
    tale.acked(1)


@TALES.tale("lost-write bug 1", unknown=UNSURE)
@without(observes={"dumps": 1})
def neither_true_nor_false_and_what_is_lost_is_lost(tale: Tale) -> None:
    tale.acked(1).send(2, 5, at=[1])


@traced(unknown=UNSURE)
@without(observes={"trace": "all"})
def no_list_of_events_so_the_trace_claims_nothing(story: Story, tale: Tale) -> None:
    story.produce().truncate("n2", 0)


@traced(unknown=UNSURE)
@without(observes={"trace": ["append", 7]})
def no_list_of_names(story: Story, tale: Tale) -> None:
    story.produce().truncate("n2", 0)


def renumbered(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each node's seq without a gap."""
    seen: dict[str, int] = {}
    for line in lines:
        line["seq"] = seen[line["node"]] = seen.get(line["node"], -1) + 1
    return lines


# -- the tests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    """The tale's name says what must be so; the twin says the same."""
    TALES.check(name, verdicts)
    TALES.check_twin(name, verdicts, tmp_path / "run")
    assert {check for one in verdicts[name].not_made for check in one.names} == NOT_MADE[name]


def test_the_reason_says_what_the_system_does_not_show(verdicts: dict[str, Verdict]) -> None:
    told = {name: [one.reason for one in verdicts[name].not_made] for name in NOT_MADE}
    assert told["without_acks_three_checks_are_not_made"] == ["this system's trace has no ack"]
    assert told["nothing_shows_a_loss_so_the_run_is_unknown"] == [
        "this system shows no dumps and no replicas.jsonl", "this system has no trace"]
    assert told["without_rows_nobody_knows_what_retention_took"] == ["this system shows no replicas.jsonl"]
    (said,) = [one.reason for one in verdicts["null_is_no_object"].unknown]
    assert said == "run.json: `observes` is no object, so nobody knows what could be seen"


def test_every_check_of_the_trace_has_its_events() -> None:
    """And each is an event of the format's table."""
    of_the_format = {
        "append", "truncate", "hw", "become_leader", "become_follower", "fetch", "ack", "isr_proposed", "isr",
        "elect", "register", "fence", "unfence", "checkpoint", "crash", "start", "failpoint"}  # fmt: skip
    assert NEEDED_EVENTS.keys() == set(names.OF_THE_TRACE)
    assert of_the_format >= EVENTS
    assert names.LOST_WRITE not in OF_FILES


def test_explain_and_the_page_say_what_a_check_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """Every check that may be not made, the same events; and no other says anything."""
    page = (Path(__file__).parents[2] / "histories" / "README.md").read_text()
    table = page.split("## What a system does not show")[1].split("| check | needs |")[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if "`" in line]
    assert {name for row in rows for name in re.findall("`([^`]+)`", row)} == {*OF_FILES, *NEEDED_EVENTS}
    for name in names.MADE:
        assert explain_finding(name) == 0
        told = capsys.readouterr().out
        assert ("  needs      " in told) == (name in {*OF_FILES, *NEEDED_EVENTS}), name
        for event in NEEDED_EVENTS.get(name, ()):
            assert event in told.split("  needs      ")[1], (name, event)


def test_the_more_is_promised_the_more_is_made() -> None:
    """And lost-write always is."""
    events = sorted(EVENTS)
    for few in chain.from_iterable(combinations(events, number) for number in range(3)):
        less = observes_of({"observes": {"dumps": False, "trace": list(few)}})
        more = observes_of({"observes": {"dumps": False, "trace": [*few, "ack", "hw"]}})
        left_out = [{name for one in observed.not_made(each) for name in one.names} for each in (less, more)]
        assert left_out[1] <= left_out[0]
        assert names.LOST_WRITE not in left_out[0]
    assert observed.not_made(Observes()) == ()
    assert twin.judge(Path("/nowhere"))["not_made"] == []
