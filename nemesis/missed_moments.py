"""Explains a moment that did not come: what the run waited for, what it saw instead, and likely reasons.

Rules
1. The explanation shows one view of the cluster, taken at the end of the wait.
2. A likely reason is given only if the view fits it, with the step that would help. Several may fit; if none
   does, no reason is given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.moments import InTurn, Moment, WhenState
from floodmark.harness.schedule.roles import Stage
from floodmark.harness.schedule.states import Condition, Healthy, Observation
from floodmark.harness.schedule.views import UNKNOWN, Met, PartitionView, ReplicaView, Sight, View

PARTITIONS_MAX = 4  # shown for a moment that names none
_OF_COMMITTING = ("hw", "checkpointed_hw")


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """The explanation, in sentences. `likely` may be empty."""

    waited_for: str
    seen: tuple[str, ...]
    likely: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The explanation as in run.json's `missed_words`."""
        return {"waited_for": self.waited_for, "seen": list(self.seen), "likely": list(self.likely)}


async def explain_missed_moment(entry: Entry, stuck: Moment, sight: Sight, stage: Stage) -> Miss:
    """Explain that `stuck`, the moment or the part of a sequence, did not come."""
    moment = entry.moment or stuck
    asked = f"{stuck.text()} ({entry.timeout_s:g} s)"
    if isinstance(moment, InTurn):
        asked += f", in {moment.text()}"
    return await _explain(asked, stuck, sight, stage)


async def explain_missing_role(entry: Entry, sight: Sight, stage: Stage) -> Miss:
    """Explain that the moment came, but no node had the entry's role."""
    partition = entry.partition
    asked = f"a node that is {', '.join(entry.nodes) or 'meant'} of partition {partition}"
    leader = Observation(field="leader", partition=partition)
    leads = WhenState(state=Condition(seen=leader, how="!=", value=None))
    return await _explain(f"{asked} ({entry.timeout_s:g} s)", leads, sight, stage)


async def _explain(asked: str, moment: Moment, sight: Sight, stage: Stage) -> Miss:
    try:
        view = await sight.view()
        armed_nodes = sorted({armed.node for armed in stage.ledger.armed})
        held = {node: await _find_held(node, sight) for node in armed_nodes}
    except FloodmarkError as error:
        return Miss(waited_for=asked, seen=(f"the cluster could not be observed: {error}",))
    keys = sorted(moment.partitions() & stage.replicas.keys()) or sorted(stage.replicas)[:PARTITIONS_MAX]
    seen = [line for key in keys for line in describe_partition(key, view, stage, acks=sight.acks(key))]
    return Miss(waited_for=asked, seen=tuple(seen),
                likely=tuple(dict.fromkeys(guess_reasons(moment, keys, view, stage, held))))


async def _find_held(node: str, sight: Sight) -> tuple[Met, ...]:
    return tuple(met for met in await sight.met(node) if met.held)


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
        words = [word for word in (describe_node(node, view, stage),) if word]
        if (node, partition) in view.replicas:
            words.append(_describe_replica(view.replicas[node, partition]))
        yield f"  {node}: {'; '.join(words) or 'no answer'}"


def describe_node(node: str, view: View, stage: Stage) -> str:
    """Describe a node: `down`, `paused`, `fenced`; empty where it is up and unfenced."""
    if node in stage.ledger.paused:
        word = "paused"
    elif node not in view.running:
        word = "down"
    else:
        return "" if node in view.unfenced else "fenced"
    return f"{word}, its session not ended" if node in view.unfenced else f"{word}, fenced"


def _describe_replica(own: ReplicaView) -> str:
    """Describe a replica, as far as its system shows it."""
    role = "leads" if own.leader == own.node else f"follows {own.leader}" if own.leader else "has no leader"
    words = []
    if own.leader is not UNKNOWN:
        words.append(role if own.epoch is UNKNOWN else f"{role} in epoch {own.epoch}")
    words += [f"{word} {value}" for word, value in (("LEO", own.leo), ("HW", own.hw)) if value is not UNKNOWN]
    if own.epochs is not UNKNOWN and own.epochs is not None:
        starts = own.epochs if isinstance(own.epochs, str) else ", ".join(
            f"{epoch} from {start}" for epoch, start in own.epochs)
        words.append(f"epochs {starts or 'none'}")
    return ", ".join(words) or "its system shows nothing of it"


# -- why: pure -----------------------------------------------------------------------------------------------


def guess_reasons(moment: Moment, keys: list[int], view: View, stage: Stage,
           held: Mapping[str, tuple[Met, ...]]) -> Iterator[str]:
    """Guess reasons from the view, each with the step that would help."""
    for node, mets in held.items():
        if mets:
            yield f"{node} is held at {mets[-1].name}: `release {node}` releases it"
    parts = list(moment.parts())
    for part in parts:
        yield from part.reasons(stage)
    observed = [condition.seen for part in parts for condition in part.conditions()]
    for key in keys:
        truth = view.partitions.get(key)
        if truth is not None:
            fields = {one.field for one in observed}
            committing = moment.of_committing or bool(fields & {*_OF_COMMITTING, "isr"})
            yield from _guess_from_partition(truth, view, stage, committing=committing,
                                             of_isr="isr" in fields)
    for node in (node for part in parts for node in part.nodes(view, stage)):
        yield from _guess_from_node(node, view, stage)
    for name in sorted({one.field for one in observed if one.needs_answer}):
        if any(getattr(own, name) is UNKNOWN for own in view.replicas.values()):
            yield f"this system does not show the {name} of a replica"
    if (isinstance(moment, WhenState) and isinstance(moment.state, Healthy)
            and not moment.state.holds(view, stage)):
        for f, on in stage.ledger.lasting:
            undo = FAULTS[f].undone_by or ""
            yield f"{f} {on} is in force: `{undo if undo == 'heal' else f'{undo} {on}'}`"
    elif stage.ledger.cut:
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
    word = "paused" if leader in stage.ledger.paused else "down"
    unavailable = word == "paused" or leader not in view.running
    if unavailable and leader in view.unfenced:
        yield (f"{leader} is {word} and still leads partition {key}: a leader is replaced when its session "
               f"ends, and this one's has not: `expire {leader}`")
        return
    for node in truth.isr if committing else ():
        if node != leader and node in view.unfenced and (
                node in stage.ledger.paused or node not in view.running):
            yield (f"{node} is down and still in the ISR, so the high watermark waits for it: "
                   f"`expire {node}` removes it")
    if committing and len(truth.isr) == 1 and len(stage.replicas.get(key, ())) > 1:
        yield (f"the ISR of partition {key} is {leader} alone: if min.insync.replicas is above 1 nothing is "
               "committed or acked")
    if of_isr and stage.ledger.cut:
        yield ("a live follower that is cut off leaves the ISR after replica.lag.time.max.ms (60 s in a "
               "scenario whose [config] does not set it)")


def _guess_from_node(node: str, view: View, stage: Stage) -> Iterator[str]:
    """A node that is down or paused shows no replica, so no condition on it can be met."""
    if node in stage.ledger.paused:
        yield f"{node} is paused and does not answer: `resume {node}`"
    elif node not in view.running:
        yield f"{node} is down and does not answer: `start {node}`"
