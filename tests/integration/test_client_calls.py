"""Applications' own clients on `cluster up`: each of their ordinary calls works, or gets the right refusal at
once.

A client is an object with the methods and `calls` that CALLS names; `more` are calls of its own. They raise
what its library raises; `name_of` gives the name of such an error, or raises what is no refusal.
"""

import asyncio
import contextlib
import itertools
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import confluent_kafka as confluent
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from cluster_up import Up, cluster_up
from kafka.errors import BrokerResponseError, IncompatibleBrokerVersion, for_code
from real_kafka import skip_without

from floodmark.broker.protocol.errors import error_name
from floodmark.harness.cluster.kafka.kafka_system import ready_kafka
from floodmark.harness.commands import cluster

pytestmark = pytest.mark.cluster

OK = "ok"
SOON_S = 20.0  # a client that asks again after a refusal goes on for half a minute or more
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_GROUPS, NO_TRANSACTIONS = "GROUP_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NO_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
LATE_MS = 1 << 50
WAIT_S = 60.0
JAVA, JAVA_CLIENT = Path(__file__).parents[1] / "support" / "ClientCalls.java", "4.3.1"
_numbers = itertools.count(1)


def values_of(compression: str) -> list[str]:
    return [f"{compression} " + "v" * 99 + str(number) for number in range(20)]


def time_of(value: str) -> int:
    """Its timestamp, in milliseconds."""
    return 1_000_000 + len(value)


def produce_and_read(client: Any, compression: str) -> None:
    values = values_of(compression)
    first = client.produce(values, compression)
    assert client.read(first, len(values)) == values


def assign_without_an_offset(client: Any) -> None:
    """The consumer asks for its group's committed offset: there is none, and it begins at the first."""
    assert client.committed() is None
    assert client.read(None, 1) == values_of(COMPRESSIONS[0])[:1]


def offsets_by_time(client: Any) -> None:
    tenth = time_of(values_of(COMPRESSIONS[0])[10])
    assert client.offsets_at(0, tenth, LATE_MS) == [0, 10, None]


def list_offsets(client: Any) -> None:
    assert min(client.ends()) >= 0


def alter(client: Any, key: str, value: str) -> None:
    client.alter(key, value)
    assert client.configs("topic")[key] == value


def has(client: Any, kind: str, key: str, value: str) -> None:
    assert client.configs(kind)[key] == value


def no_groups(client: Any) -> None:
    assert list(client.calls["list groups"](client)) == []


CALLS: Sequence[tuple[str, str, str | Callable[[Any], object]]] = (  # a call of another name is made again
    ("list topics", OK, "list topics"),
    ("describe the cluster", OK, "describe the cluster"),
    ("create a topic", OK, "create a topic"),
    ("create it again", "TOPIC_ALREADY_EXISTS", "create a topic"),
    ("describe it", OK, "describe it"),
    ("add partitions", OK, "add partitions"),
    ("describe its configs", OK, lambda client: has(client, "topic", "min.insync.replicas", "2")),
    ("alter its configs", OK, lambda client: alter(client, "min.insync.replicas", "1")),
    ("alter a config that is none", "INVALID_CONFIG", lambda client: client.alter("no.such.config", "1")),
    ("cleanup.policy=compact", "POLICY_VIOLATION", lambda client: client.alter("cleanup.policy", "compact")),
    ("describe a broker's configs", OK, lambda client: has(client, "broker", "node.id", "1")),
    *((f"produce ({each}), assign, read", OK, lambda client, each=each: produce_and_read(client, each))
      for each in COMPRESSIONS),
    ("produce (idempotent)", OK, lambda client: client.produce(["i"], "none", idempotent=True)),
    ("assign without an offset", OK, assign_without_an_offset),
    ("offsets by time", OK, offsets_by_time),
    ("list offsets", OK, list_offsets),
    ("list groups", OK, no_groups),
    ("subscribe", NO_GROUPS, "subscribe"),
    ("commit", NO_GROUPS, "commit"),
    ("begin with transactions", NO_TRANSACTIONS, "begin with transactions"),
    ("delete records", "UNSUPPORTED_VERSION", "delete records"),
    ("describe ACLs", "UNSUPPORTED_VERSION", "describe ACLs"),
    ("delete the topic", OK, "delete the topic"),
    ("delete it again", NO_TOPIC, "delete the topic"),
    ("describe what is deleted", NO_TOPIC, "describe it"),
)  # fmt: skip


