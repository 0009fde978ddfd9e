"""Traces with unreliable lines or lines in no order: what is still certain."""

from pathlib import Path

import pytest
from folders import Tale
from judging import Tales
from traced_story import Story, traced_in

from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
GUARDED = ("candidate-incomplete", "leader-incomplete", "unsafe-isr", "unsafe-truncation")
TRACE_CHECKS = (
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
def lines_within_the_clock_error_are_in_no_order_but_all_happened(story: Story, tale: Tale) -> None:
    tale.run["clock_error_ns"] = 1_000_000
    story.produce().append("n1").append("n2").commit().ack(1).append("n3").truncate("n3", 1)


@traced(unknown=TRACE_CHECKS)
def a_gap_may_hide_what_permits_a_finding(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3").truncate("n3", 1)
    del story.lines[-2]


@traced(unknown=TRACE_CHECKS)
def wrong_seqs_are_a_gap_though_count_and_sums_are_right(story: Story, tale: Tale) -> None:
    """1, 2 and 6 are missing; there are eight lines, their sum and that of their squares are right."""
    story.produce(3).elect("n2", "n2", "n3")
    while (lines_of_n3 := [line for line in story.lines if line["node"] == "n3"])[7:] == []:
        story.say("n3", "hw", role="follower")
    kept = lines_of_n3[:8]
    story.lines = [line for line in story.lines if line["node"] != "n3" or line in kept]
    for line, seq in zip(kept, (0, 0, 4, 3, 4, 5, 5, 7), strict=True):
        line["seq"] = seq


@traced()
def lines_in_another_order_are_no_gap(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3").lines.reverse()


@traced(unknown=TRACE_CHECKS)
def a_line_whose_event_is_a_number_makes_the_checks_unknown(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3").say("n3", "fetch", follower="n1", offset=0)
    story.lines[-1]["event"] = 7
    story.truncate("n3", 1)


@traced(unknown=TRACE_CHECKS)
def an_isr_with_a_number_makes_the_checks_unknown(story: Story, tale: Tale) -> None:
    story.produce(3).elect("n2", "n2", "n3")
    elected = next(line for line in reversed(story.lines) if line["event"] == "elect")
    elected["isr"] = ["n3", 2]


@traced(unknown=TRACE_CHECKS)
def a_broker_that_is_a_number_makes_the_checks_unknown(story: Story, tale: Tale) -> None:
    story.produce(3).register("n3")
    next(line for line in story.lines if line["event"] == "register")["broker"] = 3


@traced(unknown=TRACE_CHECKS)
def epochs_that_are_no_pairs_make_the_checks_unknown(story: Story, tale: Tale) -> None:
    story.produce(3).append("n1", epoch=0).append("n2").append("n3").commit()
    next(line for line in story.lines if line.get("epochs"))["epochs"] = [[0], None]


@traced("two-leaders bug 1", unknown=TRACE_CHECKS)
def a_finding_that_two_lines_prove_is_made(story: Story, tale: Tale) -> None:
    story.produce().say("n2", "append", role="leader", offset=1, count=1)
    story.say("n3", "append", role="follower", offset="one", count=1)


@traced(unknown=TRACE_CHECKS)
def a_node_without_a_line_makes_the_checks_unknown(story: Story, tale: Tale) -> None:
    story.lines = [line for line in story.lines if line["node"] != "n3"]


# -- lines of unknown nodes


@traced()
def a_node_that_is_no_broker_of_the_run_is_no_leader(story: Story, tale: Tale) -> None:
    story.produce().say("n2", "append", role="leader", offset=1, count=1)
    story.lines[-1] |= {"node": "n9", "seq": 0}


@traced(unknown=TRACE_CHECKS)
def a_node_that_is_a_number_is_no_leader(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").append("n3").commit()
    next(line for line in story.lines if line["node"] == "n1")["node"] = 0


@traced(unknown=TRACE_CHECKS)
def an_isr_line_of_a_broker_is_not_the_controllers(story: Story, tale: Tale) -> None:
    """A line of a broker without its LEO is not taken for the controller's."""
    story.produce().say("n1", "isr", leader="n9", isr=["n2", "n3"], partition_epoch=0)
    del story.lines[-1]["leo"]


@pytest.mark.parametrize("name", TALES.cases())
def test_verdict(name: str, verdicts: dict[str, Verdict]) -> None:
    """Findings, classes, counts, unknown names and valid, all as expected."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_gives_the_same_verdict(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")
