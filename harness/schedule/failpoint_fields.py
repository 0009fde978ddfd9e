"""The failpoints of a schedule, read strictly: what is armed, what is let go, and what a moment may wait for.

Rule: a moment waits for a failpoint only if an entry before it arms it, on that node, where the moment says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.schedule.entry import ROLES, Entry
from harness.schedule.failpoints import ACTIONS, DELAY, POINTS, SCOPES, STANDING, Point
from harness.schedule.fields import (
    Known,
    fields_of,
    flag,
    name,
    number,
    one_of,
    only,
    partition,
    refuse,
    shown,
    whole,
)
from harness.schedule.moments import failpoints

CONTROLLER = "controller"
CONDITIONS = ("partition", "epoch", "peer", "offset")
_ARM = ("name", "action", *CONDITIONS, "times", "skip", "for_ms", "scope")
_RELEASE = ("name", "partition", "peer", "through_epoch", "keep")


def armed(at: str, value: object, known: Known) -> dict[str, Any]:
    """The `point` of an arm."""
    fields = fields_of(at, value)
    only(at, fields, _ARM, needs=("name", "action"))
    point = POINTS[one_of(f"{at}.name", fields["name"], POINTS)]
    if one_of(f"{at}.action", fields["action"], ACTIONS) not in point.actions:
        refuse(f"{at}.action", f"is {shown(fields['action'])}, which does not fit {point.name} "
                               f"({point.stands}); valid: {', '.join(point.actions)}")
    if (fields["action"] == DELAY) != ("for_ms" in fields):
        refuse(at, "has no `for_ms`: how long is the delay" if fields["action"] == DELAY
               else f"takes no `for_ms`: {fields['action']} is no delay")
    if "for_ms" in fields:
        whole(f"{at}.for_ms", fields["for_ms"], 1)
    if one_of(f"{at}.scope", fields.get("scope", SCOPES[0]), SCOPES) == "broker":
        one_of(f"{at}.action (scope broker)", fields["action"], STANDING)
    _conditions(at, fields, known)
    return dict(fields)


def released(at: str, value: object, known: Known) -> dict[str, Any]:
    """The `point` of a release."""
    fields = fields_of(at, value)
    only(at, fields, _RELEASE)
    if "name" in fields:
        one_of(f"{at}.name", fields["name"], POINTS)
    if "through_epoch" in fields and fields.get("name") != "C.elected":
        refuse(at, "has `through_epoch`, which only a release of C.elected takes")
    _conditions(at, fields, known)
    return dict(fields)


def fits(at: str, f: str, nodes: Iterable[str], point: Mapping[str, Any]) -> None:
    """Whether these nodes have such a point: the controller its own, brokers theirs."""
    named = point.get("name")
    for node in nodes:
        if named is not None and POINTS[named].of_controller != (node == CONTROLLER):
            whose = "the controller's" if POINTS[named].of_controller else "a broker's"
            refuse(f"{at}: nodes", f"names {node}, which has no {named} to {f}: it is {whose}; "
                                   f"valid there: {', '.join(_points_of(node))}")


def every_moment_is_armed(source: str, schedule: Sequence[Entry]) -> None:
    """Refuses the first moment of a failpoint that no entry before has armed."""
    arms: list[_Armed] = []
    for position, entry in enumerate(schedule):
        place = f"{source}: entry {position} ({entry.f}): moment"
        for at, asked in failpoints(entry.moment, place) if entry.moment is not None else ():
            if not any(one.answers(asked) for one in arms):
                there = ", ".join(str(one) for one in arms) or "nothing"
                refuse(at, f"waits for {asked['name']} at {asked['node']}, which no entry before has armed "
                           f"so; armed by then: {there}")
        if entry.f == "arm":
            arms += (_Armed(node=node, point=entry.args["point"]) for node in entry.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Armed:
    node: str
    point: Mapping[str, Any]

    def answers(self, asked: Mapping[str, Any]) -> bool:
        """Whether the moment may come by this. A role may turn out to be any broker."""
        same = self.node == asked["node"] or (
            bool({self.node, asked["node"]} & (ROLES - {CONTROLLER})) and CONTROLLER not in (
                self.node, asked["node"]))
        return same and fits_point(self.point, asked)

    def __str__(self) -> str:
        where = "".join(f" {key} {self.point[key]}" for key in CONDITIONS if key in self.point)
        return f"{self.point['name']} at {self.node}{where}"


def fits_point(point: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether what is armed can be what is asked: one name, and no condition that says otherwise."""
    return point["name"] == asked["name"] and all(
        point[key] == asked[key] for key in CONDITIONS if key in point and key in asked)


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
    def here(point: Point) -> bool:
        return point.of_controller == (node == CONTROLLER)

    return [point.name for point in POINTS.values() if here(point)]
