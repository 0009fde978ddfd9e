"""Waits for the moments of a schedule, on the event loop.

Each kind of moment says itself what it waits for (harness/schedule/moments.py). The time-out of an entry
applies to all of a sequence together, without the parts that always come.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.harness.schedule.moments import Failpoint, Moment, Reached, describe_met, reached_now
from floodmark.harness.schedule.roles import Stage
from floodmark.harness.schedule.views import Met, Sight

NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Implements harness.schedule.moments.Watch. `stage` returns the current assignment and faults."""

    sight: Sight
    stage: Callable[[], Stage]
    timeout_s: float
    done_ns: int  # when the entry before, or the moment before in a sequence, was done
    stuck: list[Moment] = field(default_factory=list)  # the single moment that is awaited now

    async def wait_for(self, moment: Moment | None) -> Reached | None:
        """Wait until the moment comes (None: at once); None: it did not within the time-out."""
        if moment is None:
            return reached_now(self.sight)
        self.stuck[:] = [moment]
        reached = await moment.arrive(self)
        if reached is None or moment.then_ns is None:
            return reached
        now_ns = await self._sleep_until(reached.came_ns + moment.then_ns)
        later = {**reached.detail, "then_ns": now_ns - reached.came_ns}
        return replace(reached, came_ns=now_ns, detail=later, view=None)  # the view is outdated by now

    async def until(self, due_ns: int) -> Reached:
        now_ns = await self._sleep_until(due_ns)
        return Reached(time_ns=now_ns, came_ns=due_ns, detail={"asked": due_ns, "late_ns": now_ns - due_ns})

    async def _sleep_until(self, due_ns: int) -> int:
        """Sleep until this time of the run; returns the time then."""
        while (left_ns := due_ns - self.sight.now_ns()) > 0:
            await asyncio.sleep(left_ns / NS)
        return self.sight.now_ns()

    async def look_for(self, moment: Moment) -> Reached | None:
        deadline_ns = self.sight.now_ns() + int(self.timeout_s * NS)
        while True:
            reached = await moment.look(self.sight, self.stage)
            left_ns = deadline_ns - self.sight.now_ns()
            if reached is not None or left_ns <= 0:
                return reached
            if moment.woken_by_acks:
                await self.sight.ack_or(left_ns / NS)
            else:
                await asyncio.sleep(moment.looks_every_s)

    async def all_in_turn(self, moments: Sequence[Moment]) -> Reached | None:
        details: list[dict[str, Any]] = []
        reached, watch = None, self
        for part in moments:
            began_ns = self.sight.now_ns()
            reached = await watch.wait_for(part)
            if reached is None:
                return None
            now_ns = self.sight.now_ns()
            spent_s = 0.0 if part.always_comes else (now_ns - began_ns) / NS
            watch = replace(watch, done_ns=now_ns, timeout_s=max(0.0, watch.timeout_s - spent_s))
            details.append(reached.describe())
        assert reached is not None, "a sequence has at least one moment"
        return replace(reached, detail={"of": details})

    async def first_of(self, moments: Sequence[Moment]) -> Reached | None:
        """Wait for what comes first, and cancel the others. Of several at once the first listed."""
        parts = [asyncio.create_task(replace(self, stuck=[]).wait_for(one)) for one in moments]
        try:
            pending = set(parts)
            while pending:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                came = next((index for index, one in enumerate(parts) if one.done() and one.result()), None)
                if came is not None:
                    reached = parts[came].result()
                    assert reached is not None
                    return replace(reached, detail={**reached.detail, "first": came})
            return None
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)


def describe_death(crash: Met, noticed_ns: int, count: int) -> Mapping[str, Any]:
    """Build the `fault` of a kill that no entry struck: the node reached a point that was armed to crash it.
    The kill began when the point was reached, and was noticed later. count: which of its deaths at that point
    it is. Or (action None) the node ended because of a fault in force, which `why` names."""
    if crash.action is None:
        return {"nodes": [crash.node], "why": crash.name, "reached": {"time": noticed_ns},
                "began": crash.time_ns}
    return {
        "nodes": [crash.node],
        "moment": Failpoint(node=crash.node, name=crash.name, partition=crash.partition).to_json(),
        "reached": {"time": noticed_ns, **describe_met(crash, count)},
        "began": crash.time_ns,
    }
