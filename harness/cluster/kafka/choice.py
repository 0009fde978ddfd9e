"""Makes the system for a version or folder of Apache Kafka, in KRaft or ZooKeeper mode, with the user's
settings.

Rules
1. What this machine lacks, and what the mode does not support, is refused before anything starts.
2. The protocol generations (--rules) are protocol versions of older Kafkas, which only ZooKeeper mode
   supports.
"""

import functools
import sys
from collections.abc import Mapping, Sequence

from floodmark.harness.cluster.kafka import class_archive
from floodmark.harness.cluster.kafka.cut_logs import CutLogs
from floodmark.harness.cluster.kafka.distribution import Distribution, distribution, form_of, named
from floodmark.harness.cluster.kafka.kafka_system import CONTROLLER_ID, Form, KafkaSystem
from floodmark.harness.cluster.kafka.kraft import KRaft
from floodmark.harness.cluster.kafka.settings import refuse_ours
from floodmark.harness.cluster.layout import node_names
from floodmark.harness.errors import UsageError
from floodmark.harness.schedule.views import CONTROLLER

FLUSH, BROKERS_FLUSH = "flush.messages", "log.flush.interval.messages"  # a topic's key, its broker's
LATEST_RULES = "kip-320"


def kafka_system(nodes: int, *, version_or_dir: str, rules: str, bugs: Sequence[str],
                 config: Mapping[str, str], topic_config: Mapping[str, str],
                 topics: Mapping[str, Mapping[str, str]] | None = None) -> KafkaSystem:
    """Makes the system; nothing is started. topic_config: of every topic; topics: of single ones, overriding
    those. Missing jars are fetched, with progress on standard error."""
    refuse_ours(config, "-c")
    refuse_ours(topic_config, "-t")
    if bugs:
        raise UsageError(f"--bug {bugs[0]} is a bug of the reference broker, which Apache Kafka does not "
                         "have: leave out --bug or --kafka")
    version, _ = named(version_or_dir)
    if rules != LATEST_RULES and form_of(version) == "kraft":
        raise UsageError(f"--rules {rules} needs a Kafka that runs with ZooKeeper, such as 2.8.2; "
                         f"{version} has only {LATEST_RULES}")
    kafka = found(version_or_dir)
    ids = {**{node: number for number, node in enumerate(node_names(nodes), start=1)},
           CONTROLLER: CONTROLLER_ID}
    form = _form(kafka, rules, config, ids)

    def flushes_every(topic: str) -> bool:
        given = {**topic_config, **(topics or {}).get(topic, {})}
        return given.get(FLUSH, form.settings.get(BROKERS_FLUSH)) == "1"

    return KafkaSystem(kafka, form, ids, power=CutLogs(flushes_every), topic_config=topic_config,
                       topics=topics)


@functools.cache
def found(version_or_dir: str) -> Distribution:
    """The distribution, with its class-data archive; cached, because every jar's checksum is verified."""
    kafka = distribution(version_or_dir, _say)
    class_archive.make(kafka, _say)
    return kafka


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _form(kafka: Distribution, rules: str, config: Mapping[str, str], ids: Mapping[str, int]) -> Form:
    if kafka.form == "kraft":
        return KRaft(kafka, config, ids)
    from floodmark.harness.cluster.kafka.zookeeper import ZooKeeper  # it needs an optional package

    return ZooKeeper(kafka, config, ids, rules=rules)
