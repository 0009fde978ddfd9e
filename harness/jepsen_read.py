"""The ops of a Jepsen history's file, one at a time: EDN, one op behind the other or all in one vector, or
JSON lines. What the ops mean is not looked at here.

A file that is neither is a UsageError with file, line and, of EDN, column.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from harness.edn import EdnError, forms
from harness.edn_forms import Keyword, Symbol, Tagged, text_of
from harness.errors import FloodmarkError, UsageError
from harness.places import refuse_irregular

BLOCK_BYTES = 1 << 18
HEAD_BYTES = 1 << 16
SHOWN = 60  # characters of what is not understood
_JSON = re.compile(rb'\s*(\[?)\s*\{\s*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One op as Jepsen told it: its fields by name, without a keyword's colon."""

    line: int
    fields: Mapping[str, object]


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

    def ops(self) -> Iterator[Told]:
        """Every op, in the order of the file."""
        try:
            for line, form in self._json_lines() if self.is_json else forms(self._blocks()):
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
