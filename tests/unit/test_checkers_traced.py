"""Every check of the trace: the step that breaks it, and near misses that a correct broker makes."""

from pathlib import Path
from typing import Any

import pytest
from folders import Tale
from judging import Tales
from traced_story import ALL, Story, traced_in

from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
UNCLEAN = "unclean.leader.election.enable"
traced = traced_in(TALES)


@traced()
def a_healthy_trace_with_a_clean_election_is_valid(story: Story, tale: Tale) -> None:
    story.produce(3).produce(2).elect("n2", "n2", "n3").produce(2)
    story.restart("n1", epochs=[[0, 0]]).take_role("n1").append("n1", 2, epoch=1)
    story.ruling("isr", ALL, cause="alter").produce()


@traced()
def appends_without_epochs_are_dated_by_their_leader(story: Story, tale: Tale) -> None:
    story.produce(3, epochs=False).elect("n2", "n2", "n3").produce(2, epochs=False)


# -- hw-regressed, epoch-regressed, two-leaders


@traced("hw-regressed bug 1")
def the_leaders_hw_falls_inside_an_epoch(story: Story, tale: Tale) -> None:
    story.produce(3).append("n1").append("n2").append("n3").commit(to=2)


@traced()
def a_followers_hw_may_fall_and_a_new_leader_begins_low(story: Story, tale: Tale) -> None:
    story.produce(3)
    story.hw["n2"] = 3
    story.say("n2", "hw", role="follower")
    story.hw["n2"] = 1
    story.say("n2", "hw", role="follower").elect("n2", "n2", "n3").commit()


@traced("epoch-regressed bug 1")
def a_role_in_an_older_epoch_after_a_restart(story: Story, tale: Tale) -> None:
    story.produce().elect("n2", *ALL).elect("n1", *ALL)
    story.epochs["n3"] = 1
    story.restart("n3", epochs=[[0, 0]]).say("n3", "become_follower", leader="n2")


@traced()
def the_same_epoch_again_is_no_regress(story: Story, tale: Tale) -> None:
    story.produce().restart("n3", epochs=[[0, 0]]).take_role("n3")


@traced("two-leaders bug 1")
def two_nodes_act_as_leader_of_one_epoch(story: Story, tale: Tale) -> None:
    story.produce()
    story.say("n2", "append", role="leader", offset=1, count=1)


@traced()
def an_old_leader_goes_on_in_its_own_epoch(story: Story, tale: Tale) -> None:
    story.produce().elect("n2", "n2", "n3").append("n2").append("n3").commit("n2")
    story.say("n1", "append", role="leader", offset=1, count=1, epochs=[[0, 1]])


# -- ack-rule


