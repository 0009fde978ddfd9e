"""Without the extra `containers` everything else works, and what needs it says what to install."""

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


ASK = [
    ["run", "--cluster", "containers", "--duration", "1"], ["doctor", "--cluster", "containers"],
    ["scenario", "run", "double-failover", "--cluster", "containers"]]
ASKS_NOT = ["scenario", "list"]
EACH = """
import json, sys
from click.testing import CliRunner
from floodmark.harness.cli import main
ran = [CliRunner().invoke(main, words, prog_name="floodmark") for words in json.loads(sys.argv[1])]
print(json.dumps([[one.exit_code, one.stderr] for one in ran]))
"""


def test_it_is_said_what_to_install_and_nothing_else_asks_for_it(tmp_path: Path) -> None:
    """In a process that has never seen it."""
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    ran = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps([ASKS_NOT, *ASK])], cwd=tmp_path, capture_output=True,
        text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    (code, said), *asked = json.loads(ran.stdout)
    assert code == 0, said
    assert len(asked) == len(ASK)
    for code, said in asked:
        assert code == 4, said
        assert "pip install 'floodmark[containers]'" in said
        assert "Traceback" not in said
