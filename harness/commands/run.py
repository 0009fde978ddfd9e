"""Plans, makes and judges a run: `floodmark run`."""

import configparser
import datetime
import functools
import os
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import click

from floodmark.harness import __version__, catalog
from floodmark.harness.broker_config import broker_keys
from floodmark.harness.commands import drawn_settings, planned_schedule
from floodmark.harness.commands.broker_questions import refuse_config
from floodmark.harness.commands.planned_schedule import PlannedSchedule
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.pipeline import Gate, has_died, judge_and_report, not_judged, record, say, tidy
from floodmark.harness.protocols import (
    Addressed,
    Cluster,
    MakesClients,
    PartitionSpec,
    Simulates,
    Traces,
    WorkloadSettings,
    ability,
    why_not,
)
from floodmark.harness.reports.case_names import NEMESIS, SCHEDULE_FILE, is_kafka, system_text
from floodmark.harness.reports.phrases import many
from floodmark.harness.reports.schedule_outcome import NO_STRIKES, missed_entries_text
from floodmark.harness.run import DONE, default_folder, link_latest, refuse_nonempty
from floodmark.harness.runner import RunResult, first_free_value, spread
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.schedule.patterns import SESSION_S
from floodmark.harness.spec import DIRECT, DRAWN, PROXIED, TOPIC, RunPlan, RunSpec, pairs
from floodmark.harness.verdict import EXIT_VALID, worst

SIMULATED_RATE = 100.0  # ops a second, of virtual time
_SESSION = "broker.session.timeout.ms"


def run_and_judge(spec: RunSpec, through: Gate) -> int:
    """Makes, judges and reports a run; the last line on stdout is the folder, also after a failure."""
    return run_plan(planned(spec), through, is_latest=spec.out is None)


def run_plan(plan: RunPlan, through: Gate, *, is_latest: bool) -> int:
    """Like run_and_judge, for an existing plan. is_latest: histories/runs/latest becomes this run, as it does
    for runs in their default folders."""
    refuse_nonempty(plan.folder)
    catalog.can_judge()  # before the run: a missing Java should be reported at once
    say(announced(plan))
    try:
        result = record(plan)
        if is_latest:
            link_latest(plan.folder)
        return judged(plan, result, through)
    except FloodmarkError as error:
        if not plan.folder.exists():
            raise
        say(f"floodmark: {error}\nto see the incomplete run: floodmark show {plan.folder}")
        if has_died(plan.folder):  # the cluster caused it: judge the run
            return worst(judge_and_report([plan.folder], through))
        click.echo(str(plan.folder))
        return worst(not_judged([plan.folder], str(error), through))


def judged(plan: RunPlan, result: RunResult, through: Gate) -> int:
    """Judges a run that was just made. Its raw logs are deleted if it did not fail."""
    if result.ended != DONE:
        say(f"floodmark: the run ended early: {result.ended}")
    for line in missed_entries_text(plan.schedule, result.about):
        say(line)
    for key, how_far in result.about["final_reads"].get("lacking", {}).items():
        say(f"floodmark: partition {key} was not read to its end: {how_far}")
    code = worst(judge_and_report([plan.folder], through))  # reads run.json too: an early end is not valid
    if code == EXIT_VALID:
        tidy(plan.folder)
    return code


def announced(plan: RunPlan) -> str:
    """The text printed before a run: its plan and its folder."""
    strikes = sum(entry.f not in NO_STRIKES for entry in plan.schedule)
    nothing = f"\nno fault will strike, so this run proves little: {plan.unstruck}" if plan.unstruck else ""
    about = {"cluster": plan.cluster.name, "nodes": list(plan.cluster.nodes), "system": plan.cluster.system}
    rules = f"rules {plan.spec.rules}, " if plan.spec.rules and not is_kafka(about) else ""
    return (f"{system_text(about)}, {rules}seed {plan.seed}, "
            f"{plan.spec.duration:g} s, {many(strikes, 'fault')} planned; folder {plan.folder}{nothing}")


