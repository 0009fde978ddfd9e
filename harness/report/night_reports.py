"""Writes a campaign's reports: the text at its end, what CI servers read, its page, how two campaigns differ.
The page is written after each batch and at the end, so that it can be read at any time: an error in it is
only reported on stderr.
"""

import datetime
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from markupsafe import Markup

from floodmark.checkers.judge.report import is_run
from floodmark.checkers.text.explain import EXPLANATIONS
from floodmark.checkers.text.semantics import PERMISSIONS
from floodmark.harness import __version__, runtime
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.plan import read
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.campaign.state import ABOUT, about_of, state_of
from floodmark.harness.errors import UsageError
from floodmark.harness.report.gate_outcomes import LIMIT
from floodmark.harness.report.night import (
    STUCK,
    Cause,
    Change,
    Point,
    Results,
    Share,
    gates_of,
    kind_of,
    results_of,
    why_of,
)
from floodmark.harness.report.phrases import count_text, short_time_text, time_text
from floodmark.harness.report.rates import p_same, per_100, two_digits
from floodmark.harness.report.render import Room, render
from floodmark.harness.report.run_page import AT_ONCE_BYTES, REPORT, size_of, write_report, written_page
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.report.terminal import table
from floodmark.harness.run import write_whole

Row = tuple[str, ...]
INDEX = "index.html"
PAGES_AT_ONCE = 10  # new pages of runs in one call, each about a second
SCALES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # ends of the bars, per 100 runs


def summary(night: Results) -> str:
    """The heading, tables of violations and stuck clusters, and the other runs that failed."""
    return render("night.txt", night=night, table=causes_table, gates_of=gates_of, why_of=why_of)


def night_markdown(night: Results, limit: int = LIMIT) -> bytes:
    """The content of `--markdown FILE`."""
    return render("night.md", night=night, gates_of=gates_of, why_of=why_of, room=Room(limit)).encode()


def night_junit(night: Results, now: datetime.datetime) -> bytes:
    """The content of `--junit FILE`."""
    return render("night.xml", night=night, gates_of=gates_of, why_of=why_of, version=__version__,
                  now=now.isoformat(timespec="seconds")).encode()


def causes_table(title: str, causes: Sequence[Cause]) -> list[str]:
    """The lines of a table of causes, and the guarantees that all have."""
    texts, below = distinguishing_texts([one.signature for one in causes])
    return [*columns([("signature", "system", title, "runs", "per 100", "again", "seen"), *(
        (one.entry.id, one.signature.system, text, f"{len(one.showing)} of {one.of}",
         one.rate.replace(" per 100 runs", ""), one.reproduced_text, one.standing_text)
        for one, text in zip(causes, texts, strict=True))]), *below]


def columns(rows: Sequence[Row]) -> list[str]:
    """The lines of a table: harmless already, and in colour on a terminal."""
    return [Markup(line) for line in table(rows[0], rows[1:]).splitlines()]


def distinguishing_texts(signatures: Sequence[Signature]) -> tuple[list[str], list[str]]:
    """For a table: a text for each signature with those of its guarantees that not all have; then a line with
    the guarantees that all have."""
    promised = [one.guarantees.split() for one in signatures]
    common = [one for one in promised[0] if all(one in each for each in promised)] if promised else []
    texts = []
    for one, guarantees in zip(signatures, promised, strict=True):
        own = " ".join(guarantee for guarantee in guarantees if guarantee not in common)
        permitted = f", permitted by {one.permitted_by}" if one.permitted_by else ""
        texts.append(f"{one.finding_and_step}{f' [{own}]' if own else ''}{permitted}")
    return texts, [f"guarantees: {' '.join(common)}"] if common else []


def difference(before: Results, after: Results, found: Sequence[Change], ledger: Ledger) -> str:
    """Two campaigns' tables of violations, of stuck clusters, and of the other runs that failed."""
    parts = [changes_table(title, [one for one in found if (one.signature.finding == STUCK) == is_stuck],
                           ledger) for title, is_stuck in (("violation", False), ("stuck", True))]
    rows: list[Row] = []
    for title, kind in (("the harness failed", "failed"), ("unknown", "unknown"), ("broke a gate", "gates")):
        then, now = ((len(getattr(night.troubles, kind)), len(night.runs)) for night in (before, after))
        if then[0] or now[0]:
            rows.append((title, *both(then, now), kind_of(then, now)))
    parts.append(columns([("runs", "before", "after", "p", "change"), *rows]) if rows else [])
    return "\n\n".join("\n".join(part) for part in parts if part) or "neither has found anything"


def changes_table(title: str, changes: Sequence[Change], ledger: Ledger) -> list[str]:
    """The lines of a table of changed signatures; none if there are none."""
    texts, below = distinguishing_texts([one.signature for one in changes])
    rows = [((ledger.of(one.signature) or one.signature).id, one.signature.system, text,
             *both(one.before, one.after), one.kind + (" (known)" if ledger.knows(one.signature) else ""))
            for one, text in zip(changes, texts, strict=True)]
    heads = ("signature", "system", title, "before", "after", "p", "change")
    return [*columns([heads, *rows]), *below] if rows else []


