"""Starts a campaign's processes: a player for each run, and one judge. Each ends when its stdin ends, with
the campaign's process."""

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


async def start_process(module: str, log: Path) -> asyncio.subprocess.Process:
    """Starts a process of floodmark; its stderr goes to the log."""
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=output, limit=LINE_BYTES, start_new_session=True)


async def play_run(request: Mapping[str, Any], log: Path) -> dict[str, Any]:
    """Makes a run in a process of its own; returns its answer. FloodmarkError if the process died. If this is
    cancelled, the process and its cluster end, and the run counts as not begun."""
    process = await start_process(PLAYER, log)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))
        answer = await process.stdout.readline()
        if not answer:
            code = await process.wait()
            raise FloodmarkError(f"the process that made the run ended with {code}; its log is {log}")
        found: dict[str, Any] = orjson.loads(answer)
        await process.wait()
        return found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class JudgeProcess:
    """The judge's process, with Spark running. It has a low priority for the processor."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts the process; returns when Spark is ready. FloodmarkError if it is not in time."""
        self._process = await start_process(JUDGE, self._log)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._line()
        except TimeoutError as error:
            raise FloodmarkError(f"waited {START_TIMEOUT_S:.0f} s for Spark to start; its words are in "
                                 f"{self._log}") from error

    async def judge(self, folders: Sequence[Path]) -> list[dict[str, Any]]:
        """Judges the folders; returns their summaries in order. A judge that died is restarted once."""
        if self._process is None:
            await self.start()
        try:
            return await self._ask(folders)
        except FloodmarkError:
            await self.end()
            await self.start()
            return await self._ask(folders)

    async def _ask(self, folders: Sequence[Path]) -> list[dict[str, Any]]:
        assert self._process is not None
        assert self._process.stdin is not None
        line = {"folders": [str(folder) for folder in folders]}
        try:
            self._process.stdin.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise FloodmarkError(f"the judge is gone; its log is {self._log}") from error
        return [await self._line() for _ in folders]

    async def _line(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise FloodmarkError(f"the judge ended with {code}; its log is {self._log}")
        found: dict[str, Any] = orjson.loads(line)
        return found

    async def end(self) -> None:
        """Ends the process, and Spark with it. Safe to call twice."""
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
