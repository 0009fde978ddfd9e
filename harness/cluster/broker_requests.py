"""Sends Kafka's requests to brokers: about topics, settings, elections, reassignments, metadata, features,
and the ends of logs.

Rules
1. A request is asked by an `Ask`, within a time-out. `once` opens a connection for one request; `Brokers`
   keeps one connection to each broker.
2. An error code that means "it is so already" counts as success; the caller decides about any other.
3. Requests change only what the caller names.
4. LEO and HW of a replica, a follower's too: LEO by ListOffsets of the latest offset as a debugging consumer
   (replica_id -2), which every replica answers with the end of its log. HW by Fetch as a consumer at the last
   known LEO, which from version 11 on (KIP-392) followers may answer too, each with its own HW; at the LEO
   there is nothing to return. The HW is asked first and the LEO after it, on one connection, so that a
   replica that only appends never has a HW above its LEO. If one does, it truncated in between and is left
   out this time, as are replicas that answer with an error, and silent brokers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from kafka.errors import for_code
from kafka.protocol import admin, metadata, producer

from floodmark.harness.client import codec
from floodmark.harness.client.classify import UNKNOWN_TOPIC_OR_PARTITION
from floodmark.harness.client.codec import ClusterMetadata, TopicPartition, by_topic
from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent, connect
from floodmark.harness.client.security import Refused
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec

ASK_S = 10.0
# What a user's own cluster is sent, with the lowest version there: Metadata has leader epochs from 7 on.
OF_OWN_CLUSTERS: Mapping[Any, int] = {
    producer.ProduceRequest: 3, metadata.MetadataRequest: 7, admin.CreateTopicsRequest: 2,
    admin.DeleteTopicsRequest: 1, admin.DescribeConfigsRequest: 1, admin.ElectLeadersRequest: 1}
TOPIC, BROKER, SET = 2, 4, 0  # kinds of resource, an operation of IncrementalAlterConfigs
NOT_NEEDED = "ELECTION_NOT_NEEDED"
# A topic with these settings keeps all acked records, whatever the cluster's defaults are.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_WAIT_MS = 50  # some systems answer a Fetch that does not wait without its partitions
_ASKS = 4  # for the HW of a replica, the first of them possibly without a LEO
_ONE_BYTE = 1  # of records: none are wanted; one batch may come if the HW has passed the last known LEO

_NEWEST = {kind.API_KEY: versions for kind, versions in codec.VERSIONS.items()}

Address = tuple[str, int]
Ask = Callable[..., Awaitable[Any]]  # (request's class, time-out in s, its fields) -> response
Ends = Mapping[tuple[str, int], tuple[int, int]]  # (node, the history's key of the partition) -> (LEO, HW)
Answer = TypeVar("Answer")


def assignments(partitions: Sequence[PartitionSpec], ids: Mapping[str, int]) -> dict[str, list[list[int]]]:
    """The topics of create_topics. FloodmarkError if a topic lacks a partition."""
    topics: dict[str, list[list[int]]] = {}
    for spec in sorted(partitions, key=lambda one: one.place):
        assignment = topics.setdefault(spec.topic, [])
        if spec.partition != len(assignment):
            raise FloodmarkError(f"topic {spec.topic!r} lacks partition {len(assignment)}")
        assignment.append([ids[node] for node in spec.replicas])
    return topics


def keep_all(settings_of_topics: Iterable[Mapping[str, str]]) -> bool:
    """Whether no topic has other settings than KEPT."""
    return all(own.get(key, kept) == kept for own in settings_of_topics for key, kept in KEPT.items())


async def create_topics(ask: Ask, topics: Mapping[str, Sequence[Sequence[int]]], *, timeout_s: float,
                        configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """topics: name -> of each partition in order the ids of its replicas. configs: name -> Kafka's keys."""
    kind = admin.CreateTopicsRequest.CreatableTopic
    creatable = [
        kind(name=name, num_partitions=-1, replication_factor=-1,
             configs=[kind.CreatableTopicConfig(name=key, value=value)
                      for key, value in sorted((configs or {}).get(name, {}).items())],
             assignments=[kind.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                          for index, replicas in enumerate(assignment)])
        for name, assignment in sorted(topics.items())]
    answer = await ask(admin.CreateTopicsRequest, timeout_s, topics=creatable,
                       timeout_ms=int(timeout_s * 1000), validate_only=False)
    for topic in answer.topics:
        if topic.error_code:
            raise _refused(f"topic {topic.name!r} was not created", topic)


