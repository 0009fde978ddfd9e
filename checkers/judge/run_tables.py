"""Builds the laws' tables about the runs from the driver's knowledge: gates, permissions, special processes.

partitions, replicas: only those for which the history or a dump has anything; about the others there is
nothing to claim. (A replica whose row in replicas.jsonl is contradictory has its row here even if its
partition has none.)

  traced      every partition of a run that has a trace
  processes   those of the final reads, and those that overlap

And faults, runs, active_brokers, strikes.

A column is made at once for all partitions of a run, or all replicas. Values that many of them share (above
all lists) are made once and reused.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter, eq
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.judge.deaths import may_have_been_struck
from floodmark.checkers.judge.permissions import Excuse, min_insync, strikes_of
from floodmark.checkers.judge.reasons import has_complete_dump, uncommitted_of
from floodmark.checkers.judge.rulings import NEVER_ENDS
from floodmark.checkers.judge.runs import Run, silent_names
from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.laws.trace.node_timeline import FAR
from floodmark.checkers.read.columns import Flags, Ints, contains
from floodmark.checkers.read.folder import Folder, clock_error_ns
from floodmark.checkers.read.partitions import Partitions
from floodmark.checkers.read.replica_rows import Replicas

LEAST = -(1 << 63)
_BOUNDS = (
    "unclean_index", "unclean_time", "unclean_maybe", "unclean_maybe_time", "budget_index",
    "budget_maybe_index",
)  # fmt: skip


def run_tables(runs: Mapping[int, Run]) -> dict[str, pa.Table]:
    """The tables of these runs, by the runs' position in the call."""
    return {**tables_of_runs(runs), **tables_of_partitions(runs)}


def tables_of_runs(runs: Mapping[int, Run]) -> dict[str, pa.Table]:
    """The tables that have no partitions."""
    judged = [(number, run) for number, run in runs.items() if run.folder.judged]
    traced = [(number, run) for number, run in judged if run.traced]
    return _together({
        "processes": [_from_rows("processes", process_rows(*one)) for one in judged],
        "faults": [_from_rows("faults", fault_rows(*one)) for one in judged],
        "runs": [_from_rows("runs", run_rows(*one)) for one in judged],
        "active_brokers": [_from_rows("active_brokers", active_rows(*one)) for one in traced],
        "strikes": [_from_rows("strikes", strike_rows(*one)) for one in traced],
    })


def tables_of_partitions(runs: Mapping[int, Run]) -> dict[str, pa.Table]:
    """The tables about partitions; of a run or of a part of it (runs.part_of)."""
    judged = [(number, run) for number, run in runs.items() if run.folder.judged]
    return _together({
        "partitions": [partitions_of(*one) for one in judged],
        "replicas": [replicas_of(*one) for one in judged],
        "log_start_unknown": [log_start_unknown_of(*one) for one in judged],
        "traced": [traced_of(*one) for one in judged if one[1].traced],
    })


def _together(made: Mapping[str, Sequence[pa.Table]]) -> dict[str, pa.Table]:
    return {
        name: pa.concat_tables([TABLES[name].empty_table(), *tables]) for name, tables in made.items()
    }


# -- columns ------------------------------------------------------------------------------------------------


