"""What the driver knows, as small frames for the checks: one row a partition, a replica, a special process.

A check asks these frames whether it may claim anything at all; so every gate stands in one place.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from checkers.faults import Bounds, min_insync
from checkers.folder import Folder, Partition, Replica, clock_error_ns
from checkers.rulings import Rulings

PARTITION = (
    "run int, partition bigint, leader string, known boolean, compacted boolean, lost_judged boolean, "
    "log_start bigint, bottom bigint, hw bigint, readable bigint, stable bigint, "
    "unseen_judged boolean, by_final_reads boolean, by_any_read boolean, in_doubt boolean, "
    "members array<struct<node:string,log_start:bigint>>, weak_acks boolean, retried "
    "boolean, "
    "uncommitted boolean, unclean_index bigint, unclean_time bigint, unclean_maybe boolean, "
    "unclean_maybe_time bigint, budget_index bigint, budget_maybe_index bigint"
)
REPLICA = (
    "run int, node string, partition bigint, leads boolean, in_isr boolean, hw bigint, log_start bigint, leo "
    "bigint, "
    "running boolean, whole boolean, settled boolean, struck boolean, compact boolean, "
    "cache array<struct<start:bigint,epoch:bigint>>"
)
PROCESS = "run int, process bigint"
TRACED = (
    "run int, partition bigint, nodes array<string>, replicas array<string>, clock_error bigint, "
    "needed bigint, bottom bigint, whole boolean, unfenced array<bigint>, "
    "excuses array<struct<by:int,epoch:bigint,elected:bigint,tick:bigint>>"
)
ACTIVE = "run int, node string, since bigint, until bigint"  # ticks
LITERAL_ROWS = 20_000  # as many as travel in the plan itself; of more its text would fill the driver
BATCH_ROWS = 50_000
FAR = 1 << 60  # ns
FACT_BYTES = 100  # a row of these frames, as work


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a run's partitions before any check: of those that are not used no client says more
    than that it held them, and no log has an entry; of the used that are not `whole` the sieve has let only
    the odd pass, and their logs are logs."""

    used: frozenset[int]
    whole: frozenset[int]

    def vouches_for(self, key: int) -> bool:
        return key in self.used and key not in self.whole


