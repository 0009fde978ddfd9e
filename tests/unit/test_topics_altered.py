"""Changes of an existing topic at the controller: its configs, more partitions, its deletion."""

from typing import Any

import pytest

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.controller import Controller, ControllerConfig
from floodmark.broker.protocol.messages import (
    AlterTopic,
    ControllerEffect,
    CreateTopic,
    DeleteTopic,
    GrowTopic,
    Heartbeat,
    Persist,
    Publish,
    Register,
    TopicAnswer,
)
from floodmark.broker.protocol.metadata import Metadata
from floodmark.broker.server.config import parse_config
from floodmark.broker.server.topic_configs import (
    DEFAULT,
    STATIC,
    TOPIC,
    alter_configs,
    check_topic_configs,
    describe_broker_configs,
    describe_topic_configs,
)
from floodmark.broker.testing.trace_events import controller_lines

NOW: dict[str, Any] = {"now_ms": 0, "token": 0}


class Cluster:
    """A controller with three brokers, and topic t of two partitions; `journal` is what it persisted."""

    def __init__(self) -> None:
        self.journal: list[Any] = []
        self.controller = Controller(ControllerConfig())
        for broker in (1, 2, 3):
            self.step(
                Register(**NOW, broker=broker, incarnation="a", host="h", port=1, clean=False)
            )
            self.step(
                Heartbeat(**NOW, broker=broker, broker_epoch=broker - 1, metadata_version=99, stopping=False)
            )
        self.step(
            CreateTopic(
                **NOW, topic="t", topic_id="x", partitions=2, replication_factor=3, assignment=(),
                configs={"retention.ms": "1"},
            )
        )  # fmt: skip

    def step(self, event: Any) -> list[ControllerEffect]:
        self.before = self.controller.metadata()
        effects = self.controller.step(event)
        self.records = [record for each in effects if isinstance(each, Persist) for record in each.records]
        self.journal += self.records
        return effects

    def answer(self, event: Any) -> int:
        """The error; a change is durable and published before it is answered, a refusal changes nothing."""
        *before, answer = self.step(event)
        assert isinstance(answer, TopicAnswer)
        assert [type(each) for each in before] in ([], [Persist, Publish])
        assert not (answer.error and before)
        assert Controller(ControllerConfig(), self.journal).metadata() == self.controller.metadata()
        return answer.error

    @property
    def metadata(self) -> Metadata:
        return self.controller.metadata()


def test_configs_are_those_that_were_set_last() -> None:
    """All of them; nothing is written where nothing changes."""
    cluster = Cluster()

    assert cluster.answer(AlterTopic(**NOW, topic="t", configs={"segment.bytes": "9"})) == errors.NONE
    version = cluster.metadata.version
    assert cluster.metadata.topics["t"].configs == {"segment.bytes": "9"}
    assert cluster.answer(AlterTopic(**NOW, topic="t", configs={"segment.bytes": "9"})) == errors.NONE
    assert cluster.metadata.version == version
    assert cluster.answer(AlterTopic(**NOW, topic="u", configs={})) == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_grows() -> None:
    """The existing partitions stay as they are; the assignment of the new ones continues theirs."""
    cluster = Cluster()
    before = cluster.metadata.topics["t"].partitions

    assert cluster.answer(GrowTopic(**NOW, topic="t", partitions=4, assignment=())) == errors.NONE
    now = cluster.metadata.topics["t"].partitions
    assert now[:2] == before
    assert [part.replicas for part in now] == [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3)]
    assert [(part.leader, part.leader_epoch) for part in now[2:]] == [(3, 0), (1, 0)]
    lines = controller_lines(cluster.before, None, cluster.records)
    assert [(line["event"], line["partition"], line["version"]) for line in lines] == [
        ("elect", 2, cluster.metadata.version), ("elect", 3, cluster.metadata.version)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("partitions", "assignment", "error"),
    [
        (2, (), errors.INVALID_PARTITIONS),
        (1, (), errors.INVALID_PARTITIONS),
        (3, ((1, 2, 3), (1, 2, 3)), errors.INVALID_REPLICA_ASSIGNMENT),
        (3, ((1, 2),), errors.INVALID_REPLICA_ASSIGNMENT),
        (3, ((1, 2, 9),), errors.INVALID_REPLICA_ASSIGNMENT),
        (3, ((1, 2, 2),), errors.INVALID_REPLICA_ASSIGNMENT),
        (3, ((3, 1, 2),), errors.NONE),
    ],
)
def test_how_a_topic_may_grow(partitions: int, assignment: Any, error: int) -> None:
    cluster = Cluster()
    event = GrowTopic(**NOW, topic="t", partitions=partitions, assignment=assignment)
    validate = GrowTopic(**NOW, topic="t", partitions=partitions, assignment=assignment, validate_only=True)

    assert cluster.answer(validate) == error
    assert len(cluster.metadata.topics["t"].partitions) == 2
    assert cluster.answer(event) == error
    assert len(cluster.metadata.topics["t"].partitions) == (2 if error else 3)


