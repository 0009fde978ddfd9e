"""Repeats a saved run, and counts how often its finding comes back: `floodmark reproduce`.

Rules
1. Of the first run only the folder is used: run.json, the history, and the verdict's findings.
2. Each reproduction is a run with the first one's seed, cluster and load, and names the first in run.json
   (`reproduces`). None is repeated: one that misses a moment or fails counts as it is.
3. All are judged in one call, at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.harness import catalog, history
from floodmark.harness.campaign.rates import wilson
from floodmark.harness.commands.run import own_commit, planned
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.pipeline import judge_all, new_parent, record, tidy
from floodmark.harness.reports import reproduction_table, verdict_text
from floodmark.harness.reports.case_names import ASKED
from floodmark.harness.reports.phrases import class_text, many
from floodmark.harness.reports.reproduce_command import refuse_unknown
from floodmark.harness.reports.reproduction_table import Attempt, Json
from floodmark.harness.reports.run_outcome import VALID
from floodmark.harness.reports.safe_text import harmless, harmless_data
from floodmark.harness.reports.saved_verdict import read_verdict
from floodmark.harness.run import INTERRUPTED, Run, latest_folder, open_run, write_json
from floodmark.harness.runner import RunResult
from floodmark.harness.saved_run import SavedRun, read_saved, read_schedule
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.schedule.reanchoring import AnchorBasis, ReanchoredEntry, reanchor_schedule
from floodmark.harness.schedule.schedule_history import read_schedule_history
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID

LOST = "lost-write"


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """The run that is reproduced."""

    run: Run
    saved: SavedRun
    schedule: Schedule  # the original one
    basis: AnchorBasis
    anchors: tuple[ReanchoredEntry, ...]
    verdict: Json | None  # None: not judged yet
    sought: Json | None  # the group of findings to reproduce; None: there is none


def reproduce(folder: Path | None, *, runs: int, out: Path | None, finding: str | None,
              json_file: Path | None) -> int:
    """Runs the reproductions; returns the exit code in the command's help. The last line on stdout is the
    parent folder of the runs."""
    first = read_first(folder or latest_folder(), finding)
    parent = new_parent(out, "reproduce")
    catalog.can_judge()
    announce(first, runs, parent)
    made = play_attempts(first, runs, parent)
    first, attempts = judged(first, made)
    click.echo(attempt_text(first, attempts, failed=runs - len(attempts)))
    if json_file is not None:
        write_json(json_file, as_json(first, attempts))
    click.echo(harmless(str(parent)))
    return exit_code(first, attempts)


# -- the first ----------------------------------------------------------------------------------------------


def read_first(folder: Path, finding: str | None) -> First:
    """Reads the first run's folder; FloodmarkError if the run cannot be reproduced."""
    run = open_run(folder)
    about = run.about()
    saved = read_saved(about, str(folder))
    refuse_unknown(saved, str(folder))
    if saved.spec.cluster == catalog.MEMORY:
        click.echo("the saved run was on the cluster in memory, another implementation of the broker's "
                   f"server, which is gone: it is reproduced on the {catalog.SIMULATED} cluster", err=True)
    schedule = read_schedule(about["schedule"], saved, str(folder))
    verdict = read_verdict(run) if run.names(run.verdict_path) else None
    sought = sought_in(verdict, finding) if verdict is not None else None
    ops = history.read(run.history_path, folder=run.folder,
                       on_bad=lambda line: click.echo(f"floodmark: {harmless(line)}", err=True))
    partitions = tuple(spec.key for spec in saved.spec.assignment)
    basis = AnchorBasis(history=read_schedule_history(ops, schedule), partitions=partitions,
                         focus=focus_of(sought))
    anchors = reanchor_schedule(schedule, basis)
    moments = json_form.write(tuple(one.now for one in anchors))
    read_schedule(moments, saved, f"{folder}, by its history,")
    return First(run=run, saved=saved, schedule=schedule, basis=basis, verdict=verdict, sought=sought,
                 anchors=anchors)


def sought_in(verdict: Json, finding: str | None) -> Json | None:
    """The finding to reproduce: the named one, or the worst, a lost write first."""
    found = sorted(verdict_text.worst_first(verdict.get("findings") or ()),
                   key=lambda one: (one["class"] != BUG, one["name"] != LOST))
    if finding is None:
        return found[0] if found else None
    named = [one for one in found if one["name"] == finding]
    if not named:
        there = ", ".join(sorted({one["name"] for one in found})) or "none"
        raise UsageError(f"--finding {finding}: its verdict has no such finding; it has: {there}")
    return named[0]


