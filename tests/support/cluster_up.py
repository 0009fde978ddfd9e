"""Starts `floodmark cluster up` as a user does: three brokers, in a process of its own."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENDS_S = 120.0
BEGIN = "import sys; from floodmark.harness.cli import main; sys.exit(main())"


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A cluster that is up: its bootstrap address, its folder, and the file with its first screen."""

    bootstrap: str
    folder: Path
    screen: Path
    process: subprocess.Popen[bytes]

    def log(self, node: str) -> str:
        return (self.folder / "work" / f"{node}.log").read_text(encoding="utf-8")


@contextlib.contextmanager
def cluster_up(parent: Path, *options: str) -> Iterator[Up]:
    """Starts a cluster, of three brokers if no option says otherwise, and ends it by Ctrl-C. (By SIGTERM:
    test_cluster_up.py.)"""
    folder, screen = parent / "up", parent / "screen"
    argv = [sys.executable, "-c", BEGIN, "cluster", "up", "--nodes", "3", "--out", str(folder), *options]
    with (
        screen.open("wb") as errors,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        try:
            bootstrap = process.stdout.readline().decode().strip()
            assert bootstrap, screen.read_text(encoding="utf-8")
            yield Up(bootstrap=bootstrap, folder=folder, screen=screen, process=process)
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(ENDS_S)
    assert code == 0, screen.read_text(encoding="utf-8")
