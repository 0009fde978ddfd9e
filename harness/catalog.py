"""Finds workloads, clusters, nemeses and the judge by name, and imports them only when they are needed.

So `floodmark --help` starts no Spark, and judging needs no client library.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from floodmark.harness import faults
from floodmark.harness.broker_config import broker_keys, checked_topic_keys
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
    missing_members,
    needed_for,
    why_not,
)
from floodmark.harness.registered import CLUSTER, NEMESIS, WORKLOAD, own, registered, registered_as
from floodmark.harness.spark_options import HERE, Watch, Workers

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from floodmark.checkers.stats.job import Measures
    from floodmark.checkers.stats.seen import Seen
    from floodmark.harness.cluster.broker_cluster import System
    from floodmark.harness.run_location import Far
    from floodmark.harness.schedule.moments import Schedule

Made = TypeVar("Made", Workload, Cluster)
SIMULATED = "simulated"  # on virtual time: no library's clients, nobody else's
MEMORY = "memory"  # the former name of SIMULATED, and of what it was: an implementation of its own
NEMESES = tuple(name for name in faults.NEMESES if name not in faults.MORE_NEMESES)
ALWAYS_CUT = frozenset({"containers", SIMULATED})  # clusters that can cut links without proxies
# Programs, which are run and never imported, except for a simulation. BROKER_NAMES prints the names of all
# rules, bugs and switches; BROKER_CHECK checks whether a broker would start with some settings.
BROKER_NAMES = "floodmark.broker.rule_names"
BROKER_CHECK = "floodmark.broker.check_config"
_ALIASES = {"partition": "cut"}  # Jepsen's name


def late(dotted: str) -> Callable[..., Any]:
    """A function that imports the function of this name when called: Spark and the broker only so."""

    def function(*args: Any, **options: Any) -> Any:
        module, _, attribute = dotted.partition(":")
        return getattr(import_module(module), attribute)(*args, **options)

    return function


# Of the judge's Spark: the java that it will start, and its version, FloodmarkError where there is none that
# fits; starts it before there is anything to judge; begins background work that lets the next process start
# it faster, and returns whether it did; the run folders that an address in another file system matches,
# UsageError where there are none.
_SESSION = "floodmark.checkers.spark.session"
can_judge: Callable[[], tuple[Path, int]] = late(f"{_SESSION}:usable_java")
warm_judge = late(f"{_SESSION}:context")
prepare_next_judge: Callable[[], bool] = late(f"{_SESSION}:build_archive_for_next_start")
far_folders: Callable[[str, Workers], Sequence[Far]] = late("floodmark.checkers.spark.hadoop:far_folders")
# Measures what faults cost clients in these runs; each folder stores its own measures.
measure: Callable[..., Measures] = late("floodmark.checkers.stats.job:measure")
# Reads the ops of a run's clients for its page: folder, ranges (partition, first offset, end offset) whose
# acked records are returned one by one.
client_activity: Callable[[Path, Sequence[tuple[int, int, int]]], Seen] = late(
    "floodmark.checkers.stats.seen:seen")
# Opens these run folders as a database with the judge's tables.
open_tables: Callable[[Sequence[str]], DuckDBPyConnection] = late("floodmark.checkers.tables:open")
# Writes a big history as Parquet beside its lines, which the judge reads faster next time; OSError.
keep_parquet: Callable[[Path], None] = late("floodmark.checkers.read.history_parquet:keep")
# Why no simulated broker would start with these settings, KEY=VALUE each; None: it would.
broker_refusal: Callable[[Sequence[str]], str | None] = late(f"{BROKER_CHECK}:find_problem")

# -- names --------------------------------------------------------------------------------------------------

def own_names(kind: str) -> tuple[str, ...]:
    """The names of floodmark's own workloads, clusters or nemeses, in the catalog's order."""
    return tuple(faults.NEMESES if kind == NEMESIS else own(kind))


def takes_system(cluster: str) -> bool:
    """Whether this is a place of floodmark's own, which runs a system; others have their own."""
    return cluster in own(CLUSTER)


def names(kind: str) -> tuple[str, ...]:
    return (*own_names(kind), *sorted({one.name for one in registered(kind)} - {*own_names(kind)}))


def present_name(name: str) -> str:
    """The name that a cluster has now."""
    return SIMULATED if name == MEMORY else name


