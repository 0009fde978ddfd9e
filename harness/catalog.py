"""Finds workloads, clusters, nemeses and the judge by name, and imports them only when they are needed.

So `floodmark --help` starts no Spark, and judging needs no client library.
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from inspect import getattr_static
from pathlib import Path
from typing import Any

from floodmark.harness import faults
from floodmark.harness.broker_config import as_broker_keys
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import (
    Addressed,
    Cluster,
    Judge,
    MakeClient,
    MakesClients,
    PartitionSpec,
    ScheduleRunner,
    Workload,
    WorkloadSettings,
    ability,
    needed_for,
    why_not,
)
from floodmark.harness.registered import (
    CLUSTER,
    NEMESIS,
    WORKLOAD,
    Registered,
    own,
    refuse_own_name,
    registered,
    registered_as,
)
from floodmark.harness.run_location import Far
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.statistics_seams import ClientActivity, Measures

REFERENCE = "reference"  # docker/broker, at one of RULES
KAFKA = "kafka"  # Apache Kafka, of a version or in a folder
SYSTEMS: Mapping[str, str] = {  # the software that runs
    REFERENCE: "floodmark.harness.cluster.reference.system:reference_system",
    KAFKA: "floodmark.harness.cluster.kafka.choice:kafka_system",
}
BROKER_CLUSTER = "floodmark.harness.cluster.broker_cluster:BrokerCluster"  # of a system and a place
SIMULATED = "simulated"  # on virtual time: no library's clients, nobody else's
NEMESES = tuple(name for name, nemesis in faults.NEMESES.items() if nemesis.everywhere)
# Nemeses that only some clusters have. OFFERS: functions that find which of them work on this machine.
MORE_NEMESES = tuple(name for name in faults.NEMESES if name not in NEMESES)
OFFERS: Mapping[str, str] = {
    "containers": "floodmark.harness.cluster.containers.place:offers",
}
ALWAYS_CUT = frozenset({"containers", SIMULATED})  # clusters that can cut links without proxies
WIRE_CLIENTS = "floodmark.harness.client.client:wire_clients"
JUDGE = "floodmark.checkers.judge.job:SparkJudge"
LEAVE = "floodmark.checkers.spark.session:stop_spark"
FIND_JAVA = "floodmark.checkers.spark.session:find_java"
CHECK_JAVA = "floodmark.checkers.spark.session:check_version"
DRAWS = "floodmark.nemesis.registered_nemeses:draws"
NEMESES_OF = "floodmark.nemesis.registered_nemeses:nemeses_of"
PLANNER = "floodmark.nemesis.random_plans:plan"
STRIKES = "floodmark.nemesis.strikes:Strikes"
LIMITS = "floodmark.nemesis.refusals:limits_of"
SCHEDULE_RUNNER = "floodmark.nemesis.schedule_runner:ScheduleRunner"
# Programs, which are run and never imported, except for a simulation. BROKER_NAMES prints the names of all
# rules, bugs and switches; BROKER_CHECK checks whether a broker would start with some settings.
BROKER_NAMES = "floodmark.broker.rule_names"
BROKER_CHECK = "floodmark.broker.check_config"

_ALIASES = {"partition": "cut"}  # Jepsen's name
MEMORY = "memory"  # the former name of SIMULATED, and of what it was: an implementation of its own


def _load(dotted: str) -> Any:
    module, _, attribute = dotted.partition(":")
    return getattr(import_module(module), attribute)


def late(dotted: str) -> Callable[..., Any]:
    """A function that imports the function of this name when it is called. (`harness` may not import Spark or
    the broker.)"""

    def function(*args: Any, **options: Any) -> Any:
        return _load(dotted)(*args, **options)

    return function


# Of the judge's Spark: starts it before there is anything to judge; begins background work that lets the next
# process start it faster, and returns whether it did; the run folders that an address in another file system
# matches, UsageError where there are none.
warm_judge = late("floodmark.checkers.spark.session:context")
prepare_next_judge: Callable[[], bool] = late("floodmark.checkers.spark.session:build_archive_for_next_start")
far_folders: Callable[[str, Workers], Sequence[Far]] = late("floodmark.checkers.spark.hadoop:far_folders")
# Measures what faults cost clients in these runs; each folder stores its own measures.
measure: Callable[..., Measures] = late("floodmark.checkers.stats.job:measure")
# Reads the ops of a run's clients for its page: folder, ranges (partition, first offset, end offset) whose
# acked records are returned one by one, ops at most. OSError where the history cannot be read.
client_activity: Callable[[Path, Sequence[tuple[int, int, int]], int], ClientActivity] = late(
    "floodmark.checkers.stats.seen:seen")
# Writes a big history as Parquet beside its lines, which the judge reads faster next time; OSError.
keep_parquet: Callable[[Path], None] = late("floodmark.checkers.read.history_parquet:keep")
# Why no simulated broker would start with these settings, KEY=VALUE each; None: it would.
broker_refusal: Callable[[Sequence[str]], str | None] = late(f"{BROKER_CHECK}:find_problem")


def own_names(kind: str) -> tuple[str, ...]:
    """The names of floodmark's own workloads, clusters or nemeses, in the catalog's order."""
    return tuple(faults.NEMESES if kind == NEMESIS else own(kind))


def takes_system(cluster: str) -> bool:
    """Whether this is one of floodmark's own places, which run a system; clusters of other distributions have
    their own."""
    return cluster in own(CLUSTER)


def names(kind: str) -> tuple[str, ...]:
    """All valid names: floodmark's own, and those that other distributions register."""
    ours = own_names(kind)
    return (*ours, *sorted({one.name for one in registered(kind)} - {*ours}))


