"""Each bug of tests/hunt fits the broker of now; its drivers, on the simulated cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

HUNT = Path(__file__).resolve().parents[1] / "hunt"


def test_each_bug_is_one_change_of_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HUNT))
    from hunt import BUGS, FRESH
    root = HUNT.parents[1]
    found = {one.name: (root / one.file).read_text().count(one.old) for one in (BUGS | FRESH).values()}
    assert found == dict.fromkeys(found, 1)
    assert len(found) == 56


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