def both(before: Share, after: Share) -> Row:
    first, second = (f"{hits} of {of}" for hits, of in (before, after))
    return first, second, f"{p_same(before, after):.2g}" if before[1] and after[1] else "-"


# -- the page -----------------------------------------------------------------------------------------------


def index_beside(folder: Path, about: Mapping[str, Any], trouble: str = "") -> Path | None:
    """Writes the page during or after a campaign; None if that failed for any reason."""
    return written_page(folder, lambda: write_index(
        folder, trouble=trouble, ledger_path=Path(str(about["ledger"]))))


def write_index(folder: Path, file: Path | None = None, *, trouble: str = "", ledger_path: Path | None = None
                ) -> Path:
    """Writes the page of a campaign's folder atomically. ledger_path: None means the campaign's own.
    FloodmarkError if it cannot be written."""
    about, state = about_of(folder), state_of(folder)
    path = ledger_path or Path(str(about.get("ledger") or folder.parent / "ledger.json"))
    try:
        matrix = [one.case for one in read(str(about.get("plan")), f"the plan in {folder / ABOUT}").cases]
    except UsageError:
        matrix = []  # the cases of runs are known anyway
    night = results_of(state, ledgers.load(path), about, matrix, folder=str(folder), trouble=trouble)
    file = folder / INDEX if file is None else file
    make_pages(night, folder)
    missing = {"version": "?", "seed": "?", "began": "?", "commit": "", "plan": "", "budget_s": None}
    write_whole(file, render(
        "night.html", night=night, about={**missing, **about, "ledger": str(path)}, has_ledger=path.is_file(),
        pages=pages_of(night, file.parent), made_at=datetime.datetime.fromtimestamp(
            runtime.current.time_ns() / 1e9).astimezone().isoformat(timespec="seconds"),
        reproductions=state.select("SELECT count(*) FROM reproductions")[0][0],
        gates_of=gates_of, why_of=why_of, meaning=meaning, moment=moment,
        permissions=PERMISSIONS, per_100=per_100,
        pieces=re.compile(r"(?<=[,_])|(?=\+)").split, places=places, scale_of=scale_of, shell=shlex.join,
        count_text=count_text, short_time_text=short_time_text, time_text=time_text, two_digits=two_digits,
    ).encode())
    return file


def make_pages(night: Results, folder: Path) -> None:
    """Makes the page of the smallest run of each cause that this campaign saw, the new ones first; existing
    pages stay."""
    made = 0
    for cause in night.causes:
        run = Path(cause.smallest)
        ours = run.resolve().is_relative_to(folder.resolve())  # a state may contain any path
        if not cause.showing or made == PAGES_AT_ONCE or not ours or not is_run(run):
            continue
        if (run / REPORT).is_file() or size_of(run) > AT_ONCE_BYTES:
            continue
        made += 1
        try:
            write_report(run)
        except Exception as error:
            click.echo(harmless(f"floodmark: {run}: its page was not written: {error}"), err=True)


def pages_of(night: Results, seen_from: Path) -> dict[str, str]:
    """The addresses of the existing pages by run folder, relative to `seen_from`. An address never begins
    with a scheme, whatever the folder's name."""
    named = {cause.smallest for cause in night.causes if cause.smallest} | {*map(night.where, night.runs)}
    return {folder: f"./{quote(os.path.relpath((Path(folder) / REPORT).absolute(), seen_from.absolute()))}"
            for folder in named if (Path(folder) / REPORT).is_file()}


def moment(written: object) -> str:
    """A time from a file as text: `2026-11-23 05:06 UTC`."""
    try:
        read = datetime.datetime.fromisoformat(str(written))
    except ValueError:
        return str(written)
    return f"{read:%Y-%m-%d %H:%M} {read:%Z}".strip()


def meaning(finding: str) -> str:
    """The finding's meaning on one line; empty for a name that this floodmark does not know."""
    return EXPLANATIONS[finding].short if finding in EXPLANATIONS else ""


def scale_of(causes: Iterable[Cause]) -> float:
    """The end of the bars' scale: the least of SCALES that no interval exceeds."""
    most = max((cause.interval[1] for cause in causes if cause.of), default=0.0)
    return next((scale for scale in SCALES if most <= scale), SCALES[-1])


def places(points: Sequence[Point], width: int, height: int, edge: int) -> list[tuple[float, float] | None]:
    """The position of each night's dot in pixels: the last night at the right edge, the highest rate at the
    top; None: no run of the system."""
    most = max((one.hits / one.of for one in points if one.of), default=0.0) or 1.0
    step = (width - 2 * edge) / max(1, len(points) - 1)
    return [(round(width - edge - back * step, 1),
             round(height - edge - one.hits / one.of / most * (height - 2 * edge), 1)) if one.of else None
            for back, one in zip(range(len(points) - 1, -1, -1), points, strict=True)]
