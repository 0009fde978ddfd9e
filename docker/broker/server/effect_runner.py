"""Steps the replicas of this broker, each a machine and its log on disk.

A machine that raises, a broken invariant or a disk that refuses halts the process at once, before anything of
that step is answered. The order of effects, trace lines and failpoints is step_runner.py's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol.messages import ReplicaEvent
from floodmark.broker.storage.local_log import LocalLog
from floodmark.broker.testing.step_runner import SteppedReplica, StepRunner


@dataclass(slots=True, kw_only=True, eq=False)
class HostedPartition(SteppedReplica[LocalLog]):
    """One replica of this broker."""

    topic_id: str
    configs: Mapping[str, str] = field(default_factory=dict)  # the topic's own


EffectHandlers = Mapping[type, Callable[[HostedPartition, Any], None]]
# (topic, partition) that a client named -> the replica here, or None and the error that says why
FindPartition = Callable[[str, int], tuple[HostedPartition | None, int]]


class EffectRunner(StepRunner[HostedPartition]):
    def step_failed(self, hosted: HostedPartition, event: ReplicaEvent | None, error: Exception) -> None:
        log("error", "step-failed", topic=hosted.topic, partition=hosted.partition, by=event)
        halt_process("stopped-by-a-broken-invariant-or-disk", error)
