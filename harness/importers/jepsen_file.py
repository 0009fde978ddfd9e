"""Reads the ops of a Jepsen history's file, one at a time: EDN, ops in sequence or in one vector, or JSON
lines. It does not interpret the ops.
Any other file is a UsageError with file, line and, for EDN, column.
"""

import hashlib
import mmap
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.importers.edn import EdnError, Keyword, Symbol, Tagged, Text, forms, line_at, text_of
from floodmark.harness.run_location import refuse_irregular

EVERY = 4096  # ops between two calls of on_read
SHOWN = 60  # characters shown of text that is not understood
USUAL = frozenset({"index", "time", "process", "type", "f", "value", "error"})  # fields of an op
_JSON = re.compile(rb'\s*(\[?)\s*\{\s*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class JepsenOp:
    """One op in Jepsen's history: its fields by name, without a keyword's colon."""

    at: int  # the byte of the file where it begins
    fields: Mapping[str, object]


class JepsenFile:
    """A history's file, in mapped memory. `on_read` is called now and then with the number of bytes read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_read: Callable[[int], None] = lambda _: None
        self.text = self._mapped()
        json = _JSON.match(self.text)
        self.is_json = json is not None
        if json and json[1]:
            raise UsageError(f"{path} is one JSON array, but one object per line is needed: "
                             f"jq -c '.[]' {path.name} > history.jsonl")
        if self.text[:6] == b"JEPSEN":
            raise UsageError(f"{path} is Jepsen's binary store: import the history.edn next to it")

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text).hexdigest()

    def ops(self) -> Iterator[JepsenOp]:
        try:
            for count, (at, form) in enumerate(self._json_lines() if self.is_json else forms(self.text)):
                if count % EVERY == EVERY - 1:
                    self.on_read(at)
                yield JepsenOp(at=at, fields=self._fields(at, form))
        except EdnError as error:
            raise UsageError(f"{self.path}:{error}") from error
        self.on_read(len(self.text))

    def wrong(self, at: int, problem: str) -> UsageError:
        return UsageError(f"{self.path}:{line_at(self.text, at)[0]}: {problem}")

    def _mapped(self) -> Text:
        try:
            if not self.path.is_dir():
                refuse_irregular(self.path.stat().st_mode, self.path)  # it is read several times
            with self.path.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.read(1) else b""
        except FileNotFoundError as error:
            raise UsageError(f"{self.path} does not exist") from error
        except IsADirectoryError as error:
            raise UsageError(f"{self.path} is a folder: name the history.edn in it") from error
        except OSError as error:
            raise FloodmarkError(f"cannot read {self.path}: {error.strerror}") from error

    def _json_lines(self) -> Iterator[tuple[int, object]]:
        at = 0
        while at < len(self.text):
            ends = self.text.find(b"\n", at) + 1
            line = self.text[at:ends or len(self.text)]
            if not line.isspace():
                try:
                    yield at, orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    cut = "" if ends else "; the file ends here: it may be cut off"
                    raise self.wrong(at, f"not JSON: {error}{cut}") from error
            at += len(line)

    def _fields(self, at: int, form: object) -> Mapping[str, object]:
        fields = form.form if isinstance(form, Tagged) else form
        if not isinstance(fields, dict):
            raise self.wrong(at, f"an op is a map, and this is {shown(form)}; "
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
    text = text_of(form)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
