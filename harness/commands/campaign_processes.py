"""The processes of a campaign: one that makes its runs, and one judge, each with what it has imported.

Rules
1. A process prints a line when it is ready. Then each line of JSON on its stdin is a request, and a line on
   its stdout, with the request's `id`, is its answer.
2. It ends when its stdin ends, or an answer fails, and is killed with the campaign's process; what it was
   doing ends with it.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.forked_child import end_with_parent

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0
LINE_BYTES = 1 << 26  # of an answer, at most
PLAYER, JUDGE = "floodmark.harness.commands.campaign_play", "floodmark.harness.commands.campaign_judge"


def serve(prepare: Callable[[], None], answer: Callable[[Any], Awaitable[Mapping[str, Any]]]) -> None:
    """Answers all requests until stdin ends, in their process, after it is prepared."""
    end_with_parent()
    out = os.fdopen(os.dup(1), "wb")  # only for the answers: what Java or another child prints is for the log
    os.dup2(2, 1)
    prepare()
    _put(out, {"ready": True})
    asyncio.run(_serve(out, answer))


async def _serve(out: BinaryIO, answer: Callable[[Any], Awaitable[Mapping[str, Any]]]) -> None:
    requests, work = asyncio.StreamReader(limit=LINE_BYTES), set[asyncio.Task[None]]()

    async def answer_one(request: Mapping[str, Any]) -> None:
        _put(out, {**await answer(request), "id": request["id"]})

    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    def ended(task: asyncio.Task[None]) -> None:
        work.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            requests.set_exception(error)  # this process ends by it, which whoever asked sees

    while line := await requests.readline():
        work.add(task := asyncio.create_task(answer_one(orjson.loads(line))))
        task.add_done_callback(ended)


def _put(out: BinaryIO, answer: Mapping[str, Any]) -> None:
    out.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
    out.flush()


class Worker:
    """A process that answers several requests at once, started for the first one, and again if it died."""

    def __init__(self, module: str, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._module, self._log, self._environment = module, log, environment or {}
        self._ids = itertools.count()
        self._starts = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._listens: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}  # for answers, by the request's id

    async def start(self) -> None:
        """Starts the process, unless it runs; returns when it is ready. FloodmarkError if that takes long."""
        async with self._starts:
            if self._process is not None:
                return
            with self._log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", self._module, stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE, stderr=output, limit=LINE_BYTES, start_new_session=True,
                    env={**os.environ, **self._environment})
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await self._answer(process)
            except TimeoutError as error:
                process.kill()
                raise FloodmarkError(f"waited {START_TIMEOUT_S:.0f} s for {self._name} to start; its words "
                                     f"are in {self._log}") from error
            self._process, self._listens = process, asyncio.create_task(self._listen(process))

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer. FloodmarkError if the process died."""
        await self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        id_, answer = next(self._ids), asyncio.get_running_loop().create_future()
        self._waiting[id_] = answer
        self._process.stdin.write(orjson.dumps({**request, "id": id_}, option=orjson.OPT_APPEND_NEWLINE))
        found: dict[str, Any] = await answer
        return found

    @property
    def _name(self) -> str:
        return "the judge" if self._module == JUDGE else "the process that makes the runs"

    async def _answer(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):  # it may have died in the middle of a line
            raise FloodmarkError(f"{self._name} ended with {await process.wait()}; its log is {self._log}")
        found: dict[str, Any] = orjson.loads(line)
        return found

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        try:
            while True:
                answer = await self._answer(process)
                if not (waiting := self._waiting.pop(answer["id"])).done():
                    waiting.set_result(answer)
        except FloodmarkError as error:
            left, self._waiting, self._process = self._waiting, {}, None
            for waiting in left.values():
                if not waiting.done():
                    waiting.set_exception(error)

    async def end(self) -> None:
        """Ends the process, at once if it is at work: nobody waits for the answers. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        if self._waiting:
            process.kill()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if self._listens is not None:
            await self._listens