async def delete_topic(ask: Ask, name: str, *, timeout_s: float) -> None:
    """Deletes a topic; a missing one is no error."""
    answer = await ask(admin.DeleteTopicsRequest, timeout_s,
                       topic_names=[name], timeout_ms=int(timeout_s * 1000))
    for one in answer.responses:
        if one.error_code not in (0, UNKNOWN_TOPIC_OR_PARTITION):
            raise _refused(f"the topic {name} is not deleted", one)


async def alter_topic_configs(ask: Ask, configs: Mapping[str, Mapping[str, str]], *, timeout_s: float
                              ) -> None:
    """configs: topic name -> Kafka's keys. FloodmarkError if one is refused."""
    kind = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [kind(resource_type=TOPIC, resource_name=name,
                      configs=[kind.AlterableConfig(name=key, config_operation=SET, value=value)
                               for key, value in sorted(keys.items())])
                 for name, keys in sorted(configs.items())]
    answer = await ask(admin.IncrementalAlterConfigsRequest, timeout_s, resources=resources,
                       validate_only=False)
    for one in answer.responses:
        if one.error_code:
            raise _refused(f"the configs of topic {one.resource_name!r} were not altered", one)


async def settings(ask: Ask, kind: int, name: str) -> Mapping[str, str]:
    """The settings in force for a topic or a broker."""
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    answer = await ask(
        admin.DescribeConfigsRequest, ASK_S,
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=None)],
        include_synonyms=False, include_documentation=False)
    for one in answer.results:
        if one.error_code:
            raise _refused(f"the cluster does not show the settings of {name}", one)
        return {entry.name: entry.value for entry in one.configs if entry.value is not None}
    raise FloodmarkError(f"the cluster does not show the settings of {name}")


def chosen(specs: Sequence[PartitionSpec], partitions: Sequence[int]) -> list[PartitionSpec]:
    """The partitions with these keys; none: all."""
    found = [spec for spec in specs if not partitions or spec.key in partitions]
    if unknown := sorted(set(partitions) - {spec.key for spec in found}):
        raise FloodmarkError(f"there is no partition {unknown[0]} to elect a leader for")
    return found


async def elect(ask: Ask, specs: Sequence[PartitionSpec], *, unclean: bool, timeout_s: float = 30.0
                ) -> dict[int, str | None]:
    """Preferred leaders, or unclean ones. Returns Kafka's name of each error, by key; None: it was elected.
    """
    keys = {spec.place: spec.key for spec in specs}
    answer = await ask(
        admin.ElectLeadersRequest, timeout_s, election_type=int(unclean), timeout_ms=int(timeout_s * 1000),
        topic_partitions=[admin.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes)
                          for topic, indexes in by_topic(sorted(keys)).items()])
    if answer.error_code:
        raise _refused("no election", answer)
    return {keys[place]: _error_or_none(one) for result in answer.replica_election_results
            for one in result.partition_result if (place := (result.topic, one.partition_id)) in keys}


async def reassign(ask: Ask, orders: Mapping[TopicPartition, Sequence[int]], *, timeout_s: float
                   ) -> dict[TopicPartition, str | None]:
    """orders: the ids of the new replicas, preferred leader first. Returns Kafka's names of errors."""
    reassignable = admin.AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = by_topic(
        (topic, reassignable.ReassignablePartition(partition_index=partition, replicas=list(replicas)))
        for (topic, partition), replicas in sorted(orders.items()))
    answer = await ask(
        admin.AlterPartitionReassignmentsRequest, timeout_s, timeout_ms=int(timeout_s * 1000),
        topics=[reassignable(name=topic, partitions=partitions) for topic, partitions in topics.items()])
    if answer.error_code:
        raise _refused("no reassignment", answer)
    return {(topic.name, one.partition_index): _error_or_none(one)
            for topic in answer.responses for one in topic.partitions}


