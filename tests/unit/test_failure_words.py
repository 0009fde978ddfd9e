"""A task's failure in one line: the type and the message of the error that caused it."""

import pytest

from floodmark.checkers.judge.failures import failure_of

WORKS = """An error occurred while calling z:PythonRDD.collectAndServe.
: SparkException: Lost task 0.0 in stage 1.0 (host executor 1): Python: Traceback (most recent call last):
  File "worker.py", line 5, in main
    process()
KeyError: 'epoch'

	at org.apache.spark.api.python.BasePythonRunner
"""
STARTS = """Lost task 0.0 in stage 0.0 (host executor 1): org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "daemon.py", line 7, in <module>
      from floodmark.checkers.judge import passes
  ImportError: cannot import name 'passes'
PYTHONPATH was:
  /opt/spark
"""


@pytest.mark.parametrize(("message", "line"), [
    (WORKS, "KeyError: 'epoch'"),
    (STARTS, "ImportError: cannot import name 'passes'"),
    ("Lost task 1.0 in stage 0.0 (host executor 2): ExecutorLost\nmore", "RuntimeError: ExecutorLost"),
    ("nothing is known\nof it", "RuntimeError: nothing is known"),
])  # fmt: skip
def test_the_line_of_a_failure(message: str, line: str) -> None:
    assert failure_of(RuntimeError(message)).words == line
