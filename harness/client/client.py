"""The client of record: tries once and says exactly what it knows. One client serves one process.

Rules
1. Connections of its own, so that a stuck one blocks nobody else; a request is sent once and never again.
2. Every wait ends: connecting, metadata and the request itself have time-outs of their own.
3. A definite failure is answered after a wait that doubles from one failure to the next, so that a partition
   without a leader gives slow, definite failures and no busy loop.
4. OFFSET_OUT_OF_RANGE or a diverging epoch under a reader ends the process (`over`): what it had read is no
   longer what the log holds.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from floodmark.harness.client import batch, classify, codec
from floodmark.harness.client.connection import Connection, Lost, Unsent, connect
from floodmark.harness.client.error_names import NONE, OFFSET_OUT_OF_RANGE, name_of
from floodmark.harness.client.leaders import Leaders
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.op import Outcome, Read, Send, Type

Address = tuple[str, int]
ACKS = {"all": -1, "1": 1, "0": 0}
_NO_LEADER = "LEADER_NOT_AVAILABLE"
_UNSPOKEN = "UNSUPPORTED_VERSION"


@dataclass(slots=True, kw_only=True)
class _Position:
    offset: int = 0
    last_epoch: int = -1  # of the record before offset


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """How one send is to be acked, and waited for."""

    acks: str
    patience_s: float | None = None

    def longer_s(self, config: ClientSettings) -> float:
        """How much longer than configured leader and client wait."""
        return 0.0 if self.patience_s is None else max(0.0, self.patience_s - config.request_timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one node answered to a poll."""

    reads: tuple[Read, ...] = ()
    error: str | None = None