def focus_of(sought: Json | None) -> int | None:
    """The partition of the worst example."""
    examples = (sought or {}).get("examples") or ()
    partition = examples[0].get("partition") if examples else None
    return partition if isinstance(partition, int) else None


def announce(first: First, runs: int, parent: Path) -> None:
    spec = first.saved.spec
    click.echo(
        f"{many(runs, 'reproduction')} of {harmless(str(first.run.folder))}: "
        f"{many(spec.nodes, 'node')}, rules {spec.rules}, seed {spec.seed}, "
        f"{spec.duration:g} s each; folder {parent}\n"
        f"moments: {reproduction_table.moments_text(first.anchors)}", err=True)
    for sentence in first.saved.inferred:
        click.echo(f"floodmark: {sentence}", err=True)
    about = harmless_data(first.run.about())
    mine = own_commit()
    if mine is not None and about.get("commit") not in (None, "unknown", mine):
        click.echo(f"floodmark: it was made by version {about.get('version')} (commit "
                   f"{str(about['commit'])[:7]}), today's brokers may differ", err=True)


# -- the runs -----------------------------------------------------------------------------------------------


def play_attempts(first: First, runs: int, parent: Path) -> list[tuple[int, RunResult]]:
    """Makes the reproductions; returns those that were made, by number. Ctrl-C ends the present one in an
    orderly way, and no other begins."""
    made: list[tuple[int, RunResult]] = []
    for number in range(1, runs + 1):
        folder = parent / f"{first.run.folder.name}-{number:0{len(str(runs))}d}"
        click.echo(f"reproduction {number} of {runs}: {harmless(str(folder))}", err=True)
        try:
            result = record(planned(spec_of_reproduction(first, folder, number),
                                    tuple(one.now for one in first.anchors)))
        except UsageError as error:
            raise FloodmarkError(f"{first.run.folder} cannot be reproduced: {error}") from error
        except FloodmarkError as error:
            click.echo(f"floodmark: reproduction {number} was not carried out: {error}", err=True)
            continue
        made.append((number, result))
        if result.ended.startswith(INTERRUPTED):
            break
    return made


def spec_of_reproduction(first: First, folder: Path, number: int) -> RunSpec:
    """A reproduction: the first one's cluster and load, and the link to it."""
    spec, about = first.saved.spec, first.run.about()
    return replace(
        spec, cluster=catalog.present_name(spec.cluster), out=folder,
        asked={key: about[key] for key in ASKED if isinstance(about.get(key), str)},
        reproduces={"folder": str(first.run.folder), "id": first.saved.run_id, "run": number})


def judged(first: First, made: Sequence[tuple[int, RunResult]]) -> tuple[First, list[Attempt]]:
    """Judges all in one call, also the first if it has no verdict yet. Deletes the raw logs of valid runs."""
    alone = [] if first.verdict is not None else [first.run.folder]
    folders = [*alone, *(result.run.folder for _, result in made)]
    every = judge_all(folders, untouched=alone) if folders else []
    for one in every[len(alone):]:
        if one.verdict.valid is True:
            tidy(one.folder)
    verdicts: list[Json] = [harmless_data(report.as_json(one.verdict)) for one in every]
    if alone:
        verdict = verdicts.pop(0)
        first = replace(first, verdict=verdict, sought=sought_in(verdict, None))
    schedule = tuple(one.now for one in first.anchors)
    attempts = [
        Attempt(number=number, folder=result.run.folder, ended=result.ended, died=result.died,
                missed=tuple(result.about["missed"]), verdict=verdict,
                history=read_schedule_history(history.read(result.run.history_path), schedule))
        for (number, result), verdict in zip(made, verdicts, strict=True)
    ]
    return first, attempts


# -- text ---------------------------------------------------------------------------------------------------


def attempt_text(first: First, attempts: Sequence[Attempt], *, failed: int) -> str:
    """The report: the table of faults, a line for each run, and the rate."""
    lines = [f"{harmless(first.run.folder.name)}, reproduced {many(len(attempts), 'time')}"]
    if reproduction_table.shown_anchors(first.anchors):
        lines += ["", "faults and other moments (late and acks apart: median, in brackets the worst):",
                  reproduction_table.table(first.anchors, attempts, first.basis)]
    lines += ["", "runs:", *(run_line(first, attempt) for attempt in attempts), ""]
    lines += [f"  {many(failed, 'run')} not carried out"] if failed else []
    lines += rates(first, attempts)
    near = nearness(first, attempts)
    if "late_ms_median" in near:
        lines.append(f"  faults struck {near['late_ms_median']:.1f} ms after their moments (median; worst "
                     f"{near['late_ms_worst']:.1f} ms)")
    if "acks_median" in near:
        lines.append(f"  and {near['acks_median']:g} acks from their places in the first run (median; worst "
                     f"{near['acks_worst']:g})")
    return "\n".join(lines)


