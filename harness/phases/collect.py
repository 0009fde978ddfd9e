"""Ends a run: freezes all brokers, reads every replica's log, and writes what each node believed.

Rules
1. Nodes that answer are read while they stand frozen, those that do not are killed first; nothing is ever
   stopped gracefully, for leadership would wander. A cluster that cannot freeze is looked at again after it
   was read: what moved meanwhile is unsettled.
2. A file of the dump is complete or not there. A log that cannot be read is named and left out; of a
   cluster whose logs nobody can read (observes_of says so) there are no dumps.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from floodmark.harness import logdir
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.parquet_dump import write_twin
from floodmark.harness.phases.settle import what_moved
from floodmark.harness.protocols import (
    UNKNOWN,
    Cluster,
    Freezes,
    KeepsLogs,
    Kills,
    PartitionSpec,
    ReadsLogs,
    ReplicaView,
    Traces,
    View,
    ability,
)
from floodmark.harness.run import Run, json_line, write_pieces
from floodmark.harness.trace import Merge, Raw

_ROWS_A_PIECE = 10_000
_OF_ROW = ("leader", "epoch", "log_start", "leo", "hw", "isr", "clean")  # of a running replica, in its row


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """`leaders` as run.json has them; problems: what could not be had, in words. moved: what did while the
    logs of a cluster that cannot freeze were read."""

    frozen: View | None
    moved: str | None
    leaders: Mapping[str, Any]
    problems: tuple[str, ...]
    clock_error_ns: int | None  # of the trace's stamps; None: there is no trace


async def collect(
    cluster: Cluster, run: Run, specs: Sequence[PartitionSpec], run_id: str, origin_ns: int
) -> Collected:
    """Freezes, dumps and ends the cluster; writes logs/, replicas.jsonl and, where it traces, trace.jsonl,
    whose times count from origin_ns."""
    problems: list[str] = []
    freezes = ability(cluster, Freezes)
    frozen: View | None = None
    moved: str | None = None
    try:
        frozen = await (cluster.observe() if freezes is None else freezes.freeze())
    except FloodmarkError as error:
        problems.append(f"the cluster could not be frozen: {error}")
    answering = {node for node, _ in frozen.replicas} & frozen.running if frozen else frozenset()
    dumps = _Dumps(cluster=cluster, run=run, specs=specs, run_id=run_id, problems=problems)
    rows = [_running_row(replica) for replica in frozen.replicas.values() if replica.node in answering
            ] if frozen else []
    for node in sorted(cluster.nodes, key=lambda node: (node not in answering, node)):
        rows += await dumps.write(node, running=node in answering)
    if freezes is None and frozen is not None:
        moved = what_moved(frozen, await cluster.observe(), specs)
    await cluster.stop()
    await asyncio.to_thread(_write_twins, run)
    traces = ability(cluster, Traces)
    raw = None if traces is None else traces.traces()
    if raw is not None:
        problems += await asyncio.to_thread(_write_trace, raw, run, origin_ns)
    known = [row for row in rows if UNKNOWN not in row.values()]
    run.write_replicas(sorted(known, key=lambda row: (row["partition"], row["node"])))
    return Collected(frozen=frozen, moved=moved, leaders=_leaders(frozen), problems=tuple(problems),
                     clock_error_ns=None if raw is None else raw.clock_error_ns)


def observes_of(cluster: Cluster) -> dict[str, Any]:
    """run.json's `observes`: what this system cannot show at all. Nothing where it can show everything."""
    dumps = ability(cluster, ReadsLogs) is not None or ability(cluster, KeepsLogs) is not None
    replicas = not cluster.not_shown & {*_OF_ROW}
    traces = ability(cluster, Traces)
    events = None if traces is None else traces.traced_events
    if dumps and replicas and events is None:
        return {}
    shown = {} if events is None else {"trace": sorted(events)}
    return {"observes": {"dumps": dumps, "replicas": replicas, **shown}}


def _write_twins(run: Run) -> None:
    """Every dump once more, as Parquet, which the judge reads quicker; without it there are the lines."""
    for lines in sorted(run.logs_folder.glob("*.jsonl")):
        with suppress(FloodmarkError):
            write_twin(lines)


