"""Following: one task a leader, which asks for all the replicas here that follow it.

Rules
1. What is asked is what the replicas wish (Replica.wish), read just before it is sent; an answer goes to the
   replica with the wish it answers, which drops it if it no longer wants it.
2. A wish that changes while its fetch waits at the leader (a new leader epoch, a new replica) ends the
   wait: the connection is closed and asked anew. So a new role is never a long poll late.
3. Who answers with an error, or not at all, is asked again after replica.fetch.backoff.ms, or at once for a
   different wish.
4. Of a replica that is held at a failpoint nothing is asked; what failpoints hold is in gate.py.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.process_log import halt_process, log
from broker.protocol import errors
from broker.protocol.messages import Batch, EpochEnd, FetchRequest, FetchResponse, FollowerRequest
from broker.server.config import Config
from broker.server.fetcher_failpoints import Gate
from broker.server.follower_offset_requests import Errands, current_epoch
from broker.server.node_connection import Line, Unreachable
from broker.server.replica_manager import Host, Hosted, Key, now_ms
from broker.wire.api_keys import FETCH
from broker.wire.fast_codec import FOLLOWER_FETCH_VERSION, FetchPartition, write_follower_fetch
from broker.wire.record_batch import CorruptBatch, parse_batches

_RESPONSE_BYTES_MAX = 10 << 20  # replica.fetch.response.max.bytes
_ERRANDS_S = 0.05  # a fetch waits so long for those that first ask something else, to go together

Wishes = dict[Key, tuple[Hosted, FollowerRequest]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A wish that went wrong, and until when it is not made again."""

    wish: FollowerRequest
    until_ms: int


