"""Sends the batches of several processes to one broker in one Produce request, as a Kafka producer does for
its threads.

Rules
1. A request has one batch of each partition at most; a second one waits for the next request.
2. A process gets the answer about its own partition alone. If the request was not sent, or its response is
   lost, all processes in it get the same exception.
3. A request is sent LINGER_S after its first batch, on a connection that has no open request.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from floodmark.harness.client import codec
from floodmark.harness.client.codec import TopicPartition
from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent

LINGER_S = 0.002
Answer = tuple[int, int]  # error, base offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """timeout_s: how long the client waits."""

    address: tuple[str, int]
    acks: int
    timeout_ms: int
    timeout_s: float
    connect_timeout_s: float


@dataclass(slots=True, kw_only=True)
class _Request:
    target: Target
    batches: dict[TopicPartition, tuple[bytes, asyncio.Future[Answer]]] = field(default_factory=dict)

    def unanswered(self) -> Mapping[TopicPartition, tuple[bytes, asyncio.Future[Answer]]]:
        """Without those whose process no longer waits."""
        return {place: waiting for place, waiting in self.batches.items() if not waiting[1].done()}


class SharedRequests:
    """The Produce requests of all clients that share them, with connections of their own."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._users = 0
        self._waiting: dict[Target, _Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: dict[tuple[str, int], list[Connection]] = {}

    def join(self) -> None:
        self._users += 1

    def leave(self) -> None:
        """A client has closed; with the last one all requests and connections end."""
        self._users -= 1
        if self._users:
            return
        for task in self._tasks:
            task.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def produce(self, target: Target, place: TopicPartition, records: bytes) -> Answer:
        """(error, base offset) of the partition. Raises Unsent, Lost or codec.ProtocolError."""
        request = self._waiting.get(target)
        if request is None or place in request.batches:
            request = self._waiting[target] = _Request(target=target)
            task = asyncio.get_running_loop().create_task(self._send_later(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        request.batches[place] = records, answer
        return await answer

    async def _send_later(self, request: _Request) -> None:
        await asyncio.sleep(LINGER_S)
        if self._waiting.get(request.target) is request:
            del self._waiting[request.target]
        waiting = request.unanswered()
        if not waiting:
            return
        try:
            answers = await self._exchange(request.target, {place: one[0] for place, one in waiting.items()})
        except (Unsent, Lost, codec.ProtocolError) as error:
            for _, answer in request.unanswered().values():
                answer.set_exception(error)
            return
        for place, (_, answer) in request.unanswered().items():
            if place in answers:
                answer.set_result(answers[place])
            else:  # the broker may have appended it
                answer.set_exception(Lost(timed_out=False))

    async def _exchange(self, target: Target, batches: Mapping[TopicPartition, bytes]
                        ) -> Mapping[TopicPartition, Answer]:
        idle = self._idle.setdefault(target.address, [])
        connection = idle.pop() if idle else None
        if connection is None or not connection.usable:
            connection = await self._dial(*target.address, target.connect_timeout_s)
        try:
            answers = await codec.produce(connection, batches, target.timeout_s, acks=target.acks,
                                          timeout_ms=target.timeout_ms)
        except codec.ProtocolError:
            connection.abort()
            raise
        idle.append(connection)
        return {place: (part.error_code, part.base_offset) for place, part in answers.items()}
