"""Carries out a schedule: waits for each entry's moment, resolves its roles, strikes, and records the strike.

Rules
1. Entries are carried out one after the other. One whose moment does not come is missed: it does not strike,
   and the next one follows. One that mends (start, resume, heal, release) is carried out anyway, otherwise
   the harm would outlast its plan.
2. Every strike that began is recorded, whether it took effect or failed: a judge must know of every fault,
   above all of one that may have lost data. The death of a node by an armed crash is recorded as a kill as
   soon as it is noticed: between two strikes, and before its moment counts as reached. If a node has died by
   itself, entries that are then impossible are missed, and the schedule continues.
3. After a cluster without any fault in force did not become healthy in the time of an entry, later entries
   wait at most UNHEALTHY_S for that, until it is healthy again: a broken cluster does not prolong its run.
4. Between a moment and its act the cluster is observed only where that is needed (target_resolution.py).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS, MENDING, OF_LINKS, loses
from floodmark.harness.protocols import Nemesis, PartitionSpec, Recording, Sender, Struck
from floodmark.harness.schedule.active_faults import ActiveFaults
from floodmark.harness.schedule.entry import ACTS, Entry, Schedule
from floodmark.harness.schedule.moments import HEALTHY, POLL_S
from floodmark.harness.schedule.roles import Stage
from floodmark.harness.schedule.views import Sight
from floodmark.nemesis.missed_moments import Miss, explain_missed_moment, explain_missing_role
from floodmark.nemesis.moment_watch import Watch, describe_death
from floodmark.nemesis.refusals import Limits, refuse_schedule
from floodmark.nemesis.scripted_ops import Scripted
from floodmark.nemesis.strikes import Composed
from floodmark.nemesis.target_resolution import (
    ResolvedEntry,
    describe_moment,
    describe_strike_state,
    resolve_targets,
)

UNHEALTHY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunContext:
    """The run's objects that the schedule runner uses."""

    sight: Sight
    recording: Recording
    scripted: Scripted


