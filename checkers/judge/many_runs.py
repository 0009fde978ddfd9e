"""Judges opened folders in the tasks of one Spark application, and tries again in smaller groups if that
fails.

A run that breaks a worker's Python code is reported by that worker, and its neighbours are judged. Where a
task itself dies (killed, out of memory), or the JVM does, the call is split in halves until the run that
causes it is alone. A run on which the judge failed is unknown, with the reason and the traceback; no run is
ever judged in another, slower way.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark import SparkContext

from floodmark.checkers.judge import passes
from floodmark.checkers.judge.failures import Failure, failure_of, is_of_spark, of_one_run
from floodmark.checkers.judge.layout import RunWork, bags_of
from floodmark.checkers.judge.verdicts import failed, rounded
from floodmark.checkers.read.folder import Folder, open_folder
from floodmark.checkers.spark import session
from floodmark.checkers.spark.spark_master import refuse_bare_workers
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.spark_options import SMALL_BYTES, UNIT_MEMORY, UNITS, Workers
from floodmark.harness.verdict import Verdict

_LOG = logging.getLogger("floodmark.judge")


@dataclass(slots=True, kw_only=True)
class Spark:
    """The context that the judge works on; a new one after its JVM has died."""

    context: SparkContext
    workers: Workers

    def restarted(self) -> bool:
        """Whether the JVM had died, and there is a new one. FloodmarkError if none starts."""
        if not session.has_died(self.context):
            return False
        _LOG.warning("Spark's JVM has died; another one is started, and the runs are judged half by half")
        self.context = session.context(self.workers)
        return True


def judge_all(
    spark: Spark, folders: Sequence[Folder], timings_s: Mapping[str, float], *, again: bool = False
) -> list[Verdict]:
    """Judge all together; if that fails each half by itself, down to the folder that causes it. If the driver
    fails on all of them together and on none alone, all are unknown. again: they were judged before; the
    notes of that attempt are dropped."""
    try:
        opened = [open_folder(folder.path) for folder in folders] if again else folders
        return judge_together(spark.context, opened, timings_s)
    except FloodmarkError:
        raise  # the error says what is missing; no folder is at fault
    except Exception as error:
        refuse_bare_workers(spark.context, error)
        failure, lost, died = failure_of(error), is_of_spark(error), spark.restarted()
    if len(folders) == 1:
        return [failed(failure, timings_s, died=died)]
    middle = len(folders) // 2
    halves = [
        *judge_all(spark, folders[:middle], timings_s, again=True),
        *judge_all(spark, folders[middle:], timings_s, again=True),
    ]
    if lost or died or any(verdict.failure for verdict in halves):
        return halves
    return [failed(failure, timings_s) for _ in folders]


def judge_together(
    spark: SparkContext, folders: Sequence[Folder], timings_s: Mapping[str, float]
) -> list[Verdict]:
    """One verdict for each folder. It raises if a task did not come back, or if the driver failed."""
    began = time.perf_counter()
    works: list[RunWork] = []
    judged: dict[int, Verdict | Failure] = {}
    for run, folder in enumerate(folders):
        work = of_one_run(partial(RunWork.of, run, folder))
        if isinstance(work, Failure):
            judged[run] = work
        else:
            works.append(work)
    bags, big = bags_of(works, session.cores(spark), number_in(spark, SMALL_BYTES))
    if bags:
        judged |= dict(spark.parallelize(bags, len(bags)).flatMap(judged_bag).collect())
    if big:
        judged |= passes.judged_by_many(spark, big, number_in(spark, UNIT_MEMORY))
    timings = {**timings_s, "judge": time.perf_counter() - began}
    return [
        failed(one, timings) if isinstance(one, Failure) else replace(one, timings_s=rounded(timings))
        for one in (judged[run] for run in range(len(folders)))
    ]


def judged_bag(bag: Sequence[RunWork]) -> list[tuple[int, Verdict | Failure]]:
    """The work of a task."""
    return [*passes.judged_bag(bag).items()]


def number_in(spark: SparkContext, key: str) -> int | None:
    """The number in this key of floodmark's, if somebody has configured it."""
    setting = spark.getConf().get(key)
    if setting is not None and not setting.isdecimal():
        raise UsageError(f"{key} is a number of {UNITS[key]}, not {setting!r}")
    return None if setting is None else int(setting)
