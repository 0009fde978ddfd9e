"""`floodmark explain NAME`: what a finding means, its near miss, and what permits it."""

import textwrap

import click

from checkers.explain import EXPLANATIONS
from harness.errors import UsageError
from harness.verdict import EXIT_VALID

WIDTH = 100
INDENT = " " * 13


def explain_finding(name: str | None) -> int:
    """Prints the explanation. An unknown name is a usage error that lists the known, no name lists them."""
    if name is None:
        click.echo("\n".join(sorted(EXPLANATIONS)))
        return EXIT_VALID
    explanation = EXPLANATIONS.get(name)
    if explanation is None:
        raise UsageError(f"no finding is called {name!r}; there are: {', '.join(sorted(EXPLANATIONS))}")
    click.echo(f"{click.style(name, bold=True)}\n")
    for head, words in (
        ("means", explanation.means),
        ("near miss", explanation.near_miss),
        ("permitted", explanation.permitted),
    ):
        click.echo(textwrap.fill(words, WIDTH, initial_indent=f"  {head:<11}", subsequent_indent=INDENT,
                                 break_on_hyphens=False))
    return EXIT_VALID
