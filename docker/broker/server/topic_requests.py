"""What clients ask of the controller about topics, beside their making: configs, more partitions, their end.

Rules
1. A request names several topics: each is a step of its own and has an answer of its own.
2. Only topics have configs that can be altered while brokers run; of anything else it is said at once.
"""

from collections.abc import Callable
from typing import Any

from broker.protocol import errors
from broker.protocol.messages import AlterTopic, DeleteTopic, GrowTopic
from broker.protocol.metadata import Metadata, TopicInfo
from broker.server.topic_configs import alter_configs, check_topic_configs
from broker.wire import api_keys
from broker.wire.codec import RequestHeader, error_code, make, milliseconds, response_parts

PARTITIONS_MAX = 10_000  # of one topic: a typing error must not fill the memory
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_SET = 0
_NO_TIME = milliseconds(0)


class TopicRequests:
    """`serves` turns a request into steps of the controller, and these into the answer's body."""

    def __init__(
        self, metadata: Callable[[], Metadata], step: Callable[[Any], Any], now_ms: Callable[[], int]
    ) -> None:
        self._metadata = metadata
        self._step = step
        self._now_ms = now_ms
        self.serves: dict[int, Callable[[Any, RequestHeader], Any]] = {
            api_keys.DELETE_TOPICS: self._delete_topics,
            api_keys.CREATE_PARTITIONS: self._create_partitions,
            api_keys.INCREMENTAL_ALTER_CONFIGS: self._alter_configs,
            api_keys.ALTER_CONFIGS: self._alter_configs,
        }

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
        return make(cls, throttle_time=_NO_TIME, responses=tuple(results))

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
        return make(cls, throttle_time=_NO_TIME, results=tuple(results))

    def _alter_configs(self, request: Any, head: RequestHeader) -> Any:
        """Both AlterConfigs, which gives all configs anew, and IncrementalAlterConfigs."""
        cls, parts = response_parts(head.key, head.version)
        anew = head.key == api_keys.ALTER_CONFIGS
        results = []
        for resource in request.resources:
            error, message = self._alter_one(resource, anew=anew, validate_only=request.validate_only)
            results.append(
                make(
                    parts.AlterConfigsResourceResponse,
                    error_code=error_code(error),
                    error_message=message or None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return make(cls, throttle_time=_NO_TIME, responses=tuple(results))

    def _alter_one(self, resource: Any, *, anew: bool, validate_only: bool) -> tuple[int, str]:
        if resource.resource_type != TOPIC_RESOURCE:
            return errors.INVALID_REQUEST, "only a topic's configs can be altered while brokers run"
        topic = self._metadata().topics.get(resource.resource_name)
        if topic is None:
            return errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.resource_name!r}"
        changes = [
            (each.name, _SET if anew else each.config_operation, each.value) for each in resource.configs
        ]
        configs = alter_configs({} if anew else topic.configs, changes)
        if isinstance(configs, str):
            return errors.INVALID_CONFIG, configs
        error, problem = check_topic_configs(configs)
        if error or validate_only:
            return error, problem
        answer = self._step(
            AlterTopic(now_ms=self._now_ms(), token=None, topic=topic.name, configs=configs)
        )
        return answer.error, answer.message
