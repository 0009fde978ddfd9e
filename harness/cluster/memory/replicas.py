"""The replicas of one node in memory, and how their effects are carried out.
The broker's own code runs the steps and meets their failpoints (floodmark.broker.testing.step_runner). While
the process is stopped, events stay in the queue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from floodmark.broker.protocol.messages import (
    Append,
    EndOffsetAnswer,
    FetchAnswer,
    HwMoved,
    ListOffsetsAnswer,
    ProduceAnswer,
    ProposeIsr,
    Reset,
    RoleChanged,
    SaveEpochs,
    Truncate,
)
from floodmark.broker.testing.step_runner import SteppedReplica, StepRunner
from floodmark.harness.cluster.memory.disk import Key, PartitionLog, size_of
from floodmark.harness.cluster.memory.failpoints import Failpoints
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.trace_file import TraceFile

HostedPartition = SteppedReplica[PartitionLog]


class Requester(Protocol):
    """Waits for answers of replicas; an event's token is (requester, index)."""

    def complete(self, index: int, answer: Any) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Callbacks of a node for what its replicas do, besides answers."""

    appended: Callable[[Key, int], None]  # by a leader: key, bytes
    hw_moved: Callable[[Key], None]
    role_changed: Callable[[HostedPartition], None]
    propose: Callable[[HostedPartition, ProposeIsr], None]
    resumed: Callable[[HostedPartition], None]  # after a hold at a failpoint


class Replicas(StepRunner[HostedPartition]):
    def __init__(
        self,
        process: Process,
        trace: TraceFile,
        failpoints: Failpoints,
        listeners: Listeners,
        flush_messages: int | None,
    ) -> None:
        self.partitions: dict[Key, HostedPartition] = {}
        self._listeners = listeners
        self._flush_messages = flush_messages
        carry_out: dict[type, Callable[[HostedPartition, Any], None]] = {
            Append: self._append,
            Truncate: lambda hosted, effect: hosted.log.truncate(effect.to),
            Reset: lambda hosted, effect: hosted.log.reset(effect.start),
            SaveEpochs: lambda hosted, effect: setattr(hosted.log, "epochs", effect.entries),
            HwMoved: lambda hosted, _: listeners.hw_moved(hosted.key),
            RoleChanged: lambda hosted, _: listeners.role_changed(hosted),
            ProduceAnswer: _answer_requester,
            FetchAnswer: _answer_requester,
            EndOffsetAnswer: _answer_requester,
            ListOffsetsAnswer: _answer_requester,
            ProposeIsr: listeners.propose,
        }
        super().__init__(carry_out, trace, failpoints, listeners.resumed, lambda: process.is_stopped)

    def _append(self, hosted: HostedPartition, effect: Append) -> None:
        hosted.log.append(effect.batches, self._flush_messages)
        if effect.leading:
            self._listeners.appended(hosted.key, sum(map(size_of, effect.batches)))


def _answer_requester(_hosted: HostedPartition, effect: Any) -> None:
    requester, index = effect.token
    requester.complete(index, effect)
