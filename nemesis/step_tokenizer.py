"""Splits a line of a scenario's steps into tokens, and has a cursor over them; errors list the valid words.

Rules
1. `#` begins a comment. Commas separate names and mean nothing else.
2. A time is a number with its unit, 5ms or 2.5s. A bare number is a count, an offset, an epoch or a value.
"""

import re
from collections.abc import Collection, Sequence
from typing import NoReturn

from floodmark.harness.errors import UsageError
from floodmark.harness.schedule.roles import ROLES

_TOKEN = re.compile(
    r"(?P<time>\d+(?:\.\d+)?(?:ms|s)\b)|(?P<number>\d+)|(?P<range>\.\.)|(?P<order>[<>]=?|[!=]=)"
    r"|(?P<word>[A-Za-z][\w-]*(?:\.[A-Za-z]\w*)?)|(?P<comma>,)|(?P<space>\s+)|(?P<else>=(?!=)|\S+)"
)
_STATE = re.compile(r"\b(wait|when)\b")  # what may be compared follows
_NODE = re.compile(r"n\d+")
_NS = {"ms": 1_000_000, "s": 1_000_000_000}


class Refused(UsageError):
    """A line is wrong, and the text says why; the caller adds the line's number."""


def split_tokens(line: str) -> list[str]:
    """Split one line into words and commas."""
    found = []
    for match in _TOKEN.finditer(line.partition("#")[0]):
        if match.group() == "=":
            should = "comparison should be, which is ==" if _STATE.search(match.string) else "space should be"
            refuse(f"has = where a {should}: {match.string.strip()}")
        if match.lastgroup == "else":
            refuse(f"unknown character {match.group()!r}: {match.string.strip()}")
        if match.lastgroup != "space":
            found.append(match.group())
    return found


def refuse(why: str) -> NoReturn:
    raise Refused(why)


def is_number(token: str | None) -> bool:
    return token is not None and token.isdecimal()


def is_time(token: str | None) -> bool:
    return token is not None and token[0].isdecimal() and not token.isdecimal()


def is_name(token: str | None) -> bool:
    return token is not None and token[0].isalpha()


class Cursor:
    """A position among the tokens of a line."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._at = 0

    @property
    def next(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    @property
    def after(self) -> str | None:
        """The token after the next."""
        return self._words[self._at + 1] if self._at + 1 < len(self._words) else None

    def take(self, expected: str) -> str:
        """The next token; `expected` is for the error where there is none."""
        token = self.next
        if token is None:
            refuse(f"ends where {expected} should be")
        self._at += 1
        return token

    def skip(self, word: str) -> bool:
        """Take the next token if it is this word; returns whether it was."""
        if self.next != word:
            return False
        self._at += 1
        return True

    def expect(self, word: str) -> None:
        if not self.skip(word):
            refuse(f"has {quoted(self.next)} where {word!r} should be")

    def one_of(self, expected: str, valid: Collection[str]) -> str:
        token = self.take(expected)
        if token not in valid:
            refuse(f"{expected} is {token!r}; valid: {', '.join(valid)}")
        return token

    def number(self, expected: str) -> int:
        token = self.take(expected)
        if not is_number(token):
            refuse(f"{expected} is {token!r}, should be a whole number")
        return int(token)

    def time_ns(self, expected: str) -> int:
        token = self.take(expected)
        if not is_time(token):
            refuse(f"{expected} is {token!r}, should be a time: 200ms or 2.5s")
        unit = "ms" if token.endswith("ms") else "s"
        return round(float(token.removesuffix(unit)) * _NS[unit])

    def name(self, expected: str) -> str:
        token = self.take(expected)
        if not is_name(token):
            refuse(f"{expected} is {token!r}, should be a name")
        return token

    def names(self, expected: str) -> list[str]:
        """Take one name, or several with commas between them."""
        found = [self.name(expected)]
        while self.skip(","):
            found.append(self.name(expected))
        if self.next in ROLES or _NODE.fullmatch(self.next or ""):
            refuse(f"has {found[-1]!r} and {self.next!r} without a comma between them: "
                   f"{', '.join([*found, str(self.next)])}")
        return found

    def end(self, valid: Sequence[str] = ()) -> None:
        """Refuse any token that is left."""
        if self.next is not None:
            could = f"; valid there: {', '.join(valid)}" if valid else ""
            refuse(f"has {self.next!r} at a wrong place{could}")


def quoted(token: str | None) -> str:
    return "nothing" if token is None else repr(token)
