"""Converts answers of control sockets and lines of the trace to View and Met, and points to requests. Pure.

Rules
1. Names are the history's; partitions that the run did not make are left out.
2. A running broker of another incarnation than the controller knows is not unfenced: it was restarted, and
   until it registers (KIP-380) the controller's ISR is about the earlier one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.cluster.reference.broker_settings import CONTROLLER_ID
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER, Met, PartitionView, ReplicaView, View

State = Mapping[str, Any]  # the `ok` of a `state` (docker/README.md)


class Names:
    """Translates the cluster's ids of brokers and partitions to the history's names, and back."""

    def __init__(self, nodes: Sequence[str], partitions: Sequence[PartitionSpec]) -> None:
        self._node = dict(enumerate(nodes, start=1))
        self._key = {(spec.topic, spec.partition): spec.key for spec in partitions}
        self._id = {CONTROLLER: CONTROLLER_ID} | {node: number for number, node in self._node.items()}

    def node(self, broker: int) -> str | None:
        return self._node.get(broker)  # -1: none

    def number(self, node: str) -> int:
        return self._id[node]

    def place(self, key: int) -> tuple[str, int]:
        """Topic and partition of a key. FloodmarkError if the run has no such partition."""
        for place, known in self._key.items():
            if known == key:
                return place
        raise FloodmarkError(f"there is no partition {key}")

    def nodes(self, brokers: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._node[broker] for broker in brokers)

    def key(self, state: State) -> int | None:
        """The partition's key; None: the run did not make it (an application did, on `cluster up`)."""
        return self._key.get((state["topic"], state["partition"]))


def view_from_answers(names: Names, states: Mapping[str, State], *, time_ns: int, running: frozenset[str]
                      ) -> View:
    """The View from one round of answers; states: of those that answered."""
    truth = states.get(CONTROLLER, {"partitions": (), "brokers": ()})
    brokers = {node: state for node, state in states.items() if node != CONTROLLER}
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


# -- failpoints -----------------------------------------------------------------------------------------


def point_request(names: Names, point: Mapping[str, Any]) -> dict[str, Any]:
    """A schedule's failpoint as the request of `arm` and `release` (docker/README.md)."""
    request = {key: value for key, value in point.items() if key not in ("name", "partition", "peer")}
    if "name" in point:
        request["point"] = point["name"]
    if "partition" in point:
        request["topic"], request["partition"] = names.place(point["partition"])
    if "peer" in point:
        request["peer"] = names.number(point["peer"])
    return request


def met_from_answer(names: Names, node: str, row: State) -> Met:
    """A Met from one row of the answer to `points`; -1 in a row means unknown."""
    known = {key: row[key] for key in ("epoch", "offset") if row.get(key, -1) >= 0}
    key = names.key(row) if row.get("topic") is not None else None
    peer = row.get("peer", -1)
    return Met(
        node=node,
        name=row["point"],
        action=row.get("action"),
        time_ns=row["time"],
        partition=key,
        peer=CONTROLLER if peer == CONTROLLER_ID else names.node(peer),
        held=row["held"],
        **known,
    )


def met_from_trace(line: Mapping[str, Any]) -> Met:
    """A Met from a failpoint's line of the trace, which has the history's names already."""
    return Met(node=line["node"], name=line["name"], action=line["action"], time_ns=line["time"],
               partition=line.get("partition"), epoch=line.get("epoch"), peer=line.get("peer"),
               offset=line.get("offset"))
