"""Reads the ops of a Jepsen history's file, one at a time: EDN, ops in sequence or in one vector, or JSON
lines. It does not interpret the ops. Any other file is a UsageError with file, line and, for EDN, column.
Numbers the keys, values and processes of a history, which may be of any type. The mapping is one to one.

Rules
1. A key that is an integer keeps its number; any other key gets the number that it spells, if it is free, or
   the first free one. In JSON a map's keys are strings: there "5" and 5 are the same key. Anywhere, a key
   that is only ever assigned is the used one with the same text, if there is just one (Maelstrom's clients
   use "5", and assign 5 in the end). Only the end of a history shows that: it is then read again.
2. Jepsen's values are unique for a key, format 1 needs them unique in the run: a value v of partition p
   becomes p * 10^12 + v, so that partition 0 keeps its values and the others can be recognised. A value that
   is no number from 0 to 10^12 is numbered -1, -2, ... in order of appearance.
3. A process keeps its number. In a later life (after its position in the logs was given up), and in a life
   for a single poll, it has that number + 10^9, + 2 * 10^9, ...
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
SPAN = 10**12  # values of one partition
PARTITIONS = 9 * 10**6  # this many spans fit below 2^63
LIFE = 10**9


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


# -- keys, values and processes ------------------------------------------------------------------------------


class Names:
    """The numbers of one import's keys, values and processes."""

    def __init__(self, *, json: bool, same: Mapping[int | str, object]) -> None:
        """same: key, or its text -> the key that it is (only_assigned)."""
        self.same = same
        self.partitions: dict[int, str] = {}  # number -> the key as text
        self.odd: dict[tuple[int, str], int] = {}  # (partition, value as text) -> its number
        self._json = json
        self._numbers: dict[int | str, int] = {}  # key, or its text -> number
        self._keys: dict[int | str, object] = {}
        self._used: set[int | str] = set()  # those of sends and reads
        self._free = 0
        self._lives: dict[int, int] = {}  # process -> its number of further lives
        self._now: dict[int, int] = {}  # process -> its present number, in a further life

    def partition(self, key: object, *, used: bool = True) -> int:
        """The number of a key. used: by a send or read."""
        key_ = _as_number(key) if self._json and isinstance(key, str) else key
        name = _name_of(key_)
        if name in self.same:
            key_ = self.same[name]
            name = _name_of(key_)
        if (number := self._numbers.get(name)) is None:
            number = self._numbers[name] = self._number_for(key_)
            self.partitions[number] = text_of(key_)
            self._keys[name] = key_
        if used:
            self._used.add(name)
        return number

    def only_assigned(self) -> dict[int | str, object]:
        """Each key, or its text, that is not used, and the only used one with the same text."""
        used: dict[str, list[object]] = {}
        for name in self._used:
            used.setdefault(_plain(self._keys[name]), []).append(self._keys[name])
        unused = {name: used.get(_plain(key), []) for name, key in self._keys.items()
                  if name not in self._used}
        return {name: alike[0] for name, alike in unused.items() if len(alike) == 1}

    def value(self, partition: int, value: object, *, new: bool = True) -> int | None:
        """The number of the value; None if it is an odd value without a number and `new` is false."""
        if type(value) is int and 0 <= value < SPAN and partition < PARTITIONS:
            return partition * SPAN + value
        key_ = partition, text_of(value)
        if key_ not in self.odd and new:
            self.odd[key_] = -1 - len(self.odd)
        return self.odd.get(key_)

    def process(self, process: int) -> int:
        return self._now.get(process, process)

    def new_life(self, process: int) -> None:
        """Begins a new life of the process: its earlier reads do not restrict its next ones."""
        self._now[process] = self.another(process)

    def another(self, process: int) -> int:
        """A new process number, for a life without earlier reads."""
        self._lives[process] = self._lives.get(process, 0) + 1
        return process + LIFE * self._lives[process]

    def odd_values(self) -> Iterator[dict[str, object]]:
        for (partition, text), number in self.odd.items():
            yield {"value": number, "partition": partition, "was": text}

    def _number_for(self, key: object) -> int:
        wanted = _as_number(key) if isinstance(key, str) else key
        if type(wanted) is int and 0 <= wanted < 1 << 31 and wanted not in self.partitions:
            return wanted
        while self._free in self.partitions:
            self._free += 1
        return self._free


def _name_of(key: object) -> int | str:
    return key if type(key) is int else text_of(key)  # True is no 1


def _plain(key: object) -> str:
    """The key's text without quotes and colon."""
    return key.name if isinstance(key, Keyword) else key if isinstance(key, str) else text_of(key)


def _as_number(text: str) -> int | str:
    """The number that a string spells; else the string."""
    digits = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if digits and (text[0] != "0" or text == "0") else text
