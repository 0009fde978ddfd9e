"""Plays historical faults of Kafka on the rules that had them and on those that fixed them: `floodmark demo`.
The same steps are played on both; a table shows what was lost and where the logs diverge. The parts are
scenarios (nemesis/scenarios), which define what they must show. The README has this table; a test compares
the two.
"""

import shlex
import textwrap
from pathlib import Path

import click

from floodmark.harness import catalog
from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.scenario import judge_plays, parts_that_fit, play
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import new_parent, say
from floodmark.harness.reports.demo_table import WIDTH, notes, table, topics_table
from floodmark.harness.reports.scenario_table import Part, print_if_unexpected
from floodmark.harness.verdict import EXIT_INVALID, EXIT_VALID
from floodmark.nemesis import scenario

AT_ONCE = 2
# On Apache Kafka: the old topic loses data, while the new one in the same cluster does not.
SHOWN_ON_KAFKA = ("double-failover-expired", "power-divergence-two-topics")
# The scenario, its row that loses data and the one that does not.
SHOWN = (
    ("double-failover", "high-watermark", "kip-320"),
    ("power-divergence", "high-watermark", "kip-320"),
    ("restart-cuts-follower", "high-watermark no_epoch_bump_on_bounce", "kip-320 no_epoch_bump_on_bounce"),
)


def demo_acts(kafka: str | None = None) -> tuple[Part, ...]:
    """The six runs: each fault, then its fix. On Apache Kafka two, each with its control in the same run."""
    every = {one.name: one for one in scenario.shipped(scenario_words())}
    if kafka is not None:
        rows = {name: next(row for row in every[name].rows if row.topics) for name in SHOWN_ON_KAFKA}
        return tuple(Part(scenario=every[name], row=row, kafka=kafka) for name, row in rows.items())
    return tuple(Part(scenario=every[name], row=row) for name, *labels in SHOWN for label in labels
                 for row in every[name].rows if row.label == label)


def run_demo(cluster: str, out: Path | None, kafka: str | None = None) -> int:
    """Plays, judges and prints the demo; exit 0 only if all runs ended as expected."""
    parent = new_parent(out, "demo")
    catalog.can_judge()
    parts = demo_acts(kafka) if kafka is None else parts_that_fit(demo_acts(kafka), cluster, parent)
    for part in parts[::2] if kafka is None else parts:
        story = f"{part.scenario.name}: {part.scenario.title}. {part.scenario.story}"
        say(f"\n{textwrap.fill(story, WIDTH, break_on_hyphens=False)}")
    plays = play(parts, cluster, parent, at_once=AT_ONCE if kafka is None else 1, say=say)
    for played in plays:  # a run that failed or missed a moment has nothing to show
        if played.why is not None:
            raise FloodmarkError(f"{played.play.title}: {played.why} ({played.tries} tries); "
                                 f"see {played.folder}")
    outcomes = judge_plays(parts, plays, what=f"the {len(plays)} runs")
    folders = [played.folder for played in plays]
    verdicts = [outcome.verdict for outcome in outcomes if outcome.verdict is not None]
    click.echo(table(parts, folders, verdicts) if kafka is None else topics_table(parts, verdicts))
    click.echo(notes(parts))
    for outcome in outcomes:
        print_if_unexpected(outcome)
    click.echo(f"\nnext  {shlex.join(['floodmark', 'show', str(folders[0]), '--finding', 'lost-write'])}")
    divergence = folders[2] if kafka is None else folders[1]
    click.echo(f"      {shlex.join(['floodmark', 'show', str(divergence), '--finding', 'diverged'])}")
    click.echo("      floodmark explain diverged")
    click.echo(str(parent))
    return EXIT_INVALID if any(outcome.differences_found for outcome in outcomes) else EXIT_VALID
