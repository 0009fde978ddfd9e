"""One import name: a user's own folders named harness, broker or workloads do not clash with ours.

Complete runs next to such folders: test_ci_lines.py (the console script: a run, its processes, its judge) and
test_pytest_plugin.py (a suite).
"""

import subprocess
import sys
from pathlib import Path

from namesakes import OURS

ROOT = Path(__file__).parents[2]


def test_no_module_is_loaded_under_two_names() -> None:
    """Neither here nor in a command that is started at the root of a checkout, where the folders are."""
    code = ("import runpy, sys\nsys.argv = ['floodmark', 'scenario', 'list']\n"
            "try:\n    runpy.run_module('floodmark.harness', run_name='__main__')\n"
            "finally:\n    print('loaded', *sys.modules)\n")
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
                         check=False)
    loaded = ran.stdout.rpartition("loaded")[2].split()
    assert "floodmark.harness.cli" in loaded, ran.stdout + ran.stderr
    assert [name for name in (*loaded, *sys.modules) if name.split(".")[0] in OURS] == []
