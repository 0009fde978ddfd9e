"""Without the extra `containers` everything else works, and what needs it says what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HIDES = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("docker", "testcontainers"):
            raise ModuleNotFoundError(name)
import importlib.util
whole = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name in ("docker", "testcontainers") else whole(name, package))
sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize("words", [
    ["run", "--cluster", "containers", "--duration", "1"], ["doctor", "--cluster", "containers"],
    ["scenario", "run", "double-failover", "--cluster", "containers"]])
def test_it_is_said_what_to_install(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    ran = subprocess.run(
        [Path(sys.executable).with_name("floodmark"), *words], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert ran.returncode == 4, ran.stdout + ran.stderr
    assert "pip install 'floodmark[containers]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_nothing_else_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    ran = subprocess.run(
        [Path(sys.executable).with_name("floodmark"), "scenario", "list"], cwd=tmp_path, capture_output=True,
        text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
