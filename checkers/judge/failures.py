"""Errors of the judge itself, as data: workers send them, and the verdicts of the runs concerned show
them."""

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from floodmark.harness.errors import FloodmarkError

WHERE_RUNS_LIE = "on a cluster every worker must see a run folder at the same path"
WORDS_AT_MOST = 300  # characters of an error
_TRACEBACK = "Traceback (most recent call last):"
# Finds, in the JVM's message about a job, the error that lost a task.
_LOST = re.compile(r"Lost task [^\n]*? executor [^\n)]*\): ([^\n]+)")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception, as text that any process can read."""

    words: str  # its type and message in one line
    traceback: str


def failure_of(error: BaseException) -> Failure:
    words = words_of(error)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        words = f"{error.filename} is not there for the machine that was to read it; {WHERE_RUNS_LIE}"
    return Failure(words=words, traceback="".join(traceback.format_exception(error)))


def of_one_run(work: Callable[[], Made]) -> Made | Failure:
    """The result of the driver's work on one run, or its failure. Errors of Spark, or a missing Spark, are
    raised: they are not the run's fault."""
    try:
        return work()
    except FloodmarkError:
        raise
    except Exception as error:
        if is_of_spark(error):
            raise
        return failure_of(error)


def is_of_spark(error: Exception) -> bool:
    """Whether the error comes from the JVM: a job lost a task, or the JVM ended."""
    return isinstance(error, (Py4JError, PySparkException))


def words_of(error: BaseException) -> str:
    """The error's type and message in one line. Of an error in a Python worker, the worker's; of an aborted
    job, the error that lost its task."""
    try:
        message = str(error).strip()
    except Exception:  # py4j calls the JVM, which may have ended
        message = ""
    before, in_worker, rest = message.partition(_TRACEBACK)
    lost = _LOST.search(message)
    margin = before.rpartition("\n")[2]  # the error of a worker that did not start is indented
    line = rf"^{margin if margin.isspace() else ''}(\S.*)"
    if in_worker and (error_line := re.search(line, rest, re.MULTILINE)):
        words = error_line[1]
    elif lost is not None:
        words = f"{type(error).__name__}: {lost[1]}"
    else:
        words = f"{type(error).__name__}: {(message.splitlines() or [''])[0]}"
    return words.strip()[:WORDS_AT_MOST]