def _table(name: str, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """The contract's table; a single value is repeated in every row."""
    schema, arrays = TABLES[name], []
    assert columns.keys() == set(schema.names), columns.keys() ^ set(schema.names)
    if not rows:
        return schema.empty_table()  # Arrow repeats no list zero times
    for column in schema:
        values = columns[column.name]
        if isinstance(values, (pa.Array, np.ndarray, list)):
            array = pa.array(values, type=column.type) if isinstance(values, list) else pa.array(values)
        else:
            array = pa.repeat(pa.scalar(values, type=column.type), rows)
        arrays.append(array.cast(column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _from_rows(name: str, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    """Rows with values in the order of the contract's columns."""
    names = TABLES[name].names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=TABLES[name])


def _kind(table: str, column: str) -> pa.DataType:
    return TABLES[table].field(column).type


# -- partitions, replicas -----------------------------------------------------------------------------------


def partitions_of(number: int, run: Run) -> pa.Table:
    """A row for each partition about which there may be anything to claim."""
    folder, used = run.folder, _used(run)
    gates = run.gates[used]
    partitions, bounds, replicas = folder.partitions.taken(used), run.bounds.taken(used), folder.replicas
    leader = replicas.rows_by(partitions.leader, partitions.keys_there)
    promised = folder.guarantees
    hw, lso, log_start = (replicas.column(name, leader) for name in ("hw", "lso", "log_start"))
    # Where a transaction may be open, readers of committed records see less.
    stable = pc.min_element_wise(hw, lso)  # a null is ignored
    stable = pc.if_else(pc.is_valid(hw), stable, pa.scalar(None, pa.int64()))
    columns = {
        "run": number,
        "partition": partitions.keys_there,
        "leader": partitions.leader.made(lambda node: node, pa.string()),
        "compact": partitions.compact,
        "log_start": log_start,
        "claims_from": pc.coalesce(log_start, pa.array(_highest_log_starts(partitions, replicas))),
        "hw": hw,
        "readable_to": hw if promised.surely_uncommitted else stable,
        "stable_to": stable if run.preconditions.txns else hw,
        "isr_followers": _isr_followers(folder, partitions, gates.losses_judged & folder.settled),
        "keeps_all": partitions.keeps_all & ~partitions.compact & folder.settled,
        # Where logs are promised, unseen is unknown without them; where they are not, only this says so.
        "loss_in_doubt": bool(folder.observes.files_lacked),
        "denied_by": np.where(gates.topic_gone, len(folder.nodes), 0),
        "weak_acks": promised.weak_acks,
        "retried": promised.retried,
        "uncommitted": sees_uncommitted(run),
        "decided": gates.leader_known & folder.settled & lso.is_valid().to_numpy(False),
    }
    columns |= {
        name: gates[name]
        for name in ("leader_known", "losses_judged", "unseen_judged", "by_final_reads", "by_any_read")
    }
    columns |= {name: bounds.column(attrgetter(name), _kind("partitions", name)) for name in _BOUNDS}
    return _table("partitions", len(partitions), columns)


def sees_uncommitted(run: Run) -> bool:
    """Whether readers may see records of open and aborted transactions, if there are any."""
    return run.folder.guarantees.uncommitted and run.preconditions.txns > 0


def _used(run: Run) -> Ints:
    """The positions of the partitions for which the history or a dump has anything, by number."""
    keys = run.folder.partitions.keys_there
    there = np.flatnonzero(np.isin(keys, [*run.preconditions.used]))
    return there[np.argsort(keys[there], kind="stable")]


def _highest_log_starts(partitions: Partitions, replicas: Replicas) -> Ints:
    """For each partition the highest log start in the rows of its replicas: below it records may have been
    deleted; 0 where no replica has a row."""
    highest, log_starts = np.zeros(len(partitions), dtype=np.int64), replicas.numbers("log_start")
    for node in partitions.nodes:
        rows = _rows_of(node, partitions, replicas)
        there = rows >= 0
        highest[there] = np.maximum(highest[there], log_starts[rows[there]])
    return highest


def log_start_unknown_of(number: int, run: Run) -> pa.Table:
    """A row for each partition whose final log start may be higher than in the rows that are there: its
    leader's row is missing, or that of any replica, if the leader is unknown."""
    keys = run.folder.partitions.keys_there[run.gates.log_start_unknown]
    return _table("log_start_unknown", len(keys), {"run": number, "partition": keys})


def _rows_of(node: str, partitions: Partitions, replicas: Replicas) -> Ints:
    """The node's rows of these partitions; -1 where it has none, or run.json does not assign it."""
    has_replica = partitions.replicas.where(partial(contains, item=node))
    return np.where(has_replica, replicas.rows_of(node, partitions.keys_there), -1)


def _isr_followers(folder: Folder, partitions: Partitions, judged: Flags) -> pa.Array:
    """ISR members other than the leader, with their log starts. A damaged dump may lack records that the
    replica has: nothing is claimed about it."""
    none = np.zeros(0, dtype=np.int64)
    found = [(none, none, none)]
    complete = [node for node in sorted(folder.nodes) if has_complete_dump(folder, node)]
    for code, node in enumerate(complete):
        its = _rows_of(node, partitions, folder.replicas)
        follows = partitions.isr.where(partial(contains, item=node))
        follows &= judged & (its >= 0) & ~partitions.leader.where(partial(eq, node))
        at = np.flatnonzero(follows)
        found.append((at, np.full(len(at), code), its[at]))
    at, codes, rows = map(np.concatenate, zip(*found, strict=True))
    order = np.lexsort((codes, at))
    fields = list(_kind("partitions", "isr_followers").value_type)
    names = pa.array(complete, pa.string()).take(pa.array(codes[order]))
    log_starts = folder.replicas.column("log_start", rows[order])
    followers = pa.StructArray.from_arrays([names, log_starts], fields=fields)
    ends = np.cumsum(np.bincount(at, minlength=len(partitions)))
    return pa.ListArray.from_arrays(pa.array(np.concatenate(([0], ends)), pa.int32()), followers)


def replicas_of(number: int, run: Run) -> pa.Table:
    """A row for each replica that run.json assigns, with what replicas.jsonl says about it. A replica of a
    partition without entries is included only if its row is contradictory."""
    folder = run.folder
    code, at, row = _placed(run)
    partitions, bounds = folder.partitions.taken(at), run.bounds.taken(at)
    leads, in_isr = np.zeros(len(at), dtype=np.bool_), np.zeros(len(at), dtype=np.bool_)
    for number_of, node in enumerate(folder.nodes):
        mine = code == number_of
        leads |= mine & partitions.leader.where(partial(eq, node))
        in_isr |= mine & partitions.isr.where(partial(contains, item=node))
    nodes, codes = pa.array(folder.nodes, pa.string()), pa.array(code)
    complete = pa.array([has_complete_dump(folder, node) for node in folder.nodes], pa.bool_())
    running = folder.replicas.column("running", row)
    running = pc.if_else(pa.array(row >= 0), pc.fill_null(running, True), running)
    # Nothing is claimed about leader epochs that cannot be read, those of a compacted log, or of a node that
    # was not running.
    claimed = pc.fill_null(running, False).to_numpy(zero_copy_only=False) & ~partitions.compact
    claimed &= ~folder.replicas.unreadable_epochs(running=True)[row]
    columns = {
        "run": number,
        "node": nodes.take(codes),
        "partition": partitions.keys_there,
        "leads": leads,
        "in_isr": in_isr,
        **{name: folder.replicas.column(name, row) for name in ("hw", "log_start", "leo")},
        "running": running,
        "complete": complete.take(codes),
        "settled": folder.settled,
        "struck": bounds.column(attrgetter("struck"), pa.bool_()),
        "compact": partitions.compact,
        "cache": folder.replicas.caches(row, claimed, _kind("replicas", "cache")),
    }
    return _table("replicas", len(at), columns)


def _placed(run: Run) -> tuple[Ints, Ints, Ints]:
    """For each replica with a row in the table: its node and its partition, as positions in the folder's
    lists, and its row of replicas.jsonl; ordered by partition, unused partitions last."""
    folder, keys = run.folder, run.folder.partitions.keys_there
    is_used = np.isin(keys, [*run.preconditions.used])
    contradictory = np.append(folder.replicas.contradictory(), False)  # at -1
    none = np.zeros(0, dtype=np.int64)
    found = [(none, none, none)]
    for number, node in enumerate(folder.nodes):
        row = _rows_of(node, folder.partitions, folder.replicas)
        has_replica = folder.partitions.replicas.where(partial(contains, item=node))
        at = np.flatnonzero(has_replica & (is_used | contradictory[row]))
        found.append((np.full(len(at), number), at, row[at]))
    code, at, row = map(np.concatenate, zip(*found, strict=True))
    order = np.lexsort((code, keys[at], ~is_used[at]))
    return code[order], at[order], row[order]


# -- processes, faults, runs --------------------------------------------------------------------------------


def process_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    final, overlapping = frozenset(run.folder.final_processes), run.preconditions.overlapping
    uncommitted = uncommitted_of(run.folder)
    for process in sorted(final | overlapping.keys() | uncommitted.keys()):
        yield number, process, process in final, process in overlapping, uncommitted.get(process)


def fault_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    for op in run.preconditions.nemesis:
        yield number, op["index"], op["time"], op["f"], json.dumps(op["fault"])


def run_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    faults_known = not may_have_been_struck(run.folder, run.preconditions)
    yield (number, run.preconditions.txns > 0, sees_uncommitted(run),
           run.folder.guarantees.surely_uncommitted, list(silent_names(run)), run.internal_index,
           faults_known, run.folder.guarantees.sent_once)  # fmt: skip


# -- the trace ----------------------------------------------------------------------------------------------


def near(time_ns: int) -> int:
    """The time, or FAR: as in the laws' timeline."""
    return max(-FAR, min(FAR, time_ns))


def traced_of(number: int, run: Run) -> pa.Table:
    """A row for each partition of a run that has a trace."""
    folder, error_ns = run.folder, clock_error_ns(run.folder)
    partitions = folder.partitions
    unfenced: dict[str, set[int]] = {}  # times at which each broker was unfenced
    for active in run.rulings.active:
        unfenced.setdefault(active.node, set()).add(near(active.since))

    def of_replicas(made: Callable[[tuple[str, ...]], object], column: str) -> pa.Array:
        return partitions.replicas.made(made, _kind("traced", column))

    return _table("traced", len(partitions), {
        "run": number,
        "partition": partitions.keys_there,
        "nodes": folder.nodes,
        "replicas": of_replicas(list, "replicas"),
        "clock_error": error_ns,
        "min_isr": of_replicas(lambda nodes: min(min_insync(folder, nodes), len(nodes)), "min_isr"),
        "claims_from": _highest_log_starts(partitions, folder.replicas),
        "complete": run.rulings.complete,
        "unfenced": of_replicas(
            lambda nodes: sorted(set().union(*(unfenced.get(node, ()) for node in nodes))), "unfenced"
        ),
        "excuses": run.bounds.column(
            lambda each: [_excuse(one) for one in each.excuses], _kind("traced", "excuses")
        ),
    })  # fmt: skip


def _excuse(excuse: Excuse) -> dict[str, int]:
    return {
        "permit": excuse.permit, "epoch": max(LEAST, excuse.epoch), "struck": near(excuse.struck),
        "elected": excuse.elected, "time": near(excuse.time),
    }  # fmt: skip


def active_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    """When each broker surely was registered and not fenced: from its unfencing to the controller's next line
    about it, or to a start of its next process that does not surely come before."""
    error_ns = clock_error_ns(run.folder)
    for each in run.rulings.active:
        ends = [time for time in run.rulings.restarts[each.node] if time + error_ns >= each.since]
        since, until = (
            time if abs(time) == NEVER_ENDS else near(time) for time in (each.since, min([each.until, *ends]))
        )
        if until - since > error_ns:
            yield number, each.node, since, until


def strike_rows(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    """When each fault that lost data struck a node."""
    for strike in strikes_of(run.preconditions.nemesis):
        yield number, strike.node, near(strike.began), near(strike.time)
