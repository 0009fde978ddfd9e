"""Traces of which not every line can be believed, or stands in an order: what then still is certain."""

from pathlib import Path

import pytest
from folders import Tale
from judging import Tales
from traced_story import Story, traced_in

from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
GUARDED = ("candidate-incomplete", "leader-incomplete", "unsafe-isr", "unsafe-truncation")
OF_THE_TRACE = (
    *GUARDED, "ack-rule", "end-offset-ahead", "epoch-regressed", "hw-regressed", "read-above-hw",
    "recovery-loss", "two-leaders", "unclean-election",
)  # fmt: skip
traced = traced_in(TALES)


@traced()
def lines_of_the_same_time_are_in_no_order(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").commit().ack(1)
    for line in story.lines[-2:]:
        line["time"] = story.time
    story.append("n3").lines[-1]["time"] = story.time - 1000
    story.lines[-1]["time"] = story.lines[-2]["time"]


@traced("candidate-incomplete bug 1")
def nor_are_lines_nearer_than_the_clocks_but_all_of_them_came(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 1_000_000
    story.produce().append("n1").append("n2").commit().ack(1).append("n3").truncate("n3", 1)


@traced(unknown=OF_THE_TRACE)
def a_gap_may_hide_the_excuse(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3").truncate("n3", 1)
    del story.lines[-2]


@traced(unknown=OF_THE_TRACE)
def so_may_seqs_that_lie_though_count_and_sums_are_right(story: Story, tale: Tale) -> None:
    """1, 2 and 6 are missing; there are eight lines, their sum and that of their squares are right."""
    story.produce(3).elect("n2", "n2", "n3")
    while (said := [line for line in story.lines if line["node"] == "n3"])[7:] == []:
        story.say("n3", "hw", role="follower")
    kept = said[:8]
    story.lines = [line for line in story.lines if line["node"] != "n3" or line in kept]
    for line, seq in zip(kept, (0, 0, 4, 3, 4, 5, 5, 7), strict=True):
        line["seq"] = seq


@traced()
def lines_in_another_order_are_no_gap(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3").lines.reverse()


@traced(unknown=OF_THE_TRACE)
def so_may_a_line_whose_event_is_a_number(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3").say("n3", "fetch", follower="n1", offset=0)
    story.lines[-1]["event"] = 7
    story.truncate("n3", 1)


@traced(unknown=OF_THE_TRACE)
def so_may_an_isr_of_numbers(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3")
    elected = next(line for line in reversed(story.lines) if line["event"] == "elect")
    elected["isr"] = ["n3", 2]


@traced(unknown=OF_THE_TRACE)
def so_may_a_broker_that_is_a_number(story: Story, tale: Tale) -> None:
    story.produce(3).register("n3")
    next(line for line in story.lines if line["event"] == "register")["broker"] = 3


@traced(unknown=OF_THE_TRACE)
def so_may_epochs_that_are_no_pairs(story: Story, tale: Tale) -> None:
    story.produce(3).append("n1", epoch=0).append("n2").append("n3").commit()
    next(line for line in story.lines if line.get("epochs"))["epochs"] = [[0], None]


@traced("two-leaders bug 1", unknown=OF_THE_TRACE)
def what_two_lines_prove_stands(story: Story, tale: Tale) -> None:
    story.produce().say("n2", "append", role="leader", offset=1, count=1)
    story.say("n3", "append", role="follower", offset="one", count=1)


@traced(unknown=OF_THE_TRACE)
def a_node_without_a_line(story: Story, tale: Tale) -> None:
    story.lines = [line for line in story.lines if line["node"] != "n3"]


# -- whose line it is


@traced()
def who_is_no_broker_of_the_run_leads_nothing(story: Story, tale: Tale) -> None:
    story.produce().say("n2", "append", role="leader", offset=1, count=1)
    story.lines[-1] |= {"node": "n9", "seq": 0}


@traced(unknown=OF_THE_TRACE)
def nor_does_a_number(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").append("n3").commit()
    next(line for line in story.lines if line["node"] == "n1")["node"] = 0


@traced(unknown=OF_THE_TRACE)
def nor_does_a_broker_rule(story: Story, tale: Tale) -> None:
    """What a broker says without its log's end is no word of the controller's."""
    story.produce().say("n1", "isr", leader="n9", isr=["n2", "n3"], partition_epoch=0)
    del story.lines[-1]["leo"]


@pytest.mark.parametrize("name", TALES.cases())
def test_the_judge_says(name: str, verdicts: dict[str, Verdict]) -> None:
    """Findings, classes, counts, unknown names and valid, all as told."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_says_so_too(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")
