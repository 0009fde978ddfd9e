"""Which checks other distributions bring: the entry points of the group floodmark.checks.

An entry point's name is the name of its finding; what it points at is a SELECT or a function (loaded and
asked in laws/registered.py; checkers/README.md says how to write one). Here nothing is loaded: to list names
costs some milliseconds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUP = "floodmark.checks"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it is typed, and stands in reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A check of another distribution."""

    name: str  # of the check, and of its finding
    distribution: str  # name and version
    entry: EntryPoint

    def __str__(self) -> str:
        return f"check {self.name!r} of {self.distribution}"


@cache
def registered_checks() -> Sequence[Registered]:
    """Sorted by name. What is installed is looked for once in a process."""
    found = (
        Registered(name=entry.name, distribution=distribution_of(entry), entry=entry)
        for entry in entry_points(group=GROUP)
    )
    return sorted(found, key=lambda check: (check.name, check.distribution))


def distribution_of(entry: EntryPoint) -> str:
    dist = entry.dist
    return "a distribution without a name" if dist is None else f"{dist.name} {dist.version}"
