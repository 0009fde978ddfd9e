"""Sends Kafka's requests to brokers: about topics, settings, elections, reassignments, metadata and features.

Rules
1. A request is asked by an `Ask`, within a time-out. `once` opens a connection for one request, at the newest
   version of VERSIONS, and uses no link; `Brokers` keeps one connection to each broker, and asks at the
   newest version that both sides know.
2. An error code that means "it is so already" counts as success; the caller decides about any other.
3. Requests change only what the caller names.
"""

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka.errors import for_code
from kafka.protocol import admin, metadata, producer

from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent
from floodmark.harness.client.security import Refused
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec

ASK_S = 10.0
VERSIONS: Mapping[Any, tuple[int, int]] = {
    producer.ProduceRequest: (3, 8), metadata.MetadataRequest: (7, 9), admin.CreateTopicsRequest: (2, 4),
    admin.DeleteTopicsRequest: (1, 4), admin.DescribeConfigsRequest: (1, 4),
    admin.ElectLeadersRequest: (1, 2), admin.IncrementalAlterConfigsRequest: (0, 0),
    admin.AlterPartitionReassignmentsRequest: (0, 0), metadata.ApiVersionsRequest: (3, 3),
}
# Those that a user's own cluster is sent.
OF_OWN_CLUSTERS = tuple(VERSIONS)[:6]
TOPIC, BROKER, SET = 2, 4, 0  # kinds of resource, an operation of IncrementalAlterConfigs
UNKNOWN_TOPIC = 3
NOT_NEEDED = "ELECTION_NOT_NEEDED"
_correlation_ids = itertools.count(1)

Address = tuple[str, int]
Place = tuple[str, int]  # topic, partition
# (request's class, response's class, time-out in seconds, the request's fields) -> response
Ask = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition in a Metadata answer, by broker ids; leader -1: there is none."""

    leader: int
    epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    brokers: Mapping[int, Address]  # those that are not fenced
    controller: int  # where to create topics; in KRaft mode any broker, which forwards; -1: none is known
    unknown: frozenset[str]  # topics that were asked for and that the broker does not know
    partitions: Mapping[Place, PartitionState]


# -- topics and settings ------------------------------------------------------------------------------------

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
    ask: Ask, topics: Mapping[str, Sequence[Sequence[int]]], *, timeout_s: float,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Creates topics; FloodmarkError if one is refused. topics: name -> for each partition in order the ids
    of its replicas, preferred leader first. configs: topic name -> Kafka's keys."""
    creatable = admin.CreateTopicsRequest.CreatableTopic
    answer = await ask(
        admin.CreateTopicsRequest, admin.CreateTopicsResponse, timeout_s,
        topics=[
            creatable(
                name=name, num_partitions=-1, replication_factor=-1,
                configs=[creatable.CreatableTopicConfig(name=key, value=value)
                         for key, value in sorted((configs or {}).get(name, {}).items())],
                assignments=[
                    creatable.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                    for index, replicas in enumerate(assignment)])
            for name, assignment in sorted(topics.items())],
        timeout_ms=int(timeout_s * 1000), validate_only=False)
    for topic in answer.topics:
        if topic.error_code:
            raise _refused(f"topic {topic.name!r} was not created", topic)


async def delete_topic(ask: Ask, name: str, *, timeout_s: float) -> None:
    """Deletes a topic; a missing one is no error."""
    answer = await ask(admin.DeleteTopicsRequest, admin.DeleteTopicsResponse, timeout_s,
                       topic_names=[name], timeout_ms=int(timeout_s * 1000))
    for one in answer.responses:
        if one.error_code not in (0, UNKNOWN_TOPIC):
            raise _refused(f"the topic {name} is not deleted", one)


async def alter_topic_configs(ask: Ask, configs: Mapping[str, Mapping[str, str]], *, timeout_s: float
                              ) -> None:
    """Sets these configs of existing topics; FloodmarkError if one is refused. configs: topic name -> Kafka's
    keys."""
    resource = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    answer = await ask(
        admin.IncrementalAlterConfigsRequest, admin.IncrementalAlterConfigsResponse, timeout_s,
        resources=[
            resource(resource_type=TOPIC, resource_name=name,
                     configs=[resource.AlterableConfig(name=key, config_operation=SET, value=value)
                              for key, value in sorted(keys.items())])
            for name, keys in sorted(configs.items())],
        validate_only=False)
    for one in answer.responses:
        if one.error_code:
            raise _refused(f"the configs of topic {one.resource_name!r} were not altered", one)


async def settings(ask: Ask, kind: int, name: str) -> Mapping[str, str]:
    """The settings in force for a topic or a broker."""
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    answer = await ask(
        admin.DescribeConfigsRequest, admin.DescribeConfigsResponse, ASK_S,
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=None)],
        include_synonyms=False, include_documentation=False)
    for one in answer.results:
        if one.error_code:
            raise _refused(f"the cluster does not show the settings of {name}", one)
        return {entry.name: entry.value for entry in one.configs if entry.value is not None}
    raise FloodmarkError(f"the cluster does not show the settings of {name}")