def present_name(name: str) -> str:
    """The name that a cluster has now."""
    return SIMULATED if name == MEMORY else name


def names_text(kind: str) -> str:
    """All valid names for a message, such as `idempotent, log, bank (of somebodys 0.3)`."""
    others = (one.name_and_distribution for one in registered(kind) if one.name not in own_names(kind))
    return ", ".join((*own_names(kind), *others))


def refuse_name(kind: str, name: str) -> None:
    """Raise UsageError where this name is unknown or ambiguous. Nothing is imported."""
    if name in own_names(kind):
        refuse_own_name(kind, name)
    elif registered_as(kind, name) is None:
        raise UsageError(f"no {kind} {name!r}; valid: {names_text(kind)}")


def refuse_unfit(one: Registered) -> None:
    """Raise UsageError where this workload, cluster or nemesis cannot be used under its name."""
    if one.name in own_names(one.kind):
        refuse_own_name(one.kind, one.name)
    registered_as(one.kind, one.name)
    if one.kind == NEMESIS:
        _load(DRAWS)([one.name])


def workload(name: str, settings: WorkloadSettings) -> Workload:
    """Make this workload."""
    made: Workload = _factory_of(WORKLOAD, name, Workload)(settings)
    return made


def cluster(name: str, folder: Path, nodes: int, *, rules: str, bugs: Sequence[str],
            config: Mapping[str, str], links: str, first_port: int | None = None,
            trace: bool = True, kafka: str | None = None, topic_config: Mapping[str, str] | None = None,
            topics: Mapping[str, Mapping[str, str]] | None = None) -> Cluster:
    """Make this cluster; it is not started. kafka: the Apache Kafka to run, a version, a folder or an image;
    None: the reference broker. topic_config: Kafka's keys for every new topic. topics: Kafka's keys for
    single topics, where a system runs. first_port: the first broker's port for clients; None: free
    ports. trace: whether its processes write traces."""
    make = _factory_of(CLUSTER, name, Cluster)
    if kafka is not None and not takes_system(name):
        raise UsageError(f"the {name} cluster does not run Apache Kafka; local and containers do: "
                         "--cluster local")
    if takes_system(name):
        runs = system(nodes, rules=rules, bugs=bugs, config=config, kafka=kafka, topic_config=topic_config,
                      topics=topics)
        at_place: Cluster = _load(BROKER_CLUSTER)(
            runs, make(folder, runs, links=links, first_port=first_port, trace=trace))
        return at_place
    config = {**config, **as_broker_keys(topic_config or {})}
    made: Cluster = make(
        folder, nodes, rules=rules, bugs=bugs, config=config, links=links,
        first_port=first_port, trace=trace)
    return made


