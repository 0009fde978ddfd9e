"""The process that Spark's Python workers are forked from, on this machine: it has imported all they need.

Spark starts it as `python -m floodmark.checkers.judge.daemon pyspark.worker`, in place of pyspark.daemon.
Each worker would else import Arrow, DuckDB and the judge by itself, half a second each time.

A worker collects garbage after every task. All that was imported would be looked through each time, 66 ms of
CPU, and its pages would be the worker's own from then on; frozen, it is passed over (0.1 ms).
"""

import gc

import pyarrow.json  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import floodmark.checkers.judge.two_passes  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
