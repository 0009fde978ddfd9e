"""Carries out floodmark's faults on a cluster, by the methods that harness/faults.py names for them; refuses
schedules with what a cluster cannot suffer. The nemeses of other packages (entry points; what one must be is
RegisteredNemesis in harness/protocols.py) are loaded and checked here too, with the fault patterns that they
draw and the code that injects them.

Rules
1. An invalid nemesis is refused with its name and distribution, before a run begins.
2. A pattern that injects one of floodmark's own faults also has the step that undoes it; otherwise the fault
   would outlast its plan, and the next pattern would strike on top of it.

Most faults call their method once for each node. A strike of its own, here, has a fault that does more: how
the entry's arguments become calls, and what the history has of it.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from floodmark.harness.errors import FloodmarkError, UnfitCluster, UsageError
from floodmark.harness.event_loop import gather_all
from floodmark.harness.faults import DISKS_DAMAGED, FAULTS, QUALITIES, registered_fault
from floodmark.harness.protocols import (
    BadDisks,
    Cluster,
    ElectsReplica,
    Failpoints,
    Nemesis,
    RegisteredNemesis,
    Struck,
    Traces,
    Wipes,
    ability,
    method_for,
    needed_for,
    why_not,
)
from floodmark.harness.registered import NEMESIS, Registered, owner_of_fault, registered_as
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import ACTS, Entry, Schedule
from floodmark.harness.schedule.patterns import DrawPattern, FaultPattern, PatternScope
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER, UNKNOWN
from floodmark.nemesis.grudges import apart

WIPED = "wiped"
Nodes = tuple[str, ...]
Method = Callable[..., Awaitable[Any]]  # of whatever has the fault's ability
Strike = Callable[[Method, Cluster, Entry, Nodes], Awaitable[Struck]]


class Strikes:
    """Carries out every fault for which this cluster has the ability."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._methods = {f: method for f in FAULTS if (method := method_for(cluster, f)) is not None}

    @property
    def answers(self) -> frozenset[str]:
        return frozenset(self._methods)

    async def strike(self, entry: Entry, nodes: Nodes) -> Struck:
        return await _STRIKES.get(entry.f, _on_each)(self._methods[entry.f], self._cluster, entry, nodes)


def unavailable(cluster: Cluster) -> Mapping[str, str]:
    """f -> the reason why this cluster cannot suffer it."""
    return {f: why_not(cluster, needed_for(f)) for f in FAULTS if method_for(cluster, f) is None}


# -- what a cluster cannot do -------------------------------------------------------------------------------

def refuse_schedule(schedule: Schedule, cluster: Cluster) -> None:
    """Raise UnfitCluster for the first entry that cannot be carried out, before the cluster starts. With a
    step left out a schedule would be another experiment, and prove something else."""
    for position, entry in enumerate(schedule):
        for why in refusals(entry, cluster):
            raise UnfitCluster(
                f"entry {position} of the schedule ({entry.text()}) cannot be carried out: {why}")


def refusals(entry: Entry, cluster: Cluster) -> Iterator[str]:
    """Why this entry cannot be carried out; nothing: it can."""
    args = entry.args if entry.f in FAULTS else {}  # the arguments of others are their own
    if entry.f in FAULTS and method_for(cluster, entry.f) is None:
        yield f"this cluster cannot suffer {entry.f}: {why_not(cluster, needed_for(entry.f))}"
    grudge = args.get("grudge", {})
    flags = (word for word, value in args.items() if value is True)
    for word in (*entry.nodes, *grudge, *chain.from_iterable(grudge.values()), *flags):
        if (why := cluster.lacks.get(f"{entry.f} {word}")) is not None:
            yield why
    if "leader" in args and ability(cluster, ElectsReplica) is None:
        yield f"no replica can be elected by name: {why_not(cluster, ElectsReplica)}"
    name, failpoints = (args.get("point") or {}).get("name"), ability(cluster, Failpoints)
    if name is not None and failpoints is not None and name not in failpoints.points:
        yield f"this cluster has no failpoint {name}; it has {', '.join(sorted(failpoints.points)) or 'none'}"
    if "keep_share" in args and (hidden := {"leo", "log_start"} & cluster.not_shown):
        yield f"keep_share is a share of the log; this system does not show {' and '.join(sorted(hidden))}"
    if (entry.f == "disk" and args.get("kind") in DISKS_DAMAGED[1:]
            and method_for(cluster, "bad_disk") is None):
        yield f"its disks can only be {DISKS_DAMAGED[0]}: {why_not(cluster, needed_for('bad_disk'))}"
    traces, untraced = ability(cluster, Traces), None  # why one leader's acks cannot be counted
    if traces is None:
        untraced = why_not(cluster, Traces)
    elif traces.traced_events is not None and "ack" not in traces.traced_events:
        untraced = "this system's trace has no ack"
    for part in () if entry.moment is None else entry.moment.parts():
        yield from part.refusals(untraced, cluster.not_shown)


