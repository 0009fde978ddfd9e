"""Plays and judges runs, and starts clusters, for pytest's fixtures.

Rules
1. A run that the harness could not make, or that somebody interrupted, is an error and no verdict.
2. The page of an invalid run is written into its folder, as by `floodmark check`.
3. Words that are not known are refused, and the valid ones are named.
"""

import asyncio
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
import orjson

from floodmark.harness import catalog
from floodmark.harness.campaign.cases import DRAWN, FIXED, Case
from floodmark.harness.commands.campaign_play import scenario_options
from floodmark.harness.commands.check import gate, outcome_of, save
from floodmark.harness.commands.cluster import ask_cluster
from floodmark.harness.commands.report import REPORT, page_beside
from floodmark.harness.commands.run import (
    RunOptions,
    config_of,
    planned,
    record,
    schedule_of_options,
    with_drawn_settings,
)
from floodmark.harness.commands.scenario import named
from floodmark.harness.commands.scenario_runs import TRIES, missed
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.reports.gate_outcomes import Outcome, report_of, visible
from floodmark.harness.reports.run_outcome import CUT_SHORT, HARNESS
from floodmark.harness.reports.schedule_outcome import missed_entries_text
from floodmark.harness.run import INTERRUPTED, Run
from floodmark.harness.runner import RunPlan
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.verdict import EXIT_VALID, Policy

CLUSTER_MODULE = "floodmark.harness.commands.pytest_cluster"
CLUSTER_WORDS = ("cluster", "kafka", "topic_config", "nodes", "rules", "bugs", "config", "links")
RUN_WORDS = (*CLUSTER_WORDS, "workload", "concurrency", "rate", "partitions", "replication_factor", "acks",
             "nemesis", "interval", "overspend", "schedule", "trace", "settings", "seed", "duration")
SCENARIO_WORDS = ("scenario", "rules", "bugs", "config", "cluster")
GATE_WORDS = ("strict", "allow", "allow_unknown")
SEED = 1  # of a schedule that is asked for without one
ENDS_WITHIN_S = 60.0
Words = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JudgedRun:
    """A run and its verdict."""

    folder: Path
    outcome: Outcome

    @property
    def valid(self) -> bool:
        """Whether it passes the gate. What nobody can tell does not, unless `allow_unknown` was said."""
        return self.outcome.code == EXIT_VALID

    @property
    def verdict(self) -> Words:
        """verdict.json."""
        return self.outcome.verdict

    @property
    def findings(self) -> Sequence[Words]:
        """Groups of findings, also permitted ones, as verdict.json has them."""
        return tuple(self.verdict.get("findings") or ())

    @property
    def bugs(self) -> tuple[str, ...]:
        """The names of those that fail the gate, the worst first."""
        return tuple(found["name"] for found in self.outcome.failing)

    @property
    def unknown(self) -> Sequence[Words]:
        """What the judge may have missed, and why."""
        return self.outcome.unknown

    @property
    def report(self) -> str:
        """What `floodmark check` says of it, and where it is."""
        page = self.folder / REPORT
        there = [f"page: {page}"] if page.is_file() else []
        return "\n".join([visible(report_of(self.outcome)), *there, visible(str(self.folder))])

    def __repr__(self) -> str:
        findings = "".join(f", {found['name']} {found['count']}" for found in self.findings)
        return visible(f"<run {self.folder}: {self.outcome.word}{findings}>")


# -- runs ---------------------------------------------------------------------------------------------------


def start_judge() -> None:
    """Returns when Spark is ready: its start takes a machine, which no cluster should have to share."""
    catalog.can_judge()
    catalog.warm_judge()


def judged_run(folder: Path, words: Words) -> JudgedRun:
    """Plays the run into this folder and judges it. UsageError for words that are off, FloodmarkError where
    there is nothing to be judged."""
    refuse_a_running_loop()
    words = dict(words)
    policy = gate(strict=bool(words.pop("strict", False)), allow=tuple(words.pop("allow", ())),
                  allow_unknown=bool(words.pop("allow_unknown", False))).policy
    if "scenario" in words:
        return judged(scenario_played(folder, words), policy)
    options, schedule = options_of(folder, words)
    return judged(played(planned(options, schedule)), policy)


