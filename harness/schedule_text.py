"""Schedules to and from JSON (run.json's `schedule`, `--schedule FILE`), read strictly; faults told by place.

Rules
1. A key, an f, a role, a field or an OP that is not known is refused, and the refusal lists the valid ones.
2. write() then read() gives the same schedule; what read() takes, the striker can carry out.
3. The form itself is described where it is defined: harness/schedule.py.
"""

import json
import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UsageError
from harness.faults import FAULTS
from harness.schedule import ACTS, EVERY, MOMENT_TIMEOUT_S, ROLES, Entry, Schedule

NUMBERS = ("leo", "hw", "epoch", "checkpointed_hw")
REPLICA_FIELDS = (*NUMBERS, "leader", "isr", "running")
CONTROLLER_FIELDS = ("leader", "epoch", "isr")
ORDERS = ("==", "!=", "<", "<=", ">", ">=")
SAMENESS = ("==", "!=")
MEMBERSHIPS = ("==", "!=", "contains", "lacks")
_COMMON = ("f", "nodes", "moment", "timeout_s")
_MOMENTS = {"time": ("time", "after_ns"), "ack": ("partition", "count"), "after": ("after_ns",)}
_STATE = ("partition", "replica", "field", "is", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The names a schedule may use; None: whatever is written is believed."""

    nodes: tuple[str, ...] | None
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """What an f takes."""

    nodes: str  # must, may, none
    args: Mapping[str, Callable[[str, Any, _Known], Any]]
    needs: tuple[str, ...] = ()


# -- the front door -----------------------------------------------------------------------------------------

def load(path: Path, *, nodes: Sequence[str] | None = None,
         partitions: Sequence[int] | None = None) -> Schedule:
    """The schedule in a file: a JSON array of entries, or TOML with `[[schedule]]` tables (by its suffix)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the schedule {path} cannot be read: {error}") from error
    try:
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the schedule {path} does not parse: {error}") from error
    if isinstance(data, dict) and "schedule" in data:  # TOML holds no bare array; a whole run.json
        data = data["schedule"]
    return read(data, source=str(path), nodes=nodes, partitions=partitions)


def read(data: object, *, source: str = "schedule", nodes: Sequence[str] | None = None,
         partitions: Sequence[int] | None = None) -> Schedule:
    """From JSON values to a schedule. Names are checked against `nodes` and `partitions` where given."""
    if not isinstance(data, list):
        _refuse(source, f"is {_shown(data)}, should be an array of entries")
    known = _Known(nodes=None if nodes is None else tuple(nodes),
                   partitions=None if partitions is None else tuple(partitions))
    return tuple(_entry(f"{source}: entry {position}", item, known) for position, item in enumerate(data))


def write(schedule: Schedule) -> list[dict[str, Any]]:
    """A schedule as JSON values: what need not be said is left out."""
    return [_written(entry) for entry in schedule]


def _written(entry: Entry) -> dict[str, Any]:
    line: dict[str, Any] = {"f": entry.f}
    if entry.nodes:
        line["nodes"] = list(entry.nodes)
    line.update(entry.args)
    if entry.moment is not None:
        line["moment"] = dict(entry.moment)
    if entry.timeout_s != MOMENT_TIMEOUT_S:
        line["timeout_s"] = entry.timeout_s
    return line


# -- one entry ----------------------------------------------------------------------------------------------

def _entry(at: str, item: object, known: _Known) -> Entry:
    fields = _object(at, item)
    if "f" not in fields:
        _refuse(at, "has no `f`: what is to be done")
    f = _one_of(f"{at}: f", fields["f"], sorted(_FORMS))
    form, at = _FORMS[f], f"{at} ({f})"
    _only(at, fields, (*_COMMON, *form.args))
    for needed in form.needs:
        if needed not in fields:
            _refuse(at, f"has no `{needed}`")
    nodes = tuple(_names(f"{at}: nodes", fields.get("nodes", []), known, roles=True))
    if form.nodes == "must" and not nodes:
        _refuse(at, "has no `nodes`: who is meant, names or roles")
    if form.nodes == "none" and nodes:
        _refuse(at, "takes no `nodes`")
    args = {key: form.args[key](f"{at}: {key}", fields[key], known) for key in fields if key not in _COMMON}
    if f == "cut" and bool(nodes) == ("grudge" in args):
        _refuse(at, "needs either `grudge` (whom each node does not hear) or `nodes` (to be set apart)")
    if f == "power_cut" and "keep" in args and "keep_share" in args:
        _refuse(at, "takes `keep` or `keep_share`, not both")
    raw = fields.get("moment")
    moment = None if raw is None else _moment(f"{at}: moment", raw, known)
    timeout_s = fields.get("timeout_s", MOMENT_TIMEOUT_S)
    if not _is_number(timeout_s) or not 0 < timeout_s <= 3600:
        _refuse(f"{at}: timeout_s", f"is {_shown(timeout_s)}, should be seconds, more than 0, at most 3600")
    return Entry(f=f, nodes=nodes, moment=moment, timeout_s=float(timeout_s), args=args)


def _grudge(at: str, value: object, known: _Known) -> dict[str, list[str]]:
    pairs = _object(at, value)
    if not pairs:
        _refuse(at, "is empty: nothing would be cut")
    for hearer in pairs:
        _name(at, hearer, known, roles=True, pseudo=True)
    return {hearer: _names(f"{at}.{hearer}", unheard, known, roles=True, pseudo=True)
            for hearer, unheard in pairs.items()}


def _keep(at: str, value: object, known: _Known) -> dict[str, int]:
    kept = _object(at, value)
    for key in kept:
        if not key.isdecimal():
            _refuse(at, f"has the key {_shown(key)}, should be a partition")
        _partition(at, int(key), known)
    return {key: _whole(f"{at}.{key}", leo, known) for key, leo in kept.items()}


def _share(at: str, value: object, _: _Known) -> float:
    if not _is_number(value) or not 0 <= value <= 1:  # type: ignore[operator]
        _refuse(at, f"is {_shown(value)}, should be a number from 0 to 1")
    return float(value)  # type: ignore[arg-type]


def _sends(at: str, value: object, known: _Known) -> list[dict[str, int]]:
    if not isinstance(value, list) or not value:
        _refuse(at, f"is {_shown(value)}, should be an array of micro-sends, at least one")
    sends = []
    for position, item in enumerate(value):
        place = f"{at}[{position}]"
        micro = _object(place, item)
        _only(place, micro, ("partition", "value"))
        for needed in ("partition", "value"):
            if needed not in micro:
                _refuse(place, f"has no `{needed}`")
        sends.append({"partition": _partition(place, micro["partition"], known),
                      "value": _whole(f"{place}.value", micro["value"], known)})
    if len({micro["partition"] for micro in sends}) > 1:
        _refuse(at, "name several partitions: an op sends to one")
    return sends


def _partitions(at: str, value: object, known: _Known) -> list[int]:
    if not isinstance(value, list) or not value:
        _refuse(at, f"is {_shown(value)}, should be an array of partitions, at least one")
    return [_partition(at, item, known) for item in value]


def _flag(at: str, value: object, _: _Known) -> bool:
    if not isinstance(value, bool):
        _refuse(at, f"is {_shown(value)}, should be true or false")
    return value


def _word(at: str, value: object, _: _Known) -> str:
    if not isinstance(value, str) or not value:
        _refuse(at, f"is {_shown(value)}, should be a word")
    return value


# -- moments ------------------------------------------------------------------------------------------------

def _moment(at: str, value: object, known: _Known) -> dict[str, Any]:
    fields = _object(at, value)
    kind = _one_of(f"{at}.at", fields.get("at"), ["time", "ack", "state", "after"])
    if kind == "state":
        _state(at, {key: field for key, field in fields.items() if key != "at"}, known)
        return dict(fields)
    allowed = _MOMENTS[kind]
    _only(at, fields, ("at", *allowed))
    for key in allowed:
        if key not in fields and (kind, key) != ("time", "after_ns"):
            _refuse(at, f"has no `{key}`")
    if kind == "ack":
        _partition(at, fields["partition"], known)
        if _whole(f"{at}.count", fields["count"], known) == 0:
            _refuse(f"{at}.count", "is 0, should be at least 1: the first ack is ack 1")
        return dict(fields)
    for key in allowed:
        if key in fields:
            _whole(f"{at}.{key}", fields[key], known)
    return dict(fields)


def _state(at: str, value: object, known: _Known) -> None:
    fields = _object(at, value)
    for group in ("all", "any"):
        if group in fields:
            _only(at, fields, (group,))
            if not isinstance(fields[group], list) or not fields[group]:
                _refuse(f"{at}.{group}", f"is {_shown(fields[group])}, should be an array of states")
            for position, item in enumerate(fields[group]):
                _state(f"{at}.{group}[{position}]", item, known)
            return
    if "healthy" in fields:
        _only(at, fields, ("healthy",))
        if fields["healthy"] is not True:
            _refuse(f"{at}.healthy", f"is {_shown(fields['healthy'])}, should be true")
        return
    _condition(at, fields, known)


def _condition(at: str, fields: Mapping[str, Any], known: _Known) -> None:
    _only(at, fields, _STATE)
    for needed in ("field", "is", "value"):
        if needed not in fields:
            _refuse(at, f"has no `{needed}` (nor is it all, any or healthy)")
    field = _observation(at, fields, known)
    allowed = ORDERS if field in NUMBERS else MEMBERSHIPS if field == "isr" else SAMENESS
    operator = _one_of(f"{at}.is", fields["is"], allowed)
    value, place = fields["value"], f"{at}.value"
    if isinstance(value, dict):
        _only(place, value, ("partition", "replica", "field"))
        if value.get("replica") == EVERY:
            _refuse(f"{place}.replica", "is every, should be one replica")
        other = _observation(place, {"partition": fields.get("partition"), **value}, known)
        wanted = NUMBERS if field in NUMBERS else (field,)
        if operator in ("contains", "lacks"):
            wanted = ("leader",)
        if other not in wanted:
            _refuse(f"{place}.field",
                    f"is {other}, with which {field} cannot be compared; valid: {', '.join(wanted)}")
    else:
        _literal(place, field, operator, value, known)


def _observation(at: str, fields: Mapping[str, Any], known: _Known) -> str:
    """The field an observation names, after all its parts were found good."""
    replica = fields.get("replica")
    allowed = CONTROLLER_FIELDS if replica is None else REPLICA_FIELDS
    if replica is None and fields.get("field") in REPLICA_FIELDS and fields["field"] not in allowed:
        _refuse(at, f"has no `replica`: whose? The controller knows only {', '.join(allowed)}")
    field = _one_of(f"{at}.field", fields.get("field"), allowed)
    if replica is not None and replica != EVERY:
        _name(f"{at}.replica", replica, known, roles=True)
    if field != "running" and fields.get("partition") is None:
        _refuse(at, "has no `partition`")
    if fields.get("partition") is not None:
        _partition(at, fields["partition"], known)
    return field


def _literal(at: str, field: str, operator: str, value: object, known: _Known) -> None:
    if field in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int):
            _refuse(at, f"is {_shown(value)}, should be a number or an observation")
    elif field == "running":
        _flag(at, value, known)
    elif field == "isr" and operator in SAMENESS:
        _names(at, value, known, roles=False)
    elif field == "leader" and value is None:
        return  # nobody leads
    else:
        _name(at, value, known, roles=False)