class Client:
    """bootstrap: node -> where clients reach it. random shuffles whom to ask for metadata and spreads the
    waits; now_ms stamps records."""

    def __init__(self, config: ClientSettings, bootstrap: Callable[[], Mapping[str, Address]], random: Random,
                 now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.over = False
        self._config = config
        self._bootstrap = bootstrap
        self._random = random
        self._now_ms = now_ms
        self._ending = batch.ending(config.run_id)
        self._topics = sorted({topic for topic, _ in config.keys.values()})
        self._leaders = Leaders(config.keys)
        self._addresses: dict[int, Address] = {}
        self._connections: dict[int | str, Connection] = {}  # by id; by name, where a name was asked for
        self._encoders: dict[tuple[int, _How], codec.ProduceEncoder] = {}
        self._positions: dict[int, _Position] = {}
        self._failures = 0

    # -- what a process can ask -----------------------------------------------------------------------

    async def send(self, sends: tuple[Send, ...], *, node: str | None = None, acks: str | None = None,
                   patience_s: float | None = None) -> Outcome:
        """All sends go to one partition, in one batch. node: to that one, whoever leads; acks, patience_s (of
        leader and client): other than configured."""
        how = _How(acks=acks or self._config.acks, patience_s=patience_s)
        outcome = await self._send(sends[0].partition, sends, node, how)
        return await self._after(outcome)

    def assign(self, keys: Iterable[int]) -> None:
        """Polls read these from now on; a partition held already keeps its position, others begin at 0."""
        self._positions = {key: self._positions.get(key, _Position()) for key in keys}

    def seek(self, keys: Iterable[int], offset: int) -> None:
        """Polls of these, assigned before, go on from there."""
        for key in keys:
            self._positions[key] = _Position(offset=offset)

    async def poll(self, *, node: str | None = None) -> Outcome:
        """What the partitions assigned hold next. ok if any partition answered; a fail has read nothing.
        node: ask that one, whoever leads."""
        by_node: dict[int | str, list[int]] = {}
        parts: list[_Part] = []
        for key in self._positions:
            asked = node or await self._led(key)
            if asked is None:
                parts.append(_Part(error=_NO_LEADER))
            else:
                by_node.setdefault(asked, []).append(key)
        parts += await asyncio.gather(*(self._fetch(asked, keys) for asked, keys in by_node.items()))
        reads = tuple(read for part in parts for read in part.reads)
        errors = [part.error for part in parts if part.error]
        if reads or len(errors) < len(parts):
            return await self._after(Outcome(type=Type.OK, reads=reads))
        return await self._after(Outcome(type=Type.FAIL, error=errors[0] if errors else None))

    async def list_offsets(self, keys: Iterable[int], *, node: str | None = None) -> Outcome:
        """The end offsets, as a consumer is told them; ok only if every partition answered. node: ask that
        one, whoever leads."""
        offsets = []
        for key in keys:
            error, offset = await self._end_offset(key, node)
            if error:
                return await self._after(Outcome(type=Type.FAIL, error=error))
            offsets.append((key, offset))
        return await self._after(Outcome(type=Type.OK, offsets=tuple(offsets)))

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- sends ------------------------------------------------------------------------------------------

    async def _send(self, key: int, sends: tuple[Send, ...], to: str | None, how: _How) -> Outcome:
        node = to or await self._led(key)
        if node is None:
            return classify.unanswered(sends, began=False, error=_NO_LEADER)
        values = [send.value for send in sends]
        try:
            connection = await self._connection(node)
            version = codec.version_for(codec.PRODUCE, connection.versions)
            encoder = self._encoder(key, how)
            frame = encoder.encode(batch.encode(values, self._ending, self._now_ms()), version)
            if how.acks == "0":
                connection.tell(frame)
                return classify.unasked(sends)
            answer = await connection.ask(frame, self._config.request_timeout_s + how.longer_s(self._config))
        except Unsent:
            self._leaders.doubt(key)
            return classify.unanswered(sends, began=False, error=classify.CONNECTION)
        except codec.Unspoken:
            return classify.unanswered(sends, began=False, error=_UNSPOKEN)
        except Lost as lost:
            self._leaders.doubt(key)
            return classify.unanswered(sends, began=True, error=_silence(lost))
        try:
            error, base_offset = encoder.decode(answer, version)
        except codec.Unspoken:
            connection.abort()
            return classify.unanswered(sends, began=True, error=classify.CONNECTION)
        if error != NONE:
            self._leaders.doubt(key)
        return classify.answered(sends, error, base_offset)

    def _encoder(self, key: int, how: _How) -> codec.ProduceEncoder:
        encoder = self._encoders.get((key, how))
        if encoder is None:
            topic, partition = self._config.keys[key]
            timeout_ms = self._config.produce_timeout_ms + round(1000 * how.longer_s(self._config))
            encoder = codec.ProduceEncoder(topic, partition, ACKS[how.acks], timeout_ms)
            self._encoders[key, how] = encoder
        return encoder

    # -- reads ------------------------------------------------------------------------------------------

    async def _fetch(self, node: int | str, keys: list[int]) -> _Part:
        config = self._config
        asks = []
        for key in keys:
            topic, partition = config.keys[key]
            at = self._positions[key]
            asks.append(codec.FetchAsk(
                topic=topic, partition=partition, leader_epoch=self._leaders.epoch(key), offset=at.offset,
                last_epoch=at.last_epoch))
        try:
            connection = await self._connection(node)
            version = codec.version_for(codec.FETCH, connection.versions)
            request = codec.fetch_request(asks, version, max_wait_ms=config.fetch_wait_ms,
                                          min_bytes=config.fetch_min_bytes, max_bytes=config.fetch_max_bytes)
            answer = await connection.ask(request, config.request_timeout_s + config.fetch_wait_ms / 1000)
            fetched = codec.fetch_answer(answer, version)
        except (Unsent, Lost, codec.Unspoken) as error:
            for key in keys:
                self._leaders.doubt(key)
            return _Part(error=_silence(error))
        parts = [self._taken(key, fetched.get(config.keys[key])) for key in keys]
        errors = [part.error for part in parts if part.error]
        return _Part(reads=tuple(read for part in parts for read in part.reads),
                     error=errors[0] if len(errors) == len(parts) else None)

    def _taken(self, key: int, fetched: codec.Fetched | None) -> _Part:
        """What one partition answered; moves the position behind it."""
        at = self._positions[key]
        if fetched is None:
            return _Part(error=classify.CONNECTION)
        if fetched.error == OFFSET_OUT_OF_RANGE or fetched.diverging:
            self.over = True
            return _Part(error=name_of(OFFSET_OUT_OF_RANGE))
        if fetched.error != NONE:
            self._leaders.doubt(key)
            return _Part(error=name_of(fetched.error))
        reads = []
        try:
            batches = list(batch.decode(fetched.records, self._ending))
        except batch.Corrupt:
            return _Part(error="CORRUPT_MESSAGE")
        for one in batches:
            for offset, value in one.values:
                if value is not None and offset >= at.offset:  # a batch may begin below what was asked
                    reads.append(Read(partition=key, offset=offset, value=value, epoch=one.epoch))
            if one.last_offset >= at.offset:
                at.offset, at.last_epoch = one.last_offset + 1, one.epoch
        return _Part(reads=tuple(reads))

    async def _end_offset(self, key: int, asked: str | None) -> tuple[str | None, int]:
        node = asked or await self._led(key)
        if node is None:
            return _NO_LEADER, -1
        topic, partition = self._config.keys[key]
        try:
            connection = await self._connection(node)
            version = codec.version_for(codec.LIST_OFFSETS, connection.versions)
            request = codec.end_offset_request(topic, partition, self._leaders.epoch(key), version)
            answer = await connection.ask(request, self._config.request_timeout_s)
            error, offset = codec.end_offset_answer(answer, version)
        except (Unsent, Lost, codec.Unspoken) as problem:
            self._leaders.doubt(key)
            return _silence(problem), -1
        if error == NONE and offset >= 0:
            return None, offset
        self._leaders.doubt(key)
        return name_of(error), -1

    # -- whom to ask --------------------------------------------------------------------------------------

    async def _led(self, key: int) -> int | None:
        """The node that leads, after asking for metadata where it is not known."""
        if self._leaders.leader(key) is None:
            await self._refresh()
        return self._leaders.leader(key)

    async def _refresh(self) -> None:
        """Asks two brokers at most; what the first tells is taken. Brokers that metadata leaves out (fenced
        when it was told) stay candidates by their bootstrap address, under a negative id."""
        addresses = dict(self._addresses)
        for number, address in enumerate(self._bootstrap().values(), start=1):
            if address not in self._addresses.values():
                addresses[-number] = address
        nodes = list(addresses)
        self._random.shuffle(nodes)
        for node in nodes[:2]:
            try:
                connection = await self._connection(node, addresses[node])
                version = codec.version_for(codec.METADATA, connection.versions)
                request = codec.metadata_request(self._topics, version)
                answer = await connection.ask(request, self._config.metadata_timeout_s)
                told = codec.metadata_answer(answer, version)
            except (Unsent, Lost, codec.Unspoken):
                continue
            self._addresses.update(told.brokers)
            self._leaders.learn(told)
            return

    async def _connection(self, node: int | str, address: Address | None = None) -> Connection:
        """The connection to a node, by its id or its name, made anew if it broke. Raises Unsent."""
        connection = self._connections.get(node)
        if connection is not None and connection.usable:
            return connection
        known = address or (
            self._bootstrap().get(node) if isinstance(node, str) else self._addresses.get(node))
        if known is None:
            raise Unsent
        connection = await connect(*known, self._config.connect_timeout_s)
        self._connections[node] = connection
        return connection

    async def _after(self, outcome: Outcome) -> Outcome:
        """Holds a definite failure back for a while (rule 3)."""
        if outcome.type is not Type.FAIL:
            self._failures = 0
            return outcome
        first_s, longest_s = self._config.pause_s
        wait_s = min(longest_s, first_s * 2 ** min(self._failures, 16))
        self._failures += 1
        await asyncio.sleep(wait_s * self._random.uniform(0.5, 1.0))
        return outcome


def wire_clients(
    bootstrap: Callable[[], Mapping[str, Address]],
) -> Callable[[ClientSettings, Random], Client]:
    """What makes clients that reach the brokers at these addresses."""
    return lambda settings, random: Client(settings, bootstrap, random)


def _silence(problem: Exception) -> str:
    if isinstance(problem, codec.Unspoken):
        return _UNSPOKEN
    return classify.TIMEOUT if isinstance(problem, Lost) and problem.timed_out else classify.CONNECTION