def system(nodes: int, *, rules: str, bugs: Sequence[str], config: Mapping[str, str], kafka: str | None,
           topic_config: Mapping[str, str] | None, topics: Mapping[str, Mapping[str, str]] | None = None
           ) -> Any:
    """Make the system that runs in a cluster. UsageError for settings that it does not take."""
    if kafka is None:
        return _load(SYSTEMS[REFERENCE])(
            nodes, rules=rules, bugs=bugs, config={**config, **as_broker_keys(topic_config or {})},
            topics=topics)
    return _load(SYSTEMS[KAFKA])(nodes, version_or_dir=kafka, rules=rules, bugs=bugs, config=config,
                                 topic_config=topic_config or {}, topics=topics or {})



def import_simulated() -> None:
    """Import what simulated runs need, so that the processes that are forked for them have it."""
    for entry in (own(CLUSTER)[SIMULATED], *own(WORKLOAD).values()):
        entry.load()
    for dotted in (SYSTEMS[REFERENCE], WIRE_CLIENTS, PLANNER, "floodmark.nemesis.budget:overspends", STRIKES,
                   LIMITS, SCHEDULE_RUNNER):
        _load(dotted)


def unsupported_nemeses(kafka: str | None, rules: str) -> Mapping[str, str]:
    """The nemeses that this system does not support, and why."""
    if kafka is None:
        return {}
    lacks = system(1, rules=rules, bugs=(), config={}, kafka=kafka, topic_config=None).lacks
    needs = {name: needed_for(nemesis.faults[0].split()[0]) for name, nemesis in faults.NEMESES.items()}
    return {name: lacks[kind] for name, kind in needs.items() if kind in lacks}



def clients(cluster: Cluster) -> MakeClient:
    """The function that makes clients for this cluster: its own, or one for clients that connect to its
    addresses.
    """
    makes, addressed = ability(cluster, MakesClients), ability(cluster, Addressed)
    if makes is not None:
        return makes.client
    if addressed is None:
        raise UsageError(f"no client can connect to this cluster: {why_not(cluster, Addressed)}")
    made: MakeClient = _load(WIRE_CLIENTS)(addressed.addresses)
    return made


def nemeses(options: str, cluster: str = "local") -> tuple[str, ...]:
    """The nemeses that an option such as `--nemesis crash,cut` names, in the catalog's order, then those of
    other distributions. `all`: all of floodmark's own that this cluster supports on this machine."""
    requested = named(options)
    if "none" in requested and len(set(requested)) > 1:
        raise UsageError(f"--nemesis {options}: none goes with no other name; leave it out")
    valid = own_names(NEMESIS)
    others = sorted(set(requested) - {*valid, "all", "none"})
    for name in others:
        if registered_as(NEMESIS, name) is None:
            raise UsageError(f"no nemesis {name!r}; valid: {names_text(NEMESIS)}, all, none")
    for name in (*valid, "all", "none"):
        if name in requested:
            refuse_own_name(NEMESIS, name)
    offered = frozenset(NEMESES)
    if not takes_system(cluster):
        offered -= {"moments"}  # clusters of other distributions do not have our failpoints
    if cluster in OFFERS and {"all", *MORE_NEMESES} & set(requested):
        offered |= _load(OFFERS[cluster])()
    if missing := [name for name in valid if name in requested and name not in offered]:
        raise UsageError(f"the {cluster} cluster has no {', '.join(missing)} here: "
                         f"'floodmark doctor --cluster {cluster}' says why")
    ours = (name for name in valid if name in requested or ("all" in requested and name in offered))
    return (*ours, *others)


