"""Every check of the trace: the step that breaks it, and near misses of a correct broker."""

from pathlib import Path
from typing import Any

import pytest
from folders import Tale
from judging import Tales
from traced_story import ALL, Story, traced_in

from floodmark.checkers.laws import finding_names as names
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
def appends_without_epochs_have_the_epoch_of_their_leader(story: Story, tale: Tale) -> None:
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
def an_old_leader_may_append_in_its_own_epoch(story: Story, tale: Tale) -> None:
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
def an_ack_with_acks_1_waits_for_no_follower(story: Story, tale: Tale) -> None:
    story.produce().append("n1").ack(1, acks="1").append("n2").append("n3").commit()


@traced("ack-rule bug 1", "candidate-incomplete bug 1")
def an_ack_before_a_member_had_the_record(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").commit().ack(1)


@traced("ack-rule bug 1", "candidate-incomplete bug 1")
def an_early_ack_is_found_whatever_another_node_does_at_that_time(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").commit().ack(1).take_role("n2")
    story.lines[-1]["time"] = story.lines[-2]["time"]


@traced("candidate-incomplete bug 1")
def an_ack_may_count_a_member_that_has_truncated_the_record(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").append("n3").truncate("n3", 1).commit().ack(1)


@traced("ack-rule bug 1", "candidate-incomplete bug 1")
def a_member_with_another_record_there_does_not_have_the_record(story: Story, tale: Tale) -> None:
    story.produce().elect("n2", "n2", "n3", learners=["n2"]).append("n2", epoch=1).append("n3", epoch=0)
    story.take_role("n3").commit().ack(1)


@traced("ack-rule bug 1", "candidate-incomplete bug 1", "two-leaders bug 1")
def a_node_that_never_became_leader_acks_before_a_member_had_the_record(story: Story, tale: Tale) -> None:
    story.produce().leader = "n2"
    story.append("n2").append("n3").commit().ack(1)


@traced("two-leaders bug 1")
def a_node_that_never_became_leader_acks_when_all_had_the_record(story: Story, tale: Tale) -> None:
    story.produce().leader = "n2"
    story.append("n2").append("n3").append("n1").commit().ack(1)


# -- unsafe-truncation


@traced("unsafe-truncation bug 1", "candidate-incomplete bug 1")
def a_member_truncates_committed_records(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3").truncate("n3", 1)


@traced("unsafe-truncation bug 1", "candidate-incomplete bug 2")
def one_truncation_is_one_finding_and_missing_records_are_one_per_epoch(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", *ALL).produce(2).truncate("n3", 1)


@traced("unsafe-truncation bug 1", "candidate-incomplete bug 2")
def missing_records_of_a_later_epoch_are_found_though_the_log_was_short_before(
    story: Story, tale: Tale
) -> None:
    story.produce(3).truncate("n3", 1).elect("n2", *ALL)
    story.append("n2", epoch=1).append("n1", epoch=1).commit()


@traced("unsafe-truncation bug 2", "candidate-incomplete bug 1")
def two_truncations_are_two_findings_and_missing_records_of_one_epoch_are_one(
    story: Story, tale: Tale
) -> None:
    story.produce(3).truncate("n3", 1).append("n3", 2).truncate("n3", 2).append("n3").truncate("n2", 3)


@traced("unsafe-truncation bug 1")
def a_replica_outside_the_isr_truncates_committed_records(story: Story, tale: Tale) -> None:
    story.produce(3).ruling("isr", ["n1", "n2"], cause="alter").truncate("n3", 1)


@traced()
def truncating_uncommitted_records_is_correct(story: Story, tale: Tale) -> None:
    story.produce(3).append("n1").elect("n2", "n2", "n3").produce(2)
    story.take_role("n1").truncate("n1", 3).append(
        "n1", 2, epoch=1
    )  # another record of offset 3 is committed


@traced()
def what_recovery_truncates_is_no_finding(story: Story, tale: Tale) -> None:
    story.produce(3).ruling("isr", ["n1", "n2"], cause="expired").truncate("n3", 1, cause="recovery")
    story.truncate("n3", 0, cause=None, why="Recovering")  # a file without causes says it in words


@traced("unsafe-truncation bug 1")
def no_words_make_a_truncation_a_recovery(story: Story, tale: Tale) -> None:
    story.produce(3).ruling("isr", ["n1", "n2"], cause="expired")
    story.truncate("n3", 1, cause="other", why="after its recovery")


@traced(unknown=names.OF_THE_TRACE)
def nobody_knows_what_a_truncation_of_an_unknown_cause_was(story: Story, tale: Tale) -> None:
    story.produce(3).ruling("isr", ["n1", "n2"], cause="expired").truncate("n3", 1, cause="repair")


@traced(
    f"unsafe-truncation {UNCLEAN} 1", f"leader-incomplete {UNCLEAN} 1", f"candidate-incomplete {UNCLEAN} 1"
)
def an_unclean_election_before_a_truncation_permits_it(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce(2)
    story.elect("n3", "n3", clean=False).append("n3").commit().take_role("n1").truncate("n1", 1)


@traced(
    f"lost-write {UNCLEAN} 1", f"leader-incomplete {UNCLEAN} 1", f"candidate-incomplete {UNCLEAN} 2",
    f"unsafe-truncation {UNCLEAN} 1", "unsafe-truncation bug 1", "candidate-incomplete bug 1",
)  # fmt: skip
def an_unclean_election_does_not_permit_truncating_later_records(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    tale.send(7, 9, at=[1])
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce()
    story.elect("n3", "n3", clean=False).append("n3").commit().take_role("n1").truncate("n1", 1)
    story.append("n1").ruling("isr", ["n1", "n3"], cause="alter").truncate("n1", 1)


@traced("unsafe-truncation bug 1")
def an_unclean_election_after_a_truncation_does_not_permit_it(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    story.produce(3).ruling("isr", ["n1", "n2"], cause="alter").truncate("n3", 1)
    story.append("n3", 2).elect("n3", "n3", clean=False)


@traced(f"unsafe-truncation {UNCLEAN} 1", f"lost-write {UNCLEAN} 1")
def an_unclean_election_after_a_truncation_permits_it_if_the_record_is_lost(story: Story, tale: Tale) -> None:
    truncation_then_unclean_election(story, tale)


@traced("unsafe-truncation bug 1", "lost-write bug 1")
def an_unclean_election_before_the_send_of_the_lost_record_permits_nothing(story: Story, tale: Tale) -> None:
    truncation_then_unclean_election(story, tale)
    tale.edit = send_late


def truncation_then_unclean_election(story: Story, tale: Tale) -> None:
    """The truncated record is acked, and in no log in the end."""
    tale.run["guarantees"]["unclean_leader_election"] = True
    tale.send(7, 9, at=[1])
    story.produce(2).ruling("isr", ["n1", "n2"], cause="alter").truncate("n3", 1)
    story.append("n3").elect("n3", "n3", clean=False)


def send_late(lines: list[dict[str, Any]]) -> None:
    """All sends come after the trace."""
    for line in lines:
        line["time"] += 10**9


@traced(f"unsafe-truncation {UNCLEAN} 1", unknown=["unsafe-truncation"])
def an_unclean_election_possibly_before_a_truncation_permits_it_and_is_unknown(
    story: Story, tale: Tale
) -> None:
    tale.run["guarantees"]["unclean_leader_election"] = True
    tale.run["clock_error_ns"] = 999_999
    story.produce(3).ruling("isr", ["n1", "n2"], cause="alter")
    story.time = 20_000_000 - 1000
    story.elect("n3", "n3", clean=False, learners=[]).truncate("n2", 1).lines[-1]["time"] -= 900_000


# -- leader-incomplete, candidate-incomplete


@traced("leader-incomplete bug 1", "candidate-incomplete bug 1", "unsafe-truncation bug 1")
def a_leader_without_what_it_committed_itself_whatever_the_clock_error(
    story: Story, tale: Tale
) -> None:
    tale.run["clock_error_ns"] = 10**15
    story.produce(3).truncate("n1", 1).elect("n1", *ALL)


@traced("leader-incomplete bug 1", "unsafe-truncation bug 1")
def a_leader_without_what_it_committed_itself_though_its_hw_was_low_again(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 10**15
    story.produce(3).restart("n1", epochs=[[0, 0]]).elect("n1", *ALL)
    story.truncate("n1", 1).elect("n1", *ALL)


@traced("leader-incomplete bug 1", "candidate-incomplete bug 1")
def a_leader_without_surely_committed_records_whatever_lines_are_near(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 500
    story.produce().append("n1").append("n3").commit()
    story.elect("n2", "n2", "n3").lines[-1]["time"] -= 900


@traced("candidate-incomplete bug 1")
def a_leader_without_records_that_may_have_been_committed_later_is_not_incomplete(
    story: Story, tale: Tale
) -> None:
    tale.run["clock_error_ns"] = 500
    story.produce().append("n1").append("n3")
    story.elect("n2", "n2", "n3").commit("n1").lines[-1]["time"] -= 900


@traced("candidate-incomplete bug 1")
def a_leader_without_what_another_committed_at_an_uncertain_time_is_not_incomplete(
    story: Story, tale: Tale
) -> None:
    tale.run["clock_error_ns"] = 10**15
    story.produce(3).truncate("n2", 1).elect("n2", *ALL)


@traced("ack-rule bug 1", "leader-incomplete bug 1", "candidate-incomplete bug 1")
def a_leader_without_committed_records(story: Story, tale: Tale) -> None:
    story.produce(3, by=["n2"]).elect("n3", "n3", "n2")


@traced()
def a_late_leader_of_an_old_epoch_need_not_have_later_commits(story: Story, tale: Tale) -> None:
    story.produce().elect("n2", "n2", "n3", learners=["n3"]).elect("n3", "n3", "n1").produce(2)
    story.epochs["n2"] = 1
    story.say("n2", "become_leader", isr=["n2", "n3"], start=1)


@traced("leader-incomplete bug 1")
def a_late_leader_of_an_old_epoch_must_have_commits_before_its_epoch(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", *ALL, learners=["n3"]).elect("n3", "n3", "n1").produce(2)
    story.epochs["n2"], story.leo["n2"] = 1, 2
    story.say("n2", "become_leader", isr=ALL, start=2)


@traced()
def a_late_leader_need_not_have_old_records_that_a_later_epoch_commits(story: Story, tale: Tale) -> None:
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
def a_started_node_with_a_role_is_no_candidate_until_it_is_registered_again(story: Story, tale: Tale) -> None:
    tale.fault("power_cut", "n3", lost=True)
    story.produce(3).restart("n3", leo=1, epochs=[[0, 0]]).take_role("n3").append("n3", 2).produce()


@traced("unsafe-truncation bug 1")
def a_node_whose_registration_is_within_the_clock_error_is_no_candidate(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 1_000_000
    story.produce(2).restart("n3", epochs=[[0, 0]])
    story.say("controller", "register", broker="n3", broker_epoch=2, clean=False, alone=True)
    story.say("controller", "unfence", broker="n3", broker_epoch=2, alone=True).take_role("n3")
    story.time += 10_000_000
    story.truncate("n3", 1).time += 10_000_000
    story.append("n3")


@traced("candidate-incomplete bug 1")
def a_member_that_lost_data_is_a_candidate_once_it_has_its_role_back(story: Story, tale: Tale) -> None:
    tale.fault("power_cut", "n3", lost=True)
    story.produce(3).restart("n3", leo=1, epochs=[[0, 0]])
    story.say("controller", "register", broker="n3", broker_epoch=2, clean=False, alone=True)
    story.say("controller", "unfence", broker="n3", broker_epoch=2, alone=True)
    story.take_role("n3").append("n3", 2).produce()


def restarted_without_the_last_record(story: Story) -> None:
    """n3 is up again without the last record; it is still in the ISR, and no line of the partition follows
    when it is unfenced."""
    story.produce(3).restart("n3", leo=2, epochs=[[0, 0]])
    story.say("controller", "register", broker="n3", broker_epoch=2, clean=False, alone=True)


@traced("candidate-incomplete bug 1")
def an_unfenced_member_without_a_record_is_an_incomplete_candidate(story: Story, tale: Tale) -> None:
    restarted_without_the_last_record(story)
    story.say("controller", "unfence", broker="n3", broker_epoch=2, alone=True)


@traced()
def a_member_that_has_not_been_unfenced_is_no_candidate(story: Story, tale: Tale) -> None:
    restarted_without_the_last_record(story)


@traced()
def a_member_whose_next_process_has_not_traced_its_log_is_no_candidate(story: Story, tale: Tale) -> None:
    restarted_without_the_last_record(story)
    story.say("n3", "start", clean=False, alone=True)
    story.say("controller", "unfence", broker="n3", broker_epoch=3, alone=True)


@traced("candidate-incomplete bug 1")
def a_member_whose_next_process_has_traced_its_role_is_a_candidate(story: Story, tale: Tale) -> None:
    restarted_without_the_last_record(story)
    story.say("n3", "start", clean=False, alone=True)
    story.say("controller", "unfence", broker="n3", broker_epoch=3, alone=True).take_role("n3")


def with_an_empty_disk(story: Story, *, in_isr: bool = True) -> None:
    """n3 is up again and unfenced, with an empty log; it leaves the ISR before, or after, it is unfenced, and
    learns its role only then."""
    story.produce(3).say("n3", "start", clean=False, alone=True)
    story.say("controller", "register", broker="n3", broker_epoch=2, clean=False, alone=True)
    if not in_isr:
        story.ruling("isr", ["n1", "n2"], cause="registration")
    story.say("controller", "unfence", broker="n3", broker_epoch=2, alone=True)
    if in_isr:
        story.ruling("isr", ["n1", "n2"], cause="proposed")


@traced("candidate-incomplete bug 1")
def a_role_with_an_empty_log_shows_the_log_at_the_start(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)
    story.leo["n3"] = story.hw["n3"] = 0
    story.take_role("n3")


@traced()
def a_role_with_an_empty_log_is_no_finding_if_it_was_no_member_before(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story, in_isr=False)
    story.leo["n3"] = story.hw["n3"] = 0
    story.take_role("n3")


@traced()
def a_role_with_records_does_not_show_the_log_at_the_start(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)
    story.leo["n3"], story.hw["n3"] = 2, 0
    story.take_role("n3")


@traced()
def a_role_after_another_line_does_not_show_the_log_at_the_start(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)
    story.truncate("n3", 0).take_role("n3")


@traced()
def without_a_role_the_log_at_the_start_is_not_shown(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)


@traced()
def a_role_of_another_process_does_not_show_the_log_at_the_start(story: Story, tale: Tale) -> None:
    with_an_empty_disk(story)
    story.say("n3", "start", clean=False, alone=True)
    story.leo["n3"] = story.hw["n3"] = 0
    story.take_role("n3")


@traced()
def a_fenced_member_is_no_candidate(story: Story, tale: Tale) -> None:
    story.produce().say("controller", "fence", broker="n3", broker_epoch=1, alone=True)
    story.append("n1").append("n2").commit().ruling("isr", ["n1", "n2"], cause="expired")


@traced("leader-incomplete fault budget 1", "candidate-incomplete fault budget 1")
def data_loss_beyond_the_budget_permits_an_incomplete_leader(story: Story, tale: Tale) -> None:
    tale.fault("power_cut", *ALL, lost=True)
    for line in story.produce(3).lines:
        line["time"] -= 10**9  # before the history began
    story.time = 10**9
    story.restart("n3", leo=1, epochs=[[0, 0]]).register("n3").elect("n3", "n3")


@traced("leader-incomplete fault budget 1", "candidate-incomplete fault budget 1")
def data_loss_beyond_the_budget_permits_an_incomplete_last_member_before_its_election(
    story: Story, tale: Tale
) -> None:
    tale.fault("power_cut", *ALL, lost=True)
    for line in story.produce(3).elect("n3", "n3").lines:
        line["time"] -= 10**9
    story.time = 10**9
    story.restart("n3", leo=1, epochs=[[0, 0]]).register("n3").take_role("n3")
    story.ruling("isr", ["n3"], cause="unfence").elect("n3", "n3")


@traced("candidate-incomplete bug 1", "ack-rule bug 1")
def a_start_line_of_an_unknown_partition_ends_no_process(story: Story, tale: Tale) -> None:
    story.produce().say("n3", "start", partition=77, clean=True).produce(by=["n2"])


@traced()
def records_traced_but_not_written_by_a_killed_process_were_never_committed(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["min_insync_replicas"] = 1
    story.produce().ruling("isr", ["n1"], cause="expired")
    story.append("n1").commit().ack(1)
    for line in story.lines[-3:]:
        line["time"] = story.time  # one step
    story.restart("n1", leo=1, epochs=[[0, 0]]).register("n1").elect("n1", "n1")


@traced()
def records_traced_but_not_written_were_never_committed_whatever_the_clock_error(
    story: Story, tale: Tale
) -> None:
    tale.run["clock_error_ns"] = 10**15
    tale.run["guarantees"]["min_insync_replicas"] = 1
    story.produce().ruling("isr", ["n1"], cause="expired")
    story.append("n1").commit().ack(1)
    for line in story.lines[-3:]:
        line["time"] = story.time  # one step
    story.restart("n1", leo=1, epochs=[[0, 0]]).register("n1").elect("n1", "n1")


@traced("leader-incomplete bug 1", "candidate-incomplete bug 1")
def records_of_an_earlier_step_of_a_killed_process_were_committed(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["min_insync_replicas"] = 1
    story.produce().ruling("isr", ["n1"], cause="expired")
    story.append("n1").commit().ack(1)
    story.restart("n1", leo=1, epochs=[[0, 0]]).register("n1").elect("n1", "n1")


@pytest.mark.parametrize("name", TALES.cases())
def test_verdict(name: str, verdicts: dict[str, Verdict]) -> None:
    """Findings, classes, counts, unknown names and valid, all as expected."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_gives_the_same_verdict(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_the_guilty_line_is_named(verdicts: dict[str, Verdict]) -> None:
    """The truncation itself is the event of its finding."""
    verdict = verdicts["a_member_truncates_committed_records"]
    truncation = next(one for one in verdict.findings if one.name == "unsafe-truncation").examples[0]
    place = tuple(truncation[key] for key in ("partition", "offset", "epoch", "nodes"))
    assert place == (0, 1, 0, ["n3"])
    assert "truncated its log to 1" in truncation["text"]
    assert truncation["event"] > 0


def test_the_first_record_is_named(verdicts: dict[str, Verdict]) -> None:
    """For each epoch of which a candidate misses records, the lowest offset."""
    verdict = verdicts["one_truncation_is_one_finding_and_missing_records_are_one_per_epoch"]
    missing = next(one for one in verdict.findings if one.name == "candidate-incomplete").examples
    assert [(one["offset"], one["epoch"], one["nodes"]) for one in missing] == [
        (1, 0, ["n3"]), (3, 1, ["n3"])]
