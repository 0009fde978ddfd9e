"""Repeats a saved run, and counts how often its finding comes back: `floodmark reproduce`.

Rules
1. Of the first run only the folder is used: run.json, the history, and the verdict's findings.
2. Each reproduction is a run with the first one's seed, cluster and load, and names the first in run.json
   (`reproduces`). None is repeated: one that misses a moment or fails counts as it is.
3. All are judged in one call, at the end.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from floodmark.checkers.judge import report
from floodmark.harness import catalog, history
from floodmark.harness.commands.run import own_commit, planned
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.pipeline import judge_all, new_parent, record, tidy
from floodmark.harness.report import verdict_text
from floodmark.harness.report.case_names import ASKED
from floodmark.harness.report.phrases import many
from floodmark.harness.report.reproduce_command import refuse_unknown
from floodmark.harness.report.reproduction_table import (
    Attempt,
    First,
    Json,
    as_json,
    attempt_text,
    bugs_of,
    moments_text,
    shows,
)
from floodmark.harness.report.run_outcome import VALID
from floodmark.harness.report.safe_text import harmless, harmless_data
from floodmark.harness.report.saved_verdict import read_verdict
from floodmark.harness.run import INTERRUPTED, latest_folder, open_run, write_json
from floodmark.harness.run_location import is_named
from floodmark.harness.runner import RunResult
from floodmark.harness.saved_run import read_saved, read_schedule
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.reanchoring import AnchorBasis, read_schedule_history, reanchor_schedule
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID

LOST = "lost-write"


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
    verdict = read_verdict(run) if is_named(run.verdict_path) else None
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
        f"moments: {moments_text(first.anchors)}", err=True)
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


def exit_code(first: First, attempts: Sequence[Attempt]) -> int:
    """0: the finding came back; 1: another bug; 3: no bug; 4: no run was made."""
    if not attempts:
        return EXIT_HARNESS
    if first.sought is not None and any(shows(first.sought, attempt) for attempt in attempts):
        return EXIT_VALID
    if any(bugs_of(attempt.verdict) for attempt in attempts):
        return EXIT_INVALID
    if first.sought is None and all(attempt.ruling.kind == VALID for attempt in attempts):
        return EXIT_VALID
    return EXIT_UNKNOWN
