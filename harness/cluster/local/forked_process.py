"""Runs a program's `main` in a fork of this process, which has imported it already.

To start Python and import a broker takes 0.2 s of CPU time, a fork 0.01 s; a cluster starts five processes,
and one more after each kill. A fork is a process like any other: it can be killed, stopped and waited for.

Rules
1. The process that forks has one thread.
2. The child keeps nothing of its parent but the imported modules: no open file, no signal handler, no
   buffered output. (Python's random module seeds itself anew in a fork.)
3. Its command line (`ps`, `pgrep -f`) is that of a process of its own.
"""

import gc
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from setproctitle import setproctitle

_CLOSED_FROM, _CLOSED_TO = 3, 1 << 20  # file descriptors
_HANDLED = (signal.SIGTERM, signal.SIGCHLD)  # by the process that forks
_LOOK_S = 0.01


class Program(NamedTuple):
    """What `python -m module` runs."""

    module: str
    main: Callable[[], int]


def load(module: str) -> Program:
    """Imports the package's __main__, which has a `main`."""
    main = importlib.import_module(f"{module}.__main__").main
    gc.freeze()  # a search for garbage would copy the pages that the forks share
    return Program(module, main)


class ForkedProcess:
    """Has what the supervisor uses of subprocess.Popen. log: an open descriptor, for stdout and stderr;
    before: called in the child, before the program."""

    def __init__(self, program: Program, arguments: Sequence[str], log: int, before: Callable[[], None]
                 ) -> None:
        self._code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        # Nobody may signal the child before it is set up: it would lose a SIGTERM, or stop and outlive us.
        setting_up, child_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(program, arguments, log, before)
        os.close(child_end)
        os.read(setting_up, 1)  # until the child has closed its end, or has ended
        os.close(setting_up)

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_LOOK_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # else its pid may be another's by now
            os.kill(self.pid, number)


def _run(program: Program, arguments: Sequence[str], log: int, before: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        setproctitle(" ".join([sys.executable, "-P", "-m", program.module, *arguments]))
        before()
        os.closerange(_CLOSED_FROM, _CLOSED_TO)  # the pipe too: the parent goes on
        sys.argv[1:] = arguments
        code = _exit_code(program.main)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)  # the parent's frames are below this one: nothing of them may run


def _exit_code(main: Callable[[], int]) -> int:
    """As of `sys.exit(main())`, except for errors."""
    try:
        return main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
