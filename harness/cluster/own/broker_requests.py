"""Sends requests to the brokers of a user's own cluster by Kafka's wire: metadata, settings, topics of our
own.

Rules
1. There is one connection to each broker; one that missed an answer is closed and opened again.
2. The newest version that both sides know is used; if there is none, an error says so.
3. Requests change only what the caller names: topics of our own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent
from floodmark.harness.client.error_names import name_of
from floodmark.harness.client.security import Refused
from floodmark.harness.errors import FloodmarkError

ASK_S = 10.0
_SUPPORTED = {
    ProduceRequest: (3, 8), MetadataRequest: (7, 9), CreateTopicsRequest: (2, 4), DeleteTopicsRequest: (1, 4),
    DescribeConfigsRequest: (1, 4), ElectLeadersRequest: (1, 2),
}
_BROKER, _TOPIC = 4, 2  # DescribeConfigs' kinds of resource
_UNKNOWN_TOPIC = 3
_ELECTION_NOT_NEEDED = 84
_PREFERRED, _UNCLEAN = 0, 1

Address = tuple[str, int]


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
    partitions: Mapping[tuple[str, int], PartitionState]


class Brokers:
    """Connections to brokers by address."""

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

    async def metadata(self, to: Address, topics: Sequence[str], timeout_s: float = ASK_S) -> Metadata:
        """The metadata of the brokers, and of these topics."""
        named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        answer = await self._ask(to, MetadataRequest, MetadataResponse, timeout_s,
                                 topics=named, allow_auto_topic_creation=False)
        return Metadata(
            brokers={one.node_id: (one.host, one.port) for one in answer.brokers},
            controller=answer.controller_id,
            unknown=frozenset(topic.name for topic in answer.topics if topic.error_code == _UNKNOWN_TOPIC),
            partitions={
                (topic.name, one.partition_index): PartitionState(
                    leader=one.leader_id, epoch=one.leader_epoch, isr=tuple(one.isr_nodes))
                for topic in answer.topics if not topic.error_code for one in topic.partitions},
        )

    async def unserved(self, to: Address) -> Mapping[str, str]:
        """The requests of this module that this broker does not serve: name -> a sentence's end."""
        connection = await self._connection(to, ASK_S)
        return {_name(request): why for request in _SUPPORTED
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

    async def create_topic(self, to: Address, name: str, replicas: Sequence[Sequence[int]],
                           configs: Mapping[str, str]) -> None:
        """Creates a topic; FloodmarkError if refused. replicas: of each partition in order, by id, preferred
        leader first."""
        topic = CreateTopicsRequest.CreatableTopic
        answer = await self._ask(
            to, CreateTopicsRequest, CreateTopicsResponse, 3 * ASK_S,
            topics=[topic(
                name=name, num_partitions=-1, replication_factor=-1,
                configs=[topic.CreatableTopicConfig(name=key, value=value)
                         for key, value in configs.items()],
                assignments=[
                    topic.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                    for index, ids in enumerate(replicas)])],
            timeout_ms=int(2000 * ASK_S), validate_only=False)
        for one in answer.topics:
            if one.error_code:
                reason = f": {one.error_message}" if one.error_message else ""
                raise FloodmarkError(
                    f"the cluster does not create the topic {name}: {name_of(one.error_code)}{reason}")

    async def delete_topic(self, to: Address, name: str) -> None:
        """Deletes a topic; a missing one is no error."""
        answer = await self._ask(to, DeleteTopicsRequest, DeleteTopicsResponse, 3 * ASK_S,
                                 topic_names=[name], timeout_ms=int(2000 * ASK_S))
        for one in answer.responses:
            if one.error_code not in (0, _UNKNOWN_TOPIC):
                raise FloodmarkError(f"the topic {name} is not deleted: {name_of(one.error_code)}")

    async def topic_settings(self, to: Address, topic: str) -> Mapping[str, str]:
        """The settings in force for a topic."""
        return await self._settings(to, _TOPIC, topic)

    async def broker_settings(self, to: Address, broker: int) -> Mapping[str, str]:
        return await self._settings(to, _BROKER, str(broker))

    async def _settings(self, to: Address, kind: int, name: str) -> Mapping[str, str]:
        resource = DescribeConfigsRequest.DescribeConfigsResource
        answer = await self._ask(
            to, DescribeConfigsRequest, DescribeConfigsResponse, ASK_S,
            resources=[resource(resource_type=kind, resource_name=name, configuration_keys=None)],
            include_synonyms=False, include_documentation=False)
        for one in answer.results:
            if one.error_code:
                raise FloodmarkError(
                    f"the cluster does not show the settings of {name}: {name_of(one.error_code)}")
            return {entry.name: entry.value for entry in one.configs if entry.value is not None}
        raise FloodmarkError(f"the cluster does not show the settings of {name}")

    async def elect(self, to: Address, partitions: Sequence[tuple[str, int]], *, unclean: bool
                    ) -> Mapping[tuple[str, int], str | None]:
        """Elects leaders. Returns (topic, partition) -> why none was elected; None: one was, or leads
        already."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        answer = await self._ask(
            to, ElectLeadersRequest, ElectLeadersResponse, ASK_S,
            election_type=_UNCLEAN if unclean else _PREFERRED, timeout_ms=int(1000 * ASK_S),
            topic_partitions=[ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes)
                              for topic, indexes in by_topic.items()])
        if answer.error_code:
            return dict.fromkeys(partitions, name_of(answer.error_code))
        return {(result.topic, one.partition_id):
                None if one.error_code in (0, _ELECTION_NOT_NEEDED) else name_of(one.error_code)
                for result in answer.replica_election_results for one in result.partition_result}

    async def stamp(self, to: Address, topic: str, partition: int, batch: bytes) -> int | None:
        """Appends a batch with acks=1; returns the leader's LogAppendTime in ms. None: it gave none."""
        data = ProduceRequest.TopicProduceData
        answer = await self._ask(
            to, ProduceRequest, ProduceResponse, ASK_S, transactional_id=None, acks=1,
            timeout_ms=int(1000 * ASK_S), topic_data=[data(name=topic, partition_data=[
                data.PartitionProduceData(index=partition, records=batch)])])
        placed = answer.responses[0].partition_responses[0]
        if placed.error_code:
            raise FloodmarkError(f"{topic}-{partition} takes no record: {name_of(placed.error_code)}")
        stamp: int = placed.log_append_time_ms
        return stamp if stamp >= 0 else None

    async def _ask(self, to: Address, request: Any, response: Any, timeout_s: float, **fields: Any) -> Any:
        action = f"{_name(request)} to {to[0]}:{to[1]}"
        try:
            async with self._locks.setdefault(to, asyncio.Lock()):
                connection = await self._connection(to, timeout_s)
                version, why = _version(request, connection)
                if why is not None:
                    raise FloodmarkError(f"{action}: it {why}")
                made = request(version=version, **fields)
                made.with_header(0, "floodmark")
                frame = bytearray(made.encode(version=version, header=True, framed=True))
                answer = await connection.exchange(frame, timeout_s)
            return response.decode(b"\0\0\0\0" + answer, version=version, header=True)
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
    least, most = _SUPPORTED[request]
    lowest, highest = connection.versions.get(request.API_KEY, (0, -1))
    version = min(most, highest)
    if highest < 0:
        return version, f"does not serve {_name(request)}"
    if version < max(least, lowest):
        return version, (f"serves {_name(request)} in versions {lowest} to {highest}, and floodmark needs "
                         f"{least} to {most}")
    return version, None
