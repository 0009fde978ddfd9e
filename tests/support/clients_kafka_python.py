"""The ordinary calls of kafka-python."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from client_calls import time_of
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, admin
from kafka.errors import BrokerResponseError, IncompatibleBrokerVersion, for_code

from floodmark.broker.protocol.errors import error_name

WAIT_MS = 60_000
KINDS = {"topic": admin.ConfigResourceType.TOPIC, "broker": admin.ConfigResourceType.BROKER}
ALL_ACLS = admin.ACLFilter(None, None, admin.ACLOperation.ANY, admin.ACLPermissionType.ANY,
                           admin.ResourcePatternFilter(
                               admin.ResourceType.ANY, None, admin.ACLResourcePatternType.ANY))


class KafkaPython:
    name = "kafka-python"
    names: Mapping[str, str] = MappingProxyType({})
    more = (("alter them (AlterConfigs)", "ok", lambda its: its.alter_as_before()),)
    calls: ClassVar[dict[str, Callable[["KafkaPython"], Any]]] = {
        "list topics": lambda its: its.admin.list_topics(),
        "describe the cluster": lambda its: its.admin.describe_cluster(),
        "create a topic": lambda its: its.admin.create_topics(
            {its.topic: {"num_partitions": 1, "replication_factor": 3}}),
        "describe it": lambda its: its.describe(),
        "add partitions": lambda its: its.admin.create_partitions({its.topic: 2}),
        "list groups": lambda its: its.admin.list_groups(),
        "subscribe": lambda its: its.subscribe(),
        "commit": lambda its: its.commit(),
        "begin with transactions": lambda its: its.transactions(),
        "delete records": lambda its: its.admin.delete_records({its.partition: 1}),
        "describe ACLs": lambda its: its.admin.describe_acls(ALL_ACLS),
        "delete the topic": lambda its: its.admin.delete_topics([its.topic]),
    }

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.servers = bootstrap.split(",")
        self.topic, self.partition = topic, TopicPartition(topic, 0)
        self.admin = KafkaAdminClient(bootstrap_servers=self.servers)

    def close(self) -> None:
        self.admin.close()

    def name_of(self, error: Exception) -> str:
        if isinstance(error, IncompatibleBrokerVersion):
            return "UNSUPPORTED_VERSION"
        if isinstance(error, BrokerResponseError):
            return error_name(error.errno)
        raise error

    def describe(self) -> None:
        (found,) = self.admin.describe_topics([self.topic])
        if found["error_code"]:
            raise for_code(found["error_code"])

    def configs(self, kind: str) -> dict[str, str]:
        name = self.topic if kind == "topic" else "1"
        (found,) = self.admin.describe_configs([admin.ConfigResource(KINDS[kind], name)],
                                               config_filter="all").values()
        return {key: entry["value"] for key, entry in found[name].items()}

    def alter(self, key: str, value: str, *, incremental: bool = True) -> None:
        resource = admin.ConfigResource(KINDS["topic"], self.topic, {key: value})
        answer = self.admin.alter_configs([resource], incremental=incremental, raise_on_unknown=False)
        (found,) = answer.values()
        if error := re.match(r"\[Error (\d+)]", found[self.topic]):
            raise for_code(int(error[1]))
        assert found[self.topic] == "OK"

    def alter_as_before(self) -> None:
        """By AlterConfigs, on a topic of its own."""
        self.topic += "-altered"
        self.calls["create a topic"](self)
        self.alter("flush.messages", "9", incremental=False)
        assert self.configs("topic")["flush.messages"] == "9"

    # -- records -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def producer(self, **config: object) -> Iterator[KafkaProducer]:
        producer = KafkaProducer(bootstrap_servers=self.servers, metrics_enabled=False, acks="all",
                                 linger_ms=20, **config)
        try:
            yield producer
        finally:
            producer.close(timeout=5)

    def consumer(self, *topics: str, group: str | None = None) -> Any:
        return contextlib.closing(KafkaConsumer(
            *topics, bootstrap_servers=self.servers, group_id=group, metrics_enabled=False,
            auto_offset_reset="earliest", consumer_timeout_ms=WAIT_MS, enable_auto_commit=False))

    def produce(self, values: list[str], compression: str, *, idempotent: bool = False) -> int:
        kind = None if compression == "none" else compression
        with self.producer(compression_type=kind, enable_idempotence=idempotent) as producer:
            sent = [producer.send(self.topic, value.encode(), partition=0, timestamp_ms=time_of(value))
                    for value in values]
            first, *_ = [each.get(timeout=WAIT_MS / 1000).offset for each in sent]
            return int(first)

    def read(self, offset: int | None, count: int) -> list[str]:
        with self.consumer(group="calls" if offset is None else None) as consumer:
            consumer.assign([self.partition])
            if offset is not None:
                consumer.seek(self.partition, offset)
            return [record.value.decode() for _, record in zip(range(count), consumer, strict=False)]

    def committed(self) -> int | None:
        with self.consumer(group="calls") as consumer:
            found: int | None = consumer.committed(self.partition)
        return found

    def offsets_at(self, *times: int) -> list[int | None]:
        with self.consumer() as consumer:
            found = [consumer.offsets_for_times({self.partition: when})[self.partition] for when in times]
        return [each and each.offset for each in found]

    def ends(self) -> list[int]:
        with self.consumer() as consumer:
            assert consumer.beginning_offsets([self.partition]) == {self.partition: 0}
            assert consumer.end_offsets([self.partition])[self.partition] > 100
        specs = (admin.OffsetSpec.EARLIEST, admin.OffsetSpec.LATEST, 5, admin.OffsetSpec.MAX_TIMESTAMP)
        return [self.admin.list_partition_offsets({self.partition: spec})[self.partition].offset
                for spec in specs]

    # -- what the broker does not offer ---------------------------------------------------------------------

    def subscribe(self) -> None:
        with self.consumer(self.topic, group="calls") as consumer:
            next(consumer)

    def commit(self) -> None:
        with self.consumer(group="calls") as consumer:
            consumer.assign([self.partition])
            next(consumer)
            consumer.commit()

    def transactions(self) -> None:
        with self.producer(transactional_id=self.topic) as producer:
            producer.init_transactions()
