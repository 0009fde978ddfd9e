"""`floodmark explain NAME`: what a finding means, its near miss, the law it breaks, and what permits it.

A fact (S1 to S20) and what permits findings (acks, retries, ...) are explained by their names too. Of a check
that another distribution brings it says which, and what that one says of it.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from inspect import getdoc

import click

from floodmark.checkers.read.observed import needs_of
from floodmark.checkers.text.explain import EXPLANATIONS, known_findings
from floodmark.checkers.text.semantics import FACTS, PERMISSIONS
from floodmark.harness.errors import UsageError
from floodmark.harness.registered import CHECK, Registered, registered
from floodmark.harness.reports.short_meanings import short_meaning
from floodmark.harness.verdict import EXIT_VALID

WIDTH = 100
HEAD = 11
PERMITS: Mapping[str, str] = {
    "acks": "fewer acks than all of the ISR",
    "unclean.leader.election.enable": "a leader from outside the ISR",
    "fault budget": "power cuts and bad disks on too many copies",
    "retries": "retries without idempotence",
    "subscribe": "a consumer group that moves partitions",
    "isolation": "an isolation level that keeps transactions no further apart",
}

Part = tuple[str, str]


def explain_finding(name: str | None) -> int:
    """Prints the explanation. An unknown name is a usage error that lists the known, no name lists them."""
    if name is None:
        click.echo("\n".join(listed()))
        return EXIT_VALID
    parts = parts_of(name)
    if parts is None:
        raise UsageError(f"no finding is called {name!r}; there are: {', '.join(known_findings())}; "
                         f"what permits some: {', '.join(PERMISSIONS)}; and facts: S1 to S{len(FACTS)}")
    click.echo(f"{click.style(name, bold=True)}\n")
    for line in facts_text(parts):
        click.echo(line)
    return EXIT_VALID


def listed() -> Iterator[str]:
    """Every name that can be asked for, with its meaning on one line."""
    every = {**{name: short_meaning(name) for name in sorted(EXPLANATIONS)},
             **{check.name: f"a check of {check.distribution}" for check in registered(CHECK)},
             **{name: f"what permits some findings: {permits}" for name, permits in PERMITS.items()},
             f"S1 to S{len(FACTS)}": "what is often got wrong about Kafka, and how it is"}
    width = max(map(len, every))
    yield from (f"{name:<{width}}  {meaning}" for name, meaning in every.items())
    yield ""
    yield "More of each: floodmark explain NAME"


def parts_of(name: str) -> list[Part] | None:
    """What there is to say of a name; None of one that nobody knows."""
    if name in EXPLANATIONS:
        return list(of_finding(name))
    if name in PERMISSIONS:
        return list(of_permission(name))
    if name in FACTS:
        return list(of_fact(name))
    return [part for check in registered(CHECK) if check.name == name for part in of_check(check)] or None


def of_finding(name: str) -> Iterator[Part]:
    explanation = EXPLANATIONS[name]
    yield "means", explanation.means
    yield "near miss", explanation.near_miss
    yield "the law", f"{explanation.law}."
    yield "permitted", explanation.permitted
    if needs := needs_of(name):
        yield "needs", f"{needs} Where run.json's `observes` promises less, the check is not made."
    yield from facts(explanation.facts)


def of_permission(name: str) -> Iterator[Part]:
    permission = PERMISSIONS[name]
    yield "permits", f"{permission.means}."
    yield "not with", "check --strict, which takes every permitted finding for a bug."
    yield from facts(permission.facts)


def of_fact(name: str) -> Iterator[Part]:
    fact = FACTS[name]
    yield "thought", fact.thought
    yield "in fact", fact.holds


def of_check(check: Registered) -> Iterator[Part]:
    """A check of another distribution: loaded, for its own words."""
    yield "brought by", f"{check.distribution}, as {check.entry.value}"
    try:
        law: object = check.entry.load()
    except Exception as error:
        yield "fails", f"it cannot be loaded: {type(error).__name__}: {error}"
        return
    if isinstance(law, str):
        yield "a SELECT", " ".join(law.split())
    else:
        yield "means", " ".join((getdoc(law) or "its function has no docstring").split())


def facts(numbers: Iterable[str]) -> Iterator[Part]:
    """What is often got wrong about it."""
    for number in numbers:
        yield f"fact {number}", f'Not so: "{FACTS[number].thought}" {FACTS[number].holds}'


def facts_text(parts: Iterable[Part]) -> Iterator[str]:
    """Words behind their heads, in lines of WIDTH."""
    for head, words in parts:
        first = f"  {head:<{HEAD}}"
        yield textwrap.fill(words, WIDTH, initial_indent=first, subsequent_indent=" " * len(first),
                            break_on_hyphens=False)
