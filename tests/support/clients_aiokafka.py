"""The ordinary calls of aiokafka."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, __version__
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from client_calls import time_of

from floodmark.broker.protocol.errors import error_name

WAIT_S = 60.0
KINDS = {"topic": ConfigResourceType.TOPIC, "broker": ConfigResourceType.BROKER}
T = TypeVar("T")


class Aiokafka:
    name, version, more = "aiokafka", __version__, ()
    lacks = ("list offsets", "describe ACLs", "describe what is deleted")
    names: Mapping[str, str] = MappingProxyType({})

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.servers, self.topic, self.partition = bootstrap, topic, TopicPartition(topic, 0)
        self._runner = asyncio.Runner()
        self.admin = self.run(self.started())

    def close(self) -> None:
        self.run(self.admin.close())
        self._runner.close()

    def run(self, asked: Awaitable[T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(asked, WAIT_S)

        return self._runner.run(bounded())

    async def started(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        return admin

    def name_of(self, error: Exception) -> str:
        if isinstance(error, IncompatibleBrokerVersion):
            return "UNSUPPORTED_VERSION"
        if isinstance(error, KafkaError) and getattr(error, "errno", -1) > 0:
            return error_name(error.errno)
        raise error

    @staticmethod
    def refuse(code: int) -> None:
        """Raises an error that the admin client has returned in an answer."""
        if code:
            error = KafkaError(error_name(code))
            error.errno = code
            raise error

    def of_topic(self, asked: Awaitable[Any]) -> None:
        answer = self.run(asked)
        for one in getattr(answer, "topic_errors", None) or getattr(answer, "topic_error_codes", ()):
            self.refuse(one[1])

    def topics(self) -> list[str]:
        return list(self.run(self.admin.list_topics()))

    def describe_cluster(self) -> None:
        self.run(self.admin.describe_cluster())

    def create(self) -> None:
        self.of_topic(self.admin.create_topics([NewTopic(self.topic, 1, 3)]))

    def delete(self) -> None:
        self.of_topic(self.admin.delete_topics([self.topic]))

    def describe(self) -> None:
        (found,) = self.run(self.admin.describe_topics([self.topic]))
        self.refuse(found["error_code"])

    def grow(self, count: int) -> None:
        self.of_topic(self.admin.create_partitions({self.topic: NewPartitions(count)}))

    def configs(self, kind: str) -> dict[str, str]:
        asked = ConfigResource(KINDS[kind], self.topic if kind == "topic" else "1")
        (answer,) = self.run(self.admin.describe_configs([asked]))
        ((error, _, _, _, entries),) = answer.resources
        self.refuse(error)
        return {entry[0]: entry[1] for entry in entries}

    def alter(self, key: str, value: str) -> None:
        (answer,) = self.run(self.admin.alter_configs([ConfigResource(KINDS["topic"], self.topic,
                                                                      {key: value})]))
        ((error, *_),) = answer.resources
        self.refuse(error)

    # -- records -------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def consumer(self, *topics: str, group: str | None = None) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(*topics, bootstrap_servers=self.servers, group_id=group,
                                    auto_offset_reset="earliest", enable_auto_commit=False)
        try:
            await consumer.start()
            if not topics:
                consumer.assign([self.partition])
            yield consumer
        finally:
            await consumer.stop()

    @contextlib.asynccontextmanager
    async def producer(self, **config: object) -> AsyncIterator[AIOKafkaProducer]:
        producer = AIOKafkaProducer(bootstrap_servers=self.servers, acks="all", linger_ms=20, **config)
        try:
            await producer.start()
            yield producer
        finally:
            await producer.stop()

    def produce(self, values: list[str], compression: str, *, idempotent: bool = False) -> int:
        async def ask() -> int:
            kind = None if compression == "none" else compression
            async with self.producer(compression_type=kind, enable_idempotence=idempotent) as producer:
                sent = [await producer.send(self.topic, value.encode(), partition=0,
                                            timestamp_ms=time_of(value)) for value in values]
                first, *_ = [(await each).offset for each in sent]
                return int(first)

        return self.run(ask())

    def read(self, offset: int | None, count: int) -> list[str]:
        async def ask() -> list[str]:
            async with self.consumer(group="calls" if offset is None else None) as consumer:
                if offset is not None:
                    consumer.seek(self.partition, offset)
                return [(await consumer.getone()).value.decode() for _ in range(count)]

        return self.run(ask())

    def committed(self) -> int | None:
        async def ask() -> int | None:
            async with self.consumer(group="calls") as consumer:
                found: int | None = await consumer.committed(self.partition)
                return found

        return self.run(ask())

    def offsets_at(self, *times: int) -> list[int | None]:
        async def ask() -> list[int | None]:
            async with self.consumer() as consumer:
                assert await consumer.beginning_offsets([self.partition]) == {self.partition: 0}
                assert (await consumer.end_offsets([self.partition]))[self.partition] > 100
                found = [(await consumer.offsets_for_times({self.partition: when}))[self.partition]
                         for when in times]
                return [each and each.offset for each in found]

        return self.run(ask())

    # -- what the broker does not offer ---------------------------------------------------------------------

    def groups(self) -> list[Any]:
        return list(self.run(self.admin.list_consumer_groups()))

    def subscribe(self) -> None:
        async def ask() -> None:
            async with self.consumer(self.topic, group="calls") as consumer:
                await consumer.getone()

        self.run(ask())

    def commit(self) -> None:
        async def ask() -> None:
            async with self.consumer(group="calls") as consumer:
                await consumer.getone()
                await consumer.commit()

        self.run(ask())

    def transactions(self) -> None:
        async def ask() -> None:
            async with self.producer(transactional_id=self.topic):
                pass

        self.run(ask())

    def delete_records(self) -> None:
        self.run(self.admin.delete_records({self.partition: RecordsToDelete(before_offset=1)}))
