"""`floodmark explain NAME`: what a finding means, its near miss, the law it breaks, and what permits it.

A fact (S1 to S20) and what permits findings (acks, retries, ...) are explained by their names too.
"""

import textwrap
from collections.abc import Iterable, Iterator

import click

from checkers.explain import EXPLANATIONS
from checkers.semantics import FACTS, FACTS_OF, LAWS, PERMISSIONS
from harness.errors import UsageError
from harness.verdict import EXIT_VALID

WIDTH = 100
HEAD = 11

Part = tuple[str, str]


def explain_finding(name: str | None) -> int:
    """Prints the explanation. An unknown name is a usage error that lists the known, no name lists them."""
    if name is None:
        click.echo("\n".join(sorted(EXPLANATIONS)))
        return EXIT_VALID
    parts = known(name)
    if parts is None:
        raise UsageError(f"no finding is called {name!r}; there are: {', '.join(sorted(EXPLANATIONS))}; "
                         f"what permits some: {', '.join(PERMISSIONS)}; and facts: S1 to S{len(FACTS)}")
    click.echo(f"{click.style(name, bold=True)}\n")
    for line in told(parts):
        click.echo(line)
    return EXIT_VALID


def known(name: str) -> list[Part] | None:
    """What there is to say of a name; None of one that nobody knows."""
    if name in EXPLANATIONS:
        return list(of_finding(name))
    if name in PERMISSIONS:
        return list(of_permission(name))
    return list(of_fact(name)) if name in FACTS else None


def of_finding(name: str) -> Iterator[Part]:
    explanation = EXPLANATIONS[name]
    yield "means", explanation.means
    yield "near miss", explanation.near_miss
    yield "the law", f"{LAWS[name]}."
    yield "permitted", explanation.permitted
    yield from facts(FACTS_OF[name])


def of_permission(name: str) -> Iterator[Part]:
    permission = PERMISSIONS[name]
    yield "permits", f"{permission.means}."
    yield "not with", "check --strict, which takes every permitted finding for a bug."
    yield from facts(permission.facts)


def of_fact(name: str) -> Iterator[Part]:
    fact = FACTS[name]
    yield "thought", fact.thought
    yield "in fact", fact.holds


def facts(numbers: Iterable[str]) -> Iterator[Part]:
    """What is often got wrong about it."""
    for number in numbers:
        yield f"fact {number}", f'Not so: "{FACTS[number].thought}" {FACTS[number].holds}'


def told(parts: Iterable[Part]) -> Iterator[str]:
    """Words behind their heads, in lines of WIDTH."""
    for head, words in parts:
        first = f"  {head:<{HEAD}}"
        yield textwrap.fill(words, WIDTH, initial_indent=first, subsequent_indent=" " * len(first),
                            break_on_hyphens=False)
