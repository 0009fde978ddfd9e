"""The errors that users see: each says what was tried, what went wrong, and what to do."""

import difflib
from collections.abc import Collection
from typing import NoReturn


class FloodmarkError(Exception):
    """An operating error, not a bug in floodmark: shown as one sentence without a traceback. Exit code 4."""


class NotPrinted(Exception):
    """Standard output takes no more, for the reason of the cause, an OSError. code: what is known all the
    same."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


class WrongDisk(FloodmarkError):
    """A broker cannot join its cluster because its files are another cluster's: not the broker's bug."""


class UsageError(FloodmarkError):
    """The command line or an input file is wrong: exit code 2."""


class Refused(UsageError):
    """A part of an input file is wrong, and the text says why; the caller adds the file and the line."""


class UnfitCluster(UsageError):
    """The request is valid, but this cluster lacks an ability that it needs; the message names it."""


def refuse(why: str) -> NoReturn:
    raise Refused(why)


def nearest(name: str, valid: Collection[str], kind: str = "name") -> str:
    """The valid name that is closest to an unknown one, for its message; all of them if none is close."""
    near = difflib.get_close_matches(name, valid, n=1)
    return f"the closest valid {kind}: {near[0]}" if near else f"valid {kind}s: {', '.join(valid)}"
