"""`cluster up` in one process, asked from another: what is asked is done, and nothing survives its end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.commands import cluster as commands
from harness.errors import FloodmarkError

pytestmark = pytest.mark.cluster

WAIT_S = 30.0
UP = """
import sys
from pathlib import Path
from harness.cluster.local import local_cluster
from harness.commands.cluster import up

folder = Path(sys.argv[1])
sys.exit(up(local_cluster(folder, 2, rules="kip-320", bugs=(), config={}, links="proxied"), folder))
"""


def processes_of(folder: Path) -> list[int]:
    """Whoever has the folder in its command line, or sits below a keeper that logs there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(folder) in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        time.sleep(0.02)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", UP, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("127.0.0.1:")
        yield process
        process.kill()
    wait_until(lambda: processes_of(tmp_path) == [], "every process of the cluster to be gone")


def state(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert commands.state(folder, as_json=True) == 0
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


def test_what_another_terminal_asks_is_done(
        up: subprocess.Popen[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults, looks and refusals; SIGTERM ends it with 0 and takes the desk away."""
    assert state(tmp_path, capsys)["running"] == ["n1", "n2"]
    assert commands.strike(tmp_path, "kill", ["n2"]) == 0
    assert state(tmp_path, capsys)["running"] == ["n1"]
    assert commands.strike(tmp_path, "start", ["n2"]) == 0
    assert commands.cut(tmp_path, ["n1"], one_way=True) == 0
    assert state(tmp_path, capsys)["cuts"] == ["n1 no longer hear n2"]
    assert commands.heal(tmp_path) == 0
    assert state(tmp_path, capsys)["cuts"] == []
    assert commands.state(None) == 0
    assert "brokers    n1" in capsys.readouterr().out
    with pytest.raises(FloodmarkError, match="no node 'n9'"):
        commands.strike(tmp_path, "kill", ["n9"])
    with pytest.raises(FloodmarkError, match="cannot 'tickle'"):
        commands.strike(tmp_path, "tickle", ["n1"])

    up.send_signal(signal.SIGTERM)

    assert up.wait(WAIT_S) == 0
    with pytest.raises(FloodmarkError, match="no cluster is up"):
        commands.state(tmp_path)


def test_nothing_survives_a_kill_with_a_broker_paused(
        up: subprocess.Popen[str], tmp_path: Path) -> None:
    """And the desk it left behind is told for what it is."""
    assert commands.strike(tmp_path, "pause", ["n1"]) == 0
    assert len(processes_of(tmp_path)) == 4  # itself, two brokers, the controller

    up.kill()
    up.wait(WAIT_S)

    wait_until(lambda: processes_of(tmp_path) == [], "every process of the cluster to be gone")
    with pytest.raises(FloodmarkError, match="not up any more"):
        commands.state(tmp_path)