def election_result(errors: Mapping[int, str | None]) -> dict[str, Any]:
    """As harness.protocols: Elects says. A partition with the right leader is neither elected nor refused."""
    return {
        "elected": sorted(key for key, error in errors.items() if error is None),
        "refused": {str(key): error for key, error in sorted(errors.items())
                    if error is not None and not error.startswith(NOT_NEEDED)}}


async def finalized_features(ask: Ask, *, timeout_s: float) -> Mapping[str, int] | None:
    """Without features of level 0 (KIP-584); None: the broker knows none yet."""
    answer = await ask(metadata.ApiVersionsRequest, timeout_s,
                       client_software_name="floodmark", client_software_version="1")
    if answer.error_code:
        raise _refused("no ApiVersions", answer)
    if answer.finalized_features_epoch < 0:
        return None
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def _refused(what: str, result: Any) -> FloodmarkError:
    reason = getattr(result, "error_message", None)
    return FloodmarkError(f"{what}: {_error_or_none(result)}{f': {reason}' if reason else ''}")


def _error_or_none(result: Any) -> str | None:
    """Kafka's name of a result's error: INVALID_REPLICATION_FACTOR (38)."""
    code = result.error_code
    return f"{getattr(for_code(code), 'message', 'UNKNOWN')} ({code})" if code else None


def once(to: Address) -> Ask:
    """Asks that broker, which is ours and serves the newest versions, over a connection of its own."""
    async def ask(kind: Any, timeout_s: float, **fields: Any) -> Any:
        brokers = Brokers(partial(connect, versions=_NEWEST))
        try:
            return await brokers.to(to)(kind, timeout_s, **fields)
        finally:
            brokers.close()

    return ask


