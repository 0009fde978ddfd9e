"""Telling the brokers: one task a registered broker, which sends the latest metadata until it is answered.

Rules
1. Only the latest version is sent; what was overtaken while a broker did not answer is never sent.
2. It is meant for the incarnation that is registered when it is written; a broker that refuses it (it has
   not yet heard that it is registered, or is another incarnation) is told again a little later.
3. Every attempt has a time-out, and there is no last one.
"""

import asyncio
from collections.abc import Callable

from broker import errors
from broker.config import Config
from broker.dialling import Line, Unreachable
from broker.logline import die, log
from broker.metadata import BrokerInfo, Metadata
from broker.news import read_news_answer, write_news
from broker.wire import WireError

_AGAIN_S = 0.05  # after a refusal
_AGAIN_S_MAX = 0.5  # after the last of several that did not get through


class Herald:
    """The task that keeps one broker informed."""

    def __init__(self, config: Config, broker: int, metadata: Callable[[], Metadata]) -> None:
        self._broker = broker
        self._metadata = metadata
        self._config = config
        self._more = asyncio.Event()
        self._timeout_s = max(0.2, config.session_timeout_ms / 3000)
        self._told: tuple[int, int] | None = None  # broker epoch and version that it has acknowledged
        self._line = Line(f"broker {broker}", self._address, "controller")
        self._task = asyncio.create_task(self._run(), name=f"herald {broker}")

    def tell(self) -> None:
        self._more.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._line.close()

    def _info(self) -> BrokerInfo:
        return next(each for each in self._metadata().brokers if each.id == self._broker)

    def _address(self) -> tuple[str, int]:
        info = self._info()
        return self._config.dialled(info.id, (info.host, info.port))

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                self._more.clear()
                if self._told == (self._info().epoch, self._metadata().version):
                    await self._more.wait()
                    failures = 0
                    continue
                if await self._send(quiet=failures > 0):
                    failures = 0
                    continue
                failures += 1
                await self._rest(min(_AGAIN_S * failures, _AGAIN_S_MAX))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            die("herald-failed", error)

    async def _rest(self, rest_s: float) -> None:
        """Before the next attempt; cut short by new metadata (a broker that is back has registered)."""
        try:
            async with asyncio.timeout(rest_s):
                await self._more.wait()
        except TimeoutError:
            pass

    async def _send(self, *, quiet: bool) -> bool:
        metadata, epoch = self._metadata(), self._info().epoch
        try:
            _, frame = await self._line.ask_raw(
                lambda number: write_news(number, self._broker, epoch, metadata), timeout_s=self._timeout_s
            )
            error = read_news_answer(frame)
        except (Unreachable, WireError) as failure:
            self._line.close()
            if not quiet:
                log(
                    "warning", "news-unanswered", broker=self._broker, version=metadata.version, why=failure
                )
            return False
        if error:
            if not quiet:
                log(
                    "info",
                    "news-refused",
                    broker=self._broker,
                    broker_epoch=epoch,
                    error=errors.name_of(error),
                )
            return False
        self._told = (epoch, metadata.version)
        return True
