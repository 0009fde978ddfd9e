"""The demo's tables: what was lost on which rules, and where the replicas' logs diverge."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.harness.report.phrases import many, ruled_table
from floodmark.harness.report.run_outcome import ruling
from floodmark.harness.report.scenario_table import Part
from floodmark.harness.run import Run
from floodmark.harness.verdict import BUG, Verdict

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


def demo_table(parts: Sequence[Part], folders: Sequence[Path], verdicts: Sequence[Verdict]) -> str:
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
