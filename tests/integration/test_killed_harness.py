"""SIGKILL to the harness at random moments: nothing of the run is left, and its folder is still judged.

FLOODMARK_KILLS is the number of kills (2 by default); FLOODMARK_SEED draws other moments. Every third kill
waits for a paused broker: a stopped process does not notice that its parent ends. Every other run has links
that can be cut, so that their process must end too.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from command_line import floodmark, verdict
from run_processes import marked, pid_of_broker, processes_of, state_of, wait_until, wait_until_gone

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

KILLS = int(os.environ.get("FLOODMARK_KILLS", "2"))
SEED = int(os.environ.get("FLOODMARK_SEED", "7"))
LONGEST_S = 6.0  # from the start of the process: from before the folder exists until well into the faults
PAUSED_WITHIN_S = 60.0
NODES = ("n1", "n2", "n3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One kill and its outcome."""

    folder: Path
    asked_paused: bool
    paused: int  # paused brokers
    processes: int
    lines: int
    gone_after_s: float


def stopped(folder: Path) -> int:
    pids = [pid_of_broker(folder, node) for node in NODES]
    return sum(pid is not None and state_of(pid) in ("T", "t") for pid in pids)


def kill_one(folder: Path, seed: int, *, links: str, after_s: float | None) -> Kill:
    """A run, killed after so many seconds, or (None) as soon as one of its brokers is stopped."""
    argv = [sys.executable, "-m", "floodmark.harness", "run", "--nemesis", "pause,crash", "--interval", "1",
            "--partitions", "2", "--concurrency", "4", "--rate", "300", "--duration", "300", "--links", links,
            "--seed", str(seed), "--out", str(folder)]
    with subprocess.Popen(argv, env=marked(folder), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as harness:
        try:
            if after_s is None:
                wait_until("a broker to be paused", lambda: stopped(folder) > 0, PAUSED_WITHIN_S)
            else:
                time.sleep(after_s)  # the moment itself is tested: there is no condition to wait for
            paused, met = stopped(folder), len(processes_of(folder))
        finally:
            harness.kill()
        harness.wait()
    began_s = time.monotonic()
    wait_until_gone(folder)
    history = folder / "history.jsonl"
    return Kill(folder=folder, asked_paused=after_s is None, paused=paused, processes=met,
                lines=len(history.read_bytes().splitlines()) if history.exists() else 0,
                gone_after_s=time.monotonic() - began_s)


def test_nothing_of_a_killed_run_is_left_and_no_folder_of_one_is_called_a_bug(tmp_path: Path) -> None:
    """All folders are judged in one call: unknown at worst."""
    random = Random(SEED)
    kills = [
        kill_one(tmp_path / f"killed-{number}", random.randrange(2**31),
                 links="direct" if number % 2 else "proxied",
                 after_s=None if number % 3 == 0 else random.uniform(0.0, LONGEST_S))
        for number in range(KILLS)
    ]
    for kill in kills:
        print(f"{kill.folder.name}: {kill.lines} lines, {kill.processes} processes, {kill.paused} paused, "
              f"all gone after {kill.gone_after_s:.2f} s")
    assert any(kill.paused for kill in kills)
    there = [kill.folder for kill in kills if kill.folder.exists()]  # killed earlier, there is no run
    assert len(there) >= len([kill for kill in kills if kill.asked_paused])

    answer = floodmark("check", *there)

    print(answer.out.splitlines()[0])
    verdicts = {folder.name: verdict(folder) for folder in there}
    assert {one["valid"] for one in verdicts.values()} <= {True, "unknown"}
    found = Counter(group["name"] for one in verdicts.values() for group in one["findings"])
    assert found == Counter()
    assert answer.code == 3
    assert all("the run was killed" in answer.about(folder) for folder in there)
