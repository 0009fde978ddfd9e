"""Sends the ISR changes proposed by a node's leaders to the controller, and passes on the answers.

Rules
1. Each proposal is a request of its own; the proposing leader gets the answer, or NETWORK_EXCEPTION if
   there is none.
2. For a request or an answer that a failpoint drops, the leader gets that error after the time-out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import AlterPartitionAnswer, AlterPartitionResponse, ProposeIsr
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.harness.cluster.memory.failpoints import Failpoints
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.replicas import HostedPartition, Replicas
from floodmark.harness.cluster.memory.settings import Settings

_PAUSE_S = 0.05  # before the leader gets the error of a lost request; nothing is retried here


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One proposal that is being sent."""

    hosted: HostedPartition
    proposal: ProposeIsr
    broker_epoch: int
    peer: int  # the replica that would join or leave

    def site(self, name: str) -> FailpointSite:
        return FailpointSite(
            name=name, topic=self.hosted.topic, partition=self.hosted.partition,
            epoch=self.proposal.leader_epoch, peer=self.peer,
        )  # fmt: skip


# Sends a proposal to the controller: (proposal, callback for the answer, callback without one, time-out in
# s).
Ask = Callable[[Proposal, Callable[[Any], None], Callable[[bool], None], float], None]


class IsrProposals:
    """The proposals of one incarnation of a node."""

    def __init__(
        self, process: Process, settings: Settings, replicas: Replicas, failpoints: Failpoints, ask: Ask
    ) -> None:
        self._process = process
        self._replicas = replicas
        self._failpoints = failpoints
        self._ask = ask
        self._timeout_s = max(settings.heartbeat_interval_ms, settings.session_timeout_ms / 2) / 1000

    def submit(self, hosted: HostedPartition, proposal: ProposeIsr, broker_epoch: int) -> None:
        changes = {broker for broker, _ in proposal.isr} ^ set(hosted.replica.isr)
        one = Proposal(
            hosted=hosted, proposal=proposal, broker_epoch=broker_epoch, peer=min(changes, default=-1)
        )
        self._process.soon(lambda: self._meet_failpoint_and_send(one))

    def _meet_failpoint_and_send(self, one: Proposal) -> None:
        fate = Fate.GO
        if self._failpoints.armed:
            fate = self._failpoints.meet(one.site("L.alter_sent"), lambda: self._send(one))
        if fate is Fate.DROPPED:
            self._time_out(one)
        elif fate is not Fate.HELD:
            self._send(one)

    def _time_out(self, one: Proposal) -> None:
        self._process.later(self._timeout_s, lambda: self._give(one, errors.NETWORK_EXCEPTION))

    def _send(self, one: Proposal) -> None:
        def lost(_began: bool) -> None:
            self._process.later(_PAUSE_S, lambda: self._give(one, errors.NETWORK_EXCEPTION))

        self._ask(one, lambda answer: self._answered(one, answer), lost, self._timeout_s)

    def _answered(self, one: Proposal, answer: AlterPartitionAnswer) -> None:
        def give() -> None:
            self._give(one, answer.error, answer)

        fate = Fate.GO
        if self._failpoints.armed:
            fate = self._failpoints.meet(one.site("L.alter_answer"), give)
        if fate is Fate.DROPPED:
            self._time_out(one)
        elif fate is not Fate.HELD:
            give()

    def _give(self, one: Proposal, error: int, answer: AlterPartitionAnswer | None = None) -> None:
        done = answer if answer is not None and not error else None
        event = AlterPartitionResponse(
            now_ms=self._process.clock.now_ms(), proposal=one.proposal, error=error,
            leader_epoch=done.leader_epoch if done else -1, isr=done.isr if done else (),
            partition_epoch=done.partition_epoch if done else -1,
        )  # fmt: skip
        self._replicas.post(one.hosted, event)
