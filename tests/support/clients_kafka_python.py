"""The ordinary calls of kafka-python."""

import contextlib
import re
from collections.abc import Callable, Iterator

from client_calls import COMPRESSIONS, NO_GROUPS, NO_TRANSACTIONS, OK, Call, Row, Scene, play, scene
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, __version__
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    OffsetSpec,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import BrokerResponseError, IncompatibleBrokerVersion, for_code

from floodmark.broker.protocol.errors import error_name

WAIT_MS = 60_000
Made = Callable[[Scene], str]


def _answer(ask: Callable[[], object]) -> str:
    try:
        ask()
    except IncompatibleBrokerVersion:
        return "UNSUPPORTED_VERSION"
    except BrokerResponseError as error:
        return error_name(error.errno)
    return OK


@contextlib.contextmanager
def _admin(at: Scene) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=at.bootstrap.split(","))
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def _consumer(at: Scene, *topics: str, group: str | None = None) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        *topics, bootstrap_servers=at.bootstrap.split(","), group_id=group, metrics_enabled=False,
        auto_offset_reset="earliest", consumer_timeout_ms=WAIT_MS, enable_auto_commit=False,
    )  # fmt: skip
    try:
        yield consumer
    finally:
        consumer.close()


@contextlib.contextmanager
def _producer(at: Scene, **config: object) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(
        bootstrap_servers=at.bootstrap.split(","), metrics_enabled=False, acks="all", linger_ms=20, **config
    )
    try:
        yield producer
    finally:
        producer.close(timeout=5)


def _by_admin(ask: Callable[[KafkaAdminClient, str], object]) -> Made:
    """The answer to a call about the topic."""
    def run(at: Scene) -> str:
        with _admin(at) as admin:
            return _answer(lambda: ask(admin, at.topic))

    return run


def _describe(admin: KafkaAdminClient, topic: str) -> None:
    (found,) = admin.describe_topics([topic])
    if found["error_code"]:
        raise for_code(found["error_code"])


_create = _by_admin(
    lambda admin, topic: admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 3}}))
_delete = _by_admin(lambda admin, topic: admin.delete_topics([topic]))


def _configs(admin: KafkaAdminClient, kind: ConfigResourceType, name: str) -> dict[str, str]:
    (of_kind,) = admin.describe_configs([ConfigResource(kind, name)], config_filter="all").values()
    return {key: entry["value"] for key, entry in of_kind[name].items()}


def _has(kind: ConfigResourceType, key: str, value: str, name: str = "") -> Made:
    """Whether the topic, or a broker by that name, has this config."""
    def run(at: Scene) -> str:
        with _admin(at) as admin:
            assert _configs(admin, kind, name or at.topic)[key] == value
            return OK

    return run


def _alter(at: Scene, incremental: bool, **configs: str) -> str:
    asked = {key.replace("_", "."): value for key, value in configs.items()}
    with _admin(at) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, at.topic, asked)
        answer = admin.alter_configs([resource], incremental=incremental, raise_on_unknown=False)
        (found,) = answer.values()
        error = re.match(r"\[Error (\d+)]", found[at.topic])
        if error:
            return error_name(int(error[1]))
        assert found[at.topic] == "OK"
        configs_now = _configs(admin, ConfigResourceType.TOPIC, at.topic)
        assert {key: configs_now[key] for key in asked} == asked
        return OK


# -- records -----------------------------------------------------------------------------------------------


def _produce_and_read(compression: str) -> Made:
    values = [f"{compression} " + "v" * 99 + str(n) for n in range(20)]

    def run(at: Scene) -> str:
        partition = TopicPartition(at.topic, 0)
        kind = None if compression == "none" else compression
        with _producer(at, compression_type=kind, enable_idempotence=False) as producer:
            sent = [
                producer.send(at.topic, value.encode(), partition=0, timestamp_ms=1_000_000 + len(value))
                for value in values
            ]
            offsets = [each.get(timeout=WAIT_MS / 1000).offset for each in sent]
        with _consumer(at) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, offsets[0])
            found = [record.value.decode() for _, record in zip(values, consumer, strict=False)]
        assert found == values
        return OK

    return run


def _idempotent(at: Scene) -> str:
    with _producer(at, enable_idempotence=True) as producer:
        producer.send(at.topic, b"i", partition=0).get(timeout=WAIT_MS / 1000)
    return OK


