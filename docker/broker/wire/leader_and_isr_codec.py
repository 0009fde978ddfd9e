"""Encodes and decodes the leader-and-isr message: the controller's metadata as JSON in one frame.

Each message is for one incarnation of one broker.
"""

import json
from typing import Any

from floodmark.broker.protocol.metadata import BrokerInfo, Metadata, PartitionInfo, TopicInfo
from floodmark.broker.wire.api_keys import LEADER_AND_ISR, LEADER_AND_ISR_VERSION
from floodmark.broker.wire.codec import RequestHeader, WireError, frame_request, frame_response


def write_leader_and_isr(correlation: int, broker: int, broker_epoch: int, metadata: Metadata) -> bytes:
    """Encode the metadata for this incarnation of this broker: the whole frame."""
    body = {
        "broker": broker,
        "broker_epoch": broker_epoch,
        "version": metadata.version,
        "brokers": [
            {
                "id": each.id, "host": each.host, "port": each.port, "epoch": each.epoch,
                "fenced": each.fenced, "stopping": each.stopping,
            }
            for each in metadata.brokers
        ],
        "topics": [
            {
                "topic": topic.name, "id": topic.id, "configs": dict(topic.configs),
                "partitions": [_write_partition(each) for each in topic.partitions],
            }
            for topic in metadata.topics.values()
        ],
    }  # fmt: skip
    data = json.dumps(body, separators=(",", ":")).encode()
    key, version = LEADER_AND_ISR, LEADER_AND_ISR_VERSION
    return frame_request(key, version, correlation, "controller", data, tagged=False)


def _write_partition(each: PartitionInfo) -> dict[str, object]:
    return {
        "partition": each.partition, "leader": each.leader, "leader_epoch": each.leader_epoch,
        "isr": list(each.isr), "partition_epoch": each.partition_epoch, "replicas": list(each.replicas),
    }  # fmt: skip


def read_leader_and_isr(frame: bytes, head: RequestHeader) -> tuple[int, int, Metadata]:
    """(broker, broker epoch, metadata): the addressee of the message, and its content. Raises WireError."""
    try:
        body: dict[str, Any] = json.loads(frame[head.body_at :])
        metadata = Metadata(
            version=int(body["version"]),
            brokers=tuple(
                BrokerInfo(
                    id=int(each["id"]),
                    host=str(each["host"]),
                    port=int(each["port"]),
                    epoch=int(each["epoch"]),
                    fenced=bool(each["fenced"]),
                    stopping=bool(each["stopping"]),
                )
                for each in body["brokers"]
            ),
            topics={str(each["topic"]): _read_topic(each) for each in body["topics"]},
        )
        return int(body["broker"]), int(body["broker_epoch"]), metadata
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError(f"no leader-and-isr: {type(error).__name__}: {error}") from error


def _read_topic(each: dict[str, Any]) -> TopicInfo:
    return TopicInfo(
        name=str(each["topic"]),
        id=str(each["id"]),
        configs={str(key): str(value) for key, value in each["configs"].items()},
        partitions=tuple(
            PartitionInfo(
                partition=int(part["partition"]), leader=int(part["leader"]),
                leader_epoch=int(part["leader_epoch"]), isr=tuple(map(int, part["isr"])),
                partition_epoch=int(part["partition_epoch"]), replicas=tuple(map(int, part["replicas"])),
            )
            for part in each["partitions"]
        ),
    )  # fmt: skip


def write_leader_and_isr_response(correlation: int, error: int) -> bytes:
    return frame_response(correlation, False, json.dumps({"error": error}).encode())


def read_leader_and_isr_response(frame: bytes) -> int:
    """The error code in a response's frame (without its size)."""
    try:
        return int(json.loads(frame[4:])["error"])
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"no answer to leader-and-isr: {error}") from error
