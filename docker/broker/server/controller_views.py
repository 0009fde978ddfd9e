"""The controller as others see it: its state for the control socket, and what it is asked there."""

from collections.abc import Mapping
from typing import Any

from broker.protocol.messages import NO_LEADER, Elect
from broker.protocol.metadata import Metadata
from broker.testing.control_socket import ControlError


def describe_controller(metadata: Metadata) -> dict[str, Any]:
    """The answer to `state`."""
    brokers = [{"id": each.id, "epoch": each.epoch, "fenced": each.fenced} for each in metadata.brokers]
    partitions = [
        {
            "topic": topic.name,
            "partition": each.partition,
            "leader": each.leader,
            "epoch": each.leader_epoch,
            "isr": list(each.isr),
            "partition_epoch": each.partition_epoch,
            "replicas": list(each.replicas),
        }
        for topic in metadata.topics.values()
        for each in topic.partitions
    ]
    return {"metadata_version": metadata.version, "brokers": brokers, "partitions": partitions}


def parse_election(request: Mapping[str, Any], now_ms: int) -> Elect:
    """What the control socket's `elect` asks for, of one partition."""
    topic, partition = request.get("topic"), request.get("partition")
    leader, unclean = request.get("leader", NO_LEADER), request.get("unclean", False)
    if not isinstance(topic, str) or type(partition) is not int:
        raise ControlError("elect wants a topic and a partition")
    if type(leader) is not int or type(unclean) is not bool:
        raise ControlError("elect wants a leader's id, and unclean true or false")
    return Elect(
        now_ms=now_ms, token=None, partitions=((topic, partition),), unclean=unclean, leader=leader
    )
