"""Kafka's own command-line tools on the reference broker: what works, and what is refused by name.

Each call is the main class that the script of that name in Kafka's bin folder starts.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_brokers import RealBrokers
from real_kafka import dump_log_segments, skip_without
from run_processes import wait_until

from floodmark.harness.cluster.kafka.distribution import distribution

pytestmark = pytest.mark.kafka
VERSION = "4.3.1"
AT_ONCE_S = 20.0  # a JVM starts in one second; a client that waits without output takes thirty or sixty
PLACE = "org.apache.kafka.tools"
TOPICS, CONFIGS = f"{PLACE}.TopicCommand", "kafka.admin.ConfigCommand"
GROUPS = f"{PLACE}.consumer.group.ConsumerGroupCommand"
REASSIGN = f"{PLACE}.reassign.ReassignPartitionsCommand"
NOT_SERVED = "The node does not support {}"
GROUP_REFUSED = "Not authorized to access group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    code: int
    text: str  # stdout and stderr


class Stage:
    """Three brokers with the topic `t`, of three partitions, to which `a`, `b` and `c` were produced."""

    def __init__(self, folder: Path, brokers: RealBrokers) -> None:
        self.folder, self.brokers, self.kafka = folder, brokers, distribution(VERSION)
        (folder / "records.json").write_text(
            '{"version":1,"partitions":[{"topic":"t","partition":0,"offset":1}]}')

    def run(self, main_class: str, words: str, typed: str = "") -> Printed:
        """`@NAME` in the words is a file of the folder. Raises TimeoutExpired if the tool hangs."""
        given = [str(self.folder / word[1:]) if word[0] == "@" else word for word in words.split()]
        to = ["--bootstrap-server", self.brokers.bootstrap]
        # Tools with subcommands want it before these; kafka-cluster after them.
        given = [*given, *to] if main_class.endswith(".ClusterTool") else [*to, *given]
        done = subprocess.run(
            [self.kafka.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
             "-cp", self.kafka.classpath, main_class, *given],
            capture_output=True, text=True, check=False, timeout=AT_ONCE_S, input=typed)  # fmt: skip
        return Printed(code=done.returncode, text=done.stdout + done.stderr)

    def expect(self, main_class: str, words: str, *lines: str, typed: str = "", code: int = 0) -> str:
        """Each of `lines` is a pattern that must be in the output."""
        printed = self.run(main_class, words, typed)
        for line in lines:
            assert re.search(line, printed.text), printed.text[-2000:]
        assert printed.code == code, printed.text[-2000:]
        return printed.text

    def create(self, topic: str, partitions: int = 1) -> None:
        self.expect(TOPICS, f"--create --topic {topic} --partitions {partitions} --replication-factor 3",
                    f"Created topic {topic}")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    skip_without(VERSION)
    folder = tmp_path_factory.mktemp("tools")
    with RealBrokers(folder) as brokers:
        found = Stage(folder, brokers)
        found.create("t", 3)
        found.expect(f"{PLACE}.ConsoleProducer", "--topic t --command-property partitioner.ignore.keys=true",
                     typed="a\nb\nc\n")
        yield found


WORKS = [
    (TOPICS, "--list", [r"(?m)^t$"]),
    (TOPICS, "--describe --topic t",
     ["PartitionCount: 3\tReplicationFactor: 3", r"Partition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3"]),
    (TOPICS, "--describe --under-replicated-partitions", [r"^\s*$"]),
    (CONFIGS, "--describe --entity-type topics --entity-name t", ["Dynamic configs for topic t are:"]),
    (CONFIGS, "--describe --entity-type topics --entity-name t --all", [r"min\.insync\.replicas=2 "]),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1", ["Dynamic configs for broker 1 are:"]),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1 --all", [r"node\.id=1 "]),
    (CONFIGS, "--describe --entity-type brokers", ["Default configs for brokers in the cluster are:"]),
    (f"{PLACE}.GetOffsetShell", "--topic t", [r"(?m)^t:0:\d+$", r"(?m)^t:1:\d+$", r"(?m)^t:2:\d+$"]),
    (f"{PLACE}.GetOffsetShell", "--topic t --time earliest", [r"(?m)^t:0:0$"]),
    (f"{PLACE}.GetOffsetShell", "--topic t --time max-timestamp", [r"(?m)^t:\d:\d$"]),
    (f"{PLACE}.BrokerApiVersionsCommand", "",
     [r"DescribeConfigs\(32\): 1 to 4", r"DeleteTopics\(20\): 1 to 6", r"DescribeQuorum\(55\): UNSUPPORTED"]),
    (f"{PLACE}.LeaderElectionCommand", "--election-type preferred --all-topic-partitions", []),
    (f"{PLACE}.LeaderElectionCommand", "--election-type unclean --topic t --partition 0",
     ["Valid replica already elected for partitions t-0"]),
    (f"{PLACE}.ClusterTool", "cluster-id", ["Cluster ID: floodmark"]),
    (f"{PLACE}.ClusterTool", "list-endpoints", [r"(?m)^3 +127\.0\.0\.1 .* unfenced "]),
    (GROUPS, "--list", []),
    (f"{PLACE}.GroupsCommand", "--list", ["GROUP +TYPE"]),
]  # fmt: skip
REFUSED = [
    (GROUPS, "--describe --group g", "DESCRIBE_GROUPS", 0),
    (f"{PLACE}.MetadataQuorumCommand", "describe --status", "DESCRIBE_QUORUM", 1),
    (f"{PLACE}.LogDirsCommand", "--describe", "DESCRIBE_LOG_DIRS", 1),
    (REASSIGN, "--list", "LIST_PARTITION_REASSIGNMENTS", 1),
    (f"{PLACE}.DeleteRecordsCommand", "--offset-json-file @records.json", "DELETE_RECORDS", 0),
    (f"{PLACE}.FeatureCommand", "upgrade --release-version 4.0", "UPDATE_FEATURES", 1),
    (f"{PLACE}.AclCommand", "--list", "DESCRIBE_ACLS", 1),
    (f"{PLACE}.TransactionsCommand", "list", "LIST_TRANSACTIONS", 1),
    (f"{PLACE}.TransactionsCommand", "describe-producers --topic t --partition 0", "DESCRIBE_PRODUCERS", 1),
    (f"{PLACE}.ClientMetricsCommand", "--list", "LIST_CONFIG_RESOURCES", 1),
]  # fmt: skip


@pytest.mark.parametrize(("main_class", "words", "lines"), WORKS)
def test_a_tool_that_asks_works(stage: Stage, main_class: str, words: str, lines: list[str]) -> None:
    stage.expect(main_class, words, *lines)


@pytest.mark.parametrize(("main_class", "words", "api", "code"), REFUSED)
def test_what_is_not_served_is_refused_by_name(
    stage: Stage, main_class: str, words: str, api: str, code: int
) -> None:
    stage.expect(main_class, words, NOT_SERVED.format(api), code=code)


def test_a_consumer_in_a_group_is_refused_by_name(stage: Stage) -> None:
    stage.expect(f"{PLACE}.consumer.ConsoleConsumer", "--topic t --from-beginning --timeout-ms 15000",
                 GROUP_REFUSED)
    stage.expect(f"{PLACE}.ConsumerPerformance", "--topic t --num-records 3 --timeout 15000", GROUP_REFUSED,
                 code=1)  # fmt: skip


def test_produced_by_the_console_is_consumed_by_it(stage: Stage) -> None:
    """One partition each: a consumer without a group reads what it assigns to itself."""
    consumer = f"{PLACE}.consumer.ConsoleConsumer"
    found = [stage.run(consumer, f"--topic t --partition {index} --offset earliest --timeout-ms 1500").text
             for index in range(3)]
    assert sorted(line for text in found for line in text.splitlines() if line in ("a", "b", "c")) == \
        ["a", "b", "c"]


def test_the_tools_that_measure_and_the_log_that_they_wrote(stage: Stage) -> None:
    stage.create("perf")
    stage.expect(f"{PLACE}.VerifiableProducer", "--topic perf --max-messages 20", '"sent":20,"acked":20')
    stage.expect(f"{PLACE}.ProducerPerformance",
                 "--topic perf --num-records 1000 --record-size 100 --throughput -1", "1000 records sent")
    stage.expect(f"{PLACE}.GetOffsetShell", "--topic perf", r"(?m)^perf:0:1020$")
    stage.brokers.wait_isr("perf", 1, 2, 3)
    for node in stage.brokers.brokers:
        files = sorted((stage.brokers.log_dir(node) / "perf-0").glob("*.log"))
        text = dump_log_segments(stage.kafka, files)
        assert len(re.findall(r"(?m)^\| offset: ", text)) == 1020
        assert "isvalid: false" not in text


def test_a_topic_from_its_creation_to_its_deletion(stage: Stage) -> None:
    stage.create("life", 2)
    stage.expect(TOPICS, "--alter --topic life --partitions 3")
    stage.expect(CONFIGS, "--alter --entity-type topics --entity-name life --add-config flush.messages=1")
    stage.expect(CONFIGS, "--describe --entity-type topics --entity-name life", r"flush\.messages=1 ")
    stage.expect(TOPICS, "--describe --topic life", "PartitionCount: 3", r"Configs: .*flush\.messages=1")
    stage.expect(TOPICS, "--create --topic life", "'life' already exists", code=1)
    stage.expect(f"{PLACE}.VerifiableProducer", "--topic life --max-messages 9", '"acked":9')
    stage.expect(TOPICS, "--delete --topic life")
    for node in stage.brokers.brokers:
        wait_until(f"the logs of life to be gone from broker {node}",
                 lambda node=node: not list(stage.brokers.log_dir(node).glob("life-*")))
        checkpoint = stage.brokers.log_dir(node) / "replication-offset-checkpoint"
        wait_until("its high watermarks to be gone", lambda path=checkpoint: "life" not in path.read_text())
    stage.expect(TOPICS, "--describe --topic life", "Topic 'life' does not exist", code=1)
    stage.expect(TOPICS, "--delete --topic life", "Topic 'life' does not exist", code=1)
    assert not stage.brokers.partition("life")