def planned(spec: RunSpec, schedule: Schedule | None = None, *, ask_broker: bool = True) -> RunPlan:
    """The plan for the spec, with the given schedule or its own; UsageError for impossible options, and,
    unless ask_broker is False, for a config that no broker would start with."""
    spec = with_seed(spec)
    if spec.cluster == catalog.SIMULATED and spec.rate is None:  # else time stands nearly still
        spec = replace(spec, rate=SIMULATED_RATE)
    if spec.settings == DRAWN:
        spec = drawn_settings.with_drawn_settings(spec)
    specs = spec.assignment or spread(spec.node_names, TOPIC, spec.partitions, spec.factor)
    strikes = PlannedSchedule(schedule=schedule) if schedule is not None else schedule_of(spec)
    schedule = strikes.schedule
    spec = replace(spec, links=links_of(spec, schedule))
    planned_schedule.refuse_cuts(schedule, spec)
    if not spec.trace:
        planned_schedule.refuse_untraced(schedule)
    for remark in strikes.remarks:
        click.echo(remark, err=True)
    cluster = cluster_of(spec)
    if spec.trace and ability(cluster, Traces) is None:
        click.echo(f"no trace: {why_not(cluster, Traces)}", err=True)
        spec = replace(spec, trace=False)
    if ask_broker:
        refuse_config(cluster)
    return plan_on(cluster, specs, strikes, spec)


def with_seed(spec: RunSpec) -> RunSpec:
    """The spec with a seed and a folder."""
    seed = spec.seed if spec.seed is not None else secrets.randbelow(2**31)
    return replace(spec, seed=seed, out=spec.out or default_folder(seed, datetime.datetime.now()))


def plan_on(cluster: Cluster, specs: tuple[PartitionSpec, ...], strikes: PlannedSchedule, spec: RunSpec,
            *, run_id: str | None = None, library: Mapping[str, str] | None = None) -> RunPlan:
    """The plan of a run on this cluster; the spec must have a seed, a folder and links. library: see
    WorkloadSettings."""
    assert spec.seed is not None, "the schedule was made from it"
    addressed = ability(cluster, Addressed)
    simulated = ability(cluster, Simulates) is not None  # then the seed determines everything
    run_id = run_id or (Random(spec.seed).randbytes(8).hex() if simulated else secrets.token_hex(8))
    specs = tuple(replace(one, headers=has_headers(cluster, one.topic)) for one in specs)
    settings = WorkloadSettings(
        run_id=run_id,
        seed=spec.seed,
        partitions=specs,
        clients=catalog.clients(cluster),
        addresses=None if addressed is None or simulated else addressed.addresses,
        acks=spec.acks,
        concurrency=max(1, spec.concurrency),
        first_value=first_free_value(strikes.schedule),
        library=library or {},
        load=spec.load,
        wire=ability(cluster, MakesClients) is None,
    )
    return RunPlan(
        spec=replace(spec, asked=asked_of(spec)),
        run_id=run_id,
        version=__version__,
        commit=own_commit(),
        cluster=cluster,
        partitions=specs,
        workload=catalog.workload(spec.workload, settings),
        schedule_runner=catalog.schedule_runner(cluster, specs, strikes.schedule),
        schedule=strikes.schedule,
        unstruck=strikes.unstruck,
    )


def has_headers(cluster: Cluster, topic: str) -> bool:
    """Whether records of this topic can have headers: message formats before 0.11 have none."""
    brokers = next(iter(cluster.config.values()), {})
    keys = {"message.format.version": brokers.get("log.message.format.version", ""),
            **cluster.system.get("topic_config", {}), **cluster.system.get("topics", {}).get(topic, {})}
    return not str(keys["message.format.version"]).startswith(("0.8", "0.9", "0.10"))


