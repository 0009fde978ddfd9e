"""Runs a function in a forked child and returns its result.

Rules
1. The child ends by os._exit, and with its parent.
2. A SIGINT or SIGTERM of the parent is the child's: the first interrupts it in an orderly way, the second
   ends it at once.
"""

import ctypes
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from floodmark.harness.errors import FloodmarkError

if TYPE_CHECKING:
    from collections.abc import Iterator

Result = TypeVar("Result")
Interrupt = Callable[[], None]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1


def result_of_child(run: Callable[[Callable[[Interrupt], None]], Result]) -> Result:
    """`run` gets a function to call with what interrupts it. An exception of the child is raised here."""
    sys.stdout.flush()
    sys.stderr.flush()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        _end_with_parent()
        os._exit(_write_result(writes, run))
    os.close(writes)
    with _passing_signals_to(child), os.fdopen(reads, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(child, 0)
    if not data:
        raise FloodmarkError(f"the simulation ended without a result ({os.waitstatus_to_exitcode(status)})")
    is_result, value = pickle.loads(data)
    if is_result:
        result: Result = value
        return result
    raise value


def _write_result(pipe: int, run: Callable[[Callable[[Interrupt], None]], Any]) -> int:
    os.setpgid(0, 0)  # a terminal's Ctrl-C goes to the parent, which passes it on

    def interruptible(interrupt: Interrupt) -> None:
        def once(number: int, _frame: object) -> None:
            interrupt()
            signal.signal(number, signal.SIG_DFL)

        for number in _SIGNALS:
            signal.signal(number, once)

    try:
        answer = pickle.dumps((True, run(interruptible)))
    except BaseException as error:
        try:
            answer = pickle.dumps((False, error))
        except Exception:
            answer = pickle.dumps((False, FloodmarkError(f"{type(error).__name__}: {error}")))
        if not isinstance(error, FloodmarkError):
            sys.excepthook(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    while answer:
        answer = answer[os.write(pipe, answer):]
    return 0


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def _passing_signals_to(child: int) -> "Iterator[None]":
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, _: os.kill(child, number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
