"""Plans, makes and judges a run: `floodmark run`.

Rules of its schedule, which is that of a file, or a random plan of nemeses
1. A nemesis that was named and is impossible here is refused; one that only `all` included is left out, with
   a remark.
2. If a nemesis was requested and nothing is planned, the plan has the reason: such a run proves less than
   requested, and its verdict is unknown.

On a user's own cluster (--bootstrap), which is asked before the run is planned
3. Faults are refused before the cluster is asked, unless its owner gave --i-may-break-this.
4. Its nodes and its brokers' settings are its own; options that choose them are refused.
5. Nothing of --client-config goes into the run's folder or a message.
"""

import asyncio
import configparser
import datetime
import functools
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import click

from floodmark.harness import __version__, catalog
from floodmark.harness.broker_config import broker_keys
from floodmark.harness.commands.broker_questions import refuse_config
from floodmark.harness.commands.drawn_settings import FLUSH, LAG, LEAST_ISR, SESSION, with_drawn_settings
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
from floodmark.harness.registered import NEMESIS as KIND
from floodmark.harness.report.phrases import command_line
from floodmark.harness.report.run_summary import NEMESIS, SCHEDULE_FILE, missed_entries_text, plan_text
from floodmark.harness.run import DONE, default_folder, link_latest, refuse_nonempty
from floodmark.harness.runner import RunResult, first_free_value, spread
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import ACTS, Schedule
from floodmark.harness.schedule.patterns import SESSION_S, PatternScope
from floodmark.harness.schedule.views import CLIENTS
from floodmark.harness.spec import DIRECT, DRAWN, PROXIED, TOPIC, RunPlan, RunSpec, pairs
from floodmark.harness.verdict import EXIT_VALID, worst
from floodmark.nemesis.random_plans import overspends, plan
from floodmark.nemesis.strikes import draws, refusals, unavailable

SIMULATED_RATE = 100.0  # ops a second, of virtual time
CUT, MOMENTS = "cut", "moments"
FORMAT = "message.format.version"
UNTRACED = "they are observed in the trace: leave out --no-trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSchedule:
    """A schedule and remarks for the user. no_faults_reason: why a requested nemesis has no fault in it."""

    schedule: Schedule
    remarks: tuple[str, ...] = ()
    no_faults_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """A run, and what is known of the cluster for which its schedule is made."""

    spec: RunSpec  # with its seed
    nodes: tuple[str, ...]
    min_insync_replicas: int
    leaders: tuple[str, ...] = ()  # the preferred ones of the partitions; empty: unknown
    session_s: float = SESSION_S  # of a broker's session
    unsupported: Mapping[str, str] = field(default_factory=dict)  # nemeses that are impossible here, and why
    flush_every: bool = False  # every write is fsynced: a power cut loses nothing
    lacks: Mapping[Any, str] = field(default_factory=dict)  # the cluster's, if it is known already


# -- a run ------------------------------------------------------------------------------------------------

def run_and_judge(spec: RunSpec, gate: Gate) -> int:
    """Plans, makes, judges and reports a run; the last line on stdout is the folder, also after a failure.
    A run in its default folder becomes histories/runs/latest."""
    plan = planned(spec) if spec.bootstrap is None else planned_on_own(spec)
    refuse_nonempty(plan.folder)
    catalog.can_judge()  # before the run: a missing Java should be reported at once
    say(plan_text(plan))
    try:
        result = record(plan)
        if spec.out is None:
            link_latest(plan.folder)
        return judged(plan, result, gate)
    except FloodmarkError as error:
        if not plan.folder.exists():
            raise
        say(f"floodmark: {error}\nto see the incomplete run: {command_line('show', plan.folder)}")
        if has_died(plan.folder):  # the cluster caused it: judge the run
            return worst(judge_and_report([plan.folder], gate))
        click.echo(str(plan.folder))
        return worst(not_judged([plan.folder], str(error), gate))


