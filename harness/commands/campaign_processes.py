"""The processes that a campaign starts: a player for each run, one judge. Each watches its stdin, and ends
with whoever started it."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness.errors import FloodmarkError

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0
LINE_BYTES = 1 << 26  # of an answer, at most
PLAYER, JUDGE = "floodmark.harness.commands.campaign_play", "floodmark.harness.commands.campaign_judge"


async def started(module: str, log: Path) -> asyncio.subprocess.Process:
    """A process of ours whose words go to the log."""
    with log.open("ab") as words:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=words, limit=LINE_BYTES, start_new_session=True)


async def played(asked: Mapping[str, Any], log: Path) -> dict[str, Any]:
    """One run, made by a process of its own; what it answers. FloodmarkError where it died. When this is
    cancelled, the process ends and its cluster with it, and the run is as if it had not begun."""
    process = await started(PLAYER, log)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(orjson.dumps(asked, option=orjson.OPT_APPEND_NEWLINE))
        answer = await process.stdout.readline()
        if not answer:
            code = await process.wait()
            raise FloodmarkError(f"the process that made the run ended with {code}; its words are in {log}")
        found: dict[str, Any] = orjson.loads(answer)
        await process.wait()
        return found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class JudgeProcess:
    """The judge, warm. It works when nobody else wants the processor."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when Spark is ready; FloodmarkError where it is not in time."""
        self._process = await started(JUDGE, self._log)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._line()
        except TimeoutError as error:
            raise FloodmarkError(f"waited {START_TIMEOUT_S:.0f} s for Spark to start; its words are in "
                                 f"{self._log}") from error

    async def judged(self, folders: Sequence[Path]) -> list[dict[str, Any]]:
        """A summary for each folder, in order. A judge that died is started once more."""
        if self._process is None:
            await self.start()
        try:
            return await self._asked(folders)
        except FloodmarkError:
            await self.end()
            await self.start()
            return await self._asked(folders)

    async def _asked(self, folders: Sequence[Path]) -> list[dict[str, Any]]:
        assert self._process is not None
        assert self._process.stdin is not None
        line = {"folders": [str(folder) for folder in folders]}
        try:
            self._process.stdin.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise FloodmarkError(f"the judge is gone; its words are in {self._log}") from error
        return [await self._line() for _ in folders]

    async def _line(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise FloodmarkError(f"the judge ended with {code}; its words are in {self._log}")
        found: dict[str, Any] = orjson.loads(line)
        return found

    async def end(self) -> None:
        """Safe twice. Spark ends with it."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
