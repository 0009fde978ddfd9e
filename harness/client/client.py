"""Implements the client of record, which sends each request once and returns exactly what is known of it.

Rules
1. Each process has a client with connections of its own, so a stuck one blocks no other process. A request is
   sent once and never retried.
2. Connecting, metadata and the request itself each have a time-out. A fail is returned after a wait.
3. Clients that share Produce requests (brokers.py) send those on connections of their own; an answer
   is as exact as that of a request for one partition.
4. OFFSET_OUT_OF_RANGE or a diverging epoch in a poll ends the process (`over`): the log no longer has the
   records that it had read.
5. Where the settings ask for it, sends are those of an IdempotentProducer, and rules 1 to 3 are not theirs.
6. If the first batch of an answer cannot be read, it is fetched again on a new connection. After
   CORRUPT_TRIES the poll says where and why (`corrupt`), and the process goes on behind it, if the answer has
   more. A later batch may be cut off (KIP-74); it will be the first of the next answer. The first one may be
   too if several partitions were asked for, or the answer is as long as it may be.

Rules of the idempotent producer (KIP-98), which sends each batch, with the same sequence number, until it is
acked or its time is over
1. A sequence number belongs to one batch for ever: it is taken when the batch is made, and the batch's bytes
   never change.
2. Batches in flight go over one connection, in order. All are answered or given up before any is sent again,
   those that were not acked first.
3. A send that is not ok is the producer's last: after it a batch may be missing in its sequence. So it never
   needs another epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from kafka.protocol.producer import InitProducerIdRequest

from floodmark.harness import record_batches, runtime
from floodmark.harness.client import classify, codec
from floodmark.harness.client.brokers import Address, Brokers, SharedRequests, Target
from floodmark.harness.client.classify import NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH, name_of
from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent, connect
from floodmark.harness.client.settings import ClientSettings, FailureDelay
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import LogOffset, Outcome, Read, Send, Type, Unreadable

ACKS = {"all": -1, "1": 1, "0": 0}
CORRUPT_TRIES = 3
_CORRUPT = "CORRUPT_MESSAGE"
_NO_LEADER = "LEADER_NOT_AVAILABLE"
_UNSUPPORTED = "UNSUPPORTED_VERSION"


@dataclass(slots=True, kw_only=True)
class _Position:
    offset: int = 0
    last_epoch: int = -1  # of the record before offset
    corrupt: int = 0  # answers in a row whose first batch, here, could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionReads:
    reads: tuple[Read, ...] = ()
    corrupt: tuple[Unreadable, ...] = ()
    error: str | None = None


class Client:
    """The client of one process. `bootstrap`: node -> address for clients. `random` chooses the brokers to
    ask for metadata and varies the waits; `dial` opens connections; `shared`: the Produce requests that it
    shares with other clients, if its settings say so."""

    def __init__(self, config: ClientSettings, bootstrap: Callable[[], Mapping[str, Address]], random: Random,
                 *, dial: Dial = connect, shared: SharedRequests | None = None) -> None:
        self.over = False
        self._shared = shared if config.shares_requests else None
        if self._shared is not None:
            self._shared.join()
        self._config = config
        self._brokers = Brokers(config, bootstrap, random, dial)
        self._leaders = self._brokers.leaders
        self._producer = (
            IdempotentProducer(config, self._brokers, random, self._encode_batch)
            if config.in_flight else None)
        self._encoders: dict[tuple[int, int, int], codec.ProduceEncoder] = {}
        self._positions: dict[int, _Position] = {}
        self._delay = FailureDelay(config.pause_s, random)

    async def send(self, sends: tuple[Send, ...], *, node: str | None = None, acks: str | None = None,
                   patience_s: float | None = None) -> Outcome:
        """node: even if it does not lead. acks, patience_s (of leader and client) override the settings."""
        if self._producer is not None:
            if node is not None or acks is not None:
                raise FloodmarkError("a scripted send with to or acks needs the log workload: an idempotent "
                                     "producer sends to the leader, with acks=all")
            outcome = await self._producer.send(sends, patience_s)
            self.over = self.over or outcome.type is not Type.OK
            return outcome
        extra_s = max(0.0, (patience_s or 0.0) - self._config.request_timeout_s)
        outcome = await self._send(sends[0].partition, sends, node, ACKS[acks or self._config.acks], extra_s)
        return await self._delay.wait_after(outcome)

    def assign(self, keys: Iterable[int]) -> None:
        """For polls; those that were assigned before keep their position, others start at 0."""
        self._positions = {key: self._positions.get(key, _Position()) for key in keys}

    def seek(self, keys: Iterable[int], offset: int) -> None:
        for key in keys:
            self._positions[key] = _Position(offset=offset)

    async def poll(self, *, node: str | None = None) -> Outcome:
        """Read the assigned partitions, over records that are not ours: ok if any partition answered; a fail
        has read nothing. So an ok poll without reads got an answer that had nothing at the position. `node`:
        read from that node even if it does not lead."""
        while True:
            before = {key: at.offset for key, at in self._positions.items()}
            outcome = await self._poll_once(node)
            moved = before != {key: at.offset for key, at in self._positions.items()}
            if outcome.reads or outcome.corrupt or outcome.type is not Type.OK or not moved:
                return await self._delay.wait_after(outcome)

    async def _poll_once(self, node: str | None) -> Outcome:
        by_node: dict[int | str, list[int]] = {}
        parts: list[_PartitionReads] = []
        for key in self._positions:
            if (target := node or await self._brokers.find_leader(key)) is None:
                parts.append(_PartitionReads(error=_NO_LEADER))
            else:
                by_node.setdefault(target, []).append(key)
        for fetched in await asyncio.gather(*(self._fetch(*one) for one in by_node.items())):
            parts += fetched
        reads = tuple(read for part in parts for read in part.reads)
        errors = [part.error for part in parts if part.error]
        if reads or len(errors) < len(parts):
            return Outcome(type=Type.OK, reads=reads,
                           corrupt=tuple(place for part in parts for place in part.corrupt))
        return Outcome(type=Type.FAIL, error=errors[0] if errors else None)

    async def list_offsets(self, keys: Iterable[int], *, node: str | None = None) -> Outcome:
        """As a consumer under read_uncommitted does: ok only if every partition answered. `node`: ask that
        node even if it does not lead. The beginnings too, where the settings say so, if a broker tells them.
        """
        offsets, starts = [], []
        for key in keys:
            end = await self._request_offset(key, node)
            if isinstance(end, str):
                return await self._delay.wait_after(Outcome(type=Type.FAIL, error=end))
            offsets.append(end)
            if self._config.lists_starts:
                start = await self._request_offset(key, node, first=True)
                starts += [] if isinstance(start, str) else [start]
        return await self._delay.wait_after(
            Outcome(type=Type.OK, offsets=tuple(offsets), starts=tuple(starts)))

    async def close(self) -> None:
        if self._shared is not None:
            self._shared.leave()
            self._shared = None
        self._brokers.close()

    async def _send(self, key: int, sends: tuple[Send, ...], to: str | None, acks: int, extra_s: float
                    ) -> Outcome:
        """extra_s: how much longer than configured the leader and the client wait."""
        config, values = self._config, [send.value for send in sends]
        leader_waits_ms = config.produce_timeout_ms + round(1000 * extra_s)
        client_waits_s = config.request_timeout_s + extra_s
        if (node := to or await self._brokers.find_leader(key)) is None:
            return classify.unanswered(sends, began=False, error=_NO_LEADER)
        try:
            if self._shared is not None and acks != 0 and node in self._brokers.addresses:
                target = Target(
                    address=self._brokers.addresses[node], acks=acks, timeout_ms=leader_waits_ms,
                    timeout_s=client_waits_s, connect_timeout_s=config.connect_timeout_s)
                answer: tuple[int, int] | None = await self._shared.produce(
                    target, config.keys[key], self._encode_batch(key, values))
            else:
                connection = await self._brokers.connect(node)
                if (encoder := self._encoders.get((key, acks, leader_waits_ms))) is None:
                    encoder = codec.ProduceEncoder(*config.keys[key], acks, leader_waits_ms)
                    self._encoders[key, acks, leader_waits_ms] = encoder
                answer = await encoder.produce(connection, self._encode_batch(key, values), client_waits_s)
        except (Unsent, Lost, codec.ProtocolError) as failure:
            if not isinstance(failure, codec.Unserved):
                self._leaders.doubt(key)
            began = not isinstance(failure, Unsent | codec.Unserved)
            return classify.unanswered(sends, began=began, error=_describe_failure(failure))
        if answer is None:  # with acks=0 no response comes
            return Outcome(type=Type.INFO, sends=sends)
        if answer[0] != NONE:
            self._leaders.doubt(key)
        return classify.answered(sends, *answer)

    def _encode_batch(self, key: int, values: Sequence[int],
                      producer: tuple[int, int, int] = record_batches.NOT_IDEMPOTENT) -> bytes:
        config, now_ms = self._config, runtime.current.time_ns() // 1_000_000
        if key in config.without_headers:
            return record_batches.encode(values, config.run_id, now_ms, headers=False)
        return record_batches.encode(values, config.run_id, now_ms, compressed=config.compression == "gzip",
                            producer=producer)

    async def _fetch(self, node: int | str, keys: list[int]) -> list[_PartitionReads]:
        config = self._config
        wanted = {config.keys[key]: codec.FetchFrom(at.offset, self._leaders.epoch(key), at.last_epoch)
                  for key in keys for at in (self._positions[key],)}
        try:
            connection = await self._brokers.connect(node)
            fetched = await codec.fetch(
                connection, wanted, config.request_timeout_s + config.fetch_wait_ms / 1000,
                max_wait_ms=config.fetch_wait_ms, min_bytes=config.fetch_min_bytes,
                max_bytes=config.fetch_max_bytes)
        except (Unsent, Lost, codec.ProtocolError) as error:
            for key in keys:
                self._leaders.doubt(key)
            return [_PartitionReads(error=_describe_failure(error))]
        parts = [self._process_fetched(key, fetched.get(config.keys[key]), alone=len(keys) == 1)
                 for key in keys]
        if any(part.error == _CORRUPT for part in parts):
            connection.abort()
        return parts

    def _process_fetched(self, key: int, fetched: codec.FetchedPartition | None, *, alone: bool
                         ) -> _PartitionReads:
        """Read one partition's records, and move its position to their end. alone: only it was asked for."""
        at = self._positions[key]
        if fetched is None:
            return _PartitionReads(error=classify.CONNECTION)
        if fetched.error == OFFSET_OUT_OF_RANGE or fetched.diverging:
            self.over = True
            return _PartitionReads(error=name_of(OFFSET_OUT_OF_RANGE))
        if fetched.error != NONE:
            self._leaders.doubt(key)
            return _PartitionReads(error=name_of(fetched.error))
        if fetched.withheld is not None:
            return _PartitionReads(error=fetched.withheld)
        reads, batches = [], 0
        try:
            for one in record_batches.decode(fetched.records, self._config.run_id):
                batches, at.corrupt = batches + 1, 0
                for offset, value in one.values:
                    if value is not None and offset >= at.offset:  # a batch may begin below the asked offset
                        reads.append(Read(partition=key, offset=offset, value=value, epoch=one.epoch))
                if one.last_offset >= at.offset:
                    at.offset, at.last_epoch = one.last_offset + 1, one.epoch
                    self._leaders.is_latest(key, one.epoch)  # a leader's is not lower than its records'
        except record_batches.Corrupt as corrupt:
            if not batches:
                return self._process_corrupt(key, fetched, corrupt)
        if fetched.records and not batches:
            room = at.offset < fetched.hw and len(fetched.records) < self._config.fetch_max_bytes
            cut_off = record_batches.Corrupt("it is cut off", "length" if alone and room else None)
            return self._process_corrupt(key, fetched, cut_off)
        return _PartitionReads(reads=tuple(reads))

    def _process_corrupt(self, key: int, fetched: codec.FetchedPartition, corrupt: record_batches.Corrupt
                         ) -> _PartitionReads:
        """Move behind it at the last try. Without a `why` it may be no damage: it is cut off rightly, or this
        reader lacks its compression."""
        at = self._positions[key]
        at.corrupt += corrupt.why is not None
        if corrupt.why is None or at.corrupt < CORRUPT_TRIES:
            return _PartitionReads(error=_CORRUPT)
        first, offset = at.corrupt == CORRUPT_TRIES, at.offset
        behind = record_batches.offset_behind(fetched.records, corrupt, fetched.hw)
        moves = behind is not None and behind > offset
        if behind is not None and moves:
            self._positions[key] = _Position(offset=behind)
        if not first:
            return _PartitionReads(error=None if moves else _CORRUPT)
        place = corrupt.offset if offset <= corrupt.offset < fetched.hw else offset
        return _PartitionReads(corrupt=(Unreadable(partition=key, offset=place, why=corrupt.why),))

    async def _request_offset(self, key: int, target: str | None, *, first: bool = False) -> LogOffset | str:
        if (node := target or await self._brokers.find_leader(key)) is None:
            return _NO_LEADER
        place = self._config.keys[key]
        try:
            found = (await codec.list_offsets(
                await self._brokers.connect(node), {place: self._leaders.epoch(key)},
                self._config.request_timeout_s, first=first)).get(place)
        except (Unsent, Lost, codec.ProtocolError) as failure:
            self._leaders.doubt(key)
            return _describe_failure(failure)
        if found is not None and found.error_code == NONE and found.offset >= 0:
            epoch = -1 if first else found.leader_epoch
            if self._leaders.is_latest(key, epoch):
                return LogOffset(key, found.offset, None if epoch < 0 else epoch)
            return name_of(UNKNOWN_LEADER_EPOCH)  # as that leader would have answered, had it been named
        self._leaders.doubt(key)
        return classify.CONNECTION if found is None else name_of(found.error_code)


