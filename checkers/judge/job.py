"""The judge's entry point: turns any number of run folders into verdicts, in one Spark application.

Theory of operation. The driver reads the small files (folder.py) and cuts the big ones into ranges. Small
runs are put together into bags, each judged by one task; bigger ones are split over all cores (layout.py).
A first pass parses each file once, a second runs every law on every record, and returns the count and the few
worst of each group of findings (passes.py).

Spark is used for tasks, shuffles and disk through its RDDs: it moves packed blobs. Planning DataFrames around
them would take longer than all laws together.

This module imports little, so that it is imported quickly. The modules that judge are imported while Spark
starts (session.py).
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext

from floodmark.checkers.judge.failures import failure_of
from floodmark.checkers.read.folder import Folder, open_folder
from floodmark.checkers.spark import session
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run_location import Place
from floodmark.harness.spark_options import HERE, Watch, Workers
from floodmark.harness.verdict import Verdict


class SparkJudge:
    """Implements protocols.Judge."""

    def __init__(self, workers: Workers = HERE, watch: Watch | None = None) -> None:
        self._workers, self._watch = workers, watch

    def judge(self, folders: Sequence[Place]) -> list[Verdict]:
        """One verdict for each folder, in order."""
        opened: dict[int, Folder] = {}
        unread: dict[int, Exception] = {}
        for number, place in enumerate(folders):
            try:
                opened[number] = open_folder(place)
            except Exception as error:
                unread[number] = error
        judged = {number: folder for number, folder in opened.items() if folder.judged}
        verdicts = dict(zip(judged, self._with_spark([*judged.values()]), strict=True)) if judged else {}
        return [verdicts.get(number) or without_spark(opened.get(number), unread.get(number))
                for number in range(len(folders))]

    def _with_spark(self, folders: Sequence[Folder]) -> list[Verdict]:
        began = time.perf_counter()
        try:
            context = session.context(self._workers)
        except FloodmarkError:
            raise
        except Exception as error:
            return [without_spark(folder, error) for folder in folders]
        from floodmark.checkers.judge.many_runs import Spark, judge_all

        spark = Spark(context=context, workers=self._workers)
        timings_s = {"spark_start": time.perf_counter() - began}
        with self._watch(lambda: session.parts(spark.context)) if self._watch is not None else nullcontext():
            return judge_all(spark, folders, timings_s)


def without_spark(folder: Folder | None, error: Exception | None) -> Verdict:
    """The verdict on a folder that is no run, or on which the judge failed before Spark started."""
    from floodmark.checkers.judge.verdicts import failed, not_judged

    try:
        if error is None and folder is not None:
            return not_judged(folder)
    except Exception as another:
        error = another
    assert error is not None
    return failed(failure_of(error), {})
