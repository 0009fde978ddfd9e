"""Defines all protocols in one place: what clusters, nemeses, workloads and judges must implement. What only
some systems can do is an ability (Kills, Freezes, ...); code asks for the narrowest one by ability().
Without it a check is unknown or a nemesis unavailable, with the reason. All waits in implementations have
time-outs, and raise a FloodmarkError that says what they waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getattr_static
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from msgspec import Meta

from floodmark.harness.faults import FAULTS, Fault

if TYPE_CHECKING:  # `floodmark --help` needs none of these modules
    from floodmark.harness.client.settings import ClientSettings
    from floodmark.harness.history import Recorder
    from floodmark.harness.logdir import LogState
    from floodmark.harness.op import Intent, Outcome, Send
    from floodmark.harness.run_location import Place
    from floodmark.harness.schedule.moments import Entry, Schedule
    from floodmark.harness.schedule.patterns import DrawPattern
    from floodmark.harness.schedule.views import FailpointHit, RunObserver, View
    from floodmark.harness.trace import Raw
    from floodmark.harness.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """One partition: its number in the history (`key`), its topic and its replicas."""

    key: int
    topic: str
    partition: int
    replicas: tuple[str, ...]  # the assignment, preferred leader first
    headers: bool = True  # whether its records can have headers; in message formats v0 and v1 they cannot

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


# -- clusters -------------------------------------------------------------------------------------------

class Cluster(Protocol):
    """A system in a place. `start` returns when every broker is registered and unfenced."""

    @property
    def name(self) -> str: ...  # where it runs: local, containers, simulated
    @property
    def system(self) -> Mapping[str, Any]: ...  # run.json's `system`: the software, at least its `name`
    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def partitions(self) -> tuple[PartitionSpec, ...]: ...
    @property
    def config(self) -> Mapping[str, Mapping[str, Any]]: ...  # run.json's `config`: node -> Kafka's keys
    @property
    def abilities(self) -> Sequence[object]: ...  # objects with abilities that the cluster's class lacks
    @property
    def lacks(self) -> Mapping[Any, str]: ...  # abilities (or faults, by f) that it lacks although its class
    # has the methods, and why; "F NODE" and "F FLAG": only this fault on this node, or with this flag
    @property
    def not_shown(self) -> frozenset[str]: ...  # fields of ReplicaView that are always UNKNOWN

    async def start(self) -> None: ...
    async def create(self, partitions: Sequence[PartitionSpec]) -> None: ...  # returns with full ISRs
    async def observe(self) -> View: ...
    async def mend(self) -> list[str]: ...  # heal, resume, start all; may be repeated; returns what it left
    async def stop(self) -> None: ...  # kill everything; may be repeated
    def died(self) -> list[str]: ...  # nodes that ended by themselves after the start, without a fault
    def died_words(self) -> Mapping[str, str]: ...  # for each: how it ended and the last lines of its log
    def died_at(self) -> Mapping[str, Sequence[int]]: ...  # for each: when, ns, of every death
    def broken(self) -> Sequence[str]: ...  # helper processes that ended: a failure of the harness


# -- abilities ------------------------------------------------------------------------------------------

Ability = TypeVar("Ability")
Result = TypeVar("Result")


def ability(cluster: Cluster, kind: type[Ability]) -> Ability | None:
    """The object that implements this ability: the cluster itself, or one of its `abilities`; None: there is
    none. One that it `lacks` does not count, although its class has the methods: one class serves many
    systems."""
    if kind in cluster.lacks:
        return None
    ones: tuple[Any, ...] = (cluster, *cluster.abilities)
    return next((one for one in ones if not missing_members(one, kind)), None)


def missing_members(one: object, protocol: type) -> list[str]:
    """What this object lacks of the protocol; empty: it implements it. No property is evaluated."""
    names = {name for base in protocol.__mro__ for name in vars(base) if not name.startswith("_")}
    return [name for name in sorted(names)
            if getattr_static(one, name, missing_members) is missing_members]


def why_not(cluster: Cluster, kind: type | str) -> str:
    """Why the cluster does not have this ability, for people to read."""
    named = kind if isinstance(kind, str) else kind.__name__
    return cluster.lacks.get(kind) or f"the {cluster.name} cluster has no such ability ({named})"


def needed_for(f: str) -> type | str:
    """The ability that this fault needs; without a protocol of its own the fault itself."""
    named = FAULTS[f].ability
    found: type | str = f if named is None else globals()[named]
    return found


def method_for(cluster: Cluster, f: str) -> Callable[..., Awaitable[Any]] | None:
    """The method that carries out this fault, as faults.py names it; None: the cluster cannot."""
    needed, method = needed_for(f), FAULTS[f].method
    if not isinstance(needed, str):
        return getattr(ability(cluster, needed), method, None)
    ones = () if f in cluster.lacks else (cluster, *cluster.abilities)
    return next((getattr(one, method) for one in ones if hasattr(one, method)), None)


class Addressed(Protocol):
    def addresses(self) -> Mapping[str, tuple[str, int]]: ...  # node -> (host, port), for Kafka's wire


class KeepsRecords(Protocol):
    @property
    def keeps_all(self) -> bool: ...  # whether no setting deletes records of the run's topics, once created


class Adopts(Protocol):
    async def adopt(self) -> None: ...  # give keys to partitions that applications created


class Freezes(Protocol):
    async def freeze(self) -> View: ...  # freeze the controller, then all brokers at once, until stop()


class ReadsLogs(Protocol):
    async def log_dir(self, node: str) -> Path: ...  # Kafka's log directory or a copy; not after stop()


class KeepsLogs(Protocol):
    """A cluster without files; it returns its replicas' logs in the form of harness/logdir.py."""

    def log_rows(self, node: str, run_id: str) -> Iterator[dict[str, Any]]: ...  # as logdir.dump yields them
    def log_state(self, node: str, partition: int) -> LogState: ...  # partition: its key


