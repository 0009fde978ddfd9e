"""Finds workloads, clusters, nemeses and the judge by name, and imports them late.

So `floodmark --help` starts no Spark, and a judge needs no client library.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from inspect import getattr_static
from pathlib import Path
from typing import Any

from floodmark.harness.broker_config import as_broker_keys
from floodmark.harness.client.security import Security
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import (
    Addressed,
    Clocks,
    Cluster,
    Elects,
    Expires,
    Failpoints,
    Judge,
    Kills,
    MakeClient,
    MakesClients,
    PartitionSpec,
    Pauses,
    PowerCuts,
    ScheduleRunner,
    Wipes,
    Workload,
    WorkloadSettings,
    ability,
    why_not,
)
from floodmark.harness.registered import (
    CLUSTER,
    NEMESIS,
    WORKLOAD,
    Registered,
    refuse_own_name,
    registered,
    registered_as,
)
from floodmark.harness.run_location import Far, Place
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.statistics_seams import Measures, Seen

RULES = ("high-watermark", "kip-101", "kip-279", "kip-320")  # the protocol generations, oldest first

WORKLOADS: Mapping[str, str] = {
    "idempotent": "floodmark.workloads.idempotent:make",
    "log": "floodmark.workloads.log:make",
}
REFERENCE = "reference"  # docker/broker, at one of RULES
KAFKA = "kafka"  # Apache Kafka, of a version or in a folder
SYSTEMS: Mapping[str, str] = {  # what runs
    REFERENCE: "floodmark.harness.cluster.reference.system:reference_system",
    KAFKA: "floodmark.harness.cluster.kafka.choice:kafka_system",
}
CLUSTERS: Mapping[str, str] = {  # where it lives
    "containers": "floodmark.harness.cluster.containers.cluster:containers_cluster",
    "local": "floodmark.harness.cluster.local.cluster:local_cluster",
    "memory": "floodmark.harness.cluster.memory.cluster:memory_cluster",
}
PLACES = frozenset({"containers", "local"})  # where a system can live; other clusters are both in one
NEMESES: tuple[str, ...] = ("crash", "restart", "pause", "cut", "power", "expire", "elect",
                            "controller", "moments")
# What only some clusters can suffer, and who knows whether this machine lets them.
MORE_NEMESES: tuple[str, ...] = ("packet", "clock", "disk", "memory")
# The ability of a cluster that a nemesis strikes by, where a system may lack it.
STRUCK_BY: Mapping[str, type] = {
    "crash": Kills, "restart": Kills, "controller": Kills, "pause": Pauses, "power": PowerCuts,
    "expire": Expires, "elect": Elects, "disk": Wipes, "moments": Failpoints,
    "clock": Clocks}
OFFERS: Mapping[str, str] = {
    "containers": "floodmark.harness.cluster.containers.cluster:offers",
}
ALWAYS_CUT = frozenset({"containers", "memory"})  # clusters whose links need no proxies to be cut
FIND_OWN = "floodmark.harness.cluster.own.cluster:find"  # what somebody runs himself, by its addresses
OWN_CLUSTER = "floodmark.harness.cluster.own.cluster:OwnCluster"
FAULT_COMMANDS = "floodmark.harness.cluster.own.fault_commands:read_fault_commands"
WIRE_CLIENTS = "floodmark.harness.client.client:wire_clients"
JUDGE = "floodmark.checkers.judge.job:SparkJudge"
MEASURE = "floodmark.checkers.stats.job:measure"
SEEN = "floodmark.checkers.stats.seen:seen"
HISTORY_TWIN = "floodmark.checkers.read.history_twin:keep"
WARM = "floodmark.checkers.spark.session:context"
LEAVE = "floodmark.checkers.spark.session:leave"
QUICKEN = "floodmark.checkers.spark.session:quicken"
FAR_FOLDERS = "floodmark.checkers.spark.hadoop:far_folders"
FIND_JAVA = "floodmark.checkers.spark.session:find_java"
CHECK_JAVA = "floodmark.checkers.spark.session:check_version"
DRAWS = "floodmark.nemesis.registered_nemeses:draws"
NEMESES_OF = "floodmark.nemesis.registered_nemeses:nemeses_of"
PLANNER = "floodmark.nemesis.random_plans:plan"
BUDGET = "floodmark.nemesis.budget:overspends"
ARSENAL = "floodmark.nemesis.compose:arsenal"
UNAVAILABLE = "floodmark.nemesis.compose:unavailable"
LIMITS = "floodmark.nemesis.refusals:limits_of"
SCHEDULE_RUNNER = "floodmark.nemesis.schedule_runner:ScheduleRunner"
BROKER_WORDS = "floodmark.broker.rule_names"  # run, never imported: which rules, bugs and switches there are
BROKER_CHECK = "floodmark.broker.check_config"  # likewise: whether a broker would serve these settings

_ALIASES = {"partition": "cut"}  # as Jepsen's users call it


def own_names(kind: str) -> tuple[str, ...]:
    """floodmark's own workloads, clusters or nemeses, in their order."""
    return {WORKLOAD: tuple(sorted(WORKLOADS)), CLUSTER: tuple(sorted(CLUSTERS)),
            NEMESIS: (*NEMESES, *MORE_NEMESES)}[kind]