class Brokers:
    """One connection to each broker, by address; one that missed an answer is closed and opened again."""

    def __init__(self, dial: Dial = connect) -> None:
        self._dial = dial
        self._connections: dict[Address, Connection] = {}
        self._dialling: dict[Address, asyncio.Lock] = {}
        self._leos: dict[Address, dict[TopicPartition, int]] = {}  # the last known ones

    def close(self) -> None:
        """Safe to call twice."""
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()
        self._dialling.clear()

    def to(self, address: Address) -> Ask:
        """Asks that broker. FloodmarkError if it does not answer, or does not serve the request."""
        async def ask(kind: Any, timeout_s: float, **fields: Any) -> Any:
            with _explained(kind, address):
                return await codec.ask(await self._connect(address, timeout_s), kind, timeout_s, **fields)

        return ask

    async def metadata(self, to: Address, topics: Sequence[str], timeout_s: float = ASK_S) -> ClusterMetadata:
        with _explained(metadata.MetadataRequest, to):
            return await codec.metadata(await self._connect(to, timeout_s), topics, timeout_s)

    async def metadata_of_each(self, reached: Mapping[str, Address], topics: Sequence[str], timeout_s: float
                               ) -> dict[str, ClusterMetadata]:
        """The metadata of each broker by node, without brokers that are silent for timeout_s."""
        return await self._of_each(lambda _node, to: self.metadata(to, topics, timeout_s), reached, timeout_s)

    async def replica_ends(self, reached: Mapping[str, Address], partitions: Sequence[PartitionSpec],
                           timeout_s: float) -> Ends:
        """LEO and HW of every replica of these partitions that answers within timeout_s; all brokers at once.
        reached: the address of each broker; leave out brokers that are known not to run."""
        return await self._of_replicas(self._ends, reached, partitions, timeout_s)

    async def log_starts(self, reached: Mapping[str, Address], partitions: Sequence[PartitionSpec],
                         timeout_s: float) -> Mapping[tuple[str, int], int]:
        async def starts(to: Address, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            found = await codec.list_offsets(
                await self._connect(to, timeout_s), dict.fromkeys(places, -1), timeout_s, first=True,
                replica_id=codec.DEBUGGING_CONSUMER)
            return {place: part.offset for place, part in found.items() if not part.error_code}

        return await self._of_replicas(starts, reached, partitions, timeout_s)

    async def unserved(self, to: Address) -> Mapping[str, str]:
        connection = await self._connect(to, ASK_S)
        lacks = {}
        for request, lowest in OF_OWN_CLUSTERS.items():
            try:
                codec.choose_version(request, connection, lowest)
            except codec.Unserved as why:
                lacks[codec.name_of_request(request)] = str(why)
        return lacks

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

    async def stamp(self, to: Address, place: TopicPartition, batch: bytes) -> int | None:
        """Appends a batch with acks=1; returns the leader's LogAppendTime in ms. None: it gave none."""
        with _explained(producer.ProduceRequest, to):
            placed = (await codec.produce(await self._connect(to, ASK_S), {place: batch}, ASK_S, acks=1,
                                          timeout_ms=int(1000 * ASK_S)))[place]
        if placed.error_code:
            raise _refused(f"{place[0]}-{place[1]} takes no record", placed)
        stamp: int = placed.log_append_time_ms
        return stamp if stamp >= 0 else None

    async def _ends(self, to: Address, places: Sequence[TopicPartition]
                    ) -> dict[TopicPartition, tuple[int, int]]:
        """LEO and HW of these replicas. If no LEO was known, the log was cut below it, or an answer was empty
        (by a quota), the HW is asked for again after the LEO."""
        connection, leos = await self._connect(to, ASK_S), self._leos.setdefault(to, {})
        hws: dict[TopicPartition, int] = {}
        missing = places
        for _ in range(_ASKS):
            if known := {place: codec.FetchFrom(leos[place]) for place in missing if place in leos}:
                fetched = await codec.fetch(connection, known, ASK_S, max_wait_ms=_WAIT_MS, min_bytes=0,
                                            max_bytes=_ONE_BYTE)
                hws |= {place: part.hw for place, part in fetched.items() if not part.error}
            ends = await codec.list_offsets(connection, dict.fromkeys(missing, -1), ASK_S,
                                            replica_id=codec.DEBUGGING_CONSUMER)
            for place in missing:
                leos.pop(place, None)
            leos |= {place: part.offset for place, part in ends.items() if not part.error_code}
            missing = [place for place in missing if place in leos and place not in hws]
            if not missing:
                break
        return {place: (leos[place], hws[place]) for place in places
                if place in leos and hws.get(place, -1) in range(leos[place] + 1)}

    async def _of_replicas(
        self, ask: Callable[[Address, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, Answer]]],
        reached: Mapping[str, Address], partitions: Sequence[PartitionSpec], timeout_s: float,
    ) -> dict[tuple[str, int], Answer]:
        async def of(node: str, to: Address) -> dict[tuple[str, int], Answer]:
            keys = {spec.place: spec.key for spec in partitions if node in spec.replicas}
            answers = await ask(to, list(keys)) if keys else {}
            return {(node, keys[place]): value for place, value in answers.items()}

        found = await self._of_each(of, reached, timeout_s)
        return {replica: value for one in found.values() for replica, value in one.items()}

    async def _of_each(self, ask: Callable[[str, Address], Awaitable[Answer]], reached: Mapping[str, Address],
                       timeout_s: float) -> dict[str, Answer]:
        """The answers by node, without those of brokers that are silent for timeout_s."""
        async def of(node: str, to: Address) -> Answer | None:
            with suppress(TimeoutError, Unsent, Lost, codec.ProtocolError, FloodmarkError):
                async with asyncio.timeout(timeout_s):
                    return await ask(node, to)
            return None

        answers = await asyncio.gather(*(of(*one) for one in reached.items()))
        return {node: answer for node, answer in zip(reached, answers, strict=True) if answer is not None}

    async def _connect(self, to: Address, timeout_s: float) -> Connection:
        async with self._dialling.setdefault(to, asyncio.Lock()):
            connection = self._connections.get(to)
            if connection is None or not connection.usable:
                connection = self._connections[to] = await self._dial(*to, timeout_s)
            return connection


@contextmanager
def _explained(request: Any, to: Address) -> Iterator[None]:
    """Raises FloodmarkError where the request gets no answer."""
    action = f"{codec.name_of_request(request)} to {to[0]}:{to[1]}"
    try:
        yield
    except codec.Unserved as error:
        raise FloodmarkError(f"{action}: it {error}") from error
    except (Unsent, Lost, codec.ProtocolError) as error:
        raise FloodmarkError(f"{action}: {str(error) or 'nothing answers there'}") from error
