"""Chooses a run's schedule: from a file, or a random plan of nemeses; reports what was left out.

Rules
1. A nemesis that was named and is impossible here is refused; one that only `all` included is left out, with
   a remark.
2. If a nemesis was requested and nothing is planned, the plan has the reason: such a run proves less than
   requested, and its verdict is unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.harness import catalog
from floodmark.harness.errors import UsageError
from floodmark.harness.registered import NEMESIS
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import ACTS, Schedule
from floodmark.harness.schedule.patterns import SESSION_S
from floodmark.nemesis.budget import overspends

DIRECT = "direct"
CUT = "cut"
MOMENTS = "moments"
UNTRACED = "they are observed in the trace: leave out --no-trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSchedule:
    """A schedule and remarks for the user. unstruck: why a requested nemesis has no fault in it; None: it
    has, or none was requested."""

    schedule: Schedule
    remarks: tuple[str, ...] = ()
    unstruck: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """The cluster and the time for which a plan is made."""

    cluster: str
    nodes: tuple[str, ...]
    partitions: tuple[int, ...]
    links: str | None  # as requested; None: what the schedule needs
    min_insync_replicas: int
    seed: int
    duration_s: float
    interval_s: float
    overspend: bool
    leaders: tuple[str, ...] = ()  # the preferred ones of the partitions; empty: unknown
    session_s: float = SESSION_S  # of a broker's session
    unsupported: Mapping[str, str] = field(default_factory=dict)  # nemeses that are impossible here, and why
    trace: bool = True  # whether the brokers write traces
    flush_every: bool = False  # every write is fsynced: a power cut loses nothing


def schedule_from_file(file: Path, context: PlanningContext) -> PlannedSchedule:
    """The schedule of a file, with remarks on entries that overspend the budget."""
    schedule = json_form.load(file, nodes=context.nodes, partitions=context.partitions)
    found = overspends(
        schedule, min_insync_replicas=context.min_insync_replicas, flush_every=context.flush_every)
    return PlannedSchedule(schedule=schedule, remarks=tuple(
        f"entry {one.position} overspends the guarantees: {one.why}" for one in found))


def random_schedule(nemeses: str, context: PlanningContext) -> PlannedSchedule:
    """A random schedule for these nemeses (`crash,cut`, all, none)."""
    requested = catalog.nemeses(nemeses, context.cluster)
    named = catalog.named(nemeses)
    remarks = []
    names = tuple(name for name in requested if name not in context.unsupported)
    for name in requested:
        if name in context.unsupported:
            if name in named:
                raise UsageError(f"--nemesis {name} is impossible here: {context.unsupported[name]}")
            remarks.append(f"{name} is left out: {context.unsupported[name]}")
    if CUT in names and not _can_cut(context):
        if CUT in named:
            raise UsageError("--nemesis cut needs links that can be cut: leave out --links direct, "
                             "or leave out cut")
        remarks.append("cut is left out: direct links cannot be cut (--links proxied can)")
        names = tuple(name for name in names if name != CUT)
    if "power" in names and context.min_insync_replicas < 2 and not (
            context.overspend or context.flush_every):
        remarks.append("power is left out: with min.insync.replicas=1 an ack may rest on the one copy that "
                       "loses power, which exceeds the budget (--overspend allows it)")
        names = tuple(name for name in names if name != "power")
    if MOMENTS in names and not context.trace:
        if MOMENTS in named:
            raise UsageError(f"--nemesis {MOMENTS} arms failpoints, and {UNTRACED}, or leave out {MOMENTS}")
        remarks.append(f"{MOMENTS} is left out: it arms failpoints, and {UNTRACED}")
        names = tuple(name for name in names if name != MOMENTS)
    schedule = catalog.plan(
        names, seed=context.seed, nodes=context.nodes, partitions=context.partitions,
        duration_s=context.duration_s, interval_s=context.interval_s, overspend=context.overspend,
        session_s=context.session_s, links_cut=_can_cut(context), flush_every=context.flush_every,
        leaders=context.leaders)
    if set(names) - {*catalog.own_names(NEMESIS)} and not context.overspend:
        for one in overspends(
                schedule, min_insync_replicas=context.min_insync_replicas,
                flush_every=context.flush_every):
            raise UsageError(f"--nemesis {nemeses} plans more faults than the guarantees tolerate, and "
                             f"--overspend was not given: {one.why}")
    unstruck = None
    if requested and all(entry.f in ACTS for entry in schedule):
        unstruck = f"--nemesis {nemeses}: {_why_nothing(names, remarks, context)}"
    return PlannedSchedule(schedule=schedule, remarks=tuple(remarks), unstruck=unstruck)


def refuse_cuts(schedule: Schedule, cluster: str, links: str) -> None:
    """Raises UsageError if the schedule has cuts and the links cannot be cut."""
    if links != DIRECT or cluster in catalog.ALWAYS_CUT:
        return
    cuts = [position for position, entry in enumerate(schedule) if entry.f == CUT]
    if cuts:
        raise UsageError(f"entry {cuts[0]} of the schedule is a cut, and direct links cannot be cut: "
                         "use --links proxied, or leave --links out")


def refuse_untraced(schedule: Schedule) -> None:
    """Raises UsageError if the schedule arms failpoints. Without a trace, what a broker met is lost when it
    ends at a failpoint, and another end by SIGKILL would look like the armed one."""
    armed = [position for position, entry in enumerate(schedule) if entry.f == "arm"]
    if armed:
        raise UsageError(f"entry {armed[0]} of the schedule arms a failpoint, and {UNTRACED}")


def _can_cut(context: PlanningContext) -> bool:
    return context.links != DIRECT or context.cluster in catalog.ALWAYS_CUT


def _why_nothing(names: Sequence[str], remarks: Sequence[str], context: PlanningContext) -> str:
    if not names:
        return "; ".join(remarks)
    return (f"a run of {context.duration_s:g} s is too short: the first act comes after 1 to 2 s, and its "
            "faults are mended 1 s before the end: give a longer --duration")
