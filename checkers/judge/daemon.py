"""The process from which Spark's Python workers are forked on this machine; it has imported all they need.

Spark starts it as `python -m floodmark.checkers.judge.daemon pyspark.worker`, instead of pyspark.daemon.
Otherwise each worker would import Arrow, DuckDB and the judge by itself, half a second each time.

A worker collects garbage after every task. Without gc.freeze() each collection would scan all imported
objects, 66 ms of CPU, and copy their memory pages into the worker; frozen, they are skipped (0.1 ms).
At the daemon's own exit they are collected: DuckDB would report each of its functions as leaked.
"""

import atexit
import gc

import pyarrow.json  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import floodmark.checkers.judge.passes  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    atexit.register(gc.unfreeze)
    manager()
