"""Formats the doctor's results: a line for each item, and under each "no" what is missing and what to do.

Rules
1. Pure: from values to lines; click.echo drops the colours if standard output is no terminal.
2. Lines are wrapped to the terminal's width, WIDTH at most.
"""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import click

WIDTH = 100
LEAST_WIDTH = 40
LEAST_TEXT = 32  # columns for the text beside the marks
_MARKS: Mapping[bool | None, tuple[str, str]] = {
    True: ("yes", "green"), False: ("no", "yellow"), None: ("?", "yellow")}
_MISSING = ("NO", "red")  # the chosen cluster needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that was checked."""

    part: str  # the heading it is listed under
    item: str
    can: bool | None  # None: unknown
    detail: str = ""  # what was found, or why not
    todo: str = ""  # what to do if it is missing
    needed_by: tuple[str, ...] = ()  # the clusters that cannot run without it


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """One fault, and which cluster can suffer it here."""

    fault: str
    does: str
    local: bool
    simulated: bool
    containers: bool | None  # None: unknown
    detail: str = ""  # by what means, or why containers cannot
    todo: str = ""


def lines(rows: Sequence[Row], faults: Sequence[FaultRow], lacks: Mapping[str, Sequence[str]], *,
          chosen: str, unknown: str, width: int | None = None) -> list[str]:
    """All lines. chosen: the cluster whose missing parts are marked red; unknown: why a fault may be
    unknown."""
    if width is None:
        width = max(LEAST_WIDTH, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
    found: list[str] = []
    column = max(len(row.item) for row in rows) + 2
    for part, of_it in groupby(rows, key=lambda row: row.part):
        found.append(click.style(part, bold=True))
        for row in of_it:
            found += _row(row, chosen, column, width)
    found += ["", *_faults(faults, width), ""]
    if any(row.containers is None for row in faults):
        found += [*_folded(f"?: what containers can suffer here is not known, for {unknown}", width, 0), ""]
    return found + [line for name, missing in lacks.items() for line in _fitness(name, missing, width)]


def _row(row: Row, chosen: str, column: int, width: int) -> list[str]:
    serious = row.can is False and chosen in row.needed_by
    mark = _styled(_MISSING if serious else _MARKS[row.can], 3)
    indent = 7 + column
    if width - indent < LEAST_WIDTH // 2:  # too narrow: the detail goes below
        found = [f"  {mark}  {row.item}", *_folded(row.detail, width, 7)]
    else:
        first, *more = _folded(row.detail, width, indent) or [""]
        found = [f"  {mark}  {row.item:<{column}}{first.strip()}".rstrip(), *more]
    return found + (_folded(f"-> {row.todo}", width, 7) if row.todo and not row.can else [])


def _faults(faults: Sequence[FaultRow], width: int) -> list[str]:
    column = max(len(row.fault) for row in faults) + 2
    head = f"{'faults':<{column + 2}}{'local':<7}{'simul.':<7}containers"
    found = [click.style(head, bold=True)]
    for row in faults:
        marks = _styled(_MARKS[row.local], 7) + _styled(_MARKS[row.simulated], 7)
        marks += _styled(_MARKS[row.containers], 12)
        indent = column + 28
        if width - indent < LEAST_TEXT:  # too narrow: only the necessary text, below
            found += [f"  {row.fault:<{column}}{marks}".rstrip(), *_folded(row.detail, width, 4)]
        else:
            text = f"{row.does} ({row.detail})" if row.detail and row.containers else row.detail or row.does
            first, *more = _folded(text, width, indent)
            found += [f"  {row.fault:<{column}}{marks}{first.strip()}".rstrip(), *more]
        if row.todo and row.containers is False:
            found += _folded(f"-> {row.todo}", width, 4)
    return found


def _fitness(cluster: str, missing: Sequence[str], width: int) -> list[str]:
    if not missing:
        return [f"the {cluster} cluster can run here"]
    return _folded(f"the {cluster} cluster cannot run here: see {', '.join(missing)}", width, 0)


def _folded(text: str, width: int, indent: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * indent,
                         break_on_hyphens=False, break_long_words=False)


def _styled(mark: tuple[str, str], width: int) -> str:
    """The mark in its colour, padded to a width; the colour codes take no column."""
    word, colour = mark
    return click.style(word, fg=colour) + " " * (width - len(word))


def lacking(rows: Sequence[Row], cluster: str) -> list[str]:
    """The items that this cluster needs and that are missing here."""
    return list(dict.fromkeys(row.item for row in rows if cluster in row.needed_by and row.can is False))


def as_json(rows: Sequence[Row], faults: Sequence[FaultRow], lacks: dict[str, list[str]]
            ) -> dict[str, object]:
    """The results as JSON. `can` is null if unknown."""
    keys = {"item": "what", "detail": "told"}  # in the file, which other programs read
    found, struck = ([{keys.get(name, name): value for name, value in asdict(row).items()} for row in each]
                     for each in (rows, faults))
    return {"clusters": {name: {"fit": not lacking, "lacks": lacking} for name, lacking in lacks.items()},
            "found": found, "faults": struck}