def names(kind: str) -> tuple[str, ...]:
    """All that can be asked for: floodmark's own, and those that other distributions register."""
    own = own_names(kind)
    return (*own, *sorted({one.name for one in registered(kind)} - {*own}))


def listed(kind: str) -> str:
    """`idempotent, log, bank (of somebodys 0.3)`."""
    own = own_names(kind)
    return ", ".join((*own, *(one.brief for one in registered(kind) if one.name not in own)))


def refuse_name(kind: str, name: str) -> None:
    """UsageError where nothing has this name, or two have it. Nothing is imported."""
    if name in own_names(kind):
        refuse_own_name(kind, name)
    elif registered_as(kind, name) is None:
        raise UsageError(f"no {kind} {name!r}; there are: {listed(kind)}")


def refuse_unfit(one: Registered) -> None:
    """UsageError where this workload, cluster or nemesis could not be asked for by its name, or is unfit."""
    if one.name in own_names(one.kind):
        refuse_own_name(one.kind, one.name)
    registered_as(one.kind, one.name)
    if one.kind == NEMESIS:
        _load(DRAWS)([one.name])


def workload(name: str, settings: WorkloadSettings) -> Workload:
    made: Workload = _made(WORKLOAD, name, WORKLOADS, Workload)(settings)
    return made


def cluster(name: str, folder: Path, nodes: int, *, rules: str, bugs: Sequence[str],
            config: Mapping[str, str], links: str, first_port: int | None = None,
            trace: bool = True, kafka: str | None = None, topic_config: Mapping[str, str] | None = None,
            topics: Mapping[str, Mapping[str, str]] | None = None) -> Cluster:
    """Made, not started. kafka: which Apache Kafka runs, a version or a folder; None: the reference broker.
    topic_config: Kafka's keys of every topic created; topics: of single ones, which Kafka alone takes.
    first_port: of the first broker for clients; None takes free ones. trace: whether its processes write what
    happens in them."""
    make = _made(CLUSTER, name, CLUSTERS, Cluster)
    if kafka is not None and name not in PLACES:
        raise UsageError(f"the {name} cluster does not run Apache Kafka; {' and '.join(sorted(PLACES))} do: "
                         "--cluster local")
    if name in PLACES:
        runs = system(nodes, rules=rules, bugs=bugs, config=config, kafka=kafka, topic_config=topic_config,
                      topics=topics)
        at_place: Cluster = make(folder, runs, links=links, first_port=first_port, trace=trace)
        return at_place
    config = {**config, **as_broker_keys(topic_config or {})}
    made: Cluster = make(
        folder, nodes, rules=rules, bugs=bugs, config=config, links=links,
        first_port=first_port, trace=trace)
    return made


def system(nodes: int, *, rules: str, bugs: Sequence[str], config: Mapping[str, str], kafka: str | None,
           topic_config: Mapping[str, str] | None, topics: Mapping[str, Mapping[str, str]] | None = None
           ) -> Any:
    """What runs in one cluster. UsageError for what it does not take."""
    if kafka is None:
        return _load(SYSTEMS[REFERENCE])(
            nodes, rules=rules, bugs=bugs, config={**config, **as_broker_keys(topic_config or {})})
    return _load(SYSTEMS[KAFKA])(nodes, version_or_dir=kafka, rules=rules, bugs=bugs, config=config,
                                 topic_config=topic_config or {}, topics=topics or {})


