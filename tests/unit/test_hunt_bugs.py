"""The bugs of tests/hunt: the function that each replaces exists, and a broker starts with them."""

import os
import subprocess
import sys
from pathlib import Path

HUNT = Path(__file__).resolve().parents[1] / "hunt"


def broker_with(name: str, then: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(HUNT)}
    line = f"import bugs; bugs.install({name!r}); {then}"
    return subprocess.run([sys.executable, "-P", "-c", line], env=environment, capture_output=True, text=True,
                          timeout=60, check=False)


def test_each_bug_replaces_an_existing_function() -> None:
    then = "[bugs.find(one) for one in bugs.BUGS.values()]; print(len(bugs.BUGS))"
    found = broker_with("hw-skips-a-member", then)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) >= 40


FRESH = [
    "leo-never-falls", "followers-note-no-epochs", "recovery-point-outlives-a-truncation",
    "a-time-means-after-it", "answers-in-order-of-arrival", "altered-min-isr-waits-for-a-restart",
    "a-known-batch-is-answered-at-once", "producer-ids-are-not-in-the-journal",
    "fencing-stops-at-the-first-partition", "false-is-a-text-too",
]


def test_a_broker_starts_with_the_fresh_bugs() -> None:
    """With all at once, and with one injected as by a hunt."""
    then = ("from fresh_bugs import FRESH; [bugs.install(one) for one in FRESH]; import runpy, sys; "
            "sys.argv = ['broker', '--help']; runpy.run_module('floodmark.broker', run_name='__main__')")
    environment = {**os.environ, "PYTHONPATH": str(HUNT / "inject"), "FLOODMARK_HUNT": FRESH[0]}
    found = subprocess.run([sys.executable, "-P", "-m", "floodmark.broker", "--help"], env=environment,
                           capture_output=True, text=True, timeout=60, check=False)
    for one in (broker_with("hw-skips-a-member", then), found):
        assert one.returncode == 0, one.stderr


def test_only_the_broker_gets_the_bug() -> None:
    environment = {**os.environ, "PYTHONPATH": str(HUNT / "inject"), "FLOODMARK_HUNT": "no-such-bug"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-P", *arguments], env=environment, capture_output=True,
                              text=True, timeout=60, check=False)

    assert run("-c", "pass").returncode == 0
    assert "no bug 'no-such-bug'" in run("-m", "floodmark.broker", "--help").stderr
