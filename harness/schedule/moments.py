"""Reads moments from JSON strictly, and finds moments that no earlier entry makes possible.

entry.py describes the form; fields.py reads names, numbers and flags.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.harness.schedule.entry import EVERY, ROLES, Entry
from floodmark.harness.schedule.failpoints import POINTS
from floodmark.harness.schedule.fields import (
    Known,
    check_keys,
    fields_of,
    flag,
    name,
    names,
    node_or_role,
    number,
    one_of,
    partition,
    quoted,
    refuse,
    whole_number,
)

NUMBERS = ("leo", "hw", "epoch", "checkpointed_hw")
OF_BROKER = ("running", "unfenced")  # of a broker, not of its replicas; always visible
REPLICA_FIELDS = (*NUMBERS, "leader", "isr", *OF_BROKER)
CONTROLLER_FIELDS = ("leader", "epoch", "isr")
ORDERS = ("==", "!=", "<", "<=", ">", ">=")
SAMENESS = ("==", "!=")
MEMBERSHIPS = ("==", "!=", "contains", "lacks")
THEN = "then_ns"
_STATE = ("partition", "replica", "field", "is", "value")
Read = Callable[[str, Any, Known], Any]


def read_moment(at: str, value: object, known: Known) -> dict[str, Any]:
    """Check a moment, and return it as written. UsageError names the bad part."""
    fields = fields_of(at, value)
    kind = one_of(f"{at}.at", fields.get("at"), [*_PARTS, "state", "sequence", "first"])
    if THEN in fields:
        whole_number(f"{at}.{THEN}", fields[THEN])
    rest = {key: field for key, field in fields.items() if key not in ("at", THEN)}
    if kind == "state":
        _state(at, rest, known)
    elif kind in ("sequence", "first"):
        check_keys(at, fields, ("at", "of", THEN), needs=("of",))
        if not isinstance(rest["of"], list) or not rest["of"]:
            refuse(f"{at}.of", f"is {quoted(rest['of'])}, should be an array of moments, at least one")
        for position, item in enumerate(rest["of"]):
            read_moment(f"{at}.of[{position}]", item, known)
    else:
        must, may = _PARTS[kind]
        check_keys(at, fields, ("at", *must, *may, THEN), needs=tuple(must))
        for key, part in rest.items():
            ({**must, **may}[key])(f"{at}.{key}", part, known)
    return dict(fields)


def failpoint_moments(value: Mapping[str, Any], at: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the failpoint moments in a moment, each with its place."""
    if value["at"] == "failpoint":
        yield at, value
    for position, part in enumerate(value.get("of", ())):
        yield from failpoint_moments(part, f"{at}.of[{position}]")


def _count(at: str, value: object, _: Known) -> int:
    if whole_number(at, value) == 0:
        refuse(at, "is 0, should be at least 1: the first is number 1")
    return value  # type: ignore[return-value]


def _point(at: str, value: object, _: Known) -> str:
    return one_of(at, value, POINTS)


def _node(at: str, value: object, known: Known) -> str:
    return name(at, value, known, roles=False)


_PARTS: dict[str, tuple[dict[str, Read], dict[str, Read]]] = {  # at -> required keys, optional keys
    "time": ({"time": number}, {"after_ns": number}),
    "ack": ({"partition": partition, "count": _count}, {"leader": node_or_role}),
    "after": ({"after_ns": number}, {}),
    "failpoint": ({"node": node_or_role, "name": _point},
                  {"partition": partition, "epoch": number, "peer": _node, "offset": number,
                   "count": _count}),
}


# -- states -------------------------------------------------------------------------------------------------