def _write_trace(raw: Raw, run: Run, origin_ns: int) -> list[str]:
    """trace.jsonl, in place of the raw files; what is missing in it."""
    merge = Merge(raw, origin_ns)
    try:
        write_pieces(run.trace_path, merge.pieces())
    except FloodmarkError as error:
        return [f"the trace could not be written: {error}"]
    if not merge.problems:
        for path in raw.files.values():
            path.unlink(missing_ok=True)
    return merge.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dumps:
    """Reads the logs of nodes, from their folders or from a cluster that keeps none; what fails goes to
    problems."""

    cluster: Cluster
    run: Run
    specs: Sequence[PartitionSpec]
    run_id: str
    problems: list[str]

    async def write(self, node: str, *, running: bool) -> list[dict[str, Any]]:
        """logs/NODE.jsonl. Returns the rows of replicas.jsonl that only the log of a dead node can give."""
        kills, files = ability(self.cluster, Kills), ability(self.cluster, ReadsLogs)
        kept = ability(self.cluster, KeepsLogs)
        try:
            if not running and kills is not None:
                await kills.kill(node)
            if files is None and kept is None:
                return []
            folder = None if files is None else await files.log_dir(node)
        except FloodmarkError as error:
            self.problems.append(f"the log directory of {node} could not be read: {error}")
            return []
        if folder is not None:
            return await asyncio.to_thread(self._from_files, node, folder, running=running)
        assert kept is not None, "asked above"
        self._dump(node, kept.log_rows(node, self.run_id))
        return [] if running else self._dead_rows(node, lambda spec: kept.log_state(node, spec.key))

    def _from_files(self, node: str, folder: Path, *, running: bool) -> list[dict[str, Any]]:
        self._dump(node, logdir.dump(folder, self.specs, self.run_id, node, running=running))
        return [] if running else self._dead_rows(
            node, lambda spec: logdir.describe(folder, spec, running=False))

    def _dump(self, node: str, rows: Iterator[dict[str, Any]]) -> None:
        try:
            write_pieces(self.run.logs_folder / f"{node}.jsonl", _pieces(rows))
        except FloodmarkError as error:
            self.problems.append(f"the log of {node} could not be dumped: {error}")

    def _dead_rows(self, node: str, describe: Callable[[PartitionSpec], logdir.LogState]
                   ) -> list[dict[str, Any]]:
        rows = []
        for spec in self.specs:
            if node in spec.replicas:
                try:
                    rows.append(_dead_row(node, spec, describe(spec)))
                except FloodmarkError as error:
                    self.problems.append(f"{node} left no word on partition {spec.key}: {error}")
        return rows


def _pieces(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    while piece := b"".join(map(json_line, islice(rows, _ROWS_A_PIECE))):
        yield piece


def _running_row(replica: ReplicaView) -> dict[str, Any]:
    row = {"node": replica.node, "partition": replica.partition,
           **{name: getattr(replica, name) for name in _OF_ROW}}
    if replica.epochs is not UNKNOWN and replica.epochs is not None:
        row["epochs"] = [list(entry) for entry in replica.epochs]
    return row


def _dead_row(node: str, spec: PartitionSpec, state: logdir.LogState) -> dict[str, Any]:
    """clean is false: whatever ended it was no orderly stop of this run's making that a restart has seen."""
    row: dict[str, Any] = {
        "node": node, "partition": spec.key, "running": False, "leader": None,
        "epoch": state.epochs[-1][0] if state.epochs else -1,
        "log_start": state.log_start, "leo": state.leo, "hw": min(state.checkpointed_hw, state.leo),
        "isr": [], "clean": False, "torn_bytes": state.torn_bytes,
    }
    if state.epochs is not None:
        row["epochs"] = [list(entry) for entry in state.epochs]
    return row


def _leaders(frozen: View | None) -> dict[str, Any]:
    """The controller's word; a partition without a leader has no entry."""
    if frozen is None:
        return {}
    return {
        str(key): {"leader": truth.leader, "epoch": truth.epoch, "isr": list(truth.isr)}
        for key, truth in sorted(frozen.partitions.items()) if truth.leader is not None
    }