def wire_clients(
    bootstrap: Callable[[], Mapping[str, Address]],
) -> Callable[[ClientSettings, Random], Client]:
    shared = SharedRequests(connect)
    return lambda settings, random: Client(settings, bootstrap, random, shared=shared)


def _describe_failure(failure: Exception) -> str:
    if isinstance(failure, codec.Unserved):
        return _UNSUPPORTED
    return classify.TIMEOUT if isinstance(failure, Lost) and failure.timed_out else classify.CONNECTION


# -- the idempotent producer ---------------------------------------------------------------------------------

DELIVERY_TIMEOUT_S = 3.0
_BACKOFF_S = (0.02, 0.1)
_SMALL_BATCH = 2  # records: so that a send has several batches in flight
_NO_ANSWER = (classify.NETWORK_EXCEPTION, -1)  # error and base offset, as Kafka's own producer has it

Answer = TypeVar("Answer")
Encode = Callable[[int, Sequence[int], tuple[int, int, int]], bytes]  # key, values, producer


class _Refused(Exception):
    """An error after which a Kafka producer does not try again."""

    def __init__(self, error: int) -> None:
        super().__init__(name_of(error))


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
                elif error == NONE:
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
            if error == NONE:
                self._identity = found.producer_id, found.producer_epoch
            elif classify.is_retried(error, first=True):
                self._leaders.doubt(key)
                await delay.wait()
            else:
                raise _Refused(error)
        return self._identity

    async def _try(self, key: int, batches: Sequence[_Batch]) -> list[tuple[int, int] | None]:
        """Send each once: (error, base offset) of each, None where no answer came."""
        if (connection := await _answered(self._connect(key))) is None:
            return [None] * len(batches)
        encoder = codec.ProduceEncoder(*self._config.keys[key], ACKS["all"], self._config.produce_timeout_ms)
        return await asyncio.gather(*(
            _answered(encoder.produce(connection, batch.data, self._config.request_timeout_s))
            for batch in batches))

    async def _connect(self, key: int) -> Connection:
        if (node := await self._brokers.find_leader(key)) is None:
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