def _state(at: str, value: object, known: Known) -> None:
    fields = fields_of(at, value)
    for group in ("all", "any"):
        if group in fields:
            check_keys(at, fields, (group,))
            if not isinstance(fields[group], list) or not fields[group]:
                refuse(f"{at}.{group}", f"is {quoted(fields[group])}, should be an array of states")
            for position, item in enumerate(fields[group]):
                _state(f"{at}.{group}[{position}]", item, known)
            return
    if "healthy" in fields:
        check_keys(at, fields, ("healthy",))
        if fields["healthy"] is not True:
            refuse(f"{at}.healthy", f"is {quoted(fields['healthy'])}, should be true")
        return
    _condition(at, fields, known)


def _condition(at: str, fields: Mapping[str, Any], known: Known) -> None:
    check_keys(at, fields, _STATE)
    for needed in ("field", "is", "value"):
        if needed not in fields:
            refuse(at, f"has no `{needed}` (nor is it all, any or healthy)")
    field = _observation(at, fields, known)
    allowed = ORDERS if field in NUMBERS else MEMBERSHIPS if field == "isr" else SAMENESS
    operator = one_of(f"{at}.is", fields["is"], allowed)
    value, place = fields["value"], f"{at}.value"
    if isinstance(value, dict):
        check_keys(place, value, ("partition", "replica", "field"))
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
    """Check an observation, and return the name of its field."""
    replica = fields.get("replica")
    allowed = CONTROLLER_FIELDS if replica is None else REPLICA_FIELDS
    if replica is None and fields.get("field") in REPLICA_FIELDS and fields["field"] not in allowed:
        refuse(at, f"has no `replica`; the controller knows only {', '.join(allowed)}")
    field = one_of(f"{at}.field", fields.get("field"), allowed)
    if replica is not None and replica != EVERY:
        node_or_role(f"{at}.replica", replica, known)
    if field not in OF_BROKER and fields.get("partition") is None:
        refuse(at, "has no `partition`")
    if fields.get("partition") is not None:
        partition(f"{at}.partition", fields["partition"], known)
    return field


def _literal(at: str, field: str, operator: str, value: object, known: Known) -> None:
    if field in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(at, f"is {quoted(value)}, should be a number or an observation")
    elif field in OF_BROKER:
        flag(at, value, known)
    elif field == "isr" and operator in SAMENESS:
        names(at, value, known, roles=False)
    elif field == "leader" and value is None:
        return  # no leader
    else:
        name(at, value, known, roles=False)


CONTROLLER = "controller"
CONDITIONS = ("partition", "epoch", "peer", "offset")


def refuse_unarmed_moments(sources: Sequence[str], schedule: Sequence[Entry]) -> None:
    """Refuse a moment that waits for a failpoint which no earlier entry arms."""
    arms: list[_Armed] = []
    for position, (source, entry) in enumerate(zip(sources, schedule, strict=True)):
        place = f"{source}: entry {position} ({entry.f}): moment"
        for at, asked in failpoint_moments(entry.moment, place) if entry.moment is not None else ():
            if not any(one.can_fulfil(asked) for one in arms):
                there = ", ".join(str(one) for one in arms) or "nothing"
                refuse(at, f"waits for {asked['name']} at {asked['node']}, which no earlier entry has armed "
                           f"so; armed before: {there}")
        if entry.f == "arm":
            arms += (_Armed(node=node, point=entry.args["point"]) for node in entry.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Armed:
    node: str
    point: Mapping[str, Any]

    def can_fulfil(self, asked: Mapping[str, Any]) -> bool:
        """Whether this armed point can fulfil the moment. A role can mean any broker."""
        same = self.node == asked["node"] or (
            bool({self.node, asked["node"]} & (ROLES - {CONTROLLER})) and CONTROLLER not in (
                self.node, asked["node"]))
        return same and point_matches(self.point, asked)

    def __str__(self) -> str:
        where = "".join(f" {key} {self.point[key]}" for key in CONDITIONS if key in self.point)
        return f"{self.point['name']} at {self.node}{where}"


def point_matches(point: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether the armed point can be the requested one: the same name, and no contradictory condition."""
    return point["name"] == asked["name"] and all(
        point[key] == asked[key] for key in CONDITIONS if key in point and key in asked)

