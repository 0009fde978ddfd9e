"""Finds the processes of one run: they have its folder in their command line or environment.

Brokers are started with a path below the folder; keeper and links are not, so a harness whose processes a
test looks for is started with an environment that is `marked`. No other process is touched.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

GONE_WITHIN_S = 120.0
LOOK_EVERY_S = 0.02


def marked(folder: Path) -> dict[str, str]:
    """This environment with the folder in it: processes started with it inherit it."""
    return {**os.environ, "FLOODMARK_RUN_UNDER_TEST": str(folder)}


def processes_of(folder: Path) -> dict[int, str]:
    """pid -> command line of each process with the folder's path in its command line or environment."""
    wanted, found = os.fsencode(folder), dict[int, str]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue  # it has ended, or belongs to another user
            if wanted in words or wanted in environment:
                found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
    return found


def state_of(pid: int) -> str | None:
    """The kernel's letter for a process; None if it has ended (a zombie has)."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None
    return None if letter in "ZX" else letter


def pid_of_broker(folder: Path, node: str) -> int | None:
    """The broker that runs with this node's properties file."""
    file = str(folder / "work" / f"{node}.properties")
    return next((pid for pid, words in processes_of(folder).items()
                 if file in words.split() and state_of(pid) is not None), None)


def wait_until(what: str, condition: Callable[[], object], timeout_s: float = GONE_WITHIN_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s for {what}"
        time.sleep(LOOK_EVERY_S)


def wait_until_gone(folder: Path) -> None:
    """Waits until no process of the run is left."""
    wait_until(f"the processes of {folder} to be gone; there are {processes_of(folder)}",
               lambda: not any(state_of(pid) for pid in processes_of(folder)))
