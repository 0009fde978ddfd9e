"""SIGKILL to the harness in mid-run: nothing of the run is left, and its folder is still judged.

It waits for a paused broker, because a stopped process does not notice that its parent ends; the links, which
can be cut, are a process that must end too.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import floodmark, verdict
from run_processes import marked, pid_of_broker, processes_of, state_of, wait_until, wait_until_gone

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


def stopped(folder: Path) -> bool:
    pids = [pid_of_broker(folder, node) for node in ("n1", "n2", "n3")]
    return any(pid is not None and state_of(pid) in ("T", "t") for pid in pids)


def test_nothing_of_a_killed_run_is_left_and_its_folder_is_no_bug(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    argv = [sys.executable, "-m", "floodmark.harness", "run", "--nemesis", "pause,crash", "--interval", "1",
            "--partitions", "2", "--concurrency", "4", "--rate", "300", "--duration", "300", "--links",
            "proxied", "--seed", "7", "--out", str(folder)]
    with subprocess.Popen(argv, env=marked(folder), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as harness:
        try:
            wait_until("a broker to be paused", lambda: stopped(folder))
            assert len(processes_of(folder)) >= 5  # harness, supervisor, links, controller, the paused broker
        finally:
            harness.kill()
        harness.wait()
    wait_until_gone(folder)

    answer = floodmark("check", folder)
    assert (answer.code, verdict(folder)["findings"]) == (3, []), answer.out
    assert "the run was killed" in answer.about(folder)
