"""Builds the trace lines of a replica's step and of the controller's records: pure functions.

Rules for a replica's step
1. The lines come in the order of what happened, and each gives epoch, LEO and HW as they were right after it:
   an append shows the HW before it moved, then comes the move, then the ack that rests on it.
2. The line of a new role comes where the role is taken: a follower's before its truncation, a leader's after.
3. A line is written only for what has happened: a follower's fetch that was served (not again when it wakes
   in the purgatory), a produce that was acked, an HW that no other line shows.
4. Brokers are ids; -1 is nobody.

Rules for the controller's records
5. One line is written for each change, in the order of the records. It names the metadata version that the
   record made, so that a controller that ended between its journal and its trace writes the missing lines at
   its next start.
6. A leader, also the first of a new partition, is an `elect`; any other change of a partition, also the loss
   of its leader, is an `isr`.
7. A registration begins fenced; the line of one that does not (rules that ignore a bounce) is followed by an
   `unfence`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from floodmark.broker.protocol.cluster_state import ClusterState, Record
from floodmark.broker.protocol.messages import (
    AlterPartition,
    Append,
    Batch,
    ControllerEvent,
    Elect,
    Expire,
    Fetch,
    FetchAnswer,
    Heartbeat,
    HwMoved,
    ProduceAnswer,
    ProposeIsr,
    Register,
    ReplicaEffect,
    ReplicaEvent,
    Reset,
    RoleChanged,
    SaveEpochs,
    Tick,
    Truncate,
)
from floodmark.broker.protocol.metadata import Metadata, build_metadata
from floodmark.broker.protocol.replica import Replica
from floodmark.broker.testing.failpoint_requests import FailpointSite

Line = Mapping[str, Any]
_ACKS = {-1: "all", 0: "0", 1: "1"}


class ReplicaSnapshot(msgspec.Struct, frozen=True):
    """A replica's state between two steps."""

    leading: bool
    leader: int
    epoch: int
    leo: int
    hw: int
    isr: tuple[int, ...]  # committed
    counted: tuple[int, ...]  # what a leader's HW waits for
    partition_epoch: int


def take_snapshot(replica: Replica) -> ReplicaSnapshot:
    return ReplicaSnapshot(
        replica.leading, replica.leader, replica.leader_epoch, replica.leo, replica.hw, replica.isr,
        replica.maximal_isr, replica.partition_epoch,
    )  # fmt: skip


def replica_lines(
    before: ReplicaSnapshot, event: ReplicaEvent, effects: Sequence[ReplicaEffect], after: ReplicaSnapshot
) -> tuple[Line, ...]:
    """Build the lines of a step, in the order of its effects; each shows the state after its effect."""
    if not effects and before == after:
        return ()
    step = _Step(event, after, before.leo, before.hw)
    role_at = -1  # the effect before which a role was taken
    if effects and type(effects[-1]) is RoleChanged:
        role_at = _position_after_truncation(effects) if after.leading else 0
    elif after.leading and (before.partition_epoch, before.isr) != (after.partition_epoch, after.isr):
        step.add_line(
            "isr", leader=after.leader, isr=after.isr, partition_epoch=after.partition_epoch, cause="learnt"
        )
    for position, effect in enumerate(effects):
        if position == role_at:
            _add_role(step)
        add_lines = _LINE_WRITERS.get(type(effect))
        if add_lines is not None:
            add_lines(step, effect)
    if step.hw != after.hw:  # a follower's, which no effect shows
        step.hw = after.hw
        step.add_line("hw", role="leader" if after.leading else "follower")
    assert step.leo == after.leo, f"{effects} lead to LEO {step.leo}, it is {after.leo}"
    return tuple(step.lines)


class _Step:
    """The state while the lines of one step are built. The lines of produces and fetches are built by hand,
    because this code runs for each of them."""

    __slots__ = ("after", "event", "hw", "leo", "lines")

    def __init__(self, event: ReplicaEvent, after: ReplicaSnapshot, leo: int, hw: int) -> None:
        self.event = event
        self.after = after  # its epoch is valid for the whole step: a new epoch is taken first
        self.leo = leo
        self.hw = hw
        self.lines: list[Line] = []

    def add_line(self, event: str, **besides: Any) -> None:
        self.lines.append(
            {"event": event, "epoch": self.after.epoch, "leo": self.leo, "hw": self.hw, **besides}
        )


def _position_after_truncation(effects: Sequence[ReplicaEffect]) -> int:
    """The position after the last truncation."""
    cuts = [at for at, effect in enumerate(effects) if isinstance(effect, Truncate | Reset)]
    return cuts[-1] + 1 if cuts else 0


def _add_role(step: _Step) -> None:
    after = step.after
    if after.leading:
        step.add_line("become_leader", isr=after.isr, start=step.leo, partition_epoch=after.partition_epoch)
    else:
        step.add_line("become_follower", leader=after.leader)


