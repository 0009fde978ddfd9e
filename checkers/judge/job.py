"""The judge: any number of run folders to as many verdicts, in one Spark application.

Theory of operation. The driver reads the small files (folder.py) and cuts the big ones into ranges. Runs
that are small are put together to bags, each judged by one task (whole_runs.py); bigger ones are cut up and
spread over all cores (two_passes.py). Either way a first pass parses each file once and tells the driver a
few facts; from them follows what may be claimed, and what is permitted. A second pass asks every law of every
record. What comes back is, of each group of findings, the count and the few worst.

Spark is asked for tasks, shuffles and disk through its RDDs: what it moves are packed blobs, and to plan
DataFrames around them would take longer than all laws together.

This module is quickly imported. What judges is not, and is while Spark starts (session.py).
"""

import time
from collections.abc import Sequence

from floodmark.checkers.judge.failures import failure_of
from floodmark.checkers.read.folder import Folder, open_folder
from floodmark.checkers.spark import session
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run_location import Place
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.verdict import Verdict


class SparkJudge:
    """Implements protocols.Judge."""

    def __init__(self, workers: Workers = HERE) -> None:
        self._workers = workers

    def judge(self, folders: Sequence[Place]) -> list[Verdict]:
        """A verdict for each folder, in order."""
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
        return judge_all(spark, folders, {"spark_start": time.perf_counter() - began})


def without_spark(folder: Folder | None, error: Exception | None) -> Verdict:
    """On a folder that is no run, or on which the judge failed before Spark saw it."""
    from floodmark.checkers.judge.verdicts import failed, not_judged

    try:
        if error is None and folder is not None:
            return not_judged(folder)
    except Exception as another:
        error = another
    assert error is not None
    return failed(failure_of(error), {})
