"""Unclean elections: what permits one, what one permits, and what is known where times lie too near.

The send of 9, which is lost, is invoked at 4000 ns (index 4) and acked at 5000; what the nemesis does next is
written at 6000 (index 6).
"""

from pathlib import Path
from typing import Any

import pytest
from folders import Tale
from judging import Tales
from traced_story import Story, traced_in

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
story_in = traced_in(TALES)
LEAVE = "unclean.leader.election.enable"
LOST_WITH_LEAVE = f"lost-write {LEAVE} 1"
UNTRUSTED = sorted(names.OF_THE_TRACE)
ERROR_NS = 1000


def lost(tale: Tale) -> Tale:
    """The acked 9 at offset 2 is on no replica."""
    return tale.acked(1, 2).send(7, 9, at=[2])


def allowed(tale: Tale) -> Tale:
    tale.run["guarantees"]["unclean_leader_election"] = True
    return tale


def asked(tale: Tale, **told: Any) -> Tale:
    return tale.fault("elect", unclean=True, **told)


def elected(time: int, leader: str | None, *isr: str, clean: bool = True, **told: Any) -> dict[str, Any]:
    """The controller's word."""
    return {"time": time, "event": "elect", "partition": 0, "leader": leader, "epoch": 1, "isr": list(isr),
            "clean": clean, **told}  # fmt: skip


def in_isr(time: int, *isr: str) -> dict[str, Any]:
    return {"time": time, "event": "isr", "partition": 0, "leader": "n1", "epoch": 1, "isr": list(isr)}


def traced(tale: Tale, *events: dict[str, Any]) -> Tale:
    """A whole trace: these events of the controller, and one of every node."""
    tale.trace = [{"time": 0, "node": f"n{node}", "seq": 0, "event": "start"} for node in "123"]
    tale.trace += [{"node": "controller", "seq": seq, **event} for seq, event in enumerate(events)]
    return tale


def unclean_at(time: int, **told: Any) -> dict[str, Any]:
    return elected(time, "n2", "n2", clean=False, **told)


def apart(tale: Tale) -> Tale:
    """Two nodes' stamps may lie so far apart."""
    tale.run["clock_error_ns"] = ERROR_NS
    return tale


# -- what permits an unclean election


@TALES.tale("lost-write bug 1", "unclean-election bug 1")
def one_that_nobody_allowed_is_a_bug_and_permits_nothing(tale: Tale) -> None:
    traced(lost(tale), unclean_at(10**9))


@TALES.tale("unclean-election bug 2")
def it_is_a_bug_each_time_and_though_nothing_was_lost(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9), elected(2 * 10**9, "n1", "n1"), unclean_at(3 * 10**9))


@TALES.tale(LOST_WITH_LEAVE)
def the_setting_allows_it(tale: Tale) -> None:
    traced(allowed(lost(tale)), unclean_at(10**9))


@TALES.tale(LOST_WITH_LEAVE)
def so_does_whoever_asked_for_it(tale: Tale) -> None:
    traced(asked(lost(tale), partitions=[0]), unclean_at(10**9))


@TALES.tale(LOST_WITH_LEAVE)
def whoever_names_no_partition_asks_for_all(tale: Tale) -> None:
    traced(asked(lost(tale)), unclean_at(10**9))


@TALES.tale()
def an_ask_before_the_send_allows_a_later_election_though_nothing_was_lost(tale: Tale) -> None:
    traced(asked(tale).acked(1), unclean_at(10**9))


@TALES.tale(LOST_WITH_LEAVE)
def and_what_that_election_loses(tale: Tale) -> None:
    """By the trace: the line of the nemesis comes before the send."""
    traced(lost(asked(tale)), unclean_at(10**9))


@TALES.tale(LOST_WITH_LEAVE)
def what_was_set_about_before_the_election_may_be_written_after_it(tale: Tale) -> None:
    traced(asked(lost(tale), began=4500), unclean_at(5500))


@TALES.tale("lost-write bug 1", "unclean-election bug 1")
def to_ask_for_another_partition_allows_nothing_here(tale: Tale) -> None:
    traced(asked(lost(tale), partitions=[1]), unclean_at(10**9))


