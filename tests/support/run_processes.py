"""Finds the processes of one run: they have its folder in their command line or environment.

Brokers are started with a path below the folder; keeper and links are not, so a harness whose processes a
test looks for is started with an environment that is `marked`. No other process is touched.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

ENDED_WITHIN_S = 600.0  # a busy machine needs minutes for a night of three runs
LOOK_EVERY_S = 0.02
STARTED_WITHIN_S = 90.0
Found = TypeVar("Found")


def marked(folder: Path) -> dict[str, str]:
    """This environment with the folder in it: processes started with it inherit it."""
    return {**os.environ, "FLOODMARK_RUN_UNDER_TEST": str(folder)}


@contextmanager
def running(folder: Path, *words: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`floodmark ...` there, in a process and with a temporary folder of its own, folder/tmp. At the end
    no process of it goes on."""
    (folder / "tmp").mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "floodmark.harness", *map(str, words)], cwd=folder, text=True,
        env={**marked(folder), "TMPDIR": str(folder / "tmp"), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
    wait_until("every process to be gone", lambda: not processes_of(folder))


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


def wait_until(what: str, look: Callable[[], Found], timeout_s: float = ENDED_WITHIN_S) -> Found:
    """The first true result of `look`."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s for {what}"
        time.sleep(LOOK_EVERY_S)
    return found


def wait_until_gone(folder: Path) -> None:
    """Waits until no process of the run is left."""
    wait_until(f"the processes of {folder} to be gone; there are {processes_of(folder)}",
               lambda: not any(state_of(pid) for pid in processes_of(folder)))


@contextmanager
def once_it_goes_well(folder: Path, act: Callable[[], object]) -> Iterator[None]:
    """Acts from another thread, when the run in this one has some acks in its history."""
    history = folder / "history.jsonl"

    def has_acks() -> bool:
        return history.exists() and history.read_bytes().count(b'"type":"ok","f":"send"') > 20

    def wait_and_act() -> None:
        wait_until("the main phase", has_acks, STARTED_WITHIN_S)
        act()

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(wait_and_act)
        yield
        acting.result()


@contextmanager
def ctrl_c_once_it_goes_well(folder: Path) -> Iterator[None]:
    """A Spark session of an earlier test has taken over the signal; in a run there is none yet."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with once_it_goes_well(folder, lambda: os.kill(os.getpid(), signal.SIGINT)):
            yield
    finally:
        signal.signal(signal.SIGINT, before)