def _add_append(step: _Step, effect: Append) -> None:
    first, last = effect.batches[0].base_offset, effect.batches[-1].last_offset
    step.leo = last + 1
    step.lines.append({
        "event": "append", "epoch": step.after.epoch, "leo": step.leo, "hw": step.hw,
        "role": "leader" if effect.leading else "follower", "offset": first, "count": last + 1 - first,
        "epochs": epochs_of(effect.batches),
    })  # fmt: skip


def _add_truncate(step: _Step, effect: Truncate) -> None:
    step.leo, step.hw = effect.to, min(step.hw, effect.to)
    answer = effect.answer
    given = {} if answer is None else {"answer": {"epoch": answer.epoch, "end": answer.end_offset}}
    cut = {"from": effect.was, "to": effect.to, "cause": effect.cause, **given, "why": effect.why}
    step.add_line("truncate", **cut)


def _add_reset(step: _Step, effect: Reset) -> None:
    was, step.leo, step.hw = step.leo, effect.start, effect.start
    why = "nothing here that the leader's log continues"
    step.add_line("truncate", **{"from": was, "to": effect.start, "cause": "other", "why": why})


def _add_save_epochs(step: _Step, effect: SaveEpochs) -> None:
    step.add_line("checkpoint", what="epochs", value=effect.entries)


def _add_hw_moved(step: _Step, effect: HwMoved) -> None:
    step.hw = effect.hw
    step.lines.append(
        {"event": "hw", "epoch": step.after.epoch, "leo": step.leo, "hw": step.hw, "role": "leader"}
    )


def _add_fetch(step: _Step, effect: FetchAnswer) -> None:
    event = step.event
    if not isinstance(event, Fetch) or event.replica < 0 or event.again or effect.error:
        return
    line: dict[str, Any] = {
        "event": "fetch", "epoch": step.after.epoch, "leo": step.leo, "hw": step.hw,
        "follower": event.replica, "offset": event.offset, "follower_epoch": event.current_leader_epoch,
    }  # fmt: skip
    if effect.diverging is not None:
        line["diverging"] = (effect.diverging.epoch, effect.diverging.end_offset)
    step.lines.append(line)


def _add_ack(step: _Step, effect: ProduceAnswer) -> None:
    if not effect.error and effect.base_offset >= 0:
        step.lines.append({
            "event": "ack", "epoch": step.after.epoch, "leo": step.leo, "hw": step.hw,
            "offset": effect.last_offset, "acks": _ACKS[effect.acks], "isr": step.after.counted,
        })  # fmt: skip


def _add_isr_proposed(step: _Step, effect: ProposeIsr) -> None:
    isr = tuple([broker for broker, _ in effect.isr])
    step.add_line("isr_proposed", isr=isr, partition_epoch=effect.partition_epoch)


_LINE_WRITERS: Mapping[type, Callable[[_Step, Any], None]] = {
    Append: _add_append,
    Truncate: _add_truncate,
    Reset: _add_reset,
    SaveEpochs: _add_save_epochs,
    HwMoved: _add_hw_moved,
    FetchAnswer: _add_fetch,
    ProduceAnswer: _add_ack,
    ProposeIsr: _add_isr_proposed,
}


def epochs_of(batches: Sequence[Batch]) -> list[tuple[int, int]]:
    """(epoch, first offset) of the batches; a log from before KIP-101 may have an epoch twice."""
    found: list[tuple[int, int]] = []
    for batch in batches:
        if not found or found[-1][0] != batch.epoch:
            found.append((batch.epoch, batch.base_offset))
    return found


# -- start and checkpoints --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLogSummary:
    """A log as it was recovered at start."""

    topic: str
    partition: int
    log_start: int
    leo: int
    hw: int
    batches: Sequence[Batch]


def start_lines(clean: bool, logs: Sequence[RecoveredLogSummary]) -> tuple[Line, ...]:
    """Build the lines of a process that starts: one for itself, because it may have no log, one for each
    log."""
    return (
        {"event": "start", "clean": clean},
        *(
            {
                "event": "start", "topic": log.topic, "partition": log.partition, "epoch": -1, "leo": log.leo,
                "hw": log.hw, "clean": clean, "log_start": log.log_start, "epochs": epochs_of(log.batches),
            }
            for log in logs
        ),
    )  # fmt: skip


def checkpoint_line(what: str, value: int, now: ReplicaSnapshot) -> Line:
    """Build the line of a checkpoint file's value: `what` is hw (the HW) or recovery (the recovery point)."""
    return {
        "event": "checkpoint", "epoch": now.epoch, "leo": now.leo, "hw": now.hw, "what": what, "value": value,
    }  # fmt: skip


# -- the controller ---------------------------------------------------------------------------------------

_CAUSES: Mapping[type, str] = {
    AlterPartition: "alter",
    Elect: "election",
    Expire: "expired",
    Heartbeat: "heartbeat",
    Register: "registration",
    Tick: "expired",
}
CREATED = "created"
RECOVERED = "recovered"