class Fetcher:
    """The asking of one leader, while anybody here follows it."""

    def __init__(
        self, leader: int, host: Host, dial: Callable[[], Line], broker_epoch: Callable[[], int]
    ) -> None:
        self.leader = leader
        self._host = host
        self._config: Config = host.config
        self._line = dial()
        self._gate = Gate(host.points, self.look, self._delay)
        self._errands = Errands(
            host,
            dial,
            answered=self._gate.begun,
            failed=self._failed,
            unreachable=self._errand_unreachable,
            done=self.look,
        )
        self._broker_epoch = broker_epoch
        self._look = asyncio.Event()
        self._delays: dict[Key, Delay] = {}
        self._asked: dict[Key, FollowerRequest] = {}  # what waits at the leader now
        self._waiting: asyncio.Task[Any] | None = None
        self._said = ""  # of a leader that is not reached: once is enough
        self._task = asyncio.create_task(self._run(), name=f"fetcher {leader}")

    def look(self) -> None:
        """Roles have changed: ask what is wished now, and do not wait for what was."""
        self._look.set()
        asked = self._asked
        if self._waiting is not None and {key: wish for key, (_, wish) in self._wishes().items()} != asked:
            self._waiting.cancel()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._errands.close()
        self._line.close()

    def _wishes(self) -> Wishes:
        now = now_ms()
        wishes: Wishes = {}
        for key, hosted in self._host.hosted.items():
            wish = hosted.replica.next_request()
            if wish is None or wish.leader != self.leader or self._gate.waits(hosted, wish):
                continue
            if not isinstance(wish, FetchRequest) and self._errands.asks(hosted, wish):
                continue
            delay = self._delays.get(key)
            if delay is not None and delay.wish == wish and now < delay.until_ms:
                continue
            wishes[key] = hosted, wish
        return wishes

    async def _run(self) -> None:
        try:
            while True:
                self._look.clear()
                fetches, others = self._parted(self._wishes())
                if await self._ran_errands(others):
                    continue
                wishes = self._sent(fetches)
                if not wishes:
                    await self._rest()
                elif not await self._ask(wishes):
                    self._line.close()
                    await self._rest(self._config.fetch_backoff_ms)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            halt_process("fetcher-failed", error)

    def _sent(self, wishes: Wishes) -> Wishes:
        return {key: each for key, each in wishes.items() if self._gate.sends(*each)}

    def _parted(self, wishes: Wishes) -> tuple[Wishes, Wishes]:
        """Those to fetch, and the others."""
        others = {key: each for key, each in wishes.items() if not isinstance(each[1], FetchRequest)}
        fetches = {key: each for key, each in wishes.items() if key not in others} if others else wishes
        return fetches, others

    async def _ran_errands(self, wishes: Wishes) -> bool:
        """Whether any was begun: then wishes are looked at anew."""
        begun = [
            self._errands.begin(hosted, wish)
            for hosted, wish in self._sent(wishes).values()
            if not isinstance(wish, FetchRequest)
        ]
        if begun:
            await asyncio.wait(begun, timeout=_ERRANDS_S)
        return bool(begun)

    async def _rest(self, least_ms: int | None = None) -> None:
        """Until a role changes or a delay is over."""
        untils = [delay.until_ms for delay in self._delays.values()]
        rest_ms = least_ms
        if rest_ms is None and untils:
            rest_ms = max(1, min(untils) - now_ms())
        try:
            async with asyncio.timeout(None if rest_ms is None else rest_ms / 1000):
                await self._look.wait()
        except TimeoutError:
            pass
        now = now_ms()
        self._delays = {key: delay for key, delay in self._delays.items() if delay.until_ms > now}

    async def _ask(self, wishes: Wishes) -> bool:
        """One round; False if the leader was not to be reached."""
        self._asked = {key: wish for key, (_, wish) in wishes.items()}
        fetches = [(hosted, wish) for hosted, wish in wishes.values() if isinstance(wish, FetchRequest)]
        self._waiting = asyncio.ensure_future(self._fetch(fetches))
        try:
            await asyncio.wait([self._waiting])
        except asyncio.CancelledError:
            self._waiting.cancel()
            raise
        finally:
            waiting, self._waiting = self._waiting, None
        if waiting.cancelled():
            return True  # ended by `look`
        failure = waiting.exception()
        if isinstance(failure, Unreachable):
            self._say_unreachable(failure)
            return False
        if failure is not None:
            raise failure
        self._said = ""
        return True

    def _say_unreachable(self, failure: Unreachable) -> None:
        if str(failure) != self._said:
            log("warning", "leader-unreachable", leader=self.leader, why=failure)
        self._said = str(failure)

    def _errand_unreachable(self, hosted: Hosted, wish: FollowerRequest, failure: Unreachable) -> None:
        self._say_unreachable(failure)
        self._delay(hosted, wish)

    def _delay(self, hosted: Hosted, wish: FollowerRequest) -> None:
        self._delays[hosted.key] = Delay(wish=wish, until_ms=now_ms() + self._config.fetch_backoff_ms)

    def _failed(self, hosted: Hosted, wish: FollowerRequest, error: int) -> None:
        """Asked again later; a replica that wishes something else now is asked that at once."""
        if hosted.replica.next_request() == wish:
            self._delay(hosted, wish)
            log(
                "info",
                "fetch-refused",
                topic=hosted.topic,
                partition=hosted.partition,
                leader=self.leader,
                error=errors.error_name(error),
            )

    # -- Fetch -----------------------------------------------------------------------------------------------

    async def _fetch(self, fetches: list[tuple[Hosted, FetchRequest]]) -> None:
        by_id: dict[tuple[str, int], tuple[Hosted, FetchRequest]] = {}
        topics: dict[str, list[FetchPartition]] = {}
        for hosted, wish in fetches:
            by_id[hosted.topic_id, hosted.partition] = hosted, wish
            topics.setdefault(hosted.topic_id, []).append(
                FetchPartition(
                    partition=hosted.partition,
                    current_leader_epoch=current_epoch(self._host.rules, wish),
                    offset=wish.offset,
                    last_fetched_epoch=wish.last_fetched_epoch,
                    log_start=hosted.replica.log_start,
                    max_bytes=self._config.fetch_max_bytes,
                )
            )
        config = self._config
        asked = list(topics.items())
        answer = await self._line.ask_frame(
            FETCH,
            FOLLOWER_FETCH_VERSION,
            lambda number: write_follower_fetch(
                number,
                f"broker-{config.node_id}",
                asked,
                replica=config.node_id,
                broker_epoch=self._broker_epoch(),
                max_wait_ms=config.fetch_wait_max_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=_RESPONSE_BYTES_MAX,
            ),
            timeout_s=config.socket_timeout_ms / 1000,
        )
        for topic in answer.responses:
            for part in topic.partitions:
                found = by_id.pop(
                    (topic.topic_id.hex if topic.topic_id else "", part.partition_index), None
                )
                if found is not None:
                    self._fetched(*found, part)
        for hosted, wish in by_id.values():  # nothing was said of these
            if answer.error_code:
                self._failed(hosted, wish, int(answer.error_code))
            else:
                self._delay(hosted, wish)

    def _fetched(self, hosted: Hosted, wish: FetchRequest, part: Any) -> None:
        try:
            batches = tuple(parse_batches(part.records or b"", partial_tail=True))
        except CorruptBatch as error:  # of the leader's log, or of the way here: ask again
            log("error", "fetched-garbage", topic=hosted.topic, partition=hosted.partition, why=error)
            self._failed(hosted, wish, errors.CORRUPT_MESSAGE)
            return
        if self._gate.takes(hosted, wish, lambda: self._take(hosted, wish, part, batches)):
            self._take(hosted, wish, part, batches)

    def _take(self, hosted: Hosted, wish: FetchRequest, part: Any, batches: tuple[Batch, ...]) -> None:
        """The answer goes to the replica."""
        parting, error_code = part.diverging_epoch, int(part.error_code)
        diverging = None
        if parting.end_offset >= 0:
            diverging = EpochEnd(epoch=parting.epoch, end_offset=parting.end_offset)
        self._host.post(
            hosted,
            FetchResponse(
                now_ms=now_ms(),
                leader=self.leader,
                asked=wish,
                error=error_code,
                hw=part.high_watermark,
                log_start=part.log_start_offset,
                diverging=diverging,
                batches=batches,
            ),
        )
        if error_code:
            self._failed(hosted, wish, error_code)
        else:
            self._gate.begun(hosted, wish)


class Fetchers:
    """One Fetcher for each leader that is followed here."""

    def __init__(self, make_fetcher: Callable[[int], Fetcher], host: Callable[[], Host]) -> None:
        self._make = make_fetcher
        self._host = host
        self._fetchers: dict[int, Fetcher] = {}
        self._closed = False

    def look(self) -> None:
        """Roles have changed."""
        if self._closed:
            return
        me = self._host().config.node_id
        for hosted in self._host().hosted.values():
            leader = hosted.replica.leader
            if leader >= 0 and leader != me and leader not in self._fetchers:
                self._fetchers[leader] = self._make(leader)
        for fetcher in self._fetchers.values():
            fetcher.look()

    async def close(self) -> None:
        self._closed = True
        fetchers = list(self._fetchers.values())
        for fetcher in fetchers:
            await fetcher.close()