def named(options: str) -> tuple[str, ...]:
    """The names in `--nemesis`, with aliases replaced."""
    return tuple(_ALIASES.get(word, word) for word in (word.strip() for word in options.split(",")) if word)


def plan(names: Sequence[str], *, seed: int, nodes: Sequence[str], partitions: Sequence[int],
         duration_s: float, interval_s: float, overspend: bool, session_s: float, links_cut: bool,
         flush_every: bool = False, leaders: Sequence[str] = ()) -> Schedule:
    """Draw the schedule of a random nemesis; the same arguments give the same schedule."""
    if not names:
        return ()
    others = set(names) - {*own_names(NEMESIS)}
    made: Schedule = _load(PLANNER)(
        names, seed=seed, nodes=nodes, partitions=partitions, duration_s=duration_s, interval_s=interval_s,
        overspend=overspend, session_s=session_s, links_cut=links_cut, flush_every=flush_every,
        leaders=leaders, registered=_load(DRAWS)(others) if others else {})
    return made



def schedule_runner(cluster: Cluster, partitions: Sequence[PartitionSpec], schedule: Schedule = ()
                    ) -> ScheduleRunner:
    """Make the runner of schedules for this cluster, with every fault that the cluster supports, and this
    schedule's faults from other distributions."""
    nemeses = (_load(STRIKES)(cluster), *_load(NEMESES_OF)(schedule, cluster))
    made: ScheduleRunner = _load(SCHEDULE_RUNNER)(nemeses, partitions, _load(LIMITS)(cluster))
    return made


class ToStderr(logging.Handler):
    """Logs plain lines to the current standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


def judge(workers: Workers = HERE) -> Judge:
    """Make the judge. It reports the stages of long work on standard error."""
    log = logging.getLogger("floodmark.judge")
    if not log.handlers:
        log.addHandler(ToStderr())
        log.setLevel(logging.INFO)
        log.propagate = False
    made: Judge = _load(JUDGE)(workers)
    return made







def stop_judge() -> None:
    """End the judge's Spark, if this process has started it, and wait until it has cleaned up."""
    if LEAVE.partition(":")[0] in sys.modules:
        with suppress(Exception):  # the process ends anyway
            _load(LEAVE)()



def can_judge() -> None:
    """Raise FloodmarkError where this machine lacks what the judge needs; it says what to install."""
    _load(CHECK_JAVA)(_load(FIND_JAVA)())


def _factory_of(kind: str, name: str, protocol: type) -> Callable[..., Any]:
    """The function that makes this workload or cluster. The result of another distribution's function is
    checked, so that a mistake of its author is reported as one."""
    if name in own(kind):
        factory: Callable[..., Any] = own(kind)[name].load()
        return factory
    refuse_name(kind, name)
    one = registered_as(kind, name)
    assert one is not None, name
    factory = one.load()

    def make(*args: Any, **options: Any) -> Any:
        try:
            made = factory(*args, **options)
        except FloodmarkError:
            raise
        except Exception as error:
            raise UsageError(f"the {one} cannot be made: {type(error).__name__}: {error}: repair "
                             f"{one.entry.value}, or leave it out") from error
        lacks = [part for part in sorted(vars(protocol))
                 if not part.startswith("_") and getattr_static(made, part, None) is None]
        if lacks:
            raise UsageError(f"the {one} is not a {protocol.__name__} of floodmark.harness.protocols: it "
                             f"lacks {', '.join(lacks)}")
        if made.name != name:
            raise UsageError(f"the {one} says that its name is {made.name!r}; it must be {name!r}, because "
                             f"saved runs find it by that name")
        return made

    return make
