"""Renders a template of this package with values from a run or a night.

Rules
1. HTML and XML are escaped; `Markup` is markup already. Markdown escapes itself, by its templates' filters.
2. Every text that a template prints is harmless: its control characters are shown as escapes, line breaks
   too. A text of several lines is printed line by line.
3. A name that is missing is an error, not an empty text.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.harness.report.safe_text import harmless

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def render(name: str, **values: object) -> str:
    """The text of templates/NAME with these values."""
    return _environment().get_template(name).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    def printed(value: object) -> object:
        return harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=select_autoescape(("html", "xml")), finalize=printed,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