def options_of(folder: Path | None, words: Words) -> tuple[RunOptions, Schedule | None]:
    """What `floodmark run` would be asked; and a schedule that was given as data."""
    refuse_unknown("floodmark_run", words, (*RUN_WORDS, "scenario", *GATE_WORDS))
    plain = as_options(words)
    given = plain.pop("schedule", None)
    options = RunOptions(**plain, out=folder, given=frozenset(words))
    if options.settings not in (FIXED, DRAWN):
        raise UsageError(f"settings is {options.settings!r}; valid: {FIXED}, {DRAWN}")
    if given is None:
        return options, None
    if options.nemesis != "none":
        raise UsageError("schedule and nemesis cannot both say what is to strike: leave one out")
    options = drawn_now(options, secrets.randbelow(2**31))
    nodes, partitions = nodes_of(options), range(options.partitions)
    if isinstance(given, str | Path):
        return options, json_form.load(Path(given), nodes=nodes, partitions=partitions)
    return options, json_form.read(given, nodes=nodes, partitions=partitions)


def drawn_now(options: RunOptions, seed: int) -> RunOptions:
    """The same, with nothing left to be drawn: a schedule names the nodes and partitions that there will be.
    seed: where the options have none."""
    seed = seed if options.seed is None else options.seed
    if options.settings == DRAWN:
        options = with_drawn_settings(options, seed)
    return replace(options, seed=seed, settings=FIXED)


def scenario_played(folder: Path, words: Words) -> Path:
    """The folder of a run in which every moment of the scenario came; FloodmarkError after TRIES without."""
    refuse_unknown("floodmark_run(scenario=...)", words, SCENARIO_WORDS)
    plain = as_options(words)
    scenarios = named(str(plain.pop("scenario")))
    if len(scenarios) > 1:
        raise UsageError(f"that is {len(scenarios)} scenarios: {', '.join(one.name for one in scenarios)}")
    case = Case(**{"rules": catalog.RULES[-1], **plain})
    for attempt in range(1, TRIES + 1):
        options = scenario_options(case, scenarios[0], folder)
        played(planned(options, scenarios[0].schedule))
        why = missed(scenarios[0], Run(folder=folder).about())
        if why is None:
            return folder
        click.echo(why, err=True)
        if attempt < TRIES:
            folder = folder.with_name(f"{folder.name}-again")
    raise FloodmarkError(f"the scenario's moments did not come, {TRIES} times: {why}; see {folder}")


def played(plan: RunPlan) -> Path:
    """The folder. What the cluster itself ended is judged; FloodmarkError for the rest."""
    try:
        result = record(plan)
    except FloodmarkError as error:
        if not plan.folder.exists() or not Run(folder=plan.folder).about().get("died"):
            raise FloodmarkError(f"{error}; what there is of the run is in {plan.folder}") from error
        return plan.folder
    if result.ended == INTERRUPTED:
        raise KeyboardInterrupt
    for line in missed_entries_text(plan.schedule, result.about):
        click.echo(line, err=True)
    return plan.folder


def judged(folder: Path, policy: Policy) -> JudgedRun:
    (verdict,) = catalog.judge().judge([folder])
    unsaved = save(folder, verdict)
    outcome = outcome_of(folder, verdict, policy, unsaved=bool(unsaved))
    if outcome.ruling.kind in (HARNESS, CUT_SHORT):
        raise FloodmarkError(f"the harness failed: {'; '.join(outcome.ruling.harness)}; see {folder}")
    if outcome.code == EXIT_VALID:
        shutil.rmtree(Run(folder=folder).nodes_folder, ignore_errors=True)
    page_beside(folder, outcome.ruling, outcome.verdict, outcome.reading)
    return JudgedRun(folder=folder, outcome=outcome)


def entries(words: Words) -> list[dict[str, Any]]:
    """What the nemesis of these words strikes, in the form that floodmark_run(schedule=...) takes."""
    refuse_unknown("floodmark_schedule", words, [name for name in RUN_WORDS if name != "schedule"])
    options = drawn_now(options_of(None, words)[0], SEED)
    assert options.seed is not None
    strikes = schedule_of_options(options, options.seed, nodes_of(options), config_of(options))
    return json_form.write(strikes.schedule)