def judged(plan: RunPlan, result: RunResult, gate: Gate) -> int:
    """Judges a run that was just made. Its raw logs are deleted if it did not fail."""
    if result.ended != DONE:
        say(f"floodmark: the run ended early: {result.ended}")
    for line in missed_entries_text(plan.schedule, result.about):
        say(line)
    for key, how_far in result.about["final_reads"].get("lacking", {}).items():
        say(f"floodmark: partition {key} was not read to its end: {how_far}")
    code = worst(judge_and_report([plan.folder], gate))  # reads run.json too: an early end is not valid
    if code == EXIT_VALID:
        tidy(plan.folder)
    return code


def planned(spec: RunSpec, schedule: Schedule | None = None, *, ask_broker: bool = True) -> RunPlan:
    """The plan for the spec, with the given schedule or its own; UsageError for impossible options, and,
    unless ask_broker is False, for a config that no broker would start with."""
    spec = with_seed(spec)
    catalog.refuse_kafka(spec.cluster, spec.kafka)
    if spec.cluster == catalog.SIMULATED:
        spec = replace(spec, rate=spec.rate or SIMULATED_RATE)  # else time stands nearly still
    if spec.settings == DRAWN:
        spec = with_drawn_settings(spec)
    specs = spec.assignment or spread(spec.node_names, TOPIC, spec.partitions, spec.factor)
    strikes = PlannedSchedule(schedule=schedule) if schedule is not None else schedule_of(spec)
    schedule = strikes.schedule
    if spec.cluster in catalog.ALWAYS_CUT:
        spec = replace(spec, links=DIRECT)
    elif spec.links is None:  # proxied only if the schedule needs it
        spec = replace(spec, links=PROXIED if any(entry.f == CUT for entry in schedule) else DIRECT)
    for position, entry in enumerate(schedule):
        if entry.f == CUT and not can_cut(spec):
            raise UsageError(f"entry {position} of the schedule is a cut, and direct links cannot be cut: "
                             "use --links proxied, or leave --links out")
        # What a broker met is lost when it ends there: another end by SIGKILL would look like the armed one.
        if entry.f == "arm" and not spec.trace:
            raise UsageError(f"entry {position} of the schedule arms a failpoint, and {UNTRACED}")
    for remark in strikes.remarks:
        click.echo(remark, err=True)
    assert spec.out is not None, "with_seed gives it a folder"
    assert spec.links is not None, "they are chosen above"
    cluster = catalog.cluster(
        spec.cluster, spec.out, spec.nodes, rules=spec.rules, bugs=spec.bugs, config=spec.broker_config,
        links=spec.links, trace=spec.trace, kafka=spec.kafka, topics=spec.topics,
        topic_config=pairs(spec.topic_config, "-t"))
    if spec.trace and ability(cluster, Traces) is None:
        click.echo(f"no trace: {why_not(cluster, Traces)}", err=True)
        spec = replace(spec, trace=False)
    if ask_broker:
        refuse_config(cluster)
    return plan_on(cluster, specs, strikes, spec)


def with_seed(spec: RunSpec) -> RunSpec:
    seed = spec.seed if spec.seed is not None else secrets.randbelow(2**31)
    return replace(spec, seed=seed, out=spec.out or default_folder(seed, datetime.datetime.now()))


def plan_on(cluster: Cluster, specs: tuple[PartitionSpec, ...], strikes: PlannedSchedule, spec: RunSpec,
            *, run_id: str | None = None, library: Mapping[str, str] | None = None) -> RunPlan:
    """The plan on this cluster, of a spec with seed, folder and links. library: see WorkloadSettings."""
    assert spec.seed is not None, "the schedule was made from it"
    addressed = ability(cluster, Addressed)
    simulated = ability(cluster, Simulates) is not None  # then the seed determines everything
    run_id = run_id or (Random(spec.seed).randbytes(8).hex() if simulated else secrets.token_hex(8))
    # Message formats before 0.11 have no headers.
    brokers, system = next(iter(cluster.config.values()), {}), cluster.system
    formats = {one.topic: str({
        FORMAT: brokers.get(f"log.{FORMAT}", ""), **system.get("topic_config", {}),
        **system.get("topics", {}).get(one.topic, {})}[FORMAT]) for one in specs}
    specs = tuple(replace(one, headers=not formats[one.topic].startswith(("0.8", "0.9", "0.10")))
                  for one in specs)
    settings = WorkloadSettings(
        run_id=run_id, seed=spec.seed, partitions=specs, clients=catalog.clients(cluster),
        addresses=None if addressed is None or simulated else addressed.addresses, acks=spec.acks,
        concurrency=max(1, spec.concurrency), first_value=first_free_value(strikes.schedule),
        library=library or {}, load=spec.load, wire=ability(cluster, MakesClients) is None)
    asked = {NEMESIS: spec.nemesis} if spec.schedule_file is None else {
        SCHEDULE_FILE: spec.schedule_file.stem}
    return RunPlan(
        spec=replace(spec, asked=asked if spec.asked is None else spec.asked), run_id=run_id,
        version=__version__, commit=own_commit(), cluster=cluster, partitions=specs,
        workload=catalog.workload(spec.workload, settings),
        schedule_runner=catalog.schedule_runner(cluster, specs, strikes.schedule),
        schedule=strikes.schedule, no_faults_reason=strikes.no_faults_reason)


