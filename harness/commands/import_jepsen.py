"""Imports a history of jepsen.tests.kafka as a run folder that `check` can judge: `floodmark import jepsen`.

Rules
1. The folder appears when it is complete, by one rename; after an error there is none.
2. What could not be imported, what was changed, and what was assumed, is said on stderr, as in run.json.
"""

import datetime
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from floodmark.harness.commands.run import own_commit
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.importers.jepsen_file import JepsenFile
from floodmark.harness.importers.jepsen_nemesis import SPARES
from floodmark.harness.importers.jepsen_run import about_of, convert_history, guarantees
from floodmark.harness.pipeline import say
from floodmark.harness.report.import_summary import summary
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import RUNS, Run, json_line, refuse_nonempty, write_pieces
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.spec import pairs
from floodmark.harness.verdict import EXIT_VALID


def import_history(file: Path, *, out: Path | None = None, config: Iterable[str] = (),
                   loses: Iterable[str] = (), spares: Iterable[str] = ()) -> int:
    """Writes the folder and prints a summary; the last line on stdout is the folder."""
    given = pairs(tuple(config))
    promised = guarantees(given)
    folder = out or RUNS / f"{datetime.datetime.now():%Y%m%dT%H%M%S}-jepsen"
    refuse_nonempty(folder)
    source = JepsenFile(file)
    say(f"reading {file} ({'JSON lines' if source.is_json else 'EDN'})")
    with new_folder(folder) as begun:
        converter = convert_history(source, begun, (SPARES | set(spares)) - set(loses), say)
        about = about_of(converter, begun, promised, given, own_commit())
        begun.rewrite(about)
        if converter.names.odd:
            write_pieces(begun.folder / "values.jsonl", map(json_line, converter.names.odd_values()))
    for line in summary(converter, about):
        say(harmless(line))
    say(f"judge it: floodmark check {folder}")
    click.echo(str(folder))
    return EXIT_VALID


@contextmanager
def new_folder(folder: Path) -> Iterator[Run]:
    """A context with a temporary run folder, which is renamed to `folder` at its end, or removed after an
    error."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{folder.name}.", folder.parent) as begun:
            begun.chmod(0o755)
            yield Run(folder=begun)
            os.rename(begun, folder)  # replaces an empty folder, and nothing else
    except OSError as error:
        raise FloodmarkError(f"cannot write the run folder {folder}: {error.strerror}") from error
