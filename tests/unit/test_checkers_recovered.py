"""recovery-loss, read-above-hw, end-offset-ahead: each beside what a correct broker leaves behind."""

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


def back(story: Story, node: str, leo: int, **told: Any) -> Story:
    """Started again with what is left, fetched anew."""
    had = story.leo[node]
    story.restart(node, leo=leo, epochs=[[0, 0]] if leo else [], **told).take_role(node)
    return story.append(node, had - leo, epoch=0) if leo < had else story


def in_time(lines: list[Line]) -> None:
    """Each line is no earlier than the one before, and the final reads come after all of the trace."""
    for before, line in pairwise(lines):
        late = 1000 * MS if line["process"] == FINAL else 0
        line["time"] = max(line["time"], before["time"], late)


def struck(story: Story, tale: Tale, f: str, node: str, **told: Any) -> None:
    """A fault at this point of the story."""
    tale.fault(f, node, **told).edit = in_time
    tale.lines[-1]["time"] = story.time


# -- recovery-loss


@traced("recovery-loss bug 1")
def a_start_without_what_a_fetch_proves(story: Story, tale: Tale) -> None:
    back(fetched(story.produce(3), "n3", 3), "n3", 2)


@traced()
def an_append_that_nobody_asked_beyond_need_not_be_on_disk(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3).produce()
    back(story, "n3", 3)


@traced()
def all_that_a_fetch_proves_is_there(story: Story, tale: Tale) -> None:
    back(fetched(story.produce(3), "n3", 3), "n3", 3)


@traced()
def a_fetch_that_came_after_the_start_is_of_the_next_process(story: Story, tale: Tale) -> None:
    back(story.produce(3), "n3", 2)
    fetched(story, "n3", 3)


@traced()
def a_fetch_too_near_to_tell_proves_nothing(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = MS
    story.produce(3)
    story.time += 10 * MS
    back(fetched(story, "n3", 3), "n3", 2)


@traced()
def a_truncation_that_was_told_is_no_loss(story: Story, tale: Tale) -> None:
    fetched(story.produce(2).append("n1").append("n3"), "n3", 3)
    story.truncate("n3", 2)
    back(story, "n3", 2)


@traced()
def nor_is_what_was_appended_again_since_and_not_proved_again(story: Story, tale: Tale) -> None:
    fetched(story.produce(2).append("n1").append("n3"), "n3", 3)
    story.truncate("n3", 2).append("n3")
    back(story, "n3", 2)


@traced("recovery-loss bug 1")
def a_fetch_beyond_all_that_was_before_the_truncation_is_of_later(story: Story, tale: Tale) -> None:
    fetched(story.produce(2).append("n1").append("n3"), "n3", 3)
    story.truncate("n3", 2).append("n3").append("n1").append("n3")
    back(fetched(story, "n3", 4), "n3", 3)


@traced("recovery-loss bug 1")
def an_orderly_stop_loses_nothing_at_all(story: Story, tale: Tale) -> None:
    story.produce(3).leo["n3"] = 2
    story.hw["n3"] = 0
    story.say("n3", "start", clean=True, epochs=[[0, 0]]).take_role("n3").append("n3", 1, epoch=0)


@traced()
def a_power_cut_may_take_it(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    struck(story, tale, "power_cut", "n3", lost=True)
    back(story, "n3", 2)


@traced()
def a_wiped_disk_has_nothing_left(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    struck(story, tale, "disk", "n3", lost=True)
    back(story, "n3", 0)


@traced("recovery-loss bug 1")
def the_power_cut_of_another_node_explains_nothing(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    struck(story, tale, "power_cut", "n2", lost=True)
    back(story, "n3", 2)


@traced("recovery-loss bug 1")
def nor_does_a_kill(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    struck(story, tale, "kill", "n3")
    back(story, "n3", 2)


@traced("recovery-loss bug 1")
def a_loss_is_found_once(story: Story, tale: Tale) -> None:
    fetched(story.produce(3), "n3", 3)
    back(story, "n3", 2)
    back(story, "n3", 2)


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


def told_at(story: Story, tale: Tale, between: int = 10 * MS) -> tuple[int, int]:
    """The times at which a HW of 1 and one of 3 are told, so far apart."""
    tale.acked(2, 3, process=2).edit = in_time
    first = story.produce(1).lines[-2]["time"]
    story.time += between
    return first, story.produce(2).lines[-2]["time"]


def polled(tale: Tale, time: int, *offsets: int) -> None:
    tale.poll(40, *((offset, offset + 1) for offset in offsets))
    tale.lines[-1]["time"] = time


def asked(tale: Tale, time: int, end: int) -> None:
    tale.ends(41, end)
    tale.lines[-1]["time"] = time


@traced("read-above-hw bug 2")
def records_are_read_that_no_hw_has_passed(story: Story, tale: Tale) -> None:
    polled(tale, told_at(story, tale)[1] - 1, 0, 1, 2)


@traced("read-above-hw bug 1")
def a_reader_that_failed_has_seen_them_too(story: Story, tale: Tale) -> None:
    time = told_at(story, tale)[0]
    tale.poll(40, (1, 2), kind="fail")
    tale.lines[-1]["time"] = time


@traced()
def a_reader_just_below_the_hw_is_right(story: Story, tale: Tale) -> None:
    first, second = told_at(story, tale)
    polled(tale, first, 0)
    polled(tale, second, 1, 2)


@traced()
def a_hw_within_the_clocks_error_after_the_poll_counts(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = MS
    polled(tale, told_at(story, tale)[1] - MS, 0, 1, 2)


@traced("read-above-hw bug 2")
def one_told_later_than_that_does_not(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = MS
    polled(tale, told_at(story, tale)[1] - 5 * MS, 0, 1, 2)


@traced()
def before_any_hw_is_told_nothing_is_claimed(story: Story, tale: Tale) -> None:
    told_at(story, tale)
    polled(tale, 9000, 0, 1, 2)


@traced("end-offset-ahead bug 1")
def an_end_is_told_that_no_hw_has_reached(story: Story, tale: Tale) -> None:
    asked(tale, told_at(story, tale)[0], 2)


@traced()
def an_end_at_the_hw_is_right_and_so_is_one_below(story: Story, tale: Tale) -> None:
    first, second = told_at(story, tale)
    asked(tale, first, 1)
    asked(tale, second, 2)
    asked(tale, second, 3)


@traced(unknown=sorted(names.OF_THE_TRACE))
def with_a_gap_in_the_trace_nothing_of_it_is_claimed(story: Story, tale: Tale) -> None:
    polled(tale, told_at(story, tale)[0], 0, 1, 2)
    back(fetched(story.produce(3), "n3", 6), "n3", 2)
    story.lines[-1]["seq"] += 1


@pytest.mark.parametrize("name", TALES.cases())
def test_the_judge_says(name: str, verdicts: dict[str, Verdict]) -> None:
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_says_so_too(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_it_says_what_proves_the_loss(verdicts: dict[str, Verdict]) -> None:
    (found,) = verdicts["a_start_without_what_a_fetch_proves"].findings
    (example,) = found.examples
    assert (example["partition"], example["offset"], example["how"]) == (0, 2, "fetch")
    assert "it had asked a leader for offset 3" in example["text"]
    assert example["event"] > 0