# -- its schedule -----------------------------------------------------------------------------------------

def schedule_of(spec: RunSpec) -> PlannedSchedule:
    """The schedule on a cluster of floodmark's own, of the file or by the seed."""
    config = spec.broker_config
    topic_config = pairs(spec.topic_config, "-t")
    of_topic = {**topic_config, **spec.topics.get(TOPIC, {})}
    keys = {**broker_keys(config), **broker_keys(of_topic)}  # as the topic has them
    return make_schedule(PlanningContext(
        spec=spec,
        nodes=spec.node_names,
        leaders=spec.node_names[:spec.partitions],  # as spread() places them
        min_insync_replicas=whole_number(LEAST_ISR, keys[LEAST_ISR]),
        unsupported=catalog.unsupported_nemeses(
            spec.kafka, rules=spec.rules, bugs=spec.bugs, config=config, topic_config=topic_config),
        # At recovery Kafka does not flush what a killed broker had only written: a power cut may lose it.
        flush_every=spec.kafka is None and keys.get(FLUSH) == "1",
        session_s=whole_number(SESSION, config.get(SESSION, str(round(1000 * SESSION_S)))) / 1000,
    ))


def make_schedule(context: PlanningContext) -> PlannedSchedule:
    """The schedule of the file, with remarks on entries that overspend the budget; or a random one."""
    spec = context.spec
    requested = catalog.nemeses(spec.nemesis, spec.cluster)
    if spec.schedule_file is None:
        return random_schedule(context)
    given = spec.given - {"nemesis"} | ({"nemesis"} if requested else set())
    for name in sorted(given & {"nemesis", "interval", "overspend"}):
        raise UsageError(f"--schedule and --{name} exclude each other: leave one out")
    schedule = json_form.load(spec.schedule_file, nodes=context.nodes, partitions=range(spec.partitions))
    return PlannedSchedule(schedule=schedule, remarks=tuple(
        f"entry {one.position} overspends the guarantees: {one.why}" for one in overspends(
            schedule, min_insync_replicas=context.min_insync_replicas, flush_every=context.flush_every)))


def random_schedule(context: PlanningContext) -> PlannedSchedule:
    spec, remarks = context.spec, []
    assert spec.seed is not None, "the plan is drawn from it"
    requested, named = catalog.nemeses(spec.nemesis, spec.cluster), catalog.named(spec.nemesis)
    names = list(requested)
    for name, why, refusal in left_out(context):
        if name in names:
            if name in named and refusal is not None:
                raise UsageError(refusal)
            remarks.append(f"{name} is left out: {why}")
            names.remove(name)
    registered = draws({*names} - {*catalog.own_names(KIND)})
    scope = PatternScope(
        random=Random(spec.seed), nodes=tuple(context.nodes), partitions=tuple(range(spec.partitions)),
        overspend=spec.overspend, session_s=context.session_s, links_cut=can_cut(spec),
        cuts_reset="cut reset" not in context.lacks, clients_cut=f"cut {CLIENTS}" not in context.lacks,
        flush_every=context.flush_every, leaders=frozenset(context.leaders))
    schedule = plan(
        names, scope, duration_s=spec.duration, interval_s=spec.interval, registered=registered)
    if registered and not spec.overspend:
        for one in overspends(schedule, min_insync_replicas=context.min_insync_replicas,
                              flush_every=context.flush_every):
            raise UsageError(f"--nemesis {spec.nemesis} plans more faults than the guarantees tolerate, and "
                             f"--overspend was not given: {one.why}")
    no_faults_reason = None
    if requested and all(entry.f in ACTS for entry in schedule):
        too_short = (f"a run of {spec.duration:g} s is too short: the first act comes after 1 to 2 s, and "
                     "its faults are mended 1 s before the end: give a longer --duration")
        no_faults_reason = f"--nemesis {spec.nemesis}: {too_short if names else '; '.join(remarks)}"
    return PlannedSchedule(schedule=schedule, remarks=tuple(remarks), no_faults_reason=no_faults_reason)


