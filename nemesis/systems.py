"""Says on which systems a scenario can run, and why not on another. Pure: nothing is started or looked up.

Rules
1. A scenario runs completely or not at all: with a step left out it would be another experiment.
2. Failpoints, known bugs and switches are the reference broker's. Settings of single topics exist on Kafka
   alone.
3. Sessions that can be ended by hand, and older protocol generations, are those of Kafka with ZooKeeper.
4. Eligible leader replicas (KIP-966) are a feature of Kafka in KRaft mode; level 0 turns them off, as every
   other system does.
"""

from collections.abc import Iterator, Mapping

from floodmark.harness.faults import UNSEEN
from floodmark.harness.schedule.entry import Schedule
from floodmark.nemesis.expectations import Row
from floodmark.nemesis.scenario import Scenario

REFERENCE = "reference"
ZOOKEEPER = "kafka with ZooKeeper"
KRAFT = "kafka in KRaft mode"
SYSTEMS = (REFERENCE, ZOOKEEPER, KRAFT)
ELR = "eligible.leader.replicas.version"
WITHOUT = "0"
_LATEST_RULES = "kip-320"


def systems_of(one: Scenario) -> tuple[str, ...]:
    """The systems on which at least one of its rows can run."""
    return tuple(system for system in SYSTEMS
                 if any(why_not_played(one.schedule, row, system) is None for row in one.rows))


def config_on(config: Mapping[str, str], system: str) -> Mapping[str, str]:
    """A row's settings for this system: a feature that it lacks need not be turned off."""
    return config if system == KRAFT else {
        key: value for key, value in config.items() if (key, value) != (ELR, WITHOUT)}


def why_not_played(schedule: Schedule, row: Row, system: str) -> str | None:
    """None: it can run there, as far as the scenario says."""
    return next(_reasons(schedule, row, system), None)


def _reasons(schedule: Schedule, row: Row, system: str) -> Iterator[str]:
    if system != KRAFT and row.config.get(ELR, WITHOUT) != WITHOUT:
        yield "eligible leader replicas are those of Kafka in KRaft mode"
    if system == REFERENCE:
        if row.topics:
            yield "its topics have settings of their own, and the reference broker has none"
        return
    if any(entry.f in UNSEEN for entry in schedule):
        yield "a step needs a failpoint of the reference broker, and Apache Kafka has none"
    if row.bugs or row.switches or any(key.startswith("floodmark.") for key in row.config):
        yield "its rules have bugs or switches, which only the reference broker has"
    if system == KRAFT and any(entry.f == "expire" for entry in schedule):
        yield "a session is ended by hand, and Kafka in KRaft mode has no sessions"
    if system == KRAFT and (row.rules != _LATEST_RULES or row.topics):
        yield "older protocols and formats are those of Kafka with ZooKeeper"
