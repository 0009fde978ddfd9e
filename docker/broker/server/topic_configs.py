"""Checks, alters and describes topic configs: which ones Kafka has, and which have an effect here.

Rules
1. A config that Kafka does not have is refused (INVALID_CONFIG), as in Kafka.
2. A config of Kafka's that this broker does not implement is refused if it would change what a client sees in
   its records (POLICY_VIOLATION: compaction, timestamps and compression by the broker). The rest is stored
   and described, and has no effect: retention, index files, throttles.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from floodmark.broker.protocol import errors
from floodmark.broker.server.config import Config, parse_value

SERVED = {  # topic config -> the broker config of the same meaning, and of the same values
    "min.insync.replicas": "min.insync.replicas",
    "flush.messages": "log.flush.interval.messages",
    "segment.bytes": "log.segment.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
_ONLY_VALUES = {  # configs of which this broker implements one value
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "compression.type": "producer",
}
_WITHOUT_EFFECT = frozenset(
    (
        "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "delete.retention.ms",
        "file.delete.delay.ms", "flush.ms", "follower.replication.throttled.replicas",
        "index.interval.bytes", "leader.replication.throttled.replicas", "local.retention.bytes",
        "local.retention.ms", "max.compaction.lag.ms", "max.message.bytes", "message.downconversion.enable",
        "message.format.version", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms", "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
        "preallocate", "remote.copy.disable", "remote.log.copy.disable", "remote.log.delete.on.disable",
        "remote.storage.enable", "retention.bytes", "retention.ms", "segment.index.bytes",
        "segment.jitter.ms", "segment.ms",
    )
)  # fmt: skip
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4  # resource types
_SET, _DELETE = 0, 1  # operations of IncrementalAlterConfigs; 2 and 3 are for lists


def check_topic_configs(configs: Mapping[str, str]) -> tuple[int, str]:
    """Check a topic's configs: (Kafka's error, why), or (0, "")."""
    for key, value in configs.items():
        if key in SERVED:
            try:
                parse_value(SERVED[key], value)
            except ValueError as error:
                return errors.INVALID_CONFIG, f"{key}: {error}"
        elif key in _ONLY_VALUES:
            if value != _ONLY_VALUES[key]:
                only = _ONLY_VALUES[key]
                return errors.POLICY_VIOLATION, f"{key}: this broker does {only} only, not {value!r}"
        elif key not in _WITHOUT_EFFECT:
            return errors.INVALID_CONFIG, f"there is no topic config {key!r}"
    return errors.NONE, ""


def alter_configs(
    configs: Mapping[str, str], changes: Iterable[tuple[str, int, str | None]]
) -> dict[str, str] | str:
    """Apply changes (name, operation, value): the new configs, or the reason why that is impossible."""
    now = dict(configs)
    for name, operation, value in changes:
        if operation == _DELETE:
            now.pop(name, None)
        elif operation != _SET:
            return f"{name} is no list: it can be set and deleted"
        elif value is None:
            return f"{name}: no value is given"
        else:
            now[name] = value
    return now


# -- DescribeConfigs ---------------------------------------------------------------------------------------

TOPIC, STATIC, DEFAULT = 1, 4, 5  # sources: DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7  # types
_TYPES = {"flush.messages": LONG, "cleanup.policy": LIST}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """One config as DescribeConfigs shows it. `synonyms`: (name, value, source), the effective one first."""

    name: str
    value: str
    source: int
    type: int
    read_only: bool
    synonyms: tuple[tuple[str, str, int], ...]


def describe_topic_configs(configs: Mapping[str, str], config: Config) -> list[DescribedConfig]:
    """Describe all configs that have an effect here, and all that the topic was given."""
    brokers = {each.name: each for each in describe_broker_configs(config)}
    found = []
    for name in sorted({*SERVED, *_ONLY_VALUES, *configs}):
        below: tuple[tuple[str, str, int], ...] = ()
        kind = STRING
        if name in SERVED:
            below, kind = brokers[SERVED[name]].synonyms, brokers[SERVED[name]].type
        elif name in _ONLY_VALUES:
            below = ((name, _ONLY_VALUES[name], DEFAULT),)
        own = ((name, configs[name], TOPIC),) if name in configs else ()
        synonyms = own + below
        _, value, source = synonyms[0]
        found.append(
            DescribedConfig(
                name=name, value=value, source=source, type=_TYPES.get(name, kind), read_only=False,
                synonyms=synonyms,
            )
        )
    return found


def describe_broker_configs(config: Config) -> list[DescribedConfig]:
    """Describe Kafka's keys that this broker knows. None can be altered while it runs."""
    found = []
    for name, value, default in config.describe_kafka_keys():
        source = DEFAULT if value == default else STATIC
        kind = BOOLEAN if value in ("true", "false") else INT if value.isdecimal() else STRING
        found.append(
            DescribedConfig(name=name, value=value, source=source, type=kind, read_only=True,
                      synonyms=((name, value, source),))
        )  # fmt: skip
    return found
