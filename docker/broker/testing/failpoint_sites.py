"""Finds the failpoints that a step of a replica, or new metadata on its way, passes; pure.

A step changes the machine at once; a failpoint holds the rest of its effects. So each stop says how many
effects come before it, and how many of the step's trace lines describe what has happened by then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.broker.protocol.messages import (
    Append,
    HwMoved,
    Produce,
    ProduceAnswer,
    ReplicaEffect,
    ReplicaEvent,
    Reset,
    RoleChanged,
    SaveEpochs,
    Truncate,
)
from floodmark.broker.protocol.metadata import Metadata, PartitionInfo
from floodmark.broker.protocol.replica import Replica
from floodmark.broker.testing.failpoint_requests import FailpointSite

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A failpoint between two effects of a step."""

    after: int  # effects carried out before it
    shown: int  # trace lines written before it
    site: FailpointSite


def find_stops(
    key: tuple[str, int],
    replica: Replica,
    event: ReplicaEvent,
    effects: Sequence[ReplicaEffect],
    lines: Sequence[Line],
) -> list[Stop]:
    """Find the stops of a step of this topic's partition, in the order in which the step passes them."""
    step = _Step(key=key, replica=replica, event=event, effects=effects, lines=lines)
    acks = 0
    for index, effect in enumerate(effects):
        if isinstance(effect, Append):
            step.add_append_sites(index, effect)
        elif isinstance(effect, Truncate | Reset) and not replica.leading:
            step.add_truncate_site(index, effect.to if isinstance(effect, Truncate) else effect.start)
        elif isinstance(effect, HwMoved) and replica.leading:
            step.add("L.hw", index + 1, step.lines_up_to("hw"), effect.hw)
        elif isinstance(effect, ProduceAnswer) and _is_ack(effect):
            acks += 1
            step.add(
                "L.acked", index + 1, step.lines_up_to("ack", acks), effect.base_offset, effect.last_offset
            )
        elif isinstance(effect, RoleChanged):
            step.add_role_site(index, effect)
    return sorted(step.stops, key=_after)


class _Step:
    """A step and the stops found in it so far."""

    def __init__(
        self,
        *,
        key: tuple[str, int],
        replica: Replica,
        event: ReplicaEvent,
        effects: Sequence[ReplicaEffect],
        lines: Sequence[Line],
    ) -> None:
        self.stops: list[Stop] = []
        self._topic, self._partition = key
        self._replica = replica
        self._event, self._effects, self._lines = event, effects, lines

    def add(self, name: str, after: int, shown: int, offset: int, last: int = -1) -> None:
        replica = self._replica
        site = FailpointSite(
            name=name, topic=self._topic, partition=self._partition, epoch=replica.leader_epoch,
            peer=-1 if replica.leading else replica.leader, offset=offset, last=last,
        )  # fmt: skip
        self.stops.append(Stop(after=after, shown=shown, site=site))

    def add_append_sites(self, index: int, effect: Append) -> None:
        first, last = effect.batches[0].base_offset, effect.batches[-1].last_offset
        if not effect.leading:
            self.add("F.appended", index + 1, self.lines_up_to("append"), first, last)
        elif self._is_delayed_produce():
            self.add("P.parked", index + 1, self.lines_up_to("append"), first, last)

    def add_truncate_site(self, index: int, to: int) -> None:
        next_effects = self._effects[index + 1 : index + 2]
        after = index + 1 + bool(next_effects and isinstance(next_effects[0], SaveEpochs))
        self.add("F.truncated", after, self.lines_up_to("truncate"), to)

    def add_role_site(self, index: int, effect: RoleChanged) -> None:
        """A new leader stops when only its disk has changed, a new follower before it sends a request."""
        if effect.leading:
            on_disk = 0
            while isinstance(self._effects[on_disk], Truncate | Reset | SaveEpochs):
                on_disk += 1
            self.add("L.elected", on_disk, self.lines_up_to("become_leader"), self._replica.leo)
        elif effect.leader >= 0:
            self.add("F.followed", index + 1, len(self._lines), self._replica.leo)

    def lines_up_to(self, event: str, number: int = 1) -> int:
        """Count the lines up to the `number`-th of this kind, with the checkpoints that follow it."""
        of_kind = [at for at, line in enumerate(self._lines) if line["event"] == event]
        if len(of_kind) < number:
            return len(self._lines)
        end = of_kind[number - 1] + 1
        while end < len(self._lines) and self._lines[end]["event"] == "checkpoint":
            end += 1
        return end

    def _is_delayed_produce(self) -> bool:
        """Whether the step has appended a produce with acks=all and not answered it."""
        event = self._event
        if not isinstance(event, Produce) or event.acks != -1:
            return False
        return not any(
            isinstance(effect, ProduceAnswer) and effect.token == event.token for effect in self._effects
        )


def _is_ack(effect: ProduceAnswer) -> bool:
    return effect.error == 0 and effect.acks == -1 and effect.base_offset >= 0


def _after(stop: Stop) -> int:
    return stop.after


def find_metadata_sites(broker: int, metadata: Metadata, before: Metadata | None) -> list[FailpointSite]:
    """A failpoint site for each partition that is new to the broker, or one without a partition."""
    sites = [
        FailpointSite(
            name="C.elected", topic=name, partition=part.partition, epoch=part.leader_epoch, peer=broker
        )
        for name, topic in metadata.topics.items()
        for part in topic.partitions
        if not _already_knew(before, name, part)
    ]
    return sites or [FailpointSite(name="C.elected", peer=broker)]


def _already_knew(before: Metadata | None, topic: str, part: PartitionInfo) -> bool:
    known = None if before is None else before.topics.get(topic)
    return known is not None and part in known.partitions


def list_leader_epochs(metadata: Metadata) -> dict[tuple[str, int], int]:
    return {
        (name, part.partition): part.leader_epoch
        for name, topic in metadata.topics.items()
        for part in topic.partitions
    }
