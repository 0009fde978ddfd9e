"""EVERY SEAM ON ONE PAGE: what clusters, nemeses, workloads and judges owe one another.

What not every system has is an ability (Kills, Freezes, ReadsLogs, ...), asked for by its narrowest name with
ability(): the type checker knows which cluster can suffer what. A missing ability makes a check unknown or a
nemesis unavailable, with the reason in words. All waits inside have time-outs and raise FloodmarkError saying
what was waited for.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.faults import Fault
from floodmark.harness.op import Intent, Op, Outcome, Send
from floodmark.harness.run_location import Place
from floodmark.harness.schedule.entry import Entry, Schedule
from floodmark.harness.schedule.patterns import DrawPattern
from floodmark.harness.trace import Raw
from floodmark.harness.verdict import Verdict

if TYPE_CHECKING:
    from floodmark.harness.logdir import LogState  # whose module reads compressed files, which few need

CLIENTS = "clients"  # in a grudge: every client of the harness, as one pseudo-node
CONTROLLER = "controller"  # the controller's process, by name


# -- what can be seen -----------------------------------------------------------------------------------


class Unknown(Enum):
    """The type of UNKNOWN: what a system does not show. None is something else: that there is none."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """One partition as the history numbers it (`key`), and where Kafka keeps it."""

    key: int
    topic: str
    partition: int
    replicas: tuple[str, ...]  # the assignment, preferred leader first
    headers: bool = True  # its records can have headers; message formats v0 and v1 have none


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica as its own broker sees it, as far as its system shows that. LEO and HW are what the wire
    tells where anything does."""

    node: str
    partition: int  # the history's key
    leo: int | Unknown = UNKNOWN
    hw: int | Unknown = UNKNOWN
    leader: str | Unknown | None = UNKNOWN  # whom it believes to lead
    epoch: int | Unknown = UNKNOWN
    log_start: int | Unknown = UNKNOWN
    isr: tuple[str, ...] | Unknown = UNKNOWN  # as it believes
    checkpointed_hw: int | Unknown = UNKNOWN  # what a restart would begin with
    epochs: tuple[tuple[int, int], ...] | Unknown | None = UNKNOWN  # leader-epoch cache; None: none is kept
    clean: bool | Unknown = UNKNOWN  # its last stop was orderly
    proposing: bool | Unknown = UNKNOWN  # it leads, has asked for another ISR and has no answer yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """One time that a node stood at an armed failpoint. What it did not know, or was not about, is None."""

    node: str
    name: str  # F.truncated, ...
    action: str | None  # what it did there; None: not told
    time_ns: int  # by the node's own clock: monotonic from a cluster, since the run began from a Sight
    partition: int | None = None  # the history's key
    epoch: int | None = None
    peer: str | None = None
    offset: int | None = None
    held: bool = False  # it stands there still


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition as the controller sees it: the truth."""

    partition: int
    leader: str | None
    epoch: int
    isr: tuple[str, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The cluster at one look. A broker that did not answer has no replicas here."""

    time_ns: int  # monotonic, when the look was complete
    replicas: Mapping[tuple[str, int], ReplicaView]
    partitions: Mapping[int, PartitionView]
    running: frozenset[str]  # brokers whose process lives (a paused one does)
    unfenced: frozenset[str]  # brokers the controller takes for alive


# -- clusters -------------------------------------------------------------------------------------------


@runtime_checkable
class Cluster(Protocol):
    """n brokers and a controller: a system (what runs) at a place (where it lives). `start` returns when
    every broker is registered and unfenced. What not every system has is an ability, below."""

    @property
    def name(self) -> str: ...  # where it lives: local, containers, memory
    @property
    def system(self) -> Mapping[str, Any]: ...  # run.json's `system`: what runs, at least its `name`
    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def partitions(self) -> tuple[PartitionSpec, ...]: ...
    @property
    def config(self) -> Mapping[str, Mapping[str, Any]]: ...  # run.json's `config`: node -> Kafka's keys
    @property
    def abilities(self) -> Sequence[object]: ...  # objects with abilities that the cluster has not itself
    @property
    def lacks(self) -> Mapping[type, str]: ...  # abilities that it has not, whatever its class has, and why
    @property
    def not_shown(self) -> frozenset[str]: ...  # fields of ReplicaView that are UNKNOWN at every look

    async def start(self) -> None: ...
    async def create(self, partitions: Sequence[PartitionSpec]) -> None: ...  # until each is led, ISR full
    async def observe(self) -> View: ...
    async def mend(self) -> list[str]: ...  # heal, resume, start all; safe twice; returns what is left behind
    async def stop(self) -> None: ...  # kill everything; safe twice
    def died(self) -> list[str]: ...  # nodes that ended by themselves once all were up, by no fault in force
    def died_words(self) -> Mapping[str, str]: ...  # of each: how it ended and the end of its log, in lines
    def broken(self) -> Sequence[str]: ...  # what else ended that the run stands on: the harness's trouble


