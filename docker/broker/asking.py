"""What a broker asks of the controller beside its heartbeats: ISR changes, producer ids, topics, elections.

Rules
1. ISR changes that wait are sent together, one request in flight; each replica hears its own answer, or
   NETWORK_EXCEPTION when none came, and then proposes again.
2. A producer id is given out once: from a block that the controller has made durable, kept in memory only.
3. Every request has a time-out; nothing here is retried but by whoever asked.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from broker import errors
from broker.config import Config
from broker.dialling import Line, Unreachable
from broker.hosting import Host, Hosted, now_ms
from broker.logline import die, log
from broker.messages import AlterAnswered, ProposeIsr
from broker.wire import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, make, request_parts

_ALTER, _ALLOCATE = 3, 0
_PAUSE_S = 0.05  # after a request that failed


class Proposals:
    """AlterPartition, for all replicas that lead here."""

    def __init__(
        self, config: Config, line: Line, host: Callable[[], Host], broker_epoch: Callable[[], int]
    ) -> None:
        self._config = config
        self._line = line
        self._host = host
        self._broker_epoch = broker_epoch
        self._waiting: list[tuple[Hosted, ProposeIsr]] = []
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="proposals")

    def add(self, hosted: Hosted, proposal: ProposeIsr) -> None:
        self._waiting.append((hosted, proposal))
        self._more.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._line.close()

    async def _run(self) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                proposals, self._waiting = self._waiting, []
                if proposals:
                    await self._send(proposals)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            die("proposals-failed", error)

    async def _send(self, proposals: list[tuple[Hosted, ProposeIsr]]) -> None:
        timeout_s = max(self._config.heartbeat_interval_ms, self._config.session_timeout_ms / 2) / 1000
        try:
            answer = await self._line.ask(
                ALTER_PARTITION, _ALTER, self._body(proposals), timeout_s=timeout_s
            )
        except Unreachable as unreachable:
            log("warning", "proposal-unanswered", why=unreachable)
            await asyncio.sleep(_PAUSE_S)
            self._tell_all(proposals, errors.NETWORK_EXCEPTION)
            return
        if answer.error_code:
            await asyncio.sleep(_PAUSE_S)
            self._tell_all(proposals, int(answer.error_code))
            return
        told = {
            (topic.topic_id.hex, part.partition_index): part
            for topic in answer.topics
            if topic.topic_id is not None
            for part in topic.partitions
        }
        for hosted, proposal in proposals:
            part = told.get((hosted.topic_id, hosted.partition))
            if part is None:
                self._tell(hosted, proposal, errors.UNKNOWN_SERVER_ERROR)
                continue
            self._tell(hosted, proposal, int(part.error_code), part)

    def _body(self, proposals: list[tuple[Hosted, ProposeIsr]]) -> Any:
        request, parts = request_parts(ALTER_PARTITION, _ALTER)
        topics: dict[str, list[Any]] = {}
        for hosted, proposal in proposals:
            isr = tuple(
                make(parts.BrokerState, broker_id=broker, broker_epoch=epoch)
                for broker, epoch in proposal.isr
            )
            topics.setdefault(hosted.topic_id, []).append(
                make(
                    parts.PartitionData,
                    partition_index=hosted.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=isr,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return make(
            request,
            broker_id=self._config.node_id,
            broker_epoch=self._broker_epoch(),
            topics=tuple(
                make(parts.TopicData, topic_id=uuid.UUID(hex=topic_id), partitions=tuple(each))
                for topic_id, each in topics.items()
            ),
        )

    def _tell_all(self, proposals: list[tuple[Hosted, ProposeIsr]], error: int) -> None:
        for hosted, proposal in proposals:
            self._tell(hosted, proposal, error)

    def _tell(self, hosted: Hosted, proposal: ProposeIsr, error: int, part: Any = None) -> None:
        failed = error != errors.NONE
        log(
            "info",
            "isr-refused" if failed else "isr",
            topic=hosted.topic,
            partition=hosted.partition,
            asked=",".join(str(broker) for broker, _ in proposal.isr),
            epoch=proposal.leader_epoch,
            error=errors.name_of(error),
        )
        self._host().post(
            hosted,
            AlterAnswered(
                now_ms=now_ms(),
                proposal=proposal,
                error=error,
                leader_epoch=-1 if failed else part.leader_epoch,
                isr=() if failed else tuple(part.isr),
                partition_epoch=-1 if failed else part.partition_epoch,
            ),
        )


class ProducerIds:
    """The block of producer ids this broker gives out from."""

    def __init__(self, config: Config, line: Line, broker_epoch: Callable[[], int]) -> None:
        self._config = config
        self._line = line
        self._broker_epoch = broker_epoch
        self._next = self._end = 0
        self._one_at_a_time = asyncio.Lock()

    async def take(self, timeout_s: float) -> tuple[int, int]:
        """(error, producer id)."""
        async with self._one_at_a_time:
            if self._next == self._end:
                error = await self._allocate(timeout_s)
                if error:
                    return error, -1
            taken, self._next = self._next, self._next + 1
            return errors.NONE, taken

    async def _allocate(self, timeout_s: float) -> int:
        request, _ = request_parts(ALLOCATE_PRODUCER_IDS, _ALLOCATE)
        body = make(request, broker_id=self._config.node_id, broker_epoch=self._broker_epoch())
        try:
            answer = await self._line.ask(ALLOCATE_PRODUCER_IDS, _ALLOCATE, body, timeout_s=timeout_s)
        except Unreachable:
            return errors.COORDINATOR_NOT_AVAILABLE  # what clients ask again after
        if answer.error_code:
            return errors.COORDINATOR_NOT_AVAILABLE
        self._next, self._end = answer.producer_id_start, answer.producer_id_start + answer.producer_id_len
        return errors.NONE
