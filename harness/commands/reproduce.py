"""Repeats a saved run, and counts how often its finding comes back, and how close the faults were to their
moments: `floodmark reproduce`.

Rules
1. Of the first run only the folder is used: run.json, the history, and the verdict's findings.
2. Each reproduction is a run with the first one's seed, cluster and load, and names the first in run.json
   (`reproduces`). None is repeated: one that misses a moment or fails counts as it is.
3. All are judged in one call, at the end.
4. "The same finding" has the same name and class. Its partition and how the record was lost are shown beside
   it, because another interleaving may lose another record in the same way.
5. How late a fault struck is counted from the instant of its moment in the reproduction's own history; for a
   failpoint, from when the broker reached it; for a state, from when it was observed. The distance in acks is
   counted against the first run, in the partition that the anchors use.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.checkers.laws.finding_names import LOST_WRITE
from floodmark.harness import catalog, history
from floodmark.harness.commands.run import own_commit, planned
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.pipeline import Play, judge_all, new_parent, play_all, say, tidy
from floodmark.harness.report.night import wilson
from floodmark.harness.report.phrases import class_text, command_line, number_of
from floodmark.harness.report.run_files import read_verdict
from floodmark.harness.report.run_summary import ASKED, VALID, Ruling, ruling
from floodmark.harness.report.safe_text import escape_controls, escaped_data
from floodmark.harness.report.terminal import Screen, table
from floodmark.harness.report.verdict_text import read_reproducible, worst_first
from floodmark.harness.run import DONE, Run, latest_folder, open_run, write_json
from floodmark.harness.run_location import is_named
from floodmark.harness.runner import RunResult
from floodmark.harness.saved_run import SavedRun, read_schedule
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import ACTS, Entry, Schedule
from floodmark.harness.schedule.reanchoring import (
    AnchorBasis,
    ReanchoredEntry,
    ScheduleHistory,
    Strike,
    read_schedule_history,
    reanchor_schedule,
)
from floodmark.harness.spec import RunPlan
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID

Json = Mapping[str, Any]  # an object of run.json or verdict.json
# How far a fault was from its moment, in ns (None: unknown), and from its place in the first run, in acks.
Distance = tuple[int | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    run: Run
    saved: SavedRun
    basis: AnchorBasis
    anchors: tuple[ReanchoredEntry, ...]
    verdict: Json | None  # None: not judged yet
    sought: Json | None  # the group of findings to reproduce; None: there is none

    @property
    def schedule(self) -> Schedule:
        return tuple(one.now for one in self.anchors)

    @property
    def shown_anchors(self) -> list[ReanchoredEntry]:
        """The faults, and other entries whose anchor is new."""
        return [one for one in self.anchors if one.then.f not in ACTS or one.by != "asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One reproduction that has been carried out and judged."""

    number: int  # from 1
    folder: Path
    about: Json
    history: ScheduleHistory
    verdict: Json  # as verdict.json

    @property
    def ruling(self) -> Ruling:
        return ruling(self.verdict, self.about)

    def shows(self, sought: Json | None) -> bool:
        return sought is not None and finding_of(self.verdict, sought) is not None


def reproduce(folder: Path | None, *, runs: int, out: Path | None, finding: str | None,
              json_file: Path | None) -> int:
    """Runs the reproductions; returns the exit code in the command's help. The last line is their folder."""
    first = read_first(folder or latest_folder(), finding)
    parent = new_parent(out, "reproduce")
    catalog.can_judge()
    announce(first, runs, parent)
    first, attempts = judged(first, play_attempts(first, runs, parent))
    click.echo("\n".join(report_lines(first, attempts, failed=runs - len(attempts))))
    if json_file is not None:
        write_json(json_file, as_json(first, attempts))
    click.echo(escape_controls(str(parent)))
    return exit_code(first, attempts)


# -- the first ----------------------------------------------------------------------------------------------

def read_first(folder: Path, finding: str | None) -> First:
    """Reads the first run's folder; FloodmarkError if the run cannot be reproduced."""
    run = open_run(folder)
    saved, schedule = read_reproducible(run.about(), str(folder))
    if saved.spec.cluster == catalog.MEMORY:
        say("the saved run was on the cluster in memory, another implementation of the broker's server, "
            f"which is gone: it is reproduced on the {catalog.SIMULATED} cluster")
    verdict = read_verdict(run) if is_named(run.verdict_path) else None
    if finding is not None and verdict is None:
        raise UsageError(f"--finding {finding}: {folder} was not judged yet: {command_line('check', folder)}")
    sought = sought_in(verdict, finding) if verdict is not None else None
    ops = history.read(run.history_path, folder=run.folder,
                       on_bad=lambda line: say(f"floodmark: {escape_controls(line)}"))
    worst_example = ((sought or {}).get("examples") or [{}])[0]
    basis = AnchorBasis(history=read_schedule_history(ops, schedule), focus=worst_example.get("partition"),
                        partitions=tuple(spec.key for spec in saved.spec.assignment))
    anchors = reanchor_schedule(schedule, basis)
    moments = json_form.write(tuple(one.now for one in anchors))
    read_schedule(moments, saved, f"{folder}, by its history,")
    return First(run=run, saved=saved, basis=basis, verdict=verdict, sought=sought, anchors=anchors)


