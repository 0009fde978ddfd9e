"""Reads the ops of a Jepsen history's file, one at a time: EDN, ops in sequence or in one vector, or JSON
lines. It does not interpret the ops.
Any other file is a UsageError with file, line and, for EDN, column.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.importers.edn import EdnError, Forms, Keyword, Symbol, Tagged, forms, text_of
from floodmark.harness.run_location import refuse_irregular

BLOCK_BYTES = 1 << 18
HEAD_BYTES = 1 << 16
LINES = 4096  # of JSON, as much as a block
SHOWN = 60  # characters shown of text that is not understood
USUAL = frozenset({"index", "time", "process", "type", "f", "value", "error"})  # fields of an op
_JSON = re.compile(rb'\s*(\[?)\s*\{\s*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class JepsenOp:
    """One op in Jepsen's history: its fields by name, without a keyword's colon."""

    line: int
    fields: Mapping[str, object]


class Common(Protocol):
    """Converts lines of the most common shape by itself, and faster."""

    pattern: re.Pattern[bytes]  # of a complete line

    def learn_order(self, text: bytes) -> None:
        """Learns the order of fields from the next lines."""

    def convert(self, line: re.Match[bytes]) -> bool:
        """Converts a line; False: the line must be read like any other."""


class JepsenFile:
    """A history's file. `digest` is the digest of the bytes read so far; `on_read` is called now and then
    with their number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_read: Callable[[int], None] = lambda _: None
        self.digest = hashlib.sha256()
        head = self._head()
        json = _JSON.match(head)
        self.is_json = json is not None
        if json and json[1]:
            raise UsageError(f"{path} is one JSON array, but one object per line is needed: "
                             f"jq -c '.[]' {path.name} > history.jsonl")
        if head.startswith(b"JEPSEN"):
            raise UsageError(f"{path} is Jepsen's binary store: import the history.edn next to it")

    def ops(self, common: Common | None = None) -> Iterator[JepsenOp]:
        """Yields the ops in the order of the file, without the lines that `common` converts."""
        try:
            for line, form in self._json_lines() if self.is_json else self._forms(common):
                yield JepsenOp(line=line, fields=self._fields(line, form))
        except EdnError as error:
            raise UsageError(f"{self.path}:{error.line}:{error.column}: {error.problem}") from error
        except OSError as error:
            raise FloodmarkError(f"cannot read {self.path}: {error.strerror}") from error

    def wrong(self, line: int, problem: str) -> UsageError:
        return UsageError(f"{self.path}:{line}: {problem}")

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
        """Yields the forms. A line is offered to `common` only if it may begin a form and no other is open;
        the EDN parser gets everything in between."""
        if common is None:
            yield from forms(self._blocks())
            return
        text = Forms()
        for block in self._blocks_of_lines():
            common.learn_order(block)
            at = lines = 0  # read so far; converted by `common` since the EDN parser's last text
            convert, between = common.convert, text.between
            for line in common.pattern.finditer(block):
                begins, ends = line.span()
                if begins > at or not between:
                    text.skip_lines(lines)
                    yield from text.read(block[at:begins])
                    lines, between = 0, text.between
                if between and convert(line):
                    lines += 1
                else:
                    text.skip_lines(lines)
                    yield from text.read(line[0])
                    lines, between = 0, text.between
                at = ends
            text.skip_lines(lines)
            yield from text.read(block[at:])
        yield from text.close()

    def _blocks_of_lines(self) -> Iterator[bytes]:
        """Yields the file in blocks that end at the end of a line."""
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
                self.on_read(file.tell())

    def _json_lines(self) -> Iterator[tuple[int, object]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                self.digest.update(line)
                if number % LINES == 0:
                    self.on_read(file.tell())
                if line.isspace():
                    continue
                try:
                    yield number, orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    cut = "" if line.endswith(b"\n") else "; the file ends here: it may be cut off"
                    raise self.wrong(number, f"not JSON: {error}{cut}") from error

    def _fields(self, line: int, form: object) -> Mapping[str, object]:
        fields = form.form if isinstance(form, Tagged) else form
        if not isinstance(fields, dict):
            raise self.wrong(line, f"an op is a map, and this is {shown(form)}; "
                                   "is this the history.edn of a Jepsen test?")
        if self.is_json and fields.keys() <= USUAL:
            return fields  # in JSON the names have no colon
        return {name_of(key) or text_of(key): value for key, value in fields.items()}


def name_of(form: object) -> str | None:
    """The name of a keyword or symbol, or a string of JSON; None: it is neither."""
    if isinstance(form, Keyword | Symbol):
        return form.name
    return form.removeprefix(":") if isinstance(form, str) else None


def shown(form: object) -> str:
    """The beginning of the form's text."""
    text = text_of(form)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