def _stored(at: Scene) -> str:
    partition = TopicPartition(at.topic, 0)
    with _consumer(at, group="calls") as consumer:
        assert consumer.committed(partition) is None
        consumer.assign([partition])
        assert next(consumer).offset == 0
    return OK


def _times(at: Scene) -> str:
    partition = TopicPartition(at.topic, 0)
    tenth = 1_000_000 + len("none " + "v" * 99 + "10")
    with _consumer(at) as consumer:
        found = [consumer.offsets_for_times({partition: when})[partition] for when in (0, tenth, 1 << 50)]
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition])[partition] > 100
    assert [each and each.offset for each in found] == [0, 10, None], found
    return OK


def _list_offsets(at: Scene) -> str:
    partition = TopicPartition(at.topic, 0)
    with _admin(at) as admin:
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, 5, OffsetSpec.MAX_TIMESTAMP):
            assert admin.list_partition_offsets({partition: spec})[partition].offset >= 0, spec
    return OK


# -- what the broker does not offer -------------------------------------------------------------------------


def _groups(at: Scene) -> str:
    with _admin(at) as admin:
        assert admin.list_groups() == []
    return OK


def _subscribe(at: Scene) -> str:
    with _consumer(at, at.topic, group="calls") as consumer:
        return _answer(lambda: next(consumer))


def _commit(at: Scene) -> str:
    with _consumer(at, group="calls") as consumer:
        consumer.assign([TopicPartition(at.topic, 0)])
        next(consumer)
        return _answer(consumer.commit)


def _transaction(at: Scene) -> str:
    with _producer(at, transactional_id=at.topic) as producer:
        return _answer(producer.init_transactions)


_ACLS = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY,
                  ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY))
CALLS = [Call(name=name, expected=expected, run=run) for name, expected, run in [
    ("list topics", OK, _by_admin(lambda admin, _: admin.list_topics())),
    ("describe the cluster", OK, _by_admin(lambda admin, _: admin.describe_cluster())),
    ("create a topic", OK, _create),
    ("create it again", "TOPIC_ALREADY_EXISTS", _create),
    ("describe it", OK, _by_admin(_describe)),
    ("add partitions", OK, _by_admin(lambda admin, topic: admin.create_partitions({topic: 2}))),
    ("describe its configs", OK, _has(ConfigResourceType.TOPIC, "min.insync.replicas", "2")),
    ("alter its configs", OK, lambda at: _alter(at, True, min_insync_replicas="1")),
    ("alter them (AlterConfigs)", OK, lambda at: _alter(at, False, flush_messages="9")),
    ("alter a config that is none", "INVALID_CONFIG", lambda at: _alter(at, True, no_such_config="1")),
    ("cleanup.policy=compact", "POLICY_VIOLATION", lambda at: _alter(at, True, cleanup_policy="compact")),
    ("describe a broker's configs", OK, _has(ConfigResourceType.BROKER, "node.id", "1", "1")),
    *((f"produce ({each}), assign, read", OK, _produce_and_read(each)) for each in COMPRESSIONS),
    ("produce (idempotent)", OK, _idempotent),
    ("assign without an offset", OK, _stored),
    ("offsets by time", OK, _times),
    ("list offsets (KafkaAdminClient)", OK, _list_offsets),
    ("list groups", OK, _groups),
    ("subscribe", NO_GROUPS, _subscribe),
    ("commit", NO_GROUPS, _commit),
    ("init_transactions", NO_TRANSACTIONS, _transaction),
    ("delete records", "UNSUPPORTED_VERSION",
     _by_admin(lambda admin, topic: admin.delete_records({TopicPartition(topic, 0): 1}))),
    ("describe ACLs", "UNSUPPORTED_VERSION", _by_admin(lambda admin, _: admin.describe_acls(_ACLS))),
    ("delete the topic", OK, _delete),
    ("delete it again", "UNKNOWN_TOPIC_OR_PARTITION", _delete),
    ("describe what is deleted", "UNKNOWN_TOPIC_OR_PARTITION", _by_admin(_describe)),
]]  # fmt: skip


def rows(bootstrap: str) -> list[Row]:
    return play("kafka-python", __version__, CALLS, scene(bootstrap, "kafka-python"))