def controller_lines(
    before: Metadata, event: ControllerEvent | None, records: Iterable[Record]
) -> tuple[Line, ...]:
    """Build the lines of the controller's records. `event` None: they are from before a restart, and their
    cause is unknown."""
    cluster = _ClusterTrace(before, event)
    for record in records:
        add_lines = _RECORD_WRITERS.get(record["type"])
        if add_lines is not None:
            cluster.version += 1
            add_lines(cluster, record)
    return tuple(cluster.lines)


def missing_lines(records: Iterable[Record], version: int) -> tuple[Line, ...]:
    """Build the lines of records from before a restart that the trace lacks: those above `version`."""
    state, rest = ClusterState(), []
    for record in records:
        if state.version < version:
            state.apply(record)
        else:
            rest.append(record)
    return controller_lines(build_metadata(state), None, rest)


class _ClusterTrace:
    """The cluster as the lines built so far describe it."""

    def __init__(self, before: Metadata, event: ControllerEvent | None) -> None:
        self.event = event
        self.cause = _CAUSES.get(type(event), CREATED) if event is not None else RECOVERED
        self.version = before.version
        self.brokers = {each.id: (each.epoch, each.fenced) for each in before.brokers}
        self.partitions = {
            (topic.name, each.partition): (each.leader, each.leader_epoch, each.isr)
            for topic in before.topics.values()
            for each in topic.partitions
        }
        self.lines: list[Line] = []

    def add_line(self, event: str, **besides: Any) -> None:
        self.lines.append({"event": event, "version": self.version, **besides})


def _add_broker(cluster: _ClusterTrace, record: Record) -> None:
    broker, epoch, fenced = record["id"], record["epoch"], record["fenced"]
    was_epoch, was_fenced = cluster.brokers.get(broker, (None, True))
    if epoch != was_epoch:
        clean = isinstance(cluster.event, Register) and cluster.event.clean
        cluster.add_line("register", broker=broker, broker_epoch=epoch, clean=clean)
        was_fenced = True
    if fenced != was_fenced:
        cluster.add_line("fence" if fenced else "unfence", broker=broker, broker_epoch=epoch)
    cluster.brokers[broker] = (epoch, fenced)


def _add_topic(cluster: _ClusterTrace, record: Record) -> None:
    for index, fields in enumerate(record["partitions"]):
        _add_change(cluster, record["topic"], index, fields, CREATED)


def _add_partitions(cluster: _ClusterTrace, record: Record) -> None:
    first = 1 + max((index for topic, index in cluster.partitions if topic == record["topic"]), default=-1)
    for index, fields in enumerate(record["partitions"], first):
        _add_change(cluster, record["topic"], index, fields, CREATED)


def _count_version_only(cluster: _ClusterTrace, record: Record) -> None:
    """Count a record that makes a version, and no trace line."""


def _drop_topic(cluster: _ClusterTrace, record: Record) -> None:
    """Forget a deleted topic; it makes no trace line."""
    for key in [key for key in cluster.partitions if key[0] == record["topic"]]:
        del cluster.partitions[key]


def _add_partition(cluster: _ClusterTrace, record: Record) -> None:
    _add_change(cluster, record["topic"], record["partition"], record, cluster.cause)


def _add_change(cluster: _ClusterTrace, topic: str, index: int, fields: Record, cause: str) -> None:
    leader, epoch, isr = fields["leader"], fields["leader_epoch"], tuple(fields["isr"])
    was_leader, was_epoch, was_isr = cluster.partitions.get((topic, index), (-1, -1, isr))
    besides = {
        "topic": topic, "partition": index, "leader": leader, "epoch": epoch, "isr": isr,
        "partition_epoch": fields["partition_epoch"],
    }  # fmt: skip
    if leader >= 0 and (leader, epoch) != (was_leader, was_epoch):
        cluster.add_line("elect", **besides, clean=leader in was_isr, cause=cause)
    else:
        cluster.add_line("isr", **besides, cause=cause)
    cluster.partitions[topic, index] = (leader, epoch, isr)


_RECORD_WRITERS: Mapping[str, Callable[[_ClusterTrace, Record], None]] = {
    "broker": _add_broker,
    "topic": _add_topic,
    "partition": _add_partition,
    "partitions": _add_partitions,
    "configs": _count_version_only,
    "topic_deleted": _drop_topic,
}


def failpoint_line(
    site: FailpointSite, action: str, position: tuple[int, int, int] | None
) -> dict[str, Any]:
    """Write the line of an armed point that was reached. position: leader epoch, LEO and HW of the replica
    that it is about; None where there is none."""
    line: dict[str, Any] = {"event": "failpoint"}
    if site.topic is not None:
        line |= {"topic": site.topic, "partition": site.partition, "epoch": site.epoch}
        if position is not None:
            line["epoch"], line["leo"], line["hw"] = position
    line |= {"name": site.name, "action": action}
    if site.peer >= 0:
        line["peer"] = site.peer
    if site.offset >= 0:
        line["offset"] = site.offset
    return line