class Kills(Protocol):
    async def kill(self, node: str) -> None: ...  # SIGKILL; returns when the process has ended
    async def start_node(self, node: str) -> None: ...  # returns when its control socket answers
    async def stop_node(self, node: str) -> None: ...  # SIGTERM; returns when the process has ended


class Pauses(Protocol):
    async def pause(self, node: str) -> None: ...
    async def resume(self, node: str) -> None: ...


class Cuts(Protocol):
    """A grudge lists, for each node, the nodes from which it receives nothing: {"n2": ["n1"]} stops every
    byte from n1 to n2, on all connections between them. Names may be CLIENTS and CONTROLLER."""

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None: ...
    async def heal(self) -> None: ...


class PowerCuts(Protocol):
    """Kills the node and keeps only fsynced data, or, for each partition key, the batches up to the LEO in
    `keep` (never less than what was fsynced). Returns {"keep": {key: LEO kept}, "lost_records": n}."""

    async def power_cut(self, node: str, *, keep: Mapping[int, int] | None = None) -> Mapping[str, Any]: ...


class Simulates(Protocol):
    """On virtual time: whatever talks to the cluster runs inside, in a process of its own, which the seed
    determines. The result is pickled. duration_s and ops: the planned load, for a bound of the work."""

    async def simulate(self, seed: int, make: Callable[[], Coroutine[Any, Any, Result]], *,
                       duration_s: float = 0.0, ops: float = 0.0) -> Result: ...


class Expires(Protocol):
    async def expire(self, node: str) -> None: ...  # returns when the controller has fenced it


class Elects(Protocol):
    """Asks the controller for an election of the preferred leader, or an unclean one, in these partitions
    (none: in all). Returns {"elected": [keys], "refused": {key: why}}, without those that need no election.
    """

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]: ...


class ElectsReplica(Protocol):
    """As Elects, but for this replica: an ISR member, or any live one if unclean. None leaves the ISR."""

    async def elect_replica(self, partitions: Sequence[int], leader: str, *, unclean: bool = False
                            ) -> Mapping[str, Any]: ...


class Wipes(Protocol):
    async def wipe(self, node: str) -> Mapping[str, Any]: ...  # kill it and empty its disk


class Packets(Protocol):
    """The grudge lists, for each node, from which nodes it receives packets badly; the quality is loss (0 to
    1), delay_ms, jitter_ms, rate_kbit. It adds to what is in force, and ends with Cuts.heal()."""

    async def degrade(self, grudge: Mapping[str, Sequence[str]], quality: Mapping[str, float]) -> None: ...


