"""Refuses, inside a simulation, who reads real time or entropy, starts a thread or process, or sleeps."""

import os
import random
import secrets
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from sys import _getframe
from typing import Any, NoReturn

from floodmark.harness.cluster.simulated.scheduler import Scheduler

# (where, name): what a simulated run must not call.
REFUSED: tuple[tuple[Any, str], ...] = (
    *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter",
                                "perf_counter_ns", "sleep")),
    *((os, name) for name in ("urandom", "fork", "getrandom")),
    *((uuid, name) for name in ("uuid1", "uuid4")),
    *((secrets, name) for name in ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "choice")),
    *((random, name) for name in ("random", "randrange", "randint", "choice", "shuffle", "uniform", "gauss")),
    (threading.Thread, "start"),
    (subprocess, "Popen"),
)
# Modules of Python's own whose reading changes nothing that is recorded.
_HARMLESS = ("logging", "tempfile")


class StrayCall(AssertionError):
    """Something in a simulation reached outside of it."""


def install(scheduler: Scheduler) -> None:
    """From now on, and for the rest of this process; descriptors count as those of the process that opens
    them."""
    for where, name in REFUSED:
        setattr(where, name, _refusing(f"{getattr(where, '__name__', where)}.{name}", getattr(where, name)))
    open_really, close_really = os.open, os.close

    def open_counted(*arguments: Any, **besides: Any) -> int:
        descriptor = open_really(*arguments, **besides)
        scheduler.running.descriptors.add(descriptor)
        return descriptor

    def close_counted(descriptor: int) -> None:
        scheduler.running.descriptors.discard(descriptor)
        close_really(descriptor)

    os.open, os.close = open_counted, close_counted  # type: ignore[assignment]
    # What a power cut would leave is noted in the broker's side file: nothing needs to reach the disk.
    os.fsync = os.fdatasync = lambda descriptor: None  # type: ignore[assignment]


def _refusing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*arguments: Any, **besides: Any) -> Any:
        caller = _getframe(1)
        if caller.f_globals.get("__name__", "").partition(".")[0] in _HARMLESS:
            return real(*arguments, **besides)
        _raise(name, caller.f_code.co_filename, caller.f_lineno)

    return refuse


def _raise(name: str, file: str, line: int) -> NoReturn:
    raise StrayCall(f"{Path(file).name}:{line} calls {name} inside a simulation: what it gets there "
                    "differs from run to run. The broker reads floodmark.broker.runtime, the harness "
                    "floodmark.harness.runtime")
