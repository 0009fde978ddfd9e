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
from floodmark.harness.protocols import UNKNOWN, Met, PartitionView, ReplicaView, Sight, View
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.moments import OF_BROKER, point_matches
from floodmark.nemesis.moment_text import partitions_of, write_moment
from floodmark.nemesis.moment_watch import is_healthy
from floodmark.nemesis.roles import Stage, players

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


async def explain_missed_moment(entry: Entry, stuck: Mapping[str, Any], sight: Sight, stage: Stage) -> Miss:
    """Explain that `stuck`, the moment or the part of a sequence, did not come."""
    moment = entry.moment or stuck
    asked = f"{write_moment(stuck)} ({entry.timeout_s:g} s)"
    if moment["at"] == "sequence":
        asked += f", in {write_moment(moment)}"
    return await _explain(asked, stuck, sight, stage)


async def explain_missing_role(entry: Entry, sight: Sight, stage: Stage) -> Miss:
    """Explain that the moment came, but no node had the entry's role."""
    partition = entry.partition
    asked = f"a node that is {', '.join(entry.nodes) or 'meant'} of partition {partition}"
    leads = {"at": "state", "field": "leader", "is": "!=", "value": None, "partition": partition}
    return await _explain(f"{asked} ({entry.timeout_s:g} s)", leads, sight, stage)


async def _explain(asked: str, moment: Mapping[str, Any], sight: Sight, stage: Stage) -> Miss:
    try:
        view = await sight.view()
        armed_nodes = sorted({armed.node for armed in stage.ledger.armed})
        held = {node: await _find_held(node, sight) for node in armed_nodes}
    except FloodmarkError as error:
        return Miss(waited_for=asked, seen=(f"the cluster could not be observed: {error}",))
    keys = sorted(partitions_of(moment) & stage.replicas.keys()) or sorted(stage.replicas)[:PARTITIONS_MAX]
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


def guess_reasons(moment: Mapping[str, Any], keys: list[int], view: View, stage: Stage,
           held: Mapping[str, tuple[Met, ...]]) -> Iterator[str]:
    """Guess reasons from the view, each with the step that would help."""
    for node, mets in held.items():
        if mets:
            yield f"{node} is held at {mets[-1].name}: `release {node}` releases it"
    for part in _iterate_parts(moment):
        if part.get("at") == "failpoint":
            yield from _guess_from_failpoint(part, view, stage)
    for key in keys:
        truth = view.partitions.get(key)
        if truth is not None:
            yield from _guess_from_partition(moment, truth, view, stage)
    for node in _find_named_nodes(moment, view, stage):
        yield from _guess_from_node(node, view, stage)
    of_replicas = {part["field"] for part in _iterate_parts(moment) if "replica" in part}
    for name in sorted(of_replicas - {*OF_BROKER}):
        if any(getattr(own, name) is UNKNOWN for own in view.replicas.values()):
            yield f"this system does not show the {name} of a replica"
    if moment.get("healthy") and not is_healthy(view, stage):
        for f, on in stage.ledger.lasting:
            undo = FAULTS[f].undone_by or ""
            yield f"{f} {on} is in force: `{undo if undo == 'heal' else f'{undo} {on}'}`"
    elif stage.ledger.cut:
        yield "links are cut: messages over them wait for `heal`"


def _guess_from_partition(
    moment: Mapping[str, Any], truth: PartitionView, view: View, stage: Stage
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
    committing = moment["at"] == "ack" or bool(_find_fields(moment) & {*_OF_COMMITTING, "isr"})
    for node in truth.isr if committing else ():
        if node != leader and node in view.unfenced and (
                node in stage.ledger.paused or node not in view.running):
            yield (f"{node} is down and still in the ISR, so the high watermark waits for it: "
                   f"`expire {node}` removes it")
    if committing and len(truth.isr) == 1 and len(stage.replicas.get(key, ())) > 1:
        yield (f"the ISR of partition {key} is {leader} alone: if min.insync.replicas is above 1 nothing is "
               "committed or acked")
    if "isr" in _find_fields(moment) and stage.ledger.cut:
        yield ("a live follower that is cut off leaves the ISR after replica.lag.time.max.ms (60 s in a "
               "scenario whose [config] does not set it)")


def _guess_from_failpoint(moment: Mapping[str, Any], view: View, stage: Stage) -> Iterator[str]:
    node, name = moment["node"], moment["name"]
    arms = [one for one in stage.ledger.armed if one.node == node and point_matches(one.point, moment)]
    if not arms:
        yield f"nothing is armed at {name} in {node}: a step such as `hold {node} at {name}` must come before"
    elif not any(one.live for one in arms):
        yield f"what was armed at {name} in {node} was released, or {node} ended, before it got there"


def _guess_from_node(node: str, view: View, stage: Stage) -> Iterator[str]:
    """A node that is down or paused shows no replica, so no condition on it can be met."""
    if node in stage.ledger.paused:
        yield f"{node} is paused and does not answer: `resume {node}`"
    elif node not in view.running:
        yield f"{node} is down and does not answer: `start {node}`"


def _find_named_nodes(moment: Mapping[str, Any], view: View, stage: Stage) -> list[str]:
    """The nodes whose replicas or failpoints the moment is about."""
    found: list[str] = []
    for leaf in _iterate_parts(moment):
        if leaf.get("at") == "failpoint":
            found += [leaf["node"]] if leaf["node"] in stage.nodes else []
        for fields in (leaf, leaf.get("value")):
            if isinstance(fields, Mapping) and "replica" in fields and fields["field"] not in OF_BROKER:
                found += players(fields["replica"], leaf.get("partition") or 0, view, stage)
    return found


def _find_fields(moment: Mapping[str, Any]) -> set[str]:
    return {leaf["field"] for leaf in _iterate_parts(moment) if "field" in leaf}


def _iterate_parts(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    parts = [part for group in ("all", "any", "of") for part in state.get(group, ())]
    if not parts:
        yield state
    for part in parts:
        yield from _iterate_parts(part)
