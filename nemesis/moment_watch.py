"""Waits for the moments of a schedule, on the event loop; explains one that did not come: what the run waited
for, what it saw instead, and likely reasons.

Rules
1. Each kind of moment says itself what it waits for (harness/schedule/moments.py). The time-out of an entry
   applies to all of a sequence together, without the parts that always come.
2. The explanation shows one view of the cluster, taken at the end of the wait.
3. A likely reason is given only if the view fits it, with the step that would help. Several may fit; if none
   does, no reason is given.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.moments import Ack, FirstOf, InTurn, Moment, Reached, WhenState, reached_now
from floodmark.harness.schedule.stage import Stage
from floodmark.harness.schedule.states import Condition, Healthy, Observation
from floodmark.harness.schedule.views import UNKNOWN, Met, PartitionView, ReplicaView, Sight, View

PARTITIONS_MAX = 4  # shown for a moment that names none
_OF_COMMITTING = {"hw", "checkpointed_hw", "isr"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Waits. `stage` returns the current assignment and faults."""

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
        due_ns = moment.due_ns(self.done_ns)
        if due_ns is not None:
            now_ns = await self._sleep_until(due_ns)
            late = {"asked": due_ns, "late_ns": now_ns - due_ns}
            reached: Reached | None = Reached(time_ns=now_ns, came_ns=due_ns, detail=late)
        elif isinstance(moment, InTurn):
            reached = await self._all_in_turn(moment.of)
        else:
            reached = await (self._first_of(moment.of) if isinstance(moment, FirstOf)
                             else self._look_for(moment))
        if reached is None or moment.then_ns is None:
            return reached
        now_ns = await self._sleep_until(reached.came_ns + moment.then_ns)
        later = {**reached.detail, "then_ns": now_ns - reached.came_ns}
        return replace(reached, came_ns=now_ns, detail=later, view=None)  # the view is outdated by now

    async def _sleep_until(self, due_ns: int) -> int:
        """Sleep until this time of the run; returns the time then."""
        while (left_ns := due_ns - self.sight.now_ns()) > 0:
            await asyncio.sleep(left_ns / 1e9)
        return self.sight.now_ns()

    async def _look_for(self, moment: Moment) -> Reached | None:
        deadline_ns = self.sight.now_ns() + int(self.timeout_s * 1e9)
        while True:
            reached = await moment.look(self.sight, self.stage)
            left_ns = deadline_ns - self.sight.now_ns()
            if reached is not None or left_ns <= 0:
                return reached
            if moment.woken_by_acks:
                await self.sight.ack_or(left_ns / 1e9)
            else:
                await asyncio.sleep(moment.looks_every_s)

    async def _all_in_turn(self, moments: Sequence[Moment]) -> Reached | None:
        details: list[dict[str, Any]] = []
        reached, watch = None, self
        for part in moments:
            began_ns = self.sight.now_ns()
            reached = await watch.wait_for(part)
            if reached is None:
                return None
            now_ns = self.sight.now_ns()
            spent_s = 0.0 if part.due_ns(0) is not None else (now_ns - began_ns) / 1e9
            watch = replace(watch, done_ns=now_ns, timeout_s=max(0.0, watch.timeout_s - spent_s))
            details.append(reached.describe())
        assert reached is not None, "a sequence has at least one moment"
        return replace(reached, detail={"of": details})

    async def _first_of(self, moments: Sequence[Moment]) -> Reached | None:
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


# -- a moment that did not come -----------------------------------------------------------------------------


Miss = Mapping[str, Any]  # in sentences, as in run.json's `missed_words`: waited_for, seen, likely


async def explain(entry: Entry, stuck: Moment | None, sight: Sight, stage: Stage) -> Miss:
    """Explain that `stuck`, a moment or part of one, did not come; None: no node had the entry's role."""
    limit, of = f" ({entry.timeout_s:g} s)", entry.partition
    if stuck is None:
        asked = f"a node that is {', '.join(entry.nodes) or 'meant'} of partition {of}{limit}"
        leader = Observation(field="leader", partition=of)
        stuck = WhenState(state=Condition(seen=leader, how="!=", value=None))
    else:
        whole = f", in {entry.moment.text()}" if isinstance(entry.moment, InTurn) else ""
        asked = f"{stuck.text()}{limit}{whole}"
    try:
        view = await sight.view()
        held = [met for node in sorted({armed.node for armed in stage.faults.armed})
                for met in [one for one in await sight.met(node) if one.held][-1:]]
    except FloodmarkError as error:
        return {"waited_for": asked, "seen": [f"the cluster could not be observed: {error}"], "likely": []}
    keys = sorted(stuck.partitions() & stage.replicas.keys()) or sorted(stage.replicas)[:PARTITIONS_MAX]
    seen = [line for key in keys for line in describe_partition(key, view, stage, acks=sight.acks(key))]
    likely = dict.fromkeys(guess_reasons(stuck, keys, view, stage, held))
    return {"waited_for": asked, "seen": seen, "likely": list(likely)}


# -- what was seen: pure -------------------------------------------------------------------------------------


