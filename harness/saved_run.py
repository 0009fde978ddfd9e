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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from floodmark.harness.broker_config import checked
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import USUAL_LOAD, LoadShape, PartitionSpec
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Schedule
from floodmark.harness.spec import (
    DIRECT,
    PARTITIONS_AT_MOST,
    PROXIED,
    SAVED,
    TYPES,
    RunSpec,
    converted,
    key_values,
    shortened,
)

_NOT_SETTINGS = frozenset({"floodmark.rules", "floodmark.bugs", "floodmark.trace", "floodmark.failpoints"})
_VERSION = re.compile(r"\d+\.\d+(\.\d+)*([.-][0-9A-Za-z]+)*")
_FIRST = ("concurrency", "rate", "duration_s")  # of SAVED; what came later had its default in an older run
_Topic = Annotated[str, Meta(pattern=r"\A(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}\Z")]  # Kafka's own rule
# Keys and values as -c takes them. Both are written to the brokers' properties files, so neither may have a
# line break. broker_config.py checks which keys exist and which values they take.
_Config = dict[Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9.-]{0,99}\Z")],
               bool | int | Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_.,+-]{0,1000}\Z")]]


class _Partition(msgspec.Struct):
    topic: _Topic
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    replicas: Annotated[tuple[str, ...], Meta(min_length=1)]


class _Guarantees(msgspec.Struct):
    acks: str


class _System(msgspec.Struct):
    name: str = "reference"  # an older run.json does not say
    version: str | None = None
    features: _Config = {}  # users set them as they set keys
    topic_config: _Config = {}
    topics: dict[_Topic, _Config] = {}


class _About(msgspec.Struct, kw_only=True):
    """What a reproduction takes from run.json."""

    seed: int
    cluster: str
    rules: str
    workload: str
    nodes: Annotated[tuple[str, ...], Meta(min_length=1, max_length=9)]  # as for --nodes
    partitions: Annotated[dict[Annotated[str, Meta(pattern=r"\A[0-9]{1,9}\Z")], _Partition],
                          Meta(max_length=PARTITIONS_AT_MOST)]
    config: dict[str, _Config]
    guarantees: _Guarantees
    schedule: Annotated[list[dict[str, Any]], Meta(max_length=100_000)]
    id: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._-]{0,64}\Z")] = ""
    links: str | None = None
    load: LoadShape | None = None  # absent: the usual shape; older folders lack some of its fields
    system: _System = msgspec.field(default_factory=_System)
    traced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    spec: RunSpec  # its cluster, its load and its seed
    run_id: str
    nodes: tuple[str, ...]
    inferred: tuple[str, ...] = ()  # remarks: what run.json lacks, and which value is used instead


def read_saved(about: Mapping[str, Any], source: str) -> SavedRun:
    """Read what the run was from run.json; FloodmarkError names what is missing or not valid."""
    needed = (*(one.name for one in msgspec.structs.fields(_About) if one.required), *_FIRST)
    missing = [key for key in needed if key not in about]
    if missing:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json lacks {', '.join(missing)} (it "
                             "was made by hand, by another tool, or by an older floodmark)")
    try:
        return _saved(converted(about, _About, ""), source, **{
            name: converted(about[key], TYPES[name], key) for name, key in SAVED.items() if key in about})
    except ValueError as error:
        raise UsageError(f"{source} cannot be reproduced: in its run.json {error}") from error


def _saved(about: _About, source: str, **given: Any) -> SavedRun:
    system, broker_keys = about.system, _texts(_one_config(about, source))
    if system.name not in ("reference", "kafka"):
        raise ValueError(f"the system is {shortened(system.name)}, which this floodmark cannot start")
    # A run of an unpacked folder is reproduced with its version: the folder's path cannot be trusted.
    kafka = None if system.name == "reference" else system.version or ""
    if kafka is not None and _VERSION.fullmatch(kafka) is None:
        raise ValueError(f"the version of Kafka is {shortened(kafka)}, should be a valid name")
    user_keys = {key: text for key, text in broker_keys.items() if key not in _NOT_SETTINGS}
    user_keys |= _texts(system.features)
    links, inferred = about.links, []
    if links is None:
        links = PROXIED if any(entry.get("f") == "cut" for entry in about.schedule) else DIRECT
        inferred.append(f"run.json does not say which links the run had: {links}, as the schedule needs")
    for key, one in about.partitions.items():
        if not set(one.replicas) <= set(about.nodes) or len(set(one.replicas)) < len(one.replicas):
            raise ValueError(f"the replicas of partition {key} are {shortened(one.replicas)}, not some of "
                             "its nodes")
    spec = RunSpec(
        cluster=about.cluster, nodes=len(about.nodes), kafka=kafka, rules=about.rules, links=links,
        topic_config=key_values(_texts(system.topic_config)),
        topics={topic: _texts(keys) for topic, keys in system.topics.items()}, workload=about.workload,
        bugs=tuple(filter(None, broker_keys.get("floodmark.bugs", "").split(","))),
        config=key_values(user_keys if kafka is not None else checked(
            user_keys, before=f"{source} cannot be reproduced: in its run.json `config` has ")),
        assignment=tuple(PartitionSpec(key=int(key), topic=one.topic, partition=one.partition,
                                       replicas=one.replicas) for key, one in about.partitions.items()),
        partitions=len(about.partitions),
        replication_factor=min((len(one.replicas) for one in about.partitions.values()), default=None),
        acks=about.guarantees.acks, seed=about.seed, load=about.load or USUAL_LOAD, trace=about.traced,
        **given)
    return SavedRun(spec=spec, run_id=about.id, nodes=about.nodes, inferred=tuple(inferred))


def _texts(config: _Config) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in config.items()}


def _one_config(about: _About, source: str) -> _Config:
    first, config = about.nodes[0], about.config
    missing = [node for node in about.nodes if node not in config]
    if missing:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json has no config of "
                             f"{', '.join(missing)}")
    for other in (node for node in about.nodes if config[node] != config[first]):
        raise FloodmarkError(f"{source} cannot be reproduced: {first} and {other} were configured "
                             "differently, and all nodes of a new cluster have the same configuration")
    return config[first]


def read_schedule(entries: Any, saved: SavedRun, source: str) -> Schedule:
    """Read a schedule of the run, as strictly as a schedule file; UsageError. Moments that are made from the
    history contain its leaders, ISRs and times, so they are read too."""
    try:
        return json_form.read(entries, source="its schedule", nodes=saved.nodes,
                              partitions=[spec.key for spec in saved.spec.assignment])
    except UsageError as error:
        raise UsageError(f"{source} cannot be reproduced: {error}") from error
