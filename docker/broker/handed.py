"""What a broker hands on to the controller for its clients: CreateTopics, ElectLeaders; and producer ids.

Rules
1. The controller's answer is the answer; REQUEST_TIMED_OUT where it gave none in time (nobody knows then).
2. A topic that was made is answered for once this broker knows it too, so that what follows finds it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from broker import errors
from broker.asking import ProducerIds
from broker.config import Config
from broker.dialling import Line, Unreachable
from broker.logline import die, log
from broker.metadata import Metadata
from broker.serving import Connection
from broker.wire import (
    CREATE_TOPICS,
    ELECT_LEADERS,
    INIT_PRODUCER_ID,
    Head,
    error_code,
    make,
    milliseconds,
    read_request,
    request_parts,
    response_parts,
    write_response,
)

_TIMEOUT_S_MAX = 60.0
_CREATE, _ELECT = 7, 2
_NO_TIME = milliseconds(0)


class Handed:
    """The requests that take a while: each is a task, and its connection waits for it."""

    def __init__(
        self, config: Config, line: Line, ids: ProducerIds, metadata: Callable[[], Metadata]
    ) -> None:
        self._config = config
        self._line = line
        self._ids = ids
        self._metadata = metadata
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating: set[str] = set()

    def news(self) -> None:
        """New metadata was taken."""
        self._news.set()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._line.close()

    def begin(
        self, serve: Callable[[Any, Head], Any], connection: Connection, frame: bytes, head: Head
    ) -> None:
        """`serve` is one of the coroutines below; what it returns is the answer's body."""
        request = read_request(frame, head)

        async def run() -> None:
            try:
                body = await serve(request, head)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                die("request-handler-failed", error)
            connection.answer(write_response(head.correlation, body))

        self._keep(run())

    def _keep(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- topics ----------------------------------------------------------------------------------------------

    async def create_topics(self, request: Any, head: Head) -> Any:
        cls, parts = response_parts(CREATE_TOPICS, head.version)
        results = await self._create(request.topics, request.timeout.total_seconds(), request.validate_only)
        return make(
            cls,
            throttle_time=_NO_TIME,
            topics=tuple(
                make(
                    parts.CreatableTopicResult,
                    name=name,
                    error_code=error_code(error),
                    error_message=message,
                    topic_id=topic_id,
                    configs=(),
                )
                for name, error, message, topic_id in results
            ),
        )

    async def _create(
        self, topics: Any, timeout_s: float, validate_only: bool
    ) -> list[tuple[str, int, Any, Any]]:
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
            answer = await self._line.ask(CREATE_TOPICS, _CREATE, body, timeout_s=timeout_s)
        except Unreachable as unreachable:
            log("warning", "create-topics-unanswered", why=unreachable)
            return [(topic.name, errors.REQUEST_TIMED_OUT, str(unreachable), None) for topic in topics]
        made = [topic.name for topic in answer.topics if not topic.error_code]
        if not validate_only:
            await self._known(made, timeout_s)
        return [
            (topic.name, int(topic.error_code), topic.error_message, topic.topic_id)
            for topic in answer.topics
        ]

    async def _known(self, names: list[str], timeout_s: float) -> None:
        """Wait until this broker has heard of these topics; but not for ever."""
        try:
            async with asyncio.timeout(timeout_s):
                while not all(name in self._metadata().topics for name in names):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            log("warning", "topics-not-heard-of", topics=",".join(names))

    def create_by_itself(self, name: str) -> None:
        """auto.create.topics.enable: a client asked for a topic that is not there; made once, beside the
        answer."""
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
                for _, error, message, _ in await self._create((topic,), 5.0, False):
                    log(
                        "info",
                        "topic-made-on-demand",
                        topic=name,
                        error=errors.name_of(error),
                        message=message,
                    )
            finally:
                self._creating.discard(name)

        self._keep(run())

    # -- elections and producer ids
    # ----------------------------------------------------------------------------

    async def elect_leaders(self, request: Any, head: Head) -> Any:
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
            answer = await self._line.ask(ELECT_LEADERS, _ELECT, body, timeout_s=timeout_s)
        except Unreachable as unreachable:
            log("warning", "elect-leaders-unanswered", why=unreachable)
            return make(
                answer_cls,
                throttle_time=_NO_TIME,
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
            throttle_time=_NO_TIME,
            error_code=answer.error_code,
            replica_election_results=results,
        )

    async def init_producer_id(self, request: Any, head: Head) -> Any:
        cls, _ = response_parts(INIT_PRODUCER_ID, head.version)
        if request.transactional_id is not None:  # transactions are not served
            error, producer_id = errors.INVALID_REQUEST, -1
        else:
            error, producer_id = await self._ids.take(self._config.socket_timeout_ms / 1000)
        return make(
            cls,
            throttle_time=_NO_TIME,
            error_code=error_code(error),
            producer_id=producer_id,
            producer_epoch=-1 if error else 0,
        )
