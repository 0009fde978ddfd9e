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
from typing import Annotated, Any, NoReturn, get_type_hints

from msgspec import Meta

from floodmark.harness.broker_config import checked
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import USUAL_LOAD, LoadShape, PartitionSpec
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.spec import DIRECT, PROXIED, RunSpec, converted, key_values, shortened

NEEDED = ("seed", "cluster", "rules", "workload", "nodes", "partitions", "config", "guarantees", "schedule",
          "concurrency", "rate", "duration_s")
NODES_AT_MOST = 9  # as for --nodes
PARTITIONS_AT_MOST = 10_000
ENTRIES_AT_MOST = 100_000  # of a schedule
DURATION_AT_MOST_S = 7 * 86_400.0
_NOT_SETTINGS = frozenset({"floodmark.rules", "floodmark.bugs", "floodmark.trace", "floodmark.failpoints"})
_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
_VALUE = re.compile(r"[A-Za-z0-9_.,+-]{0,1000}")  # the values of all keys that a run may set
_Topic = Annotated[str, Meta(pattern=r"\A(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}\Z")]  # Kafka's own rule
_Version = Annotated[str, Meta(pattern=r"\A\d+\.\d+(\.\d+)*([.-][0-9A-Za-z]+)*\Z")]
_Id = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._-]{0,64}\Z")]
_Concurrency = Annotated[int, Meta(ge=0, le=10_000)]
_Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # of a partition
_Rate = Annotated[float, Meta(gt=0, le=1e9)] | None
_Duration = Annotated[float, Meta(gt=0, le=DURATION_AT_MOST_S)]
_LOAD_TYPES = get_type_hints(LoadShape, include_extras=True)
_LOAD_NEEDED = frozenset({"batch_sizes", "compression", "in_flight", "readers_every"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """What a saved run was."""

    spec: RunSpec  # its cluster, its load and its seed
    run_id: str
    nodes: tuple[str, ...]
    inferred: tuple[str, ...] = ()  # remarks: what run.json lacks, and which value is used instead


# -- the cluster and the load -------------------------------------------------------------------------------


def read_saved(about: Mapping[str, Any], source: str) -> SavedRun:
    """Read what the run was from run.json; FloodmarkError names what is missing or not valid."""
    missing = [name for name in NEEDED if name not in about]
    if missing:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json lacks {', '.join(missing)} (it "
                             "was made by hand, by another tool, or by an older floodmark)")
    try:
        return _saved(about, source)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json is damaged ({error!r})") from error


def _saved(about: Mapping[str, Any], source: str) -> SavedRun:
    nodes = _nodes(about["nodes"], source)
    config = _one_config(about["config"], nodes, source)
    broker_keys = _config_texts(config, source)
    system = about.get("system", {})
    kafka = _kafka(system, source)
    user_keys = {key: text for key, text in broker_keys.items() if key not in _NOT_SETTINGS}
    user_keys |= _config_texts(system.get("features", {}), source)  # users set them as they set keys
    links, inferred = about.get("links"), []
    if links is None:
        links = PROXIED if any(entry.get("f") == "cut" for entry in about["schedule"]) else DIRECT
        inferred.append(f"run.json does not say which links the run had: {links}, as the schedule needs")
    assignment = _assignment(about["partitions"], nodes, source)
    spec = RunSpec(
        cluster=str(about["cluster"]), nodes=len(nodes), kafka=kafka,
        topic_config=key_values(_config_texts(system.get("topic_config", {}), source)),
        topics={_checked("a topic of `system`", topic, _Topic, source): _config_texts(keys, source)
                for topic, keys in system.get("topics", {}).items()},
        rules=str(about["rules"]), workload=str(about["workload"]), links=str(links),
        bugs=tuple(filter(None, broker_keys.get("floodmark.bugs", "").split(","))),
        config=key_values(user_keys if kafka is not None else checked(
            user_keys, before=f"{source} cannot be reproduced: in its run.json `config` has ")),
        assignment=assignment, partitions=len(assignment),
        replication_factor=min((len(one.replicas) for one in assignment), default=None),
        acks=str(about["guarantees"]["acks"]),
        concurrency=_checked("concurrency", about["concurrency"], _Concurrency, source),
        rate=_checked("rate", about["rate"], _Rate, source),
        seed=_checked("seed", about["seed"], int, source),
        duration=_checked("duration_s", about["duration_s"], _Duration, source),
        load=_load(about.get("load"), source), trace=about.get("traced") is not False)
    return SavedRun(spec=spec, run_id=_checked("id", about.get("id", ""), _Id, source), nodes=nodes,
                    inferred=tuple(inferred))


def _load(saved: Any, source: str) -> LoadShape:
    """Read the shape of the ops; absent: the usual shape. Older folders lack some of its fields."""
    if saved is None:
        return USUAL_LOAD
    return LoadShape(**{name: _checked(f"{name} of `load`", saved[name], kind, source)
                        for name, kind in _LOAD_TYPES.items() if name in saved or name in _LOAD_NEEDED})


def _refuse(source: str, problem: str) -> NoReturn:
    raise UsageError(f"{source} cannot be reproduced: in its run.json {problem}")


def _checked(what: str, value: object, kind: Any, source: str) -> Any:
    try:
        return converted(value, kind, what)
    except ValueError as error:
        _refuse(source, str(error))


def _kafka(system: Mapping[str, Any], source: str) -> str | None:
    """The version of Apache Kafka that ran. A run of an unpacked folder is reproduced with that version,
    because the folder's path in run.json cannot be trusted."""
    name = system.get("name", "reference")  # an older run.json does not say
    if name == "reference":
        return None
    if name != "kafka":
        _refuse(source, f"the system is {shortened(name)}, which this floodmark cannot start")
    found: str = _checked("the version of Kafka", system.get("version"), _Version, source)
    return found


def _nodes(saved: Any, source: str) -> tuple[str, ...]:
    if not isinstance(saved, list) or not all(isinstance(node, str) for node in saved):
        _refuse(source, f"`nodes` is {shortened(saved)}, not a list of names")
    if len(saved) > NODES_AT_MOST:
        _refuse(source, f"there are {len(saved)} nodes, and a cluster can have at most {NODES_AT_MOST}")
    return tuple(saved)


def _config_texts(saved: Mapping[str, Any], source: str) -> dict[str, str]:
    return {key: _config_text(key, value, source) for key, value in saved.items()}


def _config_text(key: object, value: object, source: str) -> str:
    """A value as -c takes it. Key and value are written to the brokers' properties files, so neither may have
    a line break. broker_config.py checks which keys exist and which values they take."""
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        _refuse(source, f"`config` has the key {shortened(key)}, which no broker has")
    if type(value) not in (int, bool, str) or _VALUE.fullmatch(_text(value)) is None:
        _refuse(source, f"`config` sets {key} to {shortened(value)}, which no key takes")
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
        _refuse(source, f"a partition has the key {shortened(key)}, which is not a number")
    replicas = saved["replicas"]
    if not isinstance(replicas, list) or not replicas or any(node not in nodes for node in replicas) or len(
            set(replicas)) < len(replicas):
        _refuse(source, f"the replicas of partition {key} are {shortened(replicas)}, not some of its nodes")
    return PartitionSpec(
        key=int(key), topic=_checked(f"the topic of partition {key}", saved["topic"], _Topic, source),
        partition=_checked(f"the number of partition {key} in its topic", saved["partition"], _Number,
                           source),
        replicas=tuple(replicas))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_schedule(about: Mapping[str, Any], saved: SavedRun, source: str) -> Schedule:
    """Read the saved schedule, as strictly as a schedule file."""
    return _read(about["schedule"], saved, source)


def _read(entries: Any, saved: SavedRun, source: str) -> Schedule:
    if isinstance(entries, list) and len(entries) > ENTRIES_AT_MOST:
        _refuse(source,
                f"the schedule has {len(entries)} entries; at most {ENTRIES_AT_MOST} can be reproduced")
    try:
        return json_form.read(entries, source="its schedule", nodes=saved.nodes,
                                  partitions=[spec.key for spec in saved.spec.assignment])
    except UsageError as error:
        raise UsageError(f"{source} cannot be reproduced: {error}") from error


def refuse_invalid_moments(schedule: Schedule, saved: SavedRun, source: str) -> None:
    """Raise UsageError where a schedule made from the history has a moment that a schedule file could not
    have: moments contain the history's leaders, ISRs and times."""
    _read(json_form.write(schedule), saved, f"{source}, by its history,")
