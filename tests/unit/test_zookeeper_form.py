"""Kafka with ZooKeeper: the protocol's generations as settings, and the password of a session."""

from pathlib import Path

import pytest

from floodmark.harness.cluster.kafka.distribution import Distribution
from floodmark.harness.cluster.kafka.zookeeper import ZooKeeper
from floodmark.harness.cluster.kafka.zookeeper_client import session_password

KAFKA = Distribution(version="2.8.2", form="zookeeper", classpath="a.jar", java=Path("java"))


def settings(rules: str, **given: str) -> dict[str, str]:
    return dict(ZooKeeper(KAFKA, given, {"n1": 1, "controller": 100}, rules=rules).settings)


@pytest.mark.parametrize(("rules", "version"), [
    ("high-watermark", "0.11.0-IV1"), ("kip-101", "1.1"), ("kip-279", "2.0"), ("kip-320", None)])
def test_rules_are_versions_of_the_protocol(rules: str, version: str | None) -> None:
    assert settings(rules).get("inter.broker.protocol.version") == version
    assert settings(rules).get("log.message.format.version") == version


def test_the_session_timeout_is_set_by_either_name() -> None:
    for key, length in (("broker.session.timeout.ms", "60000"), ("zookeeper.session.timeout.ms", "700")):
        assert settings("kip-320", **{key: length})["zookeeper.session.timeout.ms"] == length


def test_the_session_password_is_that_of_zookeeper() -> None:
    """As a ZooKeeper 3.5.9 gave it to a client."""
    known = b"*.\xee@o\x950j\x18&F\x89\xd0\x10\xda\xfc"
    assert session_password(72061673038938112) == known
