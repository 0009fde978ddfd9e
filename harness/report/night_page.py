"""Writes the index page of a campaign, and the pages of the runs on it: `floodmark report CAMPAIGN_FOLDER`.
A campaign writes it atomically after each batch and at its end, so that it can be read at any time. It does
not affect the exit code: an error is only reported on stderr.
"""

import datetime
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from floodmark.checkers.judge.report import is_run
from floodmark.harness import runtime
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.plan import read
from floodmark.harness.campaign.state import ABOUT, about_of, runs_by_signature, state_of
from floodmark.harness.errors import UsageError
from floodmark.harness.report.html.night import NightFacts, page_of_night
from floodmark.harness.report.night import Results, results_of
from floodmark.harness.report.run_page import AT_ONCE_BYTES, REPORT, size_of, write_report, written_page
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import write_whole

INDEX = "index.html"
AT_ONCE = 10  # new pages of runs in one call, each about a second


def write_index(folder: Path, file: Path | None = None, *, trouble: str = "", ledger_path: Path | None = None
                ) -> Path:
    """Writes the page of a campaign's folder atomically. ledger_path: None means the campaign's own.
    FloodmarkError if it cannot be written."""
    about, state = about_of(folder), state_of(folder)
    path = ledger_path or Path(str(about.get("ledger") or folder.parent / "ledger.json"))
    ledger = ledgers.load(path)
    try:
        matrix = [one.case for one in read(str(about.get("plan")), f"the plan in {folder / ABOUT}").cases]
    except UsageError:
        matrix = []  # the cases of runs are known anyway
    results = results_of(state, ledger, about, matrix, folder=str(folder), trouble=trouble)
    file = folder / INDEX if file is None else file
    make_pages(results, folder)
    write_whole(file, page_of_night(NightFacts(
        results=results, about={**about, "ledger": str(path)}, ledger=ledger,
        has_ledger=path.is_file(), pages=dict(pages_of(results, file.parent)),
        made_at=datetime.datetime.fromtimestamp(runtime.current.time_ns() / 1e9).astimezone(),
        showing=runs_by_signature(results.runs),
        reproductions=state.select("SELECT count(*) FROM reproductions")[0][0])))
    return file


def index_beside(folder: Path, about: Mapping[str, Any], trouble: str = "") -> Path | None:
    """Writes the page during or after a campaign; None if that failed for any reason."""
    return written_page(folder, lambda: write_index(
        folder, trouble=trouble, ledger_path=Path(str(about["ledger"]))))


def make_pages(results: Results, folder: Path) -> None:
    """Makes the page of the smallest run of each cause that this campaign saw, the new ones first; existing
    pages stay."""
    made = 0
    for cause in results.causes:
        run = Path(cause.smallest)
        ours = run.resolve().is_relative_to(folder.resolve())  # a state may contain any path
        if not cause.showing or made == AT_ONCE or not ours or not is_run(run):
            continue
        if (run / REPORT).is_file() or size_of(run) > AT_ONCE_BYTES:
            continue
        made += 1
        try:
            write_report(run)
        except Exception as error:
            click.echo(harmless(f"floodmark: {run}: its page was not written: {error}"), err=True)


def pages_of(results: Results, seen_from: Path) -> Iterator[tuple[str, str]]:
    """Yields the existing pages: (the run's folder, the page's address relative to `seen_from`). An address
    never begins with a scheme, whatever the folder's name."""
    named = {cause.smallest for cause in results.causes if cause.smallest}
    named |= {results.where(run) for cell in results.cells for run in cell.runs}
    for folder in sorted(named):
        page = Path(folder) / REPORT
        if page.is_file():
            relative = os.path.relpath(page.absolute(), seen_from.absolute())
            yield folder, f"./{quote(relative)}"
