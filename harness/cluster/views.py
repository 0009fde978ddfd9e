"""From what control sockets answer to a View: pure.

Rules
1. Names are the history's; partitions that the run did not make are left out.
2. A broker that runs but is not the incarnation the controller knows is not unfenced: it was restarted, and
   until it registers (KIP-380) the controller's ISR still speaks of the one before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.protocols import PartitionSpec, PartitionView, ReplicaView, View

State = Mapping[str, Any]  # the `ok` of a `state` (docker/README.md)


class Names:
    """Brokers and partitions as the cluster numbers them, and as the history does."""

    def __init__(self, nodes: Sequence[str], partitions: Sequence[PartitionSpec]) -> None:
        self._node = dict(enumerate(nodes, start=1))
        self._key = {(spec.topic, spec.partition): spec.key for spec in partitions}

    def node(self, broker: int) -> str | None:
        return self._node.get(broker)  # -1: none

    def nodes(self, brokers: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._node[broker] for broker in brokers)

    def key(self, state: State) -> int | None:
        """None: a partition that the run did not make (an application's, through `cluster up`)."""
        return self._key.get((state["topic"], state["partition"]))


def view(
    names: Names,
    *,
    time_ns: int,
    controller: State | None,
    brokers: Mapping[str, State],
    running: frozenset[str],
) -> View:
    """One look. `brokers` holds those that answered; without the controller nobody knows the truth."""
    truth = controller or {"partitions": (), "brokers": ()}
    epochs = {node: state["broker_epoch"] for node, state in brokers.items()}
    unfenced = {
        node
        for broker in truth["brokers"]
        if not broker["fenced"]
        and (node := names.node(broker["id"])) is not None
        and epochs.get(node, broker["epoch"]) == broker["epoch"]
    }
    return View(
        time_ns=time_ns,
        replicas={
            (node, key): _replica(names, node, key, replica)
            for node, state in brokers.items()
            for replica in state["replicas"]
            if (key := names.key(replica)) is not None
        },
        partitions={
            key: PartitionView(
                partition=key,
                leader=names.node(partition["leader"]),
                epoch=partition["epoch"],
                isr=names.nodes(partition["isr"]),
                partition_epoch=partition["partition_epoch"],
            )
            for partition in truth["partitions"]
            if (key := names.key(partition)) is not None
        },
        running=running,
        unfenced=frozenset(unfenced),
    )


def _replica(names: Names, node: str, key: int, replica: State) -> ReplicaView:
    epochs = replica["epochs"]
    return ReplicaView(
        node=node,
        partition=key,
        leader=names.node(replica["leader"]),
        epoch=replica["epoch"],
        log_start=replica["log_start"],
        leo=replica["leo"],
        hw=replica["hw"],
        isr=names.nodes(replica["isr"]),
        checkpointed_hw=replica["checkpointed_hw"],
        epochs=None if epochs is None else tuple((epoch, start) for epoch, start in epochs),
        clean=replica["clean"],
        proposing=replica["proposing"],
    )


def healthy(look: View, partitions: Sequence[PartitionSpec], nodes: Sequence[str]) -> str | None:
    """None, or the first thing that is not as it should be: every node unfenced, every partition led, its ISR
    full, and its leader knows."""
    for node in nodes:
        if node not in look.unfenced:
            return f"{node} is fenced or not registered"
    for spec in partitions:
        truth = look.partitions.get(spec.key)
        where = f"{spec.topic}-{spec.partition}"
        if truth is None:
            return f"the controller does not know {where}"
        if truth.leader is None:
            return f"{where} has no leader"
        if set(truth.isr) != set(spec.replicas):
            return f"the ISR of {where} is {', '.join(truth.isr)}"
        own = look.replicas.get((truth.leader, spec.key))
        if own is None or own.leader != truth.leader or own.epoch != truth.epoch:
            return f"{truth.leader} does not yet know that it leads {where}"
        if set(own.isr) != set(spec.replicas):
            return f"{truth.leader} does not yet know the full ISR of {where}"
    return None