def a_topic(client: str) -> str:
    return f"calls-{client}-{next(_numbers)}"


def wrong(kind: Any, bootstrap: str) -> list[str]:
    """Of each call once, in order."""
    made = []
    with closing(kind(bootstrap, a_topic(kind.name))) as client:
        for call, expected, make in (*CALLS, *kind.more):
            began, answer = time.monotonic(), OK
            try:
                (client.calls[make] if isinstance(make, str) else make)(client)
            except Exception as error:
                answer = client.name_of(error)
            made.append((call, kind.names.get(expected, expected), answer, time.monotonic() - began))
    return not_as_expected(made)


def wrong_in_java(bootstrap: str) -> list[str]:
    """Of the Java client, by a program of one file."""
    kafka = ready_kafka(JAVA_CLIENT)
    done = subprocess.run(
        [kafka.java, "-Dlog4j2.level=OFF", "-cp", kafka.classpath, JAVA, bootstrap, a_topic("java")],
        capture_output=True, text=True, check=True, timeout=2 * WAIT_S)
    made = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(made) > 25
    return not_as_expected((call, expected, answer, float(took)) for call, expected, answer, took in made)


def not_as_expected(made: Iterable[tuple[str, str, str, float]]) -> list[str]:
    return [f"{call}: {answer} in {took_s:.2f} s, expected {expected}"
            for call, expected, answer, took_s in made if answer != expected or took_s > SOON_S]


# -- confluent-kafka ---------------------------------------------------------------------------------------

