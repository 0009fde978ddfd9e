"""Checks single fields of schedules (names, numbers, partitions, flags); errors name the field's place.

`at` is always that place, for people: `FILE: entry 3 (kill): nodes`.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from floodmark.harness.errors import UsageError
from floodmark.harness.schedule.roles import ROLES

WORD_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The names that a schedule may use; None: any."""

    nodes: tuple[str, ...] | None
    partitions: tuple[int, ...] | None


def refuse(at: str, problem: str) -> NoReturn:
    """Raise a UsageError for the field at this place."""
    raise UsageError(f"{at}: {problem}")


def quoted(value: object) -> str:
    """The value as JSON, shortened."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def fields_of(at: str, value: object) -> dict[str, Any]:
    """Check that the value is a JSON object."""
    if not isinstance(value, dict):
        refuse(at, f"is {quoted(value)}, should be an object")
    return value


def check_keys(at: str, fields: Mapping[str, Any], allowed: Sequence[str], *, needs: Sequence[str] = ()
              ) -> None:
    """Check that an object has only allowed keys and all needed ones."""
    for key in fields:
        if key not in allowed:
            refuse(at, f"does not know the key {quoted(key)}; valid: {', '.join(allowed)}")
    for key in needs:
        if key not in fields:
            refuse(at, f"has no `{key}`")


def one_of(at: str, value: object, allowed: Collection[str]) -> str:
    """Check that the value is one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        refuse(at, f"is {quoted(value)}; valid: {', '.join(allowed)}")
    return value


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def whole_number(at: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        refuse(at, f"is {quoted(value)}, should be a whole number, {least} or more")
    return value


def share(at: str, value: object, _: Known) -> float:
    if not is_number(value) or not 0 <= value <= 1:  # type: ignore[operator]
        refuse(at, f"is {quoted(value)}, should be a number from 0 to 1")
    return float(value)  # type: ignore[arg-type]


def flag(at: str, value: object, _: Known) -> bool:
    if not isinstance(value, bool):
        refuse(at, f"is {quoted(value)}, should be true or false")
    return value


def word(at: str, value: object, _: Known) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > WORD_CHARS:
        refuse(at, f"is {quoted(value)}, should be a word")
    return value


def number(at: str, value: object, _: Known) -> int:
    return whole_number(at, value)


def partition(at: str, value: object, known: Known) -> int:
    key = whole_number(at, value)
    if known.partitions is not None and key not in known.partitions:
        refuse(at, f"is {key}; valid: {', '.join(map(str, known.partitions))}")
    return key


def partitions(at: str, value: object, known: Known) -> list[int]:
    if not isinstance(value, list) or not value:
        refuse(at, f"is {quoted(value)}, should be an array of partitions, at least one")
    return [partition(at, item, known) for item in value]


def name(at: str, value: object, known: Known, *, roles: bool, pseudo: bool = False) -> str:
    if not isinstance(value, str) or not value:
        refuse(at, f"names {quoted(value)}, should be a node's name{' or a role' if roles else ''}")
    valid = known.nodes
    if valid is not None and value not in valid and not (roles and value in ROLES) and not (
            pseudo and value == "clients"):
        all_names = [*valid, *(["clients"] if pseudo else []), *(sorted(ROLES) if roles else [])]
        refuse(at, f"names {quoted(value)}; valid: {', '.join(all_names)}")
    return value


def names(at: str, value: object, known: Known, *, roles: bool, pseudo: bool = False) -> list[str]:
    if not isinstance(value, list):
        refuse(at, f"is {quoted(value)}, should be an array of names")
    return [name(at, item, known, roles=roles, pseudo=pseudo) for item in value]


def node_or_role(at: str, value: object, known: Known) -> str:
    """Check one node, by name or by a role."""
    return name(at, value, known, roles=True)
