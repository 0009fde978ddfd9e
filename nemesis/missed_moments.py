"""Explains a moment that did not come: what was waited for, what was seen instead, and likely reasons.

Rules
1. What is seen is one look at the end of the wait, and is told as the cluster tells it.
2. A likely reason is told only where what was seen fits it; it says the step that would help. Several may
   fit, and where none does nothing is guessed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS
from floodmark.harness.protocols import UNKNOWN, Met, PartitionView, ReplicaView, Sight, View
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.json_form import OF_BROKER, point_matches
from floodmark.nemesis.moment_text import asked_words, partitions_of
from floodmark.nemesis.moment_watch import healthy
from floodmark.nemesis.roles import Stage, players

PARTITIONS = 4  # told of a moment that names none
_OF_COMMITTING = ("hw", "checkpointed_hw")


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """In sentences, for people. `likely` may be empty."""

    waited_for: str
    seen: tuple[str, ...]
    likely: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """As run.json's `missed_words` has it."""
        return {"waited_for": self.waited_for, "seen": list(self.seen), "likely": list(self.likely)}


async def miss_of_moment(entry: Entry, stuck: Mapping[str, Any], sight: Sight, stage: Stage) -> Miss:
    """stuck: the moment, or the part of a sequence, that did not come."""
    moment = entry.moment or stuck
    asked = f"{asked_words(stuck)} ({entry.timeout_s:g} s)"
    if moment["at"] == "sequence":
        asked += f", in {asked_words(moment)}"
    return await _miss(asked, stuck, sight, stage)


async def miss_of_role(entry: Entry, sight: Sight, stage: Stage) -> Miss:
    """Its moment came, and nobody was there whom the entry means."""
    partition = entry.args.get("partition", 0)
    asked = f"somebody who is {', '.join(entry.nodes) or 'meant'} of partition {partition}"
    leads = {"at": "state", "field": "leader", "is": "!=", "value": None, "partition": partition}
    return await _miss(f"{asked} ({entry.timeout_s:g} s)", leads, sight, stage)


async def _miss(asked: str, moment: Mapping[str, Any], sight: Sight, stage: Stage) -> Miss:
    try:
        view = await sight.view()
        held = {node: await _held(node, sight) for node in sorted({one.node for one in stage.ledger.armed})}
    except FloodmarkError as error:
        return Miss(waited_for=asked, seen=(f"the cluster could not be looked at: {error}",))
    keys = sorted(partitions_of(moment) & stage.replicas.keys()) or sorted(stage.replicas)[:PARTITIONS]
    seen = [line for key in keys for line in seen_of(key, view, stage, acks=sight.acks(key))]
    return Miss(waited_for=asked, seen=tuple(seen),
                likely=tuple(dict.fromkeys(likely(moment, keys, view, stage, held))))


async def _held(node: str, sight: Sight) -> tuple[Met, ...]:
    return tuple(met for met in await sight.met(node) if met.held)


# -- what was seen: pure -------------------------------------------------------------------------------------


def seen_of(partition: int, view: View, stage: Stage, *, acks: int) -> Iterator[str]:
    """The controller's word on a partition, then each replica's own."""
    truth = view.partitions.get(partition)
    if truth is None:
        yield f"partition {partition}: the controller says nothing of it; {acks} records acked"
    else:
        yield (f"partition {partition}: leader {truth.leader or 'nobody'}, epoch {truth.epoch}, "
               f"ISR {', '.join(truth.isr) or 'empty'}; {acks} record{'s' * (acks != 1)} acked")
    for node in stage.replicas.get(partition, ()):
        told = [word for word in (condition(node, view, stage),) if word]
        told += [_replica(view.replicas[node, partition])] if (node, partition) in view.replicas else []
        yield f"  {node}: {'; '.join(told) or 'says nothing'}"


def condition(node: str, view: View, stage: Stage) -> str:
    """`down`, `paused`, `fenced`; empty where it is up and the controller knows it."""
    if node in stage.ledger.paused:
        word = "paused"
    elif node not in view.running:
        word = "down"
    else:
        return "" if node in view.unfenced else "fenced"
    return f"{word}, its session not ended" if node in view.unfenced else f"{word}, fenced"


def _replica(own: ReplicaView) -> str:
    """As far as its system shows it."""
    role = "leads" if own.leader == own.node else f"follows {own.leader}" if own.leader else "has no leader"
    told = [] if own.leader is UNKNOWN else [role if own.epoch is UNKNOWN else f"{role} in epoch {own.epoch}"]
    told += [f"{word} {value}" for word, value in (("LEO", own.leo), ("HW", own.hw)) if value is not UNKNOWN]
    if own.epochs is not UNKNOWN and own.epochs is not None:
        told.append("epochs " + (", ".join(f"{epoch} from {start}" for epoch, start in own.epochs) or "none"))
    return ", ".join(told) or "its system shows nothing of it"