def left_out(context: PlanningContext) -> Iterator[tuple[str, str, str | None]]:
    """Yields each nemesis that cannot strike here, why, and the refusal if it was named; None: none."""
    spec = context.spec
    where = "here" if spec.bootstrap is None else "on this cluster"
    for name, why in context.unsupported.items():
        yield name, why, f"--nemesis {name} is impossible {where}: {why}"
    if not can_cut(spec):
        yield (CUT, "direct links cannot be cut (--links proxied can)",
               "--nemesis cut needs links that can be cut: leave out --links direct, or leave out cut")
    if context.min_insync_replicas < 2 and not (spec.overspend or context.flush_every):
        yield ("power", "with min.insync.replicas=1 an ack may rest on the one copy that loses power, which "
               "exceeds the budget (--overspend allows it)", None)
    if not spec.trace:
        yield (MOMENTS, f"it arms failpoints, and {UNTRACED}",
               f"--nemesis {MOMENTS} arms failpoints, and {UNTRACED}, or leave out {MOMENTS}")


def can_cut(spec: RunSpec) -> bool:
    return spec.links != DIRECT or spec.cluster in catalog.ALWAYS_CUT


def whole_number(key: str, value: str) -> int:
    """A config value that must be a positive integer, because the budget depends on it."""
    if not value.isascii() or not value.isdecimal() or int(value) < 1:
        raise UsageError(f"-c {key} takes a positive integer, not {value!r}")
    return int(value)


# -- floodmark's own version ------------------------------------------------------------------------------

@functools.cache
def own_commit() -> str | None:
    """The commit that this process was started from: git is asked once."""
    return commit(Path(__file__).parents[1])


