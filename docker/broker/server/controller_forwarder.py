"""Forwards clients' requests about topics, configs and elections to the controller; serves InitProducerId.

Rules
1. The client gets the controller's response, or REQUEST_TIMED_OUT where it sent none in time: then nobody
   knows whether the request was carried out.
2. A client gets the response about a topic once this broker's metadata has the change, so that the client's
   next request finds it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.metadata import Metadata
from floodmark.broker.server.config import Config
from floodmark.broker.server.controller_client import ProducerIdManager
from floodmark.broker.server.group_requests import TRANSACTION_REFUSED, GroupRequests
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.server.socket_server import Connection
from floodmark.broker.wire.api_keys import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
)
from floodmark.broker.wire.codec import (
    NO_THROTTLE_TIME,
    RequestHeader,
    convert_version,
    error_code,
    make,
    milliseconds,
    read_request,
    request_parts,
    response_parts,
    write_response,
)

_TIMEOUT_S_MAX = 60.0
_METADATA_WAIT_S_MAX = 5.0
_CREATE, _ELECT, _DELETE, _PARTITIONS = 7, 2, 6, 3  # versions between broker and controller
_ALTER = {ALTER_CONFIGS: 2, INCREMENTAL_ALTER_CONFIGS: 1}
_TIMED_OUT = {
    "error_code": error_code(errors.REQUEST_TIMED_OUT),
    "error_message": "the controller did not answer: nobody knows whether it was done",
}


class ControllerForwarder:
    """Each forwarded request is a task, and its connection waits for it."""

    def __init__(
        self,
        config: Config,
        controller_connection: NodeConnection,
        ids: ProducerIdManager,
        groups: GroupRequests,
        metadata: Callable[[], Metadata],
    ) -> None:
        self._config = config
        self._controller_connection = controller_connection
        self._producer_ids = ids
        self._groups = groups
        self._metadata = metadata
        self._new_metadata = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order
        self._creating: set[str] = set()
        self._serves: dict[int, Callable[[Any, RequestHeader], Coroutine[Any, Any, Any]]] = {
            CREATE_TOPICS: self._create_topics,
            DELETE_TOPICS: self._delete_topics,
            CREATE_PARTITIONS: self._create_partitions,
            ALTER_CONFIGS: self._alter_configs,
            INCREMENTAL_ALTER_CONFIGS: self._alter_configs,
            ELECT_LEADERS: self._elect_leaders,
            INIT_PRODUCER_ID: self._init_producer_id,
        }

    def metadata_changed(self) -> None:
        """Wake the requests that wait for new metadata."""
        self._new_metadata.set()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._controller_connection.close()

    def forward_request(self, connection: Connection, frame: bytes, head: RequestHeader) -> None:
        """Forward one request and answer it."""
        request = read_request(frame, head)
        serve = self._serves[head.key]

        async def run() -> None:
            try:
                body = await serve(request, head)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                halt_process("request-handler-failed", error)
            connection.answer(write_response(head.correlation, body))

        self._start_task(run())

    def _start_task(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    # -- topics ----------------------------------------------------------------------------------------------

    async def _create_topics(self, request: Any, head: RequestHeader) -> Any:
        cls, parts = response_parts(CREATE_TOPICS, head.version)
        results = await self._forward_create_topics(
            request.topics, request.timeout.total_seconds(), request.validate_only
        )
        return make(
            cls,
            throttle_time=NO_THROTTLE_TIME,
            topics=tuple(
                convert_version(result, parts.CreatableTopicResult) for result in results
            ),
        )

    async def _forward_create_topics(
        self, topics: Any, timeout_s: float, validate_only: bool
    ) -> list[Any]:
        """Returns a result of the controller's version for each topic."""
        timeout_s = min(max(timeout_s, 1.0), _TIMEOUT_S_MAX)
        cls, parts = request_parts(CREATE_TOPICS, _CREATE)
        body = make(
            cls,
            timeout=milliseconds(int(timeout_s * 1000)),
            validate_only=validate_only,
            topics=tuple(
                make(
                    parts.CreatableTopic,
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    assignments=tuple(
                        make(
                            parts.CreatableReplicaAssignment,
                            partition_index=each.partition_index,
                            broker_ids=each.broker_ids,
                        )
                        for each in topic.assignments
                    ),
                    configs=tuple(
                        make(parts.CreatableTopicConfig, name=each.name, value=each.value)
                        for each in topic.configs
                    ),
                )
                for topic in topics
            ),
        )
        try:
            answer = await self._controller_connection.send_request(
                CREATE_TOPICS, _CREATE, body, timeout_s=timeout_s
            )
        except Unreachable as unreachable:
            log("warning", "create-topics-unanswered", why=unreachable)
            result_cls = response_parts(CREATE_TOPICS, _CREATE)[1].CreatableTopicResult
            return [
                make(result_cls, name=topic.name, topic_id=None, configs=None, **_TIMED_OUT)
                for topic in topics
            ]
        made = [topic.name for topic in answer.topics if not topic.error_code]
        if not validate_only:
            await self._await_metadata(lambda: all(name in self._metadata().topics for name in made), made)
        return list(answer.topics)

    def auto_create_topic(self, name: str) -> None:
        """Create, once and in the background, a topic that a client asked for (auto.create.topics.enable)."""
        if name in self._creating:
            return
        self._creating.add(name)
        parts = request_parts(CREATE_TOPICS, _CREATE)[1]
        topic = make(
            parts.CreatableTopic,
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=(),
            configs=(),
        )

        async def run() -> None:
            try:
                for result in await self._forward_create_topics((topic,), 5.0, False):
                    log(
                        "info",
                        "topic-made-on-demand",
                        topic=name,
                        error=errors.error_name(int(result.error_code)),
                        message=result.error_message,
                    )
            finally:
                self._creating.discard(name)

        self._start_task(run())

    async def _delete_topics(self, request: Any, head: RequestHeader) -> Any:
        cls, parts = request_parts(DELETE_TOPICS, _DELETE)
        if head.version < _DELETE:  # names alone
            named = [make(parts.DeleteTopicState, name=name, topic_id=None) for name in request.topic_names]
            request = make(cls, topics=tuple(named), timeout=request.timeout)
        answer = await self._forward(request, DELETE_TOPICS, _DELETE, request.timeout.total_seconds())
        answer_cls, answer_parts = response_parts(DELETE_TOPICS, head.version)
        if answer is not None:
            gone = [each.name for each in answer.responses if not each.error_code]
            await self._await_metadata(
                lambda: not any(name in self._metadata().topics for name in gone), gone
            )
            return convert_version(answer, answer_cls)
        results = [
            make(answer_parts.DeletableTopicResult, name=each.name, topic_id=each.topic_id, **_TIMED_OUT)
            for each in request.topics
        ]
        return make(answer_cls, throttle_time=NO_THROTTLE_TIME, responses=tuple(results))

    async def _create_partitions(self, request: Any, head: RequestHeader) -> Any:
        answer = await self._forward(request, CREATE_PARTITIONS, _PARTITIONS, request.timeout.total_seconds())
        cls, parts = response_parts(CREATE_PARTITIONS, head.version)
        if answer is not None:
            wanted = {topic.name: topic.count for topic in request.topics}
            grown = [each.name for each in answer.results if not each.error_code]
            if not request.validate_only:
                await self._await_metadata(
                    lambda: all(self._partition_count(name) >= wanted[name] for name in grown), grown
                )
            return convert_version(answer, cls)
        results = [
            make(parts.CreatePartitionsTopicResult, name=topic.name, **_TIMED_OUT) for topic in request.topics
        ]
        return make(cls, throttle_time=NO_THROTTLE_TIME, results=tuple(results))

    async def _alter_configs(self, request: Any, head: RequestHeader) -> Any:
        """Forward AlterConfigs or IncrementalAlterConfigs."""
        timeout_s = self._config.socket_timeout_ms / 1000
        answer = await self._forward(request, head.key, _ALTER[head.key], timeout_s)
        cls, parts = response_parts(head.key, head.version)
        if answer is not None:
            topics = {each.resource_name: each.configs for each in request.resources}
            done = [each.resource_name for each in answer.responses if not each.error_code]
            if not request.validate_only:
                await self._await_metadata(
                    lambda: all(self._has_configs(name, topics[name]) for name in done), done
                )
            return convert_version(answer, cls)
        results = [
            make(
                parts.AlterConfigsResourceResponse, resource_type=each.resource_type,
                resource_name=each.resource_name, **_TIMED_OUT,
            )
            for each in request.resources
        ]  # fmt: skip
        return make(cls, throttle_time=NO_THROTTLE_TIME, responses=tuple(results))

    def _partition_count(self, name: str) -> float:
        """The partition count in this broker's metadata; infinite for a topic that has been deleted."""
        topic = self._metadata().topics.get(name)
        return float("inf") if topic is None else len(topic.partitions)

    def _has_configs(self, name: str, configs: Any) -> bool:
        """Whether this broker's metadata has these configs, or the topic no more."""
        topic = self._metadata().topics.get(name)
        return topic is None or all(
            topic.configs.get(each.name) == (None if getattr(each, "config_operation", 0) else each.value)
            for each in configs
        )

    async def _forward(self, request: Any, key: int, version: int, timeout_s: float) -> Any:
        """Forward the request; returns the controller's response, or None if there was none."""
        timeout_s = min(max(timeout_s, 1.0), _TIMEOUT_S_MAX)
        try:
            body = convert_version(request, request_parts(key, version)[0])
            return await self._controller_connection.send_request(key, version, body, timeout_s=timeout_s)
        except Unreachable as unreachable:
            log("warning", "controller-did-not-answer", api_key=key, why=unreachable)
            return None

    async def _await_metadata(self, arrived: Callable[[], bool], names: list[str]) -> None:
        """Wait, for a limited time, until this broker's metadata has the change."""
        try:
            async with asyncio.timeout(_METADATA_WAIT_S_MAX):
                while not arrived():
                    self._new_metadata.clear()
                    await self._new_metadata.wait()
        except TimeoutError:
            log("warning", "metadata-late", topics=",".join(names))

    # -- elections and producer ids --------------------------------------------------------------------------

    async def _elect_leaders(self, request: Any, head: RequestHeader) -> Any:
        cls, parts = request_parts(ELECT_LEADERS, _ELECT)
        named = request.topic_partitions
        body = make(
            cls,
            election_type=getattr(request, "election_type", 0),
            timeout=request.timeout,
            topic_partitions=None
            if named is None
            else tuple(
                make(parts.TopicPartitions, topic=each.topic, partitions=each.partitions) for each in named
            ),
        )
        timeout_s = min(max(request.timeout.total_seconds(), 1.0), _TIMEOUT_S_MAX)
        answer_cls, answer_parts = response_parts(ELECT_LEADERS, head.version)
        try:
            answer = await self._controller_connection.send_request(
                ELECT_LEADERS, _ELECT, body, timeout_s=timeout_s
            )
        except Unreachable as unreachable:
            log("warning", "elect-leaders-unanswered", why=unreachable)
            return make(
                answer_cls,
                throttle_time=NO_THROTTLE_TIME,
                error_code=error_code(errors.REQUEST_TIMED_OUT),
                replica_election_results=(),
            )
        results = tuple(
            make(
                answer_parts.ReplicaElectionResult,
                topic=each.topic,
                partition_result=tuple(
                    make(
                        answer_parts.PartitionResult,
                        partition_id=part.partition_id,
                        error_code=part.error_code,
                        error_message=part.error_message,
                    )
                    for part in each.partition_result
                ),
            )
            for each in answer.replica_election_results
        )
        return make(
            answer_cls,
            throttle_time=NO_THROTTLE_TIME,
            error_code=answer.error_code,
            replica_election_results=results,
        )

    async def _init_producer_id(self, request: Any, head: RequestHeader) -> Any:
        cls, _ = response_parts(INIT_PRODUCER_ID, head.version)
        transactional_id, producer_id = request.transactional_id, -1
        if transactional_id is not None:
            error = self._groups.refuse("transactions", head, TRANSACTION_REFUSED, id=transactional_id)
        else:
            timeout_s = self._config.socket_timeout_ms / 1000
            error, producer_id = await self._producer_ids.generate_producer_id(timeout_s)
        return make(
            cls,
            throttle_time=NO_THROTTLE_TIME,
            error_code=error_code(error),
            producer_id=producer_id,
            producer_epoch=-1 if error else 0,
        )
