"""Kafka's own command-line tools on the reference broker: what works, and what is refused by name.

Each call is the main class that the script of that name in Kafka's bin folder starts.
"""

import re
import subprocess
from collections.abc import Iterator

import pytest
from real_brokers import RealBrokers
from real_kafka import dump_log_segments, skip_without

from floodmark.harness.cluster.kafka.distribution import distribution

pytestmark = pytest.mark.kafka
VERSION = "4.3.1"
AT_ONCE_S = 20.0  # a JVM starts in one second; a client that waits without output takes thirty or sixty
PLACE = "org.apache.kafka.tools"
TOPICS, CONFIGS = f"{PLACE}.TopicCommand", "kafka.admin.ConfigCommand"
GROUPS = f"{PLACE}.consumer.group.ConsumerGroupCommand"
GROUP_REFUSED = "Not authorized to access group"


class Stage:
    """Three brokers with the topic `t`, of three partitions, to which `a`, `b` and `c` were produced."""

    def __init__(self, brokers: RealBrokers) -> None:
        self.brokers, self.kafka = brokers, distribution(VERSION)

    def run(self, main_class: str, words: str, typed: str = "") -> tuple[str, int]:
        """What it prints, and its exit code. Raises TimeoutExpired if the tool hangs."""
        given, to = words.split(), ["--bootstrap-server", self.brokers.bootstrap]
        # Tools with subcommands want it before these; kafka-cluster after them.
        given = [*given, *to] if main_class.endswith(".ClusterTool") else [*to, *given]
        done = subprocess.run(
            [self.kafka.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
             "-cp", self.kafka.classpath, main_class, *given],
            capture_output=True, text=True, check=False, timeout=AT_ONCE_S, input=typed)  # fmt: skip
        return done.stdout + done.stderr, done.returncode

    def expect(self, main_class: str, words: str, *lines: str, typed: str = "", code: int = 0) -> None:
        """Each of `lines` is a pattern that must be in the output."""
        printed, ended = self.run(main_class, words, typed)
        for line in lines:
            assert re.search(line, printed), printed[-2000:]
        assert ended == code, printed[-2000:]

    def create(self, topic: str, partitions: int = 1) -> None:
        self.expect(TOPICS, f"--create --topic {topic} --partitions {partitions} --replication-factor 3",
                    f"Created topic {topic}")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    skip_without(VERSION)
    with RealBrokers(tmp_path_factory.mktemp("tools")) as brokers:
        found = Stage(brokers)
        found.create("t", 3)
        found.expect(f"{PLACE}.ConsoleProducer", "--topic t --command-property partitioner.ignore.keys=true",
                     typed="a\nb\nc\n")
        yield found


REFUSED = "The node does not support {}".format
ASKED: list[tuple[str, str, list[str], int]] = [  # a tool, its words, what it prints, its exit code
    (TOPICS, "--list", [r"(?m)^t$"], 0),
    (TOPICS, "--describe --topic t",
     ["PartitionCount: 3\tReplicationFactor: 3", r"Partition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3"], 0),
    (TOPICS, "--describe --under-replicated-partitions", [r"^\s*$"], 0),
    (CONFIGS, "--describe --entity-type topics --entity-name t --all", [r"min\.insync\.replicas=2 "], 0),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1", ["Dynamic configs for broker 1 are:"], 0),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1 --all", [r"node\.id=1 "], 0),
    (f"{PLACE}.GetOffsetShell", "--topic t", [r"(?m)^t:0:\d+$", r"(?m)^t:1:\d+$", r"(?m)^t:2:\d+$"], 0),
    (f"{PLACE}.GetOffsetShell", "--topic t --time max-timestamp", [r"(?m)^t:\d:\d$"], 0),
    (f"{PLACE}.BrokerApiVersionsCommand", "",
     [r"DescribeConfigs\(32\): 1 to 4", r"DescribeQuorum\(55\): UNSUPPORTED"], 0),
    (f"{PLACE}.LeaderElectionCommand", "--election-type preferred --all-topic-partitions", [], 0),
    (f"{PLACE}.LeaderElectionCommand", "--election-type unclean --topic t --partition 0",
     ["Valid replica already elected for partitions t-0"], 0),
    (f"{PLACE}.ClusterTool", "cluster-id", ["Cluster ID: floodmark"], 0),
    (f"{PLACE}.ClusterTool", "list-endpoints", [r"(?m)^3 +127\.0\.0\.1 .* unfenced "], 0),
    (GROUPS, "--list", [], 0),
    (GROUPS, "--describe --group g", [REFUSED("DESCRIBE_GROUPS")], 0),
    (f"{PLACE}.MetadataQuorumCommand", "describe --status", [REFUSED("DESCRIBE_QUORUM")], 1),
    (f"{PLACE}.LogDirsCommand", "--describe", [REFUSED("DESCRIBE_LOG_DIRS")], 1),
    (f"{PLACE}.reassign.ReassignPartitionsCommand", "--list", [REFUSED("LIST_PARTITION_REASSIGNMENTS")], 1),
    (f"{PLACE}.TransactionsCommand", "list", [REFUSED("LIST_TRANSACTIONS")], 1),
]


@pytest.mark.parametrize(("main_class", "words", "lines", "code"), ASKED)
def test_a_tool_that_asks_is_answered_or_refused_by_name(
        stage: Stage, main_class: str, words: str, lines: list[str], code: int) -> None:
    stage.expect(main_class, words, *lines, code=code)


def test_a_consumer_in_a_group_is_refused_by_name(stage: Stage) -> None:
    stage.expect(f"{PLACE}.consumer.ConsoleConsumer", "--topic t --from-beginning --timeout-ms 15000",
                 GROUP_REFUSED)
    stage.expect(f"{PLACE}.ConsumerPerformance", "--topic t --num-records 3 --timeout 15000", GROUP_REFUSED,
                 code=1)  # fmt: skip


def test_produced_by_the_console_is_consumed_by_it(stage: Stage) -> None:
    """One partition each: a consumer without a group reads what it assigns to itself."""
    consumer = f"{PLACE}.consumer.ConsoleConsumer"
    found = [stage.run(consumer, f"--topic t --partition {index} --offset earliest --timeout-ms 1500")[0]
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
    stage.expect(TOPICS, "--describe --topic life", "Topic 'life' does not exist", code=1)
    stage.expect(TOPICS, "--delete --topic life", "Topic 'life' does not exist", code=1)
