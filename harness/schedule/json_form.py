"""Reads schedules from JSON strictly, and writes them: run.json's `schedule` and `--schedule FILE`.

Rules
1. An unknown key, f, role, field, failpoint or OP is refused, and the message lists the valid ones.
2. A moment may wait for a failpoint only if an earlier entry arms it on that node, with fitting conditions.
3. write() then read() gives the same schedule; the schedule runner can carry out whatever read() accepts.
4. nemesis/README.md describes the form; fields.py reads names, numbers and flags.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark.harness.errors import UsageError
from floodmark.harness.faults import (
    ACTIONS,
    BROKER_SCOPE_ACTIONS,
    DELAY,
    FAULTS,
    POINTS,
    QUALITIES,
    SCOPES,
    registered_fault,
)
from floodmark.harness.run_location import read_text
from floodmark.harness.schedule import fields as read_as
from floodmark.harness.schedule.fields import Known, Read, fields_of, one_of, quoted, refuse, value_that
from floodmark.harness.schedule.moments import (
    CONDITIONS,
    MOMENT_TIMEOUT_S,
    Entry,
    Failpoint,
    Schedule,
    read_moment,
)
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER, ROLES

ACKS = ("all", "1", "0")
BYTES_AT_MOST = 1 << 30  # of a file: the run.json of a million partitions has a third of this
HISTORY_KEYS = ("asked", "began", "error", "lost", "reached", "where")  # keys of a history's fault


def load(path: Path, *, nodes: Sequence[str] | None = None,
         partitions: Sequence[int] | None = None) -> Schedule:
    """Load a schedule from a file: a JSON array of entries, or (.toml) `[[schedule]]` tables."""
    text = read_text(path, "the schedule", at_most=BYTES_AT_MOST)
    try:
        value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"the schedule {path} does not parse: {error}") from error
    if isinstance(value, dict) and "schedule" in value:  # TOML cannot be an array; or it is a run.json
        value = value["schedule"]
    return read(value, source=str(path), nodes=nodes, partitions=partitions)


def read(data: object, *, source: str = "schedule", sources: Sequence[str] | None = None,
         nodes: Sequence[str] | None = None, partitions: Sequence[int] | None = None) -> Schedule:
    """Read a schedule from JSON values. Names are checked against `nodes` and `partitions` where given.
    sources: the place of each entry, for messages; None: `source` for all of them."""
    if not isinstance(data, list):
        refuse(source, f"is {quoted(data)}, should be an array of entries")
    known = Known(nodes=nodes, partitions=partitions)
    places = [f"{place}: entry {position}" for position, place in enumerate(sources or [source] * len(data))]
    schedule = tuple(_read_entry(at, item, known) for at, item in zip(places, data, strict=True))
    _refuse_what_cannot_be(schedule, [f"{at} ({one.f})" for at, one in zip(places, schedule, strict=True)])
    return schedule


def write(schedule: Schedule) -> list[dict[str, Any]]:
    return [{
        "f": entry.f,
        **({"nodes": list(entry.nodes)} if entry.nodes else {}),
        **entry.args,
        **({} if entry.moment is None else {"moment": entry.moment.to_json()}),
        **({} if entry.timeout_s == MOMENT_TIMEOUT_S else {"timeout_s": entry.timeout_s}),
    } for entry in schedule]


# -- a schedule ----------------------------------------------------------------------------------------------

def _refuse_what_cannot_be(schedule: Schedule, places: Sequence[str]) -> None:
    """Refuse a moment at a failpoint that no earlier entry arms, and a value that was sent before."""
    arms: list[tuple[str, Mapping[str, Any]]] = []
    sent: dict[int, str] = {}
    for at, entry in zip(places, schedule, strict=True):
        for part in () if entry.moment is None else entry.moment.parts():
            if isinstance(part, Failpoint) and not any(
                    _may_be(part.node, node) and part.may_be(point) for node, point in arms):
                there = ", ".join(f"{point['name']} at {node}" + "".join(
                    f" {key} {point[key]}" for key in CONDITIONS if key in point) for node, point in arms)
                refuse(f"{at}: moment", f"waits for {part.name} at {part.node}, which no earlier entry has "
                                        f"armed so; armed before: {there or 'nothing'}")
        if entry.f == "arm":
            arms += ((node, entry.args["point"]) for node in entry.nodes)
        for value in (one["value"] for one in entry.args.get("sends", ())):
            if value in sent:
                refuse(at, f"sends {value}, which {sent[value]} sent before: a value is unique in a run")
            sent[value] = at


def _may_be(asked: str, armed: str) -> bool:
    """Whether these can be one node. A role can mean any broker."""
    return asked == armed or (bool({asked, armed} & (ROLES - {CONTROLLER}))
                              and CONTROLLER not in (asked, armed))


# -- one entry ----------------------------------------------------------------------------------------------

def _read_entry(at: str, item: object, known: Known) -> Entry:
    given = read_as.an_object(at, item, known)
    if "f" not in given:
        refuse(at, "has no `f`, which says what to do")
    f = given["f"]
    fault = None if f in (*_ACTS, *FAULTS) or not isinstance(f, str) else registered_fault(f)
    if fault is None:
        one_of(*sorted({*_ACTS, *FAULTS}))(f"{at}: f", f, known)
    at = f"{at} ({f})"
    if f in _ACTS:
        args = _ACTS[f]
        needs, on = [*args][:1] or ["moment"], "cluster"
    elif fault is not None:  # its arguments are its own
        args, needs, on = {key: _json_value for key in given if key not in _COMMON}, [], fault.on
    else:
        args, needs, on = _ARGS[f], [*FAULTS[f].needs], FAULTS[f].on
    of_partition = {} if on == "cluster" else {"partition": read_as.partition}
    fields = fields_of(at, given, {**_COMMON, **args, **of_partition}, known, needs=needs, dot=": ")
    common = {key: fields.pop(key) for key in _COMMON if key in fields}
    entry = Entry(**{**common, "nodes": tuple(common.get("nodes", ()))}, args=fields)
    if on == "nodes" and not entry.nodes:
        refuse(at, "has no `nodes` (names or roles)")
    if on == "cluster" and entry.nodes:
        refuse(at, "takes no `nodes`")
    _check_combinations(at, entry, on)
    return entry


def _check_combinations(at: str, entry: Entry, on: str) -> None:
    f, args = entry.f, entry.args
    if on == "links" and bool(entry.nodes) == ("grudge" in args):
        refuse(at, "needs either `grudge` (node -> from whom it receives nothing) or `nodes` (to cut off)")
    if f in FAULTS and FAULTS[f].of_brokers and CONTROLLER in entry.nodes:
        refuse(f"{at}: nodes", f"names {CONTROLLER}: {f} strikes brokers only")
    if f == "packet" and not args.keys() & QUALITIES.keys():
        refuse(at, f"has none of {', '.join(QUALITIES)}")
    if f == "packet" and args.get("jitter_ms", 0) > args.get("delay_ms", 0):
        refuse(f"{at}: jitter_ms", "is more than `delay_ms`: a packet would arrive before it was sent")
    if f == "power_cut" and "keep" in args and "keep_share" in args:
        refuse(at, "takes `keep` or `keep_share`, not both")
    point = POINTS.get(args.get("point", {}).get("name")) if f in ("arm", "release") else None
    for node in entry.nodes if point is not None else ():
        there = [one.name for one in POINTS.values() if one.of_controller == (node == CONTROLLER)]
        if point is not None and point.name not in there:
            whose = "the controller's" if point.of_controller else "a broker's"
            refuse(f"{at}: nodes", f"names {node}, which has no {point.name} to {f}: it is {whose}; "
                                   f"valid there: {', '.join(there)}")


# -- arguments ----------------------------------------------------------------------------------------------

def _json_value(at: str, value: object, _: Known) -> object:
    """The argument of another distribution's fault: any JSON value, under a key that no history uses."""
    place, key = at.rsplit(": ", 1)
    if key in HISTORY_KEYS:
        refuse(place, f"has the key {quoted(key)}, which the history uses itself")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        refuse(at, f"is {quoted(value)}, which is not valid in JSON")
    return value