@TALES.tale("lost-write bug 1", "unclean-election bug 1")
def nor_does_asking_for_a_clean_one(tale: Tale) -> None:
    traced(lost(tale).fault("elect", "n2"), unclean_at(10**9))


@TALES.tale(LOST_WITH_LEAVE, "unclean-election bug 1")
def one_that_was_asked_for_only_later_was_nobodys_wish(tale: Tale) -> None:
    """The other, which was asked for after the send, permits the loss."""
    traced(asked(lost(tale), began=5800), unclean_at(5500), unclean_at(7000))


@TALES.tale("unclean-election bug 1", unknown=UNTRUSTED)
def where_lines_of_the_trace_are_missing_the_one_that_is_there_stands(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9))
    assert tale.trace is not None
    tale.trace.append({"time": 10**9, "node": "n1", "seq": 7, "event": "start"})


@TALES.tale(unknown=UNTRUSTED)
def a_brokers_word_is_none(tale: Tale) -> None:
    """Only a controller elects."""
    traced(tale.acked(1), {"time": 1, "event": "register", "broker": "n1"})
    assert tale.trace is not None
    tale.trace.append({"node": "n1", "seq": 1, **unclean_at(10**9)})


@TALES.tale()
def an_election_of_a_partition_that_run_json_does_not_name_is_passed_over(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9, partition=5))


@TALES.tale()
def where_the_trace_is_not_to_tell_elections_it_tells_none(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9))
    tale.run["observes"] = {"trace": ["isr"]}


# -- where nobody knows whether it was allowed


@TALES.tale(LOST_WITH_LEAVE, unknown=["lost-write", "unclean-election"])
def where_the_guarantees_do_not_tell_the_setting_nobody_knows(tale: Tale) -> None:
    traced(lost(tale), unclean_at(10**9)).run["guarantees"]["unclean_leader_election"] = "no"


@TALES.tale(unknown=["unclean-election"])
def nor_where_they_lack_it(tale: Tale) -> None:
    del traced(tale.acked(1), unclean_at(10**9)).run["guarantees"]["unclean_leader_election"]


def planned(tale: Tale, **act: Any) -> Tale:
    tale.run["schedule"] = [{"f": "elect", "moment": {"at": "time", "s": 1}, **act}]
    return tale


@TALES.tale("unclean-election bug 1", unknown=[*names.IF_BREACHED, *names.OF_TRACE_AND_HISTORY])
def lines_that_are_missing_were_none_of_an_ask_that_nobody_planned(tale: Tale) -> None:
    traced(planned(tale.acked(1)), unclean_at(10**9)).run["history_lines"] = 40


@TALES.tale(unknown=[*names.IF_BREACHED, *names.OF_TRACE_AND_HISTORY, "unclean-election"])
def but_may_have_told_of_one_that_was_planned(tale: Tale) -> None:
    traced(planned(tale.acked(1), unclean=True), unclean_at(10**9)).run["history_lines"] = 40


KILLED = {*names.IF_KILLED, *names.IF_NOT_SETTLED, names.RECOVERY_LOSS}


@TALES.tale(unknown=KILLED | {"unclean-election"})
def so_may_the_line_that_a_killed_harness_never_wrote(tale: Tale) -> None:
    traced(planned(tale.acked(1), unclean=True), unclean_at(10**9)).run["history_lines"] = None


@TALES.tale(unknown=KILLED | {"unclean-election"})
def or_where_the_plan_is_not_told(tale: Tale) -> None:
    run = traced(tale.acked(1), unclean_at(10**9)).run
    run["history_lines"] = run["schedule"] = None


@TALES.tale("unclean-election bug 1", unknown=KILLED)
def a_killed_harness_that_planned_none_asked_for_none(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9)).run["history_lines"] = None


# -- what the trace shows in an election's wake


def led_without_the_records(story: Story) -> None:
    """n3 never had the three committed records, leads uncleanly, and n1 cuts them."""
    story.produce(3, by=["n2"]).elect("n3", "n3", clean=False).append("n3").commit()
    story.take_role("n1").truncate("n1", 1)


IN_ITS_WAKE = ("leader-incomplete", "unsafe-truncation", "candidate-incomplete")


