"""Ports of runs that run at the same time, and the private folder that holds their claims."""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from floodmark.harness.cluster import layout
from floodmark.harness.errors import FloodmarkError

CHOOSER = """
import os, sys
from floodmark.harness.cluster.layout import Ports
ports = Ports()
ports._next = 20000  # both processes search from one place
print(*[ports.choose() for _ in range(40)], flush=True)
sys.stdin.read()
"""


def test_two_processes_never_choose_one_port() -> None:
    """Both search from the same port on, at the same time, and keep what they found."""
    argv = [sys.executable, "-c", CHOOSER]
    with (subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
          subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other):
        chosen = [process.stdout.readline().split() for process in (one, other) if process.stdout]
        one.communicate("")
        other.communicate("")
    first, second = (set(map(int, one)) for one in chosen)

    assert len(first) == len(second) == 40
    assert first & second == set()
    assert all(port < 32768 for port in first | second)


def test_a_claim_ends_with_its_run() -> None:
    """Closed, a port may be chosen again; until then even its owner's second claim finds it taken."""
    first, second = layout.Ports(), layout.Ports()
    port = first.choose()
    with pytest.raises(FloodmarkError, match=f"port {port} is taken"):
        second.take(port)

    first.close()

    assert second.take(port) == port
    second.close()


def test_a_port_somebody_listens_on_is_not_chosen_and_cannot_be_taken() -> None:
    """Other programs use ports too."""
    ours = layout.Ports()
    port = ours.choose()
    ours.close()
    with socket.socket() as listener:
        listener.bind((layout.HOST, port))
        listener.listen()
        again = layout.Ports()
        again._next = port

        assert again.choose() != port
        with pytest.raises(FloodmarkError, match="taken"):
            again.take(port)
        again.close()


def test_the_private_folder_is_ours_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No other user may put claims or sockets there, or a link in its place."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = layout.private_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(FloodmarkError, match="belongs to another user: remove it, or set TMPDIR"):
        layout.private_folder()