ACLS_OF_CONFLUENT = confluent.admin.AclBindingFilter(
    confluent.admin.ResourceType.ANY, None, confluent.admin.ResourcePatternType.ANY, None, None,
    confluent.admin.AclOperation.ANY, confluent.admin.AclPermissionType.ANY)


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
        ("list topics (Producer)", "ok",
         lambda its: confluent.Producer(its.common).list_topics(timeout=WAIT_S)),
        ("list topics (Consumer)", "ok", lambda its: its.consumer().list_topics(timeout=WAIT_S)),
        ("subscribe (group.protocol=consumer)", "_FATAL",
         lambda its: its.subscribe(**{"group.protocol": "consumer"})),
    )
    calls: ClassVar[dict[str, Callable[["Confluent"], Any]]] = {
        "list topics": lambda its: its.admin.list_topics(timeout=WAIT_S),
        "describe the cluster": lambda its: result(its.admin.describe_cluster()),
        "create a topic": lambda its: result(
            its.admin.create_topics([confluent.admin.NewTopic(its.topic, 1, 3)])),
        "describe it": lambda its: result(its.admin.describe_topics(confluent.TopicCollection([its.topic]))),
        "add partitions": lambda its: result(
            its.admin.create_partitions([confluent.admin.NewPartitions(its.topic, 2)])),
        "list groups": lambda its: its.admin.list_consumer_groups().result(WAIT_S).valid,
        "subscribe": lambda its: its.subscribe(),
        "commit": lambda its: its.consumer().commit(
            offsets=[confluent.TopicPartition(its.topic, 0, 1)], asynchronous=False),
        "begin with transactions": lambda its: confluent.Producer(
            {**its.common, "transactional.id": its.topic}).init_transactions(WAIT_S),
        "delete records": lambda its: result(
            its.admin.delete_records([confluent.TopicPartition(its.topic, 0, 1)])),
        "describe ACLs": lambda its: result(its.admin.describe_acls(ACLS_OF_CONFLUENT)),
        "delete the topic": lambda its: result(its.admin.delete_topics([its.topic])),
    }

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.topic, self.partition = topic, confluent.TopicPartition(topic, 0)
        self.admin = confluent.admin.AdminClient(self.common)
        self._consumers: list[confluent.Consumer] = []

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()

    def name_of(self, error: Exception) -> str:
        if isinstance(error, confluent.KafkaException):
            return str(error.args[0].name())
        raise error

    def configs(self, kind: str) -> dict[str, str]:
        asked = confluent.admin.ConfigResource(kind, self.topic if kind == "topic" else "1")
        found = result(self.admin.describe_configs([asked]))
        return {name: entry.value for name, entry in found.items()}

    def alter(self, key: str, value: str) -> None:
        change = confluent.admin.ConfigEntry(
            key, value, incremental_operation=confluent.admin.AlterConfigOpType.SET)
        result(self.admin.incremental_alter_configs([
            confluent.admin.ConfigResource("topic", self.topic, incremental_configs=[change])]))

    # -- records -------------------------------------------------------------------------------------------

    def produce(self, values: list[str], compression: str, *, idempotent: bool = False) -> int:
        """The first one's offset."""
        acked: list[Any] = []
        producer = confluent.Producer({
            **self.common, "acks": "all", "linger.ms": 20, "compression.type": compression,
            "enable.idempotence": idempotent})
        for value in values:
            producer.produce(self.topic, value, partition=0, timestamp=time_of(value),
                             on_delivery=lambda error, message: acked.append((error, message)))
        producer.flush(WAIT_S)
        assert [(error, message.value().decode()) for error, message in acked] == [
            (None, value) for value in values]
        return int(acked[0][1].offset())

    def consumer(self, **config: object) -> confluent.Consumer:
        self._consumers.append(confluent.Consumer({
            **self.common, "group.id": "calls", "check.crcs": True, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, **config}))
        return self._consumers[-1]

    def polled(self, consumer: confluent.Consumer, count: int) -> list[str]:
        found: list[str] = []
        until = time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < until, "silence"
            message = consumer.poll(0.1)
            if message is not None:
                if message.error():
                    raise confluent.KafkaException(message.error())
                found.append(message.value().decode())
        return found

    def read(self, offset: int | None, count: int) -> list[str]:
        consumer = self.consumer()
        at = () if offset is None else (offset,)
        consumer.assign([confluent.TopicPartition(self.topic, 0, *at)])
        return self.polled(consumer, count)

    def committed(self) -> int | None:
        (found,) = self.consumer().committed([self.partition], timeout=WAIT_S)
        assert found.error is None
        return None if found.offset < 0 else int(found.offset)

    def offsets_at(self, *times: int) -> list[int | None]:
        """None: at the end."""
        consumer = self.consumer()
        end = consumer.get_watermark_offsets(self.partition, timeout=WAIT_S)[1]
        asked = [confluent.TopicPartition(self.topic, 0, when) for when in times]
        found = [consumer.offsets_for_times([one], timeout=WAIT_S)[0].offset for one in asked]
        return [None if offset in (-1, end) else offset for offset in found]

    def ends(self) -> list[int]:
        spec = confluent.admin.OffsetSpec
        specs = (spec.earliest(), spec.latest(), spec.max_timestamp(), spec.for_timestamp(5))
        return [result(self.admin.list_offsets({self.partition: spec})).offset for spec in specs]

    def subscribe(self, **config: object) -> None:
        consumer = self.consumer(**config)
        consumer.subscribe([self.topic])
        self.polled(consumer, 1)


def is_refused(client: Confluent, **config: object) -> bool:
    """Whether a consumer of this config that subscribes is told that there are no groups."""
    try:
        client.subscribe(**config)
    except confluent.KafkaException as error:
        return client.name_of(error) == NO_GROUPS
    return False


# -- kafka-python ------------------------------------------------------------------------------------------

