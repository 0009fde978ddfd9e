"""Without the extra `containers` everything else works, and what needs it prints what to install."""

import json
import os
import subprocess
import sys
from pathlib import Path

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


WITH_CONTAINERS = [
    ["run", "--cluster", "containers", "--duration", "1"], ["doctor", "--cluster", "containers"],
    ["scenario", "run", "double-failover", "--cluster", "containers"]]
WITHOUT = ["scenario", "list"]
EACH = """
import json, sys
from click.testing import CliRunner
from floodmark.harness.cli import main
ran = [CliRunner().invoke(main, words, prog_name="floodmark") for words in json.loads(sys.argv[1])]
print(json.dumps([[one.exit_code, one.stderr] for one in ran]))
"""


def test_what_needs_containers_prints_what_to_install_and_the_rest_works(tmp_path: Path) -> None:
    """In a process without docker-py."""
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    ran = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps([WITHOUT, *WITH_CONTAINERS])], cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    (code, error), *results = json.loads(ran.stdout)
    assert code == 0, error
    assert len(results) == len(WITH_CONTAINERS)
    for code, error in results:
        assert code == 4, error
        assert "pip install 'floodmark[containers]'" in error
        assert "Traceback" not in error
