"""`floodmark run` for real, and ways in which a run fails without a fault of the cluster."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import floodmark, verdict
from run_processes import ctrl_c_once_it_goes_well, once_it_goes_well, pid_of_broker, wait_until_gone

pytestmark = pytest.mark.cluster

FILE_BYTES_MAX = 150_000
BOUNDED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from floodmark.harness.cli import main
main(sys.argv[2:])
"""


def run_json(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return about


@pytest.mark.spark
def test_a_run_is_made_judged_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of four seconds: progress on stderr, the verdict on stdout, the folder last; it is now the latest
    run."""
    monkeypatch.chdir(tmp_path)
    answer = floodmark("run", "--nodes", 2, "--partitions", 2, "--concurrency", 4, "--rate", 200,
                       "--duration", 4, "--nemesis", "crash", "--interval", 1, "--seed", 1,
                       "--json", "all.json", "-c", "replica.lag.time.max.ms=1500")
    assert answer.code == 0, answer.out + answer.err
    folder = Path(answer.last)
    assert folder.parent == Path("histories/runs")
    assert folder.name.endswith("-1")
    assert f"{folder.name}: valid" in answer.out
    assert Path("histories/runs/latest").resolve() == folder.resolve()
    assert verdict(folder)["valid"] is True
    assert json.loads(Path("all.json").read_text()) == {str(folder): verdict(folder)}
    assert not (folder / "nodes").exists()  # raw logs are kept to explain failures
    phases = [line.split()[0] for line in answer.err.splitlines() if " op/s" in line]
    assert list(dict.fromkeys(phases)) == ["start", "main", "mend", "settle", "read", "collect"]
    assert "kill" in floodmark("show").out
    wait_until_gone(folder.resolve())


@pytest.mark.spark
def test_a_broker_that_somebody_kills_is_not_the_clusters_bug(tmp_path: Path) -> None:
    """No process sends itself SIGKILL: the kernel did, for lack of memory, or a person. Exit 4, with that
    sentence. (One that ends by itself: test_broker_died.py.)"""
    folder = tmp_path / "run"

    def end() -> None:
        victim = pid_of_broker(folder, "n2")
        assert victim is not None
        os.kill(victim, signal.SIGKILL)

    with once_it_goes_well(folder, end):
        answer = floodmark("run", "--partitions", 1, "--concurrency", 2, "--rate", 200, "--duration", 2,
                           "--out", folder)
    assert answer.code == 4, answer.out + answer.err
    about = run_json(folder)
    assert (about["died"], verdict(folder)["findings"]) == ([], [])
    assert "n2 ended: SIGKILL ended it, which floodmark did not send (from the kernel" in about["ended"]
    wait_until_gone(folder)


@pytest.mark.spark
def test_a_nemesis_that_had_nothing_to_strike_leaves_the_run_unknown(tmp_path: Path) -> None:
    """Reported before the run, in run.json, and by every later check; --allow-unknown lets it pass."""
    folder = tmp_path / "run"
    answer = floodmark("run", "--nodes", 1, "--partitions", 1, "--concurrency", 2, "--rate", 100,
                       "--duration", 0.5, "--nemesis", "crash", "--cluster", "simulated", "--out", folder)
    assert answer.code == 3, answer.out + answer.err
    assert "no fault will strike, so this run proves little: --nemesis crash: a run of 0.5 s" in answer.err
    assert "is too short" in run_json(folder)["unstruck"]
    [unknown] = verdict(folder)["unknown"]
    assert unknown["names"] == ["unfit"]
    assert "a nemesis was to strike and nothing did: --nemesis crash: a run of 0.5 s" in unknown["reason"]
    assert floodmark("check", folder).code == 3
    assert floodmark("check", "--allow-unknown", folder).code == 0


@pytest.mark.spark
def test_ctrl_c_ends_a_run_early_but_in_order(tmp_path: Path) -> None:
    """What was recorded is kept, settled, collected and judged; the exit code is still 4."""
    folder = tmp_path / "run"
    with ctrl_c_once_it_goes_well(folder):
        answer = floodmark("run", "--nodes", 2, "--partitions", 1, "--concurrency", 2, "--rate", 100,
                           "--duration", 300, "--out", folder)
    assert answer.code == 4, answer.out + answer.err
    assert "the run ended early: interrupted" in answer.err
    assert (run_json(folder)["ended"], run_json(folder)["settled"]) == ("interrupted", True)
    assert verdict(folder)["valid"] is True
    assert answer.out.startswith("run: interrupted (judged valid)\n")
    assert answer.last == str(folder)
    wait_until_gone(folder)


def test_a_disk_that_is_full_is_reported_as_such(tmp_path: Path) -> None:
    """No file may grow beyond a limit, and the history reaches it (the brokers' traces would reach it
    earlier): exit 4, the reason, and no verdict."""
    folder = tmp_path / "run"
    argv = [sys.executable, "-c", BOUNDED, str(FILE_BYTES_MAX), "run", "--nodes", "1", "--concurrency", "4",
            "--no-trace", "--duration", "120", "--out", str(folder)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 4, ran.stdout + ran.stderr
    assert "cannot write the history" in ran.stderr
    assert "File too large" in ran.stderr
    assert ran.stdout.splitlines()[-1] == str(folder)
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "INVALID" not in ran.stdout
    assert not (folder / "verdict.json").exists()
    assert "cannot write the history" in run_json(folder)["ended"]
    wait_until_gone(folder)


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    """And nothing of the cluster remains."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = floodmark("cluster", "up", "--port", port, "--out", tmp_path / "up")
    assert answer.code == 2
    assert f"port {port} is taken" in answer.err
    wait_until_gone(tmp_path / "up")
