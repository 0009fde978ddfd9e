"""Refuses, inside a simulation, who reads real time or entropy, starts a thread or process, opens a socket or
sleeps; and lists folders in the order of names.

The order of a set, a hash and an id() cannot be refused: what depends on them differs between two processes
of one seed, which a test plays. What a C library does by itself is not seen either.
"""

import asyncio.selector_events
import datetime
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from sys import _getframe
from types import FrameType
from typing import Any, NoReturn

from floodmark.harness.cluster.simulated.scheduler import Scheduler

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
# (where, name): what a simulated run must not call.
REFUSED: tuple[tuple[Any, str], ...] = (
    *((time, name + unit) for name in _CLOCKS for unit in ("", "_ns")),
    *((time, name) for name in ("clock_gettime", "clock_gettime_ns", "localtime", "gmtime", "ctime",
                                "sleep")),
    *((os, name) for name in ("urandom", "getrandom", "getpid", "getppid", "times", "getloadavg",
                              "fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
    *((uuid, name) for name in ("uuid1", "uuid4", "getnode")),
    *((secrets, name) for name in ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits",
                                   "choice")),
    *((random, name) for name in random.__all__ if getattr(getattr(random, name), "__self__", None)),
    (random.SystemRandom, "__init__"),
    (threading.Thread, "start"),
    (subprocess.Popen, "__init__"),
    (socket.socket, "__init__"),
    (asyncio.selector_events.BaseSelectorEventLoop, "__init__"),
)
# Modules of Python's own whose reading changes nothing that is recorded.
_HARMLESS = ("logging", "tempfile")
# Those through which others call.
_PASSED = {"asyncio", "concurrent", "multiprocessing", "os", "random", "socket", "subprocess", "threading"}


class StrayCall(AssertionError):
    """Something in a simulation reached outside of it."""


def install(scheduler: Scheduler) -> None:
    """For the rest of this process; descriptors count as those of the process that opens them."""
    instead: dict[Any, Any] = {}
    for where, name in REFUSED:
        real = getattr(where, name)
        instead[real] = _refusing(f"{where.__name__}.{name.replace('__init__', '')}".rstrip("."), real)
        setattr(where, name, instead[real])
    instead[datetime.datetime] = _without(datetime.datetime, "now", "utcnow", "today")
    instead[datetime.date] = _without(datetime.date, "today")
    instead[random.Random.seed], instead[os.listdir], instead[os.scandir] = _seed, _listdir, _Scandir
    for real in (datetime.datetime, datetime.date):
        setattr(datetime, real.__name__, instead[real])
    random.Random.seed, os.listdir, os.scandir = _seed, _listdir, _Scandir  # type: ignore[assignment]
    _replace_imported(instead)
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


def _replace_imported(instead: dict[Any, Any]) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("floodmark.") and module_name != __name__:
            for name, value in list(vars(module).items()):
                if callable(value) and type(value).__hash__ is not None and value in instead:
                    setattr(module, name, instead[value])


def _refusing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*arguments: Any, **besides: Any) -> Any:
        caller = _getframe(1)
        if caller.f_globals.get("__name__", "").partition(".")[0] in _HARMLESS:
            return real(*arguments, **besides)
        _raise(name, caller)

    return refuse


def _raise(name: str, frame: FrameType | None) -> NoReturn:
    assert frame is not None
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED:
        frame = frame.f_back
    raise StrayCall(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} calls {name} inside a "
                    "simulation: what it gets there differs from run to run. The broker reads "
                    "floodmark.broker.runtime, the harness floodmark.harness.runtime")


def _without(real: type, *names: str) -> type:
    """The class, whose instances are those of the real one, without these class methods."""

    class Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    refused = {name: staticmethod(_refusing(f"{real.__name__}.{name}", real)) for name in names}
    return Meta(real.__name__, (real,), {"__slots__": (), **refused})


_seed_really, _listdir_really, _scandir_really = random.Random.seed, os.listdir, os.scandir


def _seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    if a is None and _getframe(1).f_globals.get("__name__") not in _HARMLESS:
        _raise("Random without a seed", _getframe(1))
    _seed_really(self, a, version)


def _listdir(*path: Any) -> list[Any]:
    return sorted(_listdir_really(*path))


class _Scandir:
    """os.scandir, in the order of names."""

    def __init__(self, *path: Any) -> None:
        with _scandir_really(*path) as entries:
            self._entries: Iterator[os.DirEntry[Any]] = iter(sorted(entries, key=lambda entry: entry.name))

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        return self._entries

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._entries)

    def __enter__(self) -> "_Scandir":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def close(self) -> None:
        pass
