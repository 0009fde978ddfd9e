"""Resolves the roles of an entry whose moment has come, and says in its op what was asked and met.

Rules
1. Nothing is looked at that is not needed: between a moment and its act there is no look at the cluster,
   unless a role has to be resolved or the moment was a time (then the op says where it struck).
2. A role that nobody plays is waited for, as long as for the moment.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodmark.harness.faults import MENDING
from floodmark.harness.protocols import Sight, View
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.moment_watch import POLL_S, Reached
from floodmark.nemesis.roles import Stage, needs_a_look, resolve

_ONE = ("leader", "to", "from")  # args that name one node


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEntry:
    """An entry whose moment has come and whose roles have names."""

    entry: Entry  # its args by names
    nodes: tuple[str, ...]
    reached: Reached | None  # None: the moment was missed
    view: View | None  # the look that resolved it, or that the moment was reached with


async def resolve_targets(entry: Entry, reached: Reached | None, sight: Sight,
              stage: Callable[[], Stage]) -> ResolvedEntry | None:
    """Resolves the roles. None: one was never played within the entry's time-out."""
    partition, named = _partition(entry), _named(entry)
    view = reached.view if reached is not None else None
    if view is None and (needs_a_look(named) or asked_by_time(entry)):
        view = await sight.view()
    deadline_ns = sight.now_ns() + int(entry.timeout_s * 1e9)
    while True:
        now = stage()
        nodes = resolve(entry.nodes, partition, view, now)
        args = _resolved(entry.args, partition, view, now)
        if nodes is not None and args is not None:
            return ResolvedEntry(entry=replace(entry, args=args), nodes=nodes, reached=reached, view=view)
        if not needs_a_look(named) and not now.ledger.may_crash:
            # Nobody is down, or paused, and only our own acts can change that.
            nobody = ResolvedEntry(entry=entry, nodes=(), reached=reached, view=view)
            return nobody if entry.f in MENDING else None
        if sight.now_ns() >= deadline_ns:
            return None
        await asyncio.sleep(POLL_S)
        if needs_a_look(named):
            view = await sight.view()


def asked_by_time(entry: Entry) -> bool:
    return entry.moment is not None and entry.moment["at"] == "time" and entry.f not in MENDING


def asked_moment(aimed: ResolvedEntry) -> dict[str, Any]:
    """The moment that was asked, the one that was reached, and the roles that were given for names."""
    told: dict[str, Any] = {}
    if aimed.entry.nodes and aimed.entry.nodes != aimed.nodes:
        told["asked"] = list(aimed.entry.nodes)
    if aimed.entry.moment is not None:
        told["moment"] = dict(aimed.entry.moment)
        told["reached"] = aimed.reached.told() if aimed.reached is not None else None
    return told


def strike_state(aimed: ResolvedEntry, sight: Sight, replicas: Mapping[int, tuple[str, ...]]
                ) -> dict[str, Any]:
    """For a fault asked by time, where it struck: acks so far, leader and ISR of each partition."""
    if aimed.view is None or not asked_by_time(aimed.entry):
        return {}
    seen = {partition: aimed.view.partitions[partition] for partition in sorted(replicas)
            if partition in aimed.view.partitions}
    return {"where": {
        "acks": {str(partition): sight.acks(partition) for partition in sorted(replicas)},
        "leader": {str(partition): view.leader for partition, view in seen.items()},
        "isr": {str(partition): list(view.isr) for partition, view in seen.items()},
    }}


def _partition(entry: Entry) -> int:
    """For whose roles: the one said, the one asked of, or the first."""
    told: int = entry.args.get("partition", next(iter(entry.args.get("partitions", ())), 0))
    for send in entry.args.get("sends", ()):
        return int(send["partition"])
    return told


def _named(entry: Entry) -> tuple[str, ...]:
    grudge = entry.args.get("grudge", {})
    ones = (entry.args[key] for key in _ONE if key in entry.args)
    return (*entry.nodes, *grudge, *(name for unheard in grudge.values() for name in unheard), *ones)


def _resolved(args: Mapping[str, Any], partition: int, view: View | None,
              stage: Stage) -> Mapping[str, Any] | None:
    """The args with names for roles. None: one of the roles has no player."""
    names: dict[str, Any] = {}
    for key in _ONE:
        if key in args:
            meant = resolve([args[key]], partition, view, stage)
            if meant is None:
                return None
            names[key] = meant[0]
    if "grudge" in args:
        names["grudge"] = _grudge(args["grudge"], partition, view, stage)
        if names["grudge"] is None:
            return None
    return {**args, **names}


def _grudge(grudge: Mapping[str, Sequence[str]], partition: int, view: View | None,
            stage: Stage) -> dict[str, list[str]] | None:
    by_name: dict[str, list[str]] = {}
    for hearer, unheard in grudge.items():
        hearers = resolve([hearer], partition, view, stage)
        snubbed = resolve(unheard, partition, view, stage)
        if hearers is None or snubbed is None:
            return None
        for node in hearers:
            by_name.setdefault(node, []).extend(name for name in snubbed if name != node)
    return by_name
