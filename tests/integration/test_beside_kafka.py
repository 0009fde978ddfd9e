"""Compares the reference broker with Apache Kafka 4.3.1: the same raw requests, and the same stories on three
brokers of each, step by step.

A difference is mended in the reference broker, or documented in docker/README.md, "What is modelled".
FLOODMARK_BESIDE is the number of random stories (`make beside-kafka`). After each step of a story that is not
marked `!` both sides are given the time to settle. Then they must show the same: leader, epoch and ISR as
every broker that answers names them, each replica's LEO and HW, and the answers to raw requests about epochs.
A step's own answers (errors, offsets) are compared as well.

    send ACKS COUNT [NODE]     single-record batches, one by one, to the leader or to that node
    kill N | stop N | start N  SIGKILL, SIGTERM, and a new process
    pause N | resume N         SIGSTOP, SIGCONT
    elect preferred | unclean
"""

import os
import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from golden_text import answered_as_written
from kafka_requests import answered, end_offset_for, fetch, topic_metadata
from raw import Raw, batch
from real_brokers import RealBrokers
from real_kafka import skip_without

pytestmark = pytest.mark.kafka
VERSION = "4.3.1"
RANDOM = int(os.environ.get("FLOODMARK_BESIDE", "3"))
FIRST_SEED = int(os.environ.get("FLOODMARK_BESIDE_SEED", "0"))
SWITCHES = {"floodmark.switches": "follower-reads"}  # KIP-392: Kafka's followers answer consumers
UNCLEAN = {"unclean.leader.election.enable": "true"}
MIN_2 = {"min.insync.replicas": "2"}
NO_LEADER = -1
SETTLE_S = 120.0
AGREE_S = 60.0  # how long two sides that have settled may still differ
ACK_MS = 1_500
ALL_DOWN_S = 8.0
CHECKPOINT_S = 1.0  # a high watermark is on disk by then, so a restart always begins with the same one
LEO_ASKER, CLIENT = -2, -1
KEYS = {
    "broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "4000", "replica.fetch.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "500", "min.insync.replicas": "1",
    "default.replication.factor": "3", "unclean.leader.election.enable": "false",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    name: str
    steps: tuple[str, ...]
    replicas: tuple[int, ...] = (1, 2, 3)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Side:
    """One of the two clusters during one story."""

    name: str
    brokers: RealBrokers
    topic: str
    replicas: tuple[int, ...]

    @property
    def up(self) -> list[int]:
        return [node for node in self.brokers.brokers if self.brokers.answers(node)]

    # -- acts ------------------------------------------------------------------------------------------------

    def act(self, step: str) -> Any:
        """Does a step and returns its answer; None for a step that has none."""
        verb, *words = step.split()
        if verb == "send":
            return self._send(int(words[0]), int(words[1]), int(words[2]) if words[2:] else None)
        if verb == "elect":
            return self._elect(unclean=words[0] == "unclean")
        if verb == "kill":
            time.sleep(CHECKPOINT_S)
        acts = {"kill": self.brokers.end, "stop": partial(self.brokers.end, by=signal.SIGTERM),
                "start": self.brokers.start, "pause": self.brokers.pause, "resume": self.brokers.resume}
        acts[verb](int(words[0]))
        return None

    def _send(self, acks: int, count: int, node: int | None) -> Any:
        """(error, offset) of each record."""
        to = self.leader() if node is None else node
        if to == NO_LEADER:
            return "no leader"
        with Raw(self.brokers.port[to]) as raw:
            return [raw.produce(self.topic, batch(b"v"), acks=acks, timeout_ms=ACK_MS) for _ in range(count)]

    def _elect(self, *, unclean: bool) -> int:
        with Raw(self.brokers.port[self.up[0]]) as raw:
            return raw.elect(self.topic, unclean=unclean)

    # -- looks -----------------------------------------------------------------------------------------------

    def leader(self) -> int:
        views = self.look()["views"]
        return int(next(iter(views.values()))[0])

    def look(self) -> dict[str, dict[int, Any]]:
        """Two tables: views, (leader, epoch, ISR) as each broker names them, and ends, (LEO, HW) of each
        replica."""
        views: dict[int, Any] = {}
        ends: dict[int, Any] = {}
        for node in self.up:
            try:
                with Raw(self.brokers.port[node], 5.0) as raw:
                    parts = topic_metadata(raw, self.topic)[0][3]
                    views[node] = (*parts[0][2:4], tuple(sorted(parts[0][5]))) if parts else None
                    if node in self.replicas:
                        leo = raw.list_offset(self.topic, -1, replica=LEO_ASKER)
                        hw = fetch(raw, self.topic, max(leo[1], 0))
                        failed = leo[0] or hw[0]
                        ends[node] = ("errors", leo[0], hw[0]) if failed else (leo[1], hw[1])
            except (OSError, EOFError) as error:
                views[node] = f"{type(error).__name__}"
        return {"views": views, "ends": ends}

    def epochs(self) -> dict[str, Any]:
        """What the leader answers about epochs: where each one ends, and where a follower's log would
        diverge."""
        leader = self.leader() if self.up else NO_LEADER
        if leader == NO_LEADER:
            return {}
        found: dict[str, Any] = {}
        with Raw(self.brokers.port[leader]) as raw:
            leo = raw.list_offset(self.topic, -1, replica=LEO_ASKER)[1]
            now = topic_metadata(raw, self.topic)[0][3][0][3]
            for epoch in range(-1, now + 2):
                found[f"end of {epoch}"] = end_offset_for(raw, self.topic, epoch)
                for offset in sorted({0, leo // 2, leo, leo + 1}):
                    found[f"fetch at {offset} after {epoch}"] = fetch(
                        raw, self.topic, offset, last_epoch=epoch, epoch=now, count_bytes=False)
                found[f"fetch in {epoch}"] = fetch(raw, self.topic, leo, epoch=epoch, count_bytes=False)
        return found

    def settled(self, look: Mapping[str, Mapping[int, Any]]) -> bool:
        """Whether nothing more will change: brokers that are down have left the ISR, brokers that are up are
        in it, and all have the leader's LEO and HW."""
        views = set(look["views"].values())
        if len(views) != 1 or not isinstance(view := next(iter(views)), tuple):
            return False
        (leader, _, isr), up = view, {*self.up}
        if leader == NO_LEADER:
            return not up & {*isr}
        return leader in up and {*isr} == up & {*self.replicas} and len(set(look["ends"].values())) == 1

    def settle(self) -> dict[str, Any]:
        """Waits until two looks in a row show a settled cluster, or for SETTLE_S; returns the last look."""
        if not self.up:  # no broker answers: wait until the controller has noticed
            time.sleep(ALL_DOWN_S)
            return {"views": {}, "ends": {}}
        until, before = time.monotonic() + SETTLE_S, None
        while True:
            look = self.look()
            if look == before and (self.settled(look) or time.monotonic() > until):
                return look
            before = look
            time.sleep(0.15)

    def mend(self) -> None:
        self.brokers.play(self.brokers.cluster.mend())
        self.settle()


def play(story: Story, sides: Mapping[str, RealBrokers]) -> list[str]:
    """The differences, each with the first step after which the sides differ; empty if there are none."""
    topic = f"{story.name}-{time.monotonic_ns() % 10**9}"
    both = [Side(name=name, brokers=brokers, topic=topic, replicas=story.replicas)
            for name, brokers in sides.items()]
    with ThreadPoolExecutor(2) as pool:
        for side in both:
            with Raw(side.brokers.port[1]) as raw:
                error = raw.create(topic, story.replicas, **story.configs)
                assert error == 0, error
        try:
            list(pool.map(lambda side: side.settle(), both))
            for number, step in enumerate(story.steps, 1):
                found = _step(step, both, pool)
                if found:
                    return [f"{story.name}, step {number}, {step}: {line}" for line in found]
        finally:
            list(pool.map(lambda side: side.mend(), both))
    return []


def _step(step: str, both: Sequence[Side], pool: ThreadPoolExecutor) -> list[str]:
    words = step.rstrip("!").strip()
    answers = list(pool.map(lambda side: side.act(words), both))
    if answers[0] != answers[1]:
        return [f"answered {both[n].name} {answers[n]}" for n in (0, 1)]
    if step.endswith("!"):
        return []
    until = time.monotonic() + AGREE_S
    while True:
        looks = list(pool.map(lambda side: {**side.settle(), "epochs": side.epochs()}, both))
        if looks[0] == looks[1]:
            return []
        if time.monotonic() > until:
            return _differences([side.name for side in both], looks)


def _differences(names: Sequence[str], looks: Sequence[Mapping[str, Mapping[Any, Any]]]) -> list[str]:
    one, other = looks
    return [f"{part}, {key}: {names[0]} {one[part].get(key)}, {names[1]} {other[part].get(key)}"
            for part in one for key in {**one[part], **other[part]}
            if one[part].get(key) != other[part].get(key)]


def random_story(seed: int) -> Story:
    """A legal sequence of steps: at least one broker stays up, and only what is down comes back."""
    draw = random.Random(seed)
    down: dict[int, str] = {}
    steps = []
    for _ in range(draw.randint(5, 9)):
        choices = ["send -1 2", "send 1 3", "send -1 1", "elect preferred", "elect unclean"]
        up = [node for node in (1, 2, 3) if node not in down]
        if len(up) > 1:
            choices += [f"{verb} {node}" for node in up for verb in ("kill", "stop", "pause")]
        choices += [f"{back} {node}" for node, back in down.items()] * 2
        step = draw.choice(choices)
        verb, _, word = step.partition(" ")
        if verb in ("kill", "stop", "pause"):
            down[int(word)] = "resume" if verb == "pause" else "start"
        elif verb in ("start", "resume"):
            del down[int(word)]
        steps.append(step)
    replicas = draw.choice([(1, 2, 3), (2, 3, 1), (3, 1), (1, 2)])
    configs = {"min.insync.replicas": draw.choice(["1", "2"]),
               "unclean.leader.election.enable": draw.choice(["true", "false", "false"])}
    return Story(name=f"seed-{seed}", steps=tuple(steps), replicas=replicas, configs=configs)


def test_the_same_requests_have_the_same_answers(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """As tests/golden/requests.txt has them; test_broker_wire.py asks the reference broker."""
    skip_without(VERSION)
    with RealBrokers(tmp_path, 1, kafka=VERSION) as kafka:
        answered_as_written("requests.txt", partial(answered, kafka.port[1]), request)


STORIES = [
    Story(name="all-is-well", steps=("send -1 3", "send 1 2", "send 1 1")),
    Story(name="a-follower-dies", steps=("send -1 2", "kill 2", "send -1 2", "start 2", "send -1 1")),
    Story(name="a-leader-dies", steps=("send -1 2", "kill 1", "send -1 2", "start 1", "elect preferred")),
    Story(name="a-leader-stops", steps=("send -1 2", "stop 1", "send -1 2", "start 1", "elect preferred")),
    Story(name="below-min", steps=("send -1 1", "kill 2", "kill 3", "send -1 1", "send 1 2", "start 2",
                                   "send -1 1", "start 3"), configs=MIN_2),
    Story(name="below-min-hw", steps=("kill 2", "kill 3", "send 1 3", "start 3", "send -1 1"), configs=MIN_2),
    Story(name="last-one-standing", steps=("send -1 2", "kill 2", "kill 3", "send -1 2", "kill 1", "start 2",
                                           "start 1", "send -1 1", "start 3")),
    Story(name="unclean", steps=("send -1 2", "pause 2", "pause 3", "send 1 3", "kill 1", "resume 2",
                                 "resume 3", "send 1 2", "start 1", "send -1 1"), configs=UNCLEAN),
    Story(name="unclean-by-hand", steps=("send -1 2", "kill 2", "kill 3", "send 1 3", "kill 1", "start 2",
                                         "elect unclean", "send 1 1", "start 1", "start 3")),
    Story(name="diverging", steps=("send -1 2", "kill 2", "send 1 3", "kill 1", "start 2", "send 1 1",
                                   "start 1", "send -1 2"), replicas=(1, 2), configs=UNCLEAN),
    Story(name="three-epochs", steps=("send -1 1", "kill 1", "send -1 2", "start 1", "elect preferred",
                                      "send -1 1", "kill 1", "send -1 1", "start 1")),
    Story(name="elect-a-dead-one", steps=("send -1 1", "kill 1", "elect preferred", "elect unclean",
                                          "start 1", "elect preferred", "send -1 1")),
    Story(name="to-a-stranger", steps=("send -1 1", "send -1 1 3"), replicas=(1, 2)),
    Story(name="to-a-follower", steps=("send -1 1", "send -1 1 2", "send 1 1 3")),
    Story(name="all-restart", steps=("send -1 3", "stop 3", "stop 2", "stop 1", "start 1", "start 2",
                                     "start 3", "send -1 1")),
    Story(name="followers-sleep", steps=("send -1 1", "pause 2", "pause 3", "send -1 1", "resume 3",
                                         "resume 2", "send -1 1"), configs=MIN_2),
    Story(name="asleep-and-dead", steps=("send -1 1", "pause 1", "send -1 1", "kill 2", "send -1 1",
                                         "resume 1", "start 2", "elect preferred")),
]  # fmt: skip


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, RealBrokers]]:
    skip_without(VERSION)
    home = tmp_path_factory.mktemp("beside")
    with (RealBrokers(home / "reference", **KEYS, **SWITCHES) as reference,
          RealBrokers(home / "kafka", kafka=VERSION, **KEYS) as kafka):
        yield {"reference": reference, "kafka": kafka}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_goes_the_same_way(sides: Mapping[str, RealBrokers], story: Story) -> None:
    found = play(story, sides)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + RANDOM))
def test_a_random_story_goes_the_same_way(sides: Mapping[str, RealBrokers], seed: int) -> None:
    story = random_story(seed)
    found = play(story, sides)
    assert not found, "\n".join((str(story), *found))