def not_struck(kafka: str | None, rules: str) -> Mapping[str, str]:
    """Nemeses that what runs cannot suffer, and why."""
    if kafka is None:
        return {}
    lacks = system(1, rules=rules, bugs=(), config={}, kafka=kafka, topic_config=None).lacks
    return {name: lacks[kind] for name, kind in STRUCK_BY.items() if kind in lacks}


def find_own(bootstrap: Sequence[tuple[str, int]], security: Security) -> Any:
    """Somebody's own cluster, as its brokers describe it (own.cluster.Found). FloodmarkError: nobody
    answers."""
    return asyncio.run(_load(FIND_OWN)(bootstrap, security))


def own_cluster(found: Any, folder: Path, **words: Any) -> Cluster:
    """What was found, to be driven; nothing is asked of it yet. words: of own.cluster.OwnCluster."""
    made: Cluster = _load(OWN_CLUSTER)(found, folder, **words)
    return made


def fault_commands(file: Path) -> Any:
    """The owner's commands for faults; UsageError where the file is off."""
    return _load(FAULT_COMMANDS)(file)


def unavailable(cluster: Cluster) -> Mapping[str, str]:
    """Fault -> why this cluster cannot suffer it."""
    told: Mapping[str, str] = _load(UNAVAILABLE)(cluster)
    return told


def clients(cluster: Cluster) -> MakeClient:
    """What makes clients of this cluster: its own, or those that speak Kafka's wire to its addresses."""
    own, addressed = ability(cluster, MakesClients), ability(cluster, Addressed)
    if own is not None:
        return own.client
    if addressed is None:
        raise UsageError(f"no client can ask this cluster: {why_not(cluster, Addressed)}")
    made: MakeClient = _load(WIRE_CLIENTS)(addressed.addresses)
    return made


def nemeses(words: str, cluster: str = "local") -> tuple[str, ...]:
    """`--nemesis crash,cut`, all (of floodmark's own that this cluster can suffer here) or none, in the
    catalogue's order; those of other distributions, which must be named, come last."""
    asked = named(words)
    valid = own_names(NEMESIS)
    others = sorted(set(asked) - {*valid, "all", "none"})
    for name in others:
        if registered_as(NEMESIS, name) is None:
            raise UsageError(f"no nemesis {name!r}; there are: {listed(NEMESIS)}, all, none")
    for name in (*valid, "all", "none"):
        if name in asked:
            refuse_own_name(NEMESIS, name)
    offered = frozenset(NEMESES)
    if cluster not in CLUSTERS:
        offered -= {"moments"}  # nobody else's brokers have our failpoints
    if cluster in OFFERS and {"all", *MORE_NEMESES} & set(asked):
        offered |= _load(OFFERS[cluster])()
    if missing := [name for name in valid if name in asked and name not in offered]:
        raise UsageError(f"the {cluster} cluster has no {', '.join(missing)} here: "
                         f"'floodmark doctor --cluster {cluster}' says why")
    own = (name for name in valid if name in asked or ("all" in asked and name in offered))
    return (*own, *others)


def named(words: str) -> tuple[str, ...]:
    """The words of `--nemesis`, each by its own name."""
    return tuple(_ALIASES.get(word, word) for word in (word.strip() for word in words.split(",")) if word)


def plan(names: Sequence[str], *, seed: int, nodes: Sequence[str], partitions: Sequence[int],
         duration_s: float, interval_s: float, overspend: bool, session_s: float, links_cut: bool,
         flush_every: bool = False) -> Schedule:
    """A random nemesis: the same arguments give the same schedule."""
    if not names:
        return ()
    others = set(names) - {*own_names(NEMESIS)}
    made: Schedule = _load(PLANNER)(
        names, seed=seed, nodes=nodes, partitions=partitions, duration_s=duration_s, interval_s=interval_s,
        overspend=overspend, session_s=session_s, links_cut=links_cut, flush_every=flush_every,
        registered=_load(DRAWS)(others) if others else {})
    return made