def describe_partition(partition: int, view: View, stage: Stage, *, acks: int) -> Iterator[str]:
    """Describe a partition as the controller sees it, then as each replica does."""
    truth = view.partitions.get(partition)
    if truth is None:
        yield f"partition {partition}: unknown to the controller; {acks} records acked"
    else:
        yield (f"partition {partition}: leader {truth.leader or 'nobody'}, epoch {truth.epoch}, "
               f"ISR {', '.join(truth.isr) or 'empty'}; {acks} record{'s' * (acks != 1)} acked")
    for node in stage.replicas.get(partition, ()):
        words = describe_node(node, view, stage)
        if (node, partition) in view.replicas:
            words.append(_describe_replica(view.replicas[node, partition]))
        yield f"  {node}: {'; '.join(words) or 'no answer'}"


def describe_node(node: str, view: View, stage: Stage) -> list[str]:
    """`down`, `paused`, `fenced`; nothing where it is up and unfenced."""
    unfenced = node in view.unfenced
    if node not in stage.faults.paused and node in view.running:
        return [] if unfenced else ["fenced"]
    word = "paused" if node in stage.faults.paused else "down"
    return [f"{word}, its session not ended" if unfenced else f"{word}, fenced"]


def _describe_replica(own: ReplicaView) -> str:
    role = "leads" if own.leader == own.node else f"follows {own.leader}" if own.leader else "has no leader"
    words = [] if own.leader is UNKNOWN else [
        role if own.epoch is UNKNOWN else f"{role} in epoch {own.epoch}"]
    words += [f"{word} {value}" for word, value in (("LEO", own.leo), ("HW", own.hw)) if value is not UNKNOWN]
    if own.epochs is not UNKNOWN and own.epochs is not None:
        starts = own.epochs if isinstance(own.epochs, str) else ", ".join(
            f"{epoch} from {start}" for epoch, start in own.epochs)
        words.append(f"epochs {starts or 'none'}")
    return ", ".join(words) or "its system shows nothing of it"


# -- why: pure -----------------------------------------------------------------------------------------------


def guess_reasons(moment: Moment, keys: Sequence[int], view: View, stage: Stage, held: Sequence[Met]
                  ) -> Iterator[str]:
    """Guess reasons from the view, each with the step that would help. held: nodes that stand at a point."""
    for met in held:
        yield f"{met.node} is held at {met.name}: `release {met.node}` releases it"
    parts = list(moment.parts())
    for part in parts:
        yield from part.reasons(stage)
    observed = [condition.seen for part in parts for condition in part.conditions()]
    fields = {one.field for one in observed}
    for truth in (view.partitions[key] for key in keys if key in view.partitions):
        yield from _guess_from_partition(
            truth, view, stage, of_isr="isr" in fields,
            committing=isinstance(moment, Ack) or bool(fields & _OF_COMMITTING))
    for node in (node for part in parts for node in part.nodes(view, stage)):
        # One that is down or paused shows no replica, so no condition on it can be met.
        if node in stage.faults.paused:
            yield f"{node} is paused and does not answer: `resume {node}`"
        elif node not in view.running:
            yield f"{node} is down and does not answer: `start {node}`"
    for name in sorted({one.field for one in observed if one.needs_answer}):
        if any(getattr(own, name) is UNKNOWN for own in view.replicas.values()):
            yield f"this system does not show the {name} of a replica"
    if (isinstance(moment, WhenState) and isinstance(moment.state, Healthy)
            and not moment.state.holds(view, stage)):
        for f, on in stage.faults.lasting:
            undo = FAULTS[f].undone_by or ""
            yield f"{f} {on} is in force: `{undo if undo == 'heal' else f'{undo} {on}'}`"
    elif stage.faults.cut:
        yield "links are cut: messages over them wait for `heal`"


def _guess_from_partition(
    truth: PartitionView, view: View, stage: Stage, *, committing: bool, of_isr: bool
) -> Iterator[str]:
    key, leader = truth.partition, truth.leader
    if leader is None:
        yield (f"nobody leads partition {key}, because no member of its ISR ({', '.join(truth.isr)}) is "
               f"alive and unfenced: `start {truth.isr[0] if truth.isr else 'down'}`, or "
               "`elect NODE unclean`")
        return
    word = "paused" if leader in stage.faults.paused else "down"
    unavailable = word == "paused" or leader not in view.running
    if unavailable and leader in view.unfenced:
        yield (f"{leader} is {word} and still leads partition {key}: a leader is replaced when its session "
               f"ends, and this one's has not: `expire {leader}`")
        return
    for node in truth.isr if committing else ():
        if node != leader and node in view.unfenced and (
                node in stage.faults.paused or node not in view.running):
            state = "paused" if node in stage.faults.paused else "down"
            yield (f"{node} is {state} and still in the ISR, so the high watermark waits for it: "
                   f"`expire {node}` removes it")
    if committing and len(truth.isr) == 1 and len(stage.replicas.get(key, ())) > 1:
        yield (f"the ISR of partition {key} is {leader} alone: if min.insync.replicas is above 1 nothing is "
               "committed or acked")
    if of_isr and stage.faults.cut:
        yield ("a live follower that is cut off leaves the ISR after replica.lag.time.max.ms (60 s in a "
               "scenario whose [config] does not set it)")