# -- abilities ------------------------------------------------------------------------------------------

Ability = TypeVar("Ability")


def ability(cluster: Cluster, kind: type[Ability]) -> Ability | None:
    """What does this for the cluster: itself, or one of its `abilities`; None: nothing does. What it `lacks`
    it does not do, although its class has the methods: one class drives many systems."""
    if kind in cluster.lacks:
        return None
    return next((one for one in (cluster, *cluster.abilities) if isinstance(one, kind)), None)


def why_not(cluster: Cluster, kind: type) -> str:
    """Why the cluster has not this ability, in words."""
    return cluster.lacks.get(kind) or f"the {cluster.name} cluster has no such ability ({kind.__name__})"


@runtime_checkable
class Addressed(Protocol):
    def addresses(self) -> Mapping[str, tuple[str, int]]: ...  # node -> (host, port), for Kafka's wire


@runtime_checkable
class Adopts(Protocol):
    async def adopt(self) -> None: ...  # numbers the partitions that applications made


@runtime_checkable
class Freezes(Protocol):
    async def freeze(self) -> View: ...  # the controller first, then all brokers at once, until stop()


@runtime_checkable
class ReadsLogs(Protocol):
    async def log_dir(self, node: str) -> Path: ...  # Kafka's, or a copy of it; not after stop()


@runtime_checkable
class KeepsLogs(Protocol):
    """A cluster without files: its replicas' logs as they are now, in the words of harness/logdir."""

    def log_rows(self, node: str, run_id: str) -> Iterator[dict[str, Any]]: ...  # as logdir.dump gives them
    def log_state(self, node: str, partition: int) -> "LogState": ...  # partition: by its key


@runtime_checkable
class Kills(Protocol):
    async def kill(self, node: str) -> None: ...  # SIGKILL, returns when it is gone
    async def start_node(self, node: str) -> None: ...  # returns when its control socket answers
    async def stop_node(self, node: str) -> None: ...  # SIGTERM, returns when it is gone


@runtime_checkable
class Pauses(Protocol):
    async def pause(self, node: str) -> None: ...
    async def resume(self, node: str) -> None: ...


@runtime_checkable
class Cuts(Protocol):
    """A grudge says whom each node does not hear: {"n2": ["n1"]} stops every byte from n1 to n2, over every
    connection between them, whoever dialled. Names may be CLIENTS and CONTROLLER."""

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None: ...
    async def heal(self) -> None: ...


@runtime_checkable
class PowerCuts(Protocol):
    """Kill and keep only what was fsynced, or, per partition key, up to the batch boundary at or below `keep`
    (never less than what was fsynced). Returns {"keep": {key: LEO kept}, "lost_records": n}."""

    async def power_cut(self, node: str, *, keep: Mapping[int, int] | None = None) -> Mapping[str, Any]: ...


@runtime_checkable
class Expires(Protocol):
    async def expire(self, node: str) -> None: ...  # returns when the controller has fenced it


@runtime_checkable
class Elects(Protocol):
    """Asks the controller for the preferred leaders, or unclean ones, of these partitions (none: of all).
    Returns {"elected": [keys], "refused": {key: why}}; who leads already stands in neither."""

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]: ...


@runtime_checkable
class ElectsReplica(Protocol):
    """As Elects, but for this replica, which must be an ISR member (any live replica if unclean), and nobody
    leaves the ISR for it."""

    async def elect_replica(self, partitions: Sequence[int], leader: str, *, unclean: bool = False
                            ) -> Mapping[str, Any]: ...


@runtime_checkable
class Wipes(Protocol):
    async def wipe(self, node: str) -> Mapping[str, Any]: ...  # kill, and all its disk held is gone


@runtime_checkable
class Packets(Protocol):
    """A grudge says whom each node hears badly, the quality how: loss (0 to 1), delay_ms, jitter_ms,
    rate_kbit. It adds to what is in force, and ends with Cuts.heal()."""

    async def degrade(self, grudge: Mapping[str, Sequence[str]], quality: Mapping[str, float]) -> None: ...