# -- why: pure -----------------------------------------------------------------------------------------------


def likely(moment: Mapping[str, Any], keys: list[int], view: View, stage: Stage,
           held: Mapping[str, tuple[Met, ...]]) -> Iterator[str]:
    """What may be the reason, and the step that would help."""
    for node, mets in held.items():
        if mets:
            yield f"{node} is held at {mets[-1].name}: `release {node}` lets it go"
    for part in _leaves(moment):
        if part.get("at") == "failpoint":
            yield from _unmet(part, view, stage)
    for key in keys:
        truth = view.partitions.get(key)
        if truth is not None:
            yield from _of_partition(moment, truth, view, stage)
    for node in _named(moment, view, stage):
        yield from _unseen(node, view, stage)
    for name in sorted({leaf["field"] for leaf in _leaves(moment) if "replica" in leaf} - {*OF_BROKER}):
        if any(getattr(own, name) is UNKNOWN for own in view.replicas.values()):
            yield f"this system does not show the {name} of a replica"
    if moment.get("healthy") and not healthy(view, stage):
        for f, on in stage.ledger.lasting:
            undo = FAULTS[f].undone_by or ""
            yield f"{f} {on} is in force: `{undo if undo == 'heal' else f'{undo} {on}'}`"
    elif stage.ledger.cut:
        yield "links are cut: what has to pass them waits for `heal`"


def _of_partition(moment: Mapping[str, Any], truth: PartitionView, view: View, stage: Stage) -> Iterator[str]:
    key, leader = truth.partition, truth.leader
    if leader is None:
        yield (f"nobody leads partition {key}, for nobody of its ISR ({', '.join(truth.isr)}) is alive and "
               f"unfenced: `start {truth.isr[0] if truth.isr else 'down'}`, or `elect NODE unclean`")
        return
    word = "paused" if leader in stage.ledger.paused else "down"
    gone = word == "paused" or leader not in view.running
    if gone and leader in view.unfenced:
        yield (f"{leader} is {word} and leads partition {key} still: a leader is replaced when its session "
               f"ends, and this one's has not: `expire {leader}`")
        return
    committing = moment["at"] == "ack" or bool(_fields(moment) & {*_OF_COMMITTING, "isr"})
    for node in truth.isr if committing else ():
        if node != leader and node in view.unfenced and (
                node in stage.ledger.paused or node not in view.running):
            yield (f"{node} is gone and in the ISR still, so the high watermark waits for it: "
                   f"`expire {node}` takes it out")
    if committing and len(truth.isr) == 1 and len(stage.replicas.get(key, ())) > 1:
        yield (f"the ISR of partition {key} is {leader} alone: where min.insync.replicas is above 1 nothing "
               "is committed or acked")
    if "isr" in _fields(moment) and stage.ledger.cut:
        yield ("a follower that lives and is cut off leaves the ISR after replica.lag.time.max.ms (60 s in a "
               "scenario whose [config] does not say less)")


def _unmet(moment: Mapping[str, Any], view: View, stage: Stage) -> Iterator[str]:
    node, name = moment["node"], moment["name"]
    arms = [one for one in stage.ledger.armed if one.node == node and point_matches(one.point, moment)]
    if not arms:
        yield f"nothing is armed at {name} in {node}: a step such as `hold {node} at {name}` must come before"
    elif not any(one.live for one in arms):
        yield f"what was armed at {name} in {node} was released, or {node} ended, before it got there"


def _unseen(node: str, view: View, stage: Stage) -> Iterator[str]:
    """Of who is gone no replica is seen, and so no condition on it holds."""
    if node in stage.ledger.paused:
        yield f"{node} is paused and says nothing: `resume {node}`"
    elif node not in view.running:
        yield f"{node} is down and says nothing: `start {node}`"


def _named(moment: Mapping[str, Any], view: View, stage: Stage) -> list[str]:
    """The nodes whose own replicas, or failpoints, the moment looks at."""
    found: list[str] = []
    for leaf in _leaves(moment):
        if leaf.get("at") == "failpoint":
            found += [leaf["node"]] if leaf["node"] in stage.nodes else []
        for fields in (leaf, leaf.get("value")):
            if isinstance(fields, Mapping) and "replica" in fields and fields["field"] not in OF_BROKER:
                found += players(fields["replica"], leaf.get("partition") or 0, view, stage)
    return found


def _fields(moment: Mapping[str, Any]) -> set[str]:
    return {leaf["field"] for leaf in _leaves(moment) if "field" in leaf}


def _leaves(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    parts = [part for group in ("all", "any", "of") for part in state.get(group, ())]
    if not parts:
        yield state
    for part in parts:
        yield from _leaves(part)