def run_line(first: First, attempt: Attempt) -> str:
    """The line about one run."""
    names = ", ".join(one["name"] for one in verdict_text.worst_first(attempt.verdict.get("findings") or ()))
    parts = [f"{attempt.ruling.heading}{': ' + names if names else ''}"]
    if first.sought is not None:
        parts.append("the same finding" if shows(first.sought, attempt) else "not the finding")
    parts += [f"missed {', '.join(map(str, attempt.missed))}"] if attempt.missed else []
    parts += [f"ended early: {attempt.ended}"] if attempt.ended != "done" else []
    near = reproduction_table.nearness(_apart(first, [attempt]))
    parts += [f"late {near['late_ms_median']:.1f} ms (worst {near['late_ms_worst']:.1f})"
              ] if "late_ms_median" in near else []
    return f"  {attempt.number:>3}  {'; '.join(parts)}\n       {attempt.folder}"


def rates(first: First, attempts: Sequence[Attempt]) -> list[str]:
    """Lines on how often the finding came back, and how often with the same partition or in the same way."""
    if first.sought is None:
        valid = sum(attempt.ruling.kind == VALID for attempt in attempts)
        return [f"  the first run has no findings; valid reproductions: {valid}/{len(attempts)}"]
    sought = first.sought
    showing = [attempt for attempt in attempts if shows(sought, attempt)]
    rate = reproduction_table.rate_text(len(showing), len(attempts))
    lines = [f"  {sought['name']}, {class_text(sought)}: {rate}"]
    for key, phrase in (("partition", "in the same partition"), ("how", "in the same way")):
        then = sorted({str(example[key]) for example in sought.get("examples") or () if key in example})
        if then and showing:
            same = sum(reproduction_table.same_in(sought, attempt, key) for attempt in showing)
            lines.append(f"    {phrase} ({', '.join(then)}): {same}/{len(showing)}")
    return lines


def shows(sought: Json, attempt: Attempt) -> bool:
    return reproduction_table.finding_of(attempt.verdict, sought["name"], sought["class"]) is not None


def nearness(first: First, attempts: Sequence[Attempt]) -> dict[str, float]:
    return reproduction_table.nearness(_apart(first, attempts))


def _apart(first: First, attempts: Sequence[Attempt]) -> list[reproduction_table.StrikeDifference]:
    found = (reproduction_table.compare_strikes(one, attempt, first.basis)
             for one in reproduction_table.shown_anchors(first.anchors) for attempt in attempts)
    return [one for one in found if one is not None]


def as_json(first: First, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """The report as JSON."""
    sought = first.sought
    hits = [attempt for attempt in attempts if sought is not None and shows(sought, attempt)]
    return {
        "reproduces": {"folder": str(first.run.folder), "id": first.saved.run_id},
        "finding": None if sought is None else {"name": sought["name"], "class": sought["class"]},
        "shown": len(hits), "of": len(attempts),
        "interval_95": list(wilson(len(hits), len(attempts))),
        **nearness(first, attempts),
        "runs": [{"run": attempt.number, "folder": str(attempt.folder), "valid": attempt.verdict["valid"],
                  "shown": attempt in hits, "missed": list(attempt.missed)} for attempt in attempts],
        "moments": [{"entry": one.position, "f": one.then.f, "by": one.by, "why": one.why,
                     "then": one.then.moment and one.then.moment.to_json(),
                     "now": one.now.moment and one.now.moment.to_json()}
                    for one in reproduction_table.shown_anchors(first.anchors)],
    }


def exit_code(first: First, attempts: Sequence[Attempt]) -> int:
    """0: the finding came back; 1: another bug; 3: no bug; 4: no run was made."""
    if not attempts:
        return EXIT_HARNESS
    if first.sought is not None and any(shows(first.sought, attempt) for attempt in attempts):
        return EXIT_VALID
    if any(reproduction_table.bugs_of(attempt.verdict) for attempt in attempts):
        return EXIT_INVALID
    if first.sought is None and all(attempt.ruling.kind == VALID for attempt in attempts):
        return EXIT_VALID
    return EXIT_UNKNOWN
