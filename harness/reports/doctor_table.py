"""Prints the doctor's findings: a line each, and beneath a no what is missing and what to do.

Rules
1. Pure: from values to lines; click.echo takes the colour out where standard output is no terminal.
2. Lines are folded to the terminal, and to WIDTH where it is wider.
"""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import click

WIDTH = 100
LEAST_WIDTH = 40
LEAST_WORDS = 32  # beside the marks
_MARKS: Mapping[bool | None, tuple[str, str]] = {
    True: ("yes", "green"), False: ("no", "yellow"), None: ("?", "yellow")}
_LACKED = ("NO", "red")  # a cluster needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that was looked at."""

    part: str  # the heading under which it stands
    what: str
    can: bool | None  # None: it could not be known
    told: str = ""  # what was found, or why not
    todo: str = ""  # what to do where it is not so
    needed_by: tuple[str, ...] = ()  # the clusters that cannot be without it


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """One fault, and which cluster can suffer it here."""

    fault: str
    does: str
    local: bool
    memory: bool
    containers: bool | None  # None: not known yet
    told: str = ""  # by what means, or why containers cannot
    todo: str = ""


def lines(rows: Sequence[Row], faults: Sequence[FaultRow], lacks: Mapping[str, Sequence[str]], *,
          chosen: str, unknown: str, width: int | None = None) -> list[str]:
    """All of it, for people. chosen: the cluster whose lacks are serious; unknown: why faults may be so."""
    if width is None:
        width = max(LEAST_WIDTH, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
    found: list[str] = []
    column = max(len(row.what) for row in rows) + 2
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
    mark = _styled(_LACKED if serious else _MARKS[row.can], 3)
    indent = 7 + column
    if width - indent < LEAST_WIDTH // 2:  # so narrow that what was found stands beneath
        found = [f"  {mark}  {row.what}", *_folded(row.told, width, 7)]
    else:
        first, *more = _folded(row.told, width, indent) or [""]
        found = [f"  {mark}  {row.what:<{column}}{first.strip()}".rstrip(), *more]
    return found + (_folded(f"-> {row.todo}", width, 7) if row.todo and not row.can else [])


def _faults(faults: Sequence[FaultRow], width: int) -> list[str]:
    column = max(len(row.fault) for row in faults) + 2
    head = f"{'faults':<{column + 2}}{'local':<7}{'memory':<7}containers"
    found = [click.style(head, bold=True)]
    for row in faults:
        marks = _styled(_MARKS[row.local], 7) + _styled(_MARKS[row.memory], 7)
        marks += _styled(_MARKS[row.containers], 12)
        indent = column + 28
        if width - indent < LEAST_WORDS:  # no room for words beside: only those that must be said
            found += [f"  {row.fault:<{column}}{marks}".rstrip(), *_folded(row.told, width, 4)]
        else:
            words = f"{row.does} ({row.told})" if row.told and row.containers else row.told or row.does
            first, *more = _folded(words, width, indent)
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
    """Padded outside the colour, whose signs take no room."""
    word, colour = mark
    return click.style(word, fg=colour) + " " * (width - len(word))
