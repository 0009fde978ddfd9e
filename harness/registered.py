"""Finds the workloads, nemeses, clusters and checks that other distributions register by entry points.

Rules
1. Looking imports nothing: names and distributions are read from what is installed. `load` imports one.
2. One that cannot be had is refused when it is asked for, in a sentence that says what to do, and never
   sooner: who does not ask for it does not notice it.

harness/README.md, "Workloads, nemeses, checks and clusters of your own", says what each has to be.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from floodmark.harness.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

WORKLOAD, NEMESIS, CLUSTER, CHECK = "workload", "nemesis", "cluster", "check"
GROUPS = {
    WORKLOAD: "floodmark.workloads", NEMESIS: "floodmark.nemeses", CLUSTER: "floodmark.clusters",
    CHECK: "floodmark.checks",
}  # fmt: skip
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it is typed, and stands in reports
NEMESIS_NAME = re.compile(r"[a-z][a-z0-9_]*")  # its faults are called so in the history, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What another distribution brings."""

    kind: str  # one of GROUPS
    name: str
    distribution: str  # name and version
    entry: "EntryPoint"

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.distribution}"

    @property
    def brief(self) -> str:
        """`bank (of somebodys 0.3)`."""
        return f"{self.name} (of {self.distribution})"

    def load(self) -> Any:
        """Imports it; UsageError where that fails, or where nobody could type its name."""
        pattern = NEMESIS_NAME if self.kind == NEMESIS else NAME
        if not pattern.fullmatch(self.name):
            raise UsageError(f"the {self} has no name that can be typed ({pattern.pattern}): "
                             f"rename it in the entry points of {self.distribution}")
        try:
            return self.entry.load()
        except Exception as error:
            why = (str(error).strip().splitlines() or [""])[0]
            raise UsageError(
                f"the {self} cannot be imported ({self.entry.value}): {type(error).__name__}: {why}: "
                f"mend or uninstall that package") from error


@cache
def registered(kind: str) -> Sequence[Registered]:
    """Sorted by name. What is installed is looked for once in a process."""
    from importlib.metadata import entry_points  # 0.1 s, which `floodmark --version` need not wait for

    found = (
        Registered(kind=kind, name=entry.name, distribution=distribution_of(entry), entry=entry)
        for entry in entry_points(group=GROUPS[kind])
    )
    return sorted(found, key=lambda one: (one.name, one.distribution))


def registered_as(kind: str, name: str) -> Registered | None:
    """The one of this name; None: there is none. UsageError where there are two."""
    found = [one for one in registered(kind) if one.name == name]
    if len(found) > 1:
        raise UsageError(f"there are {len(found)} {GROUPS[kind].partition('.')[2]} called {name!r}, of "
                         f"{' and of '.join(one.distribution for one in found)}: uninstall all but one")
    return found[0] if found else None


def refuse_own_name(kind: str, name: str) -> None:
    """UsageError where another distribution brings one that is called as this one of floodmark's own: who
    asks for it by name could mean either."""
    for one in registered(kind):
        if one.name == name:
            raise UsageError(f"floodmark has a {kind} {name!r} of its own, and there is the {one}: "
                             f"uninstall that package, or rename it in its entry points")


def owner_of_fault(f: str) -> Registered | None:
    """The nemesis that may bring a fault of this name: its own name, or that and `_...`."""
    found = [one.name for one in registered(NEMESIS) if f == one.name or f.startswith(f"{one.name}_")]
    return registered_as(NEMESIS, max(found, key=len)) if found else None


def distribution_of(entry: "EntryPoint") -> str:
    dist = entry.dist
    return "a distribution without a name" if dist is None else f"{dist.name} {dist.version}"
