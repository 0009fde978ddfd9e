"""Measures how faults affected clients, over all runs of some campaigns: `floodmark campaign stats`.
checkers/stats/__init__.py defines each figure; harness/campaign/README.md summarises them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.harness import catalog
from floodmark.harness.campaign.state import ABOUT, about_of, is_campaign, state_of
from floodmark.harness.commands.folder_arguments import chosen
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report.phrases import number_of, short_time_text
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.terminal import table
from floodmark.harness.run import refuse_nonempty, write_json
from floodmark.harness.run_location import Place
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_VALID

if TYPE_CHECKING:
    from floodmark.checkers.stats.questions import Answers

FORMAT = 1  # of --json
RUNS_SHOWN = 30
FEW = 100  # sends: latencies of fewer say little
NO_NIGHT = "-"  # for a run folder that was named directly
QUANTILES = {"p50": "p50", "p99": "p99", "p999": "p99.9"}
Row = Mapping[str, Any]
Cells = dict[str, str]  # by the heads of their columns


def show_stats(folders: Sequence[str], json_file: Path | None, parquet: Path | None) -> int:
    """Prints the tables, and on stderr the runs that could not be measured; then the exit code is 4."""
    if parquet is not None:
        refuse_nonempty(parquet)
    runs = runs_of(chosen(folders))
    measures = catalog.measure([folder for _, folder in runs])
    answers = measures.answers({number: (night, folder.name) for number, (night, folder) in enumerate(runs)})
    click.echo(tables(answers))
    failures = {str(runs[number][1]): why for number, why in sorted(measures.failures.items())}
    for folder, why in failures.items():
        click.echo(escape_controls(f"not measured: {folder}: {why}"), err=True)
    if measures.unsaved:
        first = min(measures.unsaved)
        click.echo(escape_controls(
            f"the measures of {number_of(len(measures.unsaved), 'run')} could not be written and will be "
            f"made again the next time: {measures.unsaved[first]}"), err=True)
    if json_file is not None:
        names = ("runs", "faults", "by_kind", "nights", "trend")
        write_json(json_file, {"format": FORMAT, **{name: getattr(answers, name) for name in names},
                               "not_measured": failures})
    if parquet is not None:
        answers.write(parquet)
    return EXIT_HARNESS if measures.failures else EXIT_VALID


def runs_of(folders: Sequence[Place]) -> list[tuple[str, Place]]:
    """The run folders that these folders name, each once and with its night: campaigns in the order of their
    begin, then the others. UsageError for a remote campaign; FloodmarkError if there is no run."""
    alone: list[tuple[str, Place]] = []
    nights: list[tuple[str, list[tuple[str, Place]]]] = []
    for folder in folders:
        if not isinstance(folder, Path):
            if (folder / ABOUT).exists():
                raise UsageError(f"{folder} is a remote campaign, and remote journals are not read: "
                                 f"name its runs, {folder}/runs/*")
            alone.append((NO_NIGHT, folder))
        elif is_campaign(folder):
            began, at = str(about_of(folder).get("began")), folder.resolve()
            nights.append((began, [(f"{at.name} {began[:10]}", at / run.folder)
                                   for run in state_of(folder).runs("judged IS NOT NULL")]))
        else:
            alone.append((NO_NIGHT, folder.resolve()))
    every = [run for _, runs in sorted(nights, key=lambda night: night[0]) for run in runs] + alone
    if not every:
        raise FloodmarkError("there is no judged run in "
                             f"{', '.join(map(str, folders))}: there is nothing to measure")
    return list({folder: (night, folder) for night, folder in reversed(every)}.values())[::-1]


# -- the tables ---------------------------------------------------------------------------------------------

def tables(answers: "Answers") -> str:
    parts = [_titled(
        "Availability by kind of fault: medians (worst); latency of sends, waiting included, before > during "
        "> after (~: few sends)", [_availability(row) for row in answers.by_kind], "no fault struck")]
    nights = {row["night"] for row in answers.nights}
    if len(nights) > 1:
        parts.append(_titled("The same, night by night", [
            _availability(row, {"night": str(row["night"])}) for row in answers.trend], "no fault struck"))
    if nights - {NO_NIGHT}:
        parts.append(_titled("Nights: sums; medians of runs and of faults (worst)",
                             [_night(row) for row in answers.nights], ""))
    runs = sorted(answers.runs, key=lambda row: -(row["max_unavailable_s"] or 0.0))
    more = f": {RUNS_SHOWN} of {len(runs)}; --json and --parquet have all" if len(runs) > RUNS_SHOWN else ""
    parts.append(_titled(f"Runs, the longest gap first{more}", [_run(row) for row in runs[:RUNS_SHOWN]],
                         "none could be measured"))
    return "\n\n".join(parts)


def _titled(title: str, rows: Sequence[Cells], otherwise: str) -> str:
    return f"{title}\n{table([*rows[0]], [[*row.values()] for row in rows]) if rows else otherwise}"


def _availability(row: Row, night: Cells | None = None) -> Cells:
    faults = row["faults"]
    gone = f", {row['unrecovered']} never" if row["unrecovered"] else ""
    few = {window: "~" if 0 < (row[f"{window}_sends"] or 0) < FEW else ""
           for window in ("before", "during", "after")}
    return {
        "fault": str(row["kind"]), **(night or {}), "faults": str(faults),
        "first failed op after": _time(row, "first_failed_s", row["failed"], faults),
        "longest gap": _time(row, "gap_s", row["waited"], faults),
        "acked again after": _time(row, "recovery_s", row["mended"], faults) + gone,
        **{head: " > ".join(mark + _brief(row[f"{window}_{name}_ms"], 1000) for window, mark in few.items())
           for name, head in QUANTILES.items()},
    }


def _time(row: Row, name: str, known: int, of: int) -> str:
    """`12.3 ms (1.2 s)`, with the number of values if some are missing."""
    if not known:
        return "-"
    some = f", {known} of {of}" if known < of else ""
    return f"{short_time_text(row[name])} ({short_time_text(row[f'max_{name}'])}{some})"


def _night(row: Row) -> Cells:
    return {
        "night": str(row["night"]), "runs": str(row["runs"]), "acked": _count(row["acked"]),
        "faults": _count(row["faults"]), "longest gap": _time(row, "gap_s", row["gap_s"] is not None, 1),
        "acked again after": _time(row, "recovery_s", row["recovery_s"] is not None, 1),
        **{head: _brief(row[f"{name}_ms"], 1000) for name, head in QUANTILES.items()},
        "elections (unclean)": _elections(row), "ISR changes": _count(row["isr_changes"]),
        "truncations": _count(row["truncations"]),
    }


def _run(row: Row) -> Cells:
    parts = f" ({_count(row['isr_by_leader'])}, {_count(row['isr_by_controller'])})"
    largest = f" ({row['largest_truncation']:,})" if row["largest_truncation"] else ""
    return {
        "run": str(row["run"]), "system": str(row["system"]), "nemesis": str(row["nemesis"]),
        "acked": _count(row["acked"]),
        "ok / fail / info": f"{row['ok']:,} / {row['fail']:,} / {row['info']:,}",
        "faults": ", ".join(f"{count} {kind}" for kind, count in row["faults_by_kind"].items()) or "none",
        "longest gap": _brief(row["max_unavailable_s"]), "acked again after": _brief(row["max_recovery_s"]),
        "elections (unclean)": _elections(row),
        "ISR changes (leader, controller)":
            _count(row["isr_changes"]) + (parts if row["isr_changes"] is not None else ""),
        "truncations (largest)": _count(row["truncations"]) + largest,
    }


def _elections(row: Row) -> str:
    return _count(row["elections"]) + (f" ({row['unclean_elections']})" if row["unclean_elections"] else "")


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _brief(time: float | None, per_s: int = 1) -> str:
    return "-" if time is None else short_time_text(time / per_s)
