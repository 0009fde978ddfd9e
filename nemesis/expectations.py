"""Reads the rows of a scenario (which rules, what exactly must be found) and compares verdicts with them.

Rules
1. A row is a sharp statement: every bug it names must be found, and no other but those in `also`.
2. A control has no bug at all and is valid. What is permitted stands in `permitted`, in controls too.
3. A lost write need not be said twice: its offset is given again, which shows in acks (AGAIN); and where the
   loss is permitted, so is what the trace tells of that record (ON_THE_WAY).
4. Latent are findings of the trace: they need no client. Manifest are those of the history and the logs.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.verdict import BUG, PERMITTED, Verdict
from floodmark.nemesis.step_tokenizer import refuse

LOST = "lost-write"
AGAIN = frozenset({"inconsistent-offsets", "realtime-order"})
ON_THE_WAY = frozenset({"candidate-incomplete", "leader-incomplete", "unsafe-truncation"})
EVERY = "every"  # as `rules`: a row for each generation
_LISTS = ("bugs", "switches", "latent", "manifest", "permitted", "also")
ROW_KEYS = ("rules", *_LISTS, "config", "control")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a scenario may name; who reads one asks those who know."""

    generations: tuple[str, ...]
    bugs: Collection[str]
    switches: Collection[str]
    workloads: tuple[str, ...]
    findings: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The same steps on these rules."""

    rules: str
    bugs: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    latent: frozenset[str] = frozenset()
    manifest: frozenset[str] = frozenset()
    permitted: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    control: bool = False

    @property
    def label(self) -> str:
        """For people, and unique within a scenario: kip-320 trunc_hw flush.messages=1."""
        return " ".join([self.rules, *self.bugs, *self.switches,
                         *(f"{key}={value}" for key, value in self.config.items())])

    @property
    def harm(self) -> bool:
        return bool(self.latent or self.manifest)

    def expected(self) -> str:
        """In words, for a table."""
        told = [", ".join(sorted(self.latent | self.manifest))] if self.harm else []
        told += [f"permitted: {', '.join(sorted(self.permitted))}"] if self.permitted else []
        return "; ".join(told) or "no harm"


def differences(row: Row, verdict: Verdict) -> list[str]:
    """What is not as the row says; empty: as expected."""
    bugs = _names(verdict, BUG)
    permitted = _names(verdict, PERMITTED)
    required = row.latent | row.manifest
    may = required | row.also | (AGAIN if LOST in required else frozenset()) if row.harm else frozenset()
    let = row.permitted | row.also | (AGAIN | ON_THE_WAY if LOST in row.permitted else frozenset())
    told = [f"no {name}" for name in sorted(required - bugs)]
    told += [f"{name} besides" for name in sorted(bugs - may)]
    told += [f"no permitted {name}" for name in sorted(row.permitted - permitted)]
    told += [f"permitted {name} besides" for name in sorted(permitted - let)]
    if not row.harm and verdict.valid == "unknown":
        told += [f"unknown: {verdict.unknown[0].reason}" if verdict.unknown else "unknown"]
    return told


def _names(verdict: Verdict, klass: str) -> frozenset[str]:
    return frozenset(found.name for found in verdict.findings if found.klass == klass)


# -- reading ------------------------------------------------------------------------------------------------

def rows(told: Mapping[str, Any], words: Words) -> Iterator[Row]:
    """The rows of one [[run]] table. Refused, its text beginning with the key, says what is off."""
    lists = {key: _names_in(key, told.get(key, [])) for key in _LISTS}
    _known("bugs", lists["bugs"], words.bugs)
    _known("switches", lists["switches"], words.switches)
    for key in ("latent", "manifest", "permitted", "also"):
        _known(key, lists[key], words.findings)
    control = told.get("control", False)
    if not isinstance(control, bool):
        refuse(f"control is {control!r}, should be true")
    if control and (lists["latent"] or lists["manifest"]):
        refuse("control is true: then latent and manifest cannot be, there is no bug to be found")
    if not control and not (lists["latent"] or lists["manifest"] or lists["permitted"]):
        refuse("rules alone say nothing: what is found (latent, manifest, permitted), or is it a control?")
    findings = {key: frozenset(lists[key]) for key in ("latent", "manifest", "permitted", "also")}
    for rules in _generations(told.get("rules"), words):
        yield Row(rules=rules, bugs=tuple(lists["bugs"]), switches=tuple(lists["switches"]),
                  config=dict(told.get("config", {})), control=control, **findings)


def _generations(told: object, words: Words) -> tuple[str, ...]:
    if told == EVERY:
        return words.generations
    named = [told] if isinstance(told, str) else _names_in("rules", told)
    if not named:
        refuse(f"rules should say on which it is played: {', '.join(words.generations)}, {EVERY}")
    _known("rules", named, words.generations)
    return tuple(named)


def _names_in(key: str, told: object) -> list[str]:
    if not isinstance(told, list) or not all(isinstance(name, str) for name in told):
        refuse(f"{key} is {told!r}, should be an array of names")
    return list(told)


def _known(key: str, named: Collection[str], valid: Collection[str]) -> None:
    for name in named:
        if name not in valid:
            refuse(f"{key} names {name!r}; valid: {', '.join(valid)}")
