"""Reads schedules from JSON strictly, and writes them: run.json's `schedule` and `--schedule FILE`.

Rules
1. An unknown key, f, role, field, failpoint or OP is refused, and the message lists the valid ones.
2. A moment may wait for a failpoint only if an earlier entry arms it on that node, with fitting conditions.
3. write() then read() gives the same schedule; the schedule runner can carry out whatever read() accepts.
4. entry.py describes the form; fields.py reads names, numbers and flags.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.errors import UsageError
from floodmark.harness.faults import FAULTS, QUALITIES, Fault, Kind, registered_fault
from floodmark.harness.run_location import read_at_most
from floodmark.harness.schedule.entry import MOMENT_TIMEOUT_S, Entry, Schedule
from floodmark.harness.schedule.failpoints import ACTIONS, BROKER_SCOPE_ACTIONS, DELAY, POINTS, SCOPES, Point
from floodmark.harness.schedule.fields import (
    Known,
    check_keys,
    fields_of,
    flag,
    is_number,
    name,
    names,
    node_or_role,
    number,
    one_of,
    partition,
    partitions,
    quoted,
    refuse,
    share,
    whole_number,
    word,
)
from floodmark.harness.schedule.moments import CONDITIONS, Armable, read_moment
from floodmark.harness.schedule.views import CONTROLLER

Read = Callable[[str, Any, Known], Any]
_ARM = ("name", "action", *CONDITIONS, "times", "skip", "for_ms", "scope")
_RELEASE = ("name", "partition", "peer", "through_epoch", "keep")


def read_arm(at: str, value: object, known: Known) -> dict[str, Any]:
    """Check the `point` of an arm."""
    fields = fields_of(at, value)
    check_keys(at, fields, _ARM, needs=("name", "action"))
    point = POINTS[one_of(f"{at}.name", fields["name"], POINTS)]
    if one_of(f"{at}.action", fields["action"], ACTIONS) not in point.actions:
        refuse(f"{at}.action", f"is {quoted(fields['action'])}, which does not fit {point.name} "
                               f"({point.when}); valid: {', '.join(point.actions)}")
    if (fields["action"] == DELAY) != ("for_ms" in fields):
        refuse(at, "has no `for_ms` (a step's `for TIME`)" if fields["action"] == DELAY
               else f"takes no `for_ms` (a step's `for TIME`): {fields['action']} is not a delay")
    if "for_ms" in fields:
        whole_number(f"{at}.for_ms", fields["for_ms"], 1)
    if one_of(f"{at}.scope", fields.get("scope", SCOPES[0]), SCOPES) == "broker":
        one_of(f"{at}.action (scope broker)", fields["action"], BROKER_SCOPE_ACTIONS)
    _conditions(at, fields, known)
    return dict(fields)


def read_release(at: str, value: object, known: Known) -> dict[str, Any]:
    """Check the `point` of a release."""
    fields = fields_of(at, value)
    check_keys(at, fields, _RELEASE)
    if "name" in fields:
        one_of(f"{at}.name", fields["name"], POINTS)
    if "through_epoch" in fields and fields.get("name") != "C.elected":
        refuse(at, "has `through_epoch`, which only a release of C.elected takes")
    _conditions(at, fields, known)
    return dict(fields)


def refuse_foreign_points(at: str, f: str, nodes: Iterable[str], point: Mapping[str, Any]) -> None:
    """Refuse a point that these nodes do not have: the controller has its own, brokers have theirs."""
    named = point.get("name")
    for node in nodes:
        if named is not None and POINTS[named].of_controller != (node == CONTROLLER):
            whose = "the controller's" if POINTS[named].of_controller else "a broker's"
            refuse(f"{at}: nodes", f"names {node}, which has no {named} to {f}: it is {whose}; "
                                   f"valid there: {', '.join(_points_of(node))}")


def refuse_unarmed_moments(sources: Sequence[str], schedule: Sequence[Entry]) -> None:
    """Refuse a moment that waits for a failpoint which no earlier entry arms."""
    arms: list[Armable] = []
    for position, (source, entry) in enumerate(zip(sources, schedule, strict=True)):
        if entry.moment is not None:
            entry.moment.check_armed(f"{source}: entry {position} ({entry.f}): moment", arms)
        if entry.f == "arm":
            arms += (Armable(node=node, point=entry.args["point"]) for node in entry.nodes)


def refuse_values_sent_twice(sources: Sequence[str], schedule: Sequence[Entry]) -> None:
    """Refuse a value that was sent before: a judge tells records apart by their values."""
    sent: dict[int, str] = {}
    for position, (source, entry) in enumerate(zip(sources, schedule, strict=True)):
        for value in (one["value"] for one in entry.args.get("sends", ())):
            place = f"{source}: entry {position} ({entry.f})"
            if value in sent:
                refuse(place, f"sends {value}, which {sent[value]} sent before: a value is unique in a run")
            sent[value] = place


def _conditions(at: str, fields: Mapping[str, Any], known: Known) -> None:
    for key in ("epoch", "offset", "times", "skip", "through_epoch"):
        if key in fields:
            number(f"{at}.{key}", fields[key], known)
    if "partition" in fields:
        partition(f"{at}.partition", fields["partition"], known)
    if "peer" in fields and fields["peer"] != CONTROLLER:
        name(f"{at}.peer", fields["peer"], known, roles=False)
    if "keep" in fields:
        flag(f"{at}.keep", fields["keep"], known)


def _points_of(node: str) -> list[str]:
    def has_it(point: Point) -> bool:
        return point.of_controller == (node == CONTROLLER)

    return [point.name for point in POINTS.values() if has_it(point)]


ACKS = ("all", "1", "0")
BYTES_AT_MOST = 1 << 30  # of a file: the run.json of a million partitions has a third of this
_COMMON = ("f", "nodes", "moment", "timeout_s")
HISTORY_KEYS = ("asked", "began", "error", "lost", "reached", "where")  # keys of a history's fault


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The fields that entries of an f take."""

    nodes: str  # must, may, none
    args: Mapping[str, Read] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