ACLS_OF_KAFKA_PYTHON = kafka.admin.ACLFilter(
    None, None, kafka.admin.ACLOperation.ANY, kafka.admin.ACLPermissionType.ANY,
    kafka.admin.ResourcePatternFilter(
        kafka.admin.ResourceType.ANY, None, kafka.admin.ACLResourcePatternType.ANY))


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
        "describe ACLs": lambda its: its.admin.describe_acls(ACLS_OF_KAFKA_PYTHON),
        "delete the topic": lambda its: its.admin.delete_topics([its.topic]),
    }

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.servers = bootstrap.split(",")
        self.topic, self.partition = topic, kafka.TopicPartition(topic, 0)
        self.admin = kafka.KafkaAdminClient(bootstrap_servers=self.servers)

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
        asked = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType[kind.upper()], name)
        (found,) = self.admin.describe_configs([asked], config_filter="all").values()
        return {key: entry["value"] for key, entry in found[name].items()}

    def alter(self, key: str, value: str, *, incremental: bool = True) -> None:
        resource = kafka.admin.ConfigResource(
            kafka.admin.ConfigResourceType.TOPIC, self.topic, {key: value})
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
    def producer(self, **config: object) -> Iterator[kafka.KafkaProducer]:
        producer = kafka.KafkaProducer(bootstrap_servers=self.servers, metrics_enabled=False, acks="all",
                                 linger_ms=20, **config)
        try:
            yield producer
        finally:
            producer.close(timeout=5)

    def consumer(self, *topics: str, group: str | None = None) -> Any:
        return contextlib.closing(kafka.KafkaConsumer(
            *topics, bootstrap_servers=self.servers, group_id=group, metrics_enabled=False,
            auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_S * 1000), enable_auto_commit=False))

    def produce(self, values: list[str], compression: str, *, idempotent: bool = False) -> int:
        kind = None if compression == "none" else compression
        with self.producer(compression_type=kind, enable_idempotence=idempotent) as producer:
            sent = [producer.send(self.topic, value.encode(), partition=0, timestamp_ms=time_of(value))
                    for value in values]
            first, *_ = [each.get(timeout=WAIT_S).offset for each in sent]
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
        spec = kafka.admin.OffsetSpec
        specs = (spec.EARLIEST, spec.LATEST, 5, spec.MAX_TIMESTAMP)
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


# -- the calls ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with cluster_up(tmp_path_factory.mktemp("calls")) as running:
        yield running


@pytest.mark.parametrize("client", [Confluent, KafkaPython])
def test_each_call_has_its_answer_at_once(up: Up, client: Any) -> None:
    assert wrong(client, up.bootstrap) == []


@pytest.mark.java
@pytest.mark.long
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac is installed")
def test_the_java_client(up: Up) -> None:
    """A client without librdkafka and without Python."""
    skip_without(JAVA_CLIENT)
    assert wrong_in_java(up.bootstrap) == []


async def test_aiokafka_writes_and_reads_records(up: Up) -> None:
    """Of the clients the one that speaks the oldest versions."""
    with closing(Confluent(up.bootstrap, a_topic("aiokafka"))) as admin:
        admin.calls["create a topic"](admin)
    where: dict[str, Any] = {"bootstrap_servers": up.bootstrap}
    written = []
    async with asyncio.timeout(WAIT_S):
        for kind in COMPRESSIONS:
            async with AIOKafkaProducer(**where, acks="all", linger_ms=20, enable_idempotence=kind == "none",
                                        compression_type=kind if kind != "none" else None) as producer:
                sent = [await producer.send(admin.topic, value.encode()) for value in values_of(kind)]
                written += [(one.offset, value) for one, value in
                            zip(await asyncio.gather(*sent), values_of(kind), strict=True)]
        async with AIOKafkaConsumer(admin.topic, **where, auto_offset_reset="earliest") as consumer:
            read = [await consumer.getone() for _ in written]
    assert [(one.offset, one.value.decode()) for one in read] == written


def test_a_deleted_topic_is_not_shown(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    """`cluster state` has seen it before; another topic is still there."""
    def shown() -> set[str]:
        assert cluster.state(up.folder, as_json=True) == 0
        return {one["topic"] for one in json.loads(capsys.readouterr().out)["partitions"]}

    with closing(Confluent(up.bootstrap, "kept")) as kept, closing(Confluent(up.bootstrap, "gone")) as gone:
        kept.calls["create a topic"](kept)
        gone.calls["create a topic"](gone)
        assert shown() >= {"kept", "gone"}
        gone.calls["delete the topic"](gone)
    assert "kept" in shown()
    assert "gone" not in shown()


def test_what_is_refused_is_logged(up: Up) -> None:
    """Once for each client, in the log of the broker that refused it; and before that on the first screen."""
    with closing(Confluent(up.bootstrap, "refused")) as client:
        client.calls["create a topic"](client)
        for _ in range(4):  # each broker would coordinate: of three, one is asked twice
            assert is_refused(client, **{"client.id": "asked-once", "group.id": "one"})
    logs = [up.log(node) for node in ("n1", "n2", "n3")]
    screen = up.screen.read_text(encoding="utf-8")

    line = 'not-served asked="consumer groups" client=asked-once group=one'
    assert sum(log.count("client=asked-once") for log in logs) in (1, 2, 3)
    assert max(log.count(line) for log in logs) == 1
    assert "no consumer groups" in screen
    assert "no transactions" in screen
