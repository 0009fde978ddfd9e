"""Builds the parts of a page: escaped text, tables, data, commands to copy, and the document around them.

Rules
1. Text is escaped where it is put into the page (`esc`), except `Markup`, which our own code made. `block`
   escapes the page's data.
2. The page fetches nothing: scripts, styles and data are in the file, and its policy forbids everything else.
"""

import base64
import gzip
import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

import orjson

from floodmark.harness.report.render import TEMPLATES
from floodmark.harness.report.safe_text import harmless

PLAIN_BYTES = 20_000  # data above this is compressed
BYTES_OF_A_NIGHT = 1_000_000  # the most that a campaign's page has
POLICY = "default-src 'none'; script-src 'unsafe-inline'{library}; style-src 'unsafe-inline'; img-src data:"
OF_THE_LIBRARY = " 'unsafe-eval'"  # Vega compiles its expressions with eval


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def package_file(name: str) -> str:
    """The content of a script, of styles, or of a frame."""
    folder = files(__package__) if name.endswith(".html") else TEMPLATES
    return (folder / name).read_text(encoding="utf-8")


def esc(value: object) -> str:
    """A text escaped for HTML, also inside quotes."""
    return value if isinstance(value, Markup) else html.escape(str(value), quote=True)


def text(value: object) -> Markup:
    """A text from a folder: escaped for HTML, its control characters shown as escapes."""
    return Markup(esc(harmless(str(value))))


def document(
    title: str, parts: Iterable[str], *, styles: Iterable[str], scripts: Iterable[str], library: bool = False
) -> bytes:
    """The HTML file. styles, scripts: files of this package; library: whether Vega draws in it."""
    policy = POLICY.format(library=OF_THE_LIBRARY if library else "")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{esc(title)}</title>",
            *(f"<style>{package_file(name)}</style>" for name in styles),
            "</head><body>",
            *parts,
            *(f"<script>{package_file(name)}</script>" for name in scripts),
            "</body></html>",
            "",
        ]
    ).encode()


def block(name: str, value: object) -> str:
    """A block of JSON in the page: without any `<`, or compressed."""
    data = orjson.dumps(value)
    if len(data) > PLAIN_BYTES:
        return packed(name, data)
    safe = data.decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{safe}</script>'


def packed(name: str, data: bytes, kind: str = "json") -> str:
    packed_text = base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()
    return f'<script type="application/gzip" data-as="{kind}" id="{name}">{packed_text}</script>'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], classes: Sequence[str] = (), *, kind: str = ""
) -> str:
    head = "".join(f"<th>{esc(one)}</th>" for one in heads)
    body = "".join(
        f'<tr class="{classes[at] if at < len(classes) else ""}">'
        + "".join(f'<td data-head="{esc(of)}">{esc(cell)}</td>' for of, cell in zip(heads, row, strict=False))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def typed(commands: Iterable[str]) -> Markup:
    """Commands, each with a button that copies it."""
    return Markup(
        "".join(
            f'<div class="type"><code>{esc(one)}</code><button type="button" data-copy>copy</button></div>'
            for one in commands
        )
    )