# -- reading and writing schedules ---------------------------------------------------------------------------

def load(path: Path, *, nodes: Sequence[str] | None = None,
         partitions: Sequence[int] | None = None) -> Schedule:
    """Load a schedule from a file: a JSON array of entries, or TOML with `[[schedule]]` tables (by
    suffix)."""
    try:
        with path.open("rb") as file:  # it may be a pipe, so the size is limited
            data = read_at_most(file, BYTES_AT_MOST)
        if data is None:
            raise UsageError(f"the schedule {path} is larger than {BYTES_AT_MOST >> 20} MiB")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"the schedule {path} cannot be read: {why}") from error
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
    sources = [source] * len(data) if sources is None else sources
    known = Known(nodes=None if nodes is None else tuple(nodes),
                  partitions=None if partitions is None else tuple(partitions))
    schedule = tuple(_read_entry(f"{place}: entry {position}", item, known)
                     for position, (place, item) in enumerate(zip(sources, data, strict=True)))
    refuse_unarmed_moments(sources, schedule)
    refuse_values_sent_twice(sources, schedule)
    return schedule


def write(schedule: Schedule) -> list[dict[str, Any]]:
    """Write a schedule as JSON values; defaults are left out."""
    return [_write_entry(entry) for entry in schedule]


def _write_entry(entry: Entry) -> dict[str, Any]:
    line: dict[str, Any] = {"f": entry.f}
    if entry.nodes:
        line["nodes"] = list(entry.nodes)
    line.update(entry.args)
    if entry.moment is not None:
        line["moment"] = entry.moment.to_json()
    if entry.timeout_s != MOMENT_TIMEOUT_S:
        line["timeout_s"] = entry.timeout_s
    return line


# -- one entry ----------------------------------------------------------------------------------------------

def _read_entry(at: str, item: object, known: Known) -> Entry:
    fields = fields_of(at, item)
    if "f" not in fields:
        refuse(at, "has no `f`, which says what to do")
    f = fields["f"]
    if isinstance(f, str) and f not in _FORMS and registered_fault(f) is not None:
        form = _registered_form(f"{at} ({f})", fields)
    else:
        form = _FORMS[one_of(f"{at}: f", f, sorted(_FORMS))]
    at = f"{at} ({f})"
    check_keys(at, fields, (*_COMMON, *form.args), needs=form.needs)
    nodes = tuple(names(f"{at}: nodes", fields.get("nodes", []), known, roles=True))
    if form.nodes == "must" and not nodes:
        refuse(at, "has no `nodes` (names or roles)")
    if form.nodes == "none" and nodes:
        refuse(at, "takes no `nodes`")
    args = {key: form.args[key](f"{at}: {key}", fields[key], known) for key in fields if key not in _COMMON}
    _check_combinations(at, f, nodes, args)
    raw = fields.get("moment")
    when = None if raw is None else read_moment(raw, f"{at}: moment", known)
    timeout_s = fields.get("timeout_s", MOMENT_TIMEOUT_S)
    if not is_number(timeout_s) or not 0 < timeout_s <= 3600:
        refuse(f"{at}: timeout_s", f"is {quoted(timeout_s)}, should be seconds, more than 0, at most 3600")
    return Entry(f=f, nodes=nodes, moment=when, timeout_s=float(timeout_s), args=args)


