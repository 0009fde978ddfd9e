"""What the driver knows of the runs, as tables of the contract: gates, permissions, special processes.

partitions, replicas  those of which the history or a dump says anything: of the others there is nothing to
                      claim. But a replica whose row in replicas.jsonl is wrong without an entry has its row
                      here though its partition has none.
traced                every partition of a run that has a trace
processes             those of the final reads, and those that overlap
faults, runs, active_brokers

A column is made at once for all partitions of a run, or all replicas. What many of them have in common
(lists above all) is made once and taken as often as it is needed.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from checkers.judge.claim_gates import (
    Gates,
    claims_from,
    contradicts_no_entries,
    gates_of,
    has_complete_dump,
    has_weak_acks,
    is_loss_in_doubt,
    is_retried,
    is_uncommitted,
    readable_to,
    stable_to,
)
from checkers.judge.permissions import Bounds, Excuse, min_insync
from checkers.judge.runs import Run, silent_names
from checkers.laws.tables import TABLES
from checkers.read.folder import Folder, Partition, Replica, clock_error_ns

FAR_NS = 1 << 60  # times further away are taken for this one
LEAST = -(1 << 63)
_BOUNDS = (
    "unclean_index", "unclean_time", "unclean_maybe", "unclean_maybe_time", "budget_index",
    "budget_maybe_index",
)  # fmt: skip
Of = TypeVar("Of")


def run_tables(runs: Mapping[int, Run]) -> dict[str, pa.Table]:
    """The tables of these runs, by their position in the call."""
    judged = [(number, run) for number, run in runs.items() if run.folder.judged]
    traced = [(number, run) for number, run in judged if run.traced]
    made = {
        "partitions": [partitions_of(*one) for one in judged],
        "replicas": [replicas_of(*one) for one in judged],
        "processes": [_from_rows("processes", process_rows(*one)) for one in judged],
        "faults": [_from_rows("faults", fault_rows(*one)) for one in judged],
        "runs": [_from_rows("runs", run_rows(*one)) for one in judged],
        "traced": [traced_of(*one) for one in traced],
        "active_brokers": [_from_rows("active_brokers", active_rows(*one)) for one in traced],
    }
    return {
        name: pa.concat_tables([TABLES[name].empty_table(), *tables]) for name, tables in made.items()
    }


# -- columns ------------------------------------------------------------------------------------------------


def _table(name: str, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """The contract's table; a single value is that of every row."""
    schema, arrays = TABLES[name], []
    assert columns.keys() == set(schema.names), columns.keys() ^ set(schema.names)
    for column in schema:
        values = columns[column.name]
        if isinstance(values, (pa.Array, np.ndarray, list)):
            array = pa.array(values, type=column.type) if isinstance(values, list) else pa.array(values)
        else:
            array = pa.repeat(pa.scalar(values, type=column.type), rows)
        arrays.append(array.cast(column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _from_rows(name: str, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    """Rows in the order of the contract's columns."""
    names = TABLES[name].names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=TABLES[name])


def _shared(
    values: Sequence[Of], key: Callable[[Of], Hashable], made: Callable[[Of], object], kind: pa.DataType
) -> pa.Array:
    """What is made of each value, made once for all that have this key in common."""
    codes = dict[Hashable, int]()
    numbers = [codes.setdefault(key(value), len(codes)) for value in values]
    firsts = np.unique(np.array(numbers, dtype=np.int64), return_index=True)[1].tolist()
    distinct = pa.array([made(values[first]) for first in firsts], type=kind)
    return distinct.take(pa.array(numbers, type=pa.int64()))


def _of_bounds(bounds: Sequence[Bounds], made: Callable[[Bounds], object], kind: pa.DataType) -> pa.Array:
    """Most partitions have one Bounds in common."""
    return _shared(bounds, id, made, kind)


def _kind(table: str, column: str) -> pa.DataType:
    return TABLES[table].field(column).type


# -- partitions, replicas -----------------------------------------------------------------------------------


def partitions_of(number: int, run: Run) -> pa.Table:
    """Of each partition of which there may be anything to claim."""
    folder, gates = run.folder, gates_of(run.folder, breached=run.breached)
    used = _used(run, gates)
    partitions = [gates.partitions[at] for at in used.tolist()]
    leaders = [folder.leader_row(partition.key) for partition in partitions]
    bounds = [run.bounds[partition.key] for partition in partitions]
    judged = gates.losses_judged[used]
    columns = {
        "run": number,
        "partition": [partition.key for partition in partitions],
        "leader": [partition.leader for partition in partitions],
        "compact": [partition.compact for partition in partitions],
        "log_start": [None if row is None else row.log_start for row in leaders],
        "claims_from": [
            claims_from(folder, partition, row) for partition, row in zip(partitions, leaders, strict=True)
        ],
        "hw": [None if row is None else row.hw for row in leaders],
        "readable_to": [None if row is None else readable_to(folder, row) for row in leaders],
        "stable_to": [None if row is None else stable_to(row) for row in leaders],
        "isr_followers": _isr_followers(folder, partitions, (judged & folder.settled).tolist()),
        "loss_in_doubt": is_loss_in_doubt(folder),
        "weak_acks": has_weak_acks(folder),
        "retried": is_retried(folder),
        "uncommitted": is_uncommitted(folder),
    }
    columns |= {
        name: getattr(gates, name)[used]
        for name in ("leader_known", "losses_judged", "unseen_judged", "by_final_reads", "by_any_read")
    }
    columns |= {
        name: _of_bounds(bounds, attrgetter(name), _kind("partitions", name))
        for name in _BOUNDS
    }
    return _table("partitions", len(partitions), columns)


def _used(run: Run, gates: Gates) -> Any:
    """Where the partitions stand of which the history or a dump says anything, by number."""
    used = run.preconditions.used
    there = [(each.key, at) for at, each in enumerate(gates.partitions) if each.key in used]
    return np.array([at for _, at in sorted(there)], dtype=np.int64)


def _isr_followers(folder: Folder, partitions: Sequence[Partition], judged: Sequence[bool]) -> pa.Array:
    """ISR members beside the leader, with their log starts. One whose dump is damaged may hold what nobody
    can see: nothing is claimed of it."""
    complete = {node for node in folder.nodes if has_complete_dump(folder, node)}
    nodes, log_starts, ends, replicas = [], [], [0], folder.replicas
    for partition, is_judged in zip(partitions, judged, strict=True):
        if is_judged:
            key, leader = partition.key, partition.leader
            for node in sorted(partition.isr & complete):
                row = replicas.get((node, key))
                if node != leader and row is not None:
                    nodes.append(node)
                    log_starts.append(row.log_start)
        ends.append(len(nodes))
    fields = list(_kind("partitions", "isr_followers").value_type)
    arrays = [pa.array(nodes, pa.string()), pa.array(log_starts, pa.int64())]
    followers = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), followers)


