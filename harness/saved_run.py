"""A saved run as one that can be had again: cluster and load from run.json, the schedule with new anchors.

Rules
1. What run.json lacks is refused by name; the one thing that may be inferred (links) is told.
2. A moment asked by what can be seen (an ack, a state, a failpoint) stays as it is. One asked by time would
   come again at that time only, so it is tied to what its strike met:
     acks   sends asked after the entry before were being acked: the k-th ack of the partition, and the time
            that had passed since; not sooner than half of the time since the entry before
     state  nothing was being acked, and it met another leader or ISR than the strike before had: so long
            after the entry before (if that is not too short for a look), but not until they are so again
     after  nothing was being acked, or it undoes a fault: so long after the entry before, for then that
            one's effect is the clock (sessions, lags)
     time   it is the first, or it never struck: as asked
3. Who led the partition when it was struck is meant as `leader` again, if no other node is down or paused
   until the fault is undone: else a role could mean one that nothing more can be done to.
4. The folder may come from a stranger. What it says is a name, a number in bounds, or one of the words that
   there are; anything else is refused before a process starts (UsageError). It never becomes a path, an
   address or an id, nor a second line of a configuration. Moments made from the history are read as strictly
   as those of a file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from harness.broker_config import checked
from harness.errors import FloodmarkError, UsageError
from harness.faults import FAULTS, MENDING
from harness.protocols import PartitionSpec
from harness.schedule import json_form
from harness.schedule.entry import MOMENT_TIMEOUT_S, Entry, Schedule
from harness.schedule.schedule_history import Past, Strike

NEEDED = ("seed", "cluster", "rules", "workload", "nodes", "partitions", "config", "guarantees", "schedule",
          "concurrency", "rate", "duration_s")
LONGEST_S = 3600.0  # that a schedule's time-out may be
STATE_TIMEOUT_S = 10.0  # what had come of the fault before by then comes within sessions and lags, or not
LOOKED_NS = 50_000_000  # a strike sooner after the entry before would come late by the look itself
NODES_AT_MOST = 9  # as of --nodes
PARTITIONS_AT_MOST = 10_000
CONCURRENCY_AT_MOST = 10_000
ENTRIES_AT_MOST = 100_000  # of a schedule
DURATION_AT_MOST_S = 7 * 86_400.0
FRESH_NS = 100_000_000  # an ack so long before a strike still shows that acks were coming
_NOT_GIVEN = frozenset({"floodmark.rules", "floodmark.bugs", "floodmark.trace", "floodmark.failpoints"})
_TOPIC = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
_VALUE = re.compile(r"[A-Za-z0-9_.,+-]{0,1000}")  # of every key that a run may set
_ID = re.compile(r"[A-Za-z0-9._-]{0,64}")
_UNDONE_BY_ROLE = {"start": "down", "resume": "paused"}  # what finds by role whom it is to mend
_LEADS = frozenset({"kill", "stop", "pause", "expire", "power_cut", "disk"})  # may strike by role


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The cluster and the load of a saved run."""

    run_id: str
    cluster: str
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
    inferred: tuple[str, ...] = ()  # what run.json did not say, and what was taken for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """One entry of the schedule, as it was and as it is to be."""

    position: int
    then: Entry
    now: Entry
    strike: Strike | None  # what the history tells of it
    by: str  # asked (as it was), acks, state, after, time
    why: str


# -- the cluster and the load -------------------------------------------------------------------------------


