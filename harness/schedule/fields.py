"""Reads the parts of schedules from JSON strictly (names, numbers, partitions, objects); errors name the
part's place, and what is allowed there.

`at` is always that place, for people: `FILE: entry 3 (kill): nodes`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from floodmark.harness.errors import UsageError
from floodmark.harness.schedule.views import ROLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The names that a schedule may use; None: any."""

    nodes: Sequence[str] | None = None
    partitions: Sequence[int] | None = None


ANYTHING = Known()
Read = Callable[[str, Any, Known], Any]


def refuse(at: str, problem: str) -> NoReturn:
    raise UsageError(f"{at}: {problem}")


def quoted(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- values -------------------------------------------------------------------------------------------------

def value_that(fits: Callable[[Any], bool], should: str, to: Callable[[Any], Any] = lambda value: value
               ) -> Read:
    """A reader of values that fit. should: what they are, in words; to: makes them one type."""

    def read(at: str, value: Any, _: Known) -> Any:
        if not fits(value):
            refuse(at, f"is {quoted(value)}, should be {should}")
        return to(value)

    return read


def one_of(*allowed: str) -> Read:
    def read(at: str, value: Any, _: Known) -> Any:
        if not isinstance(value, str) or value not in allowed:
            refuse(at, f"is {quoted(value)}; valid: {', '.join(allowed)}")
        return value

    return read


def is_whole(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def is_between(value: Any, least: float, most: float) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            and least <= value <= most)


def anything(at: str, value: Any, known: Known) -> Any:
    return value


an_object = value_that(lambda value: isinstance(value, dict), "an object")
number = value_that(is_whole, "a whole number, 0 or more")
positive = value_that(lambda value: is_whole(value, 1), "a whole number, 1 or more")
share = value_that(lambda value: is_between(value, 0, 1), "a number from 0 to 1", float)
flag = value_that(lambda value: isinstance(value, bool), "true or false")
word = value_that(lambda value: isinstance(value, str) and value.isprintable() and 0 < len(value) <= 100,
                  "a word")


def partition(at: str, value: Any, known: Known) -> int:
    key: int = number(at, value, known)
    if known.partitions is not None and key not in known.partitions:
        refuse(at, f"is {key}; valid: {', '.join(map(str, known.partitions))}")
    return key


def node_or(*also: str) -> Read:
    """A reader of a node's name, or one of these."""

    def read(at: str, value: Any, known: Known) -> Any:
        if not isinstance(value, str) or not value:
            refuse(at, f"names {quoted(value)}, should be a node's name{' or a role' if also else ''}")
        if known.nodes is not None and value not in (*known.nodes, *also):
            refuse(at, f"names {quoted(value)}; valid: {', '.join((*known.nodes, *also))}")
        return value

    return read


node, node_or_role = node_or(), node_or(*sorted(ROLES))


# -- objects and arrays -------------------------------------------------------------------------------------

def fields_of(at: str, value: object, readers: Mapping[str, Read], known: Known, *,
              needs: Sequence[str] = (), dot: str = ".") -> dict[str, Any]:
    """Read an object that has only these keys and all needed ones, each by its reader."""
    fields: dict[str, Any] = an_object(at, value, known)
    for key in fields:
        if key not in readers:
            refuse(at, f"does not know the key {quoted(key)}; valid: {', '.join(readers)}")
    for key in needs:
        if key not in fields:
            refuse(at, f"has no `{key}`")
    return {key: readers[key](f"{at}{dot}{key}", part, known) for key, part in fields.items()}


def several(read: Read, of: str) -> Read:
    """A reader of an array of at least one. of: what they are, in words."""

    def read_all(at: str, value: Any, known: Known) -> list[Any]:
        if not isinstance(value, list) or not value:
            refuse(at, f"is {quoted(value)}, should be an array of {of}, at least one")
        return [read(f"{at}[{position}]", item, known) for position, item in enumerate(value)]

    return read_all


def names(read: Read) -> Read:
    def read_all(at: str, value: Any, known: Known) -> list[str]:
        if not isinstance(value, list):
            refuse(at, f"is {quoted(value)}, should be an array of names")
        return [read(at, item, known) for item in value]

    return read_all