def _grudge(at: str, value: object, known: Known) -> dict[str, list[str]]:
    pairs = read_as.an_object(at, value, known)
    if not pairs:
        refuse(at, "is empty: nothing would be cut")
    read_all = read_as.names(read_as.node_or(CLIENTS, *sorted(ROLES)))
    read_all(at, [*pairs], known)
    for receiver, senders in pairs.items():
        if isinstance(senders, list) and receiver in senders:
            refuse(f"{at}.{receiver}", f"names {receiver} too: no node is cut from itself")
    return {receiver: read_all(f"{at}.{receiver}", senders, known) for receiver, senders in pairs.items()}


def _keep(at: str, value: object, known: Known) -> dict[str, int]:
    kept: dict[str, int] = read_as.an_object(at, value, known)
    for key in kept:
        if not key.isdecimal():
            refuse(at, f"has the key {quoted(key)}, should be a partition")
        read_as.partition(at, int(key), known)
    return {key: read_as.number(f"{at}.{key}", leo, known) for key, leo in kept.items()}


def _sends(at: str, value: object, known: Known) -> list[dict[str, int]]:
    def read(at: str, value: object, known: Known) -> dict[str, int]:
        return fields_of(at, value, _MICRO_SEND, known, needs=[*_MICRO_SEND])

    sends: list[dict[str, int]] = read_as.several(read, "micro-sends")(at, value, known)
    if len({one["partition"] for one in sends}) > 1:
        refuse(at, "name several partitions: an op sends to one")
    return sends


