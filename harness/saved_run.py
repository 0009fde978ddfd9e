"""Reads the settings and the schedule of a saved run from its run.json, to reproduce the run.

Rules
1. A run.json without a needed key is refused, and the error names the key. Only `links` is inferred, and
   `inferred` says so.
2. The folder may come from an untrusted source. Each value must be a valid name, a number in bounds, or one
   of a fixed set; otherwise the run is refused before any process starts (UsageError). No value becomes a
   path or an address, or adds a line to a configuration file. Moments made from the history
   (schedule/reanchoring.py) are checked as strictly as those of a file.
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
NODES_AT_MOST = 9  # as for --nodes
PARTITIONS_AT_MOST = 10_000
CONCURRENCY_AT_MOST = 10_000
ENTRIES_AT_MOST = 100_000  # of a schedule
BATCH_SIZES_AT_MOST, BATCH_AT_MOST = 100, 1000
REST_AT_MOST = 10**9
TIMEOUT_AT_MOST_MS = 60_000
DURATION_AT_MOST_S = 7 * 86_400.0
_NOT_SETTINGS = frozenset({"floodmark.rules", "floodmark.bugs", "floodmark.trace", "floodmark.failpoints"})
_TOPIC = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
_VALUE = re.compile(r"[A-Za-z0-9_.,+-]{0,1000}")  # the values of all keys that a run may set
_VERSION = re.compile(r"\d+\.\d+(\.\d+)*([.-][0-9A-Za-z]+)*")
_ID = re.compile(r"[A-Za-z0-9._-]{0,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a saved run: its cluster and its load."""

    run_id: str
    cluster: str
    kafka: str | None  # the version of Apache Kafka that ran; None: the reference broker
    topic_config: Mapping[str, str]  # Kafka's keys for all topics
    topics: Mapping[str, Mapping[str, str]]  # Kafka's keys for single topics, which override those
    nodes: tuple[str, ...]
    rules: str
    bugs: tuple[str, ...]
    config: Mapping[str, str]  # Kafka's keys for all brokers
    links: str
    workload: str
    assignment: tuple[PartitionSpec, ...]
    acks: str
    concurrency: int
    rate: float | None
    seed: int
    duration_s: float
    load: LoadShape = USUAL_LOAD
    trace: bool = True  # whether the brokers wrote traces
    inferred: tuple[str, ...] = ()  # remarks: what run.json lacks, and which value is used instead


# -- the cluster and the load -------------------------------------------------------------------------------


def read_settings(about: Mapping[str, Any], source: str) -> Settings:
    """Read the settings from run.json; FloodmarkError names what is missing or not valid."""
    missing = [name for name in NEEDED if name not in about]
    if missing:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json lacks {', '.join(missing)} (it "
                             "was made by hand, by another tool, or by an older floodmark)")
    try:
        return _settings(about, source)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json is damaged ({error!r})") from error


def _settings(about: Mapping[str, Any], source: str) -> Settings:
    nodes = _nodes(about["nodes"], source)
    config = _one_config(about["config"], nodes, source)
    broker_keys = _config_texts(config, source)
    system = about.get("system", {})
    kafka = _kafka(system, source)
    user_keys = {key: text for key, text in broker_keys.items() if key not in _NOT_SETTINGS}
    user_keys |= _config_texts(system.get("features", {}), source)  # users set them as they set keys
    links, inferred = about.get("links"), []
    if links is None:
        links = "proxied" if any(entry.get("f") == "cut" for entry in about["schedule"]) else "direct"
        inferred.append(f"run.json does not say which links the run had: {links}, as the schedule needs")
    return Settings(
        run_id=_name("id", about.get("id", ""), _ID, source), cluster=str(about["cluster"]),
        kafka=kafka, nodes=nodes,
        topic_config=_config_texts(system.get("topic_config", {}), source),
        topics={_name("a topic of `system`", topic, _TOPIC, source): _config_texts(keys, source)
                for topic, keys in system.get("topics", {}).items()},
        rules=str(about["rules"]), workload=str(about["workload"]), links=str(links),
        bugs=tuple(filter(None, broker_keys.get("floodmark.bugs", "").split(","))),
        config=user_keys if kafka is not None else checked(
            user_keys, before=f"{source} cannot be reproduced: in its run.json `config` has "),
        assignment=_assignment(about["partitions"], nodes, source),
        acks=str(about["guarantees"]["acks"]),
        concurrency=_int_in("concurrency", about["concurrency"], source, most=CONCURRENCY_AT_MOST),
        rate=None if about["rate"] is None else _positive("rate", about["rate"], source),
        seed=_int_in("seed", about["seed"], source, least=-(2**63), most=2**63 - 1),
        duration_s=_positive("duration_s", about["duration_s"], source, most=DURATION_AT_MOST_S),
        load=_load(about.get("load"), source), trace=about.get("traced") is not False,
        inferred=tuple(inferred))


