"""What went wrong in the judge itself, as data: shipped from a worker, and told of the runs concerned."""

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
# In what the JVM says of a job: where a task was lost, and what it was lost by.
_LOST = re.compile(r"Lost task [^\n]*? executor [^\n)]*\): ([^\n]+)")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception, as text that any process can read."""

    words: str  # its type and message, in one line
    traceback: str


def failure_of(error: BaseException) -> Failure:
    words = words_of(error)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        words = f"{error.filename} is not there for the machine that was to read it; {WHERE_RUNS_LIE}"
    return Failure(words=words, traceback="".join(traceback.format_exception(error)))


def of_one_run(work: Callable[[], Made]) -> Made | Failure:
    """What the driver makes of one run, or how it failed on it. What is wrong with Spark, or lacking, is
    raised: it is no run's fault."""
    try:
        return work()
    except FloodmarkError:
        raise
    except Exception as error:
        if is_of_spark(error):
            raise
        return failure_of(error)


def is_of_spark(error: Exception) -> bool:
    """Whether it comes from the JVM: of a job, a task of which did not come back, or of the JVM's end."""
    return isinstance(error, (Py4JError, PySparkException))


def words_of(error: BaseException) -> str:
    """The error's type and message in one line; of one in a Python worker, that worker's; of a job that was
    aborted, what its task was lost by."""
    try:
        message = str(error).strip()
    except Exception:  # py4j asks the JVM, which may be gone
        message = ""
    before, in_worker, rest = message.partition(_TRACEBACK)
    lost = _LOST.search(message)
    margin = before.rpartition("\n")[2]  # of a worker that did not start all is indented
    line = rf"^{margin if margin.isspace() else ''}(\S.*)"
    if in_worker and (error_line := re.search(line, rest, re.MULTILINE)):
        words = error_line[1]
    elif lost is not None:
        words = f"{type(error).__name__}: {lost[1]}"
    else:
        words = f"{type(error).__name__}: {(message.splitlines() or [''])[0]}"
    return words.strip()[:WORDS_AT_MOST]