def overspends(schedule: Schedule, *, min_insync_replicas: int, flush_every: bool = False) -> Sequence[Any]:
    """The entries (position, why) by which a schedule goes beyond what the guarantees tolerate."""
    found: Sequence[Any] = _load(BUDGET)(
        schedule, min_insync_replicas=min_insync_replicas, flush_every=flush_every)
    return found


def schedule_runner(cluster: Cluster, partitions: Sequence[PartitionSpec], schedule: Schedule = ()
                    ) -> ScheduleRunner:
    """What carries out schedules against this cluster, with every fault the cluster can suffer, and those of
    this schedule that other distributions bring."""
    nemeses = (*_load(ARSENAL)(cluster), *_load(NEMESES_OF)(schedule, cluster))
    made: ScheduleRunner = _load(SCHEDULE_RUNNER)(nemeses, partitions, _load(LIMITS)(cluster))
    return made


class ToStderr(logging.Handler):
    """Plain lines, on what is standard error then."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


def judge(workers: Workers = HERE) -> Judge:
    """What it says of long work, stage by stage, goes to standard error."""
    log = logging.getLogger("floodmark.judge")
    if not log.handlers:
        log.addHandler(ToStderr())
        log.setLevel(logging.INFO)
        log.propagate = False
    made: Judge = _load(JUDGE)(workers)
    return made


def measure(folders: Sequence[Place], workers: Workers = HERE) -> Measures:
    """What faults cost clients in these runs; each folder keeps its own."""
    made: Measures = _load(MEASURE)(folders, workers)
    return made


def seen(folder: Path, near: Sequence[tuple[int, int, int]], ops_at_most: int) -> Seen:
    """What the page of this run draws of its clients. near: (partition, first offset, the offset behind the
    last), where acked records are wanted one by one. OSError where the history cannot be read."""
    made: Seen = _load(SEEN)(folder, near, ops_at_most)
    return made


def keep_parquet(history: Path) -> None:
    """A big history as Parquet beside its lines, for the judge's next look. OSError: it could not be."""
    _load(HISTORY_TWIN)(history)


def quicken_judge() -> bool:
    """Whether something was begun that the next process's judge starts quicker by; nobody waits for it."""
    begun: bool = _load(QUICKEN)()
    return begun


def warm_judge() -> None:
    """Starts the judge's Spark now, before there is anything to judge."""
    _load(WARM)()


def leave_judge() -> None:
    """Ends the judge's Spark, where this process has started one, and waits until it has tidied up."""
    if LEAVE.partition(":")[0] in sys.modules:
        with suppress(Exception):  # whatever is wrong with it, we are leaving
            _load(LEAVE)()


def far_folders(word: str, workers: Workers = HERE) -> Sequence[Far]:
    """The run folders that an address of a far file system names; UsageError where there are none."""
    found: Sequence[Far] = _load(FAR_FOLDERS)(word, workers)
    return found


def can_judge() -> None:
    """FloodmarkError that says what to install, where this machine lacks what the judge needs."""
    _load(CHECK_JAVA)(_load(FIND_JAVA)())


def _made(kind: str, name: str, own: Mapping[str, str], protocol: type) -> Callable[..., Any]:
    """What makes this workload or cluster. Of one that another distribution brings it is looked at what comes
    out: a mistake of its author is told as such."""
    if name in own:
        factory: Callable[..., Any] = _load(own[name])
        return factory
    refuse_name(kind, name)
    one = registered_as(kind, name)
    assert one is not None, name
    brought = one.load()

    def make(*args: Any, **words: Any) -> Any:
        try:
            made = brought(*args, **words)
        except FloodmarkError:
            raise
        except Exception as error:
            raise UsageError(f"the {one} cannot be made: {type(error).__name__}: {error}: mend "
                             f"{one.entry.value}, or leave it out") from error
        lacks = [part for part in sorted(vars(protocol))
                 if not part.startswith("_") and getattr_static(made, part, None) is None]
        if lacks:
            raise UsageError(f"the {one} is no {protocol.__name__} of floodmark.harness.protocols: it lacks "
                             f"{', '.join(lacks)}")
        if made.name != name:
            raise UsageError(f"the {one} says that its name is {made.name!r}: let it be {name!r}, by which a "
                             f"saved run finds it again")
        return made

    return make


def _load(dotted: str) -> Any:
    module, _, attribute = dotted.partition(":")
    return getattr(import_module(module), attribute)
