"""The index page of a campaign, and the pages of the runs that it names: `floodmark report CAMPAIGN_FOLDER`.

A campaign writes it after each batch and at its end, whole or not at all, so that one can look at it during
the night. It is a help, never the gate: what keeps it from being made is a remark on stderr.
"""

import datetime
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from floodmark.checkers.judge.report import is_run
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.cases import Case
from floodmark.harness.campaign.journal import CampaignAt, State
from floodmark.harness.campaign.plan import read
from floodmark.harness.commands.report import AT_ONCE_BYTES, REPORT, size_of, write_report
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.reports.campaign_results import Results, results_of
from floodmark.harness.reports.html.night import NightFacts, page_of_night
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.run import write_whole

INDEX = "index.html"
AT_ONCE = 10  # pages of runs, each about a second; the next call makes the next ones


def write_index(folder: Path, file: Path | None = None, *, state: State | None = None, trouble: str = "",
                ledger_path: Path | None = None) -> Path:
    """The page of a campaign's folder, whole or as it was before. state: None is as the journal has it;
    ledger_path: None is the campaign's own. FloodmarkError where it cannot be written."""
    at = CampaignAt(folder=folder)
    about = at.about()
    state = at.state() if state is None else state
    path = ledger_path or Path(str(about.get("ledger") or folder.parent / "ledger.json"))
    ledger = ledgers.load(path)
    try:
        results = results_of(state, ledger, about, matrix_of(at, about), folder=str(folder), trouble=trouble)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FloodmarkError(f"{at.journal_path} is no journal of this version: {error!r}") from error
    file = folder / INDEX if file is None else file
    make_pages(results, folder)
    write_whole(file, page_of_night(NightFacts(
        results=results, state=state, about={**about, "ledger": str(path)}, ledger=ledger,
        has_ledger=path.is_file(), pages=dict(pages_of(results, file.parent)),
        made_at=datetime.datetime.now().astimezone(), showing=state.runs_by_signature())))
    return file


def matrix_of(at: CampaignAt, about: Mapping[str, Any]) -> list[Case]:
    """The plan's cases; of a plan that cannot be read, none: those that were run are known all the same."""
    try:
        return [one.case for one in read(str(about.get("plan")), f"the plan in {at.about_path}").cases]
    except UsageError:
        return []


def index_beside(folder: Path, state: State | None, about: Mapping[str, Any],
                 trouble: str = "") -> Path | None:
    """That of a campaign under way, or at its end; None where it was not written, for whatever reason."""
    try:
        return write_index(folder, state=state, trouble=trouble, ledger_path=Path(str(about["ledger"])))
    except FloodmarkError as error:
        why = str(error)
    except Exception as error:
        why = f"a bug of floodmark's own ({type(error).__name__}: {error})"
    click.echo(harmless(f"floodmark: {folder}: its page was not written: {why}"), err=True)
    return None


def make_pages(results: Results, folder: Path) -> None:
    """Of the smallest run of each cause that this campaign saw, the new ones first; those that are there
    stay."""
    made = 0
    for cause in results.causes:
        run = Path(cause.smallest)
        ours = run.resolve().is_relative_to(folder.resolve())  # a journal may say anything
        if not cause.runs or made == AT_ONCE or not ours or not is_run(run):
            continue
        if (run / REPORT).is_file() or size_of(run) > AT_ONCE_BYTES:
            continue
        made += 1
        try:
            write_report(run)
        except Exception as error:
            click.echo(harmless(f"floodmark: {run}: its page was not written: {error}"), err=True)


def pages_of(results: Results, seen_from: Path) -> Iterator[tuple[str, str]]:
    """The pages that are there: (the run's folder, the page's address seen from that folder). An address
    begins with no scheme, whatever a folder is called."""
    named = {cause.smallest for cause in results.causes if cause.smallest}
    named |= {results.where(run) for cell in results.cells for run in cell.runs}
    for folder in sorted(named):
        page = Path(folder) / REPORT
        if page.is_file():
            relative = os.path.relpath(page.absolute(), seen_from.absolute())
            yield folder, f"./{quote(relative)}"
