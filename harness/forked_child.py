"""Runs a function in a forked child and returns its result.

Rules
1. The child ends by os._exit, and with its parent.
2. If the waiting task is cancelled, the child gets a SIGTERM: the first interrupts it in an orderly way, and
   its result counts; the second ends it at once.
"""

import asyncio
import ctypes
import os
import pickle
import signal
import sys
from asyncio import events
from collections.abc import Callable
from typing import Any, TypeVar

from floodmark.harness.errors import FloodmarkError

Result = TypeVar("Result")
Interrupt = Callable[[], None]
_PR_SET_PDEATHSIG = 1


async def result_of_child(run: Callable[[Callable[[Interrupt], None]], Result]) -> Result:
    """`run` gets a function to call with what interrupts it. An exception of the child is raised here."""
    sys.stdout.flush()
    sys.stderr.flush()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        end_with_parent()
        _write_result(writes, run)
        os._exit(0)
    os.close(writes)
    data = await _read_to_end(reads, child)
    _, status = os.waitpid(child, 0)
    if not data:
        code = os.waitstatus_to_exitcode(status)
        raise FloodmarkError(f"the process that made the run ended with {code}, without a result")
    value = pickle.loads(data)
    if isinstance(value, BaseException):
        raise value
    result: Result = value
    return result


def end_with_parent() -> None:
    """From now on this process is killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _read_to_end(pipe: int, child: int) -> bytes:
    reader = asyncio.StreamReader()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb"))
    reading = asyncio.ensure_future(reader.read())
    interrupted = False
    try:
        while True:
            try:
                return await asyncio.shield(reading)
            except asyncio.CancelledError:
                os.kill(child, signal.SIGTERM)
                if interrupted:
                    raise
                interrupted = True
                task.uncancel()
    finally:
        reading.cancel()
        transport.close()


def _write_result(pipe: int, run: Callable[[Callable[[Interrupt], None]], Any]) -> None:
    events._set_running_loop(None)  # the parent's
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the parent too, which passes it on

    def interruptible(interrupt: Interrupt) -> None:
        def once(_number: int, _frame: object) -> None:
            interrupt()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

        signal.signal(signal.SIGTERM, once)

    try:
        answer = pickle.dumps(run(interruptible))
    except BaseException as error:
        if not isinstance(error, FloodmarkError):
            sys.excepthook(type(error), error, error.__traceback__)
        try:
            answer = pickle.dumps(error)
        except Exception:
            answer = pickle.dumps(FloodmarkError(f"{type(error).__name__}: {error}"))
    sys.stdout.flush()
    sys.stderr.flush()
    while answer:
        answer = answer[os.write(pipe, answer):]
