"""Reads TOML files that people write, and refuses mistakes with their lines, which tomllib does not
tell. Pure.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from floodmark.harness.errors import UsageError

_HEADER = re.compile(r"\s*\[(\[)?\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*=(.*)""")
_QUOTES = ('"""', "'''")


class TomlFile:
    """A parsed file. A place in it: a key ("": the header), its table ("" at the top), which of that name."""

    def __init__(self, source: str, text: str, what: str) -> None:
        """what: the file, in words, as `a plan`. UsageError where the text is no TOML."""
        self.source, self.text, self.what = source, text, what
        try:
            self.data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            _, at, rest = str(error).rpartition("(at line ")  # or `(at end of document)`, the last one
            number = rest.partition(",")[0]
            last = int(number) if at and number.isdecimal() else len(text.splitlines())
            raise UsageError(f"{source}:{last}: is no TOML: {error}") from error
        self._lines: dict[tuple[str, int, str], int] = {}
        seen: dict[str, int] = {}
        table, index = "", 0
        for at_line, line in self._lines_outside_strings():
            if (header := _HEADER.match(line)) is not None:
                table = header[2]
                index = seen[table] = seen.get(table, -1) + 1
                self._lines[table, index, ""] = at_line
            elif (key := _KEY.match(line)) is not None:
                self._lines.setdefault((table, index, key[1] or key[2] or key[3]), at_line)

    def refuse(self, why: object, key: str = "", table: str = "", index: int = 0) -> NoReturn:
        raise UsageError(f"{self.source}:{self.line_of(key, table, index)}: {why}")

    def line_of(self, key: str, table: str = "", index: int = 0) -> int:
        """The line of a key, which may be a table at the top; else its table's line, else line 1."""
        return self._lines.get((table, index, key), self._lines.get((table or key, index, ""), 1))

    def first_line_of(self, key: str) -> int:
        """Where the text of a multi-line string begins: TOML drops a line feed after the opening quotes."""
        number = self.line_of(key)
        line = self.text.splitlines()[number - 1]
        opened = next((quotes for quotes in _QUOTES if quotes in line), None)
        return number + 1 if opened and not line.partition(opened)[2].strip() else number

    def tables(self, key: str) -> Sequence[Mapping[str, Any]]:
        found = self.data.get(key, [])
        if not (isinstance(found, list) and all(isinstance(one, dict) for one in found)):
            self.refuse(f"{key} should be tables, [[{key}]]", key)
        return found

    def values(self, table: str, known: Collection[str] | None, read: Callable[[str, Any], Any],
               index: int | None = None) -> dict[str, Any]:
        """The values of a table, as `read` returns them for key and value. index: which of this name; None:
        it is the only one. Refused: a key that is not known (None: any is), and what is a ValueError."""
        found, name = self.data.get(table, {}), f"[{table}]"
        if not table:
            found, name = self.data, self.what
        elif index is not None:
            found, name = self.tables(table)[index], f"[[{table}]]"
        elif not isinstance(found, dict):
            self.refuse(f"{table} should be a table, [{table}]", table)
        values = {}
        for key, value in found.items():
            place = key, table, index or 0
            if known is not None and key not in known:
                self.refuse(f"{name} does not know {key!r}; valid: {', '.join(known)}", *place)
            try:
                values[key] = read(key, value)
            except ValueError as error:
                self.refuse(error, *place)
        return values

    def _lines_outside_strings(self) -> Iterator[tuple[int, str]]:
        """The lines that do not begin inside a multi-line string, with their numbers."""
        inside: str | None = None
        for number, line in enumerate(self.text.splitlines(), 1):
            if inside is None:
                yield number, line
                quotes = next((quotes for quotes in _QUOTES if quotes in line), None)
                inside = quotes if quotes and line.count(quotes) % 2 else None
            elif inside in line:
                inside = None