def _arm(at: str, value: object, known: Known) -> dict[str, Any]:
    fields = fields_of(at, value, _ARM, known, needs=("name", "action"))
    point, action = POINTS[fields["name"]], fields["action"]
    if action not in point.actions:
        refuse(f"{at}.action", f"is {quoted(action)}, which does not fit {point.name} ({point.when}); "
                               f"valid: {', '.join(point.actions)}")
    if (action == DELAY) != ("for_ms" in fields):
        refuse(at, "has no `for_ms` (a step's `for TIME`)" if action == DELAY
               else f"takes no `for_ms` (a step's `for TIME`): {action} is not a delay")
    if fields.get("scope") == "broker":
        one_of(*BROKER_SCOPE_ACTIONS)(f"{at}.action (scope broker)", action, known)
    return fields


def _release(at: str, value: object, known: Known) -> dict[str, Any]:
    fields = fields_of(at, value, _RELEASE, known)
    if "through_epoch" in fields and fields.get("name") != "C.elected":
        refuse(at, "has `through_epoch`, which only a release of C.elected takes")
    return fields


_OF_POINT: Mapping[str, Read] = {"name": one_of(*POINTS), "partition": read_as.partition,
                                 "peer": read_as.node_or(CONTROLLER)}
_ARM: Mapping[str, Read] = {
    "name": one_of(*POINTS), "action": one_of(*ACTIONS), "partition": read_as.partition,
    "epoch": read_as.number, "peer": _OF_POINT["peer"], "offset": read_as.number, "times": read_as.number,
    "skip": read_as.number, "for_ms": read_as.positive, "scope": one_of(*SCOPES)}
_RELEASE: Mapping[str, Read] = {**_OF_POINT, "through_epoch": read_as.number, "keep": read_as.flag}
_COMMON: Mapping[str, Read] = {
    "f": read_as.anything, "nodes": read_as.names(read_as.node_or_role),
    "moment": lambda at, value, known: None if value is None else read_moment(value, at, known),
    "timeout_s": value_that(lambda value: read_as.is_between(value, 0, 3600) and value > 0,
                            "seconds, more than 0, at most 3600", float)}
_KINDS: Mapping[str, Read] = {  # of arguments, by their names in harness/faults.py
    "arm": _arm, "flag": read_as.flag, "grudge": _grudge, "keep": _keep, "node or role": read_as.node_or_role,
    "number": read_as.number, "partitions": read_as.several(read_as.partition, "partitions"),
    "offset": value_that(lambda value: read_as.is_whole(value, 1 - 2**40) and 0 < abs(value) < 2**40,
                         "milliseconds, more or less than 0"),
    "positive": read_as.positive, "release": _release, "share": read_as.share, "word": read_as.word}
_ARGS: Mapping[str, Mapping[str, Read]] = {f: {
    key: _KINDS[kind] if isinstance(kind, str) else one_of(*kind) for key, kind in fault.args.items()
} for f, fault in FAULTS.items()}
_MICRO_SEND: Mapping[str, Read] = {"partition": read_as.partition, "value": read_as.number}
_CLIENT: Mapping[str, Read] = {"client": read_as.number}
_POLL: Mapping[str, Read] = {"partitions": _KINDS["partitions"], "from": read_as.node_or_role}
_ACTS: Mapping[str, Mapping[str, Read]] = {  # the first argument of each is needed; of `wait` the moment
    "send": {"sends": _sends, "acks": one_of(*ACKS), "to": read_as.node_or_role, "nowait": read_as.flag,
             **_CLIENT},
    "poll": {**_POLL, "offset": read_as.number, **_CLIENT}, "list_offsets": {**_POLL, **_CLIENT}, "wait": {}}
