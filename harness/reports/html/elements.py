"""What every page is made of: escaped text, tables, data, commands to copy, and the document around them.

Rules
1. A text is escaped where it is put into the page (`esc`), but for `Markup`, which our own code made. The
   page's data are escaped by `block`.
2. Nothing is fetched: script, style and data stand in the file, and its policy forbids all else.
"""

import base64
import gzip
import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

import orjson

from floodmark.harness.reports.safe_text import harmless

PLAIN_BYTES = 20_000  # data above this is compressed
BYTES_OF_A_NIGHT = 1_000_000  # that the page of a night has at most, whatever it found
POLICY = "default-src 'none'; script-src 'unsafe-inline'{library}; style-src 'unsafe-inline'; img-src data:"
OF_THE_LIBRARY = " 'unsafe-eval'"  # Vega compiles its expressions


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def own(name: str) -> str:
    """A file of this package."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def esc(value: object) -> str:
    """A text as HTML shows it, also inside quotes."""
    return value if isinstance(value, Markup) else html.escape(str(value), quote=True)


def text(value: object) -> Markup:
    """A text of a folder: escaped, and what would be obeyed or move words about is spelt out."""
    return Markup(esc(harmless(str(value))))


def document(
    title: str, parts: Iterable[str], *, styles: Iterable[str], scripts: Iterable[str], library: bool = False
) -> bytes:
    """The whole file. styles, scripts: files of this package; library: whether Vega draws in it."""
    policy = POLICY.format(library=OF_THE_LIBRARY if library else "")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{esc(title)}</title>",
            *(f"<style>{own(name)}</style>" for name in styles),
            "</head><body>",
            *parts,
            *(f"<script>{own(name)}</script>" for name in scripts),
            "</body></html>",
            "",
        ]
    ).encode()


def block(name: str, value: object) -> str:
    """JSON inside the page: no `<` in it, or compressed."""
    data = orjson.dumps(value)
    if len(data) > PLAIN_BYTES:
        return packed(name, data)
    safe = data.decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{safe}</script>'


def packed(name: str, data: bytes, kind: str = "json") -> str:
    told = base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()
    return f'<script type="application/gzip" data-as="{kind}" id="{name}">{told}</script>'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], classes: Sequence[str] = (), *, kind: str = ""
) -> str:
    head = "".join(f"<th>{esc(one)}</th>" for one in heads)
    shut = "".join(
        f'<tr class="{classes[at] if at < len(classes) else ""}">'
        + "".join(f'<td data-head="{esc(of)}">{esc(cell)}</td>' for of, cell in zip(heads, row, strict=False))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{shut}</tbody></table>'


def typed(commands: Iterable[str]) -> Markup:
    """Commands, each copied by a click."""
    return Markup(
        "".join(
            f'<div class="type"><code>{esc(one)}</code><button type="button" data-copy>copy</button></div>'
            for one in commands
        )
    )