def sought_in(verdict: Json, finding: str | None) -> Json | None:
    """The finding to reproduce: the named one, or the worst, a lost write first."""
    found = sorted(worst_first(verdict.get("findings") or ()),
                   key=lambda one: (one["class"] != BUG, one["name"] != LOST_WRITE))
    if finding is None:
        return found[0] if found else None
    named = [one for one in found if one["name"] == finding]
    if not named:
        there = ", ".join(sorted({one["name"] for one in found})) or "none"
        raise UsageError(f"--finding {finding}: its verdict has no such finding; it has: {there}")
    return named[0]


def announce(first: First, runs: int, parent: Path) -> None:
    spec = first.saved.spec
    say(f"{number_of(runs, 'reproduction')} of {escape_controls(str(first.run.folder))}: "
        f"{number_of(spec.nodes, 'node')}, rules {spec.rules}, seed {spec.seed}, {spec.duration:g} s each; "
        f"folder {parent}\nmoments: {moments_text(first)}")
    for sentence in first.saved.inferred:
        say(f"floodmark: {sentence}")
    about, mine = escaped_data(first.run.about()), own_commit()
    if mine is not None and about.get("commit") not in (None, "unknown", mine):
        say(f"floodmark: it was made by version {about.get('version')} (commit {str(about['commit'])[:7]}), "
            "today's brokers may differ")


# -- the runs -----------------------------------------------------------------------------------------------

def play_attempts(first: First, runs: int, parent: Path) -> list[tuple[int, RunResult]]:
    """Makes the reproductions; returns those that were made, by number. After Ctrl-C no other begins."""
    plays = [Play(title=f"reproduction {number}", plan=partial(plan_of, first, number),
                  folder=parent / f"{first.run.folder.name}-{number:0{len(str(runs))}d}")
             for number in range(1, runs + 1)]
    with Screen(total=runs) as screen:
        played = play_all(plays, screen=screen)
    if played and isinstance(played[0].error, UsageError):
        raise FloodmarkError(f"{first.run.folder} cannot be reproduced: {played[0].error}")
    return [(number, one.result) for number, one in enumerate(played, 1) if one.result is not None]


def plan_of(first: First, number: int, folder: Path) -> RunPlan:
    """The plan of a reproduction: the first one's cluster and load, and the link to it."""
    spec, about = first.saved.spec, first.run.about()
    return planned(replace(
        spec, cluster=catalog.present_name(spec.cluster), out=folder,
        asked={key: about[key] for key in ASKED if isinstance(about.get(key), str)},
        reproduces={"folder": str(first.run.folder), "id": first.saved.run_id, "run": number}),
        first.schedule)


def judged(first: First, made: Sequence[tuple[int, RunResult]]) -> tuple[First, list[Attempt]]:
    """Judges all in one call, also the first if it has no verdict yet. Deletes the raw logs of valid runs."""
    alone = [] if first.verdict is not None else [first.run.folder]
    folders = [*alone, *(result.run.folder for _, result in made)]
    every = judge_all(folders, untouched=alone) if folders else []
    for one in every[len(alone):]:
        if one.verdict.valid is True:
            tidy(one.folder)
    verdicts: list[Json] = [escaped_data(report.as_json(one.verdict)) for one in every]
    if alone:
        verdict = verdicts.pop(0)
        first = replace(first, verdict=verdict, sought=sought_in(verdict, None))
    attempts = [
        Attempt(number=number, folder=result.run.folder, about=result.about, verdict=verdict,
                history=read_schedule_history(history.read(result.run.history_path), first.schedule))
        for (number, result), verdict in zip(made, verdicts, strict=True)
    ]
    return first, attempts


def exit_code(first: First, attempts: Sequence[Attempt]) -> int:
    """0: the finding came back; 1: another bug; 3: no bug; 4: no run was made."""
    if not attempts:
        return EXIT_HARNESS
    if any(attempt.shows(first.sought) for attempt in attempts):
        return EXIT_VALID
    if any(found["class"] == BUG for attempt in attempts for found in attempt.verdict.get("findings") or ()):
        return EXIT_INVALID
    if first.sought is None and all(attempt.ruling.kind == VALID for attempt in attempts):
        return EXIT_VALID
    return EXIT_UNKNOWN


