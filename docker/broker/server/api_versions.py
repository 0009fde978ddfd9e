"""Lists the API versions that are offered (ApiVersions) and served, and writes the Metadata response.

Rules
1. Produce is offered from 0 though 0-2 are refused (KAFKA-18659: otherwise librdkafka before 2.11 does not
   compress).
2. Metadata is offered up to 9 and Fetch up to 12, so that clients send topic names, never ids; Fetch 15 is
   for brokers among themselves, and is not offered.
3. An ApiVersions of an unknown version is answered with version 0, error 35 and the list (KIP-511).
4. Metadata names no fenced broker; a partition without a leader has error 5,
   LEADER_NOT_AVAILABLE.
"""

from collections.abc import Callable, Iterable
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import NO_LEADER
from floodmark.broker.protocol.metadata import Metadata, PartitionInfo
from floodmark.broker.protocol.topic_placement import is_topic_name
from floodmark.broker.server.config import CLUSTER_ID
from floodmark.broker.wire import api_keys
from floodmark.broker.wire.codec import (
    NO_THROTTLE_TIME,
    RequestHeader,
    error_code,
    make,
    read_request,
    response_parts,
    write_response,
)

# api key -> (least, greatest) version offered
OFFERED = {
    api_keys.PRODUCE: (0, 9),
    api_keys.FETCH: (4, 12),
    api_keys.LIST_OFFSETS: (1, 7),
    api_keys.METADATA: (0, 9),
    api_keys.OFFSET_COMMIT: (2, 8),  # this and the four below: server/group_requests.py
    api_keys.OFFSET_FETCH: (1, 7),
    api_keys.FIND_COORDINATOR: (0, 3),
    api_keys.JOIN_GROUP: (0, 9),
    api_keys.LIST_GROUPS: (0, 4),
    api_keys.API_VERSIONS: (0, 3),
    api_keys.CREATE_TOPICS: (2, 7),
    api_keys.DELETE_TOPICS: (1, 6),
    api_keys.INIT_PRODUCER_ID: (0, 4),
    api_keys.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    api_keys.DESCRIBE_CONFIGS: (1, 4),
    api_keys.ALTER_CONFIGS: (0, 2),
    api_keys.CREATE_PARTITIONS: (0, 3),
    api_keys.ELECT_LEADERS: (0, 2),
    api_keys.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    api_keys.CONSUMER_GROUP_HEARTBEAT: (0, 1),
}
# Produce 0-2 is offered and not served. Fetch 15, from brokers, is not offered: is_served adds it.
_SERVED_BY_BROKER = {**OFFERED, api_keys.PRODUCE: (3, 9)}
SERVED_BY_CONTROLLER = {
    api_keys.API_VERSIONS: (0, 3),
    api_keys.CREATE_TOPICS: (7, 7),
    api_keys.DELETE_TOPICS: (6, 6),
    api_keys.ALTER_CONFIGS: (2, 2),
    api_keys.CREATE_PARTITIONS: (3, 3),
    api_keys.INCREMENTAL_ALTER_CONFIGS: (1, 1),
    api_keys.ELECT_LEADERS: (2, 2),
    api_keys.ALTER_PARTITION: (3, 3),
    api_keys.BROKER_REGISTRATION: (4, 4),
    api_keys.BROKER_HEARTBEAT: (1, 1),
    api_keys.ALLOCATE_PRODUCER_IDS: (0, 0),
}


def is_served(key: int, version: int) -> bool:
    """Whether a broker serves this version. A request that it does not serve closes the connection, as in
    Kafka."""
    if key == api_keys.FETCH and version == 15:
        return True
    least, greatest = _SERVED_BY_BROKER.get(key, (1, 0))
    return least <= version <= greatest


def answer_api_versions(frame: bytes, head: RequestHeader, offered: dict[int, tuple[int, int]]) -> bytes:
    """Read the request and write the response (rule 3)."""
    least, greatest = offered[api_keys.API_VERSIONS]
    known = least <= head.version <= greatest
    if known:
        read_request(frame, head)
    answer, parts = response_parts(api_keys.API_VERSIONS, head.version if known else 0)
    keys = tuple(
        make(parts.ApiVersion, api_key=key, min_version=low, max_version=high)
        for key, (low, high) in sorted(offered.items())
    )
    error = errors.NONE if known else errors.UNSUPPORTED_VERSION
    body = make(answer, error_code=error_code(error), api_keys=keys, throttle_time=NO_THROTTLE_TIME)
    return write_response(head.correlation, body)


def write_metadata_response(
    version: int,
    names: Iterable[str] | None,
    metadata: Metadata,
    controller: int,
    find_error_of_unknown: Callable[[str], int],
) -> Any:
    """Build the response's body. `names` None: all topics; `find_error_of_unknown` returns the error of a
    topic that does not exist."""
    answer, parts = response_parts(api_keys.METADATA, version)
    live = {broker.id for broker in metadata.brokers if not broker.fenced}
    brokers = [
        make(parts.MetadataResponseBroker, node_id=broker.id, host=broker.host, port=broker.port, rack=None)
        for broker in metadata.brokers
        if broker.id in live
    ]
    wanted = sorted(metadata.topics) if names is None else list(dict.fromkeys(names))
    topics = []
    for name in wanted:
        topic = metadata.topics.get(name)
        found = () if topic is None else topic.partitions
        unknown = find_error_of_unknown if is_topic_name(name) else _refuse_name
        topics.append(
            make(
                parts.MetadataResponseTopic,
                error_code=error_code(unknown(name) if topic is None else errors.NONE),
                name=name,
                is_internal=False,
                partitions=tuple(_write_partition(parts, part, live) for part in found),
            )
        )
    return make(
        answer,
        throttle_time=NO_THROTTLE_TIME,
        brokers=tuple(brokers),
        cluster_id=CLUSTER_ID,
        controller_id=controller,
        topics=tuple(topics),
    )


def _refuse_name(name: str) -> int:
    return errors.INVALID_TOPIC_EXCEPTION


def _write_partition(parts: Any, part: PartitionInfo, live: set[int]) -> Any:
    led = part.leader != NO_LEADER and part.leader in live
    return make(
        parts.MetadataResponsePartition,
        error_code=error_code(errors.NONE if led else errors.LEADER_NOT_AVAILABLE),
        partition_index=part.partition,
        leader_id=part.leader if led else NO_LEADER,
        leader_epoch=part.leader_epoch,
        replica_nodes=part.replicas,
        isr_nodes=part.isr,
        offline_replicas=tuple(broker for broker in part.replicas if broker not in live),
    )
