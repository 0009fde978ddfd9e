"""Refuses, before a run begins, the first entry of a schedule that its cluster cannot carry out.

Rules
1. It is known before a cluster starts what it can do: its abilities, and which fields of a replica it shows.
2. A schedule written for one system is refused completely on another: with a step left out it would be
   another experiment, and the run would prove something else.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from floodmark.harness.errors import UnfitCluster
from floodmark.harness.faults import DISKS_DAMAGED, FAULTS
from floodmark.harness.protocols import Cluster, ElectsReplica, Failpoints, Traces, ability, why_not
from floodmark.harness.schedule.entry import Entry, Schedule
from floodmark.nemesis.strikes import unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a cluster cannot do, each with the reason; the default: nothing."""

    faults: Mapping[str, str] = field(default_factory=dict)  # by f
    points: frozenset[str] | None = None  # failpoints that it has; None: all
    leader: str | None = None  # why no replica can be elected by name
    trace: str | None = None  # why one leader's acks cannot be counted
    not_shown: frozenset[str] = frozenset()  # fields of a replica


def limits_of(cluster: Cluster) -> Limits:
    failpoints, traces = ability(cluster, Failpoints), ability(cluster, Traces)
    trace = why_not(cluster, Traces) if traces is None else None
    if traces is not None and traces.traced_events is not None and "ack" not in traces.traced_events:
        trace = "this system's trace has no ack"
    return Limits(
        faults=unavailable(cluster),
        points=None if failpoints is None else failpoints.points,
        leader=None if ability(cluster, ElectsReplica) is not None else why_not(cluster, ElectsReplica),
        trace=trace,
        not_shown=cluster.not_shown,
    )


def refuse_schedule(schedule: Schedule, limits: Limits) -> None:
    """Raise UnfitCluster, which names the entry and the reason."""
    for position, entry in enumerate(schedule):
        for why in _refusals(entry, limits):
            on = f" {' '.join(entry.nodes)}" if entry.nodes else ""
            what = f"entry {position} of the schedule ({entry.f}{on})"
            raise UnfitCluster(f"{what} cannot be carried out: {why}")


def _refusals(entry: Entry, limits: Limits) -> Iterator[str]:
    if entry.f in FAULTS:  # the arguments of others are their own
        yield from _of_fault(entry, limits)
    if entry.moment is not None:
        for part in entry.moment.parts():
            yield from part.refusals(limits)


def _of_fault(entry: Entry, limits: Limits) -> Iterator[str]:
    if entry.f in limits.faults:
        yield f"this cluster cannot suffer {entry.f}: {limits.faults[entry.f]}"
    if "leader" in entry.args and limits.leader is not None:
        yield f"no replica can be elected by name: {limits.leader}"
    name = (entry.args.get("point") or {}).get("name")
    if name is not None and limits.points is not None and name not in limits.points:
        yield f"this cluster has no failpoint {name}; it has {', '.join(sorted(limits.points)) or 'none'}"
    if "keep_share" in entry.args and (hidden := {"leo", "log_start"} & limits.not_shown):
        yield f"keep_share is a share of the log; this system does not show {' and '.join(sorted(hidden))}"
    if entry.f == "disk" and entry.args.get("kind") in DISKS_DAMAGED[1:] and "bad_disk" in limits.faults:
        yield f"its disks can only be {DISKS_DAMAGED[0]}: {limits.faults['bad_disk']}"