class ScheduleRunner:
    """Implements protocols.ScheduleRunner with these nemeses."""

    def __init__(self, nemeses: Sequence[Nemesis], partitions: Sequence[PartitionSpec],
                 limits: Limits | None = None, *, besides: Sequence[str] = ()) -> None:
        """besides: nodes that must be up in a healthy cluster, though they may have no replica."""
        self._nemesis = Composed(nemeses)
        able = ", ".join(sorted(self._nemesis.answers)) or "nothing"
        self._limits = limits or Limits(
            faults=dict.fromkeys(frozenset(FAULTS) - self._nemesis.answers, f"it can suffer {able}"))
        self._besides = tuple(besides)
        self.assign(partitions)
        self._ledger = ActiveFaults()
        self._striking = False
        self._stays_unhealthy = False
        self._deaths = 0  # by armed crashes, recorded so far
        self._started_ns: dict[str, int] = {}  # when each node's last start began
        self._misses: dict[int, Miss] = {}  # by position in the schedule

    def assign(self, partitions: Sequence[PartitionSpec]) -> None:
        """From now on the cluster has these partitions."""
        self._replicas = {spec.key: spec.replicas for spec in partitions}

    def missed_words(self) -> Mapping[int, Mapping[str, Any]]:
        return {position: miss.to_json() for position, miss in self._misses.items()}

    def in_force(self) -> tuple[str, ...]:
        return self._ledger.describe()

    def mended(self) -> None:
        """Forget every fault: the run has mended the cluster."""
        self._ledger = ActiveFaults()

    def refuse(self, schedule: Schedule) -> None:
        """UsageError for an entry that this cluster cannot carry out."""
        refuse_schedule(schedule, self._limits)

    async def carry_out(self, schedule: Schedule, sight: Sight, recording: Recording,
                        send: Sender) -> tuple[int, ...]:
        self.refuse(schedule)
        self._ledger, self._started_ns, self._deaths = ActiveFaults(), {}, len(sight.crashes())
        self._stays_unhealthy = False
        context = _RunContext(sight=sight, recording=recording, scripted=Scripted(send))
        death_watch = asyncio.create_task(self._notice_deaths(context), name="deaths by armed crashes")
        self._misses = {}
        done_ns = sight.now_ns()
        try:
            for position, entry in enumerate(schedule):
                try:
                    miss = await self._carry_out(entry, context, done_ns)
                except FloodmarkError as error:
                    if sight.died():
                        words = f"{', '.join(sight.died())} ended without being asked to"
                        miss = Miss(waited_for="it could not be carried out", seen=(str(error), words))
                    else:
                        on = f" {' '.join(entry.nodes)}" if entry.nodes else ""
                        raise FloodmarkError(
                            f"entry {position} of the schedule ({entry.f}{on}): {error}") from error
                if miss is not None:
                    self._misses[position] = miss
                done_ns = sight.now_ns()
            await context.scripted.drain()
            if death_watch.done():
                death_watch.result()
            return tuple(self._misses)
        finally:
            death_watch.cancel()
            await asyncio.wait([death_watch])
            await context.scripted.cancel_open()
            if death_watch.cancelled():  # otherwise the history can no longer be written, as its owner says
                self._record_deaths(context)

    async def _carry_out(self, entry: Entry, context: _RunContext, done_ns: int) -> Miss | None:
        """Carry out one entry; returns what was missed, its moment or its role, if anything was."""
        if self._stays_unhealthy and entry.moment == HEALTHY:
            entry = replace(entry, timeout_s=min(entry.timeout_s, UNHEALTHY_S))
        watch = Watch(
            sight=context.sight, stage=self._current_stage, timeout_s=entry.timeout_s, done_ns=done_ns
        )
        reached = await watch.wait_for(entry.moment)
        if entry.moment == HEALTHY:
            self._stays_unhealthy = reached is None and not self._ledger.lasting
        miss = None
        if reached is None:
            miss = await explain_missed_moment(entry, watch.stuck[-1], context.sight, self._current_stage())
        self._record_deaths(context)
        if entry.f == "wait" or (miss is not None and entry.f not in MENDING):
            return miss
        resolved = await resolve_targets(entry, reached, context.sight, self._current_stage)
        if resolved is None:
            return miss or await explain_missing_role(entry, context.sight, self._current_stage())
        if entry.f in ACTS:
            await context.scripted.run_op(resolved.entry)
        elif resolved.nodes or not entry.nodes:
            await self._strike(resolved, context)
        return miss

    def _current_stage(self) -> Stage:
        return Stage(replicas=self._replicas, ledger=self._ledger, besides=self._besides)

    async def _strike(self, resolved: ResolvedEntry, context: _RunContext) -> None:
        """Strike, and write the line in the history, even if the strike fails half-way."""
        self._record_deaths(context)
        began = context.recording.now_ns()
        struck_at = describe_strike_state(resolved, context.sight, self._replicas)
        struck = Struck(nodes=resolved.nodes)
        failed: dict[str, Any] = {}
        self._striking = True
        try:
            struck = await self._nemesis.strike(resolved.entry, resolved.nodes)
        except BaseException as error:
            failed = {"error": str(error) or type(error).__name__}
            raise
        finally:
            self._striking = False
            f, args = resolved.entry.f, resolved.entry.args
            on = struck.nodes or resolved.nodes
            named = [args.get("kind", " ".join(on))] if f in OF_LINKS else on
            self._ledger = self._ledger.after(f, named, point=args.get("point"), began_ns=began)
            if f == "start":
                self._started_ns |= dict.fromkeys(on, began)
            fault = {"nodes": list(on), **args, **struck.detail, **describe_moment(resolved), "began": began,
                     **struck_at, **failed}
            context.recording.strike(f, {**fault, "lost": True} if loses(f, args) else fault)

    # -- deaths by armed crashes ----------------------------------------------------------------------------

    async def _notice_deaths(self, context: _RunContext) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if not self._striking:  # a strike writes its line first
                self._record_deaths(context)

    def _record_deaths(self, context: _RunContext) -> None:
        """Record a kill for each new death. If a start has undone it since, it is recorded, but not in
        force."""
        crashes = context.sight.crashes()
        for position, crash in enumerate(crashes[self._deaths:], start=self._deaths):
            count = sum((one.node, one.name) == (crash.node, crash.name) for one in crashes[: position + 1])
            context.recording.strike("kill", describe_death(crash, context.sight.now_ns(), count))
            if crash.time_ns >= self._started_ns.get(crash.node, 0):
                self._ledger = self._ledger.after("kill", [crash.node])
        self._deaths = len(crashes)
