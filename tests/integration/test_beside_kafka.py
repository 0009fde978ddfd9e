"""Compares the reference broker with Apache Kafka 4.3.1: the same raw requests, the same stories.

A difference is mended in the reference broker, or documented in docker/README.md, "What is modelled".
FLOODMARK_BESIDE is the number of random stories (`make beside-kafka`).
"""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from beside_kafka import KEYS, Brokers, Story, play, random_story
from golden_text import answered_as_written
from kafka_requests import answered
from real_brokers import RealBrokers
from real_kafka import KafkaBrokers, skip_without

pytestmark = pytest.mark.kafka
VERSION = "4.3.1"
RANDOM = int(os.environ.get("FLOODMARK_BESIDE", "3"))
FIRST_SEED = int(os.environ.get("FLOODMARK_BESIDE_SEED", "0"))
SWITCHES = {"floodmark.switches": "follower-reads"}  # KIP-392: Kafka's followers answer consumers
UNCLEAN = {"unclean.leader.election.enable": "true"}
MIN_2 = {"min.insync.replicas": "2"}


def test_the_same_requests_have_the_same_answers(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """As tests/golden/requests.txt has them; test_broker_wire.py asks the reference broker."""
    skip_without(VERSION)
    with KafkaBrokers(tmp_path, VERSION, 1) as kafka:
        answered_as_written("requests.txt", partial(answered, kafka.port[1]), request)


STORIES = [
    Story(name="all-is-well", steps=("send -1 3", "send 1 2", "send 1 1")),
    Story(name="a-follower-dies", steps=("send -1 2", "kill 2", "send -1 2", "start 2", "send -1 1")),
    Story(name="a-leader-dies", steps=("send -1 2", "kill 1", "send -1 2", "start 1", "elect preferred")),
    Story(name="a-leader-stops", steps=("send -1 2", "stop 1", "send -1 2", "start 1", "elect preferred")),
    Story(name="a-follower-stops", steps=("send -1 2", "stop 3", "send -1 2", "start 3")),
    Story(name="a-leader-sleeps", steps=("send -1 2", "pause 1", "send -1 2", "resume 1", "send -1 1")),
    Story(name="below-min", steps=("send -1 1", "kill 2", "kill 3", "send -1 1", "send 1 2", "start 2",
                                   "send -1 1", "start 3"), configs=MIN_2),
    Story(name="below-min-hw", steps=("kill 2", "kill 3", "send 1 3", "start 3", "send -1 1"), configs=MIN_2),
    Story(name="last-one-standing", steps=("send -1 2", "kill 2", "kill 3", "send -1 2", "kill 1", "start 2",
                                           "start 1", "send -1 1", "start 3")),
    Story(name="unclean", steps=("send -1 2", "pause 2", "pause 3", "send 1 3", "kill 1", "resume 2",
                                 "resume 3", "send 1 2", "start 1", "send -1 1"), configs=UNCLEAN),
    Story(name="unclean-by-hand", steps=("send -1 2", "kill 2", "kill 3", "send 1 3", "kill 1", "start 2",
                                         "elect unclean", "send 1 1", "start 1", "start 3")),
    Story(name="two-replicas", steps=("send -1 2", "kill 1", "send -1 2", "kill 2", "start 1", "start 2",
                                      "send -1 1"), replicas=(1, 2)),
    Story(name="diverging", steps=("send -1 2", "kill 2", "send 1 3", "kill 1", "start 2", "send 1 1",
                                   "start 1", "send -1 2"), replicas=(1, 2), configs=UNCLEAN),
    Story(name="three-epochs", steps=("send -1 1", "kill 1", "send -1 2", "start 1", "elect preferred",
                                      "send -1 1", "kill 1", "send -1 1", "start 1")),
    Story(name="elect-for-nothing", steps=("elect preferred", "elect unclean", "send -1 1")),
    Story(name="elect-a-dead-one", steps=("send -1 1", "kill 1", "elect preferred", "elect unclean",
                                          "start 1", "elect preferred", "send -1 1")),
    Story(name="to-a-stranger", steps=("send -1 1", "send -1 1 3"), replicas=(1, 2)),
    Story(name="to-a-follower", steps=("send -1 1", "send -1 1 2", "send 1 1 3")),
    Story(name="all-restart", steps=("send -1 3", "stop 3", "stop 2", "stop 1", "start 1", "start 2",
                                     "start 3", "send -1 1")),
    Story(name="one-by-one", steps=("send -1 1", "stop 1", "start 1", "send -1 1", "stop 2", "start 2",
                                    "send -1 1", "stop 3", "start 3", "send -1 1")),
    Story(name="followers-sleep", steps=("send -1 1", "pause 2", "pause 3", "send -1 1", "resume 3",
                                         "resume 2", "send -1 1"), configs=MIN_2),
    Story(name="asleep-and-dead", steps=("send -1 1", "pause 1", "send -1 1", "kill 2", "send -1 1",
                                         "resume 1", "start 2", "elect preferred")),
]  # fmt: skip


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Brokers]]:
    skip_without(VERSION)
    home = tmp_path_factory.mktemp("beside")
    (home / "kafka").mkdir()
    (home / "reference").mkdir()
    with (RealBrokers(home / "reference", **KEYS, **SWITCHES) as reference,
          KafkaBrokers(home / "kafka", VERSION, **KEYS) as kafka):
        yield {"reference": reference, "kafka": kafka}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_goes_the_same_way(sides: Mapping[str, Brokers], story: Story) -> None:
    found = play(story, sides)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + RANDOM))
def test_a_random_story_goes_the_same_way(sides: Mapping[str, Brokers], seed: int) -> None:
    story = random_story(seed)
    found = play(story, sides)
    assert not found, "\n".join((str(story), *found))