@runtime_checkable
class Resets(Protocol):
    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int: ...  # how many connections


@runtime_checkable
class BadDisks(Protocol):
    """kind: of harness.faults.DISKS_DAMAGED but wiped (the node is killed), or DISKS_BAD (until repaired)."""

    @property
    def kinds(self) -> frozenset[str]: ...  # those that this cluster can suffer
    async def harm(self, node: str, kind: str) -> Mapping[str, Any]: ...  # what else tells the fault
    async def repair(self, node: str) -> None: ...  # the broker is left as it is, maybe down


@runtime_checkable
class Clocks(Protocol):
    async def bump(self, node: str, offset_ms: int) -> None: ...  # wall clock, not monotonic; 0 ends it


@runtime_checkable
class MemoryLimits(Protocol):
    async def limit(self, node: str, limit_mb: int | None) -> None: ...  # None: as before


@runtime_checkable
class Failpoints(Protocol):
    """Named places inside a process where it can be stopped, ended or robbed of a message. A point is as
    harness/schedule/entry.py has it: names of nodes, the history's partitions. `node` may be CONTROLLER."""

    @property
    def points(self) -> frozenset[str]: ...  # the names that it has
    async def arm(self, node: str, point: Mapping[str, Any]) -> None: ...  # down: armed at its next start
    async def release(self, node: str, point: Mapping[str, Any] | None) -> int: ...  # how many it held
    async def met(self, node: str) -> Sequence[Met]: ...  # in order, also by its former incarnations


@runtime_checkable
class ExplainsDeaths(Protocol):
    def crashes(self) -> Sequence[Met]: ...  # by armed crashes and by faults in force, never in died()


@runtime_checkable
class BoundsClocks(Protocol):
    """Its nodes' clocks are not the harness's, and it knows how far any two may lie apart."""

    @property
    def clock_error_ns(self) -> int: ...  # run.json's; the longer it has looked, the wider


@runtime_checkable
class Traces(Protocol):
    """Its processes write what happens in them; harness.trace merges and follows that."""

    def traces(self) -> Raw | None: ...  # None: they were told not to
    @property
    def traced_events(self) -> frozenset[str] | None: ...  # told whenever they happen; None: all there are


# -- nemeses and moments ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What a strike did: the nodes it met and what else belongs into the op's `fault`."""

    nodes: tuple[str, ...]
    detail: Mapping[str, Any] = field(default_factory=dict)


class Nemesis(Protocol):
    """A source of faults. Safe to mend twice."""

    @property
    def answers(self) -> frozenset[str]: ...  # the f's it knows
    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNemesis:
    """What an entry point of the group floodmark.nemeses names: one that another distribution brings.

    draw_pattern gives one strike with all that undoes it (harness/schedule/patterns.py). Its steps are
    floodmark's faults, by name, or faults of its own: those are called as the entry point or begin with its
    name and `_`, are carried out by what `make` gives, and are over when `strike` returns."""

    does: str  # in a few words, for people
    draw_pattern: DrawPattern
    faults: tuple[Fault, ...] = ()  # of its own; undone_by is None
    needs: tuple[type[Any], ...] = ()  # the abilities that its own faults need of a cluster
    make: Callable[[Cluster], Nemesis] | None = None  # asked only where the cluster has what it needs


class Sight(Protocol):
    """What moments may look at."""

    def now_ns(self) -> int: ...  # since the run began
    def acks(self, partition: int) -> int: ...  # acked micro-sends so far
    async def ack_or(self, timeout_s: float) -> None: ...  # returns at the next ack of any partition, or then
    def acks_given(self, partition: int, leader: str) -> int: ...  # by this leader, from the trace
    async def view(self) -> View: ...
    async def met(self, node: str) -> Sequence[Met]: ...
    def crashes(self) -> Sequence[Met]: ...  # as ExplainsDeaths has it
    def died(self) -> Sequence[str]: ...  # nodes that ended by themselves, by no fault


# A scripted send or poll: recorded like any op, by a process of its own.
Sender = Callable[[Intent], Awaitable[Outcome]]


class ScheduleRunner(Protocol):
    """Carries out a schedule, entry by entry: awaits the moment, resolves roles, strikes, records the op."""

    def refuse(self, schedule: Schedule) -> None: ...  # UsageError: what this cluster cannot carry out
    async def carry_out(
        self, schedule: Schedule, sight: Sight, recording: "Recording", send: Sender
    ) -> tuple[int, ...]: ...  # positions whose moment never came
    def missed_words(self) -> Mapping[int, Mapping[str, Any]]: ...  # of each: waited_for, seen, likely
    def in_force(self) -> tuple[str, ...]: ...  # faults not yet mended, as "f node", for people to read
    def mended(self) -> None: ...  # the cluster was mended from outside: nothing is in force any more


