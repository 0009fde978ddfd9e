"""The ops of a Jepsen history's file, one at a time: EDN, one op behind the other or all in one vector, or
JSON lines. What the ops mean is not looked at here.

A file that is neither is a UsageError with file, line and, of EDN, column.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.importers.edn import EdnError, Forms, Keyword, Symbol, Tagged, forms, text_of
from floodmark.harness.run_location import refuse_irregular

BLOCK_BYTES = 1 << 18
HEAD_BYTES = 1 << 16
SHOWN = 60  # characters of what is not understood
USUAL = frozenset({"index", "time", "process", "type", "f", "value", "error"})  # fields of an op
_JSON = re.compile(rb'\s*(\[?)\s*\{\s*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One op as Jepsen told it: its fields by name, without a keyword's colon."""

    line: int
    fields: Mapping[str, object]


class Common(Protocol):
    """Takes lines of the most common shape by itself, and is quicker about it."""

    pattern: re.Pattern[bytes]  # a whole line

    def look(self, text: bytes) -> None:
        """Whole lines that come next."""

    def take(self, line: re.Match[bytes]) -> bool:
        """Whether the line was taken; else it is to be read like any other."""


class JepsenFile:
    """A history's file. `digest` is that of the bytes read so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digest = hashlib.sha256()
        head = self._head()
        json = _JSON.match(head)
        self.is_json = json is not None
        if json and json[1]:
            raise UsageError(f"{path} is one JSON array, and one object a line is read: "
                             f"jq -c '.[]' {path.name} > history.jsonl")
        if head.startswith(b"JEPSEN"):
            raise UsageError(f"{path} is Jepsen's binary store: import the history.edn that lies beside it")

    def ops(self, common: Common | None = None) -> Iterator[Told]:
        """Every op, in the order of the file, but those lines that `common` takes."""
        try:
            for line, form in self._json_lines() if self.is_json else self._forms(common):
                yield Told(line=line, fields=self._fields(line, form))
        except EdnError as error:
            raise UsageError(f"{self.path}:{error.line}:{error.column}: {error.what}") from error
        except OSError as error:
            raise FloodmarkError(f"cannot read {self.path}: {error.strerror}") from error

    def wrong(self, line: int, what: str) -> UsageError:
        return UsageError(f"{self.path}:{line}: {what}")

    def _head(self) -> bytes:
        try:
            if not self.path.is_dir():
                refuse_irregular(self.path.stat().st_mode, self.path)  # it is read twice, from its beginning
            with self.path.open("rb") as file:
                return file.read(HEAD_BYTES)
        except FileNotFoundError as error:
            raise UsageError(f"{self.path} does not exist") from error
        except IsADirectoryError as error:
            raise UsageError(f"{self.path} is a folder: name the history.edn in it") from error
        except OSError as error:
            raise FloodmarkError(f"cannot read {self.path}: {error.strerror}") from error

    def _forms(self, common: Common | None) -> Iterator[tuple[int, object]]:
        """A line is offered to `common` only where a form may begin with it and nothing else is open; the
        reader of EDN has all that stands between."""
        if common is None:
            yield from forms(self._blocks())
            return
        text = Forms()
        for block in self._whole_lines():
            common.look(block)
            at = lines = 0  # read so far; taken since the reader of EDN had something
            take, between = common.take, text.between
            for line in common.pattern.finditer(block):
                begins, ends = line.span()
                if begins > at or not between:
                    text.skip_lines(lines)
                    yield from text.read(block[at:begins])
                    lines, between = 0, text.between
                if between and take(line):
                    lines += 1
                else:
                    text.skip_lines(lines)
                    yield from text.read(line[0])
                    lines, between = 0, text.between
                at = ends
            text.skip_lines(lines)
            yield from text.read(block[at:])
        yield from text.close()

    def _whole_lines(self) -> Iterator[bytes]:
        """The blocks, each to the end of a line."""
        rest: list[bytes] = []
        for block in self._blocks():
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join([*rest, block[:cut]])
                rest = []
            rest.append(block[cut:])
        yield b"".join(rest)

    def _blocks(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                self.digest.update(block)
                yield block

    def _json_lines(self) -> Iterator[tuple[int, object]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                self.digest.update(line)
                if line.isspace():
                    continue
                try:
                    yield number, orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise self.wrong(number, f"not JSON: {error}") from error

    def _fields(self, line: int, form: object) -> Mapping[str, object]:
        told = form.form if isinstance(form, Tagged) else form
        if not isinstance(told, dict):
            raise self.wrong(line, f"an op is a map, and this is {shown(form)}; "
                                   "is this the history.edn of a Jepsen test?")
        if self.is_json and told.keys() <= USUAL:
            return told  # JSON spells them as they are called
        return {word(key) or text_of(key): value for key, value in told.items()}


def word(form: object) -> str | None:
    """A keyword's or symbol's name; JSON has strings in their stead. None: no word."""
    if isinstance(form, Keyword | Symbol):
        return form.name
    return form.removeprefix(":") if isinstance(form, str) else None


def shown(form: object) -> str:
    """The form as text, its beginning."""
    text = text_of(form)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
