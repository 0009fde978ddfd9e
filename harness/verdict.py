"""A verdict: three-valued; findings counted in full, shown by the few worst (verdict.json, format 1)."""

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
    """All findings of one (name, class, permitted_by). count is exact; examples are the worst few."""

    name: str
    klass: str  # BUG or PERMITTED; "class" in the file
    permitted_by: str | None
    count: int
    examples: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """These checks may have missed something, and why; what they found stands."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMade:
    """These checks were not made, for the system shows nothing that they could look at. That is no doubt."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    valid: Valid
    findings: tuple[Finding, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    not_made: tuple[NotMade, ...] = ()
    counts: Mapping[str, Any] = field(default_factory=dict)
    timings_s: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None  # the traceback, where the judge itself failed; no part of verdict.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a gate makes of a verdict: `--strict`, `--allow NAME`, `--allow-unknown`."""

    strict: bool = False  # a permitted finding counts as a bug
    allow: frozenset[str] = frozenset()  # findings of these names never fail the gate
    allow_unknown: bool = False  # "unknown" passes


def worst(exit_codes: Iterable[int]) -> int:
    """The exit code of several folders: the worst in the order invalid, harness failed, unknown, valid."""
    codes = set(exit_codes) or {EXIT_VALID}
    return next(code for code in _WORST_FIRST if code in codes)
