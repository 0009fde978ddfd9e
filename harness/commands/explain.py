"""`floodmark explain NAME`: what a finding means, its near miss, and what permits it."""

import click

from checkers.explain import EXPLANATIONS
from harness.errors import UsageError


def explain_finding(name: str) -> int:
    """Prints the explanation; an unknown name is a usage error that lists the known ones."""
    explanation = EXPLANATIONS.get(name)
    if explanation is None:
        raise UsageError(f"no finding is called {name!r}; there are: {', '.join(sorted(EXPLANATIONS))}")
    click.echo(f"{name}\n")
    click.echo(f"  means      {explanation.means}")
    click.echo(f"  near miss  {explanation.near_miss}")
    click.echo(f"  permitted  {explanation.permitted}")
    return 0
