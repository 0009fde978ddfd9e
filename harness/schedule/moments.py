"""The moments of a schedule, read strictly: when an entry acts. Their form: harness/schedule/entry.py."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.schedule.entry import EVERY
from harness.schedule.failpoints import POINTS
from harness.schedule.fields import (
    Known,
    fields_of,
    flag,
    name,
    names,
    number,
    one_of,
    only,
    partition,
    player,
    refuse,
    shown,
    whole,
)

NUMBERS = ("leo", "hw", "epoch", "checkpointed_hw")
REPLICA_FIELDS = (*NUMBERS, "leader", "isr", "running")
CONTROLLER_FIELDS = ("leader", "epoch", "isr")
ORDERS = ("==", "!=", "<", "<=", ">", ">=")
SAMENESS = ("==", "!=")
MEMBERSHIPS = ("==", "!=", "contains", "lacks")
THEN = "then_ns"
_STATE = ("partition", "replica", "field", "is", "value")
Read = Callable[[str, Any, Known], Any]


def moment(at: str, value: object, known: Known) -> dict[str, Any]:
    """A moment as it is written, after all its parts were found good. UsageError says which is not."""
    fields = fields_of(at, value)
    kind = one_of(f"{at}.at", fields.get("at"), [*_PARTS, "state", "sequence"])
    if THEN in fields:
        whole(f"{at}.{THEN}", fields[THEN])
    rest = {key: field for key, field in fields.items() if key not in ("at", THEN)}
    if kind == "state":
        _state(at, rest, known)
    elif kind == "sequence":
        only(at, fields, ("at", "of", THEN), needs=("of",))
        if not isinstance(rest["of"], list) or not rest["of"]:
            refuse(f"{at}.of", f"is {shown(rest['of'])}, should be an array of moments, at least one")
        for position, item in enumerate(rest["of"]):
            moment(f"{at}.of[{position}]", item, known)
    else:
        must, may = _PARTS[kind]
        only(at, fields, ("at", *must, *may, THEN), needs=tuple(must))
        for key, part in rest.items():
            ({**must, **may}[key])(f"{at}.{key}", part, known)
    return dict(fields)


def failpoints(value: Mapping[str, Any], at: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The moments of failpoints in it, each with its place."""
    if value["at"] == "failpoint":
        yield at, value
    for position, part in enumerate(value.get("of", ())):
        yield from failpoints(part, f"{at}.of[{position}]")


def _count(at: str, value: object, _: Known) -> int:
    if whole(at, value) == 0:
        refuse(at, "is 0, should be at least 1: the first is number 1")
    return value  # type: ignore[return-value]


def _point(at: str, value: object, _: Known) -> str:
    return one_of(at, value, POINTS)


def _node(at: str, value: object, known: Known) -> str:
    return name(at, value, known, roles=False)


_PARTS: dict[str, tuple[dict[str, Read], dict[str, Read]]] = {  # at -> what it must have, what it may have
    "time": ({"time": number}, {"after_ns": number}),
    "ack": ({"partition": partition, "count": _count}, {"leader": player}),
    "after": ({"after_ns": number}, {}),
    "failpoint": ({"node": player, "name": _point},
                  {"partition": partition, "epoch": number, "peer": _node, "offset": number,
                   "count": _count}),
}


# -- states -------------------------------------------------------------------------------------------------

def _state(at: str, value: object, known: Known) -> None:
    fields = fields_of(at, value)
    for group in ("all", "any"):
        if group in fields:
            only(at, fields, (group,))
            if not isinstance(fields[group], list) or not fields[group]:
                refuse(f"{at}.{group}", f"is {shown(fields[group])}, should be an array of states")
            for position, item in enumerate(fields[group]):
                _state(f"{at}.{group}[{position}]", item, known)
            return
    if "healthy" in fields:
        only(at, fields, ("healthy",))
        if fields["healthy"] is not True:
            refuse(f"{at}.healthy", f"is {shown(fields['healthy'])}, should be true")
        return
    _condition(at, fields, known)


def _condition(at: str, fields: Mapping[str, Any], known: Known) -> None:
    only(at, fields, _STATE)
    for needed in ("field", "is", "value"):
        if needed not in fields:
            refuse(at, f"has no `{needed}` (nor is it all, any or healthy)")
    field = _observation(at, fields, known)
    allowed = ORDERS if field in NUMBERS else MEMBERSHIPS if field == "isr" else SAMENESS
    operator = one_of(f"{at}.is", fields["is"], allowed)
    value, place = fields["value"], f"{at}.value"
    if isinstance(value, dict):
        only(place, value, ("partition", "replica", "field"))
        if value.get("replica") == EVERY:
            refuse(f"{place}.replica", "is every, should be one replica")
        other = _observation(place, {"partition": fields.get("partition"), **value}, known)
        wanted = NUMBERS if field in NUMBERS else (field,)
        if operator in ("contains", "lacks"):
            wanted = ("leader",)
        if other not in wanted:
            refuse(f"{place}.field",
                   f"is {other}, with which {field} cannot be compared; valid: {', '.join(wanted)}")
    else:
        _literal(place, field, operator, value, known)


def _observation(at: str, fields: Mapping[str, Any], known: Known) -> str:
    """The field an observation names, after all its parts were found good."""
    replica = fields.get("replica")
    allowed = CONTROLLER_FIELDS if replica is None else REPLICA_FIELDS
    if replica is None and fields.get("field") in REPLICA_FIELDS and fields["field"] not in allowed:
        refuse(at, f"has no `replica`: whose? The controller knows only {', '.join(allowed)}")
    field = one_of(f"{at}.field", fields.get("field"), allowed)
    if replica is not None and replica != EVERY:
        player(f"{at}.replica", replica, known)
    if field != "running" and fields.get("partition") is None:
        refuse(at, "has no `partition`")
    if fields.get("partition") is not None:
        partition(f"{at}.partition", fields["partition"], known)
    return field


def _literal(at: str, field: str, operator: str, value: object, known: Known) -> None:
    if field in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(at, f"is {shown(value)}, should be a number or an observation")
    elif field == "running":
        flag(at, value, known)
    elif field == "isr" and operator in SAMENESS:
        names(at, value, known, roles=False)
    elif field == "leader" and value is None:
        return  # nobody leads
    else:
        name(at, value, known, roles=False)