class Resets(Protocol):
    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int: ...  # returns how many connections


class BadDisks(Protocol):
    """kind: one of harness.faults.DISKS_DAMAGED except wiped (the node is killed), or of DISKS_BAD (until it
    is repaired)."""

    @property
    def kinds(self) -> frozenset[str]: ...  # the kinds that this cluster can make
    async def harm(self, node: str, kind: str) -> Mapping[str, Any]: ...  # fields for the op's `fault`
    async def repair(self, node: str) -> None: ...  # leaves the broker as it is, maybe down


class Clocks(Protocol):
    async def bump(self, node: str, offset_ms: int) -> None: ...  # wall clock, not monotonic; 0 ends it


class MemoryLimits(Protocol):
    async def limit(self, node: str, limit_mb: int | None) -> None: ...  # None: remove the limit


class ReportsMemory(Protocol):
    async def resident_bytes(self) -> int: ...  # of all processes that are no descendants of the harness


class Failpoints(Protocol):
    """Named places in a process's code where it can be stopped or crashed, or a message dropped;
    nemesis/README.md describes a point, by node names and the history's partitions. `node` may be CONTROLLER.
    """

    @property
    def points(self) -> frozenset[str]: ...  # the names that exist
    async def arm(self, node: str, point: Mapping[str, Any]) -> None: ...  # if it is down, at its next start
    async def release(self, node: str, point: Mapping[str, Any] | None) -> int: ...  # the number it held
    async def met(self, node: str) -> Sequence[FailpointHit]: ...  # in order, also before its restarts


class ExplainsDeaths(Protocol):
    def crashes(self) -> Sequence[FailpointHit]: ...  # by armed crashes or faults in force; not in died()


class BoundsClocks(Protocol):
    """Its nodes use other clocks than the harness; it knows the largest difference between any two."""

    @property
    def clock_error_ns(self) -> int: ...  # as in run.json; it only grows during a run


class Traces(Protocol):
    def traces(self) -> Raw | None: ...  # None: tracing is off
    @property
    def traced_events(self) -> frozenset[str] | None: ...  # events that are always traced; None: all events


# -- nemeses and moments ----------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """The nodes that a strike hit, and further fields for the op's `fault`."""

    nodes: tuple[str, ...]
    detail: Mapping[str, Any] = field(default_factory=dict)


class Nemesis(Protocol):
    """Carries out faults on a cluster."""

    @property
    def answers(self) -> frozenset[str]: ...  # the f's that it carries out
    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNemesis:
    """A nemesis of another distribution: what an entry point of the group floodmark.nemeses names.
    draw_pattern returns one strike together with everything that undoes it (harness/schedule/patterns.py):
    floodmark's faults, by name, or the nemesis's own, whose names are the entry point's, or begin with it and
    `_`. The Nemesis that `make` returns carries those out; they are over when `strike` returns."""

    does: str  # in a few words, for people
    draw_pattern: DrawPattern
    faults: tuple[Fault, ...] = ()  # its own faults; their undone_by is None
    needs: tuple[type[Any], ...] = ()  # abilities of the cluster that its own faults need
    make: Callable[[Cluster], Nemesis] | None = None  # called only if the cluster has these abilities


# Carries out a scripted send or poll; it is recorded like any op, with a process of its own.
Sender = Callable[["Intent"], Awaitable["Outcome"]]


class ScheduleRunner(Protocol):
    """Entry by entry: waits for the moment, resolves roles, strikes, records the op."""

    def refuse(self, schedule: Schedule) -> None: ...  # UsageError if this cluster cannot carry it out
    async def carry_out(
        self, schedule: Schedule, observer: RunObserver, recorder: Recorder, send: Sender
    ) -> tuple[int, ...]: ...  # positions of entries whose moment never came
    def missed_words(self) -> Mapping[int, Mapping[str, Any]]: ...  # for each: waited_for, seen, likely
    def in_force(self) -> tuple[str, ...]: ...  # faults not yet mended, as "f node", for people to read
    def mended(self) -> None: ...  # the cluster was mended by others: no fault is in force any more


# -- workloads and clients --------------------------------------------------------------------------------