@story_in(*(f"{name} bug 1" for name in IN_ITS_WAKE), "unclean-election bug 1", "ack-rule bug 1")
def nobody_allowed_what_comes_of_it(story: Story, tale: Tale) -> None:
    led_without_the_records(story)


@story_in(*(f"{name} {LEAVE} 1" for name in IN_ITS_WAKE[:2]), f"candidate-incomplete {LEAVE} 1",
          "ack-rule bug 1")
def with_leave_it_is_permitted(story: Story, tale: Tale) -> None:
    allowed(tale)
    led_without_the_records(story)


@story_in(*(f"{name} {LEAVE} 1" for name in IN_ITS_WAKE), "ack-rule bug 1")
def the_trace_is_sure_of_it_where_no_log_shows_what_was_lost(story: Story, tale: Tale) -> None:
    led_without_the_records(story)
    allowed(tale.acked(2, 3)).run["observes"] = {"dumps": False}
    tale.files |= {f"logs/{node}.jsonl": None for node in tale.logs}


@story_in(*(f"{name} {LEAVE} 1" for name in IN_ITS_WAKE), "ack-rule bug 1",
          unknown=[*IN_ITS_WAKE, "unclean-election"])
def with_leave_that_nobody_knows_of_it_is_permitted_perhaps(story: Story, tale: Tale) -> None:
    led_without_the_records(story)
    del tale.run["guarantees"]["unclean_leader_election"]


@story_in(
    LOST_WITH_LEAVE, f"leader-incomplete {LEAVE} 1", f"candidate-incomplete {LEAVE} 2",
    f"unsafe-truncation {LEAVE} 1", "unsafe-truncation bug 1", "candidate-incomplete bug 1",
    unknown=["unclean-election"],
)  # fmt: skip
def what_the_new_leader_wrote_is_not_covered_by_a_loss_at_its_offset(story: Story, tale: Tale) -> None:
    """Also where the loss is surely permitted, and the election that the trace shows only perhaps."""
    del tale.run["guarantees"]["unclean_leader_election"]
    asked(tale.send(7, 9, at=[1]), began=10**9)
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce()
    story.elect("n3", "n3", clean=False).append("n3").commit().take_role("n1").truncate("n1", 1)
    story.append("n1").ruling("isr", ["n1", "n3"], cause="alter").truncate("n1", 1)


# -- times within the clocks' error: the send was invoked at 4000


def when_stamped(time: int, *found: str, unknown: tuple[str, ...] = ()) -> None:
    """The setting is on, and the one unclean election bears this time."""

    def stamped(tale: Tale) -> None:
        traced(apart(allowed(lost(tale))), unclean_at(time))

    stamped.__name__ = f"an_unclean_election_is_stamped_{time}"
    TALES.tale(*found, unknown=unknown)(stamped)


when_stamped(5001, LOST_WITH_LEAVE)  # surely after the send
when_stamped(5000, LOST_WITH_LEAVE, unknown=("lost-write",))
when_stamped(4000, LOST_WITH_LEAVE, unknown=("lost-write",))
when_stamped(3500, LOST_WITH_LEAVE, unknown=("lost-write",))  # perhaps: by a clock that is behind
when_stamped(3000, LOST_WITH_LEAVE, unknown=("lost-write",))
when_stamped(2999, "lost-write bug 1")  # surely before it


@TALES.tale(LOST_WITH_LEAVE, unknown=["lost-write"])
def with_clocks_that_agree_only_the_same_instant_is_open(tale: Tale) -> None:
    traced(allowed(lost(tale)), unclean_at(4000))


@TALES.tale("lost-write bug 1")
def an_instant_before_is_before(tale: Tale) -> None:
    traced(allowed(lost(tale)), unclean_at(3999))


@TALES.tale(LOST_WITH_LEAVE)
def a_sure_one_makes_up_for_one_that_is_not(tale: Tale) -> None:
    traced(apart(allowed(lost(tale))), unclean_at(3500), unclean_at(9000))


@TALES.tale(LOST_WITH_LEAVE, unknown=["lost-write", *UNTRUSTED])
def where_the_clocks_error_is_not_told_no_times_compare(tale: Tale) -> None:
    traced(allowed(lost(tale)), unclean_at(10**9)).run["clock_error_ns"] = "little"