def settings_of(about: Mapping[str, Any], source: str) -> Settings:
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
    words = {key: _config_word(key, value, source) for key, value in config.items()}
    links, inferred = about.get("links"), []
    if links is None:
        links = "proxied" if any(entry.get("f") == "cut" for entry in about["schedule"]) else "direct"
        inferred.append(f"run.json does not say which links there were: {links}, as for such a schedule")
    return Settings(
        run_id=_name("id", about.get("id", ""), _ID, source), cluster=str(about["cluster"]), nodes=nodes,
        rules=str(about["rules"]), workload=str(about["workload"]), links=str(links),
        bugs=tuple(filter(None, words.get("floodmark.bugs", "").split(","))),
        config=checked({key: word for key, word in words.items() if key not in _NOT_GIVEN},
                       before=f"{source} cannot be had again: in its run.json `config` has "),
        assignment=_assignment(about["partitions"], nodes, source),
        acks=str(about["guarantees"]["acks"]),
        concurrency=_whole("concurrency", about["concurrency"], source, most=CONCURRENCY_AT_MOST),
        rate=None if about["rate"] is None else _positive("rate", about["rate"], source),
        seed=_whole("seed", about["seed"], source, least=-(2**63), most=2**63 - 1),
        duration_s=_positive("duration_s", about["duration_s"], source, most=DURATION_AT_MOST_S),
        inferred=tuple(inferred))


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


def _nodes(told: Any, source: str) -> tuple[str, ...]:
    if not isinstance(told, list) or not all(isinstance(node, str) for node in told):
        _refuse(source, f"`nodes` is {_shown(told)}, no list of names")
    if len(told) > NODES_AT_MOST:
        _refuse(source, f"there are {len(told)} nodes, and a cluster here has at most {NODES_AT_MOST}")
    return tuple(told)


def _config_word(key: object, value: object, source: str) -> str:
    """A value as -c takes it. Key and value go into the brokers' properties files, where a line break would
    begin another; which keys there are, and what each takes, broker_keys.py knows."""
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


def schedule_of(about: Mapping[str, Any], settings: Settings, source: str) -> Schedule:
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


def refuse_odd_moments(anchors: Sequence["Anchored"], settings: Settings, source: str) -> None:
    """Moments hold what the history said of leaders, ISRs and times: UsageError unless a file might say it
    too."""
    _read(json_form.write(tuple(one.now for one in anchors)), settings, f"{source}, by its history,")