def _registered_form(at: str, fields: Mapping[str, Any]) -> _Form:
    """The form of a fault of another distribution: any JSON values, under keys that the history does not
    use."""
    args = [key for key in fields if key not in _COMMON]
    for key in args:
        if key in HISTORY_KEYS:
            refuse(at, f"has the key {quoted(key)}, which the history uses itself")
    return _Form(nodes="may", args={key: partition if key == "partition" else _json_value for key in args})


def _json_value(at: str, value: object, _: Known) -> object:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        refuse(at, f"is {quoted(value)}, which is not valid in JSON")
    return value


def _check_combinations(at: str, f: str, nodes: tuple[str, ...], args: Mapping[str, Any]) -> None:
    """Refuse fields that need or exclude one another."""
    if f in FAULTS and FAULTS[f].on == "links" and bool(nodes) == ("grudge" in args):
        refuse(at, "needs either `grudge` (node -> from whom it receives nothing) or `nodes` (to cut off)")
    if f == "packet":
        _qualities(at, args)
    if f == "power_cut" and "keep" in args and "keep_share" in args:
        refuse(at, "takes `keep` or `keep_share`, not both")
    if f in ("arm", "release"):
        refuse_foreign_points(at, f, nodes, args.get("point", {}))


def _grudge(at: str, value: object, known: Known) -> dict[str, list[str]]:
    pairs = fields_of(at, value)
    if not pairs:
        refuse(at, "is empty: nothing would be cut")
    for receiver in pairs:
        name(at, receiver, known, roles=True, pseudo=True)
    return {receiver: names(f"{at}.{receiver}", senders, known, roles=True, pseudo=True)
            for receiver, senders in pairs.items()}


def _keep(at: str, value: object, known: Known) -> dict[str, int]:
    kept = fields_of(at, value)
    for key in kept:
        if not key.isdecimal():
            refuse(at, f"has the key {quoted(key)}, should be a partition")
        partition(at, int(key), known)
    return {key: whole_number(f"{at}.{key}", leo) for key, leo in kept.items()}


def _sends(at: str, value: object, known: Known) -> list[dict[str, int]]:
    if not isinstance(value, list) or not value:
        refuse(at, f"is {quoted(value)}, should be an array of micro-sends, at least one")
    sends = []
    for position, item in enumerate(value):
        place = f"{at}[{position}]"
        micro = fields_of(place, item)
        check_keys(place, micro, ("partition", "value"), needs=("partition", "value"))
        sends.append({"partition": partition(f"{place}.partition", micro["partition"], known),
                      "value": whole_number(f"{place}.value", micro["value"])})
    if len({micro["partition"] for micro in sends}) > 1:
        refuse(at, "name several partitions: an op sends to one")
    return sends


def _positive(at: str, value: object, _: Known) -> int:
    return whole_number(at, value, 1)


def _clock_offset(at: str, value: object, _: Known) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < abs(value) < 2**40:
        refuse(at, f"is {quoted(value)}, should be milliseconds, more or less than 0")
    return value


def _qualities(at: str, args: Mapping[str, Any]) -> None:
    """Refuse a packet fault without any quality, or with more jitter than delay."""
    if not any(key in args for key in QUALITIES):
        refuse(at, f"has none of {', '.join(QUALITIES)}")
    if args.get("jitter_ms", 0) > args.get("delay_ms", 0):
        refuse(f"{at}: jitter_ms", "is more than `delay_ms`: a packet would arrive before it was sent")


_READERS: Mapping[str, Read] = {  # by the kinds of arguments in harness/faults.py
    "arm": read_arm, "flag": flag, "grudge": _grudge, "keep": _keep, "node or role": node_or_role,
    "number": number, "offset": _clock_offset, "partitions": partitions, "positive": _positive,
    "release": read_release, "share": share, "word": word,
}


def _reader(kind: Kind) -> Read:
    if isinstance(kind, str):
        return _READERS[kind]
    return lambda at, value, _: one_of(at, value, kind)


def _form_of(fault: Fault) -> _Form:
    args = {key: _reader(kind) for key, kind in fault.args.items()}
    return _Form(nodes={"nodes": "must", "cluster": "none"}.get(fault.on, "may"), needs=fault.needs,
                 args=args if fault.on == "cluster" else {**args, "partition": partition})


_FORMS: dict[str, _Form] = {f: _form_of(fault) for f, fault in FAULTS.items()} | {
    "send": _Form(nodes="none", args={"sends": _sends, "acks": _reader(ACKS), "to": node_or_role,
                                      "nowait": flag, "client": number}, needs=("sends",)),
    "poll": _Form(nodes="none", args={"partitions": partitions, "from": node_or_role, "offset": number,
                                      "client": number}, needs=("partitions",)),
    "list_offsets": _Form(nodes="none", args={"partitions": partitions, "from": node_or_role,
                                              "client": number},
                          needs=("partitions",)),
    "wait": _Form(nodes="none", needs=("moment",)),
}