@traced("ack-rule bug 1")
def an_ack_above_the_hw(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").append("n3").ack(1).commit()


@traced("ack-rule bug 1")
def an_ack_with_too_small_an_isr(story: Story, tale: Tale) -> None:
    story.produce().ruling("isr", ["n1"], cause="expired").append("n1").commit().ack(1)


@traced()
def an_ack_of_one_waits_for_nobody(story: Story, tale: Tale) -> None:
    story.produce().append("n1").ack(1, acks="1").append("n2").append("n3").commit()


@traced("ack-rule bug 1", "candidate-incomplete bug 1")
def an_ack_before_a_member_had_the_record(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").commit().ack(1)


@traced("ack-rule bug 1", "candidate-incomplete bug 1")
def whatever_another_does_at_that_instant(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").commit().ack(1).take_role("n2")
    story.lines[-1]["time"] = story.lines[-2]["time"]


@traced("candidate-incomplete bug 1")
def a_member_that_had_the_record_once_is_no_matter_of_the_ack(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").append("n3").truncate("n3", 1).commit().ack(1)


@traced("ack-rule bug 1", "candidate-incomplete bug 1")
def a_member_with_other_records_there_has_not_the_record(story: Story, tale: Tale) -> None:
    story.produce().elect("n2", "n2", "n3", learners=["n2"]).append("n2", epoch=1).append("n3", epoch=0)
    story.take_role("n3").commit().ack(1)


@traced("ack-rule bug 1", "candidate-incomplete bug 1", "two-leaders bug 1")
def one_that_never_began_to_lead_acks_before_a_member_had_the_record(story: Story, tale: Tale) -> None:
    story.produce().leader = "n2"
    story.append("n2").append("n3").commit().ack(1)


@traced("two-leaders bug 1")
def one_that_never_began_to_lead_acks_when_all_had_the_record(story: Story, tale: Tale) -> None:
    story.produce().leader = "n2"
    story.append("n2").append("n3").append("n1").commit().ack(1)


# -- unsafe-truncation


@traced("unsafe-truncation bug 1", "candidate-incomplete bug 1")
def a_member_cuts_what_is_committed(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3").truncate("n3", 1)


@traced("unsafe-truncation bug 1", "candidate-incomplete bug 2")
def one_cut_is_one_and_what_is_lacked_is_one_of_each_epoch(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", *ALL).produce(2).truncate("n3", 1)


@traced("unsafe-truncation bug 1", "candidate-incomplete bug 2")
def what_is_lacked_of_a_later_epoch_is_told_though_the_log_ended_there_before(
    story: Story, tale: Tale
) -> None:
    story.produce(3).truncate("n3", 1).elect("n2", *ALL)
    story.append("n2", epoch=1).append("n1", epoch=1).commit()


@traced("unsafe-truncation bug 2", "candidate-incomplete bug 1")
def two_cuts_are_two_and_what_is_lacked_of_one_epoch_is_one(story: Story, tale: Tale) -> None:
    story.produce(3).truncate("n3", 1).append("n3", 2).truncate("n3", 2).append("n3").truncate("n2", 3)


@traced("unsafe-truncation bug 1")
def a_replica_outside_the_isr_cuts_what_is_committed(story: Story, tale: Tale) -> None:
    story.produce(3).ruling("isr", ["n1", "n2"], cause="alter").truncate("n3", 1)


@traced()
def cuts_of_what_was_not_committed_are_how_logs_mend(story: Story, tale: Tale) -> None:
    story.produce(3).append("n1").elect("n2", "n2", "n3").produce(2)
    story.take_role("n1").truncate("n1", 3).append(
        "n1", 2, epoch=1
    )  # another record of offset 3 is committed


@traced()
def what_recovery_cuts_is_no_truncation(story: Story, tale: Tale) -> None:
    story.produce(3).ruling("isr", ["n1", "n2"], cause="expired").truncate("n3", 1, why="recovery")


@traced(
    f"unsafe-truncation {UNCLEAN} 1", f"leader-incomplete {UNCLEAN} 1", f"candidate-incomplete {UNCLEAN} 1"
)
def an_unclean_election_before_it_excuses(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce(2)
    story.elect("n3", "n3", clean=False).append("n3").commit().take_role("n1").truncate("n1", 1)


@traced(
    f"lost-write {UNCLEAN} 1", f"leader-incomplete {UNCLEAN} 1", f"candidate-incomplete {UNCLEAN} 2",
    f"unsafe-truncation {UNCLEAN} 1", "unsafe-truncation bug 1", "candidate-incomplete bug 1",
)  # fmt: skip
def but_not_what_was_written_since_where_something_was_lost(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    tale.send(7, 9, at=[1])
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce()
    story.elect("n3", "n3", clean=False).append("n3").commit().take_role("n1").truncate("n1", 1)
    story.append("n1").ruling("isr", ["n1", "n3"], cause="alter").truncate("n1", 1)


@traced("unsafe-truncation bug 1")
def one_after_it_does_not(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    story.produce(3).ruling("isr", ["n1", "n2"], cause="alter").truncate("n3", 1)
    story.append("n3", 2).elect("n3", "n3", clean=False)


@traced(f"unsafe-truncation {UNCLEAN} 1", f"lost-write {UNCLEAN} 1")
def unless_what_was_cut_is_lost_by_it_in_the_end(story: Story, tale: Tale) -> None:
    one_after_it(story, tale)


@traced("unsafe-truncation bug 1", "lost-write bug 1")
def and_was_sent_before_it(story: Story, tale: Tale) -> None:
    one_after_it(story, tale)
    tale.edit = sent_late


def one_after_it(story: Story, tale: Tale) -> None:
    """A truncation, then an unclean election. The record that was cut is acked, and in no final log."""
    tale.run["guarantees"]["unclean_leader_election"] = True
    tale.send(7, 9, at=[1])
    story.produce(2).ruling("isr", ["n1", "n2"], cause="alter").truncate("n3", 1)
    story.append("n3").elect("n3", "n3", clean=False)


def sent_late(lines: list[dict[str, Any]]) -> None:
    """All sends come when the trace is over."""
    for line in lines:
        line["time"] += 10**9


@traced(f"unsafe-truncation {UNCLEAN} 1", unknown=["unsafe-truncation"])
def one_that_may_have_come_before_it_excuses_perhaps(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    tale.run["clock_error_ns"] = 999_999
    story.produce(3).ruling("isr", ["n1", "n2"], cause="alter")
    story.time = 20_000_000 - 1000
    story.elect("n3", "n3", clean=False, learners=[]).truncate("n2", 1).lines[-1]["time"] -= 900_000


# -- leader-incomplete, candidate-incomplete


@traced("leader-incomplete bug 1", "candidate-incomplete bug 1", "unsafe-truncation bug 1")
def a_leader_without_what_it_had_committed_itself_whatever_the_clocks_prove(
    story: Story, tale: Tale
) -> None:
    tale.run["clock_error_ns"] = 10**15
    story.produce(3).truncate("n1", 1).elect("n1", *ALL)


@traced("leader-incomplete bug 1", "unsafe-truncation bug 1")
def though_its_hw_was_low_when_it_led_again(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 10**15
    story.produce(3).restart("n1", epochs=[[0, 0]]).elect("n1", *ALL)
    story.truncate("n1", 1).elect("n1", *ALL)


@traced("leader-incomplete bug 1", "candidate-incomplete bug 1")
def a_leader_without_what_was_surely_committed_whoever_speaks_at_that_time(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 500
    story.produce().append("n1").append("n3").commit()
    story.elect("n2", "n2", "n3").lines[-1]["time"] -= 900


@traced("candidate-incomplete bug 1")
def nor_what_may_have_been_committed_after(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 500
    story.produce().append("n1").append("n3")
    story.elect("n2", "n2", "n3").commit("n1").lines[-1]["time"] -= 900


@traced("candidate-incomplete bug 1")
def a_leader_without_what_another_had_committed_perhaps_later(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 10**15
    story.produce(3).truncate("n2", 1).elect("n2", *ALL)


@traced("ack-rule bug 1", "leader-incomplete bug 1", "candidate-incomplete bug 1")
def a_leader_without_what_was_committed(story: Story, tale: Tale) -> None:
    story.produce(3, by=["n2"]).elect("n3", "n3", "n2")


@traced()
def who_hears_late_of_an_old_epoch_is_not_asked(story: Story, tale: Tale) -> None:
    story.produce().elect("n2", "n2", "n3", learners=["n3"]).elect("n3", "n3", "n1").produce(2)
    story.epochs["n2"] = 1
    story.say("n2", "become_leader", isr=["n2", "n3"], start=1)


@traced("leader-incomplete bug 1")
def but_it_is_for_what_was_committed_before_its_epoch(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", *ALL, learners=["n3"]).elect("n3", "n3", "n1").produce(2)
    story.epochs["n2"], story.leo["n2"] = 1, 2
    story.say("n2", "become_leader", isr=ALL, start=2)


@traced()
def what_a_later_epoch_commits_of_earlier_records_is_not_asked_either(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n3").elect("n2", *ALL, learners=[])
    story.elect("n3", "n3", "n1").produce()
    story.epochs["n2"] = 1
    story.say("n2", "become_leader", isr=ALL, start=1)


@traced()
def a_started_node_without_a_role_is_no_candidate(story: Story, tale: Tale) -> None:
    tale.fault("power_cut", "n3", lost=True)
    story.produce(3).restart("n3", leo=1, epochs=[[0, 0]]).append("n1").append("n2")
    story.register("n3").commit().ack(3)


@traced()
def nor_is_one_with_a_role_until_it_is_registered_anew(story: Story, tale: Tale) -> None:
    tale.fault("power_cut", "n3", lost=True)
    story.produce(3).restart("n3", leo=1, epochs=[[0, 0]]).take_role("n3").append("n3", 2).produce()


@traced("unsafe-truncation bug 1")
def nor_one_of_which_the_clocks_do_not_tell_that_it_was(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 1_000_000
    story.produce(2).restart("n3", epochs=[[0, 0]])
    story.say("controller", "register", broker="n3", broker_epoch=2, clean=False, alone=True)
    story.say("controller", "unfence", broker="n3", broker_epoch=2, alone=True).take_role("n3")
    story.time += 10_000_000
    story.truncate("n3", 1).time += 10_000_000
    story.append("n3")


@traced("candidate-incomplete bug 1")
def a_struck_member_that_gets_its_role_back_is_one(story: Story, tale: Tale) -> None:
    tale.fault("power_cut", "n3", lost=True)
    story.produce(3).restart("n3", leo=1, epochs=[[0, 0]])
    story.say("controller", "register", broker="n3", broker_epoch=2, clean=False, alone=True)
    story.say("controller", "unfence", broker="n3", broker_epoch=2, alone=True)
    story.take_role("n3").append("n3", 2).produce()


def bounced(story: Story) -> None:
    """n3 is up again without the last record; the ISR still has it, and nothing more is told of the partition
    when it is unfenced."""
    story.produce(3).restart("n3", leo=2, epochs=[[0, 0]])
    story.say("controller", "register", broker="n3", broker_epoch=2, clean=False, alone=True)


@traced("candidate-incomplete bug 1")
def one_that_is_unfenced_and_lacks_a_record_is_one(story: Story, tale: Tale) -> None:
    bounced(story)
    story.say("controller", "unfence", broker="n3", broker_epoch=2, alone=True)


@traced()
def one_that_has_not_been_unfenced_is_none(story: Story, tale: Tale) -> None:
    bounced(story)


@traced()
def nor_one_whose_next_process_has_not_told_what_it_found(story: Story, tale: Tale) -> None:
    bounced(story)
    story.say("n3", "start", clean=False, alone=True)
    story.say("controller", "unfence", broker="n3", broker_epoch=3, alone=True)


@traced("candidate-incomplete bug 1")
def until_it_tells_of_its_role(story: Story, tale: Tale) -> None:
    bounced(story)
    story.say("n3", "start", clean=False, alone=True)
    story.say("controller", "unfence", broker="n3", broker_epoch=3, alone=True).take_role("n3")


def with_an_empty_disk(story: Story, *, in_isr: bool = True) -> None:
    """n3 is up again and unfenced, and has nothing; the ISR lets it go before, or after, it is unfenced; and
    only then it hears of its role."""
    story.produce(3).say("n3", "start", clean=False, alone=True)
    story.say("controller", "register", broker="n3", broker_epoch=2, clean=False, alone=True)
    if not in_isr:
        story.ruling("isr", ["n1", "n2"], cause="registration")
    story.say("controller", "unfence", broker="n3", broker_epoch=2, alone=True)
    if in_isr:
        story.ruling("isr", ["n1", "n2"], cause="proposed")


@traced("candidate-incomplete bug 1")
def a_role_with_an_empty_log_tells_of_the_time_before(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)
    story.leo["n3"] = story.hw["n3"] = 0
    story.take_role("n3")


@traced()
def nor_of_the_time_in_which_it_was_no_member(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story, in_isr=False)
    story.leo["n3"] = story.hw["n3"] = 0
    story.take_role("n3")


@traced()
def nor_does_a_role_with_a_log_that_may_have_been_found_late(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)
    story.leo["n3"], story.hw["n3"] = 2, 0
    story.take_role("n3")


@traced()
def nor_one_that_comes_after_something_else(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)
    story.truncate("n3", 0).take_role("n3")


@traced()
def nor_one_that_never_comes(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)


@traced()
def nor_one_of_another_process(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)
    story.say("n3", "start", clean=False, alone=True)
    story.leo["n3"] = story.hw["n3"] = 0
    story.take_role("n3")


@traced()
def a_fenced_member_is_no_candidate(story: Story, tale: Tale) -> None:
    story.produce().say("controller", "fence", broker="n3", broker_epoch=1, alone=True)
    story.append("n1").append("n2").commit().ruling("isr", ["n1", "n2"], cause="expired")


@traced("leader-incomplete fault budget 1", "candidate-incomplete fault budget 1")
def copies_struck_beyond_the_budget_excuse(story: Story, tale: Tale) -> None:
    tale.fault("power_cut", *ALL, lost=True)
    for line in story.produce(3).lines:
        line["time"] -= 10**9  # before the history began
    story.time = 10**9
    story.restart("n3", leo=1, epochs=[[0, 0]]).register("n3").elect("n3", "n3")


@traced("leader-incomplete fault budget 1", "candidate-incomplete fault budget 1")
def and_who_is_left_of_them_before_it_is_elected(story: Story, tale: Tale) -> None:
    tale.fault("power_cut", *ALL, lost=True)
    for line in story.produce(3).elect("n3", "n3").lines:
        line["time"] -= 10**9
    story.time = 10**9
    story.restart("n3", leo=1, epochs=[[0, 0]]).register("n3").take_role("n3")
    story.ruling("isr", ["n3"], cause="unfence").elect("n3", "n3")


@traced("candidate-incomplete bug 1", "ack-rule bug 1")
def a_start_of_a_partition_that_nobody_names_ends_no_process(story: Story, tale: Tale) -> None:
    story.produce().say("n3", "start", partition=77, clean=True).produce(by=["n2"])


@traced()
def what_a_killed_process_had_told_and_not_written_was_never_committed(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["min_insync_replicas"] = 1
    story.produce().ruling("isr", ["n1"], cause="expired")
    story.append("n1").commit().ack(1)
    for line in story.lines[-3:]:
        line["time"] = story.time  # one step
    story.restart("n1", leo=1, epochs=[[0, 0]]).register("n1").elect("n1", "n1")


@traced()
def nor_where_the_clocks_prove_nothing(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 10**15
    tale.run["guarantees"]["min_insync_replicas"] = 1
    story.produce().ruling("isr", ["n1"], cause="expired")
    story.append("n1").commit().ack(1)
    for line in story.lines[-3:]:
        line["time"] = story.time  # one step
    story.restart("n1", leo=1, epochs=[[0, 0]]).register("n1").elect("n1", "n1")


@traced("leader-incomplete bug 1", "candidate-incomplete bug 1")
def what_it_went_on_from_was_committed(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["min_insync_replicas"] = 1
    story.produce().ruling("isr", ["n1"], cause="expired")
    story.append("n1").commit().ack(1)
    story.restart("n1", leo=1, epochs=[[0, 0]]).register("n1").elect("n1", "n1")


@pytest.mark.parametrize("name", TALES.cases())
def test_the_judge_says(name: str, verdicts: dict[str, Verdict]) -> None:
    """Findings, classes, counts, unknown names and valid, all as told."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_says_so_too(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_the_guilty_line_is_named(verdicts: dict[str, Verdict]) -> None:
    """The truncation itself is the event of what it cut."""
    verdict = verdicts["a_member_cuts_what_is_committed"]
    cut = next(one for one in verdict.findings if one.name == "unsafe-truncation").examples[0]
    assert (cut["partition"], cut["offset"], cut["epoch"], cut["nodes"]) == (0, 1, 0, ["n3"])
    assert "truncated its log to 1" in cut["text"]
    assert cut["event"] > 0


def test_the_first_record_is_named(verdicts: dict[str, Verdict]) -> None:
    """Of each epoch that a candidate lacks the lowest offset."""
    verdict = verdicts["one_cut_is_one_and_what_is_lacked_is_one_of_each_epoch"]
    lacked = next(one for one in verdict.findings if one.name == "candidate-incomplete").examples
    assert [(one["offset"], one["epoch"], one["nodes"]) for one in lacked] == [(1, 0, ["n3"]), (3, 1, ["n3"])]
