"""The ordinary calls of confluent-kafka."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

from client_calls import COMPRESSIONS, NO_GROUPS, NO_TRANSACTIONS, OK, Call, Row, Scene, play, scene
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition, __version__
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

WAIT_S = 60.0
_UNSUPPORTED = "_UNSUPPORTED_FEATURE"  # librdkafka's name for an API that no broker offers


def _admin(at: Scene) -> AdminClient:
    return _admin_of(at.bootstrap)


@cache
def _admin_of(bootstrap: str) -> AdminClient:
    """An admin client that is kept for later calls: its futures do not keep it alive."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _answer(ask: Callable[[], object]) -> str:
    try:
        ask()
    except KafkaException as error:
        return str(error.args[0].name())
    return OK


def _resource(at: Scene, *entries: ConfigEntry) -> ConfigResource:
    return ConfigResource(ConfigResource.Type.TOPIC, at.topic, incremental_configs=list(entries) or None)


def _described(at: Scene, resource: ConfigResource) -> dict[str, str]:
    (future,) = _admin(at).describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result(WAIT_S).items()}


def _alter(at: Scene, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    (future,) = _admin(at).incremental_alter_configs([_resource(at, entry)]).values()
    future.result(WAIT_S)


def _list(at: Scene) -> str:
    def ask() -> None:
        assert _admin(at).list_topics(timeout=WAIT_S).brokers.keys() == {1, 2, 3}

    return _answer(ask)


def _list_by(kind: str) -> Callable[[Scene], str]:
    def run(at: Scene) -> str:
        settings = {"bootstrap.servers": at.bootstrap, "log_level": 0}
        client: Any = Producer(settings) if kind == "Producer" else Consumer({**settings, "group.id": "g"})
        try:
            return _answer(lambda: client.list_topics(timeout=WAIT_S))
        finally:
            if kind == "Consumer":
                client.close()

    return run


def create(at: Scene) -> str:
    (future,) = _admin(at).create_topics([NewTopic(at.topic, 1, 3)]).values()
    return _answer(lambda: future.result(WAIT_S))


def _describe(at: Scene) -> str:
    (future,) = _admin(at).describe_topics(TopicCollection([at.topic])).values()
    return _answer(lambda: future.result(WAIT_S))


def _grow(at: Scene) -> str:
    (future,) = _admin(at).create_partitions([NewPartitions(at.topic, 2)]).values()
    return _answer(lambda: future.result(WAIT_S))


def _describe_configs(at: Scene) -> str:
    def ask() -> None:
        assert _described(at, _resource(at))["min.insync.replicas"] == "2"

    return _answer(ask)


def _describe_broker(at: Scene) -> str:
    def ask() -> None:
        assert _described(at, ConfigResource(ConfigResource.Type.BROKER, "1"))["node.id"] == "1"

    return _answer(ask)


def _alter_configs(at: Scene) -> str:
    def ask() -> None:
        _alter(at, "min.insync.replicas", "1")
        assert _described(at, _resource(at))["min.insync.replicas"] == "1"

    return _answer(ask)


def _cluster(at: Scene) -> str:
    return _answer(lambda: _admin(at).describe_cluster().result(WAIT_S))


# -- records -----------------------------------------------------------------------------------------------


def _produce(at: Scene, values: list[str], **config: object) -> None:
    acked = []
    settings = {"bootstrap.servers": at.bootstrap, "acks": "all", "log_level": 0, "linger.ms": 20}
    producer = Producer({**settings, **config})
    for value in values:
        producer.produce(
            at.topic, value, partition=0, timestamp=1_000_000 + len(value),
            on_delivery=lambda error, message: acked.append((error, message.value().decode())),
        )  # fmt: skip
    producer.flush(WAIT_S)
    assert acked == [(None, value) for value in values], acked


def _consumer(at: Scene, **config: object) -> Consumer:
    settings = {
        "bootstrap.servers": at.bootstrap, "group.id": "calls", "log_level": 0, "check.crcs": True,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, **config,
    }  # fmt: skip
    return Consumer(settings)


def _read(at: Scene, consumer: Consumer, offset: int, count: int) -> list[str]:
    consumer.assign([TopicPartition(at.topic, 0, offset)])
    found: list[str] = []
    until = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            found.append(message.value().decode())
    return found


def _produce_and_read(compression: str) -> Callable[[Scene], str]:
    values = [f"{compression} " + "v" * 99 + str(n) for n in range(20)]

    def run(at: Scene) -> str:
        consumer = _consumer(at)
        try:
            end = consumer.get_watermark_offsets(TopicPartition(at.topic, 0), timeout=WAIT_S)[1]
            _produce(at, values, **{"compression.type": compression})
            assert _read(at, consumer, end, 20) == values
        finally:
            consumer.close()
        return OK

    return run


def _idempotent(at: Scene) -> str:
    _produce(at, ["i"], **{"enable.idempotence": True})
    return OK


def _stored(at: Scene) -> str:
    """Assigns a partition without an offset: the consumer asks for its group's committed offset."""
    consumer = _consumer(at)
    try:
        (partition,) = consumer.committed([TopicPartition(at.topic, 0)], timeout=WAIT_S)
        assert partition.offset < 0
        assert partition.error is None
        assert len(_read(at, consumer, -1000, 5)) >= 5
    finally:
        consumer.close()
    return OK


def _times(at: Scene) -> str:
    consumer = _consumer(at)
    try:
        tenth_at = 1_000_000 + len("none " + "v" * 99 + "10")
        asked = [TopicPartition(at.topic, 0, when) for when in (0, tenth_at)]
        first, tenth = [consumer.offsets_for_times([one], timeout=WAIT_S)[0].offset for one in asked]
        (later,) = consumer.offsets_for_times([TopicPartition(at.topic, 0, 1 << 50)], timeout=WAIT_S)
        end = consumer.get_watermark_offsets(TopicPartition(at.topic, 0), timeout=WAIT_S)[1]
    finally:
        consumer.close()
    assert (first, tenth) == (0, 10), (first, tenth)
    assert later.offset in (-1, end), later
    return OK


def _list_offsets(at: Scene) -> str:
    partition = TopicPartition(at.topic, 0)
    ends = OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()
    for spec in (*ends, OffsetSpec.for_timestamp(5)):
        (future,) = _admin(at).list_offsets({partition: spec}).values()
        assert future.result(WAIT_S).offset >= 0, spec
    return OK


# -- what the broker does not offer -------------------------------------------------------------------------


def _groups(at: Scene) -> str:
    def ask() -> None:
        assert _admin(at).list_consumer_groups().result(WAIT_S).valid == []

    return _answer(ask)


def subscribe(at: Scene, **config: object) -> str:
    consumer = _consumer(at, **config)
    try:
        consumer.subscribe([at.topic])
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            message = consumer.poll(0.1)
            if message is not None:
                return str(message.error().name()) if message.error() else OK
    finally:
        consumer.close()
    return "silence"


def _commit(at: Scene) -> str:
    consumer = _consumer(at)
    try:
        consumer.assign([TopicPartition(at.topic, 0, 0)])
        return _answer(
            lambda: consumer.commit(offsets=[TopicPartition(at.topic, 0, 1)], asynchronous=False)
        )
    finally:
        consumer.close()


def _transaction(at: Scene) -> str:
    producer = Producer({"bootstrap.servers": at.bootstrap, "transactional.id": at.topic, "log_level": 0})
    return _answer(lambda: producer.init_transactions(WAIT_S))


def _delete_records(at: Scene) -> str:
    (future,) = _admin(at).delete_records([TopicPartition(at.topic, 0, 1)]).values()
    return _answer(lambda: future.result(WAIT_S))


def _acls(at: Scene) -> str:
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return _answer(lambda: _admin(at).describe_acls(every).result(WAIT_S))


def delete(at: Scene) -> str:
    (future,) = _admin(at).delete_topics([at.topic]).values()
    return _answer(lambda: future.result(WAIT_S))


def _alter_unknown(at: Scene) -> str:
    return _answer(lambda: _alter(at, "no.such.config", "1"))


def _compact(at: Scene) -> str:
    return _answer(lambda: _alter(at, "cleanup.policy", "compact"))


CALLS = [
    Call(name="list topics (AdminClient)", expected=OK, run=_list),
    Call(name="list topics (Producer)", expected=OK, run=_list_by("Producer")),
    Call(name="list topics (Consumer)", expected=OK, run=_list_by("Consumer")),
    Call(name="describe the cluster", expected=OK, run=_cluster),
    Call(name="create a topic", expected=OK, run=create),
    Call(name="create it again", expected="TOPIC_ALREADY_EXISTS", run=create),
    Call(name="describe it", expected=OK, run=_describe),
    Call(name="add partitions", expected=OK, run=_grow),
    Call(name="describe its configs", expected=OK, run=_describe_configs),
    Call(name="alter its configs", expected=OK, run=_alter_configs),
    Call(name="alter a config that is none", expected="INVALID_CONFIG", run=_alter_unknown),
    Call(name="cleanup.policy=compact", expected="POLICY_VIOLATION", run=_compact),
    Call(name="describe a broker's configs", expected=OK, run=_describe_broker),
    *[
        Call(name=f"produce ({each}), assign, read", expected=OK, run=_produce_and_read(each))
        for each in COMPRESSIONS
    ],
    Call(name="produce (idempotent)", expected=OK, run=_idempotent),
    Call(name="assign without an offset", expected=OK, run=_stored),
    Call(name="offsets by time", expected=OK, run=_times),
    Call(name="list offsets (AdminClient)", expected=OK, run=_list_offsets),
    Call(name="list groups", expected=OK, run=_groups),
    Call(name="subscribe", expected=NO_GROUPS, run=subscribe),
    Call(
        name="subscribe (group.protocol=consumer)", expected="_FATAL",
        run=lambda at: subscribe(at, **{"group.protocol": "consumer"}),
    ),
    Call(name="commit", expected=NO_GROUPS, run=_commit),
    Call(name="init_transactions", expected=NO_TRANSACTIONS, run=_transaction),
    Call(name="delete records", expected=_UNSUPPORTED, run=_delete_records),
    Call(name="describe ACLs", expected=_UNSUPPORTED, run=_acls),
    Call(name="delete the topic", expected=OK, run=delete),
    Call(name="delete it again", expected="UNKNOWN_TOPIC_OR_PART", run=delete),
    Call(name="describe what is deleted", expected="UNKNOWN_TOPIC_OR_PART", run=_describe),
]


def rows(bootstrap: str) -> list[Row]:
    return play("confluent-kafka", __version__, CALLS, scene(bootstrap, "confluent-kafka"))
