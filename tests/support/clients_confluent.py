"""The ordinary calls of confluent-kafka."""

import time
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, ClassVar

from client_calls import NO_GROUPS, time_of
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition, admin

WAIT_S = 60.0
KINDS = {"topic": admin.ConfigResource.Type.TOPIC, "broker": admin.ConfigResource.Type.BROKER}
ALL_ACLS = admin.AclBindingFilter(
    admin.ResourceType.ANY, None, admin.ResourcePatternType.ANY, None, None, admin.AclOperation.ANY,
    admin.AclPermissionType.ANY)


def result(asked: Any) -> Any:
    """Of a future, or of the one future of what was asked for."""
    (future,) = asked.values() if isinstance(asked, dict) else (asked,)
    return future.result(WAIT_S)


class Confluent:
    name = "confluent-kafka"
    # librdkafka's names; the first is of an API that no broker offers.
    names = MappingProxyType({"UNSUPPORTED_VERSION": "_UNSUPPORTED_FEATURE",
                              "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART"})
    more = (
        ("list topics (Producer)", "ok", lambda its: Producer(its.common).list_topics(timeout=WAIT_S)),
        ("list topics (Consumer)", "ok", lambda its: its.consumer().list_topics(timeout=WAIT_S)),
        ("subscribe (group.protocol=consumer)", "_FATAL",
         lambda its: its.subscribe(**{"group.protocol": "consumer"})),
    )
    calls: ClassVar[dict[str, Callable[["Confluent"], Any]]] = {
        "list topics": lambda its: its.admin.list_topics(timeout=WAIT_S),
        "describe the cluster": lambda its: result(its.admin.describe_cluster()),
        "create a topic": lambda its: result(its.admin.create_topics([admin.NewTopic(its.topic, 1, 3)])),
        "describe it": lambda its: result(its.admin.describe_topics(TopicCollection([its.topic]))),
        "add partitions": lambda its: result(
            its.admin.create_partitions([admin.NewPartitions(its.topic, 2)])),
        "list groups": lambda its: its.admin.list_consumer_groups().result(WAIT_S).valid,
        "subscribe": lambda its: its.subscribe(),
        "commit": lambda its: its.consumer().commit(
            offsets=[TopicPartition(its.topic, 0, 1)], asynchronous=False),
        "begin with transactions": lambda its: Producer(
            {**its.common, "transactional.id": its.topic}).init_transactions(WAIT_S),
        "delete records": lambda its: result(its.admin.delete_records([TopicPartition(its.topic, 0, 1)])),
        "describe ACLs": lambda its: result(its.admin.describe_acls(ALL_ACLS)),
        "delete the topic": lambda its: result(its.admin.delete_topics([its.topic])),
    }

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.topic, self.partition = topic, TopicPartition(topic, 0)
        self.admin = admin.AdminClient(self.common)
        self._consumers: list[Consumer] = []

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()

    def name_of(self, error: Exception) -> str:
        if isinstance(error, KafkaException):
            return str(error.args[0].name())
        raise error

    def configs(self, kind: str) -> dict[str, str]:
        asked = admin.ConfigResource(KINDS[kind], self.topic if kind == "topic" else "1")
        found = result(self.admin.describe_configs([asked]))
        return {name: entry.value for name, entry in found.items()}

    def alter(self, key: str, value: str) -> None:
        entry = admin.ConfigEntry(key, value, incremental_operation=admin.AlterConfigOpType.SET)
        result(self.admin.incremental_alter_configs([
            admin.ConfigResource(KINDS["topic"], self.topic, incremental_configs=[entry])]))

    # -- records -------------------------------------------------------------------------------------------

    def produce(self, values: list[str], compression: str, *, idempotent: bool = False) -> int:
        """The first one's offset."""
        acked: list[Any] = []
        producer = Producer({**self.common, "acks": "all", "linger.ms": 20, "compression.type": compression,
                             "enable.idempotence": idempotent})
        for value in values:
            producer.produce(self.topic, value, partition=0, timestamp=time_of(value),
                             on_delivery=lambda error, message: acked.append((error, message)))
        producer.flush(WAIT_S)
        assert [(error, message.value().decode()) for error, message in acked] == [
            (None, value) for value in values]
        return int(acked[0][1].offset())

    def consumer(self, **config: object) -> Consumer:
        self._consumers.append(Consumer({
            **self.common, "group.id": "calls", "check.crcs": True, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, **config}))
        return self._consumers[-1]

    def polled(self, consumer: Consumer, count: int) -> list[str]:
        found: list[str] = []
        until = time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < until, "silence"
            message = consumer.poll(0.1)
            if message is not None:
                if message.error():
                    raise KafkaException(message.error())
                found.append(message.value().decode())
        return found

    def read(self, offset: int | None, count: int) -> list[str]:
        consumer = self.consumer()
        at = () if offset is None else (offset,)
        consumer.assign([TopicPartition(self.topic, 0, *at)])
        return self.polled(consumer, count)

    def committed(self) -> int | None:
        (found,) = self.consumer().committed([self.partition], timeout=WAIT_S)
        assert found.error is None
        return None if found.offset < 0 else int(found.offset)

    def offsets_at(self, *times: int) -> list[int | None]:
        """None: at the end."""
        consumer = self.consumer()
        end = consumer.get_watermark_offsets(self.partition, timeout=WAIT_S)[1]
        found = [consumer.offsets_for_times([TopicPartition(self.topic, 0, when)], timeout=WAIT_S)[0].offset
                 for when in times]
        return [None if offset in (-1, end) else offset for offset in found]

    def ends(self) -> list[int]:
        specs = (admin.OffsetSpec.earliest(), admin.OffsetSpec.latest(), admin.OffsetSpec.max_timestamp(),
                 admin.OffsetSpec.for_timestamp(5))
        return [result(self.admin.list_offsets({self.partition: spec})).offset for spec in specs]

    def subscribe(self, **config: object) -> None:
        consumer = self.consumer(**config)
        consumer.subscribe([self.topic])
        self.polled(consumer, 1)


def is_refused(client: Confluent, **config: object) -> bool:
    """Whether a consumer of this config that subscribes is told that there are no groups."""
    try:
        client.subscribe(**config)
    except KafkaException as error:
        return client.name_of(error) == NO_GROUPS
    return False
