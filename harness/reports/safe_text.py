"""Makes text from a folder safe for a terminal: what a terminal or a reader would obey is spelt out.

A run folder may come from a stranger, and its names, errors and reasons are printed. An escape sequence would
move the cursor, hide text or set the window's title; a control for the direction of writing would show words
in another order; a line break would begin a line that nobody wrote. All of these are shown as `\\x1b`,
`\\u202e`, `\\n`.

Rules
1. Commands take what a folder says through here when they read it, before it is put into any sentence: our
   own colours and line breaks come later and are left alone.
2. Text without such characters is not changed, so that names still are names.
"""

from dataclasses import replace
from typing import Any, TypeVar

import orjson

from floodmark.harness.op import Op

T = TypeVar("T")

OF_SEVERAL_LINES = frozenset({"died_words"})  # fields of run.json: whoever prints them parts their lines


def harmless(text: str, *, breaks: bool = False) -> str:
    """The text with nothing in it that is not to be seen; `breaks`: line breaks stay, for it is of several
    lines."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or (breaks and letter == "\n") else spelt(letter)
                   for letter in text)


def spelt(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def harmless_data(told: T) -> T:
    """The same of every text in a JSON value, keys too. One without such text is given back as it is."""
    try:
        if is_plain(orjson.dumps(told)):
            return told
    except TypeError:
        pass  # a number or a text that orjson does not write
    changed: T = _changed(told)
    return changed


def is_plain(line: bytes) -> bool:
    """Whether JSON holds plain ASCII texts only, by its bytes: a control character stands there as an escape,
    but for DEL."""
    return line.isascii() and b"\\" not in line and b"\x7f" not in line


def _changed(told: Any, *, breaks: bool = False) -> Any:
    if isinstance(told, str):
        return harmless(told, breaks=breaks)
    if isinstance(told, dict):
        return {_changed(key): _changed(value, breaks=breaks or key in OF_SEVERAL_LINES)
                for key, value in told.items()}
    return [_changed(item, breaks=breaks) for item in told] if isinstance(told, list | tuple) else told


def harmless_op(line: bytes, op: Op) -> Op:
    """An op read from this line."""
    if is_plain(line):
        return op
    return replace(op, f=harmless(op.f), error=harmless_data(op.error), fault=harmless_data(op.fault))
