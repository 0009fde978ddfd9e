"""Plays historical faults of Kafka on the rules that had them and on those that fixed them: `floodmark demo`.
The same steps are played on both; a table shows what was lost and where the logs diverge. The parts are
scenarios (nemesis/scenarios), which define what they must show. The README has this table; a test compares
the two.
"""

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.harness import catalog
from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.scenario import judge_plays, parts_that_fit, play
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import new_parent, say
from floodmark.harness.reports.phrases import many, ruled_table
from floodmark.harness.reports.run_outcome import ruling
from floodmark.harness.reports.scenario_table import Part, print_if_unexpected
from floodmark.harness.run import Run
from floodmark.harness.verdict import BUG, EXIT_INVALID, EXIT_VALID, Verdict
from floodmark.nemesis import scenario

AT_ONCE = 2
WIDTH = 120
HEADINGS = ("scenario", "rules", "verdict", "acked writes lost", "logs diverge")
MARK = "*"  # after rules with an injected bug
WHY_A_BUG: Mapping[str, str] = {
    "no_epoch_bump_on_bounce":
        "both runs have the known bug no_epoch_bump_on_bounce in their rules: the controller does not "
        "notice a broker that dies and is back at once, as in KAFKA-1120. With two replicas this loss "
        "needs both faults: if the controller notices the bounce, n2 has left the ISR and is not "
        "elected, and nothing acked is lost.",
}
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


def table(parts: Sequence[Part], folders: Sequence[Path], verdicts: Sequence[Verdict]) -> str:
    """The table of all runs."""
    return ruled_table([HEADINGS, *(
        (part.scenario.name, part.row.rules + MARK * bool(part.row.bugs),
         click.unstyle(ruling(report.as_json(verdict), Run(folder=folder).about()).heading),
         losses_text(verdict), divergence_text(verdict))
        for part, folder, verdict in zip(parts, folders, verdicts, strict=True))])


def topics_table(parts: Sequence[Part], verdicts: Sequence[Verdict]) -> str:
    """The table of all topics of all runs."""
    return ruled_table([("scenario", "topic's message format", *HEADINGS[3:]), *(
        (part.scenario.name, topic["message.format.version"],
         losses_text(of_partition(verdict, key)), divergence_text(of_partition(verdict, key)))
        for part, verdict in zip(parts, verdicts, strict=True)
        for key, topic in enumerate(part.row.topics))])


def of_partition(verdict: Verdict, key: int) -> Verdict:
    """The verdict of one partition: its examples, which are all of its findings in these short scenarios."""
    shown = []
    for found in verdict.findings:
        examples = tuple(one for one in found.examples if one.get("partition") == key)
        if examples:
            shown.append(replace(found, examples=examples, count=len(examples)))
    return replace(verdict, findings=tuple(shown))


def notes(parts: Sequence[Part]) -> str:
    """The explanation of the marks."""
    bugs = dict.fromkeys(bug for part in parts for bug in part.row.bugs)
    return "\n".join(textwrap.fill(f"{MARK} {WHY_A_BUG[bug]}", WIDTH, subsequent_indent="  ") for bug in bugs)


def losses_text(verdict: Verdict) -> str:
    """The lost acked writes, and whether a setting permits that."""
    losses = []
    for found in verdict.findings:
        if found.name == "lost-write":
            first: Any = found.examples[0]
            where = f"{found.count}, from offset {first.get('offset', '?')}"
            losses.append(where if found.klass == BUG else f"{where} (permitted: {found.permitted_by})")
    return "; ".join(losses) or "-"


def divergence_text(verdict: Verdict) -> str:
    """The first offset at which the replicas' logs differ, and how many do."""
    for found in verdict.findings:
        if found.name == "diverged":
            return f"{many(found.count, 'offset')}, from {found.examples[0]['offset']}"
    return "-"
