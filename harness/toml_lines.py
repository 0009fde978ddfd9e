"""Finds the lines where tables and keys of a TOML file begin, which tomllib does not report. Pure.

It does not read values: tomllib has parsed the file before.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_HEADER = re.compile(r"\s*\[(\[)?\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*=(.*)""")
_QUOTES = ('"""', "'''")
Place = tuple[str, int, str]  # table ("" at the top), which of its kind, key ("": the header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The line numbers of a file's headers and keys, from 1."""

    lines: Mapping[Place, int]

    def of(self, table: str = "", key: str = "", index: int = 0) -> int:
        """The line of a key, which may be a table at the top level; its table's line if the key is missing;
        else line 1."""
        return self.lines.get((table, index, key), self.lines.get((table or key, index, ""), 1))


def places(text: str) -> Places:
    """Find every header and key of the file."""
    found: dict[Place, int] = {}
    seen: dict[str, int] = {}
    table, index = "", 0
    for number, line in _lines_outside_strings(text):
        if (header := _HEADER.match(line)) is not None:
            table = header[2]
            index = seen.get(table, -1) + 1
            seen[table] = index
            found[table, index, ""] = number
        elif (key := _KEY.match(line)) is not None:
            found.setdefault((table, index, key[1] or key[2] or key[3]), number)
    return Places(lines=found)


def first_line_of(text: str, place: int) -> int:
    """The line where the text of a multi-line string begins, whose key is on line `place`: TOML drops a line
    feed right after the opening quotes."""
    line = text.splitlines()[place - 1]
    opened = next((quotes for quotes in _QUOTES if quotes in line), None)
    return place + 1 if opened and not line.partition(opened)[2].strip() else place


def _lines_outside_strings(text: str) -> Iterator[tuple[int, str]]:
    """The lines that do not begin inside a multi-line string, with their numbers."""
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if inside is None:
            yield number, line
            quotes = next((quotes for quotes in _QUOTES if quotes in line), None)
            inside = quotes if quotes and line.count(quotes) % 2 else None
        elif inside in line:
            inside = None
