"""Starts a campaign's processes: one that makes its runs, and one judge. Each ends when its stdin ends, with
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


async def start_process(module: str, log: Path, environment: dict[str, str] | None = None
                        ) -> asyncio.subprocess.Process:
    """Starts a process of floodmark; its stderr goes to the log. environment: variables besides ours."""
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=output, limit=LINE_BYTES, start_new_session=True, env=os.environ | (environment or {}))


async def next_answer(process: asyncio.subprocess.Process, name: str, log: Path) -> dict[str, Any]:
    """The process's next line. FloodmarkError if it has ended."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise FloodmarkError(f"{name} ended with {await process.wait()}; its log is {log}")
    found: dict[str, Any] = orjson.loads(line)
    return found


class PlayerProcess:
    """The process that makes the runs, several at once. It is started for the first one, and again if it
    died."""

    def __init__(self, log: Path, environment: dict[str, str] | None = None) -> None:
        self._log, self._environment = log, environment
        self._starts = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._listens: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}  # by the run's folder

    async def play(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a run; returns its answer. FloodmarkError if the process died. If this is cancelled, the run
        ends with the process, and counts as not begun."""
        async with self._starts:
            if self._process is None:
                self._process = await start_process(PLAYER, self._log, self._environment)
                self._listens = asyncio.create_task(self._listen(self._process))
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))
        folder: str = request["folder"]
        self._waiting[folder] = asyncio.get_running_loop().create_future()
        try:
            return await self._waiting[folder]
        finally:
            del self._waiting[folder]

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        try:
            while True:
                answer = await next_answer(process, "the process that makes the runs", self._log)
                if (waiting := self._waiting.get(answer["folder"])) is not None and not waiting.done():
                    waiting.set_result(answer)
        except FloodmarkError as error:
            self._process = None
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(error)

    async def end(self) -> None:
        """Ends the process, and its runs. Safe to call twice."""
        if self._process is not None and self._listens is not None:
            self._process.kill()
            await self._listens


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
        return await next_answer(self._process, "the judge", self._log)

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
