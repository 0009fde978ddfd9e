"""`floodmark check` imports nothing slow before Spark's JVM starts. The rest is imported while it starts
(checkers/spark/session.py). No command imports a Kafka library before it needs one."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from floodmark.checkers.spark import session

SLOW = {"numpy", "pyarrow", "duckdb", "pandas", "networkx"}


def test_no_slow_import_precedes_spark() -> None:
    code = ("import sys, floodmark.harness.commands.check, floodmark.checkers.judge.job; "
            f"print({SLOW} & sys.modules.keys())")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_no_command_imports_a_kafka_library_or_what_draws_at_once() -> None:
    code = ("import sys, floodmark.harness.cli, floodmark.harness.commands.check, "
            "floodmark.harness.commands.show; "
            "print({'kafka', 'kio', 'confluent_kafka', 'docker', 'jinja2', 'rich'} & sys.modules.keys())")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_only_one_module_names_what_pyspark_has_not_made_public() -> None:
    private = re.compile(r"\._(jvm|jsc|jdf|jc|jrdd|gateway|active_spark_context|ensure_initialized|java_)\b"
                         r"|SparkSession\._|SQLContext\._|SparkContext\._")
    modules = Path(session.__file__).parents[1].rglob("*.py")
    assert {path.name for path in modules if private.search(path.read_text())} == {"jvm.py"}


def test_the_module_imported_meanwhile_exists() -> None:
    assert find_spec(session.JUDGING) is not None


def test_the_process_that_workers_are_forked_from_ends_in_silence() -> None:
    """It ends when Spark closes its stdin; what it wrote then would come after a command's last line."""
    ended = subprocess.run([sys.executable, "-m", session.DAEMON, "pyspark.worker"], stdin=subprocess.DEVNULL,
                           capture_output=True, check=False)
    assert ended.stderr == b""
