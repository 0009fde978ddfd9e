"""Explains a finding: its meaning, a near miss, the law it breaks, and what permits it: `floodmark explain
NAME`. Facts (S1 to S20) and permissions (acks, retries, ...) are explained by their names too. For a check of
another distribution it prints the distribution, and the check's own docstring.
"""

import click

from floodmark.checkers.text.explain import known_findings
from floodmark.checkers.text.semantics import FACTS, PERMISSIONS
from floodmark.harness.errors import UsageError, nearest
from floodmark.harness.report.explanations import listed, parts_of
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
