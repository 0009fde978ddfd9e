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
Made = Callable[[Scene], str]
_UNSUPPORTED = "_UNSUPPORTED_FEATURE"  # librdkafka's name for an API that no broker offers


@cache
def _admin(bootstrap: str) -> AdminClient:
    """An admin client that is kept for later calls: its futures do not keep it alive."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _answer(ask: Callable[[], object]) -> str:
    try:
        ask()
    except KafkaException as error:
        return str(error.args[0].name())
    return OK


def _by_admin(ask: Callable[[AdminClient, str], Any]) -> Made:
    """The answer to a call about the topic, which gives a future or one for each thing that was asked for."""
    def run(at: Scene) -> str:
        made = ask(_admin(at.bootstrap), at.topic)
        (future,) = made.values() if isinstance(made, dict) else (made,)
        return _answer(lambda: future.result(WAIT_S))

    return run


create = _by_admin(lambda admin, topic: admin.create_topics([NewTopic(topic, 1, 3)]))
delete = _by_admin(lambda admin, topic: admin.delete_topics([topic]))
_describe = _by_admin(lambda admin, topic: admin.describe_topics(TopicCollection([topic])))


def _described(at: Scene, kind: Any, name: str) -> dict[str, str]:
    (future,) = _admin(at.bootstrap).describe_configs([ConfigResource(kind, name)]).values()
    return {name: entry.value for name, entry in future.result(WAIT_S).items()}


def _alter(name: str, value: str) -> Made:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    return _by_admin(lambda admin, topic: admin.incremental_alter_configs([
        ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]))


def _has(key: str, value: str, kind: Any = ConfigResource.Type.TOPIC, name: str = "") -> Made:
    """Whether the topic, or a broker by that name, has this config."""
    def run(at: Scene) -> str:
        assert _described(at, kind, name or at.topic)[key] == value
        return OK

    return run


def _both(first: Made, second: Made) -> Made:
    def run(at: Scene) -> str:
        assert first(at) == OK
        return second(at)

    return run


def _list(at: Scene) -> str:
    assert _admin(at.bootstrap).list_topics(timeout=WAIT_S).brokers.keys() == {1, 2, 3}
    return OK


def _list_by(kind: Any) -> Made:
    def run(at: Scene) -> str:
        client = kind({"bootstrap.servers": at.bootstrap, "log_level": 0, **(
            {"group.id": "g"} if kind is Consumer else {})})
        try:
            return _answer(lambda: client.list_topics(timeout=WAIT_S))
        finally:
            if kind is Consumer:
                client.close()

    return run


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


def _produce_and_read(compression: str) -> Made:
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
        (future,) = _admin(at.bootstrap).list_offsets({partition: spec}).values()
        assert future.result(WAIT_S).offset >= 0, spec
    return OK


# -- what the broker does not offer -------------------------------------------------------------------------


def _groups(at: Scene) -> str:
    assert _admin(at.bootstrap).list_consumer_groups().result(WAIT_S).valid == []
    return OK


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
        return _answer(lambda: consumer.commit(offsets=[TopicPartition(at.topic, 0, 1)], asynchronous=False))
    finally:
        consumer.close()


def _transaction(at: Scene) -> str:
    producer = Producer({"bootstrap.servers": at.bootstrap, "transactional.id": at.topic, "log_level": 0})
    return _answer(lambda: producer.init_transactions(WAIT_S))


_ACLS = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
_ALTERED = ("min.insync.replicas", "1")
CALLS = [Call(name=name, expected=expected, run=run) for name, expected, run in [
    ("list topics (AdminClient)", OK, _list),
    ("list topics (Producer)", OK, _list_by(Producer)),
    ("list topics (Consumer)", OK, _list_by(Consumer)),
    ("describe the cluster", OK, _by_admin(lambda admin, _: admin.describe_cluster())),
    ("create a topic", OK, create),
    ("create it again", "TOPIC_ALREADY_EXISTS", create),
    ("describe it", OK, _describe),
    ("add partitions", OK,
     _by_admin(lambda admin, topic: admin.create_partitions([NewPartitions(topic, 2)]))),
    ("describe its configs", OK, _has("min.insync.replicas", "2")),
    ("alter its configs", OK, _both(_alter(*_ALTERED), _has(*_ALTERED))),
    ("alter a config that is none", "INVALID_CONFIG", _alter("no.such.config", "1")),
    ("cleanup.policy=compact", "POLICY_VIOLATION", _alter("cleanup.policy", "compact")),
    ("describe a broker's configs", OK, _has("node.id", "1", ConfigResource.Type.BROKER, "1")),
    *((f"produce ({each}), assign, read", OK, _produce_and_read(each)) for each in COMPRESSIONS),
    ("produce (idempotent)", OK, _idempotent),
    ("assign without an offset", OK, _stored),
    ("offsets by time", OK, _times),
    ("list offsets (AdminClient)", OK, _list_offsets),
    ("list groups", OK, _groups),
    ("subscribe", NO_GROUPS, subscribe),
    ("subscribe (group.protocol=consumer)", "_FATAL",
     lambda at: subscribe(at, **{"group.protocol": "consumer"})),
    ("commit", NO_GROUPS, _commit),
    ("init_transactions", NO_TRANSACTIONS, _transaction),
    ("delete records", _UNSUPPORTED,
     _by_admin(lambda admin, topic: admin.delete_records([TopicPartition(topic, 0, 1)]))),
    ("describe ACLs", _UNSUPPORTED, _by_admin(lambda admin, _: admin.describe_acls(_ACLS))),
    ("delete the topic", OK, delete),
    ("delete it again", "UNKNOWN_TOPIC_OR_PART", delete),
    ("describe what is deleted", "UNKNOWN_TOPIC_OR_PART", _describe),
]]  # fmt: skip


def rows(bootstrap: str) -> list[Row]:
    return play("confluent-kafka", __version__, CALLS, scene(bootstrap, "confluent-kafka"))
