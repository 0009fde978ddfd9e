"""Reads run.json of a saved run, so that its cluster, its load and its schedule can be set up again.

Rules
1. What run.json lacks is refused by name; the one thing that may be inferred (links) is told.
2. The folder may come from a stranger. What it says is a name, a number in bounds, or one of the words that
   there are; anything else is refused before a process starts (UsageError). It never becomes a path, an
   address or an id, nor a second line of a configuration. Moments made from the history
   (schedule/reanchoring.py) are read as strictly as those of a file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from floodmark.harness.broker_config import checked
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import COMPRESSIONS, USUAL_LOAD, LoadShape, PartitionSpec
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import Schedule

NEEDED = ("seed", "cluster", "rules", "workload", "nodes", "partitions", "config", "guarantees", "schedule",
          "concurrency", "rate", "duration_s")
NODES_AT_MOST = 9  # as of --nodes
PARTITIONS_AT_MOST = 10_000
CONCURRENCY_AT_MOST = 10_000
ENTRIES_AT_MOST = 100_000  # of a schedule
BATCH_SIZES_AT_MOST, BATCH_AT_MOST = 100, 1000
DURATION_AT_MOST_S = 7 * 86_400.0
_NOT_GIVEN = frozenset({"floodmark.rules", "floodmark.bugs", "floodmark.trace", "floodmark.failpoints"})
_TOPIC = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
_VALUE = re.compile(r"[A-Za-z0-9_.,+-]{0,1000}")  # of every key that a run may set
_VERSION = re.compile(r"\d+\.\d+(\.\d+)*([.-][0-9A-Za-z]+)*")
_ID = re.compile(r"[A-Za-z0-9._-]{0,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The cluster and the load of a saved run."""

    run_id: str
    cluster: str
    kafka: str | None  # the version of Apache Kafka that ran; None: the reference broker
    topic_config: Mapping[str, str]  # Kafka's keys, of every topic
    topics: Mapping[str, Mapping[str, str]]  # of single ones by name, over those
    nodes: tuple[str, ...]
    rules: str
    bugs: tuple[str, ...]
    config: Mapping[str, str]  # Kafka's keys, of every broker
    links: str
    workload: str
    assignment: tuple[PartitionSpec, ...]
    acks: str
    concurrency: int
    rate: float | None
    seed: int
    duration_s: float
    load: LoadShape = USUAL_LOAD
    inferred: tuple[str, ...] = ()  # what run.json did not say, and what was taken for it


# -- the cluster and the load -------------------------------------------------------------------------------


def read_settings(about: Mapping[str, Any], source: str) -> Settings:
    """From run.json; FloodmarkError names what is missing or cannot be had."""
    lacking = [name for name in NEEDED if name not in about]
    if lacking:
        raise FloodmarkError(f"{source} cannot be had again: its run.json lacks {', '.join(lacking)} (it was "
                             "made by hand, by another tool, or by an older floodmark)")
    try:
        return _settings(about, source)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise FloodmarkError(f"{source} cannot be had again: its run.json is damaged ({error!r})") from error


def _settings(about: Mapping[str, Any], source: str) -> Settings:
    nodes = _nodes(about["nodes"], source)
    config = _one_config(about["config"], nodes, source)
    words = _config_words(config, source)
    system = about.get("system", {})
    kafka = _kafka(system, source)
    given = {key: word for key, word in words.items() if key not in _NOT_GIVEN}
    given |= _config_words(system.get("features", {}), source)  # they are given as settings are
    links, inferred = about.get("links"), []
    if links is None:
        links = "proxied" if any(entry.get("f") == "cut" for entry in about["schedule"]) else "direct"
        inferred.append(f"run.json does not say which links there were: {links}, as for such a schedule")
    return Settings(
        run_id=_name("id", about.get("id", ""), _ID, source), cluster=str(about["cluster"]),
        kafka=kafka, nodes=nodes,
        topic_config=_config_words(system.get("topic_config", {}), source),
        topics={_name("a topic of `system`", topic, _TOPIC, source): _config_words(keys, source)
                for topic, keys in system.get("topics", {}).items()},
        rules=str(about["rules"]), workload=str(about["workload"]), links=str(links),
        bugs=tuple(filter(None, words.get("floodmark.bugs", "").split(","))),
        config=given if kafka is not None else checked(
            given, before=f"{source} cannot be had again: in its run.json `config` has "),
        assignment=_assignment(about["partitions"], nodes, source),
        acks=str(about["guarantees"]["acks"]),
        concurrency=_whole("concurrency", about["concurrency"], source, most=CONCURRENCY_AT_MOST),
        rate=None if about["rate"] is None else _positive("rate", about["rate"], source),
        seed=_whole("seed", about["seed"], source, least=-(2**63), most=2**63 - 1),
        duration_s=_positive("duration_s", about["duration_s"], source, most=DURATION_AT_MOST_S),
        load=_load(about.get("load"), source), inferred=tuple(inferred))


def _load(told: Any, source: str) -> LoadShape:
    """What the ops were like; absent: as usual."""
    if told is None:
        return USUAL_LOAD
    sizes, compression = told["batch_sizes"], told["compression"]
    if not isinstance(sizes, list) or not 0 < len(sizes) <= BATCH_SIZES_AT_MOST:
        _refuse(source, f"the batch sizes of `load` are {_shown(sizes)}, no list of at most "
                        f"{BATCH_SIZES_AT_MOST}")
    if compression not in COMPRESSIONS:
        _refuse(source, f"the compression of `load` is {_shown(compression)}, none of "
                        f"{', '.join(COMPRESSIONS)}")

    def whole(name: str, value: object, least: int, most: int) -> int:
        return _whole(name, value, source, least=least, most=most)

    return LoadShape(
        batch_sizes=tuple(whole("a batch size", size, 1, BATCH_AT_MOST) for size in sizes),
        compression=compression, in_flight=whole("in_flight", told["in_flight"], 1, 5),
        readers_every=whole("readers_every", told["readers_every"], 2, CONCURRENCY_AT_MOST),
        idempotent_every=whole("idempotent_every", told.get("idempotent_every", 0), 0, CONCURRENCY_AT_MOST))


