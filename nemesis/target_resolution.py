"""Resolves the roles of an entry whose moment has come, and describes both for its op in the history.

Rules
1. Between a moment and its act the cluster is observed only if that is needed: to resolve a role, or if the
   moment was a time (then the op records the state at the strike).
2. If no node has a role, the runner waits for one, as long as for the moment.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from floodmark.harness.faults import MENDING
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.moments import POLL_S, Reached, Time
from floodmark.harness.schedule.roles import Stage, needs_view, resolve
from floodmark.harness.schedule.views import Sight, View

_ARGS_OF_ONE_NODE = frozenset({"leader", "to", "from"})  # args that name one node


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEntry:
    """An entry whose moment has come, with nodes for its roles."""

    entry: Entry  # its args with nodes for roles
    nodes: tuple[str, ...]
    reached: Reached | None  # None: the moment was missed
    view: View | None  # that resolved the roles, or fulfilled the moment


async def resolve_targets(entry: Entry, reached: Reached | None, sight: Sight,
              stage: Callable[[], Stage]) -> ResolvedEntry | None:
    """Resolve the roles. None: no node had one of them within the entry's time-out."""
    partition, named = entry.partition, _list_names(entry)
    view = reached.view if reached is not None else None
    if view is None and (needs_view(named) or strikes_by_time(entry)):
        view = await sight.view()
    deadline_ns = sight.now_ns() + int(entry.timeout_s * 1e9)
    while True:
        now = stage()
        nodes = resolve(entry.nodes, partition, view, now)
        args = _resolve_args(entry.args, partition, view, now)
        if nodes is not None and args is not None:
            return ResolvedEntry(entry=replace(entry, args=args), nodes=nodes, reached=reached, view=view)
        if not needs_view(named) and not now.ledger.may_crash:
            # No node is down, or paused, and only our own acts can change that.
            nobody = ResolvedEntry(entry=entry, nodes=(), reached=reached, view=view)
            return nobody if entry.f in MENDING else None
        if sight.now_ns() >= deadline_ns:
            return None
        await asyncio.sleep(POLL_S)
        if needs_view(named):
            view = await sight.view()


def strikes_by_time(entry: Entry) -> bool:
    return isinstance(entry.moment, Time) and entry.f not in MENDING


def describe_moment(resolved: ResolvedEntry) -> dict[str, Any]:
    """The requested roles and moment, and how the moment was reached."""
    detail: dict[str, Any] = {}
    if resolved.entry.nodes and resolved.entry.nodes != resolved.nodes:
        detail["asked"] = list(resolved.entry.nodes)
    if resolved.entry.moment is not None:
        detail["moment"] = resolved.entry.moment.to_json()
        detail["reached"] = resolved.reached.describe() if resolved.reached is not None else None
    return detail


def describe_strike_state(resolved: ResolvedEntry, sight: Sight, replicas: Mapping[int, tuple[str, ...]]
                ) -> dict[str, Any]:
    """The state at a fault's time: acks so far, leader and ISR of each partition."""
    if resolved.view is None or not strikes_by_time(resolved.entry):
        return {}
    seen = {partition: resolved.view.partitions[partition] for partition in sorted(replicas)
            if partition in resolved.view.partitions}
    return {"where": {
        "acks": {str(partition): sight.acks(partition) for partition in sorted(replicas)},
        "leader": {str(partition): view.leader for partition, view in seen.items()},
        "isr": {str(partition): list(view.isr) for partition, view in seen.items()},
    }}


def _list_names(entry: Entry) -> tuple[str, ...]:
    grudge = entry.args.get("grudge", {})
    ones = (entry.args[key] for key in _ARGS_OF_ONE_NODE if key in entry.args)
    return (*entry.nodes, *grudge, *(name for unheard in grudge.values() for name in unheard), *ones)


def _resolve_args(args: Mapping[str, Any], partition: int, view: View | None,
                  stage: Stage) -> Mapping[str, Any] | None:
    """Copy the args with nodes for roles. None: no node has one of the roles."""
    found = dict(args)
    for key in sorted(_ARGS_OF_ONE_NODE & args.keys()):
        meant = resolve([args[key]], partition, view, stage)
        if meant is None:
            return None
        found[key] = meant[0]
    if "grudge" in args:
        grudge: dict[str, list[str]] = {}
        for hearer, unheard in args["grudge"].items():
            hearers = resolve([hearer], partition, view, stage)
            snubbed = resolve(unheard, partition, view, stage)
            if hearers is None or snubbed is None:
                return None
            for node in hearers:
                grudge.setdefault(node, []).extend(name for name in snubbed if name != node)
        found["grudge"] = grudge
    return found
