"""Waits for the moments of a schedule; pure functions evaluate a state on one look at the cluster.

Rules
1. `time` and `after` always come; the time-out is that of the others, and of all of a sequence together.
2. Acks are waited for as events. The cluster is looked at only for a state, again POLL_S after each look; a
   broker is asked what it has met, and the trace read, every EAGER_S.
3. What cannot be seen fulfils nothing. The view a state was reached with is handed on: roles go by it.
4. `then_ns` counts from when the moment came (at a failpoint: by the broker's clock), not from when it was
   seen.
"""

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.harness.protocols import UNKNOWN, Met, Sight, View
from floodmark.harness.schedule.json_form import CONDITIONS, OF_BROKER, point_matches
from floodmark.nemesis.roles import Stage, needs_a_look, players

POLL_S = 0.01
EAGER_S = 0.003
NS = 1_000_000_000
_ALWAYS = frozenset({"time", "after"})
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """When a moment had come, and what told so (for the op's `fault`)."""

    time_ns: int  # when that was seen
    came_ns: int  # when it came: as asked, or by the broker's clock; else the same
    detail: Mapping[str, Any] = field(default_factory=dict)
    view: View | None = None

    def told(self) -> dict[str, Any]:
        return {"time": self.time_ns, **self.detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What a moment is waited for with. `stage` gives what is so now."""

    sight: Sight
    stage: Callable[[], Stage]
    timeout_s: float
    done_ns: int  # when the entry, or the moment of a sequence, before was done
    stuck: list[Mapping[str, Any]] = field(default_factory=list)  # what was waited for last, no sequence

    def over(self, began_ns: int) -> bool:
        return self.sight.now_ns() >= began_ns + int(self.timeout_s * NS)


async def reach(moment: Mapping[str, Any] | None, watch: Watch) -> Reached | None:
    """When the moment has come; None: not within its time-out."""
    if moment is None:
        return _seen(watch.sight)
    watch.stuck[:] = [moment]
    reached = await _REACH[moment["at"]](moment, watch)
    if reached is None or "then_ns" not in moment:
        return reached
    now_ns = await _sleep_until(reached.came_ns + moment["then_ns"], watch.sight)
    later = {**reached.detail, "then_ns": now_ns - reached.came_ns}
    return replace(reached, came_ns=now_ns, detail=later, view=None)  # the look is old by now


def _seen(sight: Sight, **detail: Any) -> Reached:
    now_ns = sight.now_ns()
    return Reached(time_ns=now_ns, came_ns=now_ns, detail=detail)


async def _sleep_until(due_ns: int, sight: Sight) -> int:
    """When it was woken."""
    while (left_ns := due_ns - sight.now_ns()) > 0:
        await asyncio.sleep(left_ns / NS)
    return sight.now_ns()


async def _time(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    due_ns = max(moment.get("time", 0), watch.done_ns + moment["after_ns"] if "after_ns" in moment else 0)
    now_ns = await _sleep_until(due_ns, watch.sight)
    detail = {"asked": due_ns, "late_ns": now_ns - due_ns}
    return Reached(time_ns=now_ns, came_ns=due_ns, detail=detail)


async def _ack(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    if "leader" in moment:
        return await _ack_given(moment, watch)
    sight, partition = watch.sight, moment["partition"]
    deadline_ns = sight.now_ns() + int(watch.timeout_s * NS)
    while sight.acks(partition) < moment["count"]:
        left_ns = deadline_ns - sight.now_ns()
        if left_ns <= 0:
            return None
        await sight.ack_or(left_ns / NS)
    return _seen(sight, count=sight.acks(partition))


async def _ack_given(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    """By one leader, as the trace tells."""
    sight, partition, began_ns = watch.sight, moment["partition"], watch.sight.now_ns()
    while True:
        for node in await _named(moment["leader"], partition, watch):
            if (count := sight.acks_given(partition, node)) >= moment["count"]:
                return _seen(sight, count=count, leader=node)
        if watch.over(began_ns):
            return None
        await asyncio.sleep(EAGER_S)


async def _failpoint(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    sight, count, began_ns = watch.sight, moment.get("count", 1), watch.sight.now_ns()
    while True:
        for node in await _named(moment["node"], moment.get("partition", 0), watch):
            found = answering(moment, node, await sight.met(node), watch.stage())
            if len(found) >= count:
                met = found[count - 1]
                return Reached(time_ns=sight.now_ns(), came_ns=met.time_ns, detail=told_met(met, count))
        if watch.over(began_ns):
            return None
        await asyncio.sleep(EAGER_S)


async def _named(name: str, partition: int, watch: Watch) -> tuple[str, ...]:
    view = await watch.sight.view() if needs_a_look([name]) else None
    return players(name, partition, view, watch.stage())


async def _sequence(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    told: list[dict[str, Any]] = []
    reached = None
    for part in moment["of"]:
        began_ns = watch.sight.now_ns()
        reached = await reach(part, watch)
        if reached is None:
            return None
        now_ns = watch.sight.now_ns()
        spent_s = 0.0 if part["at"] in _ALWAYS else (now_ns - began_ns) / NS
        watch = replace(watch, done_ns=now_ns, timeout_s=max(0.0, watch.timeout_s - spent_s))
        told.append(reached.told())
    assert reached is not None, "a sequence has at least one moment"
    return replace(reached, detail={"of": told})


async def _first(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    """Whichever comes first; the others are waited for no longer. Of several at once the first listed."""
    parts = [asyncio.create_task(reach(part, replace(watch, stuck=[]))) for part in moment["of"]]
    try:
        pending = set(parts)
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            came = next((index for index, one in enumerate(parts) if one.done() and one.result()), None)
            if came is not None:
                reached = parts[came].result()
                assert reached is not None
                return replace(reached, detail={**reached.detail, "first": came})
        return None
    finally:
        await _end(parts)


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _state(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    sight, began_ns = watch.sight, watch.sight.now_ns()
    while True:
        view, stage = await sight.view(), watch.stage()
        if holds(moment, view, stage):
            return replace(_seen(sight, **_witness(moment, view, stage)), view=view)
        if watch.over(began_ns):
            return None
        await asyncio.sleep(POLL_S)


_REACH = {"time": _time, "after": _time, "ack": _ack, "state": _state, "failpoint": _failpoint,
          "sequence": _sequence, "first": _first}


# -- failpoints: pure ---------------------------------------------------------------------------------------

def answering(moment: Mapping[str, Any], node: str, met: Sequence[Met], stage: Stage) -> list[Met]:
    """The times that the node stood where the moment says, since the last arming that may be meant."""
    since_ns = max((one.began_ns for one in stage.ledger.armed
                    if one.node == node and point_matches(one.point, moment)),
                   default=None)
    if since_ns is None:
        return []
    return sorted((one for one in met if one.name == moment["name"] and one.time_ns >= since_ns
                   and all(getattr(one, key) == moment[key] for key in CONDITIONS if key in moment)),
                  key=lambda one: one.time_ns)


def told_met(met: Met, count: int) -> dict[str, Any]:
    """For the op's `reached`: `met` is when the node stood there, by its own clock."""
    where = {key: getattr(met, key) for key in (*CONDITIONS, "action") if getattr(met, key) is not None}
    return {"node": met.node, "name": met.name, "met": met.time_ns, "count": count, **where}


# -- states: pure -------------------------------------------------------------------------------------------

def holds(state: Mapping[str, Any], view: View, stage: Stage) -> bool:
    """Whether a state (harness/schedule/entry.py says which there are) is so at this look."""
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
        if len(wanted) != 1 or wanted[0] is UNKNOWN:
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
        one is not None and one.leader in (truth.leader, UNKNOWN) and one.epoch in (truth.epoch, UNKNOWN)
        and one.proposing is not True
        for one in own
    )


def _observed(fields: Mapping[str, Any], view: View, stage: Stage) -> Iterator[tuple[str | None, Any]]:
    """(replica, what is seen) of each replica an observation names; (None, ...): the controller's word."""
    name, partition = fields["field"], fields.get("partition")
    replica = fields.get("replica")
    if replica is None:
        seen = view.partitions.get(partition) if partition is not None else None
        yield None, UNKNOWN if seen is None else getattr(seen, name)
        return
    for node in players(replica, partition or 0, view, stage):
        if name in OF_BROKER:
            yield node, node in getattr(view, name)
            continue
        own = view.replicas.get((node, partition)) if partition is not None else None
        yield node, UNKNOWN if own is None else getattr(own, name)


def _compares(seen: Any, how: str, value: Any) -> bool:
    if seen is UNKNOWN:
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
         "value": None if seen is UNKNOWN else list(seen) if isinstance(seen, tuple) else seen}
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
