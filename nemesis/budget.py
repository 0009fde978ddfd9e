"""How much harm the guarantees tolerate, and which entries of a schedule ask for more. Pure.

The budget: an acked write outlives any number of kills, pauses and cuts, for what the kernel has stays
written. It outlives one lost page cache at a time, if acks rest on two copies at least. So within the budget
1. no election is unclean;
2. a power cut strikes one node, while every broker is up, every ISR full and no fault in force (`healthy`);
3. after it nothing strikes, but the start of what is down, until the cluster is healthy again;
4. and none of it with min.insync.replicas=1; while with flush.messages=1 a power cut takes nothing.
What stays within can have no permitted findings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.faults import FAULTS, LOSES
from harness.schedule import Schedule
from nemesis.ledger import MENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Overspent:
    """One entry that goes beyond the budget, and why."""

    position: int
    why: str


def overspends(schedule: Schedule, *, min_insync_replicas: int = 2,
               flush_every: bool = False) -> tuple[Overspent, ...]:
    """Every entry of the schedule that overspends, in order; a schedule within the budget has none."""
    found: list[Overspent] = []
    lost_at: int | None = None  # the power cut from which the cluster is not known to have recovered
    for position, entry in enumerate(schedule):
        if _waits_for_healthy(entry.moment):
            lost_at = None
        if entry.f == "elect" and entry.args.get("unclean"):
            found.append(Overspent(position=position, why="an unclean election may lose acked writes"))
        if entry.f not in FAULTS or entry.f in MENDING:
            continue
        if lost_at is not None:
            found.append(Overspent(position=position, why=(
                f"{entry.f} strikes before the cluster was waited for to be healthy after entry {lost_at}")))
        if entry.f in LOSES and not flush_every:
            found += [Overspent(position=position, why=why)
                      for why in _of_a_loss(entry.nodes, entry.moment, min_insync_replicas)]
            lost_at = position
    return tuple(found)


def _of_a_loss(nodes: tuple[str, ...], moment: Mapping[str, Any] | None,
               min_insync_replicas: int) -> list[str]:
    why = []
    if len(nodes) != 1 or nodes[0] in ("down", "paused"):
        why.append(f"{len(nodes)} nodes lose what they had not fsynced together")
    if min_insync_replicas < 2:
        why.append("an ack may rest on the one copy that loses power (min.insync.replicas is 1)")
    if not _waits_for_healthy(moment):
        why.append("a power cut that does not wait for a healthy cluster may take the last copy")
    return why


def _waits_for_healthy(moment: Mapping[str, Any] | None) -> bool:
    return moment is not None and moment["at"] == "state" and _implies_healthy(moment)


def _implies_healthy(state: Mapping[str, Any]) -> bool:
    if "any" in state:
        return all(_implies_healthy(part) for part in state["any"])
    return "healthy" in state or any(_implies_healthy(part) for part in state.get("all", ()))
