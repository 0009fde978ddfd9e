"""Ends a run: freezes all brokers, reads every replica's log, and writes what each node believed.

Rules
1. Nodes that answer are read while they stand frozen, those that do not are killed first; nothing is ever
   stopped gracefully, for leadership would wander.
2. A file of the dump is there whole or not at all. A log that cannot be read is told and left out.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from floodmark.harness import logdir
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.parquet_dump import write_twin
from floodmark.harness.protocols import Cluster, Kills, PartitionSpec, ReplicaView, Traces, View
from floodmark.harness.run import Run, json_line, write_pieces
from floodmark.harness.trace import Merge, Raw

_ROWS_A_PIECE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """`leaders` as run.json has them; problems: what could not be had, in words."""

    frozen: View | None
    leaders: Mapping[str, Any]
    problems: tuple[str, ...]


async def collect(
    cluster: Cluster, run: Run, specs: Sequence[PartitionSpec], run_id: str, origin_ns: int
) -> Collected:
    """Freezes, dumps and ends the cluster; writes logs/, replicas.jsonl and, where it traces, trace.jsonl,
    whose times count from origin_ns."""
    problems: list[str] = []
    frozen: View | None = None
    try:
        frozen = await cluster.freeze()
    except FloodmarkError as error:
        problems.append(f"the cluster could not be frozen: {error}")
    answering = {node for node, _ in frozen.replicas} & frozen.running if frozen else frozenset()
    dumps = _Dumps(run=run, specs=specs, run_id=run_id, problems=problems)
    rows = [_running_row(replica) for replica in frozen.replicas.values() if replica.node in answering
            ] if frozen else []
    for node in sorted(cluster.nodes, key=lambda node: (node not in answering, node)):
        running = node in answering
        try:
            if not running and isinstance(cluster, Kills):
                await cluster.kill(node)
            folder = await cluster.log_dir(node)
        except FloodmarkError as error:
            problems.append(f"the log directory of {node} could not be read: {error}")
            continue
        await asyncio.to_thread(dumps.write, node, folder, running=running)
        if not running:
            rows += await asyncio.to_thread(dumps.dead_rows, node, folder)
    await cluster.stop()
    await asyncio.to_thread(_write_twins, run)
    if isinstance(cluster, Traces):
        problems += await asyncio.to_thread(_write_trace, cluster.traces(), run, origin_ns)
    run.write_replicas(sorted(rows, key=lambda row: (row["partition"], row["node"])))
    return Collected(frozen=frozen, leaders=_leaders(frozen), problems=tuple(problems))


def _write_twins(run: Run) -> None:
    """Every dump once more, as Parquet, which the judge reads quicker; without it there are the lines."""
    for lines in sorted(run.logs_folder.glob("*.jsonl")):
        with suppress(FloodmarkError):
            write_twin(lines)


def _write_trace(raw: Raw | None, run: Run, origin_ns: int) -> list[str]:
    """trace.jsonl, in place of the raw files; what is missing in it."""
    if raw is None:
        return []
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
    """Reads log directories; what fails goes to problems."""

    run: Run
    specs: Sequence[PartitionSpec]
    run_id: str
    problems: list[str]

    def write(self, node: str, folder: Path, *, running: bool) -> None:
        """logs/NODE.jsonl."""
        rows = logdir.dump(folder, self.specs, self.run_id, node, running=running)
        try:
            write_pieces(self.run.logs_folder / f"{node}.jsonl", _pieces(rows))
        except FloodmarkError as error:
            self.problems.append(f"the log of {node} could not be dumped: {error}")

    def dead_rows(self, node: str, folder: Path) -> list[dict[str, Any]]:
        """The rows of a node that was not running: what its files say."""
        rows = []
        for spec in self.specs:
            if node in spec.replicas:
                try:
                    state = logdir.describe(folder, spec, running=False)
                    rows.append(_dead_row(node, spec, state))
                except FloodmarkError as error:
                    self.problems.append(f"{node} left no word on partition {spec.key}: {error}")
        return rows


def _pieces(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    while piece := b"".join(map(json_line, islice(rows, _ROWS_A_PIECE))):
        yield piece


def _running_row(replica: ReplicaView) -> dict[str, Any]:
    row = {
        "node": replica.node, "partition": replica.partition,
        "leader": replica.leader, "epoch": replica.epoch,
        "log_start": replica.log_start, "leo": replica.leo, "hw": replica.hw, "isr": list(replica.isr),
        "clean": replica.clean,
    }
    if replica.epochs is not None:
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
