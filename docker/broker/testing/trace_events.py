"""What a step of a replica means, as lines of the trace: pure functions of before, event, effects and after.

Rules
1. Lines stand in the order in which it happened, and each tells epoch, LEO and HW as they were right after:
   an append shows the HW before it moved, then comes the move, then the ack that rests on it.
2. A role is told where it is taken: a follower's before what it cuts, a leader's after what it cut.
3. Only what has come about is told: of fetches those of followers that were served, and not again when one
   wakes in the purgatory; of produces those that were acked; of an HW what another line does not show.
4. Brokers are ids; -1 is nobody.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.protocol.messages import (
    CONSUMER,
    Append,
    Batch,
    Fetch,
    FetchAnswer,
    HwMoved,
    ProduceAnswer,
    ProposeIsr,
    ReplicaEffect,
    ReplicaEvent,
    Reset,
    RoleChanged,
    SaveEpochs,
    Truncate,
)
from broker.protocol.replica import Replica

Line = Mapping[str, Any]
_ACKS = {-1: "all", 0: "0", 1: "1"}


@dataclass(slots=True)
class ReplicaSnapshot:
    """A replica between two steps. Never changed; neither frozen nor by keyword, for two are made a step and
    that would double what they take."""

    leading: bool
    leader: int
    epoch: int
    leo: int
    hw: int
    isr: tuple[int, ...]  # committed
    counted: tuple[int, ...]  # what a leader's HW waits for
    partition_epoch: int


def take_snapshot(replica: Replica) -> ReplicaSnapshot:
    return ReplicaSnapshot(
        replica.leading, replica.leader, replica.leader_epoch, replica.leo, replica.hw, replica.isr,
        replica.maximal_isr, replica.partition_epoch,
    )  # fmt: skip


def replica_lines(
    before: ReplicaSnapshot, event: ReplicaEvent, effects: Sequence[ReplicaEffect], after: ReplicaSnapshot
) -> tuple[Line, ...]:
    """In the order in which it happened; each with the state after it."""
    if not effects and before == after:
        return ()
    step = _Step(event, after, before.leo, before.hw)
    role_at = -1  # the effect before which a role was taken
    if effects and type(effects[-1]) is RoleChanged:
        role_at = _position_after_truncation(effects) if after.leading else 0
    elif after.leading and (before.partition_epoch, before.isr) != (after.partition_epoch, after.isr):
        step.add_line(
            "isr", leader=after.leader, isr=after.isr, partition_epoch=after.partition_epoch, cause="learnt"
        )
    for position, effect in enumerate(effects):
        if position == role_at:
            _add_role(step)
        tell = _LINE_WRITERS.get(type(effect))
        if tell is not None:
            tell(step, effect)
    if step.hw != after.hw:  # a follower's, which no effect tells of
        step.hw = after.hw
        step.add_line("hw", role="leader" if after.leading else "follower")
    assert step.leo == after.leo, f"{effects} tell of LEO {step.leo}, it is {after.leo}"
    return tuple(step.lines)


class _Step:
    """A step on its way through its effects. The lines of every produce and fetch are put together by hand:
    this runs beside each of them."""

    __slots__ = ("after", "event", "hw", "leo", "lines")

    def __init__(self, event: ReplicaEvent, after: ReplicaSnapshot, leo: int, hw: int) -> None:
        self.event = event
        self.after = after  # its epoch is the step's: a new one is taken before all else
        self.leo = leo
        self.hw = hw
        self.lines: list[Line] = []

    def add_line(self, event: str, **besides: Any) -> None:
        self.lines.append(
            {"event": event, "epoch": self.after.epoch, "leo": self.leo, "hw": self.hw, **besides}
        )


def _position_after_truncation(effects: Sequence[ReplicaEffect]) -> int:
    """The position behind the last cut of the log."""
    cuts = [at for at, effect in enumerate(effects) if isinstance(effect, Truncate | Reset)]
    return cuts[-1] + 1 if cuts else 0


def _add_role(step: _Step) -> None:
    after = step.after
    if after.leading:
        step.add_line("become_leader", isr=after.isr, start=step.leo, partition_epoch=after.partition_epoch)
    else:
        step.add_line("become_follower", leader=after.leader)


def _add_append(step: _Step, effect: Append) -> None:
    first, last = effect.batches[0].base_offset, effect.batches[-1].last_offset
    step.leo = last + 1
    step.lines.append({
        "event": "append", "epoch": step.after.epoch, "leo": step.leo, "hw": step.hw,
        "role": "leader" if effect.leading else "follower", "offset": first, "count": last + 1 - first,
        "epochs": epochs_of(effect.batches),
    })  # fmt: skip


def _add_truncate(step: _Step, effect: Truncate) -> None:
    step.leo, step.hw = effect.to, min(step.hw, effect.to)
    step.add_line("truncate", **{"from": effect.was, "to": effect.to, "why": effect.why})


def _add_reset(step: _Step, effect: Reset) -> None:
    was, step.leo, step.hw = step.leo, effect.start, effect.start
    why = "nothing here that the leader's log continues"
    step.add_line("truncate", **{"from": was, "to": effect.start, "why": why})


def _add_save_epochs(step: _Step, effect: SaveEpochs) -> None:
    step.add_line("checkpoint", what="epochs", value=effect.entries)


def _add_hw_moved(step: _Step, effect: HwMoved) -> None:
    step.hw = effect.hw
    step.lines.append(
        {"event": "hw", "epoch": step.after.epoch, "leo": step.leo, "hw": step.hw, "role": "leader"}
    )


def _add_fetch(step: _Step, effect: FetchAnswer) -> None:
    event = step.event
    if not isinstance(event, Fetch) or event.replica == CONSUMER or event.again or effect.error:
        return
    line: dict[str, Any] = {
        "event": "fetch", "epoch": step.after.epoch, "leo": step.leo, "hw": step.hw,
        "follower": event.replica, "offset": event.offset, "follower_epoch": event.current_leader_epoch,
    }  # fmt: skip
    if effect.diverging is not None:
        line["diverging"] = (effect.diverging.epoch, effect.diverging.end_offset)
    step.lines.append(line)


def _add_ack(step: _Step, effect: ProduceAnswer) -> None:
    if not effect.error and effect.base_offset >= 0:
        step.lines.append({
            "event": "ack", "epoch": step.after.epoch, "leo": step.leo, "hw": step.hw,
            "offset": effect.last_offset, "acks": _ACKS[effect.acks], "isr": step.after.counted,
        })  # fmt: skip


def _add_isr_proposed(step: _Step, effect: ProposeIsr) -> None:
    isr = tuple([broker for broker, _ in effect.isr])
    step.add_line("isr_proposed", isr=isr, partition_epoch=effect.partition_epoch)


_LINE_WRITERS: Mapping[type, Callable[[_Step, Any], None]] = {
    Append: _add_append,
    Truncate: _add_truncate,
    Reset: _add_reset,
    SaveEpochs: _add_save_epochs,
    HwMoved: _add_hw_moved,
    FetchAnswer: _add_fetch,
    ProduceAnswer: _add_ack,
    ProposeIsr: _add_isr_proposed,
}


def epochs_of(batches: Sequence[Batch]) -> list[tuple[int, int]]:
    """(epoch, first offset) of the records themselves; a log of before KIP-101 may have an epoch twice."""
    found: list[tuple[int, int]] = []
    for batch in batches:
        if not found or found[-1][0] != batch.epoch:
            found.append((batch.epoch, batch.base_offset))
    return found


# -- beside the steps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLogSummary:
    """A log as it was recovered at start."""

    topic: str
    partition: int
    log_start: int
    leo: int
    hw: int
    batches: Sequence[Batch]


def start_lines(clean: bool, logs: Sequence[RecoveredLogSummary]) -> tuple[Line, ...]:
    """A process has begun: one line of itself, for it may hold no log, and one of every log found."""
    return (
        {"event": "start", "clean": clean},
        *(
            {
                "event": "start", "topic": log.topic, "partition": log.partition, "epoch": -1, "leo": log.leo,
                "hw": log.hw, "clean": clean, "log_start": log.log_start, "epochs": epochs_of(log.batches),
            }
            for log in logs
        ),
    )  # fmt: skip


def checkpoint_line(what: str, value: int, now: ReplicaSnapshot) -> Line:
    """A checkpoint file names this value: `hw` the HW, `recovery` what is flushed."""
    return {
        "event": "checkpoint", "epoch": now.epoch, "leo": now.leo, "hw": now.hw, "what": what, "value": value,
    }  # fmt: skip
