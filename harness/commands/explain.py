"""Explains a finding: its meaning, a near miss, the law it breaks, and what permits it: `floodmark explain
NAME`. Facts (S1 to S20) and permissions (acks, retries, ...) are explained by their names too. For a check of
another distribution it prints the distribution, and the check's own docstring.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from inspect import getdoc

import click

from floodmark.checkers.read.observed import needs_of
from floodmark.checkers.text.explain import EXPLANATIONS, known_findings
from floodmark.checkers.text.semantics import FACTS, PERMISSIONS
from floodmark.harness.errors import UsageError, nearest
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
    "isolation": "an isolation level that does not separate transactions",
    "internal topics": "losses of what the transactions' coordinator knew",
}

Part = tuple[str, str]


def explain_finding(name: str | None) -> int:
    """Prints the explanation; without a name the list of names. UsageError for an unknown name."""
    if name is None:
        click.echo("\n".join(listed()))
        return EXIT_VALID
    parts = parts_of(name)
    if parts is None:
        raise UsageError(f"no finding is called {name!r}; {nearest(name, known_findings())}; "
                         f"permissions: {', '.join(PERMISSIONS)}; and facts: S1 to S{len(FACTS)}")
    click.echo(f"{click.style(name, bold=True)}\n")
    for line in facts_text(parts):
        click.echo(line)
    return EXIT_VALID


def listed() -> Iterator[str]:
    """Yields every name that can be explained, with its meaning on one line."""
    every = {**{name: short_meaning(name) for name in sorted(EXPLANATIONS)},
             **{check.name: f"a check of {check.distribution}" for check in registered(CHECK)},
             **{name: f"what permits some findings: {permits}" for name, permits in PERMITS.items()},
             f"S1 to S{len(FACTS)}": "what is often misunderstood about Kafka, and the facts"}
    width = max(map(len, every))
    yield from (f"{name:<{width}}  {meaning}" for name, meaning in every.items())
    yield ""
    yield "More of each: floodmark explain NAME"


def parts_of(name: str) -> list[Part] | None:
    """The parts of an explanation; None for an unknown name."""
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
        yield "needs", f"{needs} If run.json's `observes` has less, the check is not made."
    yield from facts(explanation.facts)


def of_permission(name: str) -> Iterator[Part]:
    permission = PERMISSIONS[name]
    yield "permits", f"{permission.means}."
    yield "not with", "check --strict, which counts every permitted finding as a bug."
    yield from facts(permission.facts)


def of_fact(name: str) -> Iterator[Part]:
    fact = FACTS[name]
    yield "thought", fact.thought
    yield "in fact", fact.holds


def of_check(check: Registered) -> Iterator[Part]:
    """Yields the parts about a check of another distribution, with its docstring."""
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
    """Yields the facts with these numbers, and what is often misunderstood."""
    for number in numbers:
        yield f"fact {number}", f'Not so: "{FACTS[number].thought}" {FACTS[number].holds}'


def facts_text(parts: Iterable[Part]) -> Iterator[str]:
    """Yields the parts' text after their heads, wrapped at WIDTH."""
    for head, text in parts:
        first = f"  {head:<{HEAD}}"
        yield textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first),
                            break_on_hyphens=False)