def replicas_of(number: int, run: Run) -> pa.Table:
    """Of each replica that run.json assigns, what replicas.jsonl says of it, if it says anything. Of a
    partition without an entry only where that is wrong."""
    folder = run.folder
    placed = list(_placed(run))
    partitions = [folder.partitions[key] for _, key in placed]
    rows = [folder.replicas.get(one) for one in placed]
    bounds = [run.bounds[key] for _, key in placed]
    complete = {node: has_complete_dump(folder, node) for node in folder.nodes}
    columns = {
        "run": number,
        "node": [node for node, _ in placed],
        "partition": [key for _, key in placed],
        "leads": [
            node == partition.leader for (node, _), partition in zip(placed, partitions, strict=True)
        ],
        "in_isr": [node in partition.isr for (node, _), partition in zip(placed, partitions, strict=True)],
        "hw": [None if row is None else row.hw for row in rows],
        "log_start": [None if row is None else row.log_start for row in rows],
        "leo": [None if row is None else row.leo for row in rows],
        "running": [None if row is None else row.running for row in rows],
        "complete": [complete[node] for node, _ in placed],
        "settled": folder.settled,
        "struck": [each.struck for each in bounds],
        "compact": [partition.compact for partition in partitions],
        "cache": _shared(
            [_claimed_cache(row, partition) for row, partition in zip(rows, partitions, strict=True)],
            lambda cache: cache,
            lambda cache: cache and [{"start": start, "epoch": epoch} for epoch, start in cache],
            _kind("replicas", "cache"),
        ),
    }
    return _table("replicas", len(placed), columns)