def _load(saved: Any, source: str) -> LoadShape:
    """Read the shape of the ops; absent: the usual shape."""
    if saved is None:
        return USUAL_LOAD
    sizes, compression = saved["batch_sizes"], saved["compression"]
    if not isinstance(sizes, list) or not 0 < len(sizes) <= BATCH_SIZES_AT_MOST:
        _refuse(source, f"the batch sizes of `load` are {_shortened(sizes)}, no list of at most "
                        f"{BATCH_SIZES_AT_MOST}")
    if compression not in COMPRESSIONS:
        _refuse(source, f"the compression of `load` is {_shortened(compression)}, none of "
                        f"{', '.join(COMPRESSIONS)}")

    def int_in(name: str, value: object, least: int, most: int) -> int:
        return _int_in(name, value, source, least=least, most=most)

    return LoadShape(
        batch_sizes=tuple(int_in("a batch size", size, 1, BATCH_AT_MOST) for size in sizes),
        compression=compression, in_flight=int_in("in_flight", saved["in_flight"], 1, 5),
        readers_every=int_in("readers_every", saved["readers_every"], 2, CONCURRENCY_AT_MOST),
        idempotent_every=int_in("idempotent_every", saved.get("idempotent_every", 0), 0, CONCURRENCY_AT_MOST),
        rest_for=int_in("rest_for", saved.get("rest_for", 0), 0, REST_AT_MOST),
        sharing_every=int_in("sharing_every", saved.get("sharing_every", 0), 0, CONCURRENCY_AT_MOST),
        producer_lasts=int_in("producer_lasts", saved.get("producer_lasts", 0), 0, REST_AT_MOST),
        acks_1_every=int_in("acks_1_every", saved.get("acks_1_every", 0), 0, CONCURRENCY_AT_MOST),
        timeout_ms=int_in("timeout_ms", saved.get("timeout_ms", USUAL_LOAD.timeout_ms), 1,
                          TIMEOUT_AT_MOST_MS))


def _refuse(source: str, problem: str) -> NoReturn:
    raise UsageError(f"{source} cannot be reproduced: in its run.json {problem}")