def asked_about_then(time: int, *found: str, unknown: tuple[str, ...] = ()) -> None:
    """The nemesis set about it at 6000, after the send; the election bears this time."""

    def stamped(tale: Tale) -> None:
        traced(apart(asked(lost(tale))), unclean_at(time))

    stamped.__name__ = f"asked_for_at_6000_and_stamped_{time}"
    TALES.tale(*found, unknown=unknown)(stamped)


asked_about_then(7001, LOST_WITH_LEAVE)
asked_about_then(7000, LOST_WITH_LEAVE, unknown=("unclean-election",))
asked_about_then(5500, LOST_WITH_LEAVE, unknown=("unclean-election",))
asked_about_then(5000, LOST_WITH_LEAVE, unknown=("unclean-election",))
asked_about_then(4999, LOST_WITH_LEAVE, "unclean-election bug 1")


@TALES.tale(LOST_WITH_LEAVE, unknown=["lost-write", "unclean-election"])
def an_election_that_may_be_before_the_ask_and_the_send_permits_perhaps(tale: Tale) -> None:
    traced(apart(lost(asked(tale, began=100))), unclean_at(900))
    tale.lines[5]["time"] = tale.lines[6]["time"] = 1500  # of the send
    tale.lines[1]["time"] = tale.lines[2]["time"] = tale.lines[3]["time"] = tale.lines[4]["time"] = 1200


# -- strikes, elections and lives within the clocks' error: n2 is struck at 6000


BUDGET = "lost-write fault budget 1"


def struck_and_elected(time: int, *found: str, unknown: tuple[str, ...] = ()) -> None:
    """n2 alone is in the ISR, and is elected at this time."""

    def stamped(tale: Tale) -> None:
        apart(lost(tale).fault("power_cut", "n2", lost=True))
        traced(tale, elected(0, "n1", "n1", "n2"), elected(time, "n2", "n2"))

    stamped.__name__ = f"struck_at_6000_and_elected_{time}"
    TALES.tale(*found, unknown=unknown)(stamped)


struck_and_elected(7001, BUDGET)
struck_and_elected(7000, BUDGET, unknown=("lost-write",))
struck_and_elected(5500, BUDGET, unknown=("lost-write",))
struck_and_elected(5000, BUDGET, unknown=("lost-write",))
struck_and_elected(4999, "lost-write bug 1")


def started_again(started: int, back: int, *found: str, unknown: tuple[str, ...] = ()) -> None:
    """n2 was started at the one time, taken into the ISR again at the other, and elected long after."""

    def stamped(tale: Tale) -> None:
        apart(lost(tale).fault("power_cut", "n2", lost=True))
        traced(tale, elected(0, "n1", "n1", "n2"), in_isr(100, "n1"), in_isr(back, "n1", "n2"),
               elected(10**9, "n2", "n2"))  # fmt: skip
        assert tale.trace is not None
        tale.trace += [{"time": back - 1, "node": "controller", "seq": 4, "event": "register",
                        "broker": "n2", "broker_epoch": 2},
                       {"time": started, "node": "n2", "seq": 1, "event": "start"}]  # fmt: skip

    stamped.__name__ = f"struck_at_6000_started_{started}_and_in_sync_{back}"
    TALES.tale(*found, unknown=unknown)(stamped)


started_again(7001, 9000, "lost-write bug 1")  # surely after the strike, and in its new life
started_again(7000, 9000, BUDGET, unknown=("lost-write",))
started_again(5500, 9000, BUDGET, unknown=("lost-write",))
started_again(4999, 6500, BUDGET)  # the life that the strike ended


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_says_the_same(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_the_election_is_told_with_its_line(verdicts: dict[str, Verdict]) -> None:
    """Whom, in which epoch, by which line of the trace."""
    verdict = verdicts["one_that_nobody_allowed_is_a_bug_and_permits_nothing"]
    (example,) = next(one for one in verdict.findings if one.name == names.UNCLEAN_ELECTION).examples

    assert {name: example[name] for name in ("partition", "nodes", "event")} == {
        "partition": 0, "nodes": ["n2"], "event": 3}  # fmt: skip
    assert "n2" in example["text"]
    assert "epoch 1" in example["text"]
    assert "controller, seq 0 of its trace" in example["text"]
