"""What the controller's records mean, as lines of the trace: pure functions of what was before and of them.

Rules
1. One line a change, in the order of the records; each names the metadata version that its record made, so
   that a controller that ended between its journal and its trace tells the rest at its next start.
2. A leader, also the first of a new partition, is an `elect`; any other change of a partition, also the loss
   of its leader, is an `isr`.
3. A registration begins fenced; one that does not (a rule set that overlooks a bounce) is followed by its
   unfencing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker.protocol.cluster_state import ClusterState, Record
from broker.protocol.messages import AlterPartition, ControllerEvent, Elect, Expire, Heartbeat, Register, Tick
from broker.protocol.metadata import Metadata, build_metadata

Line = Mapping[str, Any]
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
    """`event` None: the records were made before a restart, nobody knows by what."""
    told = _ClusterTrace(before, event)
    for record in records:
        tell = _RECORD_WRITERS.get(record["type"])
        if tell is not None:
            told.version += 1
            tell(told, record)
    return tuple(told.lines)


def missing_lines(records: Iterable[Record], version: int) -> tuple[Line, ...]:
    """What records that were made before a restart say beyond the version that the trace has come to."""
    state, rest = ClusterState(), []
    for record in records:
        if state.version < version:
            state.apply(record)
        else:
            rest.append(record)
    return controller_lines(build_metadata(state), None, rest)


class _ClusterTrace:
    """The cluster as far as it has been told."""

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


def _add_broker(told: _ClusterTrace, record: Record) -> None:
    broker, epoch, fenced = record["id"], record["epoch"], record["fenced"]
    was_epoch, was_fenced = told.brokers.get(broker, (None, True))
    if epoch != was_epoch:
        clean = isinstance(told.event, Register) and told.event.clean
        told.add_line("register", broker=broker, broker_epoch=epoch, clean=clean)
        was_fenced = True
    if fenced != was_fenced:
        told.add_line("fence" if fenced else "unfence", broker=broker, broker_epoch=epoch)
    told.brokers[broker] = (epoch, fenced)


def _add_topic(told: _ClusterTrace, record: Record) -> None:
    for index, fields in enumerate(record["partitions"]):
        _add_change(told, record["topic"], index, fields, CREATED)


def _add_partitions(told: _ClusterTrace, record: Record) -> None:
    first = 1 + max((index for topic, index in told.partitions if topic == record["topic"]), default=-1)
    for index, fields in enumerate(record["partitions"], first):
        _add_change(told, record["topic"], index, fields, CREATED)


def _count_version_only(told: _ClusterTrace, record: Record) -> None:
    """It makes a version, and the trace has no word for it."""


def _drop_topic(told: _ClusterTrace, record: Record) -> None:
    """The trace has no word for it; a topic of that name that is made later begins anew."""
    for key in [key for key in told.partitions if key[0] == record["topic"]]:
        del told.partitions[key]


def _add_partition(told: _ClusterTrace, record: Record) -> None:
    _add_change(told, record["topic"], record["partition"], record, told.cause)


def _add_change(told: _ClusterTrace, topic: str, index: int, fields: Record, cause: str) -> None:
    leader, epoch, isr = fields["leader"], fields["leader_epoch"], tuple(fields["isr"])
    was_leader, was_epoch, was_isr = told.partitions.get((topic, index), (-1, -1, isr))
    besides = {
        "topic": topic, "partition": index, "leader": leader, "epoch": epoch, "isr": isr,
        "partition_epoch": fields["partition_epoch"],
    }  # fmt: skip
    if leader >= 0 and (leader, epoch) != (was_leader, was_epoch):
        told.add_line("elect", **besides, clean=leader in was_isr, cause=cause)
    else:
        told.add_line("isr", **besides, cause=cause)
    told.partitions[topic, index] = (leader, epoch, isr)


_RECORD_WRITERS: Mapping[str, Callable[[_ClusterTrace, Record], None]] = {
    "broker": _add_broker,
    "topic": _add_topic,
    "partition": _add_partition,
    "partitions": _add_partitions,
    "configs": _count_version_only,
    "topic_deleted": _drop_topic,
}
