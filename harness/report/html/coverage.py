"""Draws a campaign's coverage as a grid: the runs of each system under each nemesis, and the findings. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.harness.report.html.elements import Markup, text
from floodmark.harness.report.night import KNOWN, Cause, Cell

Key = tuple[str, str]  # system, nemesis or scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """One system under one nemesis, over all its loads and guarantees."""

    runs: int = 0  # that were judged
    found: int = 0  # of these: showed a bug that is not marked as known
    known: int = 0  # of these: showed only known bugs
    stuck: int = 0  # of these: their cluster got stuck


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """systems and faults in the plan's order. A key without a square is not in the plan."""

    systems: tuple[str, ...]
    faults: tuple[str, ...]
    squares: Mapping[Key, Square]


def grid_of(cells: Sequence[Cell], causes: Sequence[Cause]) -> Grid:
    """The grid of a campaign's cases: those of one system and one nemesis are added up."""
    failing = {cause.signature for cause in causes if cause.fails and not cause.is_stuck}
    stuck = {cause.signature for cause in causes if cause.is_stuck}
    known = {cause.signature for cause in causes if cause.standing == KNOWN} - stuck
    squares: dict[Key, Square] = {}
    for cell in cells:
        key = (cell.case.system, cell.case.faults)
        shown = [{*run.signatures} for run in cell.runs if run.judged is not None]
        before = squares.get(key, Square())
        squares[key] = Square(
            runs=before.runs + len(shown),
            found=before.found + sum(bool(one & failing) for one in shown),
            known=before.known + sum(bool(one & known) and not one & failing for one in shown),
            stuck=before.stuck + sum(bool(one & stuck) for one in shown),
        )
    systems, faults = (tuple(dict.fromkeys(key[side] for key in squares)) for side in (0, 1))
    return Grid(systems=systems, faults=faults, squares=squares)


def grid_table(grid: Grid) -> Markup:
    """The grid as an HTML table; the longer side has the rows."""
    across = len(grid.faults) <= len(grid.systems)
    downs, tops = (grid.systems, grid.faults) if across else (grid.faults, grid.systems)
    head = "".join(f'<th scope="col">{breakable(name)}</th>' for name in tops)
    rows = []
    for down in downs:
        keys = [(down, top) if across else (top, down) for top in tops]
        squares = [square_of(grid.squares.get(key), top) for key, top in zip(keys, tops, strict=True)]
        rows.append(f'<tr><th scope="row">{breakable(down)}</th>{"".join(squares)}</tr>')
    corner = "system" if across else "nemesis"
    return Markup(f'<table class="grid"><thead><tr><th>{corner}</th>{head}</tr></thead>'
                  f"<tbody>{''.join(rows)}</tbody></table>")


def square_of(square: Square | None, top: str) -> str:
    if square is None:
        return '<td class="outside" aria-label="not in the plan"></td>'
    if not square.runs:
        return f'<td class="empty" data-head="{text(top)}" aria-label="nothing ran"></td>'
    kind = "found" if square.found else "known" if square.known else "quiet"
    hits = square.found or square.known
    count = f"<b>{hits:,}</b> of {square.runs:,}" if hits else f"{square.runs:,}"
    more = [f"{square.found:,} found, {square.known:,} known"] if square.found and square.known else []
    more += ["known"] if kind == "known" else []
    more += [f"{square.stuck:,} stuck"] if square.stuck else []
    small = f"<small>{text(', '.join(more))}</small>" if more else ""
    return f'<td class="{kind}" data-head="{text(top)}"><span>{count}{small}</span></td>'


def breakable(name: str) -> Markup:
    """A name that the browser may break after commas and underscores and before each `+`."""
    return Markup(text(name).replace(",", ",<wbr>").replace("+", "<wbr>+").replace("_", "_<wbr>"))
