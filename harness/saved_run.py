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
from typing import Annotated, Any, get_type_hints

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
_NOT_SETTINGS = frozenset({"floodmark.rules", "floodmark.bugs", "floodmark.trace", "floodmark.failpoints"})
_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
_VALUE = re.compile(r"[A-Za-z0-9_.,+-]{0,1000}")  # the values of all keys that a run may set
_Topic = Annotated[str, Meta(pattern=r"\A(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}\Z")]  # Kafka's own rule
_Version = Annotated[str, Meta(pattern=r"\A\d+\.\d+(\.\d+)*([.-][0-9A-Za-z]+)*\Z")]
_Id = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._-]{0,64}\Z")]
_LOAD = {  # the types of what a client does
    "concurrency": Annotated[int, Meta(ge=0, le=10_000)], "rate": Annotated[float, Meta(gt=0, le=1e9)] | None,
    "duration_s": Annotated[float, Meta(gt=0, le=7 * 86_400.0)], "seed": int}
_SHAPE = get_type_hints(LoadShape, include_extras=True)
_SHAPE_NEEDED = frozenset({"batch_sizes", "compression", "in_flight", "readers_every"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """What a saved run was."""

    spec: RunSpec  # its cluster, its load and its seed
    run_id: str
    nodes: tuple[str, ...]
    inferred: tuple[str, ...] = ()  # remarks: what run.json lacks, and which value is used instead


def read_saved(about: Mapping[str, Any], source: str) -> SavedRun:
    """Read what the run was from run.json; FloodmarkError names what is missing or not valid."""
    missing = [name for name in NEEDED if name not in about]
    if missing:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json lacks {', '.join(missing)} (it "
                             "was made by hand, by another tool, or by an older floodmark)")
    try:
        return _saved(about, source)
    except (TypeError, KeyError, AttributeError) as error:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json is damaged ({error!r})") from error
    except ValueError as error:
        raise UsageError(f"{source} cannot be reproduced: in its run.json {error}") from error


def _saved(about: Mapping[str, Any], source: str) -> SavedRun:
    nodes = converted(about["nodes"], tuple[str, ...], "nodes")
    if len(nodes) > NODES_AT_MOST:
        raise ValueError(f"there are {len(nodes)} nodes, and a cluster can have at most {NODES_AT_MOST}")
    broker_keys = _config(_one_config(about["config"], nodes, source))
    system = about.get("system", {})
    kafka = _kafka(system)
    user_keys = {key: text for key, text in broker_keys.items() if key not in _NOT_SETTINGS}
    user_keys |= _config(system.get("features", {}))  # users set them as they set keys
    links, inferred = about.get("links"), []
    if links is None:
        links = PROXIED if any(entry.get("f") == "cut" for entry in about["schedule"]) else DIRECT
        inferred.append(f"run.json does not say which links the run had: {links}, as the schedule needs")
    if len(about["partitions"]) > PARTITIONS_AT_MOST:
        raise ValueError(f"there are {len(about['partitions'])} partitions; at most {PARTITIONS_AT_MOST} can "
                         "be reproduced")
    assignment = tuple(_partition(key, saved, nodes) for key, saved in about["partitions"].items())
    load = {name: converted(about[name], kind, name) for name, kind in _LOAD.items()}
    shape = about.get("load")  # absent: the usual shape; older folders lack some of its fields
    spec = RunSpec(
        cluster=str(about["cluster"]), nodes=len(nodes), kafka=kafka,
        topic_config=key_values(_config(system.get("topic_config", {}))),
        topics={converted(topic, _Topic, "a topic of `system`"): _config(keys)
                for topic, keys in system.get("topics", {}).items()},
        rules=str(about["rules"]), workload=str(about["workload"]), links=str(links),
        bugs=tuple(filter(None, broker_keys.get("floodmark.bugs", "").split(","))),
        config=key_values(user_keys if kafka is not None else checked(
            user_keys, before=f"{source} cannot be reproduced: in its run.json `config` has ")),
        assignment=assignment, partitions=len(assignment),
        replication_factor=min((len(one.replicas) for one in assignment), default=None),
        acks=str(about["guarantees"]["acks"]), duration=load.pop("duration_s"), **load,
        load=USUAL_LOAD if shape is None else LoadShape(**{
            name: converted(shape[name], kind, f"{name} of `load`") for name, kind in _SHAPE.items()
            if name in shape or name in _SHAPE_NEEDED}),
        trace=about.get("traced") is not False)
    return SavedRun(spec=spec, run_id=converted(about.get("id", ""), _Id, "id"), nodes=nodes,
                    inferred=tuple(inferred))


def _kafka(system: Mapping[str, Any]) -> str | None:
    """The version of Apache Kafka that ran. A run of an unpacked folder is reproduced with that version,
    because the folder's path in run.json cannot be trusted."""
    name = system.get("name", "reference")  # an older run.json does not say
    if name not in ("reference", "kafka"):
        raise ValueError(f"the system is {shortened(name)}, which this floodmark cannot start")
    found: str | None = None if name == "reference" else converted(
        system.get("version"), _Version, "the version of Kafka")
    return found


def _config(saved: Mapping[str, Any]) -> dict[str, str]:
    """Keys and values as -c takes them. Both are written to the brokers' properties files, so neither may
    have a line break. broker_config.py checks which keys exist and which values they take."""
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value)
             for key, value in saved.items()}
    for key, text in texts.items():
        if _KEY.fullmatch(key) is None:
            raise ValueError(f"`config` has the key {shortened(key)}, which no broker has")
        if type(saved[key]) not in (int, bool, str) or _VALUE.fullmatch(text) is None:
            raise ValueError(f"`config` sets {key} to {shortened(saved[key])}, which no key takes")
    return texts


