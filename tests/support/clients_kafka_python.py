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


def _list(at: Scene) -> str:
    with _admin(at) as admin:
        return _answer(admin.list_topics)


def _cluster(at: Scene) -> str:
    with _admin(at) as admin:
        return _answer(admin.describe_cluster)


def _create(at: Scene) -> str:
    with _admin(at) as admin:
        wanted = {at.topic: {"num_partitions": 1, "replication_factor": 3}}
        return _answer(lambda: admin.create_topics(wanted))


def _describe(at: Scene) -> str:
    def ask() -> None:
        with _admin(at) as admin:
            (topic,) = admin.describe_topics([at.topic])
            if topic["error_code"]:
                raise for_code(topic["error_code"])

    return _answer(ask)


def _grow(at: Scene) -> str:
    with _admin(at) as admin:
        return _answer(lambda: admin.create_partitions({at.topic: 2}))


def _configs(admin: KafkaAdminClient, kind: ConfigResourceType, name: str) -> dict[str, str]:
    (of_kind,) = admin.describe_configs([ConfigResource(kind, name)], config_filter="all").values()
    return {key: entry["value"] for key, entry in of_kind[name].items()}


def _describe_configs(at: Scene) -> str:
    with _admin(at) as admin:
        assert _configs(admin, ConfigResourceType.TOPIC, at.topic)["min.insync.replicas"] == "2"
        return OK


def _describe_broker(at: Scene) -> str:
    with _admin(at) as admin:
        assert _configs(admin, ConfigResourceType.BROKER, "1")["node.id"] == "1"
        return OK


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


def _produce_and_read(compression: str) -> Callable[[Scene], str]:
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


def _delete_records(at: Scene) -> str:
    with _admin(at) as admin:
        return _answer(lambda: admin.delete_records({TopicPartition(at.topic, 0): 1}))


def _acls(at: Scene) -> str:
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    every = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
    with _admin(at) as admin:
        return _answer(lambda: admin.describe_acls(every))


def _delete(at: Scene) -> str:
    with _admin(at) as admin:
        return _answer(lambda: admin.delete_topics([at.topic]))


CALLS = [
    Call(name="list topics", expected=OK, run=_list),
    Call(name="describe the cluster", expected=OK, run=_cluster),
    Call(name="create a topic", expected=OK, run=_create),
    Call(name="create it again", expected="TOPIC_ALREADY_EXISTS", run=_create),
    Call(name="describe it", expected=OK, run=_describe),
    Call(name="add partitions", expected=OK, run=_grow),
    Call(name="describe its configs", expected=OK, run=_describe_configs),
    Call(name="alter its configs", expected=OK, run=lambda at: _alter(at, True, min_insync_replicas="1")),
    Call(name="alter them (AlterConfigs)", expected=OK, run=lambda at: _alter(at, False, flush_messages="9")),
    Call(name="alter a config that is none", expected="INVALID_CONFIG",
         run=lambda at: _alter(at, True, no_such_config="1")),
    Call(name="cleanup.policy=compact", expected="POLICY_VIOLATION",
         run=lambda at: _alter(at, True, cleanup_policy="compact")),
    Call(name="describe a broker's configs", expected=OK, run=_describe_broker),
    *[
        Call(name=f"produce ({each}), assign, read", expected=OK, run=_produce_and_read(each))
        for each in COMPRESSIONS
    ],
    Call(name="produce (idempotent)", expected=OK, run=_idempotent),
    Call(name="assign without an offset", expected=OK, run=_stored),
    Call(name="offsets by time", expected=OK, run=_times),
    Call(name="list offsets (KafkaAdminClient)", expected=OK, run=_list_offsets),
    Call(name="list groups", expected=OK, run=_groups),
    Call(name="subscribe", expected=NO_GROUPS, run=_subscribe),
    Call(name="commit", expected=NO_GROUPS, run=_commit),
    Call(name="init_transactions", expected=NO_TRANSACTIONS, run=_transaction),
    Call(name="delete records", expected="UNSUPPORTED_VERSION", run=_delete_records),
    Call(name="describe ACLs", expected="UNSUPPORTED_VERSION", run=_acls),
    Call(name="delete the topic", expected=OK, run=_delete),
    Call(name="delete it again", expected="UNKNOWN_TOPIC_OR_PARTITION", run=_delete),
    Call(name="describe what is deleted", expected="UNKNOWN_TOPIC_OR_PARTITION", run=_describe),
]  # fmt: skip


def rows(bootstrap: str) -> list[Row]:
    return play("kafka-python", __version__, CALLS, scene(bootstrap, "kafka-python"))
