"""When to strike: moments, waited for; the conditions of a state, evaluated by pure functions on one look.

Rules
1. `time` and `after` always come; the time-out is that of `ack` and `state`.
2. Acks are waited for as events. The cluster is looked at only for a state, again POLL_S after each look.
3. What cannot be seen fulfils nothing. The view a state was reached with is handed on: roles go by it.
"""

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.protocols import Sight, View
from nemesis.roles import Stage, players

POLL_S = 0.01
NS = 1_000_000_000
_UNSEEN = object()
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """When a moment had come, and what told so (for the op's `fault`)."""

    time_ns: int
    detail: Mapping[str, Any] = field(default_factory=dict)
    view: View | None = None

    def told(self) -> dict[str, Any]:
        return {"time": self.time_ns, **self.detail}


async def reach(moment: Mapping[str, Any] | None, sight: Sight, *, timeout_s: float, stage: Stage,
                done_ns: int) -> Reached | None:
    """When the moment has come; None: not within its time-out. done_ns: when the entry before was done."""
    if moment is None:
        return Reached(time_ns=sight.now_ns())
    kind = moment["at"]
    if kind == "ack":
        return await _ack(moment, sight, timeout_s)
    if kind == "state":
        return await _state(moment, sight, timeout_s, stage)
    due_ns = max(moment.get("time", 0), done_ns + moment["after_ns"] if "after_ns" in moment else 0)
    while (left_ns := due_ns - sight.now_ns()) > 0:
        await asyncio.sleep(left_ns / NS)
    return Reached(time_ns=sight.now_ns())


async def _ack(moment: Mapping[str, Any], sight: Sight, timeout_s: float) -> Reached | None:
    partition, count = moment["partition"], moment["count"]
    deadline_ns = sight.now_ns() + int(timeout_s * NS)
    while sight.acks(partition) < count:
        left_ns = deadline_ns - sight.now_ns()
        if left_ns <= 0:
            return None
        await sight.ack_or(left_ns / NS)
    return Reached(time_ns=sight.now_ns(), detail={"count": sight.acks(partition)})


async def _state(moment: Mapping[str, Any], sight: Sight, timeout_s: float, stage: Stage) -> Reached | None:
    deadline_ns = sight.now_ns() + int(timeout_s * NS)
    while True:
        view = await sight.view()
        if holds(moment, view, stage):
            return Reached(time_ns=sight.now_ns(), detail=_witness(moment, view, stage), view=view)
        if sight.now_ns() >= deadline_ns:
            return None
        await asyncio.sleep(POLL_S)


# -- states: pure -------------------------------------------------------------------------------------------

def holds(state: Mapping[str, Any], view: View, stage: Stage) -> bool:
    """Whether a state (harness/schedule.py says which there are) is so at this look."""
    if "all" in state:
        return all(holds(part, view, stage) for part in state["all"])
    if "any" in state:
        return any(holds(part, view, stage) for part in state["any"])
    if "healthy" in state:
        return healthy(view, stage)
    found = list(_observed(state, view, stage))
    value = state["value"]
    if isinstance(value, Mapping):
        wanted = [seen for _, seen in _observed({"partition": state.get("partition"), **value}, view, stage)]
        if len(wanted) != 1 or wanted[0] is _UNSEEN:
            return False
        value = wanted[0]
    return bool(found) and all(_compares(seen, state["is"], value) for _, seen in found)


def healthy(view: View, stage: Stage) -> bool:
    """Every broker up and unfenced, every ISR full and its members aware of it, nothing in force."""
    return (
        not stage.ledger.lasting
        and all(node in view.running and node in view.unfenced for node in stage.nodes)
        and all(_whole(partition, replicas, view) for partition, replicas in stage.replicas.items())
    )


def _whole(partition: int, replicas: tuple[str, ...], view: View) -> bool:
    """Whether the ISR is full, about to stay so, and no member a stranger to it. A broker bounced within its
    session is still in the ISR and unfenced, as if never gone, until it registers (KIP-380); but it knows no
    leader. A shrink under way may yet leave its leader alone: power lost then loses what was acked."""
    truth = view.partitions.get(partition)
    if truth is None or truth.leader is None or set(truth.isr) != set(replicas):
        return False
    own = [view.replicas.get((node, partition)) for node in replicas]
    return all(
        one is not None and (one.leader, one.epoch) == (truth.leader, truth.epoch) and not one.proposing
        for one in own
    )


def _observed(fields: Mapping[str, Any], view: View, stage: Stage) -> Iterator[tuple[str | None, Any]]:
    """(replica, what is seen) of each replica an observation names; (None, ...): the controller's word."""
    name, partition = fields["field"], fields.get("partition")
    replica = fields.get("replica")
    if replica is None:
        seen = view.partitions.get(partition) if partition is not None else None
        yield None, _UNSEEN if seen is None else getattr(seen, name)
        return
    for node in players(replica, partition or 0, view, stage):
        if name == "running":
            yield node, node in view.running
            continue
        own = view.replicas.get((node, partition)) if partition is not None else None
        yield node, _UNSEEN if own is None else getattr(own, name)


def _compares(seen: Any, how: str, value: Any) -> bool:
    if seen is _UNSEEN:
        return False
    if how == "contains":
        return value in seen
    if how == "lacks":
        return value not in seen
    if isinstance(seen, tuple):  # an ISR
        seen, value = set(seen), set(value)
    return _ORDERS[how](seen, value)


def _witness(state: Mapping[str, Any], view: View, stage: Stage) -> dict[str, Any]:
    """What was seen of everything the state names: {"seen": [{"replica", "field", "value"}, ...]}."""
    lines = [
        {**({"replica": node} if node is not None else {}), "field": leaf["field"],
         "value": None if seen is _UNSEEN else list(seen) if isinstance(seen, tuple) else seen}
        for leaf in _leaves(state)
        for node, seen in _observed(leaf, view, stage)
    ]
    return {"seen": lines} if lines else {}


def _leaves(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in ("all", "any"):
        for part in state.get(group, ()):
            yield from _leaves(part)
    if "field" in state:
        yield state
        if isinstance(state["value"], Mapping):
            yield {"partition": state.get("partition"), **state["value"]}
