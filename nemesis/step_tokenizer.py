"""Splits a line of a scenario's steps into tokens, with a cursor over them; refuses with the valid words.

Rules
1. `#` begins a comment. Commas part names and mean nothing else.
2. A time is a number with its unit, 5ms or 2.5s. A bare number is a count, an offset, an epoch or a value.
"""

import re
from collections.abc import Collection, Sequence
from typing import NoReturn

from floodmark.harness.errors import UsageError

_TOKEN = re.compile(
    r"(?P<time>\d+(?:\.\d+)?(?:ms|s)\b)|(?P<number>\d+)|(?P<range>\.\.)|(?P<order>[<>]=?|[!=]=)"
    r"|(?P<word>[A-Za-z][\w-]*(?:\.[A-Za-z]\w*)?)|(?P<comma>,)|(?P<space>\s+)|(?P<else>\S+)"
)
_NS = {"ms": 1_000_000, "s": 1_000_000_000}


class Refused(UsageError):
    """What is wrong with a line; whoever knows the line's number says so."""


def tokens(line: str) -> list[str]:
    """The words of one line, commas among them."""
    found = []
    for match in _TOKEN.finditer(line.partition("#")[0]):
        if match.lastgroup == "else":
            refuse(f"what is {match.group()!r}? {match.string.strip()}")
        if match.lastgroup != "space":
            found.append(match.group())
    return found


def refuse(what: str) -> NoReturn:
    raise Refused(what)


def is_number(token: str | None) -> bool:
    return token is not None and token.isdecimal()


def is_time(token: str | None) -> bool:
    return token is not None and token[0].isdecimal() and not token.isdecimal()


def is_name(token: str | None) -> bool:
    return token is not None and token[0].isalpha()


class Cursor:
    """What of a line is still to be read."""

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

    def take(self, what: str) -> str:
        """The next token; `what` says what it should be, where there is none."""
        token = self.next
        if token is None:
            refuse(f"ends where {what} should be")
        self._at += 1
        return token

    def skip(self, word: str) -> bool:
        """Whether the next token was this one; then it is behind us."""
        if self.next != word:
            return False
        self._at += 1
        return True

    def expect(self, word: str) -> None:
        if not self.skip(word):
            refuse(f"has {quoted(self.next)} where {word!r} should be")

    def one_of(self, what: str, valid: Collection[str]) -> str:
        token = self.take(what)
        if token not in valid:
            refuse(f"{what} is {token!r}; valid: {', '.join(valid)}")
        return token

    def number(self, what: str) -> int:
        token = self.take(what)
        if not is_number(token):
            refuse(f"{what} is {token!r}, should be a whole number")
        return int(token)

    def time_ns(self, what: str) -> int:
        token = self.take(what)
        if not is_time(token):
            refuse(f"{what} is {token!r}, should be a time: 200ms or 2.5s")
        unit = "ms" if token.endswith("ms") else "s"
        return round(float(token.removesuffix(unit)) * _NS[unit])

    def name(self, what: str) -> str:
        token = self.take(what)
        if not is_name(token):
            refuse(f"{what} is {token!r}, should be a name")
        return token

    def names(self, what: str) -> list[str]:
        """One name, or several with commas between them."""
        found = [self.name(what)]
        while self.skip(","):
            found.append(self.name(what))
        return found

    def end(self, valid: Sequence[str] = ()) -> None:
        """Nothing may be left."""
        if self.next is not None:
            could = f"; what may stand there: {', '.join(valid)}" if valid else ""
            refuse(f"does not know {self.next!r} where it stands{could}")


def quoted(token: str | None) -> str:
    return "nothing" if token is None else repr(token)
