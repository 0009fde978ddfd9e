"""The ordinary calls of aiokafka."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, __version__
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, IncompatibleBrokerVersion, KafkaError
from client_calls import COMPRESSIONS, NO_GROUPS, NO_TRANSACTIONS, OK, Call, Row, Scene, play, scene

from floodmark.broker.protocol.errors import error_name

WAIT_S = 60.0
Made = Callable[[Scene], Awaitable[None]]


def _asking(ask: Callable[[Scene], Awaitable[object]]) -> Callable[[Scene], str]:
    """A call that is made in an event loop of its own."""
    async def bounded(at: Scene) -> None:
        async with asyncio.timeout(WAIT_S):
            await ask(at)

    def run(at: Scene) -> str:
        try:
            asyncio.run(bounded(at))
        except IncompatibleBrokerVersion:
            return "UNSUPPORTED_VERSION"
        except BrokerResponseError as error:
            return error_name(error.errno)
        except KafkaError as error:
            if getattr(error, "errno", -1) > 0:
                return error_name(error.errno)
            raise
        return OK

    return run


@contextlib.asynccontextmanager
async def _admin(at: Scene) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=at.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def _consumer(at: Scene, *topics: str, group: str | None = None) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics, bootstrap_servers=at.bootstrap, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


@contextlib.asynccontextmanager
async def _producer(at: Scene, **config: object) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=at.bootstrap, acks="all", linger_ms=20, **config)
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


def _by_admin(ask: Callable[[AIOKafkaAdminClient, str], Awaitable[object]]) -> Made:
    """A call about the topic, whose answer may be an error."""
    async def run(at: Scene) -> None:
        async with _admin(at) as admin:
            _raise(await ask(admin, at.topic))

    return run


def _raise(answer: object) -> None:
    """Raises an answer that is an error: aiokafka's admin client returns errors as answers."""
    for each in getattr(answer, "topic_errors", None) or getattr(answer, "topic_error_codes", ()):
        if each[1]:
            error = KafkaError(error_name(each[1]))
            error.errno = each[1]
            raise error


_create = _by_admin(lambda admin, topic: admin.create_topics([NewTopic(topic, 1, 3)]))
_delete = _by_admin(lambda admin, topic: admin.delete_topics([topic]))


async def _describe(at: Scene) -> None:
    async with _admin(at) as admin:
        (topic,) = await admin.describe_topics([at.topic])
        _raise(type("Answer", (), {"topic_errors": [(at.topic, topic["error_code"])]}))


async def _configs(admin: AIOKafkaAdminClient, kind: ConfigResourceType, name: str) -> dict[str, str]:
    (answer,) = await admin.describe_configs([ConfigResource(kind, name)])
    ((error, _, _, _, entries),) = answer.resources
    assert not error
    return {entry[0]: entry[1] for entry in entries}


def _has(kind: ConfigResourceType, key: str, value: str, name: str = "") -> Made:
    """Whether the topic, or a broker by that name, has this config."""
    async def ask(at: Scene) -> None:
        async with _admin(at) as admin:
            assert (await _configs(admin, kind, name or at.topic))[key] == value

    return ask


def _alter(name: str, value: str) -> Made:
    async def ask(at: Scene) -> None:
        async with _admin(at) as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, at.topic, {name: value})
            (answer,) = await admin.alter_configs([resource])
            ((error, *_),) = answer.resources
            _raise(type("Answer", (), {"topic_errors": [(at.topic, error)]}))
            assert (await _configs(admin, ConfigResourceType.TOPIC, at.topic))[name] == value

    return ask


# -- records -----------------------------------------------------------------------------------------------


def _produce_and_read(compression: str) -> Made:
    values = [f"{compression} " + "v" * 99 + str(n) for n in range(20)]

    async def ask(at: Scene) -> None:
        partition = TopicPartition(at.topic, 0)
        kind = None if compression == "none" else compression
        async with _producer(at, compression_type=kind) as producer:
            sent = [
                await producer.send(
                    at.topic, value.encode(), partition=0, timestamp_ms=1_000_000 + len(value)
                )
                for value in values
            ]
            offsets = [(await each).offset for each in sent]
        async with _consumer(at) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, offsets[0])
            assert [(await consumer.getone()).value.decode() for _ in values] == values

    return ask


