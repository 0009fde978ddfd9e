"""`floodmark demo`: Kafka's two historical disasters on the rules that had them and on those that cure them.

The same schedule runs on both; one table says what was lost and where the logs part.
"""

import datetime
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from checkers import report
from harness import catalog
from harness.commands import telling
from harness.commands.run import RunOptions, planned, record
from harness.errors import FloodmarkError
from harness.run import RUNS, refuse_full
from harness.verdict import BUG, EXIT_HARNESS, EXIT_VALID, Verdict
from nemesis.disasters import DISASTERS, Disaster

TRIES = 3  # a window of half a second may be missed on a busy machine; then a fresh run is taken
BEFORE, SINCE = "high-watermark", "kip-320"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One of the four runs. `finding` is the bug it must show, None where it must be valid."""

    disaster: Disaster
    rules: str
    finding: str | None

    @property
    def title(self) -> str:
        return self.disaster.title

    @property
    def folder_name(self) -> str:
        return f"{self.disaster.name}-{self.rules}"


ACTS = tuple(
    Act(disaster=disaster, rules=rules, finding=disaster.name if rules == BEFORE else None)
    for disaster in DISASTERS
    for rules in (BEFORE, SINCE)
)


def run_demo(cluster: str, out: Path | None) -> int:
    """Exit 0 only if all four runs came out as history has it."""
    parent = out or RUNS / f"demo-{datetime.datetime.now():%Y%m%dT%H%M%S}"
    refuse_full(parent)
    catalog.can_judge()
    folders = [perform(act, cluster, parent) for act in ACTS]
    click.echo("judging the four runs (starting Spark takes a while)", err=True)
    verdicts = catalog.judge().judge(folders)
    for folder, verdict in zip(folders, verdicts, strict=True):
        report.write(folder, verdict)
    right = [as_expected(act, verdict) for act, verdict in zip(ACTS, verdicts, strict=True)]
    click.echo(table(folders, verdicts))
    for act, folder, verdict, well in zip(ACTS, folders, verdicts, right, strict=True):
        if not well:
            click.echo(f"\nNOT as expected: {act.title} on {act.rules}")
            click.echo(telling.report(folder, report.as_json(verdict), None))
    click.echo(f"\nnext  {shlex.join(['floodmark', 'show', str(folders[0]), '--finding', 'lost-write'])}")
    click.echo(f"      {shlex.join(['floodmark', 'show', str(folders[2]), '--finding', 'diverged'])}")
    click.echo("      floodmark explain diverged")
    click.echo(str(parent))
    return EXIT_VALID if all(right) else EXIT_HARNESS


def perform(act: Act, cluster: str, parent: Path) -> Path:
    """One run, taken anew where a moment of its schedule was missed."""
    click.echo(f"\n{act.title}, rules {act.rules}: {act.disaster.story}", err=True)
    for attempt in range(1, TRIES + 1):
        folder = parent / (act.folder_name if attempt == 1 else f"{act.folder_name}-again-{attempt}")
        result = record(planned(options_of(act, cluster, folder), act.disaster.schedule))
        missed = result.about["missed"]
        if result.ended == "done" and not missed:
            return folder
        click.echo(f"  not this time ({result.ended}; missed: {missed or 'nothing'}); once more", err=True)
    raise FloodmarkError(
        f"{act.title} on {act.rules}: {TRIES} tries did not reach every moment; see {folder}"
    )


def options_of(act: Act, cluster: str, folder: Path) -> RunOptions:
    """A cluster that is idle but for what the schedule sends."""
    disaster = act.disaster
    return RunOptions(
        cluster=cluster,
        nodes=disaster.nodes,
        rules=act.rules,
        config=tuple(f"{key}={value}" for key, value in disaster.config.items()),
        concurrency=0,
        partitions=1,
        replication_factor=disaster.nodes,
        seed=1,
        duration=0.1,
        out=folder,
    )


def as_expected(act: Act, verdict: Verdict) -> bool:
    bugs = {found.name for found in verdict.findings if found.klass == BUG}
    return act.finding in bugs if act.finding else verdict.valid is True


def table(folders: Sequence[Path], verdicts: Sequence[Verdict]) -> str:
    """What came of each run, side by side."""
    rows: list[tuple[str, ...]] = [("run", "rules", "verdict", "lost", "logs part", "folder")]
    rows += [
        (act.title, act.rules, word(verdict), lost(verdict), parted(verdict), str(folder))
        for act, folder, verdict in zip(ACTS, folders, verdicts, strict=True)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def word(verdict: Verdict) -> str:
    return "unknown" if verdict.valid == "unknown" else "valid" if verdict.valid else "INVALID"


def lost(verdict: Verdict) -> str:
    """The acked writes that are gone, and whether a setting permits it."""
    told = []
    for found in verdict.findings:
        if found.name == "lost-write":
            first: Any = found.examples[0]
            where = f"{found.count} acked, first {first['value']} at offset {first.get('offset', '?')}"
            told.append(where if found.klass == BUG else f"{where} (permitted: {found.permitted_by})")
    return "; ".join(told) or "-"


def parted(verdict: Verdict) -> str:
    """Where the replicas' logs first differ."""
    for found in verdict.findings:
        if found.name == "diverged":
            return f"from offset {found.examples[0]['offset']} ({found.count} offsets)"
    return "-"