def cluster_of(spec: RunSpec) -> Cluster:
    """Makes the cluster, not started."""
    assert spec.out is not None, "it is resolved before"
    assert spec.links is not None, "they are resolved before"
    return catalog.cluster(
        spec.cluster,
        spec.out,
        spec.nodes,
        rules=spec.rules,
        bugs=spec.bugs,
        config=spec.broker_config,
        links=spec.links,
        trace=spec.trace,
        kafka=spec.kafka,
        topic_config=pairs(spec.topic_config, "-t"),
        topics=spec.topics,
    )


def asked_of(spec: RunSpec) -> Mapping[str, Any]:
    """What is tested, as it was requested: reports name runs by it."""
    if spec.asked is not None:
        return spec.asked
    if spec.schedule_file is not None:
        return {SCHEDULE_FILE: spec.schedule_file.stem}
    return {NEMESIS: spec.nemesis}


def links_of(spec: RunSpec, schedule: Schedule) -> str:
    """The links as requested; by default proxied if the schedule needs it for a cut."""
    if spec.cluster in catalog.ALWAYS_CUT:
        return DIRECT
    return spec.links or (PROXIED if any(entry.f == "cut" for entry in schedule) else DIRECT)


def schedule_of(spec: RunSpec) -> PlannedSchedule:
    """The schedule of the file, or a random one from the seed."""
    config = spec.broker_config
    context = planned_schedule.PlanningContext(
        spec=spec,
        nodes=spec.node_names,
        leaders=spec.node_names[:spec.partitions],  # as spread() places them
        min_insync_replicas=whole_number("min.insync.replicas", {
            **config, **pairs(spec.topic_config, "-t"), **spec.topics.get(TOPIC, {})}["min.insync.replicas"]),
        unsupported=catalog.unsupported_nemeses(spec.kafka, spec.rules),
        # At recovery Kafka does not flush what a killed broker had only written: a power cut may lose it.
        flush_every=spec.kafka is None and broker_keys(config).get(drawn_settings.FLUSH) == "1",
        session_s=whole_number(_SESSION, config.get(_SESSION, str(round(1000 * SESSION_S)))) / 1000,
    )
    if spec.schedule_file is None:
        return planned_schedule.random_schedule(spec.nemesis, context)
    if catalog.nemeses(spec.nemesis, spec.cluster):
        raise UsageError("--schedule and --nemesis exclude each other: leave one out")
    return planned_schedule.schedule_from_file(spec.schedule_file, context)


def whole_number(key: str, value: str) -> int:
    """A config value that must be a positive integer, because the budget depends on it."""
    if not value.isascii() or not value.isdecimal() or int(value) < 1:
        raise UsageError(f"-c {key} takes a positive integer, not {value!r}")
    return int(value)




@functools.cache
def own_commit() -> str | None:
    """The commit that this process was started from: git is asked once."""
    return commit(Path(__file__).parents[1])


def commit(package: Path) -> str | None:
    """The commit of floodmark's own checkout. None if it was installed otherwise: an enclosing repository (a
    project with its environment inside) is not floodmark's."""
    top = git(package, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    root = Path(top)
    try:
        own = (root / package.name).samefile(package) and is_floodmarks(root / "setup.cfg")
    except OSError:
        return None
    return git(root, "rev-parse", "HEAD") if own else None


def is_floodmarks(setup: Path) -> bool:
    words = configparser.ConfigParser(interpolation=None)
    try:
        words.read_string(setup.read_text(encoding="utf-8"))
    except (configparser.Error, UnicodeDecodeError):
        return False
    return words.get("metadata", "name", fallback=None) == "floodmark"


def git(folder: Path, *words: str) -> str | None:
    """The output of a git command in a folder; None if it fails. GIT_ variables are not passed on: in a git
    hook of another repository GIT_DIR is set."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ran = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=60,
                              check=False, env=plain)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() or None