# -- elections ----------------------------------------------------------------------------------------------

def chosen(specs: Sequence[PartitionSpec], partitions: Sequence[int]) -> list[PartitionSpec]:
    """Those with these keys; none: all."""
    found = [spec for spec in specs if not partitions or spec.key in partitions]
    if unknown := sorted(set(partitions) - {spec.key for spec in found}):
        raise FloodmarkError(f"there is no partition {unknown[0]} to elect a leader for")
    return found


async def elect(ask: Ask, specs: Sequence[PartitionSpec], *, unclean: bool, timeout_s: float = 30.0
                ) -> dict[int, str | None]:
    """Elects preferred leaders, or unclean ones. Returns Kafka's name of each partition's error, by key;
    None: a leader was elected."""
    keys = {(spec.topic, spec.partition): spec.key for spec in specs}
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        by_topic.setdefault(topic, []).append(partition)
    answer = await ask(
        admin.ElectLeadersRequest, admin.ElectLeadersResponse, timeout_s,
        election_type=int(unclean), timeout_ms=int(timeout_s * 1000),
        topic_partitions=[admin.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes)
                          for topic, indexes in by_topic.items()])
    if answer.error_code:
        raise _refused("no election", answer)
    return {keys[place]: _error_or_none(one) for result in answer.replica_election_results
            for one in result.partition_result if (place := (result.topic, one.partition_id)) in keys}


async def reassign(ask: Ask, orders: Mapping[Place, Sequence[int]], *, timeout_s: float
                   ) -> dict[Place, str | None]:
    """Reassigns partitions. orders: (topic, partition) -> the ids of its new replicas, preferred leader
    first. Returns (topic, partition) -> Kafka's name of the error; None: no error."""
    reassignable = admin.AlterPartitionReassignmentsRequest.ReassignableTopic
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), replicas in sorted(orders.items()):
        by_topic.setdefault(topic, []).append(
            reassignable.ReassignablePartition(partition_index=partition, replicas=list(replicas)))
    answer = await ask(
        admin.AlterPartitionReassignmentsRequest, admin.AlterPartitionReassignmentsResponse, timeout_s,
        timeout_ms=int(timeout_s * 1000),
        topics=[reassignable(name=topic, partitions=partitions) for topic, partitions in by_topic.items()])
    if answer.error_code:
        raise _refused("no reassignment", answer)
    return {(topic.name, one.partition_index): _error_or_none(one)
            for topic in answer.responses for one in topic.partitions}


def election_result(errors: Mapping[int, str | None]) -> dict[str, Any]:
    """The result as harness.protocols: Elects says. A partition whose leader is the right one already is
    neither elected nor refused."""
    return {
        "elected": sorted(key for key, error in errors.items() if error is None),
        "refused": {str(key): error for key, error in sorted(errors.items())
                    if error is not None and not error.startswith(NOT_NEEDED)}}


async def finalized_features(ask: Ask, *, timeout_s: float) -> Mapping[str, int] | None:
    """The finalized level of each feature, without those of level 0 (KIP-584); None: the broker knows none
    yet."""
    answer = await ask(metadata.ApiVersionsRequest, metadata.ApiVersionsResponse, timeout_s,
                       client_software_name="floodmark", client_software_version="1")
    if answer.error_code:
        raise _refused("no ApiVersions", answer)
    if answer.finalized_features_epoch < 0:
        return None
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def _refused(what: str, result: Any) -> FloodmarkError:
    """The error of a result that has a code and perhaps a message."""
    reason = getattr(result, "error_message", None)
    return FloodmarkError(f"{what}: {_error_or_none(result)}{f': {reason}' if reason else ''}")


def _error_or_none(result: Any) -> str | None:
    """Kafka's name of a result's error: INVALID_REPLICATION_FACTOR (38)."""
    code = result.error_code
    return f"{getattr(for_code(code), 'message', 'UNKNOWN')} ({code})" if code else None


# -- how a request is asked ---------------------------------------------------------------------------------

def once(to: Address) -> Ask:
    """Asks that broker over a connection for this one request."""
    async def ask(kind: Any, answer: Any, timeout_s: float, **fields: Any) -> Any:
        version = VERSIONS[kind][1]
        request = kind[version](**fields)
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

    return ask


