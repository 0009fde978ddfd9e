"""Starts campaigns as users do, each in a process of its own that may be killed, and reads their folders."""

import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from namesakes import planted
from run_processes import marked, processes_of, wait_until

from floodmark.harness.campaign.plan import draws, read
from floodmark.harness.campaign.state import State, state_of

WAIT_S = 180.0
SEED = 7
# Each run takes as long as the scenario does; the first of two runs is invalid, the second valid.
PLAN = """
for = "10min"
duration = 1
reproduce = 1
at_once = 2
[[system]]
rules = "high-watermark"
[[system]]
rules = "kip-320"
[[nemesis]]
scenario = "double-failover"
"""
KILLS_AT = "FLOODMARK_TEST_KILLS_AT"
FRESH, RENAME, RENAMED = "the new file is open", "its rename", "behind its rename"
# Python calls an audit hook before each operation; this one ends its process by SIGKILL at a given point.
_HOOK = f"""
import os, signal, sys

point, number, path = os.environ[{KILLS_AT!r}].split("|")
folder, name = os.path.split(path)
state = {{"fresh": False, "renames": 0}}

def hook(event, args):
    if event == "open" and isinstance(args[0], str) and args[0].startswith(f"{{folder}}/.{{name}}."):
        state["fresh"] = not args[0].endswith(".lock")
        return
    if event == "os.rename" and os.fspath(args[1]) == path:
        state["renames"] += 1
        reached = {RENAME!r}
    elif event == "open" and isinstance(args[0], int) and state["fresh"]:
        reached = {FRESH!r}
    elif event == "open" and args[0] == path and state["renames"]:
        reached = {RENAMED!r}
    else:
        return
    state["fresh"] = False
    if reached == point and state["renames"] >= int(number):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
"""


def statuses(folder: Path) -> list[str]:
    """Of the campaign's runs, in order."""
    return [run.status for run in state_of(folder).runs()]


def assert_runs_as_drawn(state: State, plan: str, runs: int) -> None:
    """Each run has the case and the seed that plan and seed give it: no run is missing or there twice."""
    assert [(run.number, run.case, run.seed) for run in state.runs()] == [
        (draw.number, draw.case, draw.seed) for draw in islice(draws(read(plan, "plan").cases, SEED), runs)]


def begun(tmp_path: Path, *words: object, **further: str) -> subprocess.Popen[str]:
    """Starts `floodmark campaign ...` in a folder with modules of our names, which must not be imported.
    further: variables added to its environment."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    planted(tmp_path)
    environment = {**marked(tmp_path), "TMPDIR": str(temporary), **further}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "floodmark.harness", "campaign", *map(str, words)],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(tmp_path: Path, *words: object, **further: str) -> tuple[int, str, str]:
    """Runs a campaign to its end; returns its exit code and output. Checks that no process of it goes on."""
    with begun(tmp_path, *words, **further) as process:
        said, complained = process.communicate(timeout=WAIT_S)
    wait_until("every process to be gone", lambda: not processes_of(tmp_path), WAIT_S)
    return process.returncode, said, complained


def killed_when(tmp_path: Path, ripe: Callable[[], bool], *words: object) -> None:
    """Kills the campaign by SIGKILL when the condition holds, and checks that no process of it goes on."""
    with begun(tmp_path, *words) as process:
        wait_until("the instant to kill at", lambda: ripe() or process.poll() is not None, WAIT_S)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=WAIT_S)
    wait_until("every process to be gone", lambda: not processes_of(tmp_path), WAIT_S)


def killed_at(tmp_path: Path, point: str, file: Path, *words: object, renames: int = 0) -> None:
    """Kills the campaign by SIGKILL at this point of replacing a file, after so many renames of it."""
    hook = tmp_path / "hook" / "sitecustomize.py"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_HOOK)
    further = {"PYTHONPATH": str(hook.parent), KILLS_AT: f"{point}|{renames}|{file}"}
    code, said, complained = ended(tmp_path, *words, **further)
    assert code == -signal.SIGKILL, (code, said, complained)
