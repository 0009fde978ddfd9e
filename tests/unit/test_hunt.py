"""The bugs of tests/hunt, each in the place of a function; and its drivers, on the simulated cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HUNT = Path(__file__).resolve().parents[1] / "hunt"


def broker_with(name: str, then: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(HUNT)}
    line = f"import bugs; bugs.install({name!r}); {then}"
    return subprocess.run([sys.executable, "-P", "-c", line], env=environment, capture_output=True, text=True,
                          timeout=60, check=False)


def test_each_bug_replaces_an_existing_function() -> None:
    then = ("import fresh_bugs; every = bugs.BUGS | fresh_bugs.FRESH; "
            "print(len([bugs.find(one) for one in every.values()]))")
    found = broker_with("hw-skips-a-member", then)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) >= 40


def test_only_the_broker_gets_the_bug() -> None:
    environment = {**os.environ, "PYTHONPATH": str(HUNT / "inject"), "FLOODMARK_HUNT": "no-such-bug"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-P", *arguments], env=environment, capture_output=True,
                              text=True, timeout=60, check=False)

    assert run("-c", "pass").returncode == 0
    assert "no bug 'no-such-bug'" in run("-m", "floodmark.broker", "--help").stderr


# -- the drivers ------------------------------------------------------------------------------------------

def simulated(script: str, table: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(HUNT / script), "--cluster", "simulated", "--write", str(table), *more],
        capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
@pytest.mark.spark
def test_a_bug_is_found_in_simulated_runs(tmp_path: Path) -> None:
    """The first run finds it; a correct broker is valid, and its row is not measured again."""
    table = tmp_path / "found.md"
    result = simulated("hunt.py", table, "--only", "answers-the-last-offset", "--duration", "5", "--keep",
                       str(tmp_path / "keep"))
    assert result.returncode == 0, result.stderr
    (row,) = [line for line in table.read_text().splitlines() if line.startswith("| `")]
    bug, _, _, findings, _, runs, *_ = [cell.strip() for cell in row.strip("|").split("|")]
    assert (bug, "inconsistent-offsets" in findings, runs) == ("`answers-the-last-offset`", True, "1")

    table = tmp_path / "healthy.md"
    words = ("--count", "2", "--duration", "10", "--keep", str(tmp_path / "healthy"))
    result = simulated("healthy.py", table, *words)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line.split(" | ")[:3] for line in table.read_text().splitlines()[4:]]
    assert rows == [["| 1 to 2", "2", "2"], ["| all", "2", "2"]]
    assert not (tmp_path / "healthy" / "1").exists()
    first = table.read_text()
    assert (simulated("healthy.py", table, *words).stdout, table.read_text()) == ("", first)
