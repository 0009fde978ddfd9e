"""What a broker answers of topics, before and after the controller's first metadata; without a network."""

from pathlib import Path

import pytest

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.metadata import Metadata
from floodmark.broker.server.broker_server import BrokerServer
from floodmark.broker.server.config import parse_config
from floodmark.broker.wire.api_keys import METADATA
from floodmark.broker.wire.codec import make, read_request_header, request_parts, write_request


@pytest.mark.parametrize(("version", "of_topic", "of_partition"), [
    (0, errors.LEADER_NOT_AVAILABLE, errors.NOT_LEADER_OR_FOLLOWER),
    (1, errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_TOPIC_OR_PARTITION),
])
def test_no_topic_is_unknown_before_the_first_metadata(
    tmp_path: Path, version: int, of_topic: int, of_partition: int
) -> None:
    """A broker that has started while its controller is away knows no topic, and each may exist: both errors
    are retriable, and the client asks another broker."""
    config, _ = parse_config(
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:1\ncontroller.quorum.voters=100@h:2\n"
        f"log.dirs={tmp_path}\nauto.create.topics.enable=false\n", "f")
    server = BrokerServer(config)
    server._metadata = Metadata(version=version, brokers=(), topics={})
    cls, parts = request_parts(METADATA, 9)
    frame = write_request(METADATA, 9, 1, "me", make(
        cls, topics=(make(parts.MetadataRequestTopic, name="t"),), allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False))[4:]

    answer = server._answer_metadata(frame, read_request_header(frame))

    assert [int(topic.error_code) for topic in answer.topics] == [of_topic]
    assert server._find_partition("t", 0) == (None, of_partition)
