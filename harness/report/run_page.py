"""Writes the page of a run, one HTML file: on request, and automatically for a run that was judged
invalid."""

import shlex
from collections.abc import Callable
from pathlib import Path

import click

from floodmark.checkers.judge.report import is_run
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report.html.facts import facts_of
from floodmark.harness.report.html.page import page_of
from floodmark.harness.report.model import Json, Reading
from floodmark.harness.report.run_outcome import INVALID, Ruling
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import Run, write_whole
from floodmark.harness.run_location import Place

REPORT = "report.html"
AT_ONCE_BYTES = 256 << 20  # of history and trace: about ten seconds


def write_report(folder: Path, file: Path | None = None, *, verdict: Json | None = None,
                 reading: Reading | None = None) -> Path:
    """Writes the page of a run folder atomically. FloodmarkError if it cannot be written."""
    file = folder / REPORT if file is None else file
    write_whole(file, page_of(facts_of(folder, verdict, reading)))
    return file


def write_page_if_invalid(folder: Place, ruled: Ruling, verdict: Json, reading: Reading | None = None, *,
                renew: bool = False) -> Path | None:
    """Writes the page of a run that was just judged, if the run is invalid, or if it has a page already,
    which would show an older verdict (renew: only then). The page does not affect the exit code: an error is
    only reported on stderr."""
    if not isinstance(folder, Path) or not is_run(folder):
        return None
    if (renew or ruled.kind != INVALID) and not (folder / REPORT).is_file():
        return None
    if size_of(folder) > AT_ONCE_BYTES:
        message = f"{folder}: the run is large, and its page takes a while: {command(folder)}"
        click.echo(harmless(message), err=True)
        return None
    return written_page(folder, lambda: write_report(folder, verdict=verdict, reading=reading))


def written_page(folder: Path, write: Callable[[], Path]) -> Path | None:
    """Writes the page of this folder; None if that failed for any reason, which is only reported on
    stderr."""
    try:
        return write()
    except FloodmarkError as error:
        why = str(error)
    except Exception as error:
        why = f"a bug of floodmark's own ({type(error).__name__}: {error})"
    click.echo(harmless(f"floodmark: {folder}: its page was not written: {why}"), err=True)
    return None


def size_of(folder: Path) -> int:
    """Bytes of the files that a page is made of."""
    run = Run(folder=folder)
    return sum(path.stat().st_size for path in (run.history_path, run.trace_path) if run.has(path))


def command(folder: Path) -> str:
    return shlex.join(["floodmark", "report", str(folder)])
