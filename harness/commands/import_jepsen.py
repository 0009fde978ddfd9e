"""Imports a history of jepsen.tests.kafka as a run folder that `check` can judge: `floodmark import jepsen`.

Rules
1. The folder appears when it is complete, by one rename; after an error there is none.
2. What could not be imported, what was changed, and what was assumed, is said on stderr, as in run.json.
"""

import datetime
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from floodmark.harness.commands.run import own_commit
from floodmark.harness.errors import UsageError
from floodmark.harness.importers.jepsen_file import JepsenFile
from floodmark.harness.importers.jepsen_ops import SPARES, Converter
from floodmark.harness.importers.jepsen_run import ASSUMED, WORKLOAD, about_of, convert_history, guarantees
from floodmark.harness.pipeline import say
from floodmark.harness.report.phrases import command_line, number_of, size_text
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.terminal import Screen
from floodmark.harness.run import RUNS, Run, json_line, new_folder, refuse_nonempty, write_pieces
from floodmark.harness.spec import pairs
from floodmark.harness.verdict import EXIT_VALID

SHOWN = 8  # partitions named in one line


def import_history(file: Path, *, out: Path | None = None, config: Iterable[str] = (),
                   loses: Iterable[str] = (), spares: Iterable[str] = ()) -> int:
    """Writes the folder and prints a summary; the last line on stdout is the folder."""
    given = pairs(tuple(config))
    promised = guarantees(given)
    if both := sorted(set(loses) & set(spares)):
        raise UsageError(f"--loses {both[0]} and --spares {both[0]} exclude each other: leave one out")
    folder = out or RUNS / f"{datetime.datetime.now():%Y%m%dT%H%M%S}-jepsen"
    refuse_nonempty(folder)
    source = JepsenFile(file)
    say(f"reading {file} ({'JSON lines' if source.is_json else 'EDN'})")
    size = file.stat().st_size
    with new_folder(folder) as made:
        begun = Run(folder=made)
        with Screen(total=size) as screen:
            def show(count: int) -> None:
                screen.advance(count)
                screen.show(f"read {size_text(count)} of {size_text(size)}{screen.left}")

            source.on_read = show
            converter = convert_history(source, begun, (SPARES | set(spares)) - set(loses))
        for act in sorted({*loses, *spares} - converter.nemesis.acts):
            raise UsageError(f"--loses or --spares {act}: no act of the nemesis is called that; these are: "
                             f"{', '.join(sorted(converter.nemesis.acts)) or 'none'}")
        about = about_of(converter, begun, promised, given, own_commit())
        begun.rewrite(about)
        if converter.names.odd:
            write_pieces(begun.folder / "values.jsonl", map(json_line, converter.names.odd_values()))
    for line in summary(converter, about):
        say(escape_controls(line))
    say(f"judge it: {command_line('check', folder)}")
    click.echo(str(folder))
    return EXIT_VALID


def summary(converter: Converter, about: Mapping[str, Any]) -> Iterator[str]:
    imported, final = about["imported"], about["final_reads"]["partitions"]
    partitions = number_of(len(about["partitions"]), "partition")
    yield (f"imported {number_of(converter.lines.count, 'line')}: {converter.records} sends, polls and txns "
           f"of {number_of(len(converter.processes), 'client')}, {partitions}, "
           f"{number_of(len(about['nodes']), 'node')} that the nemesis met")
    for head, counts in (("not carried", imported["left_out"]), ("changed", imported["changed"])):
        yield from (f"{head}: {number} x {label}" for label, number in counts.items())
    if converter.missing:
        yield (f"{number_of(converter.missing, 'op')} may have sent or read and cannot be judged: "
               "the history counts as incomplete")
    values = ", ".join(f"{key}={value}" for key, value in ASSUMED.items() if key in imported["assumed"])
    yield f"assumed: {values} (change them with -c KEY=VALUE)"
    if not converter.records:
        yield f"it has no send, poll or txn: is it a history of {WORKLOAD}? Nothing can be judged"
        return
    yield (f"final polls read {len(final)} of {partitions} to the end; lost writes are inferred from reads "
           "and missing reads, as Jepsen does, and checks of logs and replicas are not made")
    for name, why in (("unread", "acked records are above all reads"),
                      ("blind", "records were read without offsets")):
        if imported[name]:
            more = ", ..." if len(imported[name]) > SHOWN else ""
            some = ", ".join(map(str, imported[name][:SHOWN]))
            yield f"lost writes of partition {some}{more} cannot be judged: {why}"
