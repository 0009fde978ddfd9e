"""The data of `floodmark explain NAME`: what each finding means, its near miss, its law, and what permits it;
what a permission excuses; and what Kafka promises and what not, which is behind them. From words.ini."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from msgspec import convert

from floodmark.checkers.text.words import WORDS
from floodmark.harness.registered import CHECK, registered

Of = TypeVar("Of")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    short: str  # its meaning on one line
    means: str
    near_miss: str
    law: str  # what every correct cluster keeps, and the finding shows broken
    permitted: str = "nothing"
    facts: tuple[str, ...]  # further reading: keys of FACTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A common misunderstanding about replicated logs, and the facts."""

    thought: str
    holds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a cause means, in a few words (short), in a clause (allows) and at length, and the facts it rests
    on. It excuses nothing that it does not cover."""

    short: str
    allows: str
    means: str
    facts: tuple[str, ...]


def _sections(kind: type[Of], key: str) -> Mapping[str, Of]:
    """The sections of words.ini that have this key."""
    return {name.removeprefix("permits "): convert({**words, "facts": words.get("facts", "").split()}, kind)
            for name, words in WORDS.items() if key in words}  # fmt: skip


EXPLANATIONS = _sections(Explanation, "law")
PERMISSIONS = _sections(Permission, "allows")
FACTS = _sections(Fact, "thought")


def known_findings() -> list[str]:
    """The names of this judge's findings and of the registered checks."""
    return sorted({*EXPLANATIONS, *(check.name for check in registered(CHECK))})


def allowed_by(cause: object) -> str:
    """The clause that says why a permitted finding is no bug."""
    return PERMISSIONS[str(cause)].allows if cause in PERMISSIONS else "the configuration allows it"
