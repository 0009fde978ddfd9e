"""The client of record for the cluster in memory: it tries each request once and reports exactly what it
knows. Its rules are those of harness/client/client.py, which speaks Kafka's wire: a definite failure is
returned after a delay that doubles, OFFSET_OUT_OF_RANGE or a diverging epoch ends a reader's process, and a
request that may have arrived without an answer is an info. The same classify.py decides what an answer
proves.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from floodmark.broker.protocol.messages import CONSUMER, Batch
from floodmark.harness.client import classify
from floodmark.harness.client.error_names import NONE, OFFSET_OUT_OF_RANGE, name_of
from floodmark.harness.client.failure_delay import FailureDelay
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.cluster.memory.broker import BrokerNode
from floodmark.harness.cluster.memory.disk import decode_values, encode_values
from floodmark.harness.cluster.memory.network import Call, Network
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.requests import Fetched, FetchPartition, FetchQuery
from floodmark.harness.op import Outcome, Read, Send, Type

ACKS = {"all": -1, "1": 1, "0": 0}
_NO_LEADER = "LEADER_NOT_AVAILABLE"


class _Unanswered(Exception):
    """No answer. began: the request may have arrived; timed_out: the client waited for it in vain."""

    def __init__(self, *, began: bool, timed_out: bool = False) -> None:
        super().__init__()
        self.began = began
        self.error = classify.TIMEOUT if timed_out else classify.CONNECTION


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachableBrokers:
    """How clients reach the brokers. `clients`: the process that stands for all clients in the network."""

    network: Network
    clients: Process
    ids: Mapping[str, int]  # by node
    process_of: Callable[[int], Process]
    broker: Callable[[int], BrokerNode]


@dataclass(slots=True, kw_only=True)
class _Position:
    offset: int = 0
    last_epoch: int = -1  # of the record before offset


class MemoryClient:
    """A client of the cluster in memory, see protocols.LogClient."""

    def __init__(self, settings: ClientSettings, random: Random, brokers: ReachableBrokers) -> None:
        self.over = False
        self._settings = settings
        self._random = random
        self._brokers = brokers
        self._leaders: dict[int, int] = {}  # partition -> node, without those that errors put in doubt
        self._epochs: dict[int, int] = {}  # the highest leader epoch seen: lower ones are ignored (KIP-320)
        self._positions: dict[int, _Position] = {}
        self._delay = FailureDelay(settings.pause_s, random)

    # -- requests of a process ------------------------------------------------------------------------

    async def send(
        self,
        sends: tuple[Send, ...],
        *,
        node: str | None = None,
        acks: str | None = None,
        patience_s: float | None = None,
    ) -> Outcome:
        outcome = await self._send(sends, node, acks or self._settings.acks, patience_s or 0.0)
        return await self._delay.wait_after(outcome)

    def assign(self, keys: Iterable[int]) -> None:
        self._positions = {key: self._positions.get(key, _Position()) for key in keys}

    def seek(self, keys: Iterable[int], offset: int) -> None:
        for key in keys:
            self._positions[key] = _Position(offset=offset)

    async def poll(self, *, node: str | None = None) -> Outcome:
        by_node: dict[int, list[int]] = {}
        errors: list[str | None] = []
        for key in self._positions:
            asked = await self._find_leader(key) if node is None else self._brokers.ids[node]
            if asked is None:
                errors.append(_NO_LEADER)
            else:
                by_node.setdefault(asked, []).append(key)
        results = await asyncio.gather(*(self._fetch(asked, keys) for asked, keys in by_node.items()))
        reads = tuple(read for part, _ in results for read in part)
        errors += [error for _, error in results]
        failed = [error for error in errors if error]
        if reads or len(failed) < len(errors):
            return await self._delay.wait_after(Outcome(type=Type.OK, reads=reads))
        return await self._delay.wait_after(Outcome(type=Type.FAIL, error=failed[0] if failed else None))

    async def list_offsets(self, keys: Iterable[int], *, node: str | None = None) -> Outcome:
        offsets = []
        for key in keys:
            error, offset = await self._end_offset(key, node)
            if error:
                return await self._delay.wait_after(Outcome(type=Type.FAIL, error=error))
            offsets.append((key, offset))
        return await self._delay.wait_after(Outcome(type=Type.OK, offsets=tuple(offsets)))

    async def close(self) -> None:
        """Does nothing."""

    # -- requests --------------------------------------------------------------------------------------

    async def _send(
        self, sends: tuple[Send, ...], to: str | None, acks: str, patience_s: float
    ) -> Outcome:
        settings, key = self._settings, sends[0].partition
        node = await self._find_leader(key) if to is None else self._brokers.ids[to]
        if node is None:
            return classify.unanswered(sends, began=False, error=_NO_LEADER)
        longer_s = max(0.0, patience_s - settings.request_timeout_s)
        batch = Batch(
            base_offset=0, last_offset=len(sends) - 1, epoch=-1,
            data=encode_values([send.value for send in sends]),
        )  # fmt: skip
        timeout_ms = settings.produce_timeout_ms + round(1000 * longer_s)

        def produce(broker: BrokerNode, call: Call) -> None:
            broker.requests.produce(
                call, settings.keys[key], acks=ACKS[acks], timeout_ms=timeout_ms, batch=batch
            )

        asked = self._ask(node, produce, settings.request_timeout_s + longer_s)
        if acks == "0":
            asked.add_done_callback(_ignore_result)
            return classify.unasked(sends)
        try:
            error, base_offset = await asked
        except _Unanswered as why:
            self._leaders.pop(key, None)
            return classify.unanswered(sends, began=why.began, error=why.error)
        if error != NONE:
            self._leaders.pop(key, None)
        return classify.answered(sends, error, base_offset)

    async def _fetch(self, node: int, keys: list[int]) -> tuple[tuple[Read, ...], str | None]:
        """The reads, and the error if every partition answered with one."""
        settings = self._settings
        query = FetchQuery(
            replica=CONSUMER, broker_epoch=-1, max_wait_ms=settings.fetch_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            partitions=[
                FetchPartition(
                    key=settings.keys[key], offset=self._positions[key].offset,
                    current_leader_epoch=self._epochs.get(key, -1),
                    last_fetched_epoch=self._positions[key].last_epoch, max_bytes=settings.fetch_max_bytes,
                )
                for key in keys
            ],
        )  # fmt: skip
        timeout_s = settings.request_timeout_s + settings.fetch_wait_ms / 1000
        try:
            fetched = await self._ask(
                node, lambda broker, call: broker.requests.fetch(call, query), timeout_s)
        except _Unanswered as why:
            for key in keys:
                self._leaders.pop(key, None)
            return (), why.error
        parts = [self._reads_of(key, fetched.get(settings.keys[key])) for key in keys]
        errors = [error for _, error in parts if error]
        reads = tuple(read for part, _ in parts for read in part)
        return reads, errors[0] if len(errors) == len(parts) else None

    def _reads_of(self, key: int, fetched: Fetched | None) -> tuple[tuple[Read, ...], str | None]:
        """The reads or the error of one partition's answer; moves the position after the last read."""
        at = self._positions[key]
        if fetched is None:
            return (), classify.CONNECTION
        if fetched.error == OFFSET_OUT_OF_RANGE or fetched.diverging is not None:
            self.over = True
            return (), name_of(OFFSET_OUT_OF_RANGE)
        if fetched.error != NONE:
            self._leaders.pop(key, None)
            return (), name_of(fetched.error)
        reads = []
        for batch in fetched.batches:
            for offset, value in decode_values(batch):
                if offset >= at.offset:  # a batch may begin below the requested offset
                    reads.append(Read(partition=key, offset=offset, value=value, epoch=batch.epoch))
            if batch.last_offset >= at.offset:
                at.offset, at.last_epoch = batch.last_offset + 1, batch.epoch
        return tuple(reads), None

    async def _end_offset(self, key: int, to: str | None) -> tuple[str | None, int]:
        node = await self._find_leader(key) if to is None else self._brokers.ids[to]
        if node is None:
            return _NO_LEADER, -1

        def list_offsets(broker: BrokerNode, call: Call) -> None:
            broker.requests.list_offsets(
                call, self._settings.keys[key], replica=CONSUMER,
                current_leader_epoch=self._epochs.get(key, -1), latest=True,
            )  # fmt: skip

        try:
            error, offset = await self._ask(node, list_offsets, self._settings.request_timeout_s)
        except _Unanswered as why:
            self._leaders.pop(key, None)
            return why.error, -1
        if error == NONE and offset >= 0:
            return None, offset
        self._leaders.pop(key, None)
        return name_of(error), -1

    # -- leaders -----------------------------------------------------------------------------------

    async def _find_leader(self, key: int) -> int | None:
        """The partition's leader; metadata is requested if it is unknown."""
        if key not in self._leaders:
            await self._refresh()
        return self._leaders.get(key)

    async def _refresh(self) -> None:
        """Requests metadata from two nodes at most; the first answer is used."""
        nodes = sorted(self._brokers.ids.values())
        self._random.shuffle(nodes)
        for node in nodes[:2]:
            try:
                live, partitions = await self._ask(
                    node, lambda broker, call: broker.send_metadata(call), self._settings.metadata_timeout_s
                )
            except _Unanswered:
                continue
            for key, place in self._settings.keys.items():
                part = partitions.get(place)
                if part is None or part.leader_epoch < self._epochs.get(key, -1):
                    continue
                self._epochs[key] = part.leader_epoch
                self._leaders.pop(key, None)
                if part.leader in live:
                    self._leaders[key] = part.leader
            return

    def _ask(
        self, node: int, handle: Callable[[BrokerNode, Call], None], timeout_s: float
    ) -> "asyncio.Future[Any]":
        """Sends a request to a node and returns its answer; raises _Unanswered."""
        brokers = self._brokers
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(reply: Any) -> None:
            if not answer.done():
                answer.set_result(reply)

        def lost(began: bool) -> None:
            if not answer.done():
                answer.set_exception(_Unanswered(began=began, timed_out=call.timed_out))

        call = brokers.network.ask(
            brokers.clients, brokers.process_of(node), answered=answered, lost=lost, timeout_s=timeout_s,
            handle=lambda call: handle(brokers.broker(node), call),
        )  # fmt: skip
        answer.add_done_callback(lambda _: call.close())  # the caller may have been cancelled
        return answer


def _ignore_result(answer: "asyncio.Future[Any]") -> None:
    """Retrieves a future's exception, so that asyncio does not warn."""
    if not answer.cancelled():
        answer.exception()
