"""The controller as a pure machine: its answer to each event of controller.txt, and the lines of the trace.

Below an event: `=` its answer, `~` its trace lines, `.` what has changed in the metadata. What holds of every
event is asserted here: what it changes is durable first, and published, before it is answered; a refusal
changes nothing; a controller that starts with the journal has the same metadata, and writes whatever lines
are missing in its trace. `pytest --rewrite` writes the answers; then read the diff.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
from machine_text import happened_as_written, line_text, shown

from floodmark.broker.protocol.controller import Controller, ControllerConfig
from floodmark.broker.protocol.messages import (
    NO_LEADER,
    AllocateProducerIds,
    AlterPartition,
    AlterTopic,
    ControllerEvent,
    CreateTopic,
    DeleteTopic,
    Elect,
    Expire,
    GrowTopic,
    Heartbeat,
    Persist,
    Publish,
    Register,
    Registered,
    Tick,
)
from floodmark.broker.protocol.metadata import Metadata
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.trace_events import controller_lines, missing_lines


class Stage:
    """A controller, its journal, and brokers whose requests the text sends; one story after another."""

    def begin(self, unclean: bool = False, bugs: str = "") -> None:
        self.config = ControllerConfig(session_timeout_ms=1_000, unclean_leader_election=unclean)
        self.rules = rules_for("kip-320", bugs.split())
        self.journal: list[Mapping[str, Any]] = []
        self.lines: list[Mapping[str, Any]] = []
        self.controller = Controller(self.config, (), self.rules)
        self.now: dict[str, Any] = {"now_ms": 0, "token": 0}
        self.epochs: dict[int, int] = {}

    def register(self, broker: int, incarnation: str = "a", clean: bool = False) -> ControllerEvent:
        return Register(**self.now, broker=broker, incarnation=incarnation, host="h", port=1, clean=clean)

    def beat(self, broker: int, version: int | None = None, stopping: bool = False, epoch: int | None = None
             ) -> ControllerEvent:
        """With the version of the metadata that it has: the latest."""
        latest = self.controller.metadata().version
        return Heartbeat(**self.now, broker=broker, stopping=stopping,
                         metadata_version=latest if version is None else version,
                         broker_epoch=self.epochs[broker] if epoch is None else epoch)

    def expire(self, broker: int) -> ControllerEvent:
        return Expire(**self.now, broker=broker)

    def tick(self) -> ControllerEvent:
        return Tick(now_ms=self.now["now_ms"])

    def create(self, topic: str, partitions: int = 1, on: Any = (), rf: int = 1, **configs: Any
               ) -> ControllerEvent:
        return CreateTopic(**self.now, topic=topic, topic_id=topic[:1], partitions=partitions,
                           replication_factor=rf, assignment=on, configs=texts(configs))

    def configure(self, topic: str, **configs: Any) -> ControllerEvent:
        return AlterTopic(**self.now, topic=topic, configs=texts(configs))

    def grow(self, topic: str, partitions: int, on: Any = (), validate: bool = False) -> ControllerEvent:
        return GrowTopic(**self.now, topic=topic, partitions=partitions, assignment=on,
                         validate_only=validate)

    def delete(self, topic: str) -> ControllerEvent:
        return DeleteTopic(**self.now, topic=topic)

    def alter(self, *isr: Any, by: int = 1, **other: int) -> ControllerEvent:
        """The ISR of t's first partition. A member may have another broker epoch: (3,1)."""
        now = self.controller.metadata().topics["t"].partitions[0]
        fields = {"broker_epoch": self.epochs[by], "leader_epoch": now.leader_epoch,
                  "partition_epoch": now.partition_epoch, **other}
        return AlterPartition(**self.now, topic="t", partition=0, broker=by, **fields, isr=tuple(
            one if isinstance(one, tuple) else (one, self.epochs[one]) for one in isr))

    def elect(self, leader: int = NO_LEADER, unclean: bool = False, named: bool = True) -> ControllerEvent:
        return Elect(**self.now, partitions=(("t", 0),) if named else (), unclean=unclean, leader=leader)

    def ids(self, broker: int) -> ControllerEvent:
        return AllocateProducerIds(**self.now, broker=broker, broker_epoch=self.epochs[broker])

    def happens(self, name: str, *given: Any, **named: Any) -> Iterator[str]:
        match name:
            case "controller":
                self.begin(**named)
            case "cluster":  # a few brokers, unfenced, and topic t on all of them
                self.begin(**named)
                brokers = range(1, given[0] + 1)
                for act, broker in product((self.register, self.beat), brokers):
                    list(self.follows(act(broker)))
                list(self.follows(self.create("t", on=(tuple(brokers),))))
            case "at":
                self.now["now_ms"] = given[0]
            case "restart":
                self.controller = Controller(self.config, self.journal, self.rules)
            case _:
                yield from self.follows(getattr(self, name)(*given, **named))

    def follows(self, event: ControllerEvent) -> Iterator[str]:
        before = self.controller.metadata()
        effects = self.controller.step(event)
        kinds = [type(effect) for effect in effects]
        assert kinds == sorted(kinds, key=lambda kind: {Persist: 0, Publish: 1}.get(kind, 2))
        records = [record for one in effects if isinstance(one, Persist) for record in one.records]
        self.journal += records
        lines = controller_lines(before, event, records)
        self.lines += lines
        for effect in effects:
            if isinstance(effect, Registered):
                self.epochs[event.broker] = effect.broker_epoch  # type: ignore[union-attr]
            if not isinstance(effect, Persist | Publish):
                assert not (getattr(effect, "error", 0) and records)
                yield f"= {shown(effect)}"
        for line in lines:
            yield f"~ {line_text(line)}"
        yield from changes(before, self.controller.metadata())
        self.starts_anew()

    def starts_anew(self) -> None:
        assert Controller(self.config, self.journal, self.rules).metadata() == self.controller.metadata()
        for version in {0, self.controller.metadata().version - 3, self.controller.metadata().version}:
            missing = [(line["event"], line["version"]) for line in missing_lines(self.journal, version)]
            assert missing == [one for line in self.lines
                               if (one := (line["event"], line["version"]))[1] > version]


def texts(configs: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in configs.items()}


def changes(before: Metadata, now: Metadata) -> Iterator[str]:
    then = set(told(before))
    yield from (f". {one}" for one in told(now) if one not in then)
    yield from (f". {name} is gone" for name in before.topics.keys() - now.topics.keys())


def told(metadata: Metadata) -> Iterator[str]:
    for broker in metadata.brokers:
        yield (f"broker {broker.id} epoch {broker.epoch}{' fenced' if broker.fenced else ''}"
               f"{' stopping' if broker.stopping else ''}")
    for name, topic in metadata.topics.items():
        for number, one in enumerate(topic.partitions):
            yield (f"{name}-{number} of {shown(one.replicas)}: leader {one.leader} in {one.leader_epoch}, "
                   f"isr {shown(one.isr)} at {one.partition_epoch}")
        if topic.configs:
            yield f"{name} {topic.configs}"


def test_what_the_controller_does(request: pytest.FixtureRequest) -> None:
    happened_as_written("controller.txt", Stage().happens, request)
