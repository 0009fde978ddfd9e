"""Finds the line of a TOML file where a table or a key begins, which tomllib does not say. Pure.

It reads no values and need not: whatever it looks at has been parsed before.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_HEADER = re.compile(r"\s*\[(\[)?\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*=(.*)""")
_FENCES = ('"""', "'''")
Place = tuple[str, int, str]  # table ("" at the top), which of its kind, key ("": the header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Line numbers, from 1."""

    lines: Mapping[Place, int]

    def of(self, table: str = "", key: str = "", index: int = 0) -> int:
        """The key's line; where it is not written, its table's; else the first."""
        return self.lines.get((table, index, key), self.lines.get((table, index, ""), 1))

    def at_top(self, key: str) -> int:
        """Of a key at the top, which may be a table."""
        return self.lines.get(("", 0, key), self.of(key))


def places(text: str) -> Places:
    """Every header and key of the file."""
    found: dict[Place, int] = {}
    seen: dict[str, int] = {}
    table, index = "", 0
    for number, line in _outside_of_texts(text):
        if (header := _HEADER.match(line)) is not None:
            table = header[2]
            index = seen.get(table, -1) + 1
            seen[table] = index
            found[table, index, ""] = number
        elif (key := _KEY.match(line)) is not None:
            found.setdefault((table, index, key[1] or key[2] or key[3]), number)
    return Places(lines=found)


def first_line_of(text: str, place: int) -> int:
    """The line on which a multi-line string begins, whose key stands on line `place`: a newline right after
    the opening quotes is no part of it."""
    line = text.splitlines()[place - 1]
    opened = next((fence for fence in _FENCES if fence in line), None)
    return place + 1 if opened and not line.partition(opened)[2].strip() else place


def _outside_of_texts(text: str) -> Iterator[tuple[int, str]]:
    """The lines that do not begin inside a multi-line string."""
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if inside is None:
            yield number, line
            fence = next((fence for fence in _FENCES if fence in line), None)
            inside = fence if fence and line.count(fence) % 2 else None
        elif inside in line:
            inside = None
