"""Makes and judges runs, starts clusters and applies faults to them, for pytest's fixtures.

Rules
1. A run that the harness could not make, or that was interrupted, is an error, not a verdict.
2. The page of an invalid run is written into its folder, as by `floodmark check`.
3. Unknown keywords are refused with a list of the valid ones.
4. The schedule of a nemesis on a cluster is the one that `floodmark run` makes for it and this seed; the
   cluster's process carries it out. At the end, for whatever reason, everything is mended; if that fails, or
   a fault could not be applied, or a moment did not come, the test fails.
"""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import click
import orjson

from floodmark.harness import catalog
from floodmark.harness.commands.cluster import ask_cluster
from floodmark.harness.commands.drawn_settings import with_drawn_settings
from floodmark.harness.commands.run import planned, schedule_of
from floodmark.harness.commands.scenario import part_of, plan_of
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.pipeline import TRIES, Play, gate, has_died, judge, play_one, say, tidy
from floodmark.harness.report.run_page import REPORT, write_page_if_invalid
from floodmark.harness.report.run_summary import CUT_SHORT, HARNESS, missed_entries_text
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.verdict_text import Outcome, outcome_of
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Schedule
from floodmark.harness.spec import CLUSTER_OPTIONS, DRAWN, FIXED, OPTIONS, RunSpec, decoded
from floodmark.harness.verdict import EXIT_VALID, Policy

CLUSTER_MODULE = "floodmark.harness.commands.cluster"
# `schedule` may be data, too. The fixtures choose the folders, and have no cluster of a user's own.
RUN_KEYWORDS = tuple(name.removesuffix("_file") for name, about in OPTIONS.items()
                     if name != "out" and about.own_cluster != "takes")
SCENARIO_KEYWORDS = ("scenario", "rules", "bugs", "config", "cluster")
GATE_KEYWORDS = ("strict", "allow", "allow_unknown")
SEED = 1  # of a schedule without a seed
ENDS_WITHIN_S = 60.0
NEMESES = ("crash", "restart", "pause", "cut", "power", "expire")
NEMESIS_KEYWORDS = ("nemesis", "interval", "seed")
AT_MOST_S = 3600.0  # of faults
Keywords = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JudgedRun:
    """A run and its verdict."""

    folder: Path
    outcome: Outcome

    @property
    def valid(self) -> bool:
        """Whether the run passes the gate. Unknown does not pass, unless `allow_unknown` was given."""
        return self.outcome.code == EXIT_VALID

    @property
    def verdict(self) -> Keywords:
        """verdict.json."""
        return self.outcome.reading.verdict

    @property
    def findings(self) -> Sequence[Keywords]:
        """The groups of findings, also permitted ones, in verdict.json's form."""
        return tuple(self.verdict.get("findings") or ())

    @property
    def bugs(self) -> tuple[str, ...]:
        """The names of the findings that fail the gate, the worst first."""
        return tuple(found["name"] for found in self.outcome.failing)

    @property
    def unknown(self) -> Sequence[Keywords]:
        """The verdict's `unknown`: what the judge may have missed, and why."""
        return self.outcome.unknown

    @property
    def report(self) -> str:
        """The report of `floodmark check`, and the run's folder."""
        page = self.folder / REPORT
        there = [f"page: {page}"] if page.is_file() else []
        return "\n".join([escape_controls(click.unstyle(self.outcome.report), breaks=True), *there,
                          escape_controls(str(self.folder))])

    def __repr__(self) -> str:
        findings = "".join(f", {found['name']} {found['count']}" for found in self.findings)
        return escape_controls(f"<run {self.folder}: {self.outcome.ruling.word}{findings}>")


# -- runs ---------------------------------------------------------------------------------------------------

def start_judge() -> None:
    """Returns when Spark is ready. Its start uses all processors, so no cluster should run meanwhile."""
    catalog.can_judge()
    catalog.warm_judge()


def judged_run(folder: Path, keywords: Keywords) -> JudgedRun:
    """Makes a run and judges it. UsageError for wrong keywords, FloodmarkError if nothing can be judged."""
    refuse_a_running_loop()
    given = {name: value for name, value in keywords.items() if name not in GATE_KEYWORDS}
    allow = keywords.get("allow", ())
    policy = gate(strict=bool(keywords.get("strict", False)),
                  allow=(allow,) if isinstance(allow, str) else tuple(allow),
                  allow_unknown=bool(keywords.get("allow_unknown", False))).policy
    if "scenario" in given:
        return judged(made(scenario_play(folder, given)), policy)
    plan = planned(*spec_of(folder, given))
    return judged(made(Play(title=folder.name, folder=folder, plan=lambda _: plan)), policy)