def refuse_name(kind: str, name: str, *more: str) -> None:
    """Raise UsageError where this name is unknown or ambiguous, and import nothing. more: own names."""
    valid = (*own_names(kind), *more)
    if registered_as(kind, name, is_own=name in valid) is None and name not in valid:
        others = (one.name_and_distribution for one in registered(kind) if one.name not in valid)
        raise UsageError(f"no {kind} {name!r}; valid: {', '.join((*own_names(kind), *others, *more))}")


def named(options: str) -> tuple[str, ...]:
    return tuple(_ALIASES.get(word, word) for word in (word.strip() for word in options.split(",")) if word)


def nemeses(options: str, cluster: str = "local") -> tuple[str, ...]:
    """The nemeses that an option such as `--nemesis crash,cut` names, in the catalog's order, then those of
    other distributions. `all`: all of floodmark's own that this cluster supports on this machine."""
    requested = set(named(options))
    if "none" in requested and len(requested) > 1:
        raise UsageError(f"--nemesis {options}: none goes with no other name; leave it out")
    valid = own_names(NEMESIS)
    for name in sorted(requested):
        refuse_name(NEMESIS, name, "all", "none")
    offered = frozenset(NEMESES)
    if not takes_system(cluster):
        offered -= {"moments"}  # clusters of other distributions do not have our failpoints
    if cluster == "containers" and {"all", *faults.MORE_NEMESES} & requested:
        from floodmark.harness.cluster.containers.place import offers

        offered |= offers()
    if missing := [name for name in valid if name in requested and name not in offered]:
        raise UsageError(f"the {cluster} cluster has no {', '.join(missing)} here: "
                         f"'floodmark doctor --cluster {cluster}' says why")
    ours = (name for name in valid if name in requested or ("all" in requested and name in offered))
    return (*ours, *sorted(requested - {*valid, "all", "none"}))


# -- what runs are made of ----------------------------------------------------------------------------------

def workload(name: str, settings: WorkloadSettings) -> Workload:
    return _made(WORKLOAD, name, Workload, settings)


def cluster(name: str, folder: Path, nodes: int, *, links: str, first_port: int | None = None,
            trace: bool = True, kafka: str | None = None, **settings: Any) -> Cluster:
    """Make this cluster; it is not started. first_port: the first broker's port for clients; None: free
    ports. trace: whether its processes write traces. kafka, settings: see `system`."""
    place: dict[str, Any] = {"links": links, "first_port": first_port, "trace": trace}
    refuse_kafka(name, kafka)
    if takes_system(name):
        from floodmark.harness.cluster.broker_cluster import BrokerCluster

        runs = system(nodes, kafka=kafka, **settings)
        return BrokerCluster(runs, own(CLUSTER)[name].load()(folder, runs, **place))
    refuse_name(CLUSTER, name)
    settings.pop("topics", None)
    settings["config"] = with_topic_keys(settings["config"], settings.pop("topic_config", None))
    return _made(CLUSTER, name, Cluster, folder, nodes, **settings, **place)


def refuse_kafka(cluster: str, kafka: str | None) -> None:
    """Raise UsageError where this cluster cannot run it. Nothing is fetched."""
    if kafka is None:
        return
    if cluster == SIMULATED:
        raise UsageError("Apache Kafka cannot be simulated: --cluster local")
    if not takes_system(cluster):
        refuse_name(CLUSTER, cluster)
        raise UsageError(f"the {cluster} cluster does not run Apache Kafka; local and containers do: "
                         "--cluster local")
    from floodmark.harness.cluster.kafka.distribution import is_image, version_of

    if cluster == "local" and is_image(kafka):
        raise UsageError(f"{kafka} is an image, which runs only in containers: --cluster containers, or "
                         f"--kafka {version_of(kafka)}")


def system(nodes: int, *, rules: str, bugs: Sequence[str], config: Mapping[str, str], kafka: str | None,
           topic_config: Mapping[str, str] | None = None,
           topics: Mapping[str, Mapping[str, str]] | None = None) -> System:
    """Make the system that runs in a cluster; UsageError for wrong settings. kafka: the version, folder or
    image of Apache Kafka; None: the reference broker. topic_config, topics: keys of all, of single topics."""
    if kafka is None:
        from floodmark.harness.cluster.reference.system import ReferenceSystem

        return ReferenceSystem(nodes, rules=rules, bugs=bugs, topics=topics,
                               config=with_topic_keys(config, topic_config))
    from floodmark.harness.cluster.kafka.kafka_system import kafka_system

    return kafka_system(nodes, version_or_dir=kafka, rules=rules, bugs=bugs, config=config,
                        topic_config=topic_config or {}, topics=topics)