class Brokers:
    """One connection to each broker, by address; one that missed an answer is closed and opened again."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._connections: dict[Address, Connection] = {}
        self._locks: dict[Address, asyncio.Lock] = {}

    def close(self) -> None:
        """Closes all connections. Safe to call twice."""
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()
        self._locks.clear()

    def to(self, address: Address) -> Ask:
        return partial(self._ask, address)

    async def metadata(self, to: Address, topics: Sequence[str], timeout_s: float = ASK_S) -> Metadata:
        """The metadata of the brokers, and of these topics."""
        named = [metadata.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        answer = await self._ask(to, metadata.MetadataRequest, metadata.MetadataResponse, timeout_s,
                                 topics=named, allow_auto_topic_creation=False)
        return Metadata(
            brokers={one.node_id: (one.host, one.port) for one in answer.brokers},
            controller=answer.controller_id,
            unknown=frozenset(topic.name for topic in answer.topics if topic.error_code == UNKNOWN_TOPIC),
            partitions={
                (topic.name, one.partition_index): PartitionState(
                    leader=one.leader_id, epoch=one.leader_epoch, isr=tuple(one.isr_nodes))
                for topic in answer.topics if not topic.error_code for one in topic.partitions})

    async def metadata_of_each(self, reached: Mapping[str, Address], topics: Sequence[str], timeout_s: float
                               ) -> dict[str, Metadata]:
        """The metadata of each broker by node, without brokers that are silent for timeout_s."""
        async def ask(address: Address) -> Metadata | None:
            with suppress(FloodmarkError, TimeoutError):
                async with asyncio.timeout(timeout_s):
                    return await self.metadata(address, topics, timeout_s)
            return None

        answers = await asyncio.gather(*map(ask, reached.values()))
        return {node: answer for node, answer in zip(reached, answers, strict=True) if answer is not None}

    async def unserved(self, to: Address) -> Mapping[str, str]:
        """What this broker does not serve of OF_OWN_CLUSTERS: name -> a sentence's end."""
        connection = await self._connection(to, ASK_S)
        return {_name(request): why for request in OF_OWN_CLUSTERS
                if (why := _version(request, connection)[1]) is not None}

    async def is_up(self, at: Address, timeout_s: float) -> bool:
        """Whether a broker answers there now, over a new connection. A refusal is an answer."""
        try:
            connection = await self._dial(*at, timeout_s)
        except Refused:
            return True
        except Unsent:
            return False
        connection.close()
        return True

    async def stamp(self, to: Address, topic: str, partition: int, batch: bytes) -> int | None:
        """Appends a batch with acks=1; returns the leader's LogAppendTime in ms. None: it gave none."""
        data = producer.ProduceRequest.TopicProduceData
        answer = await self._ask(
            to, producer.ProduceRequest, producer.ProduceResponse, ASK_S, transactional_id=None, acks=1,
            timeout_ms=int(1000 * ASK_S), topic_data=[data(name=topic, partition_data=[
                data.PartitionProduceData(index=partition, records=batch)])])
        placed = answer.responses[0].partition_responses[0]
        if placed.error_code:
            raise _refused(f"{topic}-{partition} takes no record", placed)
        stamp: int = placed.log_append_time_ms
        return stamp if stamp >= 0 else None

    async def _ask(self, to: Address, kind: Any, answer: Any, timeout_s: float, **fields: Any) -> Any:
        action = f"{_name(kind)} to {to[0]}:{to[1]}"
        try:
            async with self._locks.setdefault(to, asyncio.Lock()):
                connection = await self._connection(to, timeout_s)
                version, why = _version(kind, connection)
                if why is not None:
                    raise FloodmarkError(f"{action}: it {why}")
                request = kind(version=version, **fields)
                request.with_header(0, "floodmark")
                frame = bytearray(request.encode(version=version, header=True, framed=True))
                received = await connection.exchange(frame, timeout_s)
            return answer.decode(b"\0\0\0\0" + received, version=version, header=True)
        except Unsent as error:
            raise FloodmarkError(f"{action}: {str(error) or 'nothing answers there'}") from None
        except Lost as lost:
            raise FloodmarkError(f"{action}: {lost}") from None
        except (ValueError, IndexError, TypeError, KeyError, AttributeError) as error:
            raise FloodmarkError(f"{action}: an answer that cannot be read: {error}") from error

    async def _connection(self, to: Address, timeout_s: float) -> Connection:
        connection = self._connections.get(to)
        if connection is None or not connection.usable:
            connection = self._connections[to] = await self._dial(*to, timeout_s)
        return connection


def _name(request: Any) -> str:
    return str(request.__name__).removesuffix("Request")


def _version(request: Any, connection: Connection) -> tuple[int, str | None]:
    """The newest version of a request that both sides know; or why there is none."""
    least, most = VERSIONS[request]
    lowest, highest = connection.versions.get(request.API_KEY, (0, -1))
    version = min(most, highest)
    if highest < 0:
        return version, f"does not serve {_name(request)}"
    if version < max(least, lowest):
        return version, (f"serves {_name(request)} in versions {lowest} to {highest}, and floodmark needs "
                         f"{least} to {most}")
    return version, None
