"""Sends a broker's own requests to the controller: AlterPartition and AllocateProducerIds.

Rules
1. Each ISR change is a request of its own, so that none waits for another's response; its replica gets the
   response, or NETWORK_EXCEPTION when none came, and then proposes again.
2. A producer id is assigned once: from a block that the controller has made durable, kept in memory only.
3. Every request has a time-out, and nothing is retried here.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import AlterPartitionResponse, ProposeIsr
from floodmark.broker.server.config import Config
from floodmark.broker.server.effect_runner import HostedPartition
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.server.replica_manager import ReplicaManager, now_ms
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.wire.api_keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION
from floodmark.broker.wire.codec import make, request_parts

_ALTER, _ALLOCATE = 3, 0
_PAUSE_AFTER_FAILURE_S = 0.05  # after a request that failed
_CONNECTIONS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightProposal:
    """A proposal that has been sent, or is about to be."""

    hosted: HostedPartition
    proposal: ProposeIsr
    broker_epoch: int
    peer: int  # the broker that would join or leave the ISR

    def site(self, name: str) -> FailpointSite:
        return FailpointSite(
            name=name, topic=self.hosted.topic, partition=self.hosted.partition,
            epoch=self.proposal.leader_epoch, peer=self.peer,
        )  # fmt: skip


class AlterPartitionManager:
    """Sends AlterPartition for all replicas that lead here."""

    def __init__(
        self,
        config: Config,
        dial: Callable[[], NodeConnection],
        replica_manager: Callable[[], ReplicaManager],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._config = config
        self._dial = dial
        self._replica_manager = replica_manager
        self._broker_epoch = broker_epoch
        self._timeout_s = max(config.heartbeat_interval_ms, config.session_timeout_ms / 2) / 1000
        self._connection_slots = asyncio.Semaphore(_CONNECTIONS_MAX)
        self._free_connections: list[NodeConnection] = []
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order

    def submit(self, hosted: HostedPartition, proposal: ProposeIsr) -> None:
        changes = {broker for broker, _ in proposal.isr} ^ set(hosted.replica.isr)
        in_flight = InFlightProposal(
            hosted=hosted, proposal=proposal, broker_epoch=self._broker_epoch(),
            peer=min(changes, default=-1),
        )  # fmt: skip
        self._start_task(self._send_past_failpoints(in_flight))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for connection in self._free_connections:
            connection.close()

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine, name="proposal")
        self._tasks[task] = None
        task.add_done_callback(self._finish_task)

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, Exception):
            halt_process("proposals-failed", failure)

    async def _send_past_failpoints(self, in_flight: InFlightProposal) -> None:
        failpoints = self._replica_manager().failpoints
        fate = Fate.GO
        if failpoints.armed:
            released = asyncio.get_running_loop().create_future()
            fate = failpoints.meet(in_flight.site("L.alter_sent"), lambda: _set_done(released))
            if fate is Fate.HELD:
                await released
            elif fate is Fate.DOUBLED:
                self._start_task(self._send_duplicate(in_flight, released))
        if fate is Fate.DROPPED:
            await self._time_out(in_flight)
        else:
            await self._send(in_flight)

    async def _send_duplicate(self, in_flight: InFlightProposal, released: asyncio.Future[None]) -> None:
        """Send the second copy of a duplicated request, when the failpoint releases it."""
        await released
        await self._send(in_flight)

    async def _time_out(self, in_flight: InFlightProposal) -> None:
        """Report a time-out for a request or a response that a failpoint dropped."""
        await asyncio.sleep(self._timeout_s)
        self._deliver_response(in_flight, errors.NETWORK_EXCEPTION)

    async def _send(self, in_flight: InFlightProposal) -> None:
        answer = await self._request(self._build_request(in_flight))
        if answer is None or answer.error_code:
            await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
            error = errors.NETWORK_EXCEPTION if answer is None else int(answer.error_code)
            self._deliver_response(in_flight, error)
            return
        part = _find_partition(answer, in_flight.hosted)

        def deliver() -> None:
            self._deliver_response(
                in_flight, errors.UNKNOWN_SERVER_ERROR if part is None else int(part.error_code), part
            )

        failpoints = self._replica_manager().failpoints
        fate = Fate.GO
        if failpoints.armed:
            fate = failpoints.meet(in_flight.site("L.alter_answer"), deliver)
        if fate is Fate.DROPPED:
            await self._time_out(in_flight)
        elif fate is not Fate.HELD:
            deliver()

    async def _request(self, body: Any) -> Any:
        """Send the request; returns the response, or None if there was none."""
        async with self._connection_slots:
            connection = self._free_connections.pop() if self._free_connections else self._dial()
            try:
                return await connection.send_request(ALTER_PARTITION, _ALTER, body, timeout_s=self._timeout_s)
            except Unreachable as unreachable:
                log("warning", "proposal-unanswered", why=unreachable)
                return None
            finally:
                self._free_connections.append(connection)

    def _build_request(self, in_flight: InFlightProposal) -> Any:
        hosted, proposal = in_flight.hosted, in_flight.proposal
        request, parts = request_parts(ALTER_PARTITION, _ALTER)
        part = make(
            parts.PartitionData,
            partition_index=hosted.partition,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=tuple(
                make(parts.BrokerState, broker_id=broker, broker_epoch=epoch)
                for broker, epoch in proposal.isr
            ),
            partition_epoch=proposal.partition_epoch,
        )
        topic = make(parts.TopicData, topic_id=uuid.UUID(hex=hosted.topic_id), partitions=(part,))
        return make(
            request, broker_id=self._config.node_id, broker_epoch=in_flight.broker_epoch, topics=(topic,)
        )

    def _deliver_response(self, in_flight: InFlightProposal, error: int, part: Any = None) -> None:
        hosted, proposal = in_flight.hosted, in_flight.proposal
        failed = error != errors.NONE
        log(
            "info",
            "isr-refused" if failed else "isr",
            topic=hosted.topic,
            partition=hosted.partition,
            asked=",".join(str(broker) for broker, _ in proposal.isr),
            epoch=proposal.leader_epoch,
            error=errors.error_name(error),
        )
        self._replica_manager().post(
            hosted,
            AlterPartitionResponse(
                now_ms=now_ms(),
                proposal=proposal,
                error=error,
                leader_epoch=-1 if failed else part.leader_epoch,
                isr=() if failed else tuple(part.isr),
                partition_epoch=-1 if failed else part.partition_epoch,
            ),
        )


def _find_partition(answer: Any, hosted: HostedPartition) -> Any:
    """Find this partition in the response; None if it is not there."""
    for topic in answer.topics:
        if topic.topic_id is not None and topic.topic_id.hex == hosted.topic_id:
            for part in topic.partitions:
                if part.partition_index == hosted.partition:
                    return part
    return None


def _set_done(released: "asyncio.Future[None]") -> None:
    if not released.done():
        released.set_result(None)


class ProducerIdManager:
    """Assigns producer ids from a block that the controller has allocated."""

    def __init__(self, config: Config, connection: NodeConnection, broker_epoch: Callable[[], int]) -> None:
        self._config = config
        self._connection = connection
        self._broker_epoch = broker_epoch
        self._next = self._end = 0
        self._one_at_a_time = asyncio.Lock()

    async def generate_producer_id(self, timeout_s: float) -> tuple[int, int]:
        """Assign a producer id: (error, producer id)."""
        async with self._one_at_a_time:
            if self._next == self._end:
                error = await self._allocate_block(timeout_s)
                if error:
                    return error, -1
            producer_id, self._next = self._next, self._next + 1
            return errors.NONE, producer_id

    async def _allocate_block(self, timeout_s: float) -> int:
        request, _ = request_parts(ALLOCATE_PRODUCER_IDS, _ALLOCATE)
        body = make(request, broker_id=self._config.node_id, broker_epoch=self._broker_epoch())
        try:
            answer = await self._connection.send_request(
                ALLOCATE_PRODUCER_IDS, _ALLOCATE, body, timeout_s=timeout_s
            )
        except Unreachable:
            return errors.COORDINATOR_NOT_AVAILABLE  # clients retry after this error
        if answer.error_code:
            return errors.COORDINATOR_NOT_AVAILABLE
        self._next, self._end = answer.producer_id_start, answer.producer_id_start + answer.producer_id_len
        return errors.NONE