# -- how close ----------------------------------------------------------------------------------------------

def distances(first: First, anchors: Sequence[ReanchoredEntry], attempts: Sequence[Attempt]
              ) -> list[Distance]:
    found = (distance(one, attempt, first.basis) for one in anchors for attempt in attempts)
    return [one for one in found if one is not None]


def distance(anchor: ReanchoredEntry, attempt: Attempt, basis: AnchorBasis) -> Distance | None:
    """None if the fault did not strike, missed its moment, or struck without the state that it waits for."""
    strike = attempt.history.strikes.get(anchor.position)
    if strike is None or anchor.strike is None or anchor.position in attempt.about["missed"]:
        return None
    if anchor.by == "state" and strike.first:
        return None
    partition = basis.partition_of(anchor.strike)
    acks = (attempt.history.acks(partition).count_by(strike.began_ns)
            - basis.history.acks(partition).count_by(anchor.strike.began_ns))
    return late_ns(anchor.now, strike, attempt.history, anchor.position), acks


def late_ns(entry: Entry, strike: Strike, history: ScheduleHistory, position: int) -> int | None:
    moment, instant_ns = entry.moment, history.done_before(position)
    if moment is not None:
        instant_ns = moment.came_ns(lambda partition: history.acks(partition).times, instant_ns)
        instant_ns = None if instant_ns is None else instant_ns + (moment.then_ns or 0)
    if instant_ns is None:  # the history does not show it
        delay_ns = 0 if moment is None else moment.delay_ns
        instant_ns = strike.reached_ns if strike.met_ns is None else strike.met_ns + delay_ns
    return None if instant_ns is None else max(0, strike.began_ns - instant_ns)


def nearness(near: Sequence[Distance]) -> dict[str, float]:
    """Median and worst distance, in milliseconds and in acks; a key is absent if it is unknown for all."""
    late = [late_ns / 1e6 for late_ns, _ in near if late_ns is not None]
    acks = [abs(acks) for _, acks in near]
    return {f"{name}_{kind}": pick(values) for name, values in (("late_ms", late), ("acks", acks)) if values
            for kind, pick in (("median", statistics.median), ("worst", max))}


# -- text ---------------------------------------------------------------------------------------------------

_ANCHOR_WORDS = {"asked": "as before", "acks": "by acks", "state": "by leader and ISR",
                 "after": "relative to the entry before", "time": "by time"}  # ReanchoredEntry.by


_NEAR = {"late_ms_median": "  faults struck {late_ms_median:.1f} ms after their moments (median; worst "
                           "{late_ms_worst:.1f} ms)",
         "acks_median": "  and {acks_median:g} acks from their places in the first run (median; worst "
                        "{acks_worst:g})"}


def moments_text(first: First) -> str:
    """How many moments are as they were, and what has replaced the others: `4 as before, 1 by acks`."""
    counts = Counter(one.by for one in first.shown_anchors)
    parts = [f"{counts[kind]} {words}" for kind, words in _ANCHOR_WORDS.items() if counts[kind]]
    return ", ".join(parts) or "none"


def report_lines(first: First, attempts: Sequence[Attempt], *, failed: int) -> list[str]:
    """The table of faults, two lines for each run, and the rate."""
    faults = ["", "faults and other moments (late and acks apart: median, in brackets the worst):",
              faults_table(first, attempts)] if first.shown_anchors else []
    near = nearness(distances(first, first.shown_anchors, attempts))
    return [
        f"{escape_controls(first.run.folder.name)}, reproduced {number_of(len(attempts), 'time')}", *faults,
        "", "runs:", *(run_line(first, attempt) for attempt in attempts), "",
        *([f"  {number_of(failed, 'run')} not carried out"] if failed else []),
        *rate_lines(first.sought, attempts),
        *(text.format_map(near) for key, text in _NEAR.items() if key in near)]


def faults_table(first: First, attempts: Sequence[Attempt]) -> str:
    """A row for each fault: the moment asked for, where it struck, its anchor now, and how close it came."""
    rows = []
    for one in first.shown_anchors:
        then, now = " ".join(one.then.nodes), " ".join(one.now.nodes)
        asked = "at once" if one.then.moment is None else one.then.moment.text()
        before = first.anchors[one.position - 1].then if one.position else None
        if one.then.moment is None and before is not None and before.f == "wait" and before.moment:
            asked = f"once {before.moment.text()}"
        found = distances(first, [one], attempts)
        near, acks = nearness(found), sorted(acks for _, acks in found)
        rows.append((
            str(one.position), f"{one.then.f} {then}".rstrip() + (f" as {now}" if now != then else ""),
            asked, struck_text(one.strike, first.basis),
            "as asked" if one.by == "asked" or not one.now.moment else f"{one.now.moment.text()} ({one.why})",
            f"{len(found)}/{len(attempts)}",
            "{late_ms_median:.1f} ({late_ms_worst:.1f})".format_map(near) if "late_ms_worst" in near else "-",
            f"{statistics.median_low(acks):+d} ({max(acks, key=abs):+d})" if acks else "-"))
    heads = ("", "fault", "asked then", "struck then", "anchored now", "met", "late ms", "acks apart")
    return table(heads, rows)