async def _idempotent(at: Scene) -> None:
    async with _producer(at, enable_idempotence=True) as producer:
        await producer.send_and_wait(at.topic, b"i", partition=0)


async def _stored(at: Scene) -> None:
    partition = TopicPartition(at.topic, 0)
    async with _consumer(at, group="calls") as consumer:
        consumer.assign([partition])
        assert await consumer.committed(partition) is None
        assert (await consumer.getone()).offset == 0


async def _times(at: Scene) -> None:
    partition = TopicPartition(at.topic, 0)
    tenth = 1_000_000 + len("none " + "v" * 99 + "10")
    async with _consumer(at) as consumer:
        found = [
            (await consumer.offsets_for_times({partition: when}))[partition] for when in (0, tenth, 1 << 50)
        ]
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert (await consumer.end_offsets([partition]))[partition] > 100
    assert [each and each.offset for each in found] == [0, 10, None], found


# -- what the broker does not offer -------------------------------------------------------------------------


async def _groups(at: Scene) -> None:
    async with _admin(at) as admin:
        assert await admin.list_consumer_groups() == []


async def _subscribe(at: Scene) -> None:
    async with _consumer(at, at.topic, group="calls") as consumer:
        await consumer.getone()


async def _commit(at: Scene) -> None:
    async with _consumer(at, group="calls") as consumer:
        consumer.assign([TopicPartition(at.topic, 0)])
        await consumer.getone()
        await consumer.commit()


async def _transaction(at: Scene) -> None:
    async with _producer(at, transactional_id=at.topic):
        pass


CALLS = [
    Call(name=name, expected=expected, run=_asking(ask))
    for name, expected, ask in [
        ("list topics", OK, _by_admin(lambda admin, _: admin.list_topics())),
        ("describe the cluster", OK, _by_admin(lambda admin, _: admin.describe_cluster())),
        ("create a topic", OK, _create),
        ("create it again", "TOPIC_ALREADY_EXISTS", _create),
        ("describe it", OK, _describe),
        ("add partitions", OK,
         _by_admin(lambda admin, topic: admin.create_partitions({topic: NewPartitions(2)}))),
        ("describe its configs", OK, _has(ConfigResourceType.TOPIC, "min.insync.replicas", "2")),
        ("alter its configs", OK, _alter("min.insync.replicas", "1")),
        ("alter a config that is none", "INVALID_CONFIG", _alter("no.such.config", "1")),
        ("cleanup.policy=compact", "POLICY_VIOLATION", _alter("cleanup.policy", "compact")),
        ("describe a broker's configs", OK, _has(ConfigResourceType.BROKER, "node.id", "1", "1")),
        *[(f"produce ({each}), assign, read", OK, _produce_and_read(each)) for each in COMPRESSIONS],
        ("produce (idempotent)", OK, _idempotent),
        ("assign without an offset", OK, _stored),
        ("offsets by time", OK, _times),
        ("list groups", OK, _groups),
        ("subscribe", NO_GROUPS, _subscribe),
        ("commit", NO_GROUPS, _commit),
        ("a transactional producer's start", NO_TRANSACTIONS, _transaction),
        ("delete records", "UNSUPPORTED_VERSION", _by_admin(lambda admin, topic: admin.delete_records(
            {TopicPartition(topic, 0): RecordsToDelete(before_offset=1)}))),
        ("delete the topic", OK, _delete),
        ("delete it again", "UNKNOWN_TOPIC_OR_PARTITION", _delete),
    ]
]


def rows(bootstrap: str) -> list[Row]:
    return play("aiokafka", __version__, CALLS, scene(bootstrap, "aiokafka"))
