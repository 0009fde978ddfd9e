"""Carries out a nemesis on a cluster that is up, beside the requests of other terminals.

Rules
1. The schedule is carried out by the runner of schedules of every run; its strikes are made by the cluster's
   server, so that its state shows them.
2. A fault that could not be applied, and a moment that did not come, end it: nothing strikes after that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome
from floodmark.harness.protocols import Adopts, Cluster, PartitionSpec, Struck, ability
from floodmark.harness.reports.schedule_outcome import missed_moment_text
from floodmark.harness.schedule.entry import Entry, Schedule
from floodmark.harness.schedule.views import Met, View
from floodmark.nemesis.schedule_runner import ScheduleRunner
from floodmark.nemesis.strikes import Strikes, limits_of

HISTORY = "nemesis.jsonl"  # in the cluster's folder "work": the strikes, as in a run's history


class ServedNemesis:
    """Implements protocols.Nemesis and Sight for a cluster that is up. act: carries out a fault."""

    def __init__(self, cluster: Cluster, folder: Path, act: Callable[[Entry], Awaitable[str]]) -> None:
        self.struck: list[str] = []  # a line for each strike so far
        self.failure: str | None = None
        self.answers = Strikes(cluster).answers
        self._cluster, self._act = cluster, act
        self._recorder = Recorder(folder / "work" / HISTORY)
        self._runner = ScheduleRunner((self,), (), limits_of(cluster), besides=cluster.nodes)
        self._work: asyncio.Task[None] | None = None

    def begin(self, schedule: Schedule) -> None:
        """UsageError if the cluster cannot carry out the schedule."""
        self._runner.refuse(schedule)
        self._recorder.begin()
        self._work = asyncio.create_task(self._carry_out(schedule))

    async def end(self) -> None:
        """Ends it. A strike under way goes on, and the server answers no other request before it has ended.
        Safe to call twice."""
        if self._work is not None:
            self._work.cancel()
            with suppress(asyncio.CancelledError):
                await self._work
            self._work = None
            self._recorder.close()

    async def _carry_out(self, schedule: Schedule) -> None:
        try:
            await self._runner.carry_out(schedule, self, self._recorder, _refuse_to_send)
        except FloodmarkError as error:
            self.failure = str(error)
        except Exception as error:  # the test fails by it, which must not pass without faults
            self.failure = f"{type(error).__name__}: {error}"

    # -- Nemesis --------------------------------------------------------------------------------------------

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        for reasons in self._runner.missed_words().values():
            why = "\n".join(missed_moment_text(reasons, indent=2))
            raise FloodmarkError(f"the nemesis stopped after {len(self.struck)} strikes, a moment did not "
                                 f"come:\n{why}")
        await asyncio.shield(self._act(replace(entry, nodes=nodes)))
        self.struck.append(f"{self.now_ns() / 1e9:.3f} s {' '.join((entry.f, *nodes))}")
        return Struck(nodes=nodes)

    # -- Sight ----------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._recorder.now_ns()

    def acks(self, partition: int) -> int:
        return self._recorder.acks(partition)

    async def ack_or(self, timeout_s: float) -> None:
        await self._recorder.ack_or(timeout_s)

    def acks_given(self, partition: int, leader: str) -> int:
        raise FloodmarkError("the acks of a cluster that is up are unknown")

    async def view(self) -> View:
        """What is seen now; healthy is what has the partitions that are there now."""
        adopts = ability(self._cluster, Adopts)
        if adopts is not None:
            await adopts.adopt()
        view = await self._cluster.observe()
        self._runner.assign(partitions_in(view, self._cluster))
        return view

    async def met(self, node: str) -> Sequence[Met]:
        return ()

    def crashes(self) -> Sequence[Met]:
        return ()

    def died(self) -> Sequence[str]:
        return tuple(self._cluster.died())


def partitions_in(view: View, cluster: Cluster) -> list[PartitionSpec]:
    """The partitions whose topics were not deleted."""
    return [spec for spec in cluster.partitions if spec.key in view.partitions or not view.unfenced]


async def _refuse_to_send(_: Intent) -> Outcome:
    raise FloodmarkError("a nemesis of a cluster that is up sends nothing")