def with_topic_keys(config: Mapping[str, str], topic_config: Mapping[str, str] | None) -> dict[str, str]:
    return {**config, **broker_keys(checked_topic_keys(topic_config or {}))}


def import_simulated() -> None:
    """Import what simulated runs need, so that the processes that are forked for them have it."""
    for entry in (own(CLUSTER)[SIMULATED], *own(WORKLOAD).values()):
        entry.load()
    for module in ("harness.cluster.reference.system", "harness.client.client", "nemesis.random_plans",
                   "nemesis.strikes", "nemesis.schedule_runner"):
        import_module(f"floodmark.{module}")


def unsupported_nemeses(kafka: str | None, **settings: Any) -> Mapping[str, str]:
    """The nemeses that this system does not support, and why; kafka, settings: see `system`."""
    if kafka is None:
        return {}
    lacks: Mapping[Any, str] = system(1, kafka=kafka, **settings).lacks
    needs = {name: needed_for(suffers[0].split()[0]) for name, suffers in faults.NEMESES.items()}
    return {name: lacks[kind] for name, kind in needs.items() if kind in lacks}


def clients(cluster: Cluster) -> MakeClient:
    """The function that makes clients for this cluster: its own, or that of clients that connect to it."""
    makes, addressed = ability(cluster, MakesClients), ability(cluster, Addressed)
    if makes is not None:
        return makes.client
    if addressed is None:
        raise UsageError(f"no client can connect to this cluster: {why_not(cluster, Addressed)}")
    from floodmark.harness.client.client import wire_clients

    return wire_clients(addressed.addresses)


def schedule_runner(cluster: Cluster, partitions: Sequence[PartitionSpec], schedule: Schedule = ()
                    ) -> ScheduleRunner:
    """Make the runner of this schedule, with every fault of the cluster's and of other distributions."""
    from floodmark.nemesis import schedule_runner, strikes

    nemeses = (strikes.Strikes(cluster), *strikes.nemeses_of(schedule, cluster))
    return schedule_runner.ScheduleRunner(nemeses, partitions, cluster)


def _made(kind: str, name: str, protocol: type[Made], *args: Any, **options: Any) -> Made:
    """Make this workload or cluster. What another distribution makes is checked, to name its mistakes."""
    if name in own(kind):
        ours: Made = own(kind)[name].load()(*args, **options)
        return ours
    refuse_name(kind, name)
    one = registered_as(kind, name)
    assert one is not None, name
    factory = one.load()
    try:
        made: Made = factory(*args, **options)
    except FloodmarkError:
        raise
    except Exception as error:
        raise UsageError(f"the {one} cannot be made: {type(error).__name__}: {error}: repair "
                         f"{one.entry.value}, or leave it out") from error
    if lacks := missing_members(made, protocol):
        raise UsageError(f"the {one} is not a {protocol.__name__} of floodmark.harness.protocols: it lacks "
                         f"{', '.join(lacks)}")
    if made.name != name:
        raise UsageError(f"the {one} says that its name is {made.name!r}; it must be {name!r}, because saved "
                         "runs find it by that name")
    return made


# -- the judge ----------------------------------------------------------------------------------------------

class ToStderr(logging.Handler):
    """Logs plain lines to the current standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


def judge(workers: Workers = HERE, watch: Watch | None = None) -> Judge:
    """Make the judge. It reports the stages of long work on standard error."""
    log = logging.getLogger("floodmark.judge")
    if not log.handlers:
        log.addHandler(ToStderr())
        log.setLevel(logging.INFO)
        log.propagate = False
    made: Judge = late("floodmark.checkers.judge.job:SparkJudge")(workers, watch)
    return made


def stop_judge() -> None:
    """End the judge's Spark, if this process has started it, and wait until it has cleaned up."""
    if _SESSION in sys.modules:
        with suppress(Exception):  # the process ends anyway
            sys.modules[_SESSION].stop_spark()
