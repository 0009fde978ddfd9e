"""Serves DescribeConfigs: any broker describes topics, each broker describes itself."""

from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.metadata import Metadata
from floodmark.broker.server.config import Config
from floodmark.broker.server.topic_configs import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    DescribedConfig,
    describe_broker_configs,
    describe_topic_configs,
)
from floodmark.broker.wire.codec import NO_THROTTLE_TIME, RequestHeader, error_code, make, response_parts


def describe_configs(request: Any, head: RequestHeader, metadata: Metadata, config: Config) -> Any:
    """Build the response's body."""
    cls, parts = response_parts(head.key, head.version)
    results = []
    for resource in request.resources:
        found = _describe_resource(resource, metadata, config)
        error, message, described = found if isinstance(found, tuple) else (errors.NONE, None, found)
        wanted = resource.configuration_keys
        results.append(
            make(
                parts.DescribeConfigsResult,
                error_code=error_code(error),
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    _write_config(parts, each, request.include_synonyms)
                    for each in described
                    if wanted is None or each.name in wanted
                ),
            )
        )
    return make(cls, throttle_time=NO_THROTTLE_TIME, results=tuple(results))


def _describe_resource(
    resource: Any, metadata: Metadata, config: Config
) -> list[DescribedConfig] | tuple[int, str, list[DescribedConfig]]:
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        topic = metadata.topics.get(name)
        if topic is None:
            return errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}", []
        return describe_topic_configs(topic.configs, config)
    if resource.resource_type == BROKER_RESOURCE:
        if not name:
            return []  # the dynamic defaults of all brokers: none can be set
        if name != str(config.node_id):
            return errors.INVALID_REQUEST, f"this is broker {config.node_id}, not {name!r}", []
        return describe_broker_configs(config)
    return errors.INVALID_REQUEST, f"resource type {resource.resource_type} is not served", []


def _write_config(parts: Any, each: DescribedConfig, with_synonyms: bool) -> Any:
    synonyms = each.synonyms if with_synonyms else ()
    return make(
        parts.DescribeConfigsResourceResult,
        name=each.name,
        value=each.value,
        read_only=each.read_only,
        config_source=each.source,
        is_sensitive=False,
        synonyms=tuple(
            make(parts.DescribeConfigsSynonym, name=name, value=value, source=source)
            for name, value, source in synonyms
        ),
        config_type=each.type,
        documentation=None,
    )