# -- small parts --------------------------------------------------------------------------------------------

def _refuse(at: str, what: str) -> NoReturn:
    raise UsageError(f"{at}: {what}")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _object(at: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(at, f"is {_shown(value)}, should be an object")
    return value


def _only(at: str, fields: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in fields:
        if key not in allowed:
            _refuse(at, f"does not know the key {_shown(key)}; valid: {', '.join(allowed)}")


def _one_of(at: str, value: object, allowed: Collection[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        _refuse(at, f"is {_shown(value)}; valid: {', '.join(allowed)}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(at: str, value: object, _: _Known) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        _refuse(at, f"is {_shown(value)}, should be a whole number, 0 or more")
    return value


def _partition(at: str, value: object, known: _Known) -> int:
    number = _whole(f"{at}.partition", value, known)
    if known.partitions is not None and number not in known.partitions:
        _refuse(f"{at}.partition", f"is {number}; valid: {', '.join(map(str, known.partitions))}")
    return number


def _name(at: str, value: object, known: _Known, *, roles: bool, pseudo: bool = False) -> str:
    if not isinstance(value, str) or not value:
        _refuse(at, f"names {_shown(value)}, should be a node's name{' or a role' if roles else ''}")
    valid = known.nodes
    if valid is not None and value not in valid and not (roles and value in ROLES) and not (
            pseudo and value == "clients"):
        names = [*valid, *(["clients"] if pseudo else []), *(sorted(ROLES) if roles else [])]
        _refuse(at, f"names {_shown(value)}; valid: {', '.join(names)}")
    return value


def _names(at: str, value: object, known: _Known, *, roles: bool, pseudo: bool = False) -> list[str]:
    if not isinstance(value, list):
        _refuse(at, f"is {_shown(value)}, should be an array of names")
    return [_name(at, item, known, roles=roles, pseudo=pseudo) for item in value]


_ON_NODES = _Form(nodes="must", args={"partition": _partition})
_FORMS: dict[str, _Form] = {
    **dict.fromkeys(("kill", "stop", "start", "pause", "resume", "expire"), _ON_NODES),
    "cut": _Form(nodes="may",
                 args={"grudge": _grudge, "kind": _word, "reset": _flag, "partition": _partition}),
    "heal": _Form(nodes="none", args={}),
    "power_cut": _Form(nodes="must", args={"keep": _keep, "keep_share": _share, "partition": _partition}),
    "elect": _Form(nodes="none", args={"partitions": _partitions, "unclean": _flag}),
    "send": _Form(nodes="none", args={"sends": _sends}, needs=("sends",)),
    "poll": _Form(nodes="none", args={"partitions": _partitions}, needs=("partitions",)),
    "wait": _Form(nodes="none", args={}, needs=("moment",)),
}
assert set(_FORMS) == set(FAULTS) | ACTS, "an f that is a fault has no form here, or the other way round"