# -- workloads and clients --------------------------------------------------------------------------------


class Session(Protocol):
    """One process's hold on the system. Who calls `apply` has recorded the op before: its line is with the
    kernel, and the first byte of a request may leave at once."""

    async def apply(self, intent: Intent) -> Outcome: ...
    @property
    def over(self) -> bool: ...  # true: this process asks nothing more, a new one must begin
    async def close(self) -> None: ...


class LogClient(Protocol):
    """One process's client: each request is tried once, and what is answered says what is known of it."""

    @property
    def over(self) -> bool: ...  # what it had read is no longer what the log holds: it asks nothing more
    async def send(
        self, sends: tuple[Send, ...], *, node: str | None = None, acks: str | None = None,
        patience_s: float | None = None,
    ) -> Outcome: ...  # all to one partition, in one batch
    def assign(self, keys: Iterable[int]) -> None: ...  # one that is new is read from offset 0
    def seek(self, keys: Iterable[int], offset: int) -> None: ...
    async def poll(self, *, node: str | None = None) -> Outcome: ...
    async def list_offsets(self, keys: Iterable[int], *, node: str | None = None) -> Outcome: ...
    async def close(self) -> None: ...


MakeClient = Callable[[ClientSettings, Random], LogClient]
Addresses = Callable[[], Mapping[str, tuple[str, int]]]  # node -> (host, port), as Cluster gives them


@runtime_checkable
class MakesClients(Protocol):
    # A cluster without addresses: its own clients alone reach it.
    def client(self, settings: ClientSettings, random: Random) -> LogClient: ...


COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """What the ops of a run are like; floodmark's own workloads know it."""

    batch_sizes: tuple[int, ...] = (1, 1, 1, 1, 1, 2, 3, 4)  # records of a send, drawn from these
    compression: str = "none"  # of batches, one of COMPRESSIONS; the client of record knows none and gzip
    in_flight: int = 1  # batches of one idempotent producer, at most; above 1 each has one record or two
    readers_every: int = 4  # one process in so many reads
    idempotent_every: int = 0  # of the log workload one process in so many is an idempotent one; 0: none

    def to_json(self) -> dict[str, Any]:
        return {"batch_sizes": list(self.batch_sizes), "compression": self.compression,
                "in_flight": self.in_flight, "readers_every": self.readers_every,
                "idempotent_every": self.idempotent_every}


USUAL_LOAD = LoadShape()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """What a workload is made from."""

    run_id: str  # 16 hex digits, in a header of every record of the run
    seed: int
    partitions: tuple[PartitionSpec, ...]
    clients: MakeClient
    addresses: Addresses | None  # None: nothing is reached by the wire, no library of Kafka's can be used
    acks: str  # all, 1 or 0
    concurrency: int  # processes at a time; process % concurrency is a process's place among them
    first_value: int  # values below are the schedule's
    load: LoadShape = USUAL_LOAD
    library: Mapping[str, str] = field(default_factory=dict, repr=False)  # how librdkafka gets in: secrets


class Workload(Protocol):
    """What clients ask. Intents are drawn one at a time; a session serves one process."""

    @property
    def name(self) -> str: ...
    @property
    def guarantees(self) -> Mapping[str, Any]: ...  # acks, idempotence, retries, isolation: run.json's words
    def intents(self, process: int, random: Random) -> Iterator[Intent]: ...
    def probe(self, partition: int) -> Intent: ...  # one send of a fresh value
    def session(self, process: int) -> Session: ...
    def final_session(self, process: int) -> Session: ...  # reads after mending


class Recording(Protocol):
    """The one place ops go through: it gives index and time, writes whole lines, counts."""

    def invoke(self, process: int, intent: Intent) -> Op: ...
    async def written(self) -> None: ...  # every line so far has been handed to the kernel
    def complete(self, invoked: Op, outcome: Outcome) -> Op: ...
    def strike(self, f: str, fault: Mapping[str, Any]) -> Op: ...
    def now_ns(self) -> int: ...


# -- judges -----------------------------------------------------------------------------------------------


class Judge(Protocol):
    """Reads run folders, gives a verdict for each, in order; a rotten folder spoils nobody else's."""

    def judge(self, folders: Sequence[Place]) -> list[Verdict]: ...
