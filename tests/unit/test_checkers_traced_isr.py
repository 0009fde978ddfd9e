"""unsafe-isr: which replicas an ISR may add, leave out and count; each hit with near misses of a correct
broker."""

from pathlib import Path

import pytest
from folders import Tale
from judging import Tales
from traced_story import ALL, Story, traced_in

from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
traced = traced_in(TALES)


@traced("unsafe-isr bug 1", "candidate-incomplete bug 1")
def an_isr_adds_a_replica_below_the_hw(story: Story, tale: Tale) -> None:
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce(2).ruling("isr", ALL, cause="alter")


@traced("unsafe-isr bug 2", "candidate-incomplete bug 1")
def an_isr_that_adds_it_again_is_a_second_finding(story: Story, tale: Tale) -> None:
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce(2).ruling("isr", ALL, cause="alter")
    story.ruling("isr", ["n1", "n2"], cause="alter").ruling("isr", ALL, cause="alter")


@traced("unsafe-isr bug 1", "candidate-incomplete bug 2")
def an_isr_that_adds_two_is_one_finding(story: Story, tale: Tale) -> None:
    tale.run["guarantees"]["min_insync_replicas"] = 1
    story.produce().ruling("isr", ["n1"], cause="alter").produce().ruling("isr", ALL, cause="alter")


@traced("unsafe-isr bug 1")
def an_isr_adds_a_replica_below_the_start_of_the_leaders_epoch(story: Story, tale: Tale) -> None:
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").append("n1", 2).append("n2", 2)
    story.elect("n2", "n2", learners=["n2", "n3"]).ruling("isr", ["n2", "n3"], cause="alter")


@traced()
def a_replica_that_has_caught_up_may_join(story: Story, tale: Tale) -> None:
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce(2).append("n3", 2)
    story.ruling("isr", ALL, cause="alter")


@traced("unsafe-isr bug 1")
def a_leader_that_counts_fewer_than_the_controller(story: Story, tale: Tale) -> None:
    story.produce().append("n1").append("n2").append("n3").commit().ack(1, isr=["n1", "n2"])


@traced()
def a_leader_may_count_more_or_be_of_an_older_epoch(story: Story, tale: Tale) -> None:
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").append("n1").append("n2").append("n3")
    story.commit().ack(1, isr=ALL).elect("n2", *ALL, learners=["n2", "n3"])
    story.ack(1, node="n1", isr=["n1", "n2"])


@traced("unsafe-isr bug 1")
def an_isr_without_its_leader(story: Story, tale: Tale) -> None:
    story.produce().ruling("isr", ["n2", "n3"], cause="alter")


@traced("unsafe-isr bug 1")
def a_partition_epoch_that_does_not_rise(story: Story, tale: Tale) -> None:
    story.produce().partition_epoch = 0
    story.ruling("isr", ["n1", "n2"], cause="alter")


@pytest.mark.parametrize("name", TALES.cases())
def test_verdict(name: str, verdicts: dict[str, Verdict]) -> None:
    """Findings, classes, counts, unknown names and valid, all as expected."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_gives_the_same_verdict(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")
