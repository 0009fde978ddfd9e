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
from floodmark.harness.spec import DIRECT, RunSpec
from floodmark.nemesis.budget import overspends
from floodmark.nemesis.random_plans import plan
from floodmark.nemesis.registered_nemeses import draws

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
    """What is known of the cluster for which a plan is made."""

    spec: RunSpec  # with its seed
    nodes: tuple[str, ...]
    min_insync_replicas: int
    leaders: tuple[str, ...] = ()  # the preferred ones of the partitions; empty: unknown
    session_s: float = SESSION_S  # of a broker's session
    unsupported: Mapping[str, str] = field(default_factory=dict)  # nemeses that are impossible here, and why
    flush_every: bool = False  # every write is fsynced: a power cut loses nothing


def schedule_from_file(file: Path, context: PlanningContext) -> PlannedSchedule:
    """The schedule of a file, with remarks on entries that overspend the budget."""
    schedule = json_form.load(file, nodes=context.nodes, partitions=range(context.spec.partitions))
    found = overspends(
        schedule, min_insync_replicas=context.min_insync_replicas, flush_every=context.flush_every)
    return PlannedSchedule(schedule=schedule, remarks=tuple(
        f"entry {one.position} overspends the guarantees: {one.why}" for one in found))


def random_schedule(nemeses: str, context: PlanningContext) -> PlannedSchedule:
    """A random schedule for these nemeses (`crash,cut`, all, none)."""
    spec = context.spec
    assert spec.seed is not None, "the plan is drawn from it"
    requested = catalog.nemeses(nemeses, spec.cluster)
    named = catalog.named(nemeses)
    remarks = []
    names = tuple(name for name in requested if name not in context.unsupported)
    for name in requested:
        if name in context.unsupported:
            if name in named:
                raise UsageError(f"--nemesis {name} is impossible here: {context.unsupported[name]}")
            remarks.append(f"{name} is left out: {context.unsupported[name]}")
    if CUT in names and not _can_cut(spec):
        if CUT in named:
            raise UsageError("--nemesis cut needs links that can be cut: leave out --links direct, "
                             "or leave out cut")
        remarks.append("cut is left out: direct links cannot be cut (--links proxied can)")
        names = tuple(name for name in names if name != CUT)
    if "power" in names and context.min_insync_replicas < 2 and not (
            spec.overspend or context.flush_every):
        remarks.append("power is left out: with min.insync.replicas=1 an ack may rest on the one copy that "
                       "loses power, which exceeds the budget (--overspend allows it)")
        names = tuple(name for name in names if name != "power")
    if MOMENTS in names and not spec.trace:
        if MOMENTS in named:
            raise UsageError(f"--nemesis {MOMENTS} arms failpoints, and {UNTRACED}, or leave out {MOMENTS}")
        remarks.append(f"{MOMENTS} is left out: it arms failpoints, and {UNTRACED}")
        names = tuple(name for name in names if name != MOMENTS)
    registered = draws({*names} - {*catalog.own_names(NEMESIS)})
    schedule = plan(
        names, seed=spec.seed, nodes=context.nodes, partitions=range(spec.partitions),
        duration_s=spec.duration, interval_s=spec.interval, overspend=spec.overspend,
        session_s=context.session_s, links_cut=_can_cut(spec), flush_every=context.flush_every,
        leaders=context.leaders, registered=registered)
    if registered and not spec.overspend:
        for one in overspends(
                schedule, min_insync_replicas=context.min_insync_replicas,
                flush_every=context.flush_every):
            raise UsageError(f"--nemesis {nemeses} plans more faults than the guarantees tolerate, and "
                             f"--overspend was not given: {one.why}")
    unstruck = None
    if requested and all(entry.f in ACTS for entry in schedule):
        unstruck = f"--nemesis {nemeses}: {_why_nothing(names, remarks, spec)}"
    return PlannedSchedule(schedule=schedule, remarks=tuple(remarks), unstruck=unstruck)


def refuse_cuts(schedule: Schedule, spec: RunSpec) -> None:
    """Raises UsageError if the schedule has cuts and the links cannot be cut."""
    if _can_cut(spec):
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


def _can_cut(spec: RunSpec) -> bool:
    return spec.links != DIRECT or spec.cluster in catalog.ALWAYS_CUT


def _why_nothing(names: Sequence[str], remarks: Sequence[str], spec: RunSpec) -> str:
    if not names:
        return "; ".join(remarks)
    return (f"a run of {spec.duration:g} s is too short: the first act comes after 1 to 2 s, and its "
            "faults are mended 1 s before the end: give a longer --duration")
