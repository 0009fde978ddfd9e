"""Implements an idempotent producer (KIP-98), which sends each batch, with the same sequence number, until it
is acked or its time is over.

Rules
1. A sequence number belongs to one batch for ever: it is taken when the batch is made, and the batch's bytes
   never change.
2. Batches in flight go over one connection, in order. All are answered or given up before any is sent again,
   those that were not acked first.
3. A send that is not ok is the producer's last: after it a batch may be missing in its sequence. So it never
   needs another epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from kafka.protocol.producer import InitProducerIdRequest

from floodmark.harness.client import classify, codec
from floodmark.harness.client.brokers import Brokers
from floodmark.harness.client.connection import Connection, Lost, Unsent
from floodmark.harness.client.settings import ClientSettings, FailureDelay
from floodmark.harness.op import Outcome, Send, Type

DELIVERY_TIMEOUT_S = 3.0
_BACKOFF_S = (0.02, 0.1)
_SMALL_BATCH = 2  # records: so that a send has several batches in flight
_ACKS_ALL = -1
_NO_ANSWER = (classify.NETWORK_EXCEPTION, -1)  # error and base offset, as Kafka's own producer has it

Answer = TypeVar("Answer")
Encode = Callable[[int, Sequence[int], tuple[int, int, int]], bytes]  # key, values, producer


class _Refused(Exception):
    """An error after which a Kafka producer does not try again."""

    def __init__(self, error: int) -> None:
        super().__init__(classify.name_of(error))


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Records with consecutive sequence numbers; base_offset: as acked, -1 if not known."""

    count: int
    data: bytes
    base_offset: int = -1

    def offsets(self) -> list[int]:
        return [self.base_offset + index if self.base_offset >= 0 else -1 for index in range(self.count)]


class IdempotentProducer:
    def __init__(self, config: ClientSettings, brokers: Brokers, random: Random, encode: Encode) -> None:
        self._config, self._brokers = config, brokers
        self._leaders = brokers.leaders
        self._random, self._encode = random, encode
        self._identity: tuple[int, int] | None = None  # producer id and epoch
        self._sequences: dict[int, int] = {}  # partition -> the next one

    async def send(self, sends: Sequence[Send], patience_s: float | None) -> Outcome:
        """Send values to one partition. patience_s: how long they are tried at least."""
        try:
            async with asyncio.timeout(max(DELIVERY_TIMEOUT_S, patience_s or 0.0)):
                offsets = await self._deliver(sends[0].partition, [send.value for send in sends])
        except TimeoutError:
            return Outcome(type=Type.INFO, sends=tuple(sends), error=classify.TIMEOUT)
        except _Refused as refused:
            return Outcome(type=Type.INFO, sends=tuple(sends), error=str(refused))
        return classify.retried(sends, offsets)

    async def _deliver(self, key: int, values: Sequence[int]) -> list[int]:
        """The values' offsets; -1 where the batch is in the log, and no ack says where."""
        delay = FailureDelay(_BACKOFF_S, self._random)
        identity = await self._get_identity(key, delay)
        most = self._config.in_flight
        size = _SMALL_BATCH if most > 1 else len(values)
        batches = list[_Batch]()
        for start in range(0, len(values), size):
            part, sequence = values[start:start + size], self._sequences.get(key, 0)
            self._sequences[key] = sequence + len(part)
            batches.append(_Batch(count=len(part), data=self._encode(key, part, (*identity, sequence))))
        waiting = batches
        while waiting:
            sent, again = waiting[:most], list[_Batch]()
            for batch, answer in zip(sent, await self._try(key, sent), strict=True):
                error, base_offset = answer or _NO_ANSWER
                if classify.is_retried(error, first=not again):
                    again.append(batch)
                elif error == classify.NONE:
                    batch.base_offset = base_offset
                elif error != classify.DUPLICATE_SEQUENCE_NUMBER:
                    raise _Refused(error)
            waiting = [*again, *waiting[most:]]
            if again:
                self._leaders.doubt(key)
                await delay.wait()
        return [offset for batch in batches for offset in batch.offsets()]

    async def _get_identity(self, key: int, delay: FailureDelay) -> tuple[int, int]:
        """The producer id and epoch, requested from the partition's leader, though any broker would do."""
        while self._identity is None:
            connection = await _answered(self._connect(key))
            found: Any = connection and await _answered(codec.ask(
                connection, InitProducerIdRequest, self._config.request_timeout_s, transactional_id=None,
                transaction_timeout_ms=-1, producer_id=-1, producer_epoch=-1))
            error = classify.NETWORK_EXCEPTION if found is None else found.error_code
            if error == classify.NONE:
                self._identity = found.producer_id, found.producer_epoch
            elif classify.is_retried(error, first=True):
                self._leaders.doubt(key)
                await delay.wait()
            else:
                raise _Refused(error)
        return self._identity

    async def _try(self, key: int, batches: Sequence[_Batch]) -> list[tuple[int, int] | None]:
        """Send each once: (error, base offset) of each, None where no answer came."""
        connection = await _answered(self._connect(key))
        if connection is None:
            return [None] * len(batches)
        encoder = codec.ProduceEncoder(*self._config.keys[key], _ACKS_ALL, self._config.produce_timeout_ms)
        return await asyncio.gather(*(
            _answered(encoder.produce(connection, batch.data, self._config.request_timeout_s))
            for batch in batches))

    async def _connect(self, key: int) -> Connection:
        node = await self._brokers.find_leader(key)
        if node is None:
            raise Unsent
        return await self._brokers.connect(node)


async def _answered(asked: Awaitable[Answer]) -> Answer | None:
    """What this returns; None where no answer came."""
    try:
        return await asked
    except codec.Unserved as error:
        raise _Refused(classify.UNSUPPORTED_VERSION) from error
    except (Unsent, Lost, codec.ProtocolError):
        return None
