"""Loads the nemeses of other packages (entry points), checks the fault patterns that they generate, and
builds the code that injects them.

harness/protocols.py, RegisteredNemesis, defines what one must be.

Rules
1. An invalid nemesis is refused with its name and distribution, before a run begins.
2. A pattern that injects one of floodmark's own faults also has the step that undoes it; otherwise the fault
   would outlast its plan, and the next pattern would strike on top of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.faults import FAULTS, registered_fault
from floodmark.harness.protocols import Cluster, Nemesis, RegisteredNemesis, ability, why_not
from floodmark.harness.registered import NEMESIS, Registered, owner_of_fault, registered_as
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import ACTS, Entry, Schedule
from floodmark.harness.schedule.patterns import DrawPattern, FaultPattern, PatternScope

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
    missing = sorted({fault.f for fault in loaded.faults} ^ set(made.answers))
    if missing:
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
        unknown = sorted(set(step.nodes) - set(scope.nodes))
        if unknown:
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