# -- words --------------------------------------------------------------------------------------------------


def as_options(words: Words) -> dict[str, Any]:
    """In the form of RunOptions: of configs KEY=VALUE, of several nemeses one text."""
    plain = dict(words)
    for name in ("config", "topic_config"):
        if isinstance(config := plain.get(name), Mapping):
            plain[name] = tuple(f"{key}={value}" for key, value in config.items())
    for name in ("bugs", "config", "topic_config"):
        if name in plain:
            plain[name] = tuple(plain[name])
    if "nemesis" in plain and not isinstance(plain["nemesis"], str):
        plain["nemesis"] = ",".join(plain["nemesis"])
    return plain


def nodes_of(options: RunOptions) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, options.nodes + 1))


def refuse_unknown(who: str, words: Words, valid: Sequence[str]) -> None:
    for name in words:
        if name not in valid:
            raise UsageError(f"{who} does not know {name!r}; valid: {', '.join(valid)}")


def refuse_a_running_loop() -> None:
    """A run has an event loop of its own, which cannot stand in another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("floodmark's fixtures are for plain test functions: this one runs in an event loop")


# -- clusters -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUp:
    """A cluster of floodmark's brokers that any client may use. Every fault raises FloodmarkError where it
    cannot be done."""

    bootstrap: str
    folder: Path

    def state(self) -> Words:
        """Nodes, cuts; leader, epoch and ISR of each partition; LEO and HW of each replica."""
        return ask_cluster(self.folder, "state")

    def strike(self, fault: str, *nodes: str) -> None:
        """kill, stop, start, pause, resume, expire or power_cut."""
        ask_cluster(self.folder, fault, nodes=list(nodes))

    def kill(self, *nodes: str) -> None:
        self.strike("kill", *nodes)

    def stop(self, *nodes: str) -> None:
        self.strike("stop", *nodes)

    def start(self, *nodes: str) -> None:
        self.strike("start", *nodes)

    def pause(self, *nodes: str) -> None:
        self.strike("pause", *nodes)

    def resume(self, *nodes: str) -> None:
        self.strike("resume", *nodes)

    def expire(self, *nodes: str) -> None:
        self.strike("expire", *nodes)

    def power_cut(self, *nodes: str) -> None:
        self.strike("power_cut", *nodes)

    def cut(self, *nodes: str, others: Sequence[str] = (), one_way: bool = False) -> None:
        """From these others; none: from all other brokers."""
        ask_cluster(self.folder, "cut", nodes=list(nodes), others=list(others), one_way=one_way, reset=False)

    def cut_by(self, grudge: Mapping[str, Sequence[str]]) -> None:
        """Each node no longer hears those that it bears a grudge."""
        ask_cluster(self.folder, "cut", grudge=grudge)

    def heal(self) -> None:
        ask_cluster(self.folder, "heal")


@contextmanager
def cluster_up(folder: Path, words: Words) -> Iterator[ClusterUp]:
    """Up in a process of its own, which ends with this one."""
    refuse_a_running_loop()
    refuse_unknown("floodmark_cluster", words, CLUSTER_WORDS)
    usual = {field.name: field.default for field in fields(RunOptions) if field.name in CLUSTER_WORDS}
    asked = {"out": str(folder), **usual, **as_options(words)}
    log = folder.with_name(f"{folder.name}.log")
    with log.open("wb") as screen, subprocess.Popen(
        [sys.executable, "-P", "-m", CLUSTER_MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=screen) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(orjson.dumps(asked, option=orjson.OPT_APPEND_NEWLINE))
            process.stdin.flush()
            bootstrap = process.stdout.readline().decode().strip()
            if not bootstrap:
                words_of_it = log.read_text(encoding="utf-8", errors="replace").strip()
                raise FloodmarkError(f"the cluster did not come up: {words_of_it}")
            yield ClusterUp(bootstrap=bootstrap, folder=folder)
        finally:
            process.terminate()
            process.wait(ENDS_WITHIN_S)


