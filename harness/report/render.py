"""Renders a template of this package with values from a run or a night.

Rules
1. HTML, XML and Markdown are escaped; `Markup` is markup already.
2. Every text that a template prints is harmless: its control characters are shown as escapes, line breaks
   too. A text of several lines is printed line by line.
3. A name that is missing is an error, not an empty text.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.harness.report.phrases import number_of
from floodmark.harness.report.safe_text import escape_controls

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
LINE_CHARS = 1_500
MARKDOWN = re.compile(r"[&<>|`\\*_\[\]~$#]|^(?:[-+=]|\d(?=\d*[.)]))")  # the second: only at the beginning


def render(name: str, **values: object) -> str:
    """The text of templates/NAME with these values."""
    return _environment().get_template(name).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context, select_autoescape
    from markupsafe import Markup

    @pass_context
    def printed(context: "Context", value: object) -> object:
        if isinstance(value, Markup):
            return value
        text = escape_controls(str(value))
        if not str(context.name).endswith(".md"):
            return text
        return Markup(MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", text))

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=select_autoescape(("html", "xml", "md")),
        finalize=printed, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True)
    environment.filters |= {"fenced": fenced, "cut": lambda value, limit=LINE_CHARS: cut(
        " ".join(str(value).split()), limit)}  # as one line
    environment.globals |= {"number_of": number_of}
    return environment


def cut(text: str, limit: int) -> str:
    """The text's first `limit` characters, and how many more there were."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} ... (cut: {number_of(len(text) - limit, 'more character')})"


# -- Markdown -----------------------------------------------------------------------------------------------

class Room:
    """The bytes that a page may still have. A template fills it: `call(one) room.fit(ones)`."""

    def __init__(self, limit: int) -> None:
        self.limit, self.left_out = limit, 0
        self.left = limit * 0.9  # the rest is for headings and the notes on what was left out

    def fit(self, items: Sequence[object], share: float = 1.0, *,
            caller: Callable[[object], str]) -> "Markup":
        """What the template writes for each item, up to the first that no longer fits. share: of the limit,
        at most. left_out: how many items do not fit."""
        from markupsafe import Markup

        pieces, room = [], min(self.left, share * self.limit)
        for item in items:
            piece = caller(item)
            room -= len(piece.encode())
            if room < 0:
                break
            pieces.append(piece)
        self.left_out = len(items) - len(pieces)
        self.left -= sum(len(piece.encode()) for piece in pieces)
        return Markup("".join(pieces))


def fenced(commands: Iterable[str]) -> "Markup":
    """The commands in a fence that none of them can end."""
    from markupsafe import Markup

    shown = [escape_controls(cut(command, LINE_CHARS)) for command in commands]
    longest = max((len(ticks) for line in shown for ticks in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup("\n".join([f"{fence}sh", *shown, fence]))
