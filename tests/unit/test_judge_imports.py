"""What `floodmark check` imports before Spark's JVM starts: nothing that takes long. The rest is imported
meanwhile (checkers/spark/session.py)."""

import subprocess
import sys
from importlib.util import find_spec

from floodmark.checkers.spark import session

SLOW = {"numpy", "pyarrow", "duckdb", "pandas", "networkx"}


def test_spark_waits_for_no_import() -> None:
    code = ("import sys, floodmark.harness.commands.check, floodmark.checkers.judge.job; "
            f"print({SLOW} & sys.modules.keys())")
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


def test_what_is_imported_meanwhile_is_there() -> None:
    assert find_spec(session.JUDGING) is not None
