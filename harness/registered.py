"""Finds the workloads and clusters that floodmark registers as entry points, and the workloads, nemeses,
clusters and checks that other distributions register.

Rules
1. Finding them imports nothing: names and distributions are read from the installed metadata. `load` imports
   one.
2. One that cannot be loaded is refused only when a user requests it by name, with a message that says what to
   do. It does not affect anybody else.

harness/README.md, "Workloads, nemeses, checks and clusters of your own", describes what each must be.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from floodmark.harness.errors import FloodmarkError, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

WORKLOAD, NEMESIS, CLUSTER, CHECK = "workload", "nemesis", "cluster", "check"
GROUPS = {
    WORKLOAD: "floodmark.workloads", NEMESIS: "floodmark.nemeses", CLUSTER: "floodmark.clusters",
    CHECK: "floodmark.checks",
}  # fmt: skip
OWN = "floodmark"  # our own distribution
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # users type it, and reports contain it
NEMESIS_NAME = re.compile(r"[a-z][a-z0-9_]*")  # also the name of its faults in the history


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A workload, nemesis, cluster or check that a distribution registers."""

    kind: str  # one of GROUPS
    name: str
    entry: "EntryPoint"

    @property
    def distribution(self) -> str:
        dist = self.entry.dist
        return "a distribution without a name" if dist is None else f"{dist.name} {dist.version}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.distribution}"

    @property
    def name_and_distribution(self) -> str:
        """Its name and distribution, such as `bank (of somebodys 0.3)`."""
        return f"{self.name} (of {self.distribution})"

    def load(self) -> Any:
        """Import it; UsageError where that fails, or where its name has characters that users cannot type."""
        pattern = NEMESIS_NAME if self.kind == NEMESIS else NAME
        if not pattern.fullmatch(self.name):
            raise UsageError(f"the name of the {self} is not valid ({pattern.pattern}): "
                             f"rename it in the entry points of {self.distribution}")
        try:
            return self.entry.load()
        except Exception as error:
            why = (str(error).strip().splitlines() or [""])[0]
            raise UsageError(
                f"the {self} cannot be imported ({self.entry.value}): {type(error).__name__}: {why}: "
                f"repair or uninstall that package") from error


@cache
def own(kind: str) -> Mapping[str, "EntryPoint"]:
    """floodmark's own workloads or clusters by name, in order; only its own metadata is read."""
    from importlib.metadata import distributions

    # A build leaves an egg-info in a checkout, which may be older and comes first on the path.
    found = {entry.name: entry for one in distributions(name=OWN)
             for entry in one.entry_points.select(group=GROUPS[kind])}
    if not found:
        raise FloodmarkError(f"floodmark's installed metadata names no {kind} and is older than its code: "
                             "install it again (in a checkout: make setup)")
    return dict(sorted(found.items()))


@cache
def registered(kind: str) -> Sequence[Registered]:
    """All of a kind that other distributions register, sorted by name; they are searched once a process."""
    from importlib.metadata import entry_points  # takes 0.1 s; `floodmark --version` does not need it

    found = (
        Registered(kind=kind, name=entry.name, entry=entry)
        for entry in entry_points(group=GROUPS[kind])
        if entry.dist is None or entry.dist.name != OWN
    )
    return sorted(found, key=lambda one: (one.name, one.distribution))


def registered_as(kind: str, name: str, *, is_own: bool = False) -> Registered | None:
    """The registered one of this name; None: there is none. UsageError where there are two, or it is ours."""
    found = [one for one in registered(kind) if one.name == name]
    if found and is_own:
        raise UsageError(f"floodmark has its own {kind} {name!r}, and there is the {found[0]}: "
                         f"uninstall that package, or rename it in its entry points")
    if len(found) > 1:
        raise UsageError(f"there are {len(found)} {GROUPS[kind].partition('.')[2]} called {name!r}, of "
                         f"{' and of '.join(one.distribution for one in found)}: uninstall all but one")
    return found[0] if found else None


def owner_of_fault(f: str) -> Registered | None:
    """The nemesis that may define a fault of this name: its own name, or that and `_...`."""
    found = [one.name for one in registered(NEMESIS) if f == one.name or f.startswith(f"{one.name}_")]
    return registered_as(NEMESIS, max(found, key=len)) if found else None
