"""Waits for the moments of a schedule, and evaluates their conditions on one view of the cluster.

Rules
1. `time` and `after` always come; the time-out applies to the others, and to all of a sequence together.
2. Acks are events. The cluster is observed only for a state, again POLL_S after each view; the failpoints
   that a broker has reached, and the trace, are read every EAGER_S.
3. A field that is not visible meets no condition. The view that met a state is kept, so that roles are
   resolved with it.
4. `then_ns` counts from when the moment came (at a failpoint: by the broker's clock), not from when it was
   noticed.
"""

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.harness.protocols import UNKNOWN, Met, Sight, View
from floodmark.harness.schedule.moments import CONDITIONS, OF_BROKER, point_matches
from floodmark.nemesis.roles import Stage, needs_view, players

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
    """When a moment came, and the evidence for the op's `fault`."""

    time_ns: int  # when it was noticed
    came_ns: int  # when it came: the requested time, or by the broker's clock; else the same
    detail: Mapping[str, Any] = field(default_factory=dict)
    view: View | None = None

    def describe(self) -> dict[str, Any]:
        return {"time": self.time_ns, **self.detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What a wait for a moment needs. `stage` returns the current assignment and faults."""

    sight: Sight
    stage: Callable[[], Stage]
    timeout_s: float
    done_ns: int  # when the entry before, or the moment before in a sequence, was done
    stuck: list[Mapping[str, Any]] = field(default_factory=list)  # the single moment that is awaited now

    def timed_out(self, began_ns: int) -> bool:
        return self.sight.now_ns() >= began_ns + int(self.timeout_s * NS)


async def await_moment(moment: Mapping[str, Any] | None, watch: Watch) -> Reached | None:
    """Wait until the moment comes; None: it did not within its time-out."""
    if moment is None:
        return _reached_now(watch.sight)
    watch.stuck[:] = [moment]
    reached = await _AWAIT[moment["at"]](moment, watch)
    if reached is None or "then_ns" not in moment:
        return reached
    now_ns = await _sleep_until(reached.came_ns + moment["then_ns"], watch.sight)
    later = {**reached.detail, "then_ns": now_ns - reached.came_ns}
    return replace(reached, came_ns=now_ns, detail=later, view=None)  # the view is outdated by now


def _reached_now(sight: Sight, **detail: Any) -> Reached:
    now_ns = sight.now_ns()
    return Reached(time_ns=now_ns, came_ns=now_ns, detail=detail)


async def _sleep_until(due_ns: int, sight: Sight) -> int:
    """Sleep until this time of the run; returns the time then."""
    while (left_ns := due_ns - sight.now_ns()) > 0:
        await asyncio.sleep(left_ns / NS)
    return sight.now_ns()


async def _await_time(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    due_ns = max(moment.get("time", 0), watch.done_ns + moment["after_ns"] if "after_ns" in moment else 0)
    now_ns = await _sleep_until(due_ns, watch.sight)
    detail = {"asked": due_ns, "late_ns": now_ns - due_ns}
    return Reached(time_ns=now_ns, came_ns=due_ns, detail=detail)


async def _await_acks(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    if "leader" in moment:
        return await _await_acks_of_leader(moment, watch)
    sight, partition = watch.sight, moment["partition"]
    deadline_ns = sight.now_ns() + int(watch.timeout_s * NS)
    while sight.acks(partition) < moment["count"]:
        left_ns = deadline_ns - sight.now_ns()
        if left_ns <= 0:
            return None
        await sight.ack_or(left_ns / NS)
    return _reached_now(sight, count=sight.acks(partition))


async def _await_acks_of_leader(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    """Wait for acks of one leader, which the trace counts."""
    sight, partition, began_ns = watch.sight, moment["partition"], watch.sight.now_ns()
    while True:
        for node in await _resolve_nodes(moment["leader"], partition, watch):
            if (count := sight.acks_given(partition, node)) >= moment["count"]:
                return _reached_now(sight, count=count, leader=node)
        if watch.timed_out(began_ns):
            return None
        await asyncio.sleep(EAGER_S)


async def _await_failpoint(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    sight, count, began_ns = watch.sight, moment.get("count", 1), watch.sight.now_ns()
    while True:
        for node in await _resolve_nodes(moment["node"], moment.get("partition", 0), watch):
            found = find_matches(moment, node, await sight.met(node), watch.stage())
            if len(found) >= count:
                met = found[count - 1]
                return Reached(time_ns=sight.now_ns(), came_ns=met.time_ns, detail=describe_met(met, count))
        if watch.timed_out(began_ns):
            return None
        await asyncio.sleep(EAGER_S)


async def _resolve_nodes(name: str, partition: int, watch: Watch) -> tuple[str, ...]:
    view = await watch.sight.view() if needs_view([name]) else None
    return players(name, partition, view, watch.stage())


async def _await_sequence(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    details: list[dict[str, Any]] = []
    reached = None
    for part in moment["of"]:
        began_ns = watch.sight.now_ns()
        reached = await await_moment(part, watch)
        if reached is None:
            return None
        now_ns = watch.sight.now_ns()
        spent_s = 0.0 if part["at"] in _ALWAYS else (now_ns - began_ns) / NS
        watch = replace(watch, done_ns=now_ns, timeout_s=max(0.0, watch.timeout_s - spent_s))
        details.append(reached.describe())
    assert reached is not None, "a sequence has at least one moment"
    return replace(reached, detail={"of": details})


async def _await_first(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    """Wait for the moment that comes first, and cancel the others. Of several at once the first listed."""
    parts = [asyncio.create_task(await_moment(part, replace(watch, stuck=[]))) for part in moment["of"]]
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
        await _cancel_all(parts)


async def _cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _await_state(moment: Mapping[str, Any], watch: Watch) -> Reached | None:
    sight, began_ns = watch.sight, watch.sight.now_ns()
    while True:
        view, stage = await sight.view(), watch.stage()
        if evaluate_state(moment, view, stage):
            return replace(_reached_now(sight, **_describe_observations(moment, view, stage)), view=view)
        if watch.timed_out(began_ns):
            return None
        await asyncio.sleep(POLL_S)


_AWAIT = {
    "time": _await_time, "after": _await_time, "ack": _await_acks, "state": _await_state,
    "failpoint": _await_failpoint, "sequence": _await_sequence, "first": _await_first,
}  # fmt: skip


# -- failpoints: pure ---------------------------------------------------------------------------------------

def find_matches(moment: Mapping[str, Any], node: str, met: Sequence[Met], stage: Stage) -> list[Met]:
    """The times that the node reached the moment's failpoint, since it was last armed for that."""
    since_ns = max((one.began_ns for one in stage.ledger.armed
                    if one.node == node and point_matches(one.point, moment)),
                   default=None)
    if since_ns is None:
        return []
    return sorted((one for one in met if one.name == moment["name"] and one.time_ns >= since_ns
                   and all(getattr(one, key) == moment[key] for key in CONDITIONS if key in moment)),
                  key=lambda one: one.time_ns)


def describe_met(met: Met, count: int) -> dict[str, Any]:
    """Describe it for the op's `reached`: `met` is when the node reached the point, by its own clock."""
    where = {key: getattr(met, key) for key in (*CONDITIONS, "action") if getattr(met, key) is not None}
    return {"node": met.node, "name": met.name, "met": met.time_ns, "count": count, **where}


def describe_death(crash: Met, noticed_ns: int, count: int) -> Mapping[str, Any]:
    """Build the `fault` of a kill that no entry struck: the node reached a point that was armed to crash it.
    The kill began when the point was reached, and was noticed later. count: which of its deaths at that point
    it is. Or (action None) the node ended because of a fault in force, which `why` names."""
    if crash.action is None:
        return {"nodes": [crash.node], "why": crash.name, "reached": {"time": noticed_ns},
                "began": crash.time_ns}
    asked = {key: getattr(crash, key) for key in ("partition",) if getattr(crash, key) is not None}
    return {
        "nodes": [crash.node],
        "moment": {"at": "failpoint", "node": crash.node, "name": crash.name, **asked},
        "reached": {"time": noticed_ns, **describe_met(crash, count)},
        "began": crash.time_ns,
    }


# -- states: pure -------------------------------------------------------------------------------------------

def evaluate_state(state: Mapping[str, Any], view: View, stage: Stage) -> bool:
    """Whether this view meets a state (harness/schedule/entry.py lists them)."""
    if "all" in state:
        return all(evaluate_state(part, view, stage) for part in state["all"])
    if "any" in state:
        return any(evaluate_state(part, view, stage) for part in state["any"])
    if "healthy" in state:
        return is_healthy(view, stage)
    found = list(_observe(state, view, stage))
    value = state["value"]
    if isinstance(value, Mapping):
        wanted = [seen for _, seen in _observe({"partition": state.get("partition"), **value}, view, stage)]
        if len(wanted) != 1 or wanted[0] is UNKNOWN:
            return False
        value = wanted[0]
    return bool(found) and all(_compare(seen, state["is"], value) for _, seen in found)


def is_healthy(view: View, stage: Stage) -> bool:
    """Whether every broker is up and unfenced, every ISR full and known to its members, and no fault in
    force."""
    return (
        not stage.ledger.lasting
        and all(node in view.running and node in view.unfenced for node in stage.nodes)
        and all(_isr_is_stable(partition, replicas, view) for partition, replicas in stage.replicas.items())
    )


def _isr_is_stable(partition: int, replicas: tuple[str, ...], view: View) -> bool:
    """Whether the ISR is full, no change of it is proposed, and every member knows its leader. A broker that
    was bounced within its session is still in the ISR and unfenced until it registers (KIP-380), but it knows
    no leader. A proposed shrink may yet leave the leader alone: a power cut then loses acked records."""
    truth = view.partitions.get(partition)
    if truth is None or truth.leader is None or set(truth.isr) != set(replicas):
        return False
    own = [view.replicas.get((node, partition)) for node in replicas]
    return all(
        one is not None and one.leader in (truth.leader, UNKNOWN) and one.epoch in (truth.epoch, UNKNOWN)
        and one.proposing is not True
        for one in own
    )


def _observe(fields: Mapping[str, Any], view: View, stage: Stage) -> Iterator[tuple[str | None, Any]]:
    """Yield (replica, value) for each replica that an observation names; (None, value): the controller's."""
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


def _compare(seen: Any, how: str, value: Any) -> bool:
    if seen is UNKNOWN:
        return False
    if how == "contains":
        return value in seen
    if how == "lacks":
        return value not in seen
    if isinstance(seen, tuple):  # an ISR
        seen, value = set(seen), set(value)
    return _ORDERS[how](seen, value)


def _describe_observations(state: Mapping[str, Any], view: View, stage: Stage) -> dict[str, Any]:
    """The observed value of each field in the state: {"seen": [{"replica", "field", "value"}, ...]}."""
    lines = [
        {**({"replica": node} if node is not None else {}), "field": leaf["field"],
         "value": None if seen is UNKNOWN else list(seen) if isinstance(seen, tuple) else seen}
        for leaf in _iterate_leaves(state)
        for node, seen in _observe(leaf, view, stage)
    ]
    return {"seen": lines} if lines else {}


def _iterate_leaves(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in ("all", "any"):
        for part in state.get(group, ()):
            yield from _iterate_leaves(part)
    if "field" in state:
        yield state
        if isinstance(state["value"], Mapping):
            yield {"partition": state.get("partition"), **state["value"]}
