"""Plans, makes and judges a run: `floodmark run`."""

import configparser
import datetime
import functools
import os
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import click

from floodmark.harness import __version__, catalog
from floodmark.harness.broker_config import broker_keys
from floodmark.harness.campaign.cases import DRAWN, FIXED
from floodmark.harness.commands import drawn_settings, planned_schedule
from floodmark.harness.commands.broker_questions import refuse_config
from floodmark.harness.commands.planned_schedule import PlannedSchedule
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.pipeline import Gate, has_died, judge_and_report, not_judged, record, say, tidy
from floodmark.harness.protocols import (
    USUAL_LOAD,
    Addressed,
    Cluster,
    LoadShape,
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
from floodmark.harness.runner import RunPlan, RunResult, first_free_value, spread
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.schedule.patterns import SESSION_S
from floodmark.harness.verdict import EXIT_VALID, worst

TOPIC = "log"
SIMULATED_RATE = 100.0  # ops a second, of virtual time
_SESSION = "broker.session.timeout.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of the command line, as given."""

    cluster: str = "local"  # the place: local, containers, simulated
    kafka: str | None = None  # Apache Kafka, a version or a folder; None: the reference broker
    nodes: int = 3
    rules: str = catalog.RULES[-1]
    bugs: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    topic_config: tuple[str, ...] = ()
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # single topics' keys
    links: str | None = None
    workload: str = "log"
    concurrency: int = 10
    rate: float | None = None
    partitions: int = 4
    replication_factor: int | None = None  # None: 3, or as many as there are nodes
    assignment: tuple[PartitionSpec, ...] = ()  # exactly these partitions, instead of the two above
    acks: str = "all"
    nemesis: str = "none"
    interval: float = 5.0
    overspend: bool = False
    schedule_file: Path | None = None
    trace: bool = True
    settings: str = FIXED
    given: frozenset[str] = frozenset()  # set by the user: nothing is drawn for these
    load: LoadShape = USUAL_LOAD
    drawn: Mapping[str, Any] | None = None  # what was drawn; None: nothing
    seed: int | None = None
    duration: float = 30.0
    out: Path | None = None
    reproduces: Mapping[str, Any] | None = None  # run.json's `reproduces`, for a reproduction
    asked: Mapping[str, Any] | None = None  # run.json's keys on what is tested; None: from these options


def run_and_judge(options: RunOptions, through: Gate) -> int:
    """Makes, judges and reports a run; the last line on stdout is the folder, also after a failure."""
    return run_plan(planned(options), through, is_latest=options.out is None)


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
    rules = f"rules {plan.rules}, " if plan.rules and not is_kafka(about) else ""
    return (f"{system_text(about)}, {rules}seed {plan.seed}, "
            f"{plan.duration_s:g} s, {many(strikes, 'fault')} planned; folder {plan.folder}{nothing}")


def planned(options: RunOptions, schedule: Schedule | None = None, *,
            ask_broker: bool = True) -> RunPlan:
    """The plan for the options, with the given schedule or their own; UsageError for impossible options, and,
    unless ask_broker is False, for a config that no broker would start with."""
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    if options.cluster == catalog.SIMULATED and options.rate is None:  # else time stands nearly still
        options = replace(options, rate=SIMULATED_RATE)
    if options.settings == DRAWN:
        options = with_drawn_settings(options, seed)
    folder = options.out or default_folder(seed, datetime.datetime.now())
    nodes = tuple(f"n{index}" for index in range(1, options.nodes + 1))
    specs = options.assignment or spread(nodes, TOPIC, options.partitions, factor_of(options))
    config = config_of(options)
    strikes = (PlannedSchedule(schedule=schedule) if schedule is not None
               else schedule_of_options(options, seed, nodes, config))
    schedule = strikes.schedule
    links = links_of(options, schedule)
    planned_schedule.refuse_cuts(schedule, options.cluster, links)
    if not options.trace:
        planned_schedule.refuse_untraced(schedule)
    for remark in strikes.remarks:
        click.echo(remark, err=True)
    cluster = cluster_of(options, folder, config, links)
    if options.trace and ability(cluster, Traces) is None:
        click.echo(f"no trace: {why_not(cluster, Traces)}", err=True)
        options = replace(options, trace=False)
    if ask_broker:
        refuse_config(cluster)
    return plan_on(cluster, specs, strikes, replace(options, seed=seed, out=folder), links=links)


def plan_on(cluster: Cluster, specs: tuple[PartitionSpec, ...], strikes: PlannedSchedule, options: RunOptions,
            *, links: str, run_id: str | None = None, library: Mapping[str, str] | None = None) -> RunPlan:
    """The plan of a run on this cluster; the options must have a seed and a folder. library: see
    WorkloadSettings."""
    assert options.seed is not None, "the schedule was made from it"
    assert options.out is not None, "the cluster was made in it"
    addressed = ability(cluster, Addressed)
    simulated = ability(cluster, Simulates) is not None  # then the seed determines everything
    run_id = run_id or (Random(options.seed).randbytes(8).hex() if simulated else secrets.token_hex(8))
    specs = tuple(replace(spec, headers=has_headers(cluster, spec.topic)) for spec in specs)
    settings = WorkloadSettings(
        run_id=run_id,
        seed=options.seed,
        partitions=specs,
        clients=catalog.clients(cluster),
        addresses=None if addressed is None or simulated else addressed.addresses,
        acks=options.acks,
        concurrency=max(1, options.concurrency),
        first_value=first_free_value(strikes.schedule),
        library=library or {},
        load=options.load,
        wire=ability(cluster, MakesClients) is None,
    )
    return RunPlan(
        folder=options.out,
        run_id=run_id,
        version=__version__,
        commit=own_commit(),
        seed=options.seed,
        rules=options.rules,
        cluster=cluster,
        partitions=specs,
        workload=catalog.workload(options.workload, settings),
        schedule_runner=catalog.schedule_runner(cluster, specs, strikes.schedule),
        schedule=strikes.schedule,
        unstruck=strikes.unstruck,
        traced=options.trace,
        links=links,
        reproduces=options.reproduces,
        asked=asked_of(options),
        concurrency=options.concurrency,
        rate=options.rate,
        load=options.load,
        drawn=options.drawn,
        duration_s=options.duration,
    )


def has_headers(cluster: Cluster, topic: str) -> bool:
    """Whether records of this topic can have headers: message formats before 0.11 have none."""
    brokers = next(iter(cluster.config.values()), {})
    keys = {"message.format.version": brokers.get("log.message.format.version", ""),
            **cluster.system.get("topic_config", {}), **cluster.system.get("topics", {}).get(topic, {})}
    return not str(keys["message.format.version"]).startswith(("0.8", "0.9", "0.10"))


def with_drawn_settings(options: RunOptions, seed: int) -> RunOptions:
    """The options, with those that the user did not set drawn from the seed."""
    given = pairs((*options.config, *options.topic_config))
    drawn = drawn_settings.draw_settings(drawn_settings.RequestedSettings(
        given=options.given, nodes=options.nodes, partitions=options.partitions,
        replication_factor=options.replication_factor, acks=options.acks, workload=options.workload,
        interval_s=options.interval, config=broker_keys(given),
        # A schedule's own sends may say whom they ask, which the library chooses for itself.
        library=options.cluster in catalog.PLACES and options.schedule_file is None,
        simulated=options.cluster == catalog.SIMULATED,
        reference=options.kafka is None,
        of_topics=options.cluster in catalog.PLACES and not options.assignment), seed)
    return replace(
        options, nodes=drawn.nodes, partitions=drawn.partitions, workload=drawn.workload, load=drawn.load,
        replication_factor=drawn.replication_factor, interval=drawn.interval_s, drawn=drawn.recorded,
        topics={TOPIC: drawn.topic_config} if drawn.topic_config else {},
        config=(*(f"{key}={value}" for key, value in drawn.config.items()), *options.config))


def cluster_of(options: RunOptions, folder: Path, config: Mapping[str, str], links: str) -> Cluster:
    """Makes the cluster, not started."""
    return catalog.cluster(
        options.cluster,
        folder,
        options.nodes,
        rules=options.rules,
        bugs=options.bugs,
        config=config,
        links=links,
        trace=options.trace,
        kafka=options.kafka,
        topic_config=pairs(options.topic_config, "-t"),
        topics=options.topics,
    )


def asked_of(options: RunOptions) -> Mapping[str, Any]:
    """What is tested, as it was requested: reports name runs by it."""
    if options.asked is not None:
        return options.asked
    if options.schedule_file is not None:
        return {SCHEDULE_FILE: options.schedule_file.stem}
    return {NEMESIS: options.nemesis}


def links_of(options: RunOptions, schedule: Schedule) -> str:
    """The links as requested; by default proxied if the schedule needs it for a cut."""
    if options.cluster in catalog.ALWAYS_CUT:
        return "direct"
    return options.links or ("proxied" if any(entry.f == "cut" for entry in schedule) else "direct")


def factor_of(options: RunOptions) -> int:
    """The replication factor as requested, or the default."""
    return min(3, options.nodes) if options.replication_factor is None else options.replication_factor


def config_of(options: RunOptions) -> dict[str, str]:
    """Kafka's keys: the given ones, overriding a run's defaults."""
    factor = factor_of(options)
    usual = {"min.insync.replicas": str(max(1, factor - 1)), "default.replication.factor": str(factor)}
    return {**usual, **pairs(options.config)}


def schedule_of_options(options: RunOptions, seed: int, nodes: tuple[str, ...], config: Mapping[str, str]
                       ) -> PlannedSchedule:
    """The schedule of the file, or a random one from the seed."""
    context = planned_schedule.PlanningContext(
        cluster=options.cluster,
        nodes=nodes,
        partitions=tuple(range(options.partitions)),
        leaders=nodes[:options.partitions],  # as spread() places them
        links=options.links,
        min_insync_replicas=whole_number("min.insync.replicas", {
            **config, **pairs(options.topic_config, "-t"), **options.topics.get(TOPIC, {})}[
                "min.insync.replicas"]),
        seed=seed,
        duration_s=options.duration,
        interval_s=options.interval,
        overspend=options.overspend,
        unsupported=catalog.unsupported_nemeses(options.kafka, options.rules),
        trace=options.trace,
        # At recovery Kafka does not flush what a killed broker had only written: a power cut may lose it.
        flush_every=options.kafka is None and broker_keys(config).get(drawn_settings.FLUSH) == "1",
        session_s=whole_number(_SESSION, config.get(_SESSION, str(round(1000 * SESSION_S)))) / 1000,
    )
    if options.schedule_file is None:
        return planned_schedule.random_schedule(options.nemesis, context)
    if catalog.nemeses(options.nemesis, options.cluster):
        raise UsageError("--schedule and --nemesis exclude each other: leave one out")
    return planned_schedule.schedule_from_file(options.schedule_file, context)


def whole_number(key: str, value: str) -> int:
    """A config value that must be a positive integer, because the budget depends on it."""
    if not value.isascii() or not value.isdecimal() or int(value) < 1:
        raise UsageError(f"-c {key} takes a positive integer, not {value!r}")
    return int(value)


def pairs(words: tuple[str, ...], option: str = "-c") -> dict[str, str]:
    """`-c KEY=VALUE`, each."""
    split = [word.partition("=") for word in words]
    for key, equals, _ in split:
        if not key or not equals:
            raise UsageError(f"{option} takes KEY=VALUE, not {key + equals!r}")
    for word in words:
        if not word.strip().isprintable():
            raise UsageError(f"{option} {word!a}: a key and its value are one line without control "
                             "characters")
    return {key.strip(): value.strip() for key, _, value in split}


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
