"""What went wrong in the judge itself, as data: shipped from a worker, and told of the runs concerned."""

import traceback
from dataclasses import dataclass

WORDS_AT_MOST = 300  # characters of an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception, as text that any process can read."""

    words: str  # its type and message, in one line
    traceback: str


def failure_of(error: BaseException) -> Failure:
    return Failure(
        words=f"{type(error).__name__}: {words_of(error)}",
        traceback="".join(traceback.format_exception(error)),
    )


def words_of(error: BaseException) -> str:
    """The error in one line; of one in a Python worker the last line of that worker's traceback."""
    head, in_worker, rest = str(error).strip().partition("Traceback (most recent call last):")
    if in_worker:
        told = [line for line in rest.split("\n\n")[0].splitlines() if line[:1].strip()]
        if told:
            return told[-1].strip()[:WORDS_AT_MOST]
    return (head.splitlines() or [""])[0][:WORDS_AT_MOST]
