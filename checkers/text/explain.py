"""The data of `floodmark explain NAME`: what each finding means, its near miss, its law, and what permits it;
what a permission excuses; and what Kafka promises and what not, which is behind them. From words.ini."""

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.checkers.text.words import WORDS
from floodmark.harness.registered import CHECK, registered


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    short: str  # its meaning on one line
    means: str
    near_miss: str
    permitted: str
    law: str  # what every correct cluster keeps, and the finding shows broken
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


EXPLANATIONS: Mapping[str, Explanation] = {
    name: Explanation(
        short=words["short"], means=words["means"], near_miss=words["near_miss"], law=words["law"],
        permitted=words.get("permitted", "nothing"), facts=tuple(words.get("facts", "").split()))
    for name, words in WORDS.items() if "law" in words}
PERMISSIONS: Mapping[str, Permission] = {
    name.removeprefix("permits "): Permission(
        short=words["short"], allows=words["allows"], means=words["means"],
        facts=tuple(words["facts"].split()))
    for name, words in WORDS.items() if "allows" in words}
FACTS: Mapping[str, Fact] = {name: Fact(thought=words["thought"], holds=words["holds"])
                             for name, words in WORDS.items() if "thought" in words}


def known_findings() -> list[str]:
    """The names of this judge's findings and of the registered checks."""
    return sorted({*EXPLANATIONS, *(check.name for check in registered(CHECK))})


def allowed_by(cause: object) -> str:
    """The clause that says why a permitted finding is no bug."""
    return PERMISSIONS[str(cause)].allows if cause in PERMISSIONS else "the configuration allows it"