class Session(Protocol):
    """One process's access. Before `apply`, the kernel has the op's line: requests may be sent at once."""

    async def apply(self, intent: Intent) -> Outcome: ...
    @property
    def over(self) -> bool: ...  # true: this process sends no further request; a new one must begin
    async def close(self) -> None: ...


class LogClient(Protocol):
    """One process's client: each request is sent once, and its outcome is exactly what is known of it."""

    @property
    def over(self) -> bool: ...  # the log no longer has what it read: it sends no further request
    async def send(
        self, sends: tuple[Send, ...], *, node: str | None = None, acks: str | None = None,
        patience_s: float | None = None,
    ) -> Outcome: ...  # all sends go to one partition, in one batch
    def assign(self, keys: Iterable[int]) -> None: ...  # a new partition is read from offset 0
    def seek(self, keys: Iterable[int], offset: int) -> None: ...
    async def poll(self, *, node: str | None = None) -> Outcome: ...
    async def list_offsets(self, keys: Iterable[int], *, node: str | None = None) -> Outcome: ...
    async def close(self) -> None: ...


MakeClient = Callable[["ClientSettings", Random], LogClient]
Addresses = Callable[[], Mapping[str, tuple[str, int]]]  # node -> (host, port), as in Addressed


class MakesClients(Protocol):
    # For a cluster without addresses, which only its own clients can reach.
    def client(self, settings: ClientSettings, random: Random) -> LogClient: ...


# With bounds, because a saved run may come from anybody.
_Every = Annotated[int, Meta(ge=0, le=10_000)]  # one process in so many; 0: none
_Many = Annotated[int, Meta(ge=0, le=10**9)]
_Sizes = Annotated[tuple[Annotated[int, Meta(ge=1, le=1000)], ...], Meta(min_length=1, max_length=100)]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """The shape of a run's ops; floodmark's own workloads use it."""

    batch_sizes: _Sizes = (1, 1, 1, 1, 1, 2, 3, 4)  # the records of a send are drawn from these
    compression: Compression = "none"  # of batches; the client of record supports none and gzip
    # most batches in flight of an idempotent producer; above 1 each has 1 or 2 records
    in_flight: Annotated[int, Meta(ge=1, le=5)] = 1
    readers_every: Annotated[int, Meta(ge=2, le=10_000)] = 4  # one process in so many reads
    idempotent_every: _Every = 0  # of the log workload: is an idempotent one
    rest_for: _Many = 0  # so many values go to half of the partitions, then to another half; 0: to all
    sharing_every: _Every = 0  # of the log workload's processes: shares Produce requests
    producer_lasts: _Many = 0  # an idempotent process ends after so many sends, and another begins; 0: never
    acks_1_every: _Every = 0  # of the log workload's processes: sends with acks=1
    timeout_ms: Annotated[int, Meta(ge=1, le=60_000)] = 1000  # a leader waits so long for the ISR


USUAL_LOAD = LoadShape()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """The settings that a workload is made from."""

    run_id: str  # 16 hex digits, in a header of every record of the run
    seed: int
    partitions: tuple[PartitionSpec, ...]
    clients: MakeClient
    addresses: Addresses | None  # None: Kafka's client libraries cannot be used
    acks: str  # all, 1 or 0
    concurrency: int  # processes at a time; process % concurrency is a process's place among them
    first_value: int  # lower values belong to the schedule
    load: LoadShape = USUAL_LOAD
    wire: bool = True  # the clients are floodmark's own, of Kafka's wire
    library: Mapping[str, str] = field(default_factory=dict, repr=False)  # librdkafka's security: secrets


class Workload(Protocol):
    """The ops that clients do. Intents are drawn one at a time; a session serves one process."""

    @property
    def name(self) -> str: ...
    @property
    def guarantees(self) -> Mapping[str, Any]: ...  # acks, idempotence, retries, isolation, for run.json
    def intents(self, process: int, random: Random) -> Iterator[Intent]: ...
    def probe(self, partition: int) -> Intent: ...  # one send of a new value
    def session(self, process: int) -> Session: ...
    def final_session(self, process: int) -> Session: ...  # for the final reads, after mending


class Judge(Protocol):
    """Returns a verdict for each run folder, in order. A damaged folder does not affect others."""

    def judge(self, folders: Sequence[Place]) -> list[Verdict]: ...