def struck_text(strike: Strike | None, basis: AnchorBasis) -> str:
    """`1.771 s, p0: ack 455, leader n1, ISR n1 n2`."""
    if strike is None:
        return "left no line"
    partition = basis.partition_of(strike)
    leader, isr = strike.leader(partition), strike.isr(partition)
    parts = [f"{strike.began_ns / 1e9:.3f} s",
             f"p{partition}: ack {basis.history.acks(partition).count_by(strike.began_ns)}"]
    parts += [f"leader {leader}"] if leader else []
    parts += [f"ISR {' '.join(isr)}"] if isr is not None else []
    return ", ".join(parts)


def run_line(first: First, attempt: Attempt) -> str:
    """What came of one run, and below it its folder."""
    names = ", ".join(one["name"] for one in worst_first(attempt.verdict.get("findings") or ()))
    parts = [f"{attempt.ruling.heading}{': ' + names if names else ''}"]
    if first.sought is not None:
        parts.append("the same finding" if attempt.shows(first.sought) else "not the finding")
    missed, ended = attempt.about["missed"], attempt.about["ended"]
    parts += [f"missed {', '.join(map(str, missed))}"] if missed else []
    parts += [f"ended early: {ended}"] if ended != DONE else []
    near = nearness(distances(first, first.shown_anchors, [attempt]))
    parts += ["late {late_ms_median:.1f} ms (worst {late_ms_worst:.1f})".format_map(near)
              ] if "late_ms_median" in near else []
    return f"  {attempt.number:>3}  {'; '.join(parts)}\n       {attempt.folder}"


def rate_lines(sought: Json | None, attempts: Sequence[Attempt]) -> list[str]:
    """How often the finding came back, and how often with the same partition or in the same way."""
    if sought is None:
        valid = sum(attempt.ruling.kind == VALID for attempt in attempts)
        return [f"  the first run has no findings; valid reproductions: {valid}/{len(attempts)}"]
    showing = [attempt for attempt in attempts if attempt.shows(sought)]
    hits, of = len(showing), len(attempts)
    low, high = (100 * share for share in wilson(hits, of))
    rate = f"{hits}/{of}, {100 * hits / of:.0f} % (95 % interval {low:.0f} to {high:.0f} %)" if of else (
        "0/0: no run was carried out")
    lines = [f"  {sought['name']}, {class_text(sought)}: {rate}"]
    for key, phrase in (("partition", "in the same partition"), ("how", "in the same way")):
        then = {example.get(key) for example in sought.get("examples") or ()} - {None}
        if then and showing:
            same = sum(same_in(sought, attempt, key) for attempt in showing)
            lines.append(f"    {phrase} ({', '.join(sorted(map(str, then)))}): {same}/{hits}")
    return lines


def finding_of(verdict: Json, sought: Json) -> Json | None:
    return next((found for found in verdict.get("findings") or ()
                 if (found["name"], found["class"]) == (sought["name"], sought["class"])), None)


def same_in(sought: Json, attempt: Attempt, key: str) -> bool:
    """Whether an example has the same value of this key (partition, how) as one of the first run's."""
    then, now = ({example.get(key) for example in (found or {}).get("examples") or ()}
                 for found in (sought, finding_of(attempt.verdict, sought)))
    return bool((then - {None}) & now)


def as_json(first: First, attempts: Sequence[Attempt]) -> dict[str, Any]:
    sought = first.sought
    hits = sum(attempt.shows(sought) for attempt in attempts)
    return {
        "reproduces": {"folder": str(first.run.folder), "id": first.saved.run_id},
        "finding": None if sought is None else {"name": sought["name"], "class": sought["class"]},
        "shown": hits, "of": len(attempts),
        "interval_95": list(wilson(hits, len(attempts))),
        **nearness(distances(first, first.shown_anchors, attempts)),
        "runs": [{"run": attempt.number, "folder": str(attempt.folder), "valid": attempt.verdict["valid"],
                  "shown": attempt.shows(sought), "missed": attempt.about["missed"]} for attempt in attempts],
        "moments": [{"entry": one.position, "f": one.then.f, "by": one.by, "why": one.why,
                     "then": one.then.moment and one.then.moment.to_json(),
                     "now": one.now.moment and one.now.moment.to_json()}
                    for one in first.shown_anchors],
    }