def test_a_deleted_topic_can_be_created_again() -> None:
    """At epoch 0, traced as a new one."""
    cluster = Cluster()
    deleted = DeleteTopic(**NOW, topic="t")

    assert cluster.answer(deleted) == errors.NONE
    assert cluster.metadata.topics == {}
    assert cluster.answer(deleted) == errors.UNKNOWN_TOPIC_OR_PARTITION
    cluster.step(
        CreateTopic(
            **NOW, topic="t", topic_id="y", partitions=1, replication_factor=3, assignment=(), configs={}
        )
    )
    assert cluster.metadata.topics["t"].id == "y"
    whole = controller_lines(Controller(ControllerConfig()).metadata(), None, cluster.journal)
    assert [line["event"] for line in whole if "topic" in line] == ["elect", "elect", "elect"]
    assert whole[-1]["version"] == cluster.metadata.version


# -- configs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"min.insync.replicas": "2", "retention.ms": "-1", "cleanup.policy": "delete"}, errors.NONE),
        ({"min.insync.replicas": "0"}, errors.INVALID_CONFIG),
        ({"segment.bytes": "many"}, errors.INVALID_CONFIG),
        ({"segment.bytes": "1_000"}, errors.INVALID_CONFIG),
        ({"segment.bytes": str(2**31)}, errors.INVALID_CONFIG),
        ({"flush.messages": str(2**63 - 1)}, errors.NONE),
        ({"flush.messages": "9" * 5_000}, errors.INVALID_CONFIG),  # more digits than int() takes
        ({"unclean.leader.election.enable": "maybe"}, errors.INVALID_CONFIG),
        ({"min.insync.replica": "2"}, errors.INVALID_CONFIG),
        ({"cleanup.policy": "compact"}, errors.POLICY_VIOLATION),
        ({"message.timestamp.type": "LogAppendTime"}, errors.POLICY_VIOLATION),
    ],
)
def test_configs_of_a_topic_are_checked(configs: dict[str, str], error: int) -> None:
    found, why = check_topic_configs(configs)

    assert found == error
    assert bool(why) == bool(error)


def test_configs_are_altered_one_by_one() -> None:
    """SET, DELETE; there are no lists to append to."""
    configs = {"a": "1", "b": "2"}

    assert alter_configs(configs, [("a", 0, "9"), ("b", 1, None), ("c", 0, "3"), ("d", 1, None)]) == {
        "a": "9", "c": "3"
    }  # fmt: skip
    assert "no list" in alter_configs(configs, [("a", 2, "9")])
    assert "no value" in alter_configs(configs, [("a", 0, None)])
    assert configs == {"a": "1", "b": "2"}


def test_where_a_config_comes_from() -> None:
    """The topic's own overrides the broker's, and the broker's the default."""
    text = (
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:1\nlog.dirs=/d\n"
        "controller.quorum.voters=100@h:2\nmin.insync.replicas=2\nmessage.max.bytes=1048588\n"
    )
    config, _ = parse_config(text, "f")
    found = {
        each.name: each
        for each in describe_topic_configs({"segment.bytes": "9", "retention.ms": "1"}, config)
    }
    brokers = {each.name: each for each in describe_broker_configs(config)}

    assert (found["segment.bytes"].value, found["segment.bytes"].source) == ("9", TOPIC)
    assert found["segment.bytes"].synonyms[1:] == (("log.segment.bytes", "1073741824", DEFAULT),)
    assert (found["min.insync.replicas"].value, found["min.insync.replicas"].source) == ("2", STATIC)
    assert found["unclean.leader.election.enable"].value == "false"
    assert found["cleanup.policy"].value == "delete"
    assert found["retention.ms"].value == "1"
    assert brokers["listeners"].value == "PLAINTEXT://h:1"
    assert brokers["message.max.bytes"].source == DEFAULT
    assert all(each.read_only for each in brokers.values())
    assert not [name for name in brokers if name.startswith("floodmark.")]
