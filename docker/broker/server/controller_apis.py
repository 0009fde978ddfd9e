"""Serves the controller's requests: each becomes events of the controller, and their answers a response.

Rules
1. A request may name several topics or partitions: each is a step of its own and has an answer of its own.
2. Only a topic's configs can be altered while brokers run; a request about any other is refused at once.
3. An AlterPartition that was applied meets the failpoint C.alter_applied before its answer is sent.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from floodmark.broker import runtime
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import (
    AllocateProducerIds,
    AlterPartition,
    AlterTopic,
    ControllerEvent,
    CreateAnswer,
    CreateTopic,
    DeleteTopic,
    Elect,
    GrowTopic,
    Heartbeat,
    Register,
)
from floodmark.broker.protocol.metadata import Metadata, TopicInfo
from floodmark.broker.protocol.topic_placement import USE_DEFAULT
from floodmark.broker.server.api_versions import SERVED_BY_CONTROLLER, answer_api_versions
from floodmark.broker.server.socket_server import Connection
from floodmark.broker.server.topic_configs import TOPIC_RESOURCE, alter_configs, check_topic_configs
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.broker.wire import api_keys
from floodmark.broker.wire.codec import (
    NO_THROTTLE_TIME,
    RequestHeader,
    WireError,
    error_code,
    make,
    read_request,
    read_request_header,
    response_parts,
    write_response,
)

PARTITIONS_MAX = 10_000  # of one topic, so that a typing error does not fill the memory
_UNCLEAN = 1  # election type
_SET = 0


class ControllerApis:
    """`step` takes one event of the controller and returns the effect that answers it."""

    def __init__(
        self,
        metadata: Callable[[], Metadata],
        step: Callable[[ControllerEvent], Any],
        now_ms: Callable[[], int],
        failpoints: Failpoints,
    ) -> None:
        self._metadata = metadata
        self._step = step
        self._now_ms = now_ms
        self._failpoints = failpoints
        self._serves: Mapping[int, Callable[[Any, RequestHeader], Any]] = {
            api_keys.BROKER_REGISTRATION: self._register_broker,
            api_keys.BROKER_HEARTBEAT: self._handle_heartbeat,
            api_keys.ALLOCATE_PRODUCER_IDS: self._allocate_producer_ids,
            api_keys.CREATE_TOPICS: self._create_topics,
            api_keys.DELETE_TOPICS: self._delete_topics,
            api_keys.CREATE_PARTITIONS: self._create_partitions,
            api_keys.INCREMENTAL_ALTER_CONFIGS: self._alter_configs,
            api_keys.ALTER_CONFIGS: self._alter_configs,
            api_keys.ELECT_LEADERS: self._elect_leaders,
        }

    def handle_request(self, connection: Connection, frame: bytes) -> None:
        head = read_request_header(frame)
        if head.key == api_keys.API_VERSIONS:
            connection.answer(answer_api_versions(frame, head, SERVED_BY_CONTROLLER))
            return
        least, greatest = SERVED_BY_CONTROLLER.get(head.key, (1, 0))
        if not least <= head.version <= greatest:
            raise WireError(f"api key {head.key}, version {head.version} is not served by a controller")
        request = read_request(frame, head)
        if head.key == api_keys.ALTER_PARTITION:
            self._alter_partition(connection, request, head)
        else:
            connection.answer(write_response(head.correlation, self._serves[head.key](request, head)))

    # -- brokers and partitions ----------------------------------------------------------------------------

    def _register_broker(self, request: Any, head: RequestHeader) -> Any:
        if not request.listeners or request.incarnation_id is None:
            raise WireError("a registration without a listener or an incarnation")
        listener = request.listeners[0]
        answer = self._step(
            Register(
                now_ms=self._now_ms(),
                token=None,
                broker=request.broker_id,
                incarnation=request.incarnation_id.hex,
                host=listener.host,
                port=listener.port,
                clean=request.previous_broker_epoch >= 0,
            )
        )
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls,
            throttle_time=NO_THROTTLE_TIME,
            error_code=error_code(answer.error),
            broker_epoch=answer.broker_epoch,
        )

    def _handle_heartbeat(self, request: Any, head: RequestHeader) -> Any:
        answer = self._step(
            Heartbeat(
                now_ms=self._now_ms(),
                token=None,
                broker=request.broker_id,
                broker_epoch=request.broker_epoch,
                metadata_version=request.current_metadata_offset,
                stopping=request.want_shut_down,
            )
        )
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls,
            throttle_time=NO_THROTTLE_TIME,
            error_code=error_code(answer.error),
            is_caught_up=not answer.fenced,
            is_fenced=answer.fenced,
            should_shut_down=answer.may_stop,
        )

    def _alter_partition(self, connection: Connection, request: Any, head: RequestHeader) -> None:
        body, sites = alter_partitions(request, head, self._metadata(), self._step, self._now_ms())

        def answer() -> None:
            connection.answer(write_response(head.correlation, body))

        fate = Fate.GO
        if sites and self._failpoints.armed:
            fate = self._failpoints.meet(sites[0], answer, also=sites[1:])
        if fate is Fate.GO:
            answer()

    def _allocate_producer_ids(self, request: Any, head: RequestHeader) -> Any:
        answer = self._step(
            AllocateProducerIds(
                now_ms=self._now_ms(),
                token=None,
                broker=request.broker_id,
                broker_epoch=request.broker_epoch,
            )
        )
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls,
            throttle_time=NO_THROTTLE_TIME,
            error_code=error_code(answer.error),
            producer_id_start=answer.first,
            producer_id_len=answer.count,
        )

    def _elect_leaders(self, request: Any, head: RequestHeader) -> Any:
        named = tuple(
            (topic.topic, part) for topic in request.topic_partitions or () for part in topic.partitions
        )
        answer = self._step(
            Elect(
                now_ms=self._now_ms(),
                token=None,
                partitions=named,
                unclean=request.election_type == _UNCLEAN,
            )
        )
        cls, parts = response_parts(head.key, head.version)
        topics: dict[str, list[Any]] = {}
        for topic, partition, error in answer.results:
            topics.setdefault(topic, []).append(
                make(
                    parts.PartitionResult,
                    partition_id=partition,
                    error_code=error_code(error),
                    error_message=errors.error_name(error) if error else None,
                )
            )
        return make(
            cls,
            throttle_time=NO_THROTTLE_TIME,
            error_code=error_code(errors.NONE),
            replica_election_results=tuple(
                make(parts.ReplicaElectionResult, topic=topic, partition_result=tuple(results))
                for topic, results in topics.items()
            ),
        )

    # -- topics --------------------------------------------------------------------------------------------

    def _create_topics(self, request: Any, head: RequestHeader) -> Any:
        cls, parts = response_parts(head.key, head.version)
        results = []
        for topic in request.topics:
            topic_id = runtime.current.new_uuid()
            answer = self._create_topic(topic, topic_id, validate_only=request.validate_only)
            results.append(
                make(
                    parts.CreatableTopicResult,
                    name=topic.name,
                    error_code=error_code(answer.error),
                    error_message=answer.message or None,
                    topic_id=None if answer.error else topic_id,
                    num_partitions=answer.partitions,
                    replication_factor=answer.replication_factor,
                    configs=(),
                )
            )
        return make(cls, throttle_time=NO_THROTTLE_TIME, topics=tuple(results))

    def _create_topic(self, topic: Any, topic_id: uuid.UUID, *, validate_only: bool) -> CreateAnswer:
        configs = {each.name: each.value for each in topic.configs if each.value is not None}
        error, problem = check_topic_configs(configs)
        if error:
            return CreateAnswer(token=None, error=error, message=problem)
        counts = (topic.num_partitions, topic.replication_factor)
        if topic.assignments and counts != (USE_DEFAULT, USE_DEFAULT):
            problem = "an assignment, and a number of partitions or a replication factor"
            return CreateAnswer(token=None, error=errors.INVALID_REQUEST, message=problem)
        assignment = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
        if sorted(assignment) != list(range(len(topic.assignments))):
            problem = "partitions are not numbered from 0 without gaps"
            return CreateAnswer(token=None, error=errors.INVALID_REPLICA_ASSIGNMENT, message=problem)
        if topic.num_partitions > PARTITIONS_MAX:
            problem = f"more than {PARTITIONS_MAX} partitions"
            return CreateAnswer(token=None, error=errors.INVALID_PARTITIONS, message=problem)
        answer: CreateAnswer = self._step(
            CreateTopic(
                now_ms=self._now_ms(),
                token=None,
                topic=topic.name,
                topic_id=topic_id.hex,
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignment=tuple(assignment[index] for index in sorted(assignment)),
                configs=configs,
                validate_only=validate_only,
            )
        )
        return answer

    def _delete_topics(self, request: Any, head: RequestHeader) -> Any:
        cls, parts = response_parts(head.key, head.version)
        results = []
        for asked in request.topics:
            topic = self._find_topic(asked)
            if topic is None:
                by_id = asked.name is None
                error = errors.UNKNOWN_TOPIC_ID if by_id else errors.UNKNOWN_TOPIC_OR_PARTITION
                message: str | None = "there is no such topic"
            else:
                answer = self._step(DeleteTopic(now_ms=self._now_ms(), token=None, topic=topic.name))
                error, message = answer.error, answer.message or None
            results.append(
                make(
                    parts.DeletableTopicResult,
                    name=asked.name if topic is None else topic.name,
                    topic_id=asked.topic_id,
                    error_code=error_code(error),
                    error_message=message,
                )
            )
        return make(cls, throttle_time=NO_THROTTLE_TIME, responses=tuple(results))

    def _find_topic(self, asked: Any) -> TopicInfo | None:
        topics = self._metadata().topics
        if asked.name is not None:
            return topics.get(asked.name)
        wanted = asked.topic_id.hex if asked.topic_id else ""
        return next((topic for topic in topics.values() if topic.id == wanted), None)

    def _create_partitions(self, request: Any, head: RequestHeader) -> Any:
        cls, parts = response_parts(head.key, head.version)
        results = []
        for topic in request.topics:
            error, message = errors.INVALID_PARTITIONS, f"more than {PARTITIONS_MAX} partitions"
            if topic.count <= PARTITIONS_MAX:
                answer = self._step(
                    GrowTopic(
                        now_ms=self._now_ms(),
                        token=None,
                        topic=topic.name,
                        partitions=topic.count,
                        assignment=tuple(tuple(each.broker_ids) for each in topic.assignments or ()),
                        validate_only=request.validate_only,
                    )
                )
                error, message = answer.error, answer.message
            results.append(
                make(
                    parts.CreatePartitionsTopicResult,
                    name=topic.name,
                    error_code=error_code(error),
                    error_message=message or None,
                )
            )
        return make(cls, throttle_time=NO_THROTTLE_TIME, results=tuple(results))

    def _alter_configs(self, request: Any, head: RequestHeader) -> Any:
        """Serve AlterConfigs, which replaces all configs, and IncrementalAlterConfigs."""
        cls, parts = response_parts(head.key, head.version)
        replaces = head.key == api_keys.ALTER_CONFIGS
        results = []
        for resource in request.resources:
            error, message = self._alter_topic_configs(
                resource, replaces=replaces, validate_only=request.validate_only
            )
            results.append(
                make(
                    parts.AlterConfigsResourceResponse,
                    error_code=error_code(error),
                    error_message=message or None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return make(cls, throttle_time=NO_THROTTLE_TIME, responses=tuple(results))

    def _alter_topic_configs(self, resource: Any, *, replaces: bool, validate_only: bool) -> tuple[int, str]:
        if resource.resource_type != TOPIC_RESOURCE:
            return errors.INVALID_REQUEST, "only a topic's configs can be altered while brokers run"
        topic = self._metadata().topics.get(resource.resource_name)
        if topic is None:
            return errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.resource_name!r}"
        changes = [
            (each.name, _SET if replaces else each.config_operation, each.value) for each in resource.configs
        ]
        configs = alter_configs({} if replaces else topic.configs, changes)
        if isinstance(configs, str):
            return errors.INVALID_CONFIG, configs
        error, problem = check_topic_configs(configs)
        if error or validate_only:
            return error, problem
        answer = self._step(
            AlterTopic(now_ms=self._now_ms(), token=None, topic=topic.name, configs=configs)
        )
        return answer.error, answer.message


def alter_partitions(
    request: Any, head: RequestHeader, metadata: Metadata, step: Callable[[AlterPartition], Any], now_ms: int
) -> tuple[Any, list[FailpointSite]]:
    """(response, a failpoint site for each partition whose change was applied)."""
    cls, parts = response_parts(head.key, head.version)
    names = {topic.id: name for name, topic in metadata.topics.items()}
    topics, sites = [], []
    for topic in request.topics:
        name = names.get(topic.topic_id.hex if topic.topic_id else "")
        results_of_topic = []
        for part in topic.partitions:
            answer = None if name is None else step(_build_alter_event(request, name, part, now_ms))
            error = errors.UNKNOWN_TOPIC_ID if answer is None else answer.error
            if not error and answer is not None:
                sites.append(
                    FailpointSite(
                        name="C.alter_applied", topic=name, partition=part.partition_index,
                        epoch=answer.leader_epoch, peer=request.broker_id,
                    )
                )  # fmt: skip
            results_of_topic.append(
                make(
                    parts.PartitionData,
                    partition_index=part.partition_index,
                    error_code=error_code(error),
                    leader_id=-1 if answer is None else answer.leader,
                    leader_epoch=-1 if answer is None else answer.leader_epoch,
                    isr=() if answer is None else answer.isr,
                    partition_epoch=-1 if answer is None else answer.partition_epoch,
                )
            )
        topics.append(make(parts.TopicData, topic_id=topic.topic_id, partitions=tuple(results_of_topic)))
    no_error = error_code(errors.NONE)
    body = make(cls, throttle_time=NO_THROTTLE_TIME, error_code=no_error, topics=tuple(topics))
    return body, sites


def _build_alter_event(request: Any, topic: str, part: Any, now_ms: int) -> AlterPartition:
    return AlterPartition(
        now_ms=now_ms,
        token=None,
        topic=topic,
        partition=part.partition_index,
        broker=request.broker_id,
        broker_epoch=request.broker_epoch,
        leader_epoch=part.leader_epoch,
        partition_epoch=part.partition_epoch,
        isr=tuple((each.broker_id, each.broker_epoch) for each in part.new_isr_with_epochs),
    )
