"""Sends CreateTopics, IncrementalAlterConfigs, ElectLeaders, AlterPartitionReassignments and ApiVersions to a
broker, with the harness's codec.

Rules
1. Each call makes one connection, one request and gets one answer, within a time-out; it never uses a link.
2. An error code that means "it is so already" counts as success; the caller decides about any other.
"""

import asyncio
import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.errors import for_code
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec

CREATE_TOPICS_VERSION = 4
ALTER_CONFIGS_VERSION = 0
ELECT_LEADERS_VERSION = 2
REASSIGN_VERSION = 0
API_VERSIONS_VERSION = 3
PREFERRED = 0
UNCLEAN = 1
TOPIC, SET = 2, 0  # a kind of resource, an operation of IncrementalAlterConfigs
NOT_NEEDED = "ELECTION_NOT_NEEDED"
_correlation_ids = itertools.count(1)

Address = tuple[str, int]


def assignments(partitions: Sequence[PartitionSpec], ids: Mapping[str, int]) -> dict[str, list[list[int]]]:
    """The topics of create_topics. FloodmarkError if a topic lacks a partition."""
    topics: dict[str, list[list[int]]] = {}
    for spec in sorted(partitions, key=lambda one: (one.topic, one.partition)):
        assignment = topics.setdefault(spec.topic, [])
        if spec.partition != len(assignment):
            raise FloodmarkError(f"topic {spec.topic!r} lacks partition {len(assignment)}")
        assignment.append([ids[node] for node in spec.replicas])
    return topics


async def create_topics(
    to: Address, topics: Mapping[str, Sequence[Sequence[int]]], *, timeout_s: float,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Creates topics; FloodmarkError if one is refused.

    topics: name -> for each partition in order the ids of its replicas, preferred leader first. configs:
    topic name -> Kafka's keys.
    """
    creatable = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest[CREATE_TOPICS_VERSION](
        topics=[
            creatable(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                configs=[creatable.CreatableTopicConfig(name=key, value=value)
                         for key, value in sorted((configs or {}).get(name, {}).items())],
                assignments=[
                    creatable.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                    for index, replicas in enumerate(assignment)
                ],
            )
            for name, assignment in sorted(topics.items())
        ],
        timeout_ms=int(timeout_s * 1000),
        validate_only=False,
    )
    answer = await _ask(to, request, CreateTopicsResponse, CREATE_TOPICS_VERSION, timeout_s)
    for topic in answer.topics:
        if topic.error_code != 0:
            raise _refused(f"topic {topic.name!r} was not created", topic)


async def alter_topic_configs(
    to: Address, configs: Mapping[str, Mapping[str, str]], *, timeout_s: float
) -> None:
    """Sets these configs of existing topics; FloodmarkError if one is refused. configs: topic name -> Kafka's
    keys."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest[ALTER_CONFIGS_VERSION](
        resources=[
            resource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[resource.AlterableConfig(name=key, config_operation=SET, value=value)
                         for key, value in sorted(keys.items())],
            )
            for name, keys in sorted(configs.items())
        ],
        validate_only=False,
    )
    answer = await _ask(to, request, IncrementalAlterConfigsResponse, ALTER_CONFIGS_VERSION, timeout_s)
    for one in answer.responses:
        if one.error_code != 0:
            raise _refused(f"the configs of topic {one.resource_name!r} were not altered", one)


async def elect_leaders(
    to: Address, partitions: Sequence[tuple[str, int]], *, unclean: bool, timeout_s: float
) -> dict[tuple[str, int], str | None]:
    """Elects leaders. Returns (topic, partition) -> Kafka's name of the error; None: a leader was elected."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    request = ElectLeadersRequest[ELECT_LEADERS_VERSION](
        election_type=UNCLEAN if unclean else PREFERRED,
        topic_partitions=[
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ],
        timeout_ms=int(timeout_s * 1000),
    )
    answer = await _ask(to, request, ElectLeadersResponse, ELECT_LEADERS_VERSION, timeout_s)
    if answer.error_code != 0:
        raise FloodmarkError(f"no election: {error_name(answer.error_code)}")
    return {
        (result.topic, one.partition_id): error_name(one.error_code) if one.error_code else None
        for result in answer.replica_election_results
        for one in result.partition_result
    }


async def reassign(
    to: Address, orders: Mapping[tuple[str, int], Sequence[int]], *, timeout_s: float
) -> dict[tuple[str, int], str | None]:
    """Reassigns partitions. orders: (topic, partition) -> the ids of its new replicas, preferred leader
    first. Returns (topic, partition) -> Kafka's name of the error; None: no error."""
    reassignable = AlterPartitionReassignmentsRequest.ReassignableTopic
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), replicas in sorted(orders.items()):
        by_topic.setdefault(topic, []).append(
            reassignable.ReassignablePartition(partition_index=partition, replicas=list(replicas)))
    request = AlterPartitionReassignmentsRequest[REASSIGN_VERSION](
        timeout_ms=int(timeout_s * 1000),
        topics=[reassignable(name=topic, partitions=partitions) for topic, partitions in by_topic.items()])
    answer = await _ask(to, request, AlterPartitionReassignmentsResponse, REASSIGN_VERSION, timeout_s)
    if answer.error_code != 0:
        raise FloodmarkError(f"no reassignment: {error_name(answer.error_code)}")
    return {(topic.name, one.partition_index): error_name(one.error_code) if one.error_code else None
            for topic in answer.responses for one in topic.partitions}


async def finalized_features(to: Address, *, timeout_s: float) -> Mapping[str, int] | None:
    """The finalized level of each feature, without those of level 0 (KIP-584); None: the broker knows none
    yet."""
    request = ApiVersionsRequest[API_VERSIONS_VERSION](
        client_software_name="floodmark", client_software_version="1")
    answer = await _ask(to, request, ApiVersionsResponse, API_VERSIONS_VERSION, timeout_s)
    if answer.error_code != 0:
        raise FloodmarkError(f"no ApiVersions: {error_name(answer.error_code)}")
    if answer.finalized_features_epoch < 0:
        return None
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def _refused(what: str, result: Any) -> FloodmarkError:
    """The error of a result that has a code and perhaps a message."""
    message = f": {result.error_message}" if result.error_message else ""
    return FloodmarkError(f"{what}: {error_name(result.error_code)}{message}")


def error_name(code: int) -> str:
    """Kafka's name of an error code: 38 -> INVALID_REPLICATION_FACTOR."""
    name: str = getattr(for_code(code), "message", "UNKNOWN")
    return f"{name} ({code})"


async def _ask(to: Address, request: Any, answer: Any, version: int, timeout_s: float) -> Any:
    action = f"{request.name} to {to[0]}:{to[1]}"
    request.with_header(correlation_id=next(_correlation_ids), client_id="floodmark")
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(*to)
            try:
                writer.write(bytes(request.encode(header=True, framed=True)))
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
            finally:
                writer.close()
    except TimeoutError:
        raise FloodmarkError(f"{action}: no answer in {timeout_s:g} s") from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise FloodmarkError(f"{action}: {error}") from None
    return answer.decode(frame, version=version, header=True)