def spec_of(folder: Path | None, keywords: Keywords) -> tuple[RunSpec, Schedule | None]:
    """The run that the keywords say, and the schedule if one was given as data."""
    spec = replace(decoded_keywords("floodmark_run", keywords, (*RUN_KEYWORDS, "scenario", *GATE_KEYWORDS)),
                   out=folder, given=frozenset(keywords))
    given = keywords.get("schedule")
    if given is None:
        return spec, None
    if spec.nemesis != "none":
        raise UsageError("schedule and nemesis exclude each other: leave one out")
    spec = with_drawn(spec, secrets.randbelow(2**31))
    nodes, partitions = spec.node_names, range(spec.partitions)
    if isinstance(given, str | Path):
        return spec, json_form.load(Path(given), nodes=nodes, partitions=partitions)
    return spec, json_form.read(given, nodes=nodes, partitions=partitions)


def with_drawn(spec: RunSpec, seed: int) -> RunSpec:
    """The spec after drawing: a schedule needs the final nodes and partitions. seed: if the spec has none."""
    spec = replace(spec, seed=seed if spec.seed is None else spec.seed)
    return replace(with_drawn_settings(spec), settings=FIXED) if spec.settings == DRAWN else spec


def scenario_play(folder: Path, keywords: Keywords) -> Play:
    """A run of the scenario, which is repeated until every moment came."""
    case = decoded_keywords("floodmark_run(scenario=...)", keywords, SCENARIO_KEYWORDS)
    part = part_of(case)
    return Play(title=part.scenario.name, folder=folder, scenario=part.scenario, tries=TRIES,
                repeats_failures=False, plan=partial(plan_of, part, case.cluster))


def made(play: Play) -> Path:
    """Makes the run; returns its folder, also if the cluster ended it. FloodmarkError for other failures."""
    played = play_one(play)
    folder, error = played.folder, played.error
    if played.interrupted:
        raise KeyboardInterrupt
    if played.missed is not None:
        raise FloodmarkError(f"the scenario missed moments {played.tries} times: {played.missed}; "
                             f"see {folder}")
    if isinstance(error, UsageError):
        raise error
    if played.plan is not None and played.result is not None:
        for line in missed_entries_text(played.plan.schedule, played.result.about):
            say(line)
    elif not folder.exists() or not has_died(folder):
        raise FloodmarkError(f"{error}; the incomplete run is in {folder}") from error
    return folder


def judged(folder: Path, policy: Policy) -> JudgedRun:
    (one,) = judge([folder])
    outcome = outcome_of(one.folder, one.verdict, policy, one.unsaved)
    if outcome.ruling.kind in (HARNESS, CUT_SHORT):
        raise FloodmarkError(f"the harness failed: {'; '.join(outcome.ruling.harness)}; see {folder}")
    if outcome.code == EXIT_VALID:
        tidy(folder)
    write_page_if_invalid(folder, outcome.ruling, outcome.reading.verdict, outcome.reading)
    return JudgedRun(folder=folder, outcome=outcome)


def entries(keywords: Keywords) -> list[dict[str, Any]]:
    """The nemesis's schedule for these keywords, in the form of floodmark_run(schedule=...)."""
    refuse_unknown("floodmark_schedule", keywords, [name for name in RUN_KEYWORDS if name != "schedule"])
    return json_form.write(schedule_of(with_drawn(spec_of(None, keywords)[0], SEED)).schedule)


# -- keywords -----------------------------------------------------------------------------------------------

def decoded_keywords(who: str, keywords: Keywords, valid: Sequence[str]) -> RunSpec:
    """The keywords as a spec: several nemeses are one string there. UsageError for a wrong name or value."""
    refuse_unknown(who, keywords, valid)
    plain = dict(keywords)
    if "nemesis" in plain and not isinstance(plain["nemesis"], str):
        plain["nemesis"] = ",".join(plain["nemesis"])
    try:
        return decoded(plain)
    except ValueError as error:
        raise UsageError(str(error)) from error


