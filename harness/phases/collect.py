"""Ends a run: freezes all brokers, dumps every replica's log, and writes the state that each node reported.

Rules
1. Nodes that answer are frozen while their logs are read; the others are killed first. No node is stopped
   gracefully, because leadership would move. A cluster that cannot freeze is observed again after its logs
   were read: if anything moved in between, the run is not settled.
2. A dump file is complete or absent. A log that cannot be read is reported and left out.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from floodmark.harness import logdir, protocols
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.parquet_dump import write_parquet
from floodmark.harness.phases.settle import what_moved
from floodmark.harness.protocols import Cluster, PartitionSpec, ability
from floodmark.harness.run import Run, json_line, write_pieces
from floodmark.harness.schedule.views import UNKNOWN, View
from floodmark.harness.trace import Raw, merge

_ROWS_A_PIECE = 10_000
_ROW_FIELDS = ("leader", "epoch", "log_start", "leo", "hw", "isr", "clean")  # of a running replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The result of collecting. leaders: as in run.json. problems: what could not be read, for people. moved:
    what changed while the logs of a cluster that cannot freeze were read."""

    frozen: View | None
    moved: str | None
    leaders: Mapping[str, Any]
    problems: tuple[str, ...]
    clock_error_ns: int | None  # of the trace's stamps; None: there is no trace
    resent: tuple[int, ...]  # the values that their producer itself repeated (logdir.py)


async def collect(
    cluster: Cluster, run: Run, specs: Sequence[PartitionSpec], run_id: str, origin_ns: int) -> Collected:
    """Writes logs/, replicas.jsonl and trace.jsonl, with times from origin_ns; stops the cluster."""
    problems: list[str] = []
    freezes = ability(cluster, protocols.Freezes)
    frozen: View | None = None
    moved: str | None = None
    try:
        frozen = await (cluster.observe() if freezes is None else freezes.freeze())
    except FloodmarkError as error:
        problems.append(f"the cluster could not be frozen: {error}")
    answering = {node for node, _ in frozen.replicas} & frozen.running if frozen else frozenset()
    dumps = _Dumps(cluster=cluster, run=run, specs=specs, run_id=run_id, problems=problems)
    rows = [{"node": replica.node, "partition": replica.partition,
             **{name: getattr(replica, name) for name in _ROW_FIELDS},
             **_epochs_in_row(None if replica.epochs is UNKNOWN else replica.epochs)}
            for replica in (frozen.replicas.values() if frozen else ()) if replica.node in answering]
    for node in sorted(cluster.nodes, key=lambda node: (node not in answering, node)):
        rows += await dumps.write(node, running=node in answering)
    if freezes is None and frozen is not None:
        try:
            moved = what_moved(frozen, await cluster.observe(), specs)
        except FloodmarkError as error:
            moved = f"the cluster could not be observed after it was read: {error}"
    try:
        await cluster.stop()
    except FloodmarkError as error:  # what was read is kept
        problems.append(f"the cluster could not be stopped: {error}")
    for lines in sorted(run.logs_folder.glob("*.jsonl")):
        with suppress(FloodmarkError):  # a second time, for the judge, which reads it faster than the lines
            await asyncio.to_thread(write_parquet, lines)
    traces = ability(cluster, protocols.Traces)
    raw_trace = None if traces is None else traces.traces()
    if raw_trace is not None:
        problems += await asyncio.to_thread(_write_trace, raw_trace, run, origin_ns)
    known = [row for row in rows if UNKNOWN not in row.values()]
    known.sort(key=lambda row: (row["partition"], row["node"]))
    write_pieces(run.replicas_path, map(json_line, known))
    leaders = {  # as the controller reports them; a partition without a leader has no entry
        str(key): {"leader": truth.leader, "epoch": truth.epoch, "isr": list(truth.isr)}
        for key, truth in sorted((frozen.partitions if frozen else {}).items()) if truth.leader is not None}
    return Collected(frozen=frozen, moved=moved, leaders=leaders, problems=tuple(problems),
                     clock_error_ns=None if raw_trace is None else raw_trace.clock_error_ns,
                     resent=tuple(sorted(dumps.resent)))


