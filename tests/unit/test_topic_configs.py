"""Configs of a topic at the server: which are accepted, how they are altered, where each comes from."""


import pytest

from floodmark.broker.protocol import errors
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


@pytest.mark.parametrize(("configs", "error"), [
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
])
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
    text = ("process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:1\nlog.dirs=/d\n"
            "controller.quorum.voters=100@h:2\nmin.insync.replicas=2\nmessage.max.bytes=1048588\n")
    config, _ = parse_config(text, "f")
    described = describe_topic_configs({"segment.bytes": "9", "retention.ms": "1"}, config)
    found = {each.name: (each.value, each.source) for each in described}
    brokers = {each.name: each for each in describe_broker_configs(config)}

    assert found.items() >= {
        "segment.bytes": ("9", TOPIC), "retention.ms": ("1", TOPIC), "min.insync.replicas": ("2", STATIC),
        "unclean.leader.election.enable": ("false", DEFAULT), "cleanup.policy": ("delete", DEFAULT)}.items()
    (segment,) = (each for each in described if each.name == "segment.bytes")
    assert segment.synonyms[1:] == (("log.segment.bytes", "1073741824", DEFAULT),)
    assert brokers["listeners"].value == "PLAINTEXT://h:1"
    assert brokers["message.max.bytes"].source == DEFAULT
    assert all(each.read_only for each in brokers.values())
    assert not [name for name in brokers if name.startswith("floodmark.")]
