"""One replica of one partition: a pure machine, step(event) -> effects. (signatures first; the body follows)"""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.messages import Batch, ReplicaEffect, ReplicaEvent, Wish
from broker.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What storage found at start."""

    log_start: int = 0
    batches: Sequence[Batch] = ()  # the frames (data empty), in the order of the log
    epochs: Sequence[tuple[int, int]] = ()  # leader-epoch-checkpoint as it stands: (epoch, start offset)
    hw: int = 0  # as checkpointed


class Replica:
    def __init__(self, *, me: int, config: ReplicaConfig, rules: Rules, recovered: Recovered) -> None:
        raise NotImplementedError

    def step(self, event: ReplicaEvent) -> list[ReplicaEffect]:
        """Raises IllegalEvent and changes nothing if no correct sender can have sent the event."""
        raise NotImplementedError

    def wish(self) -> Wish | None:
        """What this replica, if it follows, would ask its leader now; None while it has nothing to ask."""
        raise NotImplementedError

    @property
    def leading(self) -> bool:
        raise NotImplementedError

    @property
    def leader(self) -> int:
        raise NotImplementedError

    @property
    def leader_epoch(self) -> int:
        raise NotImplementedError

    @property
    def partition_epoch(self) -> int:
        raise NotImplementedError

    @property
    def isr(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def leo(self) -> int:
        raise NotImplementedError

    @property
    def hw(self) -> int:
        raise NotImplementedError

    @property
    def log_start(self) -> int:
        raise NotImplementedError

    @property
    def epochs(self) -> tuple[tuple[int, int], ...] | None:
        """(epoch, start offset) ascending; None where the rules keep none."""
        raise NotImplementedError
