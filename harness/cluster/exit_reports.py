"""Reports how a process of the cluster ended: its last log lines, and whether the machine explains it.

Rules
1. The words are taken when the end is known: a node that is started again goes on in the same log.
2. A line may hold a whole batch of records: it is cut.
"""

import errno
import os
import re
import signal
from pathlib import Path

# No process sends itself these: somebody did, or the kernel for want of memory. An abort, a segmentation
# fault or an exit code is the process's own end.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FRAME = re.compile(r"\s+(at [^ ]+\(.*\)|\.\.\. \d+ (more|common frames omitted))\s*$")  # of Java
LINES = 20
LAST_WORDS_LINES = 5
LINE_CHARS = 500
_TAIL_BYTES = 1 << 18
# Errors of the system that a process can do nothing for: its port is taken, the disk is full or failing, a
# limit of files or memory is reached. In a broker's last line they say that the machine failed it. (Where a
# fault of the nemesis does the same, that explains the end before anybody looks here.)
_OF_THE_MACHINE = tuple(os.strerror(number) for number in (
    errno.EADDRINUSE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENFILE,
    errno.ENOMEM))


def exit_report(log: Path, code: int) -> str:
    """How it ended (code: as of a subprocess, minus the signal's number), then the end of its log."""
    return "\n".join([_exit_sentence(code), *(log_tail(log) or ["it left no log"])])


def log_tail(log: Path, lines: int = LINES) -> list[str]:
    """The last lines, no blank ones and no frames of stack traces; none where there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            said = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    kept = [line.strip() for line in said if line.strip() and _FRAME.match(line) is None][-lines:]
    return [line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}... ({len(line)} characters)"
            for line in kept]


def last_words(log: Path | None, *besides: str) -> str:
    """The end of its log in one line, for a message; besides: what is known of its end from elsewhere."""
    if log is None or not log.exists():
        return "it left no log"
    return " | ".join([*log_tail(log, LAST_WORDS_LINES), *besides]) or "its log is empty"


def machine_failure(words: str) -> str | None:
    """What the machine did to it: a signal from outside, or what it lacked by the last line. None: the
    process ended by its own."""
    first, last = words.splitlines()[0], words.splitlines()[-1]
    if first in _KILLED:
        return f"{first} (the kernel for want of memory, or somebody on this machine)"
    return next((phrase for phrase in _OF_THE_MACHINE if phrase in last), None)


def _exit_sentence(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name} ended it, and nothing here had sent that"


_KILLED = frozenset(_exit_sentence(-number) for number in _FROM_OUTSIDE)
