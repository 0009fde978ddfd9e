"""What a step means, as the lines of the trace: pure functions from before, event, effects and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.messages import ReplicaEffect, ReplicaEvent
from broker.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A replica between two steps."""

    leading: bool
    leader: int
    epoch: int
    leo: int
    hw: int
    isr: tuple[int, ...]  # committed
    partition_epoch: int


def standing(replica: Replica) -> Standing:
    return Standing(
        leading=replica.leading, leader=replica.leader, epoch=replica.leader_epoch, leo=replica.leo,
        hw=replica.hw, isr=replica.isr, partition_epoch=replica.partition_epoch,
    )  # fmt: skip


def replica_lines(
    before: Standing, event: ReplicaEvent, effects: Sequence[ReplicaEffect], after: Standing
) -> tuple[Mapping[str, Any], ...]:
    """In the order in which it happened; each with the state after it."""
    return ()