# -- strikes ------------------------------------------------------------------------------------------------

async def _on_each(method: Method, _: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    """All nodes at once. All calls end before the first error is raised."""
    passed = [entry.args.get(value) if isinstance(value, str) else value for value in FAULTS[entry.f].passes]
    await gather_all(method(node, *passed) for node in nodes)
    return Struck(nodes=nodes)


async def _on_links(method: Method, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    """By the entry's grudge, its roles resolved; without one the struck nodes are apart from all the others
    and the controller (clients still reach them)."""
    if entry.f == "heal":
        await method()
        return Struck(nodes=())
    grudge: Mapping[str, Sequence[str]] = entry.args.get("grudge") or apart(
        nodes, (*cluster.nodes, CONTROLLER))
    detail: dict[str, Any] = {"grudge": grudge}
    if entry.f == "cut":
        await method(grudge, reset=entry.args.get("reset", False))
    elif entry.f == "packet":
        await method(grudge, {name: entry.args[name] for name in QUALITIES if name in entry.args})
    else:
        detail["connections"] = await method(grudge)
    named = {*grudge, *(name for unheard in grudge.values() for name in unheard)}
    return Struck(nodes=tuple(sorted(named - {CLIENTS, CONTROLLER})), detail=detail)


async def _power_cut(power_cut: Method, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    """Each log keeps what was fsynced; or at most `keep` (partition -> LEO); or the share `keep_share` of the
    log as observed right before. Several nodes lose power together."""
    keeps: dict[str, dict[int, int]] = {}
    if "keep" in entry.args:
        keeps = {node: {int(key): leo for key, leo in entry.args["keep"].items()} for node in nodes}
    elif "keep_share" in entry.args:
        for (node, partition), replica in (await cluster.observe()).replicas.items():
            if node in nodes and replica.leo is not UNKNOWN and replica.log_start is not UNKNOWN:
                records = int(entry.args["keep_share"] * (replica.leo - replica.log_start))
                keeps.setdefault(node, {})[partition] = replica.log_start + records
    met = await gather_all(power_cut(node, keep=keeps.get(node)) for node in nodes)
    lost = dict(zip(nodes, met, strict=True))
    ways = {node: one["how"] for node, one in lost.items() if "how" in one}
    return Struck(nodes=nodes, detail={
        **({"how": ways} if ways else {}),
        "kept": {node: {str(key): leo for key, leo in one.get("keep", {}).items()}
                 for node, one in lost.items()},
        "lost_records": {node: one.get("lost_records", 0) for node, one in lost.items()},
    })


async def _harm_disk(_: Method, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    """wiped: the node is killed and its log directory emptied, as if its disk had been replaced. All other
    kinds need BadDisks: a damaged disk kills its node too, a bad one lasts until it is mended."""
    wipes, bad, kind = ability(cluster, Wipes), ability(cluster, BadDisks), entry.args["kind"]
    can = {*([WIPED] if wipes is not None else []), *(bad.kinds if bad is not None else [])}
    if kind not in can:
        raise FloodmarkError(f"the disks of this cluster cannot be {kind}; they can be "
                             f"{', '.join(sorted(can))}")
    met = await gather_all(
        wipes.wipe(node) if kind == WIPED else bad.harm(node, kind)  # type: ignore[union-attr]
        for node in nodes)
    detail: dict[str, dict[str, Any]] = {"lost_records": {}}
    for node, one in zip(nodes, met, strict=True):
        for word, value in {"lost_records": 0, **one}.items():
            detail.setdefault(word, {})[node] = value
    return Struck(nodes=nodes, detail=detail)


async def _elect(elect: Method, cluster: Cluster, entry: Entry, _: Nodes) -> Struck:
    """A refusal by the controller is recorded; it is no error."""
    partitions, unclean = entry.args.get("partitions", ()), entry.args.get("unclean", False)
    leader = entry.args.get("leader")
    if leader is None:
        return Struck(nodes=(), detail=await elect(partitions, unclean=unclean))
    of_replica = ability(cluster, ElectsReplica)
    assert of_replica is not None, "refused before the run"
    return Struck(nodes=(), detail=await of_replica.elect_replica(partitions, leader, unclean=unclean))


async def _release(release: Method, _: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    released = await gather_all(release(node, entry.args.get("point")) for node in nodes)
    return Struck(nodes=nodes, detail={"released": dict(zip(nodes, released, strict=True))})


_STRIKES: Mapping[str, Strike] = {
    **dict.fromkeys(("cut", "packet", "reset", "heal"), _on_links), "power_cut": _power_cut,
    "disk": _harm_disk, "bad_disk": _harm_disk, "elect": _elect, "release": _release,
}


# -- nemeses of other packages ------------------------------------------------------------------------------

Made = TypeVar("Made")


def registered_nemesis(one: Registered) -> RegisteredNemesis:
    """Load it; UsageError if it is invalid."""
    loaded = one.load()
    if not isinstance(loaded, RegisteredNemesis):
        raise UsageError(f"the {one} is a {type(loaded).__name__}, should be a "
                         f"floodmark.harness.protocols.RegisteredNemesis: {one.entry.value}")
    for fault in loaded.faults:
        owner = owner_of_fault(fault.f)
        if fault.f in FAULTS or fault.f in ACTS or owner is None or owner.name != one.name:
            raise UsageError(f"the {one} has the fault {fault.f!r}: call its own faults {one.name!r}, or let "
                             f"them begin with '{one.name}_', and not as one of floodmark's")
        registered_fault(fault.f)
    if bool(loaded.faults) != (loaded.make is not None):
        raise UsageError(f"the {one} needs both `faults` and `make`, which carries them out, or neither")
    return loaded


def draws(names: Iterable[str]) -> Mapping[str, DrawPattern]:
    """For each registered nemesis among the names, the function that draws its patterns."""
    return {name: checked(one, registered_nemesis(one).draw_pattern) for name in sorted(names)
            if (one := registered_as(NEMESIS, name)) is not None}


def nemeses_of(schedule: Schedule, cluster: Cluster) -> tuple[Nemesis, ...]:
    """Build what carries out the schedule's faults of others. UsageError names an ability that is lacking."""
    theirs = {entry.f for entry in schedule} - FAULTS.keys() - ACTS
    owners = {owner.name: owner for f in theirs if (owner := owner_of_fault(f)) is not None}
    return tuple(_made(owners[name], cluster) for name in sorted(owners))


def _made(owner: Registered, cluster: Cluster) -> Nemesis:
    loaded = registered_nemesis(owner)
    make = loaded.make
    assert make is not None, f"{owner} has faults, and nothing that strikes"
    for kind in loaded.needs:
        if ability(cluster, kind) is None:
            raise UsageError(f"the {owner} cannot strike here: {why_not(cluster, kind)}")
    made = _called(owner, lambda: make(cluster))
    if {fault.f for fault in loaded.faults} != {*made.answers}:
        raise UsageError(f"the {owner} has the faults {', '.join(fault.f for fault in loaded.faults)}, and "
                         f"what it makes answers {', '.join(sorted(made.answers)) or 'none'}")
    return made


def checked(one: Registered, draw_pattern: DrawPattern) -> DrawPattern:
    """The same function, with a UsageError for a pattern that cannot be part of a schedule."""

    def drawn(scope: PatternScope) -> FaultPattern:
        pattern = _called(one, lambda: draw_pattern(scope))
        if not isinstance(pattern, FaultPattern):
            raise UsageError(f"the {one} draws a {type(pattern).__name__}, should draw a FaultPattern")
        if why := next(_unfit(pattern, scope), None):
            raise UsageError(f"the {one} draws an invalid pattern: {why}")
        entries = tuple(Entry(f=step.f, nodes=step.nodes, args=step.args) for step in pattern.steps
                        if step.f != "wait")
        json_form.read(json_form.write(entries), source=str(one), partitions=scope.partitions)
        return pattern

    return drawn


def _unfit(pattern: FaultPattern, scope: PatternScope) -> Iterator[str]:
    times = [step.at_s for step in pattern.steps]
    if not times or times[0] < 0 or times != sorted(times):
        yield f"its steps have the times {times}, should be one or more, from 0 s on and in order"
    for position, step in enumerate(pattern.steps):
        if unknown := sorted(set(step.nodes) - set(scope.nodes)):
            yield f"{step.f} names {unknown[0]!r}; the nodes are {', '.join(scope.nodes)}"
        mends = FAULTS[step.f].undone_by if step.f in FAULTS else None
        later = {(after.f, node) for after in pattern.steps[position + 1:] for node in after.nodes or ("",)}
        for node in step.nodes if mends not in (None, "heal") else ("",):
            if mends is not None and (mends, node) not in later:
                yield f"nothing undoes its {f'{step.f} {node}'.strip()}: it needs a later step {mends}"


def _called(one: Registered, call: Callable[[], Made]) -> Made:
    try:
        return call()
    except FloodmarkError:
        raise
    except Exception as error:
        raise UsageError(f"the {one} failed: {type(error).__name__}: {error}: mend it, or leave it out"
                         ) from error
