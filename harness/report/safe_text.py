"""Makes text from a folder safe to print: control characters are shown as escapes.

A run folder may come from an untrusted source, and its names, errors and reasons are printed. An escape
sequence could move the cursor, hide text or set the window's title; a control for the direction of writing
could reorder the text; a line break could fake a line of output. They are shown as `\\x1b`, `\\u202e`, `\\n`.

Rules
1. Commands pass a folder's text through this module when they read it, before they put it into sentences: our
   own colours and line breaks are added later and stay.
2. Text without such characters is not changed.
"""

from dataclasses import replace
from typing import Any, TypeVar

import orjson

from floodmark.harness.op import Op

T = TypeVar("T")

OF_SEVERAL_LINES = frozenset({"died_words"})  # fields of run.json that keep their line breaks


def escape_controls(text: str, *, breaks: bool = False) -> str:
    """The text with its unprintable characters escaped. breaks: but for line breaks."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or (breaks and letter == "\n")
                   else letter.encode("unicode_escape").decode("ascii") for letter in text)


def escaped_data(value: T) -> T:
    """A JSON value with every text and key escaped; the same object if nothing changes."""
    try:
        if is_plain(orjson.dumps(value)):
            return value
    except TypeError:
        pass  # a number or a text that orjson does not write
    changed: T = _changed(value)
    return changed


def is_plain(line: bytes) -> bool:
    """Whether JSON text contains only printable ASCII: JSON escapes every control character but DEL."""
    return line.isascii() and b"\\" not in line and b"\x7f" not in line


def _changed(value: Any, *, breaks: bool = False) -> Any:
    if isinstance(value, str):
        return escape_controls(value, breaks=breaks)
    if isinstance(value, dict):
        return {_changed(key): _changed(item, breaks=breaks or key in OF_SEVERAL_LINES)
                for key, item in value.items()}
    return [_changed(item, breaks=breaks) for item in value] if isinstance(value, list | tuple) else value


def escaped_op(line: bytes, op: Op) -> Op:
    """The op read from this line, its texts safe to print."""
    if is_plain(line):
        return op
    return replace(op, f=escape_controls(op.f), error=escaped_data(op.error), fault=escaped_data(op.fault))
