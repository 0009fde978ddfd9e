"""Records a memory cluster: its machines' work becomes a complete run folder of format 1, with the trace.

    cluster = MemoryCluster("kip-320", ["no_leso"])
    attach(cluster)                      at once, before anything was sent
    ...                                  any schedule
    write_folder(cluster, folder)        a folder for checkers.judge.SparkJudge

Rules
1. Lines come from broker.testing.trace_events and pass harness.trace's merge, as with real processes; a
   step's lines are written before its effects are carried out.
2. The clock counts the recorded lines: no two lines have one time, and every cause comes before its effect.
3. Every send and read is an op of a process of its own; a send with acks=1 is never ok, because the run's
   acks are all.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory_cluster import MemoryCluster
from memory_node import CONTROLLER, DAMAGED, Sent

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import (
    NO_EPOCH,
    NO_LEADER,
    ControllerEvent,
    Persist,
    ProduceAnswer,
    RoleChanged,
    Tick,
)
from floodmark.broker.testing.trace_events import (
    RecoveredLogSummary,
    ReplicaSnapshot,
    checkpoint_line,
    controller_lines,
    missing_lines,
    replica_lines,
    start_lines,
    take_snapshot,
)
from floodmark.harness.run import Run, json_line, write_whole
from floodmark.harness.trace import Merge, Raw

STEP_NS = 1_000
FINAL = 900_000  # the process of the final read
ENDS = 800_000  # the process that asks for end offsets
READERS = 700_000  # plus a number: the consumers that read more than once
_ACKS_ALL = -1


def name(node: int) -> str | None:
    return None if node < 0 else "controller" if node == CONTROLLER else f"n{node}"


def attach(cluster: MemoryCluster) -> "Recorder":
    """Records the cluster from now on. Nothing may have been sent before: the state so far, elected and
    empty, is written first."""
    assert not cluster.sends, "attach before the first send"
    cluster.recorder = Recorder(cluster)
    return cluster.recorder


def write_folder(cluster: MemoryCluster, folder: Path) -> Path:
    """Writes the run so far; a last consumer reads it to the end if there is a leader."""
    recorder: Recorder = cluster.recorder
    recorder.read_to_the_end()
    recorder.write(folder)
    return folder


class Recorder:
    """Wraps a cluster's steps, clients and faults, and records them."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.history: list[dict[str, Any]] = []
        self.raw: dict[int, list[dict[str, Any]]] = {node: [] for node in (*cluster.nodes, CONTROLLER)}
        self.retried = False
        self._time_ns = 0
        self._processes = 0
        self._values: dict[str, int] = {}
        self._open: dict[int, dict[str, Any]] = {}  # position in cluster.sends -> the op that waits
        self._read_to_end = False
        self._so_far()
        self._listen()

    # -- lines ---------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        self._time_ns += STEP_NS
        return self._time_ns

    @property
    def time_ns(self) -> int:
        """The time of the last recorded line."""
        return self._time_ns

    def trace(self, node: int, lines: Any, *, time_ns: int | None = None) -> None:
        """Writes the trace lines of one step."""
        stamp = self.now_ns() if time_ns is None else time_ns
        for line in lines:
            where = {} if node == CONTROLLER or "partition" in line else {"topic": "t", "partition": 0}
            if line["event"] == "start" and "leo" not in line:
                where = {}
            raw = self.raw[node]
            raw.append({"time": stamp, "node": node, "seq": len(raw), **where, **line})

    def strike(self, f: str, node: int | None = None, **besides: Any) -> None:
        """Records a fault; schedules that change a disk by hand call it themselves, with lost=True."""
        at = {"at": "time", "time": self._time_ns}
        nodes = [] if node is None else [name(node)]
        self.record(-1, "info", f, fault={"nodes": nodes, "moment": at, **besides})

    def record(self, process: int, kind: str, f: str, **besides: Any) -> dict[str, Any]:
        op = {
            "index": len(self.history), "time": self.now_ns(), "process": process, "type": kind, "f": f,
            **besides,
        }  # fmt: skip
        self.history.append(op)
        return op

    # -- the state before recording -------------------------------------------------------------------------

    def _so_far(self) -> None:
        for node in self.cluster.nodes:
            self.trace(node, start_lines(False, ()))
        self.trace(CONTROLLER, missing_lines(self.cluster.journal, 0))
        nobody = ReplicaSnapshot(
            leading=False, leader=NO_LEADER, epoch=NO_EPOCH, leo=0, hw=0, isr=(), counted=(),
            partition_epoch=-1,
        )  # fmt: skip
        for node in self.cluster.running:
            now = take_snapshot(self.cluster.replica(node))
            role = RoleChanged(leading=now.leading, leader=now.leader, leader_epoch=now.epoch)
            self.trace(node, replica_lines(nobody, Tick(now_ms=0), [role], now))

    # -- listening -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        cluster = self.cluster
        for node in cluster.running:
            self._listen_to_replica(node)
        self._listen_to_controller()
        self._around("start", self._start)
        self._around("restart_controller", self._restart_controller)
        self._around("checkpoint", self._checkpoint)
        self._around("send", self._send)
        self._around("retry", self._retry)
        self._around("read", self._read)
        self._around("end_offset", self._end_offset)
        self._around("crash", lambda do, node: self._struck(do, "kill", node))
        self._around("power_cut", self._power_cut)
        self._around("expire", lambda do, node: self._struck(do, "expire", node))
        self._around("elect", self._elect)
        self._around("lead", self._lead)

    def _around(self, method: str, around: Callable[..., Any]) -> None:
        do = getattr(self.cluster, method, None)
        if do is not None:
            setattr(self.cluster, method, lambda *args, **named: around(do, *args, **named))

    def _listen_to_replica(self, node: int) -> None:
        replica = self.cluster.replica(node)
        step = replica.step

        def stepped(event: Any) -> Any:
            before = take_snapshot(replica)
            effects = step(event)
            lines = replica_lines(before, event, effects, take_snapshot(replica))
            if lines:
                self.trace(node, lines)
            for effect in effects:
                if isinstance(effect, ProduceAnswer) and isinstance(effect.token, Sent):
                    self._answered(effect.token, effect)
            return effects

        replica.step = stepped

    def _listen_to_controller(self) -> None:
        controller = self.cluster.controller
        step = controller.step

        def stepped(event: ControllerEvent) -> Any:
            before = controller.metadata()
            effects = step(event)
            for effect in effects:
                if isinstance(effect, Persist):
                    self.trace(CONTROLLER, controller_lines(before, event, effect.records))
            return effects

        controller.step = stepped

    def _start(self, do: Callable[..., None], node: int) -> None:
        self.strike("start", node)
        stamp = self.now_ns()  # before it registers
        do(node)
        replica, batches = self.cluster.replica(node), self.cluster.nodes[node].disk.batches
        found = RecoveredLogSummary(
            topic="t", partition=0, log_start=replica.log_start, leo=replica.leo, hw=replica.hw,
            batches=batches,
        )  # fmt: skip
        self.trace(node, start_lines(False, [found]), time_ns=stamp)
        self._listen_to_replica(node)

    def _restart_controller(self, do: Callable[[], None]) -> None:
        do()
        last_version = max((line["version"] for line in self.raw[CONTROLLER]), default=0)
        self.trace(CONTROLLER, missing_lines(self.cluster.journal, last_version))
        self._listen_to_controller()

    def _checkpoint(self, do: Callable[..., None], node: int) -> None:
        do(node)
        value = self.cluster.nodes[node].disk.hw
        self.trace(node, [checkpoint_line("hw", value, take_snapshot(self.cluster.replica(node)))])

    # -- clients -------------------------------------------------------------------------------------------

    def _send(self, do: Callable[..., Sent], node: int, *values: str, **named: Any) -> Sent:
        self._processes += 1
        sends = [{"partition": 0, "value": self.value(value)} for value in values]
        position = len(self.cluster.sends)  # its position when it is answered, which may be at once
        self._open[position] = self.record(self._processes, "invoke", "send", sends=sends)
        sent: Sent = do(node, *values, **named)
        return sent

    def _retry(self, do: Callable[..., None], sent: Sent, node: int) -> None:
        self.retried = True
        do(sent, node)

    def _answered(self, sent: Sent, answer: ProduceAnswer) -> None:
        """The first answer is the client's; no client waits for later ones."""
        sends = self.cluster.sends
        position = next(at for at in reversed(range(len(sends))) if sends[at] is sent)
        invoked = self._open.pop(position, None)
        if invoked is None:
            return
        sends_out = [dict(one) for one in invoked["sends"]]
        if answer.base_offset >= 0:
            for index, one in enumerate(sends_out):
                one["offset"] = answer.base_offset + index
        refused = answer.error and answer.base_offset < 0
        kind = "fail" if refused else "ok" if not answer.error and sent.acks == _ACKS_ALL else "info"
        besides = {"error": errors.error_name(answer.error)} if answer.error else {}
        self.record(invoked["process"], kind, "send", sends=sends_out, **besides)

    def _read(
        self, do: Callable[..., Any], node: int, offset: int = 0, *, reader: int | None = None
    ) -> Any:
        self._processes += 1
        process = self._processes if reader is None else READERS + reader
        return self._poll(do, process, node, offset)

    def _poll(self, do: Callable[..., Any], process: int, node: int, offset: int) -> Any:
        self.record(process, "invoke", "poll")
        error, records = do(node, offset)
        reads = [{"partition": 0, "offset": at, "value": self.value(value)} for at, value in records]
        if error:
            self.record(process, "fail", "poll", error=errors.error_name(error))
        else:
            self.record(process, "ok", "poll", reads=reads)
        return error, records

    def _end_offset(self, do: Callable[..., Any], node: int) -> Any:
        self.record(ENDS, "invoke", "list_offsets")
        error, offset = do(node)
        if error:
            self.record(ENDS, "fail", "list_offsets", error=errors.error_name(error))
        else:
            self.record(ENDS, "ok", "list_offsets", offsets=[{"partition": 0, "offset": offset}])
        return error, offset

    def read_to_the_end(self) -> None:
        """Reads everything with a last consumer if there is a leader; once."""
        leader = self.cluster.partition.leader
        if leader in self.cluster.running and not self._read_to_end:
            do = self.cluster.read
            self._processes, before = FINAL - 1, self._processes
            error, _ = do(leader)
            self._processes = before
            self._read_to_end = not error

    def value(self, text: str) -> int:
        """The integer for this text."""
        return self._values.setdefault(text, len(self._values))

    # -- faults --------------------------------------------------------------------------------------------

    def _struck(self, do: Callable[..., Any], f: str, node: int) -> Any:
        self.strike(f, node)
        return do(node)

    def _power_cut(self, do: Callable[..., Any], node: int, *args: Any, **named: Any) -> None:
        self.strike("power_cut", node, lost=True)
        do(node, *args, **named)

    def _elect(self, do: Callable[..., Any], *, unclean: bool = False) -> Any:
        self.strike("elect", unclean=unclean)
        return do(unclean=unclean)

    def _lead(self, do: Callable[..., Any], node: int, *, unclean: bool = False) -> Any:
        self.strike("elect", leader=name(node), unclean=unclean)
        return do(node, unclean=unclean)

    # -- the folder ----------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        cluster, run = self.cluster, Run(folder=folder)
        folder.mkdir(parents=True)
        for node in cluster.nodes:
            write_whole(run.logs_folder / f"{name(node)}.jsonl", b"".join(map(json_line, self._dump(node))))
        write_whole(run.history_path, b"".join(map(json_line, self.history)))
        run.write_replicas(self._row(node) for node in cluster.nodes)
        self._write_trace(run)
        run.rewrite(self._about())

    def _write_trace(self, run: Run) -> None:
        files = {}
        for node, lines in self.raw.items():
            files[str(name(node))] = path = run.work_folder / f"{name(node)}.trace"
            write_whole(path, b"".join(map(json_line, lines)))
        names = {node: str(name(node)) for node in self.raw}
        merge = Merge(Raw(files=files, names=names, keys={("t", 0): 0}), 0)
        write_whole(run.trace_path, b"".join(merge.pieces()))
        assert not merge.problems, merge.problems

    def _dump(self, node: int) -> list[dict[str, Any]]:
        entries = []
        for batch in self.cluster.nodes[node].disk.batches:
            of_batch = {"epoch": batch.epoch, "crc": zlib.crc32(batch.data)}
            values: list[str | None] = list(batch.data.decode(errors="replace").split(","))
            if batch.data == DAMAGED:
                values, of_batch["crc_ok"] = [None], False
            for index, value in enumerate(values):
                at = {"node": name(node), "partition": 0, "offset": batch.base_offset + index}
                entries.append({**at, "value": None if value is None else self.value(value), **of_batch})
        return entries

    def _row(self, node: int) -> dict[str, Any]:
        it = self.cluster.nodes[node]
        row: dict[str, Any] = {"node": name(node), "partition": 0, "clean": False}
        if it.replica is None:
            disk = it.disk
            leo = disk.batches[-1].last_offset + 1 if disk.batches else disk.log_start
            epoch = disk.epochs[-1][0] if disk.epochs else NO_EPOCH
            row |= {"running": False, "leader": None, "epoch": epoch, "log_start": disk.log_start, "leo": leo,
                    "hw": min(disk.hw, leo), "isr": []}  # fmt: skip
            epochs = disk.epochs if self.cluster.rules.keeps_epochs else None
        else:
            replica = it.replica
            row |= {"leader": name(replica.leader), "epoch": replica.leader_epoch,
                    "log_start": replica.log_start, "leo": replica.leo, "hw": replica.hw,
                    "isr": list(map(name, replica.isr))}  # fmt: skip
            epochs = replica.epochs
        return row if epochs is None else {**row, "epochs": epochs}

    def _settled(self) -> str | None:
        """None, or why the cluster is not settled."""
        cluster, truth = self.cluster, self.cluster.partition
        if set(cluster.running) != set(cluster.nodes):
            return f"only {cluster.running} run"
        if truth.leader not in cluster.nodes or set(truth.isr) != set(cluster.nodes):
            return f"leader {truth.leader}, ISR {truth.isr}"
        ends = {(cluster.replica(node).leo, cluster.replica(node).hw) for node in cluster.nodes}
        return None if len(ends) == 1 else f"(LEO, HW) differ: {sorted(ends)}"

    def _about(self) -> dict[str, Any]:
        cluster, truth, why = self.cluster, self.cluster.partition, self._settled()
        nodes = list(map(name, cluster.nodes))
        minimum = cluster.config.min_insync_replicas
        unclean = cluster.controller_config.unclean_leader_election
        idempotent = any(sent.producer[0] >= 0 for sent in cluster.sends)
        led = truth.leader in cluster.nodes
        return {
            "format": 1, "version": "0.0.0", "commit": "0", "seed": 0, "cluster": "memory",
            "rules": cluster.rules.generation, "workload": "log", "nodes": nodes, "schedule": [],
            "missed": [], "died": [], "residue": None, "clock_error_ns": 0, "ended": "done",
            "partitions": {"0": {"topic": "t", "partition": 0, "replicas": nodes, "cleanup": "delete"}},
            "config": {node: {"min.insync.replicas": minimum} for node in nodes},
            "guarantees": {
                "acks": "all", "min_insync_replicas": minimum, "replication_factor": len(nodes),
                "unclean_leader_election": unclean, "idempotence": idempotent, "retries": int(self.retried),
                "flush": "every" if cluster.flush_every else "os", "isolation": "read_uncommitted",
            },
            "leaders": {"0": {"leader": name(truth.leader), "epoch": truth.leader_epoch,
                              "isr": list(map(name, truth.isr))}} if led else {},
            "settled": why is None,
            "settle": {"timeout_s": 0, "processes": [], "no_leader": [] if led else [0],
                       "no_ack": [0] if cluster.unacked else [], "isr_short": [], "why": why},
            "final_reads": {"processes": [FINAL] if self._read_to_end else [],
                            "partitions": [0] if self._read_to_end else []},
            "history_lines": len(self.history),
        }  # fmt: skip