# -- the moments --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What anchors go by. focus: the partition whose acks and leader count, most often that of the finding;
    None: the first that the struck node led, or the first of all."""

    past: Past
    partitions: tuple[int, ...]
    focus: int | None = None

    def partition_of(self, strike: Strike) -> int:
        """The partition whose acks and leader tell where this fault struck."""
        if self.focus is not None and self.focus in self.partitions:
            return self.focus
        led = (key for key in self.partitions if strike.leader(key) in strike.nodes)
        return next(led, min(self.partitions))


def anchored(schedule: Schedule, ground: Ground) -> tuple[Anchored, ...]:
    """Every entry with the moment it is to have now."""
    named = _by_role(schedule, ground)
    return tuple(_anchored(position, then, named.get(position, then), ground)
                 for position, then in enumerate(schedule))


def _anchored(position: int, then: Entry, entry: Entry, ground: Ground) -> Anchored:
    strike = ground.past.strikes.get(position)

    def answer(moment: Mapping[str, Any] | None, by: str, why: str) -> Anchored:
        return Anchored(position=position, then=then, now=replace(entry, moment=moment), strike=strike,
                        by=by, why=why)

    moment = then.moment
    if moment is None or moment["at"] != "time":
        return answer(moment, "asked", "as it was asked")
    done_ns = ground.past.done_before(position)
    if strike is None:
        least_ns = moment.get("after_ns")
        if position == 0 or least_ns is None:
            return answer(moment, "time", "it left no line: as asked")
        return answer({"at": "after", "after_ns": least_ns}, "after", "it left no line: the distance asked")
    distance_ns = moment.get("after_ns", 0) if done_ns is None else max(0, strike.began_ns - done_ns)
    found = None if then.f in MENDING else _by_acks(strike, ground, done_ns)
    if found is not None:
        least = {"at": "after", "after_ns": distance_ns // 2}
        entry = replace(entry, timeout_s=min(LONGEST_S, MOMENT_TIMEOUT_S + 2 * distance_ns / 1e9))
        return answer({"at": "sequence", "of": [least, found]}, "acks", "acks were coming")
    if position == 0:
        return answer(moment, "time", "the first, before any ack")
    after = {"at": "after", "after_ns": distance_ns}
    if then.f in MENDING:
        return answer(after, "after", "it undoes a fault")
    met = _by_state(position, entry, strike, ground)
    if met is not None and distance_ns >= LOOKED_NS:
        entry = replace(entry, timeout_s=STATE_TIMEOUT_S)
        return answer({"at": "sequence", "of": [after, met]}, "state", "no acks were coming")
    return answer(after, "after", "no acks were coming")


def _by_acks(strike: Strike, ground: Ground, done_ns: int | None) -> dict[str, Any] | None:
    """The last ack before it, if acks of sends asked since the entry before were coming."""
    partition = ground.partition_of(strike)
    acks = ground.past.acks(partition)
    count = acks.by(strike.began_ns)
    if count == 0:
        return None
    since_ns = strike.began_ns - acks.times[count - 1]
    if since_ns > FRESH_NS or acks.invoked[count - 1] < (done_ns or 0):
        return None
    return {"at": "ack", "partition": partition, "count": count, "then_ns": since_ns}


def _by_state(position: int, entry: Entry, strike: Strike, ground: Ground) -> dict[str, Any] | None:
    """Leader and ISR that it met, where they are not what the strike before met: they came of that one."""
    partition = ground.partition_of(strike)
    met = (strike.leader(partition), strike.isr(partition))
    before = next((told for earlier in range(position - 1, -1, -1)
                   if (told := ground.past.strikes.get(earlier)) is not None and told.where), None)
    if before is None or None in met or met == (before.leader(partition), before.isr(partition)):
        return None
    leads = {"is": "!=", "value": None} if "leader" in entry.nodes else {"is": "==", "value": met[0]}
    return {"at": "state", "all": [
        {"partition": partition, "field": "leader", **leads},
        {"partition": partition, "field": "isr", "is": "==", "value": list(met[1] or ())}]}


# -- the roles ----------------------------------------------------------------------------------------------


def _by_role(schedule: Schedule, ground: Ground) -> dict[int, Entry]:
    """The entries that mean the leader again, and those that undo them."""
    changed: dict[int, Entry] = {}
    for position, entry in enumerate(schedule):
        strike = ground.past.strikes.get(position)
        if strike is None or entry.f not in _LEADS or len(entry.nodes) != 1 or strike.nodes != entry.nodes:
            continue
        partition = ground.partition_of(strike)
        if strike.leader(partition) != entry.nodes[0]:
            continue
        undoes = FAULTS[entry.f].undone_by
        if undoes is not None:
            undone = _undone_at(schedule, position, undoes)
            if undone is None:
                continue
            changed[undone] = replace(schedule[undone], nodes=(_UNDONE_BY_ROLE[undoes],))
        changed[position] = replace(entry, nodes=("leader",), args={**entry.args, "partition": partition})
    return changed


def _undone_at(schedule: Schedule, position: int, undoes: str) -> int | None:
    """The entry that undoes this one, if roles are safe: nobody else is down or paused meanwhile, whom `down`
    would start too, or whom `leader` could mean although nothing more can be done to it."""
    node = schedule[position].nodes[0]
    out: set[str] = set()
    for before in schedule[:position]:
        out = _after(out, before)
    if out:
        return None
    for later in range(position + 1, len(schedule)):
        entry = schedule[later]
        if entry.f == undoes:
            return later if entry.nodes == (node,) else None
        if _ends(entry) or entry.f in _UNDONE_BY_ROLE:
            return None
    return None


def _after(out: set[str], entry: Entry) -> set[str]:
    """Who is down or paused after this entry."""
    if entry.f in _UNDONE_BY_ROLE:
        return out - set(entry.nodes)
    return out | set(entry.nodes) if _ends(entry) else out


def _ends(entry: Entry) -> bool:
    return entry.f in FAULTS and FAULTS[entry.f].undone_by in _UNDONE_BY_ROLE
