"""Turns rows of scenarios into runs, and plays them: several in parallel, each repeated at most twice if it
failed or missed a moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from floodmark.harness.cluster.kafka.distribution import form_of, is_image, is_version, version_of
from floodmark.harness.commands.run import planned
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import TRIES, Play, Played, Say, play_all
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.reports.case_names import ROW, SCENARIO
from floodmark.harness.spec import TOPIC, RunSpec, key_values
from floodmark.nemesis import systems
from floodmark.nemesis.expectations import Row
from floodmark.nemesis.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of one scenario, to be played."""

    scenario: Scenario
    row: Row
    kafka: str | None = None  # Apache Kafka, a version or a folder; None: the reference broker
    turn: int = 1  # of the --times plays of this row

    @property
    def title(self) -> str:
        on = "" if self.kafka is None else f"Kafka {self.kafka}, "
        return f"{self.scenario.name} on {on}{self.row.label}{self._of_turn(', time ')}"

    @property
    def folder_name(self) -> str:
        """The run folder's name, without a comma: Kafka's log.dirs is a list."""
        label = self.row.label.replace(" ", "+").replace(",", "+")
        return f"{self.scenario.name}-{label}{self._of_turn('-time-')}"

    def _of_turn(self, before: str) -> str:
        return f"{before}{self.turn}" if self.turn > 1 else ""


def plays_of(parts: Sequence[Part], cluster: str, parent: Path) -> list[Play]:
    """The runs of these parts, each with the tries of a scenario."""

    def play_of(part: Part) -> Play:
        return Play(title=part.title, folder=parent / part.folder_name, scenario=part.scenario, tries=TRIES,
                    plan=lambda folder: planned(spec_of(part, cluster, folder), part.scenario.schedule))

    return list(map(play_of, parts))


def play(parts: Sequence[Part], cluster: str, parent: Path, *, at_once: int, say: Say) -> list[Played]:
    """Plays all parts, `at_once` at a time; the results are in the given order."""
    broken_off = "interrupted: the scenarios were not played to the end"
    plays = play_all(plays_of(parts, cluster, parent), at_once=at_once, say=say, broken_off=broken_off)
    if any(played.interrupted for played in plays):
        raise FloodmarkError(broken_off)
    return plays


def spec_of(part: Part, cluster: str, folder: Path) -> RunSpec:
    """A part's run: a cluster without load except what the steps send."""
    scenario, row, setting = part.scenario, part.row, part.scenario.setting
    config = {**scenario.config, **systems.config_on(row.config, system_of(part.kafka))}
    if row.switches:
        config["floodmark.switches"] = ",".join(row.switches)
    return RunSpec(
        cluster=cluster,
        kafka=part.kafka,
        assignment=partitions_of(part) if setting.topics else (),
        topics={f"{TOPIC}-{key}": keys for key, keys in enumerate(row.topics) if keys},
        nodes=setting.nodes,
        rules=row.rules,
        bugs=row.bugs,
        config=key_values(config),
        links=setting.links,
        workload=setting.workload,
        concurrency=0,
        partitions=setting.partitions,
        replication_factor=setting.replication_factor,
        acks=setting.acks,
        seed=1,
        duration=0.1,
        asked={SCENARIO: scenario.name, ROW: row.label},
        out=folder,
    )


def system_of(kafka: str | None) -> str:
    """The system's name for --kafka. A folder's version is only known when it is opened: what it cannot do is
    refused then."""
    if kafka is None:
        return systems.REFERENCE
    word = version_of(kafka) if is_image(kafka) else kafka
    return systems.KRAFT if is_version(word) and form_of(word) == "kraft" else systems.ZOOKEEPER


def partitions_of(part: Part) -> tuple[PartitionSpec, ...]:
    """A topic for each partition, all with the same replicas. Kafka's two fetcher threads get topics with
    these names alternately (AbstractFetcherManager.getFetcherId): records of one topic do not speed up the
    next one's fetches."""
    setting = part.scenario.setting
    return tuple(
        PartitionSpec(key=key, topic=f"{TOPIC}-{key}", partition=0,
                      replicas=setting.names[:setting.replication_factor])
        for key in range(setting.partitions))
