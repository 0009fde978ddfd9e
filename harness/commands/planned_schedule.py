"""Chooses what is to strike a run: a schedule's file, or a random nemesis's plan; says what was left out.

Rules
1. A nemesis that was named and cannot strike here is refused; one that only `all` meant is left out, with
   a remark.
2. Where a nemesis was asked for and nothing is planned, the plan says why: such a run proves less than was
   asked, and its verdict is unknown.
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

DIRECT = "direct"
CUT = "cut"
MOMENTS = "moments"
UNTRACED = "which of them were met is read from the trace: leave out --no-trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSchedule:
    """remarks: what whoever asked should know, in sentences. unstruck: a nemesis was asked for, and why
    nothing of it will strike; None: something will, or none was asked for."""

    schedule: Schedule
    remarks: tuple[str, ...] = ()
    unstruck: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """The cluster and the time that a plan is made for."""

    cluster: str
    nodes: tuple[str, ...]
    partitions: tuple[int, ...]
    links: str | None  # as asked; None: whatever the schedule needs
    min_insync_replicas: int
    seed: int
    duration_s: float
    interval_s: float
    overspend: bool
    session_s: float = SESSION_S  # of a broker at the controller
    not_struck: Mapping[str, str] = field(default_factory=dict)  # nemeses that what runs cannot suffer, why
    trace: bool = True  # whether the brokers write one
    flush_every: bool = False  # every write is fsynced: a power cut takes nothing


def schedule_from_file(file: Path, ground: PlanningContext) -> PlannedSchedule:
    """The schedule that this file holds, whatever it overspends."""
    schedule = json_form.load(file, nodes=ground.nodes, partitions=ground.partitions)
    found = catalog.overspends(
        schedule, min_insync_replicas=ground.min_insync_replicas, flush_every=ground.flush_every)
    return PlannedSchedule(schedule=schedule, remarks=tuple(
        f"entry {one.position} overspends the guarantees: {one.why}" for one in found))


def random_schedule(words: str, ground: PlanningContext) -> PlannedSchedule:
    """What the nemeses of these words (`crash,cut`, all, none) do on this ground."""
    asked = catalog.nemeses(words, ground.cluster)
    named = catalog.named(words)
    remarks = []
    names = tuple(name for name in asked if name not in ground.not_struck)
    for name in asked:
        if name in ground.not_struck:
            if name in named:
                raise UsageError(f"--nemesis {name} cannot strike here: {ground.not_struck[name]}")
            remarks.append(f"{name} is left out: {ground.not_struck[name]}")
    if CUT in names and not _can_cut(ground):
        if CUT in named:
            raise UsageError("--nemesis cut needs links that can be cut: leave out --links direct, "
                             "or leave out cut")
        remarks.append("cut is left out: direct links cannot be cut (--links proxied can)")
        names = tuple(name for name in names if name != CUT)
    if "power" in names and ground.min_insync_replicas < 2 and not (
            ground.overspend or ground.flush_every):
        remarks.append("power is left out: with min.insync.replicas=1 an ack may rest on the one copy that "
                       "loses power, which the budget does not allow (--overspend does)")
        names = tuple(name for name in names if name != "power")
    if MOMENTS in names and not ground.trace:
        if MOMENTS in named:
            raise UsageError(f"--nemesis {MOMENTS} arms failpoints, and {UNTRACED}, or leave out {MOMENTS}")
        remarks.append(f"{MOMENTS} is left out: it arms failpoints, and {UNTRACED}")
        names = tuple(name for name in names if name != MOMENTS)
    schedule = catalog.plan(
        names, seed=ground.seed, nodes=ground.nodes, partitions=ground.partitions,
        duration_s=ground.duration_s, interval_s=ground.interval_s, overspend=ground.overspend,
        session_s=ground.session_s, links_cut=_can_cut(ground), flush_every=ground.flush_every)
    if set(names) - {*catalog.own_names(NEMESIS)} and not ground.overspend:
        for one in catalog.overspends(
                schedule, min_insync_replicas=ground.min_insync_replicas,
                flush_every=ground.flush_every):
            raise UsageError(f"--nemesis {words} plans more harm than the guarantees tolerate, and nobody "
                             f"asked for --overspend: {one.why}")
    unstruck = None
    if asked and all(entry.f in ACTS for entry in schedule):
        unstruck = f"--nemesis {words}: {_why_nothing(names, remarks, ground)}"
    return PlannedSchedule(schedule=schedule, remarks=tuple(remarks), unstruck=unstruck)


def refuse_cuts(schedule: Schedule, cluster: str, links: str) -> None:
    """UsageError where a schedule cuts what cannot be cut."""
    if links != DIRECT or cluster in catalog.ALWAYS_CUT:
        return
    cuts = [position for position, entry in enumerate(schedule) if entry.f == CUT]
    if cuts:
        raise UsageError(f"entry {cuts[0]} of the schedule is a cut, and direct links cannot be cut: "
                         "use --links proxied, or leave --links out")


def refuse_untraced(schedule: Schedule) -> None:
    """UsageError where a schedule arms failpoints. Without a trace a broker that ended at one has taken with
    it what it met, and another end by SIGKILL would be taken for the armed one."""
    armed = [position for position, entry in enumerate(schedule) if entry.f == "arm"]
    if armed:
        raise UsageError(f"entry {armed[0]} of the schedule arms a failpoint, and {UNTRACED}")


def _can_cut(ground: PlanningContext) -> bool:
    return ground.links != DIRECT or ground.cluster in catalog.ALWAYS_CUT


def _why_nothing(names: Sequence[str], remarks: Sequence[str], ground: PlanningContext) -> str:
    if not names:
        return "; ".join(remarks)
    return (f"a run of {ground.duration_s:g} s has no room for it, for the first act comes after 1 to 2 s "
            "and what it breaks is mended 1 s before the end: give it a longer --duration")