def _placed(run: Run) -> Iterator[tuple[str, int]]:
    """Node and partition of each replica that has a row."""
    folder, used = run.folder, run.preconditions.used
    nodes_of = dict[tuple[str, ...], list[str]]()  # by all that the partition names
    for key in sorted(used & folder.partitions.keys()):
        named = folder.partitions[key].replicas
        if named not in nodes_of:
            nodes_of[named] = [node for node in folder.nodes if node in named]
        yield from ((node, key) for node in nodes_of[named])
    for (node, key), row in folder.replicas.items():
        is_ours = node in folder.nodes and not folder.is_stray(node, key)
        if key not in used and contradicts_no_entries(row) and is_ours:
            yield node, key


def _claimed_cache(row: Replica | None, partition: Partition) -> tuple[tuple[int, int], ...] | None:
    """Its leader epochs, where anything is claimed of them."""
    return row.epochs if row is not None and row.running and not partition.compact else None


# -- processes, faults, runs --------------------------------------------------------------------------------


def process_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    final, overlapping = frozenset(run.folder.final_processes), run.preconditions.overlapping
    for process in sorted(final | overlapping.keys()):
        yield number, process, process in final, process in overlapping


def fault_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    for op in run.preconditions.nemesis:
        yield number, op["index"], op["time"], op["f"], json.dumps(op["fault"])


def run_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    yield number, run.preconditions.txns > 0, is_uncommitted(run.folder), list(silent_names(run))


# -- the trace ----------------------------------------------------------------------------------------------


def tick(time_ns: int, error_ns: int) -> int:
    """A time in steps of which two are certainly in order: two ticks apart, and the times are further apart
    than the clocks may be."""
    if not error_ns:
        return 2 * max(-FAR_NS, min(FAR_NS, time_ns))
    steps = abs(time_ns) // (error_ns + 1)
    return steps if time_ns >= 0 else -steps


def traced_of(number: int, run: Run) -> pa.Table:
    """Of each partition of a run that has a trace."""
    folder, error_ns = run.folder, clock_error_ns(run.folder)
    partitions = list(folder.partitions.values())
    bounds = [run.bounds[partition.key] for partition in partitions]
    claims = dict[int, int]()
    for (node, key), row in folder.replicas.items():
        if row.log_start > claims.get(key, 0) and not folder.is_stray(node, key):
            claims[key] = row.log_start
    unfenced: dict[str, set[int]] = {}  # ticks at which each broker was
    for active in run.rulings.active:
        unfenced.setdefault(active.node, set()).add(tick(max(active.since, -FAR_NS), error_ns))

    def of_replicas(made: Callable[[Partition], object], column: str) -> pa.Array:
        return _shared(partitions, lambda each: each.replicas, made, _kind("traced", column))

    return _table("traced", len(partitions), {
        "run": number,
        "partition": [partition.key for partition in partitions],
        "nodes": folder.nodes,
        "replicas": of_replicas(lambda each: list(each.replicas), "replicas"),
        "clock_error": error_ns,
        "min_isr": of_replicas(lambda each: min(min_insync(folder, each), len(each.replicas)), "min_isr"),
        "claims_from": [claims.get(partition.key, 0) for partition in partitions],
        "complete": run.rulings.complete,
        "unfenced": of_replicas(
            lambda each: sorted(set().union(*(unfenced.get(node, ()) for node in each.replicas))), "unfenced"
        ),
        "excuses": _of_bounds(
            bounds, lambda each: [_excuse(one, error_ns) for one in each.excuses], _kind("traced", "excuses")
        ),
    })  # fmt: skip


def _excuse(excuse: Excuse, error_ns: int) -> dict[str, int]:
    return {
        "permit": excuse.permit, "epoch": max(LEAST, excuse.epoch), "elected": excuse.elected,
        "tick": tick(excuse.time, error_ns),
    }  # fmt: skip


def active_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    """When each broker was registered and not fenced: from its unfencing to the controller's next word on
    it, or to a start of its next process that does not surely lie before."""
    error_ns = clock_error_ns(run.folder)
    for each in run.rulings.active:
        ends = (time for time in run.rulings.restarts[each.node] if time + error_ns >= each.since)
        since, until = max(each.since, -FAR_NS), min(each.until, FAR_NS, *ends)
        yield number, each.node, tick(since, error_ns), tick(until, error_ns)