def commit(package: Path) -> str | None:
    """The commit of floodmark's own checkout. None if it was installed otherwise: an enclosing repository (a
    project with its environment inside) is not floodmark's. GIT_ variables are not passed on: in a git hook
    of another repository GIT_DIR is set."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    setup = configparser.ConfigParser(interpolation=None)
    try:
        ran = subprocess.run(["git", "-C", str(package), "rev-parse", "--show-toplevel", "HEAD"],
                             capture_output=True, text=True, timeout=60, check=True, env=plain)
        top, found = ran.stdout.splitlines()
        setup.read_string((Path(top) / "setup.cfg").read_text(encoding="utf-8"))
        ours = (Path(top) / package.name).samefile(package) and setup["metadata"]["name"] == "floodmark"
    except (OSError, ValueError, LookupError, subprocess.SubprocessError, configparser.Error):
        return None
    return found if ours else None


# -- on a user's own cluster ------------------------------------------------------------------------------

PORT = 9092
PLACE = "own"
LONG_S = 600.0  # a plan of this length contains every fault of a nemesis
_SESSIONS = (SESSION, "zookeeper.session.timeout.ms")
_SESSION_MS, _LAG_MS = "9000", "30000"  # Kafka's defaults


def planned_on_own(spec: RunSpec) -> RunPlan:
    """The plan of the run. UsageError for wrong options; FloodmarkError if no cluster answers."""
    from floodmark.harness.client.security import Security, read_client_config
    from floodmark.harness.cluster.fault_commands import read_fault_commands
    from floodmark.harness.cluster.own_cluster import OwnCluster, find

    addresses = addresses_of(spec.bootstrap or "")
    if spec.nemesis != "none" and not spec.may_break:
        raise UsageError(f"--nemesis {spec.nemesis} would break things on the cluster at {spec.bootstrap}: "
                         "give --i-may-break-this if you may decide that, or leave out --nemesis")
    security = Security() if spec.client_config is None else read_client_config(spec.client_config)
    if security.ignored:
        click.echo(f"{spec.client_config}: {', '.join(security.ignored)} are not about security and are left "
                   "alone", err=True)
    commands = None if spec.faults_file is None else read_fault_commands(spec.faults_file)
    spec = replace(with_seed(spec), cluster=PLACE, rules="", links=None)
    assert spec.out is not None
    refuse_nonempty(spec.out)
    found = asyncio.run(find(addresses, security))
    nodes = tuple(found.ids)
    run_id = secrets.token_hex(8)
    prefix = f"floodmark-{run_id}-"
    factor = min(3, len(nodes)) if spec.replication_factor is None else spec.replication_factor
    specs = spread(nodes, f"{prefix}{TOPIC}", spec.partitions, factor)
    given = {**pairs(spec.config), **pairs(spec.topic_config, "-t")}
    cluster = OwnCluster(found, spec.out, prefix=prefix, bootstrap=spec.bootstrap or "", security=security,
                         commands=commands, may_break=spec.may_break, topic_settings=given)
    shown = found.settings[0]
    session_ms = next((shown[key] for key in _SESSIONS if key in shown), _SESSION_MS)
    context = PlanningContext(
        spec=spec, nodes=nodes, lacks=cluster.lacks, session_s=whole_number(_SESSIONS[0], session_ms) / 1000,
        min_insync_replicas=whole_number(LEAST_ISR, given.get(LEAST_ISR) or shown.get(LEAST_ISR, "1")))
    impossible = {name: why for name in catalog.nemeses(spec.nemesis, PLACE)
                  if (why := why_impossible(cluster, name, context)) is not None}
    strikes = make_schedule(replace(context, unsupported=impossible))
    for remark in strikes.remarks:
        click.echo(remark, err=True)
    plan = plan_on(cluster, specs, strikes, replace(spec, links=DIRECT), run_id=run_id,
                   library=security.library_settings())
    # The longest time after which a broker takes another for lost, or a replica for one that lags.
    patience_ms = max(int(time_ms if time_ms.isdecimal() else _LAG_MS) for settings in found.settings
                      for time_ms in (settings.get(LAG, _LAG_MS), *map(settings.get, _SESSIONS)) if time_ms)
    return replace(plan, settle_timeout_s=max(plan.settle_timeout_s, 2 * patience_ms / 1000))


def why_impossible(cluster: Cluster, nemesis: str, context: PlanningContext) -> str | None:
    """Why this nemesis is impossible on the cluster; None: it is possible."""
    lacking = unavailable(cluster)
    for overspend in (context.spec.overspend, True):  # for some nothing is planned without
        schedule = random_schedule(replace(context, spec=replace(
            context.spec, nemesis=nemesis, duration=LONG_S, overspend=overspend))).schedule
        if schedule:
            break
    return next((lacking.get(entry.f, why) for entry in schedule for why in refusals(entry, cluster)), None)


def addresses_of(addresses_text: str) -> tuple[tuple[str, int], ...]:
    """The addresses in `HOST:PORT,[::1]:PORT,HOST`; the default port is 9092."""
    found = []
    for address_text in filter(None, (address_text.strip() for address_text in addresses_text.split(","))):
        host, colon, port = address_text.rpartition(":")
        if not colon or address_text.endswith("]"):
            host, port = address_text, str(PORT)
        if not host or "@" in host or "/" in host or not (port.isascii() and port.isdecimal()) or not (
                0 < int(port) < 65536):
            raise UsageError("--bootstrap takes HOST:PORT[,HOST:PORT...], with ports from 1 to 65535; "
                             "log-in data go into --client-config")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise UsageError("--bootstrap names no address")
    return tuple(found)
