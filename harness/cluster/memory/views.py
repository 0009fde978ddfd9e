"""Makes a View of the cluster in memory from the state of its machines, with the harness's names. Pure."""

from collections.abc import Mapping, Sequence

from floodmark.broker.protocol.metadata import Metadata
from floodmark.harness.cluster.memory.broker import BrokerNode
from floodmark.harness.cluster.memory.disk import Disk, PartitionLog
from floodmark.harness.cluster.memory.replicas import HostedPartition
from floodmark.harness.protocols import PartitionSpec, PartitionView, ReplicaView, View


def look(
    *,
    time_ns: int,
    names: Mapping[int, str],
    specs: Sequence[PartitionSpec],
    metadata: Metadata | None,
    brokers: Mapping[str, tuple[BrokerNode, Disk]],
    running: frozenset[str],
) -> View:
    """The view. metadata: the controller's; None: it does not answer. brokers: those that answer. A node that
    is not the incarnation the controller knows is not unfenced: it was restarted."""
    replicas: dict[tuple[str, int], ReplicaView] = {}
    for node, (broker, disk) in brokers.items():
        for spec in specs:
            key = (spec.topic, spec.partition)
            hosted, log = broker.replicas.partitions.get(key), disk.logs.get(key)
            if hosted is not None:
                replicas[node, spec.key] = _hosted(names, node, spec.key, hosted, clean=broker.clean)
            elif log is not None:
                hw = disk.high_watermarks.get(key, 0)
                replicas[node, spec.key] = _unassigned(node, spec.key, log, hw, clean=broker.clean)
    partitions = {}
    for spec in specs if metadata is not None else ():
        topic = metadata.topics.get(spec.topic) if metadata is not None else None
        if topic is not None:
            part = topic.partitions[spec.partition]
            partitions[spec.key] = PartitionView(
                partition=spec.key, leader=names.get(part.leader), epoch=part.leader_epoch,
                isr=tuple(names[each] for each in part.isr), partition_epoch=part.partition_epoch,
            )  # fmt: skip
    epochs = {node: broker.lifecycle.broker_epoch for node, (broker, _) in brokers.items()}
    known = metadata.brokers if metadata is not None else ()
    unfenced = frozenset(
        names[each.id]
        for each in known
        if not each.fenced and epochs.get(names[each.id], each.epoch) == each.epoch
    )
    return View(
        time_ns=time_ns, replicas=replicas, partitions=partitions, running=running, unfenced=unfenced
    )


def _hosted(
    names: Mapping[int, str], node: str, key: int, hosted: HostedPartition, *, clean: bool
) -> ReplicaView:
    replica = hosted.replica
    return ReplicaView(
        node=node, partition=key, leader=names.get(replica.leader), epoch=replica.leader_epoch,
        log_start=replica.log_start, leo=replica.leo, hw=hosted.visible_hw,
        isr=tuple(names[each] for each in replica.isr), checkpointed_hw=hosted.checkpointed_hw,
        epochs=replica.epochs, clean=clean, proposing=replica.proposing,
    )  # fmt: skip


def _unassigned(node: str, key: int, log: PartitionLog, hw: int, *, clean: bool) -> ReplicaView:
    """A log that was recovered and has no role yet."""
    return ReplicaView(
        node=node, partition=key, leader=None, epoch=-1, log_start=log.start, leo=log.leo,
        hw=max(log.start, min(hw, log.leo)), isr=(), checkpointed_hw=hw, epochs=log.epochs, clean=clean,
    )  # fmt: skip


def unready(view: View, specs: Sequence[PartitionSpec]) -> str | None:
    """None, or the first partition without a leader or a full ISR, or whose leader does not know."""
    for spec in specs:
        truth = view.partitions.get(spec.key)
        if truth is None or truth.leader is None or set(truth.isr) != set(spec.replicas):
            return f"{spec.topic}-{spec.partition} has no leader or no full ISR: {truth}"
        own = view.replicas.get((truth.leader, spec.key))
        knows = own is not None and own.epoch == truth.epoch and own.leader == truth.leader
        if own is None or not knows or not isinstance(own.isr, tuple) or set(own.isr) != set(spec.replicas):
            return f"{truth.leader} does not yet know that it leads {spec.topic}-{spec.partition}"
    return None
