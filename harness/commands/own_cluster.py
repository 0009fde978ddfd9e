"""Runs on a user's own cluster: `floodmark run --bootstrap`. The cluster is asked before the run is planned.

Rules
1. Faults are refused before the cluster is asked, unless its owner gave --i-may-break-this.
2. Its nodes and its brokers' settings are its own; options that choose them are refused.
3. Nothing of --client-config goes into the run's folder or a message.
"""

import asyncio
import secrets
from dataclasses import replace

import click

from floodmark.harness import catalog
from floodmark.harness.client.security import Security, read_client_config
from floodmark.harness.cluster.own.cluster import OwnCluster, find
from floodmark.harness.cluster.own.fault_commands import read_fault_commands
from floodmark.harness.commands.run import (
    PlanningContext,
    make_schedule,
    plan_on,
    random_schedule,
    whole_number,
    with_seed,
)
from floodmark.harness.errors import UsageError
from floodmark.harness.protocols import Cluster
from floodmark.harness.run import refuse_nonempty
from floodmark.harness.runner import spread
from floodmark.harness.spec import DIRECT, TOPIC, RunPlan, RunSpec, pairs
from floodmark.nemesis.strikes import refusals, unavailable

PORT = 9092
PLACE = "own"
LONG_S = 600.0  # a plan of this length contains every fault of a nemesis
_SESSIONS = ("broker.session.timeout.ms", "zookeeper.session.timeout.ms")
_SESSION_MS = "9000"  # Kafka's defaults
_LAG, _LAG_MS = "replica.lag.time.max.ms", "30000"
_INSYNC = "min.insync.replicas"


def planned_on_own(spec: RunSpec) -> RunPlan:
    """The plan of the run. UsageError for wrong options; FloodmarkError if no cluster answers."""
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
        min_insync_replicas=whole_number(_INSYNC, given.get(_INSYNC) or shown.get(_INSYNC, "1")))
    impossible = {name: why for name in catalog.nemeses(spec.nemesis, PLACE)
                  if (why := why_not(cluster, name, context)) is not None}
    strikes = make_schedule(replace(context, unsupported=impossible))
    for remark in strikes.remarks:
        click.echo(remark, err=True)
    plan = plan_on(cluster, specs, strikes, replace(spec, links=DIRECT), run_id=run_id,
                   library=security.library_settings())
    # The longest time after which a broker takes another for lost, or a replica for one that lags.
    patience_ms = max(int(time_ms if time_ms.isdecimal() else _LAG_MS) for settings in found.settings
                      for time_ms in (settings.get(_LAG, _LAG_MS), *map(settings.get, _SESSIONS)) if time_ms)
    return replace(plan, settle_timeout_s=max(plan.settle_timeout_s, 2 * patience_ms / 1000))


def why_not(cluster: Cluster, nemesis: str, context: PlanningContext) -> str | None:
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
