"""The controller as others see it: its state for the control socket, what it is asked there, and which topic
configs it takes."""

from collections.abc import Mapping
from typing import Any

from broker.control import ControlError
from broker.messages import NO_LEADER, Elect
from broker.metadata import Metadata

PARTITIONS_MAX = 10_000  # of one topic: a typing error must not fill the memory
_NUMBERS = ("min.insync.replicas", "flush.messages", "segment.bytes")
_TRUTHS = ("unclean.leader.election.enable",)


def view(metadata: Metadata) -> dict[str, Any]:
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


def election(request: Mapping[str, Any], now_ms: int) -> Elect:
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


def config_problem(configs: Mapping[str, str]) -> str:
    """What is wrong with a topic's configs, where they are ours to read. Others are kept and mean nothing
    here."""
    for key in _NUMBERS:
        value = configs.get(key)
        if value is not None and not (value.isascii() and value.isdecimal() and 1 <= int(value) < 2**63):
            return f"{key}: a number of at least 1 is wanted, not {value!r}"
    for key in _TRUTHS:
        value = configs.get(key)
        if value is not None and value.lower() not in ("true", "false"):
            return f"{key}: true or false is wanted, not {value!r}"
    return ""
