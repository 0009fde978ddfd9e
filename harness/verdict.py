"""Defines a verdict (verdict.json, format 1): valid, invalid or unknown, and the findings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Valid = Literal[True, False, "unknown"]

BUG = "bug"
PERMITTED = "permitted"

EXIT_VALID = 0
EXIT_INVALID = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
EXIT_HARNESS = 4
_WORST_FIRST = (EXIT_INVALID, EXIT_HARNESS, EXIT_UNKNOWN, EXIT_VALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """All findings of one name, class and permitting setting. count is exact; examples are the few worst."""

    name: str
    klass: str  # BUG or PERMITTED; "class" in the file
    permitted_by: str | None
    count: int
    examples: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Checks that may have missed something, and why; what they found is still valid."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMade:
    """Checks that were not made, because the system does not show their data: nothing is unknown by it."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judge's result for one run."""

    valid: Valid
    findings: tuple[Finding, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    not_made: tuple[NotMade, ...] = ()
    counts: Mapping[str, Any] = field(default_factory=dict)
    timings_s: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None  # the traceback, where the judge itself failed; not in verdict.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options of a gate: `--strict`, `--allow NAME`, `--allow-unknown`."""

    strict: bool = False  # a permitted finding counts as a bug
    allow: frozenset[str] = frozenset()  # findings of these names never fail the gate
    allow_unknown: bool = False  # "unknown" passes


def worst(exit_codes: Iterable[int]) -> int:
    """The exit code for several folders: the worst, in the order invalid, harness failed, unknown, valid."""
    codes = set(exit_codes) or {EXIT_VALID}
    return next(code for code in _WORST_FIRST if code in codes)
