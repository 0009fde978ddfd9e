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
from floodmark.harness.schedule.stage import ROLES

WORD_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The names that a schedule may use; None: any."""

    nodes: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None


ANYTHING = Known()
Read = Callable[[str, Any, Known], Any]


def refuse(at: str, problem: str) -> NoReturn:
    raise UsageError(f"{at}: {problem}")


def quoted(value: object) -> str:
    """The value as JSON, shortened."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def expect(at: str, value: object, *, holds: object, what: str) -> None:
    if not holds:
        refuse(at, f"is {quoted(value)}, should be {what}")


def an_object(at: str, value: object) -> dict[str, Any]:
    expect(at, value, holds=isinstance(value, dict), what="an object")
    return value  # type: ignore[return-value]


def fields_of(at: str, value: object, readers: Mapping[str, Read], known: Known, *,
              needs: Sequence[str] = (), dot: str = ".") -> dict[str, Any]:
    """Read an object that has only these keys and all needed ones, each by its reader."""
    fields = an_object(at, value)
    for key in fields:
        if key not in readers:
            refuse(at, f"does not know the key {quoted(key)}; valid: {', '.join(readers)}")
    for key in needs:
        if key not in fields:
            refuse(at, f"has no `{key}`")
    return {key: readers[key](f"{at}{dot}{key}", part, known) for key, part in fields.items()}


def several(at: str, value: object, read: Read, known: Known, *, of: str) -> tuple[Any, ...]:
    """Read an array of at least one."""
    if not isinstance(value, list) or not value:
        refuse(at, f"is {quoted(value)}, should be an array of {of}, at least one")
    return tuple(read(f"{at}[{position}]", item, known) for position, item in enumerate(value))


def one_of(*allowed: str) -> Read:
    def read(at: str, value: Any, _: Known) -> str:
        if not isinstance(value, str) or value not in allowed:
            refuse(at, f"is {quoted(value)}; valid: {', '.join(allowed)}")
        return value

    return read


def whole_number(least: int = 0) -> Read:
    def read(at: str, value: Any, _: Known) -> int:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63
        expect(at, value, holds=fits, what=f"a whole number, {least} or more")
        return int(value)

    return read


number, positive = whole_number(), whole_number(1)


def finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def share(at: str, value: Any, _: Known) -> float:
    expect(at, value, holds=finite(value) and 0 <= value <= 1, what="a number from 0 to 1")
    return float(value)


def flag(at: str, value: Any, _: Known) -> bool:
    expect(at, value, holds=isinstance(value, bool), what="true or false")
    return bool(value)


def word(at: str, value: Any, _: Known) -> str:
    fits = isinstance(value, str) and value.isprintable() and 0 < len(value) <= WORD_CHARS
    expect(at, value, holds=fits, what="a word")
    return str(value)


def partition(at: str, value: Any, known: Known) -> int:
    key: int = number(at, value, known)
    if known.partitions is not None and key not in known.partitions:
        refuse(at, f"is {key}; valid: {', '.join(map(str, known.partitions))}")
    return key


def partitions(at: str, value: Any, known: Known) -> list[int]:
    return list(several(at, value, lambda _, item, known: partition(at, item, known), known, of="partitions"))


def node(at: str, value: Any, known: Known, also: Sequence[str] = ()) -> str:
    """One node, by name; `also`: what else is allowed."""
    if not isinstance(value, str) or not value:
        refuse(at, f"names {quoted(value)}, should be a node's name{' or a role' if also else ''}")
    if known.nodes is not None and value not in (*known.nodes, *also):
        refuse(at, f"names {quoted(value)}; valid: {', '.join((*known.nodes, *also))}")
    return value


def node_or_role(at: str, value: Any, known: Known) -> str:
    return node(at, value, known, sorted(ROLES))


def names(read: Read) -> Read:
    def read_all(at: str, value: Any, known: Known) -> list[str]:
        expect(at, value, holds=isinstance(value, list), what="an array of names")
        return [read(at, item, known) for item in value]

    return read_all
