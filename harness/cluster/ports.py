"""Chooses the ports of one run: below the kernel's ephemeral range, free now, and reserved until the run
ends.

Rules
1. Ports are below 32768, where Linux's ephemeral ports begin: else an outgoing connection could take a port
   while its broker is being restarted.
2. A run reserves a port by locking a file named after it, so that parallel runs never choose the same one;
   the kernel drops the lock however the harness ends. The files are not removed: otherwise two runs could
   lock two files of the same name.
3. Other programs use ports too: a port is chosen only if it can be bound.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

from floodmark.harness.errors import FloodmarkError, UsageError

LOWEST = 10000
HIGHEST = 32767  # inclusive
HOST = "127.0.0.1"


def private_folder() -> Path:
    """This user's folder for files that other runs must find; it is made if needed."""
    folder = Path(tempfile.gettempdir()) / f"floodmark-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise FloodmarkError(f"{folder} belongs to another user: remove it, or set TMPDIR")
    return folder


class Ports:
    def __init__(self) -> None:
        self._folder = private_folder() / "ports"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._claims: dict[int, int] = {}  # port -> descriptor of its locked file
        span = HIGHEST - LOWEST + 1
        # Runs begin their search at different ports, so that an old client rarely reaches a later run.
        self._next = LOWEST + os.getpid() * 97 % span

    def choose(self) -> int:
        for _ in range(HIGHEST - LOWEST + 1):
            port = self._next
            self._next = LOWEST if port == HIGHEST else port + 1
            if port not in self._claims and self._claim(port, strict=True):
                return port
        raise FloodmarkError(f"no free port between {LOWEST} and {HIGHEST}: end the processes that use them")

    def take(self, port: int) -> int:
        if not 0 < port < 65536:
            raise UsageError(f"{port} is no port")
        if port not in self._claims and not self._claim(port, strict=False):
            raise UsageError(f"port {port} is taken: choose another, or end the process that listens there")
        return port

    def close(self) -> None:
        for descriptor in self._claims.values():
            os.close(descriptor)
        self._claims.clear()

    def _claim(self, port: int, *, strict: bool) -> bool:
        descriptor = os.open(self._folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                if not strict:  # old connections may linger on it
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, port))
                probe.listen(1)
        except OSError:
            os.close(descriptor)
            return False
        self._claims[port] = descriptor
        return True

