"""Carries out a schedule: waits for each entry's moment, resolves who is meant, strikes, records what it did.

Rules
1. Entries go one after the other. One whose moment does not come is missed: it strikes not, the next goes
   on. One that mends (start, resume, heal, release) is carried out all the same, or the harm would outlast
   its plan.
2. Every strike that began is recorded, when it took effect or when it failed: a judge must know of every
   fault, above all of one that may have lost data. So is the death of a node by an armed crash, as a kill, as
   soon as it is noticed: between two strikes, and before the moment is taken for reached that it fulfils.
   Where a node has died by itself, what cannot be done any more is missed, and the schedule goes on.
3. Between a moment and its act there is no look at the cluster that is not needed (target_resolution.py).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS, MENDING, loses
from floodmark.harness.protocols import Nemesis, PartitionSpec, Recording, Sender, Sight, Struck
from floodmark.harness.schedule.entry import ACTS, Entry, Schedule
from floodmark.nemesis.active_faults import ActiveFaults
from floodmark.nemesis.compose import Composed
from floodmark.nemesis.failpoint import death
from floodmark.nemesis.missed_moments import Miss, miss_of_moment, miss_of_role
from floodmark.nemesis.moment_watch import POLL_S, Watch, reach
from floodmark.nemesis.refusals import Limits, refuse_schedule
from floodmark.nemesis.roles import Stage
from floodmark.nemesis.scripted_ops import Scripted
from floodmark.nemesis.target_resolution import ResolvedEntry, asked_moment, resolve_targets, strike_state


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunContext:
    """What a run lends to the schedule runner."""

    sight: Sight
    recording: Recording
    scripted: Scripted


class ScheduleRunner:
    """protocols.ScheduleRunner over these nemeses."""

    def __init__(self, nemeses: Sequence[Nemesis], partitions: Sequence[PartitionSpec],
                 limits: Limits | None = None) -> None:
        self._nemesis = Composed(nemeses)
        able = ", ".join(sorted(self._nemesis.answers)) or "nothing"
        self._limits = limits or Limits(
            faults=dict.fromkeys(frozenset(FAULTS) - self._nemesis.answers, f"it can suffer {able}"))
        self._replicas = {spec.key: spec.replicas for spec in partitions}
        self._ledger = ActiveFaults()
        self._striking = False
        self._deaths = 0  # by armed crashes, recorded so far
        self._started_ns: dict[str, int] = {}  # when each node's last start began
        self._misses: dict[int, Miss] = {}  # by position in the schedule

    def missed_words(self) -> Mapping[int, Mapping[str, Any]]:
        return {position: miss.told() for position, miss in self._misses.items()}

    def in_force(self) -> tuple[str, ...]:
        return self._ledger.told()

    def mended(self) -> None:
        """The cluster was mended from outside: nothing is in force any more."""
        self._ledger = ActiveFaults()

    def refuse(self, schedule: Schedule) -> None:
        """UsageError for an entry that this cluster cannot carry out."""
        refuse_schedule(schedule, self._limits)

    async def carry_out(self, schedule: Schedule, sight: Sight, recording: Recording,
                        send: Sender) -> tuple[int, ...]:
        self.refuse(schedule)
        self._ledger, self._started_ns, self._deaths = ActiveFaults(), {}, len(sight.crashes())
        around = _RunContext(sight=sight, recording=recording, scripted=Scripted(send))
        watching = asyncio.create_task(self._notice_deaths(around), name="deaths by armed crashes")
        self._misses = {}
        done_ns = sight.now_ns()
        try:
            for position, entry in enumerate(schedule):
                try:
                    miss = await self._carry_out(entry, around, done_ns)
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
            await around.scripted.drain()
            if watching.done():
                watching.result()
            return tuple(self._misses)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            await around.scripted.end()
            if watching.cancelled():  # else the history can no longer be written, as its owner says
                self._record_deaths(around)

    async def _carry_out(self, entry: Entry, around: _RunContext, done_ns: int) -> Miss | None:
        """What was missed: its moment, or whoever it means; None: nothing."""
        watch = Watch(sight=around.sight, stage=self._stage, timeout_s=entry.timeout_s, done_ns=done_ns)
        reached = await reach(entry.moment, watch)
        miss = None
        if reached is None:
            miss = await miss_of_moment(entry, watch.stuck[-1], around.sight, self._stage())
        self._record_deaths(around)
        if entry.f == "wait" or (miss is not None and entry.f not in MENDING):
            return miss
        aimed = await resolve_targets(entry, reached, around.sight, self._stage)
        if aimed is None:
            return miss or await miss_of_role(entry, around.sight, self._stage())
        if entry.f in ACTS:
            await around.scripted.ask(aimed.entry)
        elif aimed.nodes or not entry.nodes:
            await self._strike(aimed, around)
        return miss

    def _stage(self) -> Stage:
        return Stage(replicas=self._replicas, ledger=self._ledger)

    async def _strike(self, aimed: ResolvedEntry, around: _RunContext) -> None:
        """The act and its line in the history, which is written even if the act fails half-way."""
        self._record_deaths(around)
        began = around.recording.now_ns()
        struck_at = strike_state(aimed, around.sight, self._replicas)
        struck = Struck(nodes=aimed.nodes)
        failed: dict[str, Any] = {}
        self._striking = True
        try:
            struck = await self._nemesis.strike(aimed.entry, aimed.nodes)
        except BaseException as error:
            failed = {"error": str(error) or type(error).__name__}
            raise
        finally:
            self._striking = False
            f, args = aimed.entry.f, aimed.entry.args
            on = struck.nodes or aimed.nodes
            named = [args.get("kind", " ".join(on))] if f in ("cut", "packet") else on
            self._ledger = self._ledger.after(f, named, point=args.get("point"), began_ns=began)
            if f == "start":
                self._started_ns |= dict.fromkeys(on, began)
            fault = {"nodes": list(on), **args, **struck.detail, **asked_moment(aimed), "began": began,
                     **struck_at, **failed}
            around.recording.strike(f, {**fault, "lost": True} if loses(f, args) else fault)

    # -- deaths by armed crashes ----------------------------------------------------------------------------

    async def _notice_deaths(self, around: _RunContext) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if not self._striking:  # a strike has its line first
                self._record_deaths(around)

    def _record_deaths(self, around: _RunContext) -> None:
        """A kill for each new one. One that a start has undone since is recorded, and not in force."""
        crashes = around.sight.crashes()
        for position, crash in enumerate(crashes[self._deaths:], start=self._deaths):
            count = sum((one.node, one.name) == (crash.node, crash.name) for one in crashes[: position + 1])
            around.recording.strike("kill", death(crash, around.sight.now_ns(), count))
            if crash.time_ns >= self._started_ns.get(crash.node, 0):
                self._ledger = self._ledger.after("kill", [crash.node])
        self._deaths = len(crashes)
