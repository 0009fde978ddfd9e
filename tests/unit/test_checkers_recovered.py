"""recovery-loss, read-above-hw, end-offset-ahead: each beside what a correct broker does."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from folders import FINAL, Tale
from judging import Tales
from traced_story import Story, traced_in

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
traced = traced_in(TALES)
MS = 1_000_000
Line = dict[str, Any]


def fetched(story: Story, follower: str, offset: int, leader: str = "n1") -> Story:
    return story.say(leader, "fetch", follower=follower, offset=offset, follower_epoch=story.epoch)


def restart_and_refetch(story: Story, node: str, leo: int, **fields: Any) -> Story:
    """The node starts with this LEO and fetches the rest again."""
    old_leo = story.leo[node]
    story.restart(node, leo=leo, epochs=[[0, 0]] if leo else [], **fields).take_role(node)
    return story.append(node, old_leo - leo, epoch=0) if leo < old_leo else story


def make_times_rise(lines: list[Line]) -> None:
    """Each line is no earlier than the one before, and the final reads come after all of the trace."""
    for before, line in pairwise(lines):
        late = 1000 * MS if line["process"] == FINAL else 0
        line["time"] = max(line["time"], before["time"], late)


def add_fault(story: Story, tale: Tale, f: str, node: str, **fields: Any) -> None:
    """A fault at this point of the story."""
    tale.fault(f, node, **fields).edit = make_times_rise
    tale.lines[-1]["time"] = story.time


# -- recovery-loss


@traced("recovery-loss bug 1")
def a_start_without_a_record_that_a_fetch_proves(story: Story, tale: Tale) -> None:
    restart_and_refetch(fetched(story.produce(3), "n3", 3), "n3", 2)


@traced()
def an_append_without_a_later_fetch_need_not_be_on_disk(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3).produce()
    restart_and_refetch(story, "n3", 3)


@traced()
def a_start_with_all_records_that_a_fetch_proves(story: Story, tale: Tale) -> None:
    restart_and_refetch(fetched(story.produce(3), "n3", 3), "n3", 3)


@traced()
def a_fetch_after_the_start_is_of_the_next_process(story: Story, tale: Tale) -> None:
    restart_and_refetch(story.produce(3), "n3", 2)
    fetched(story, "n3", 3)


@traced()
def a_fetch_within_the_clock_error_proves_nothing(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = MS
    story.produce(3)
    story.time += 10 * MS
    restart_and_refetch(fetched(story, "n3", 3), "n3", 2)


@traced()
def a_traced_truncation_is_no_loss(story: Story, tale: Tale) -> None:
    fetched(story.produce(2).append("n1").append("n3"), "n3", 3)
    story.truncate("n3", 2)
    restart_and_refetch(story, "n3", 2)


@traced()
def a_truncation_that_was_under_way_when_the_process_ended_is_no_loss(story: Story, tale: Tale) -> None:
    """The deposed leader n1 fetches as a follower, truncates, and dies before it has traced that."""
    story.produce(2).append("n1").elect("n2", "n1", "n2", "n3")
    fetched(story, "n1", 3, leader="n2")
    story.restart("n1", leo=2, epochs=[[0, 0]]).take_role("n1")


@traced("recovery-loss bug 1")
def a_follower_that_has_appended_truncates_no_more(story: Story, tale: Tale) -> None:
    story.produce(2).append("n1").elect("n2", "n1", "n2", "n3")
    fetched(story, "n1", 3, leader="n2").truncate("n1", 2).append("n2", 2).append("n1", 2)
    fetched(story, "n1", 4, leader="n2")
    restart_and_refetch(story, "n1", 3)


@traced("recovery-loss bug 1")
def an_orderly_stop_loses_nothing_of_a_follower_that_has_not_appended(story: Story, tale: Tale) -> None:
    story.produce(2).append("n1").elect("n2", "n1", "n2", "n3")
    story.leo["n1"] = 2
    story.say("n1", "start", clean=True, epochs=[[0, 0]]).take_role("n1")


@traced()
def a_record_appended_again_but_not_proved_again_is_no_loss(story: Story, tale: Tale) -> None:
    fetched(story.produce(2).append("n1").append("n3"), "n3", 3)
    story.truncate("n3", 2).append("n3")
    restart_and_refetch(story, "n3", 2)


@traced("recovery-loss bug 1")
def a_fetch_beyond_the_old_leo_came_after_the_truncation(story: Story, tale: Tale) -> None:
    fetched(story.produce(2).append("n1").append("n3"), "n3", 3)
    story.truncate("n3", 2).append("n3").append("n1").append("n3")
    restart_and_refetch(fetched(story, "n3", 4), "n3", 3)


@traced("recovery-loss bug 1")
def an_orderly_stop_must_lose_nothing(story: Story, tale: Tale) -> None:
    story.produce(3).leo["n3"] = 2
    story.hw["n3"] = 0
    story.say("n3", "start", clean=True, epochs=[[0, 0]]).take_role("n3").append("n3", 1, epoch=0)


@traced()
def a_power_cut_may_lose_records(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    add_fault(story, tale, "power_cut", "n3", lost=True)
    restart_and_refetch(story, "n3", 2)


@traced()
def a_wiped_disk_may_lose_records(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    add_fault(story, tale, "disk", "n3", lost=True)
    restart_and_refetch(story, "n3", 0)


@traced("recovery-loss bug 1")
def the_power_cut_of_another_node_explains_nothing(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    add_fault(story, tale, "power_cut", "n2", lost=True)
    restart_and_refetch(story, "n3", 2)


@traced("recovery-loss bug 1")
def a_kill_explains_nothing(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    add_fault(story, tale, "kill", "n3")
    restart_and_refetch(story, "n3", 2)


@traced("recovery-loss bug 1")
def a_loss_is_found_once(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    restart_and_refetch(story, "n3", 2)
    restart_and_refetch(story, "n3", 2)


@traced()
def an_ack_of_the_last_step_may_never_have_left_the_process(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["min_insync_replicas"] = 1
    story.produce(2).elect("n1", "n1").append("n1")
    time = story.time
    story.commit().ack(2)
    for line in story.lines[-2:]:
        line["time"] = time
    story.restart("n1", leo=2, epochs=[[0, 0]])


@traced("recovery-loss bug 1")
def an_ack_of_an_earlier_step_proves_its_record(story: Story, tale: Tale) -> None:
    story.produce(3).say("n1", "isr_proposed", isr=["n1", "n2"], partition_epoch=1)
    story.restart("n1", leo=2, epochs=[[0, 0]])


# -- read-above-hw, end-offset-ahead: of three records that are acked and read, at two HWs


def times_of_two_hws(story: Story, tale: Tale, between: int = 10 * MS) -> tuple[int, int]:
    """The times of the trace lines with HW 1 and HW 3, this far apart."""
    tale.acked(2, 3, process=2).edit = make_times_rise
    first = story.produce(1).lines[-2]["time"]
    story.time += between
    return first, story.produce(2).lines[-2]["time"]


def poll_at(tale: Tale, time: int, *offsets: int) -> None:
    tale.poll(40, *((offset, offset + 1) for offset in offsets))
    tale.lines[-1]["time"] = time


def list_offsets_at(tale: Tale, time: int, end: int) -> None:
    tale.ends(41, end)
    tale.lines[-1]["time"] = time


@traced("read-above-hw bug 2")
def records_above_every_hw_are_read(story: Story, tale: Tale) -> None:
    poll_at(tale, times_of_two_hws(story, tale)[1] - 1, 0, 1, 2)


@traced("read-above-hw bug 1")
def a_failed_poll_has_read_them_too(story: Story, tale: Tale) -> None:
    time = times_of_two_hws(story, tale)[0]
    tale.poll(40, (1, 2), kind="fail")
    tale.lines[-1]["time"] = time


@traced()
def a_poll_just_below_the_hw_is_correct(story: Story, tale: Tale) -> None:
    first, second = times_of_two_hws(story, tale)
    poll_at(tale, first, 0)
    poll_at(tale, second, 1, 2)


@traced()
def a_hw_within_the_clocks_error_after_the_poll_counts(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = MS
    poll_at(tale, times_of_two_hws(story, tale)[1] - MS, 0, 1, 2)


@traced("read-above-hw bug 2")
def a_hw_beyond_the_clocks_error_does_not_count(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = MS
    poll_at(tale, times_of_two_hws(story, tale)[1] - 5 * MS, 0, 1, 2)


@traced()
def before_the_first_traced_hw_nothing_is_found(story: Story, tale: Tale) -> None:
    times_of_two_hws(story, tale)
    poll_at(tale, 9000, 0, 1, 2)


@traced("end-offset-ahead bug 1")
def an_end_offset_above_every_hw(story: Story, tale: Tale) -> None:
    list_offsets_at(tale, times_of_two_hws(story, tale)[0], 2)


@traced()
def an_end_offset_at_or_below_the_hw_is_correct(story: Story, tale: Tale) -> None:
    first, second = times_of_two_hws(story, tale)
    list_offsets_at(tale, first, 1)
    list_offsets_at(tale, second, 2)
    list_offsets_at(tale, second, 3)


@traced(unknown=sorted(names.OF_THE_TRACE))
def with_a_gap_in_the_trace_its_checks_are_unknown(story: Story, tale: Tale) -> None:
    poll_at(tale, times_of_two_hws(story, tale)[0], 0, 1, 2)
    restart_and_refetch(fetched(story.produce(3), "n3", 6), "n3", 2)
    story.lines[-1]["seq"] += 1


@pytest.mark.parametrize("name", TALES.cases())
def test_verdict(name: str, verdicts: dict[str, Verdict]) -> None:
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_gives_the_same_verdict(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_the_example_states_what_proves_the_loss(verdicts: dict[str, Verdict]) -> None:
    (found,) = verdicts["a_start_without_a_record_that_a_fetch_proves"].findings
    (example,) = found.examples
    assert (example["partition"], example["offset"], example["how"]) == (0, 2, "fetch")
    assert "it had asked a leader for offset 3" in example["text"]
    assert example["event"] > 0