def _refuse(source: str, what: str) -> NoReturn:
    raise UsageError(f"{source} cannot be had again: in its run.json {what}")


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _whole(name: str, value: object, source: str, *, least: int = 0, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        _refuse(source, f"{name} is {_shown(value)}, no whole number from {least} to {most}")
    return value


def _positive(name: str, value: object, source: str, *, most: float = 1e9) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        _refuse(source, f"{name} is {_shown(value)}, no number above 0 and of at most {most:g}")
    return float(value)


def _name(what: str, value: object, pattern: re.Pattern[str], source: str) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        _refuse(source, f"{what} is {_shown(value)}, which is no such name")
    return value


def _kafka(system: Mapping[str, Any], source: str) -> str | None:
    """The version of Apache Kafka that ran. One that was unpacked in a folder is had again by its version: a
    folder's name from a stranger is no path to go to."""
    name = system.get("name", "reference")  # an older run.json does not say
    if name == "reference":
        return None
    if name != "kafka":
        _refuse(source, f"what ran is {_shown(name)}, which this floodmark cannot start")
    return _name("the version of Kafka", system.get("version"), _VERSION, source)


def _nodes(told: Any, source: str) -> tuple[str, ...]:
    if not isinstance(told, list) or not all(isinstance(node, str) for node in told):
        _refuse(source, f"`nodes` is {_shown(told)}, no list of names")
    if len(told) > NODES_AT_MOST:
        _refuse(source, f"there are {len(told)} nodes, and a cluster here has at most {NODES_AT_MOST}")
    return tuple(told)


def _config_words(told: Mapping[str, Any], source: str) -> dict[str, str]:
    return {key: _config_word(key, value, source) for key, value in told.items()}


def _config_word(key: object, value: object, source: str) -> str:
    """A value as -c takes it. Key and value go into the brokers' properties files, where a line break would
    begin another; which keys there are, and what each takes, broker_config.py knows."""
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        _refuse(source, f"`config` has the key {_shown(key)}, which no broker has")
    if type(value) not in (int, bool, str) or _VALUE.fullmatch(_word(value)) is None:
        _refuse(source, f"`config` sets {key} to {_shown(value)}, which no key takes")
    return _word(value)


def _one_config(config: Mapping[str, Mapping[str, Any]], nodes: Sequence[str], source: str
                ) -> Mapping[str, Any]:
    """What every node was set to."""
    lacking = [node for node in nodes if node not in config]
    if lacking or not nodes:
        raise FloodmarkError(f"{source} cannot be had again: its run.json has no config of "
                             f"{', '.join(lacking) or 'any node'}")
    first = config[nodes[0]]
    for node in nodes:
        if config[node] != first:
            raise FloodmarkError(f"{source} cannot be had again: {nodes[0]} and {node} were configured "
                                 "differently, and a cluster here has one configuration")
    return first


def _assignment(told: Any, nodes: Sequence[str], source: str) -> tuple[PartitionSpec, ...]:
    if len(told) > PARTITIONS_AT_MOST:
        _refuse(source, f"there are {len(told)} partitions, and at most {PARTITIONS_AT_MOST} are had again")
    return tuple(_partition(key, partition, nodes, source) for key, partition in told.items())


def _partition(key: str, told: Mapping[str, Any], nodes: Sequence[str], source: str) -> PartitionSpec:
    if not (key.isascii() and key.isdigit()):
        _refuse(source, f"a partition is called {_shown(key)}, and their keys are numbers")
    replicas = told["replicas"]
    if not isinstance(replicas, list) or not replicas or any(node not in nodes for node in replicas) or len(
            set(replicas)) < len(replicas):
        _refuse(source, f"the replicas of partition {key} are {_shown(replicas)}, not some of its nodes")
    return PartitionSpec(
        key=int(key), topic=_name(f"the topic of partition {key}", told["topic"], _TOPIC, source),
        partition=_whole(f"the number of partition {key} in its topic", told["partition"], source,
                         most=2**31 - 1),
        replicas=tuple(replicas))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_schedule(about: Mapping[str, Any], settings: Settings, source: str) -> Schedule:
    """The saved schedule, read as strictly as any."""
    return _read(about["schedule"], settings, source)


def _read(entries: Any, settings: Settings, source: str) -> Schedule:
    if isinstance(entries, list) and len(entries) > ENTRIES_AT_MOST:
        _refuse(source, f"the schedule has {len(entries)} entries; at most {ENTRIES_AT_MOST} are had again")
    try:
        return json_form.read(entries, source="its schedule", nodes=settings.nodes,
                                  partitions=[spec.key for spec in settings.assignment])
    except UsageError as error:
        raise UsageError(f"{source} cannot be had again: {error}") from error


def refuse_odd_moments(schedule: Schedule, settings: Settings, source: str) -> None:
    """Moments hold what the history said of leaders, ISRs and times: UsageError unless a file might say it
    too."""
    _read(json_form.write(schedule), settings, f"{source}, by its history,")