def _one_config(config: Mapping[str, Mapping[str, Any]], nodes: Sequence[str], source: str
                ) -> Mapping[str, Any]:
    """The config that all nodes share."""
    missing = [node for node in nodes if node not in config]
    if missing or not nodes:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json has no config of "
                             f"{', '.join(missing) or 'any node'}")
    for other in (node for node in nodes if config[node] != config[nodes[0]]):
        raise FloodmarkError(f"{source} cannot be reproduced: {nodes[0]} and {other} were configured "
                             "differently, and all nodes of a new cluster have the same configuration")
    return config[nodes[0]]


def _partition(key: str, saved: Mapping[str, Any], nodes: Sequence[str]) -> PartitionSpec:
    if not (key.isascii() and key.isdigit()):
        raise ValueError(f"a partition has the key {shortened(key)}, which is not a number")
    replicas = saved["replicas"]
    if not isinstance(replicas, list) or not replicas or any(node not in nodes for node in replicas) or len(
            set(replicas)) < len(replicas):
        raise ValueError(f"the replicas of partition {key} are {shortened(replicas)}, not some of its nodes")
    return PartitionSpec(
        key=int(key), topic=converted(saved["topic"], _Topic, f"the topic of partition {key}"),
        partition=converted(saved["partition"], Annotated[int, Meta(ge=0, le=2**31 - 1)],
                            f"the number of partition {key} in its topic"),
        replicas=tuple(replicas))


def read_schedule(entries: Any, saved: SavedRun, source: str) -> Schedule:
    """Read a schedule of the run, as strictly as a schedule file; UsageError. Moments that are made from the
    history contain its leaders, ISRs and times, so they are read too."""
    try:
        if isinstance(entries, list) and len(entries) > ENTRIES_AT_MOST:
            raise UsageError(f"in its run.json the schedule has {len(entries)} entries; at most "
                             f"{ENTRIES_AT_MOST} can be reproduced")
        return json_form.read(entries, source="its schedule", nodes=saved.nodes,
                              partitions=[spec.key for spec in saved.spec.assignment])
    except UsageError as error:
        raise UsageError(f"{source} cannot be reproduced: {error}") from error