NOTHING = Seen(used=frozenset(), whole=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run after the survey: what its checks may claim."""

    folder: Folder
    bounds: Mapping[int, Bounds]
    breached: bool  # lines of the history may be missing or wrong
    disordered: bool = False  # their indexes do not rise
    overlapping: frozenset[int]  # processes
    rulings: Rulings = field(default_factory=Rulings)
    seen: Seen
    sieved: bool = False
    transactional: bool = False  # some op of it is a transaction
    repeated: bool = False  # some value was sent more than once


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The small frames, each ready to be joined to a big one. None: there is no such row in any run."""

    partitions: DataFrame
    replicas: DataFrame
    final: DataFrame | None  # processes of the final reads
    overlapping: DataFrame | None
    traced: DataFrame | None  # partitions of the runs that have a trace
    active: DataFrame | None  # when which broker's process was registered and not fenced
    most_replicas: int  # of any traced partition
    small: bool  # all of it is one task's work
    transactional: tuple[int, ...] = ()  # runs
    repeated: bool = True  # in some run a value was sent more than once
    by_reads: bool = False  # of some partition reads alone show what is lost


def facts_of(spark: SparkSession, runs: Sequence[Run], small: bool) -> Facts:
    judged = [(number, run) for number, run in enumerate(runs) if run.folder.judged]
    final = [(number, process) for number, run in judged for process in set(run.folder.final_processes)]
    overlapping = [(number, process) for number, run in judged for process in run.overlapping]
    traced = [(number, run) for number, run in judged if run.folder.trace is not None]
    active = [row for number, run in traced for row in active_rows(number, run)]
    return Facts(
        partitions=beside(
            spark, (row for number, run in judged for row in partition_rows(number, run)), PARTITION, small
        ),
        replicas=beside(
            spark, (row for number, run in judged for row in replica_rows(number, run)), REPLICA, small
        ),
        final=beside(spark, final, PROCESS, small) if final else None,
        overlapping=beside(spark, overlapping, PROCESS, small) if overlapping else None,
        traced=beside(
            spark, (row for number, run in traced for row in traced_rows(number, run)), TRACED, small
        )
        if traced
        else None,
        active=beside(spark, active, ACTIVE, small) if traced else None,
        most_replicas=max(
            (len(partition.replicas) for _, run in traced for partition in run.folder.partitions.values()),
            default=0,
        ),
        small=small,
        transactional=tuple(number for number, run in judged if run.transactional),
        repeated=any(run.repeated for _, run in judged),
        by_reads=any(is_judged_by_reads(run) for _, run in judged),
    )


def beside(spark: SparkSession, rows: Iterable[tuple[object, ...]], schema: str, small: bool) -> DataFrame:
    """A small frame that a join hashes where it stands (one task) or sends to every task (many). It travels
    as one JSON literal: rows of Python's would have Spark start a Python worker to read them. One of many
    rows travels as Arrow's batches, and is joined like any other big frame."""
    coming = iter(rows)
    first = list(islice(coming, LITERAL_ROWS + 1))
    if len(first) > LITERAL_ROWS:
        return spark.createDataFrame(arrow_of(chain(first, coming), schema))
    names = [column.split()[0] for column in _COLUMN.findall(schema)]
    told = orjson.dumps([dict(zip(names, row, strict=True)) for row in first]).decode()
    frame = spark.range(0, 1, 1, 1).select(
        F.inline(F.from_json(F.lit(told), f"array<struct<{_typed(schema)}>>"))
    )
    return frame.hint("shuffle_hash" if small else "broadcast")


_COLUMN = re.compile(r"(\w+ [^,<]+(?:<.*?>>?)?)(?:,|$)")


def _typed(schema: str) -> str:
    """ "name type, ..." as the fields of a struct."""
    return ", ".join(
        f"{name}:{kind}"
        for name, kind in (column.strip().split(" ", 1) for column in _COLUMN.findall(schema))
    )


def arrow_of(rows: Iterable[tuple[object, ...]], schema: str) -> pa.Table:
    """The rows as a table, a batch at a time."""
    fields = StructType.fromDDL(schema)
    assert isinstance(fields, StructType)
    told = to_arrow_schema(fields)
    coming, batches = iter(rows), []
    while some := list(islice(coming, BATCH_ROWS)):
        columns = zip(*some, strict=True)
        arrays = [pa.array(column, type=one.type) for column, one in zip(columns, told, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=told))
    return pa.Table.from_batches(batches, schema=told)


def known_leader(folder: Folder, partition: Partition) -> bool:
    """The leader is known, has its row, and its dump can be relied on."""
    leader = partition.leader
    return (
        leader is not None
        and (leader, partition.key) in folder.replicas
        and leader in folder.dumps
        and leader not in folder.damaged
    )


def partition_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    """A row for every partition of which there may be anything to claim."""
    final, partitions = finally_read(run.folder), run.folder.partitions
    keys = sorted(run.seen.used & partitions.keys())
    return (partition_row(number, run, partitions[key], final) for key in keys)


def partition_row(number: int, run: Run, partition: Partition, final: Container[int]) -> tuple[object, ...]:
    folder, bounds, key = run.folder, run.bounds[partition.key], partition.key
    known, row = known_leader(folder, partition), folder.leader_row(key)
    judged = known and not partition.compact
    readable = readable_of(folder, row) if row is not None else None
    unseen = unseen_judged(folder, key, breached=run.breached, final=final)
    return (
        number,
        key,
        partition.leader,
        known,
        partition.compact,
        judged,
        row.log_start if row else None,
        bottom_of(folder, partition, row),
        row.hw if row else None,
        readable,
        stable_of(row) if row else None,
        unseen,
        by_final_reads(folder, key, breached=run.breached, final=final),
        by_any_read(folder, key, breached=run.breached),
        in_doubt(folder),
        members(folder, partition) if judged and folder.settled else [],
        str(folder.guarantee("acks", "all")) != "all",
        retried(folder),
        folder.guarantee("isolation", "read_committed") == "read_uncommitted",
        bounds.unclean_index,
        bounds.unclean_time,
        bounds.unclean_maybe,
        bounds.unclean_maybe_time,
        bounds.budget_index,
        bounds.budget_maybe_index,
    )


def bottom_of(folder: Folder, partition: Partition, leader: Replica | None) -> int:
    """Below it a record may be gone with leave: the leader's log start, or the highest that any row tells."""
    if leader is not None:
        return leader.log_start
    rows = (folder.replicas.get((node, partition.key)) for node in partition.replicas)
    return max((row.log_start for row in rows if row is not None), default=0)


def readable_of(folder: Folder, leader: Replica) -> int:
    """The offset below which a reader may see the leader's log."""
    committed = folder.guarantee("isolation", "read_committed") == "read_committed"
    return stable_of(leader) if committed else leader.hw


def stable_of(leader: Replica) -> int:
    """The offset below which the leader's log is committed, and its transactions decided."""
    return leader.hw if leader.lso is None else min(leader.hw, leader.lso)


def finally_read(folder: Folder) -> frozenset[int]:
    """The partitions that were read to the end by processes that are known."""
    told = (folder.about.get("final_reads") or {}).get("processes")
    known = isinstance(told, list) and 0 < len(told) == len(folder.final_processes)
    return frozenset(folder.final_partitions) if known else frozenset()


def unseen_judged(folder: Folder, key: int, *, breached: bool, final: Container[int]) -> bool:
    """Whether a record that no final read returned may be held against this partition. `final`: what
    finally_read says."""
    if breached or not folder.settled or not known_leader(folder, folder.partitions[key]):
        return False
    return key in final


def by_final_reads(folder: Folder, key: int, *, breached: bool, final: Container[int]) -> bool:
    """Whether, for want of the leader's log, the final reads show what is lost of this partition."""
    return key in final and folder.settled and is_logless(folder, key, breached=breached)


def by_any_read(folder: Folder, key: int, *, breached: bool) -> bool:
    """Whether Jepsen's inference shows it, in a history of clients from elsewhere: what lies below a record
    that was read was read too."""
    told = imported(folder) and not folder.killed
    return bool(told) and is_logless(folder, key, breached=breached)


def is_logless(folder: Folder, key: int, *, breached: bool) -> bool:
    """Nobody has the leader's log, nothing was compacted away, and all that was read is in the history."""
    partition = folder.partitions[key]
    if breached or partition.compact or known_leader(folder, partition):
        return False
    told = imported(folder)
    if isinstance(told.get("blind"), list):
        return key not in told["blind"]
    left_out = told.get("left_out")  # an import of old names no partitions
    return not (isinstance(left_out, dict) and any(what.startswith("read ") for what in left_out))


def imported(folder: Folder) -> Mapping[str, Any]:
    """What run.json says of where the history came from; empty: it was made here."""
    told = folder.about.get("imported")
    return {"from": None, **told} if isinstance(told, dict) else {}


def losses_are_shown(folder: Folder, key: int, *, breached: bool, final: Container[int]) -> bool:
    """By the leader's log, or by reads. An import names the partitions with an ack above all that was read,
    of which nobody can tell."""
    above = imported(folder).get("unread")
    return (
        known_leader(folder, folder.partitions[key])
        or by_final_reads(folder, key, breached=breached, final=final)
        or (by_any_read(folder, key, breached=breached) and not (isinstance(above, list) and key in above))
    )


def in_doubt(folder: Folder) -> bool:
    """Whether a record that no final read returned leaves open whether it is lost: where logs are promised,
    unseen is unknown without them; where they are not, nothing else would say so."""
    return not (folder.observes.dumps and folder.observes.replicas)


def is_judged_by_reads(run: Run) -> bool:
    final, folder = finally_read(run.folder), run.folder
    return any(
        by_final_reads(folder, key, breached=run.breached, final=final)
        or by_any_read(folder, key, breached=run.breached)
        for key in run.seen.used & folder.partitions.keys()
    )


def members(folder: Folder, partition: Partition) -> list[dict[str, object]]:
    """ISR members beside the leader. One whose dump is damaged may hold what cannot be seen: nothing is said
    of it."""
    key = partition.key
    return [
        {"node": node, "log_start": folder.replicas[node, key].log_start}
        for node in sorted(partition.isr)
        if node != partition.leader
        and (node, key) in folder.replicas
        and node in folder.dumps
        and node not in folder.damaged
    ]


def retried(folder: Folder) -> bool:
    """A client that sends again without idempotence may write twice and out of order."""
    retries = folder.guarantee("retries", 0)
    return isinstance(retries, int) and retries > 0 and folder.guarantee("idempotence", False) is not True


def replica_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    """A row for every replica: what replicas.jsonl says of it, if it says anything. Of a partition without an
    entry only where that may be wrong in itself."""
    folder, seen = run.folder, run.seen
    used = sorted(seen.used & folder.partitions.keys())
    strange: dict[str, list[int]] = {node: [] for node in folder.nodes}
    for (node, key), row in folder.replicas.items():
        if not is_empty(row) and key not in seen.used and node in strange:
            strange[node].append(key)
    for node in folder.nodes:
        readable = node in folder.dumps and node not in folder.damaged
        for key in (*used, *strange[node]):
            if folder.is_stray(node, key):
                continue
            partition, replica = folder.partitions[key], folder.replicas.get((node, key))
            whole = readable and not seen.vouches_for(key)
            placed = (number, node, key, node == partition.leader, node in partition.isr)
            judged = (whole, folder.settled, run.bounds[key].struck, partition.compact)
            if replica is None:
                yield (*placed, None, None, None, None, *judged, None)
                continue
            cache = None
            if replica.epochs is not None and replica.running and not partition.compact:
                cache = [{"start": start, "epoch": epoch} for epoch, start in replica.epochs]
            yield (*placed, replica.hw, replica.log_start, replica.leo, replica.running, *judged, cache)


def contradicted(folder: Folder, seen: Seen) -> bool:
    """Whether the checks by log have anything to say of a run of which nothing has passed the sieve."""
    return any(
        not (is_sound(row) if row.partition in seen.used else is_empty(row))
        for row in folder.replicas.values()
        if not folder.is_stray(row.node, row.partition)
    )


def is_empty(replica: Replica) -> bool:
    """Whether the row is right where the log has no entry."""
    return replica.log_start == replica.leo and is_sound(replica)


def is_sound(replica: Replica) -> bool:
    """Whether the row is right in itself (agreement.bounds_contradict, cache_above_leo)."""
    return replica.hw <= replica.leo and all(start <= replica.leo for _, start in replica.epochs or ())


def fact_bytes(folder: Folder) -> int:
    """What the driver tells of partitions and replicas, as work."""
    return FACT_BYTES * len(folder.partitions) * (1 + len(folder.nodes))


# -- the trace --------------------------------------------------------------------------------------------


def tick(time_ns: int, error_ns: int) -> int:
    """As steps.py has it: two apart, and the times are surely in this order."""
    if not error_ns:
        return 2 * time_ns
    whole = abs(time_ns) // (error_ns + 1)
    return whole if time_ns >= 0 else -whole


def traced_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    """A row for every partition of a run that has a trace."""
    folder, error_ns = run.folder, clock_error_ns(run.folder)
    bottoms: dict[int, int] = {}
    for row in folder.replicas.values():
        if not folder.is_stray(row.node, row.partition):
            bottoms[row.partition] = max(bottoms.get(row.partition, 0), row.log_start)
    begun: dict[str, set[int]] = {}  # when each node was unfenced
    for active in run.rulings.active:
        begun.setdefault(active.node, set()).add(tick(max(active.since, -FAR), error_ns))
    for key, partition in folder.partitions.items():
        unfenced = sorted(set().union(*(begun.get(node, ()) for node in partition.replicas)))
        excuses = [
            {
                "by": each.permit,
                "epoch": each.epoch,
                "elected": each.elected,
                "tick": tick(each.time, error_ns),
            }
            for each in run.bounds[key].excuses
        ]
        needed = min(min_insync(folder, partition), len(partition.replicas))
        bottom = bottoms.get(key, 0)
        names = list(folder.nodes), list(partition.replicas)
        yield number, key, *names, error_ns, needed, bottom, run.rulings.whole, unfenced, excuses


def active_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    error_ns = clock_error_ns(run.folder)
    for each in run.rulings.active:
        ends = (time for time in run.rulings.restarts[each.node] if time + error_ns >= each.since)
        since, until = max(each.since, -FAR), min(each.until, FAR, *ends)
        yield number, each.node, tick(since, error_ns), tick(until, error_ns)
