"""The error of a scenario's file that cannot be used."""

from typing import NoReturn

from floodmark.harness.errors import UsageError


class Refused(UsageError):
    """A line is wrong, and the text says why; the caller adds the line's number."""


def refuse(why: str) -> NoReturn:
    raise Refused(why)
