"""Explains a finding: its meaning, a near miss, the law it breaks, and what permits it: `floodmark explain
NAME`. Facts (S1 to S20) and permissions (acks, retries, ...) are explained by their names too. For a check of
another distribution it prints the distribution, and the check's own docstring.
"""

from collections.abc import Iterable, Iterator
from inspect import getdoc

import click

from floodmark.checkers.read.observed import needs_of
from floodmark.checkers.text.explain import EXPLANATIONS, FACTS, PERMISSIONS, known_findings
from floodmark.harness.errors import UsageError, nearest
from floodmark.harness.registered import CHECK, Registered, registered
from floodmark.harness.report.model import Part
from floodmark.harness.report.phrases import with_heads
from floodmark.harness.verdict import EXIT_VALID


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
    for line in with_heads(parts, indent=2, head=11, width=100):
        click.echo(line)
    return EXIT_VALID


def listed() -> Iterator[str]:
    """Yields every name that can be explained, with its meaning on one line."""
    every = {**{name: EXPLANATIONS[name].short for name in sorted(EXPLANATIONS)},
             **{check.name: f"a check of {check.distribution}" for check in registered(CHECK)},
             **{name: f"what permits some findings: {one.short}" for name, one in PERMISSIONS.items()},
             f"S1 to S{len(FACTS)}": "what is often misunderstood about Kafka, and the facts"}
    width = max(map(len, every))
    yield from (f"{name:<{width}}  {meaning}" for name, meaning in every.items())
    yield ""
    yield "More of each: floodmark explain NAME"


def parts_of(name: str) -> list[Part] | None:
    if name in EXPLANATIONS:
        one = EXPLANATIONS[name]
        parts = [("means", one.means), ("near miss", one.near_miss), ("the law", f"{one.law}."),
                 ("permitted", one.permitted)]
        if needs := needs_of(name):
            parts += [("needs", f"{needs} If run.json's `observes` has less, the check is not made.")]
        return [*parts, *facts(one.facts)]
    if name in PERMISSIONS:
        return [("permits", f"{PERMISSIONS[name].means}."),
                ("not with", "check --strict, which counts every permitted finding as a bug."),
                *facts(PERMISSIONS[name].facts)]
    if name in FACTS:
        return [("thought", FACTS[name].thought), ("in fact", FACTS[name].holds)]
    return [part for check in registered(CHECK) if check.name == name for part in of_check(check)] or None


def of_check(check: Registered) -> Iterator[Part]:
    yield "brought by", f"{check.distribution}, as {check.entry.value}"
    try:
        law: object = check.entry.load()
    except Exception as error:
        yield "fails", f"it cannot be loaded: {type(error).__name__}: {error}"
        return
    head, text = ("a SELECT", law) if isinstance(law, str) else ("means", getdoc(law) or "")
    yield head, " ".join(text.split()) or "its function has no docstring"


def facts(numbers: Iterable[str]) -> Iterator[Part]:
    for number in numbers:
        yield f"fact {number}", f'Not so: "{FACTS[number].thought}" {FACTS[number].holds}'
