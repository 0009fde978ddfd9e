"""Describes how a process of the cluster ended: its last log lines, and whether the machine caused it.

Rules
1. The lines are read when the end becomes known: a node that is started again appends to the same log.
2. Long lines are cut: a line may contain a batch of records.
3. Only what the process wrote since its own start counts. The last errors are in the first sentence if none
   ends the log: after an error a broker may write many lines about its stop.
"""

import contextlib
import errno
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from floodmark.harness import runtime

# Signals that come from outside: from a person, or from the kernel when memory is short. An abort, a
# segmentation fault or an exit code is the process's own end.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FRAME = re.compile(r"\s+(at [^ ]+\(.*\)|\.\.\. \d+ (more|common frames omitted))\s*$")  # in Java
_ERROR = re.compile(r"(?:^|\s)(?:ERROR|FATAL)\s|^error\s")  # log4j's levels, and the reference broker's
LINES = 20
SHOWN_LINES = 2  # of the end, by every report
LAST_WORDS_LINES = 5
LINE_CHARS = 500
_TAIL_BYTES = 1 << 18
# Errors of the operating system that are not the process's fault: its port is taken, the disk is full or
# failing, a limit of files or memory is reached. In a broker's last line they mean that the machine caused
# its end. (If a fault of the nemesis causes the same, the end is explained before this is checked.)
_OF_THE_MACHINE = tuple(os.strerror(number) for number in (
    errno.EADDRINUSE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENFILE,
    errno.ENOMEM))


@dataclass(slots=True, kw_only=True)
class Start:
    """The start of a process: what its log had before, and when it was."""

    log: Path
    log_bytes: int
    time_s: float  # monotonic

    @classmethod
    def now(cls, log: Path) -> "Start":
        return cls(log=log, log_bytes=log.stat().st_size if log.exists() else 0, time_s=runtime.monotonic_s())


def exit_report(start: Start, code: int) -> str:
    """How the process ended, with its last error, then the end of its log. code: a subprocess's; minus the
    number for a signal."""
    first = f"{_exit_sentence(code)}, {runtime.monotonic_s() - start.time_s:.1f} s after its start"
    lines = log_tail(start.log, _TAIL_BYTES, start.log_bytes)
    errors = [line for line in lines if _ERROR.search(line)][-SHOWN_LINES:]
    if errors and errors[-1] not in lines[-SHOWN_LINES:]:
        first += f"; its last errors: {' | '.join(errors)}"
    return "\n".join([first, *(lines[-LINES:] or ["it left no log"])])


def log_tail(log: Path, lines: int = LINES, since: int = 0) -> list[str]:
    """The log's last lines without blank ones and frames of stack traces; empty if there is no log. since:
    leave out this many bytes at its begin."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    kept = [line.strip() for line in text if line.strip() and _FRAME.match(line) is None][-lines:]
    return [line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}... ({len(line)} characters)"
            for line in kept]


def last_words(log: Path, *besides: str) -> str:
    """The end of a log on one line, for a message. besides: further facts about the end."""
    if not log.exists():
        return "it left no log"
    return " | ".join([*log_tail(log, LAST_WORDS_LINES), *besides]) or "its log is empty"


def is_stopped(process: Path) -> bool:
    """Whether the kernel has stopped all threads of a process. process: its folder in /proc."""
    with contextlib.suppress(OSError):
        # pid (name, which may contain anything) state ...
        return all((thread / "stat").read_text().rpartition(")")[2].split()[0] in "Tt"
                   for thread in (process / "task").iterdir())
    return False


def machine_failure(report: str) -> str | None:
    """How the machine caused the end: a signal from outside, or an error of the system in the last line.
    None: it did not."""
    first, last = report.splitlines()[0], report.splitlines()[-1]
    killed = next((sentence for sentence in _KILLED if first.startswith(sentence)), None)
    if killed is not None:
        return f"{killed} (from the kernel for lack of memory, or from another process)"
    return next((phrase for phrase in _OF_THE_MACHINE if phrase in last), None)


def _exit_sentence(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name} ended it, which floodmark did not send"


_KILLED = frozenset(_exit_sentence(-number) for number in _FROM_OUTSIDE)