def observes_of(cluster: Cluster) -> dict[str, Any]:
    """run.json's `observes`: which parts of its state the system shows. Empty if it shows everything."""
    dumps = any(ability(cluster, kind) is not None for kind in (protocols.ReadsLogs, protocols.KeepsLogs))
    replicas = not cluster.not_shown & {*_ROW_FIELDS}
    traces = ability(cluster, protocols.Traces)
    events = None if traces is None else traces.traced_events
    if dumps and replicas and events is None:
        return {}
    shown = {} if events is None else {"trace": sorted(events)}
    return {"observes": {"dumps": dumps, "replicas": replicas, **shown}}


def _write_trace(raw_trace: Raw, run: Run, origin_ns: int) -> list[str]:
    """Write trace.jsonl and delete the raw files; returns what is missing in it."""
    problems: list[str] = []
    try:
        write_pieces(run.trace_path, merge(raw_trace, origin_ns, problems))
    except FloodmarkError as error:
        return [f"the trace could not be written: {error}"]
    if not problems:
        for path in raw_trace.files.values():
            path.unlink(missing_ok=True)
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dumps:
    """From folders or from a cluster without files; failures are appended to `problems`."""

    cluster: Cluster
    run: Run
    specs: Sequence[PartitionSpec]
    run_id: str
    problems: list[str]
    resent: set[int] = field(default_factory=set)  # as in Collected

    async def write(self, node: str, *, running: bool) -> list[dict[str, Any]]:
        """Returns the node's rows for replicas.jsonl if it does not run: its log is then the only source."""
        kills, files = ability(self.cluster, protocols.Kills), ability(self.cluster, protocols.ReadsLogs)
        logs_in_memory = ability(self.cluster, protocols.KeepsLogs)
        try:
            if not running and kills is not None:
                await kills.kill(node)
            if files is None and logs_in_memory is None:
                return []
            folder = None if files is None else await files.log_dir(node)
        except FloodmarkError as error:
            self.problems.append(f"the log directory of {node} could not be read: {error}")
            return []
        if folder is not None:
            log = logdir.dump(folder, self.specs, self.run_id, node, running=running, resent=self.resent)
            return await asyncio.to_thread(
                self._dump, node, log, lambda spec: logdir.describe(folder, spec, running=False), running)
        assert logs_in_memory is not None, "checked above"
        return self._dump(node, logs_in_memory.log_rows(node, self.run_id),
                          lambda spec: logs_in_memory.log_state(node, spec.key), running)

    def _dump(self, node: str, log: Iterator[dict[str, Any]],
              describe: Callable[[PartitionSpec], logdir.LogState], running: bool) -> list[dict[str, Any]]:
        try:
            pieces = iter(lambda: b"".join(map(json_line, islice(log, _ROWS_A_PIECE))), b"")
            write_pieces(self.run.logs_folder / f"{node}.jsonl", pieces)
        except FloodmarkError as error:
            self.problems.append(f"the log of {node} could not be dumped: {error}")
        rows = []
        for spec in self.specs if not running else ():
            if node in spec.replicas:
                try:
                    rows.append(_dead_row(node, spec, describe(spec)))
                except FloodmarkError as error:
                    self.problems.append(
                        f"the state of partition {spec.key} on {node} cannot be read: {error}")
        return rows


def _dead_row(node: str, spec: PartitionSpec, state: logdir.LogState) -> dict[str, Any]:
    """The row of a node that does not run. clean is false: no restart has confirmed an orderly stop."""
    epochs = state.epochs
    return {
        "node": node, "partition": spec.key, "running": False, "leader": None,
        "epoch": epochs[-1][0] if epochs and epochs != logdir.UNREADABLE else -1,
        "log_start": state.log_start, "leo": state.leo, "hw": min(state.checkpointed_hw, state.leo),
        "isr": [], "clean": False, "torn_bytes": state.torn_bytes, **_epochs_in_row(epochs)}


def _epochs_in_row(epochs: logdir.Epochs) -> dict[str, Any]:
    if epochs == logdir.UNREADABLE:
        return {"epochs_unreadable": True}
    return {} if epochs is None else {"epochs": [list(entry) for entry in epochs]}