def _shortened(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _int_in(name: str, value: object, source: str, *, least: int = 0, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        _refuse(source, f"{name} is {_shortened(value)}, not a whole number from {least} to {most}")
    return value


def _positive(name: str, value: object, source: str, *, most: float = 1e9) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        _refuse(source, f"{name} is {_shortened(value)}, not a number above 0 and at most {most:g}")
    return float(value)


def _name(what: str, value: object, pattern: re.Pattern[str], source: str) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        _refuse(source, f"{what} is {_shortened(value)}, which is not a valid name")
    return value


def _kafka(system: Mapping[str, Any], source: str) -> str | None:
    """The version of Apache Kafka that ran. A run of an unpacked folder is reproduced with that version,
    because the folder's path in run.json cannot be trusted."""
    name = system.get("name", "reference")  # an older run.json does not say
    if name == "reference":
        return None
    if name != "kafka":
        _refuse(source, f"the system is {_shortened(name)}, which this floodmark cannot start")
    return _name("the version of Kafka", system.get("version"), _VERSION, source)


def _nodes(saved: Any, source: str) -> tuple[str, ...]:
    if not isinstance(saved, list) or not all(isinstance(node, str) for node in saved):
        _refuse(source, f"`nodes` is {_shortened(saved)}, not a list of names")
    if len(saved) > NODES_AT_MOST:
        _refuse(source, f"there are {len(saved)} nodes, and a cluster can have at most {NODES_AT_MOST}")
    return tuple(saved)


def _config_texts(saved: Mapping[str, Any], source: str) -> dict[str, str]:
    return {key: _config_text(key, value, source) for key, value in saved.items()}


def _config_text(key: object, value: object, source: str) -> str:
    """A value as -c takes it. Key and value are written to the brokers' properties files, so neither may have
    a line break. broker_config.py checks which keys exist and which values they take."""
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        _refuse(source, f"`config` has the key {_shortened(key)}, which no broker has")
    if type(value) not in (int, bool, str) or _VALUE.fullmatch(_text(value)) is None:
        _refuse(source, f"`config` sets {key} to {_shortened(value)}, which no key takes")
    return _text(value)


def _one_config(config: Mapping[str, Mapping[str, Any]], nodes: Sequence[str], source: str
                ) -> Mapping[str, Any]:
    """The config that all nodes share."""
    missing = [node for node in nodes if node not in config]
    if missing or not nodes:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json has no config of "
                             f"{', '.join(missing) or 'any node'}")
    first = config[nodes[0]]
    for node in nodes:
        if config[node] != first:
            raise FloodmarkError(f"{source} cannot be reproduced: {nodes[0]} and {node} were configured "
                                 "differently, and all nodes of a new cluster have the same configuration")
    return first


def _assignment(saved: Any, nodes: Sequence[str], source: str) -> tuple[PartitionSpec, ...]:
    if len(saved) > PARTITIONS_AT_MOST:
        _refuse(source, f"there are {len(saved)} partitions; at most {PARTITIONS_AT_MOST} can be reproduced")
    return tuple(_partition(key, partition, nodes, source) for key, partition in saved.items())


def _partition(key: str, saved: Mapping[str, Any], nodes: Sequence[str], source: str) -> PartitionSpec:
    if not (key.isascii() and key.isdigit()):
        _refuse(source, f"a partition has the key {_shortened(key)}, which is not a number")
    replicas = saved["replicas"]
    if not isinstance(replicas, list) or not replicas or any(node not in nodes for node in replicas) or len(
            set(replicas)) < len(replicas):
        _refuse(source, f"the replicas of partition {key} are {_shortened(replicas)}, not some of its nodes")
    return PartitionSpec(
        key=int(key), topic=_name(f"the topic of partition {key}", saved["topic"], _TOPIC, source),
        partition=_int_in(f"the number of partition {key} in its topic", saved["partition"], source,
                         most=2**31 - 1),
        replicas=tuple(replicas))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_schedule(about: Mapping[str, Any], settings: Settings, source: str) -> Schedule:
    """Read the saved schedule, as strictly as a schedule file."""
    return _read(about["schedule"], settings, source)


def _read(entries: Any, settings: Settings, source: str) -> Schedule:
    if isinstance(entries, list) and len(entries) > ENTRIES_AT_MOST:
        _refuse(source,
                f"the schedule has {len(entries)} entries; at most {ENTRIES_AT_MOST} can be reproduced")
    try:
        return json_form.read(entries, source="its schedule", nodes=settings.nodes,
                                  partitions=[spec.key for spec in settings.assignment])
    except UsageError as error:
        raise UsageError(f"{source} cannot be reproduced: {error}") from error


def refuse_invalid_moments(schedule: Schedule, settings: Settings, source: str) -> None:
    """Raise UsageError where a schedule made from the history has a moment that a schedule file could not
    have: moments contain the history's leaders, ISRs and times."""
    _read(json_form.write(schedule), settings, f"{source}, by its history,")
