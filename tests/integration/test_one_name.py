"""One import name: what a user's folder calls harness, broker or workloads is theirs, and nothing of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OURS = ("harness", "nemesis", "checkers", "workloads", "broker")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def theirs(tmp_path: Path) -> dict[str, str]:
    """A folder with packages of these names, of which each import fails, first on the module path."""
    for name in OURS:
        (tmp_path / name).mkdir()
        says = f"raise RuntimeError('{name} of the user was imported')\n"
        (tmp_path / name / "__init__.py").write_text(says)
    return {**os.environ, "PYTHONPATH": "."}


@pytest.mark.cluster
@pytest.mark.spark
def test_a_run_is_played_and_judged_beside_them(theirs: dict[str, str], tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("floodmark")
    ran = subprocess.run(
        [command, "run", "--duration", "1", "--concurrency", "2", "--out", "run"], cwd=tmp_path, env=theirs,
        capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "of the user" not in ran.stdout + ran.stderr


@pytest.mark.cluster
@pytest.mark.spark
def test_a_test_of_theirs_uses_the_plugin(theirs: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "def test_theirs(floodmark_run):\n    assert floodmark_run(duration=1, concurrency=2).valid\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_theirs.py"], cwd=tmp_path,
        env=theirs, capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_module_is_loaded_under_two_names() -> None:
    """Neither here nor in a command that is called at the root of a checkout, where the folders lie."""
    code = ("import runpy, sys\nsys.argv = ['floodmark', 'scenario', 'list']\n"
            "try:\n    runpy.run_module('floodmark.harness', run_name='__main__')\n"
            "finally:\n    print('loaded', *sys.modules)\n")
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
                         check=False)
    loaded = ran.stdout.rpartition("loaded")[2].split()
    assert "floodmark.harness.cli" in loaded, ran.stdout + ran.stderr
    assert [name for name in (*loaded, *sys.modules) if name.split(".")[0] in OURS] == []