def refuse_unknown(who: str, keywords: Keywords, valid: Sequence[str]) -> None:
    for name in keywords:
        if name not in valid:
            raise UsageError(f"{who} does not know {name!r}; valid: {', '.join(valid)}")


def refuse_a_running_loop() -> None:
    """Raises UsageError inside an event loop: a run needs a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("floodmark's fixtures are for plain test functions: this one runs in an event loop")


# -- clusters -----------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUp:
    """A cluster of floodmark's brokers for any client. An impossible fault raises FloodmarkError."""

    bootstrap: str
    folder: Path

    def state(self) -> Keywords:
        """The state: nodes, cuts; leader, epoch and ISR of each partition; LEO and HW of each replica."""
        return self.ask("state")

    def ask(self, do: str, **besides: Any) -> Keywords:
        return ask_cluster(self.folder, do, **besides)

    def strike(self, fault: str, *nodes: str) -> None:
        """Applies kill, stop, start, pause, resume, expire, power_cut or heal."""
        self.ask(fault, nodes=list(nodes))

    kill = partialmethod(strike, "kill")
    stop = partialmethod(strike, "stop")
    start = partialmethod(strike, "start")
    pause = partialmethod(strike, "pause")
    resume = partialmethod(strike, "resume")
    expire = partialmethod(strike, "expire")
    power_cut = partialmethod(strike, "power_cut")
    heal = partialmethod(strike, "heal")

    def cut(self, *nodes: str, others: Sequence[str] = (), one_way: bool = False) -> None:
        """Cuts the nodes from these others; none: from all other brokers."""
        self.ask("cut", nodes=list(nodes), others=list(others), one_way=one_way, reset=False)


@contextmanager
def cluster_up(folder: Path, keywords: Keywords) -> Iterator[ClusterUp]:
    """A context with a cluster in a process of its own, which ends with this one."""
    refuse_a_running_loop()
    spec = decoded_keywords("floodmark_cluster", keywords, CLUSTER_OPTIONS)
    options = {"out": str(folder), **{name: getattr(spec, name) for name in CLUSTER_OPTIONS}}
    log = folder.with_name(f"{folder.name}.log")
    with log.open("wb") as screen, subprocess.Popen(
        [sys.executable, "-P", "-m", CLUSTER_MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=screen) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(orjson.dumps(options, option=orjson.OPT_APPEND_NEWLINE))
            process.stdin.flush()
            bootstrap = process.stdout.readline().decode().strip()
            if not bootstrap:
                output = log.read_text(encoding="utf-8", errors="replace").strip()
                raise FloodmarkError(f"the cluster did not come up: {output}")
            yield ClusterUp(bootstrap=bootstrap, folder=folder)
        finally:
            process.terminate()
            process.wait(ENDS_WITHIN_S)


# -- faults on a cluster ----------------------------------------------------------------------------------

@contextmanager
def striking(cluster: ClusterUp, keywords: Keywords) -> Iterator[Sequence[str]]:
    """A context in which faults strike; yields the list of those that struck so far, a line each."""
    refuse_unknown("floodmark_nemesis", keywords, NEMESIS_KEYWORDS)
    names = keywords.get("nemesis", "crash")
    names = names if isinstance(names, str) else ",".join(names)
    for name in catalog.named(names):
        if name not in NEMESES:
            raise UsageError(f"floodmark_nemesis has no {name!r}; it has: {', '.join(NEMESES)}")
    schedule = entries({"seed": SEED, "interval": 1.0, **keywords, "nemesis": names, "duration": AT_MOST_S,
                        "nodes": len(cluster.state()["nodes"])})
    cluster.ask("nemesis", schedule=schedule)
    try:
        yield StruckSoFar(cluster)
    finally:
        failure = cluster.ask("end_nemesis")["failure"]
        cluster.ask("mend")
    if failure is not None:
        raise FloodmarkError(failure)


@dataclass(frozen=True, slots=True)
class StruckSoFar(Sequence[str]):
    """The strikes so far, a line each; the cluster's process knows them."""

    cluster: ClusterUp

    def __len__(self) -> int:
        return len(self._now())

    def __getitem__(self, at: Any) -> Any:
        return self._now()[at]

    def __repr__(self) -> str:
        return repr(self._now())

    def _now(self) -> list[str]:
        struck: list[str] = self.cluster.ask("struck")["struck"]
        return struck
