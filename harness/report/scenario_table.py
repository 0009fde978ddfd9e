"""Scenarios, and the plays of their rows: a table of what was expected and what was found, and full reports
of those that came out otherwise."""

import shlex
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.harness.report import verdict_text
from floodmark.harness.report.phrases import many, ruled_table
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import Run
from floodmark.harness.verdict import Verdict
from floodmark.nemesis.expectations import Row
from floodmark.nemesis.scenario import Scenario, systems_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of one scenario, to be played."""

    scenario: Scenario
    row: Row
    kafka: str | None = None  # Apache Kafka, a version or a folder; None: the reference broker
    turn: int = 1  # of the --times plays of this row

    @property
    def title(self) -> str:
        on = "" if self.kafka is None else f"Kafka {self.kafka}, "
        return f"{self.scenario.name} on {on}{self.row.label}{self._of_turn(', time ')}"

    @property
    def folder_name(self) -> str:
        """The run folder's name, without a comma: Kafka's log.dirs is a list."""
        label = self.row.label.replace(" ", "+").replace(",", "+")
        return f"{self.scenario.name}-{label}{self._of_turn('-time-')}"

    def _of_turn(self, before: str) -> str:
        return f"{before}{self.turn}" if self.turn > 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A part after playing, judging and comparing with its row."""

    part: Part
    folder: Path
    why: str | None  # the run itself failed, or missed a moment
    tries: int
    seconds: float  # of the last run
    verdict: Verdict | None  # None: there is no run to judge
    differences_found: tuple[str, ...]  # empty: it is as expected


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each row: what was found (if its plays differ, how often each), its median seconds, and how
    many of its plays ended as expected."""
    rows = [("scenario", "zoo", "rules", "expected", "found", "seconds", "")]
    played: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        played.setdefault((outcome.part.scenario.name, outcome.part.row.label), []).append(outcome)
    for plays in played.values():
        part, right = plays[0].part, sum(not one.differences_found for one in plays)
        counts = Counter(found(one.verdict) for one in plays).most_common()
        several = " | ".join(f"{count}x {what}" for what, count in counts)
        rows.append((harmless(part.scenario.name), harmless(part.scenario.zoo), part.row.label,
                     part.row.expected(), counts[0][0] if len(counts) == 1 else several,
                     f"{statistics.median(one.seconds for one in plays):.1f}",
                     f"{right} of {len(plays)} as expected" if len(plays) > 1 else
                     "as expected" if right else "NOT as expected"))
    return ruled_table(rows)


def found(verdict: Verdict | None) -> str:
    """The names of the findings, bugs first, permitted ones marked."""
    if verdict is None:
        return "no run"
    parts = [", ".join(sorted({one.name for one in verdict.findings if one.permitted_by is None}))]
    permitted = ", ".join(sorted({one.name for one in verdict.findings if one.permitted_by is not None}))
    parts += [f"permitted: {permitted}"] if permitted else []
    parts = [part for part in parts if part] or ["nothing"]
    return "; ".join([*parts, "unknown"] if verdict.valid == "unknown" else parts)


def print_unexpected(outcomes: Sequence[Outcome]) -> None:
    """Prints the full report of each run that is not as expected."""
    for outcome in outcomes:
        print_if_unexpected(outcome)
    wrong = sum(bool(outcome.differences_found) for outcome in outcomes)
    again = sum(outcome.tries > 1 for outcome in outcomes)
    repeated = f", {again} of them after a repetition" if again else ""
    what = "row" if all(one.part.turn == 1 for one in outcomes) else "play"
    click.echo(f"\n{many(len(outcomes), what)}, {len(outcomes) - wrong} as expected{repeated}")
    harmed = next((one for one in outcomes if one.verdict and one.verdict.valid is False), None)
    if harmed is not None and harmed.verdict is not None:
        worst = verdict_text.worst_first(report.as_json(harmed.verdict)["findings"])[0]["name"]
        look = ["floodmark", "show", str(harmed.folder), "--finding", worst]
        click.echo(f"next  {shlex.join(look)}")


def print_if_unexpected(outcome: Outcome) -> None:
    """Prints how the run differs from its row, and its full report; nothing if it is as expected."""
    if not outcome.differences_found:
        return
    part = outcome.part
    click.echo(f"\nNOT as expected: {part.title}: {'; '.join(outcome.differences_found)}")
    if part.scenario.uncovered_sends():
        click.echo(harmless(part.scenario.uncovered_sends()))
    if outcome.verdict is not None:
        parts, about = report.as_json(outcome.verdict), Run(folder=outcome.folder).about()
        click.echo(verdict_text.report(outcome.folder, parts, about))


def as_json(outcome: Outcome) -> Mapping[str, Any]:
    """One row of the table as JSON."""
    part, verdict = outcome.part, outcome.verdict
    row = part.row
    return {
        "scenario": part.scenario.name, "zoo": part.scenario.zoo, "folder": outcome.folder.name,
        "time": part.turn,
        "rules": row.rules, "bugs": list(row.bugs), "switches": list(row.switches),
        "config": dict(row.config), "control": row.control,
        "expected": {key: sorted(getattr(row, key)) for key in ("latent", "manifest", "permitted", "also")},
        "valid": None if verdict is None else verdict.valid,
        "found": [{"name": one.name, "class": one.klass, "count": one.count} for one in (
            verdict.findings if verdict is not None else ())],
        "off": list(outcome.differences_found), "tries": outcome.tries,
        "seconds": round(outcome.seconds, 1),
    }  # fmt: skip


# -- a scenario -------------------------------------------------------------------------------------------


def list_table(scenarios: Sequence[Scenario]) -> str:
    return ruled_table([("name", "zoo", "rows", "plays on", "title"), *(
        (one.name, one.zoo, str(len(one.rows)), ", ".join(systems_of(one)), one.title)
        for one in scenarios)])


def story_text(one: Scenario) -> str:
    """A scenario's story, its steps, and the expected findings on each of its rules."""
    setting, unseen = one.setting, one.uncovered_sends()
    rows = [("rules", "expected", "may come of it"), *(
        (row.label, row.expected(), ", ".join(sorted(row.also)) or "-") for row in one.rows)]
    return "\n".join([
        f"{harmless(f'{one.name} ({one.zoo}): {one.title}')}\n",
        f"{click.wrap_text(harmless(one.story, breaks=True), 100)}\n",
        f"{many(setting.nodes, 'node')}, {many(setting.partitions, 'partition')} of "
        f"{many(setting.replication_factor, 'replica')}, workload {setting.workload}, acks {setting.acks}",
        *(f"  {harmless(f'{key}={value}')}" for key, value in one.config.items()), "",
        *(f"  {harmless(line)}" for line in one.steps.strip().split("\n")), "",
        *([f"{harmless(unseen)}\n"] if unseen else []),
        ruled_table(rows), "", harmless(str(one.source))])
