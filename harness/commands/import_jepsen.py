"""Imports a history of jepsen.tests.kafka as a run folder that `check` can judge: `floodmark import jepsen`.

Rules
1. The folder appears when it is complete, by one rename; after an error there is none.
2. A clients' history has nothing about replicas: there are no logs/, replicas.jsonl and trace.jsonl, no
   leader is known, and nothing has settled. run.json's `observes` says so, and the checks that need them are
   not made. Lost writes are inferred from the reads, as Jepsen does; where that is impossible
   (jepsen_reach.py), `imported` says so.
3. What could not be imported, and what was changed, is counted by kind, on stderr and in run.json
   (`imported`).
4. A history does not have the guarantees. Without -c they are those that Jepsen's own checker assumes, and a
   line of the summary says so.
"""

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from floodmark.harness import __version__
from floodmark.harness.commands.run import own_commit
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.importers.history_writer import HistoryLines
from floodmark.harness.importers.jepsen_common_lines import CommonLines
from floodmark.harness.importers.jepsen_file import JepsenFile
from floodmark.harness.importers.jepsen_names import LIFE, SPAN, Names
from floodmark.harness.importers.jepsen_nemesis import SPARES, Nemesis
from floodmark.harness.importers.jepsen_ops import Converter
from floodmark.harness.reports.phrases import many
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.run import FORMAT, RUNS, Run, json_line, refuse_nonempty, write_pieces
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.spec import pairs
from floodmark.harness.verdict import EXIT_VALID

SHOWN = 8  # partitions named in one line
PROGRESS_EVERY = 1_000_000  # lines: some six seconds
WORKLOAD = "jepsen.tests.kafka"
NO_REPLICAS = "imported from Jepsen: a clients' history has nothing about the replicas"
ASSUMED: Mapping[str, str] = {
    "acks": "all", "isolation.level": "read_committed", "unclean.leader.election.enable": "false",
    "enable.idempotence": "false", "retries": "0", "cleanup.policy": "delete",
}


def import_history(
    file: Path,
    *,
    out: Path | None = None,
    config: Iterable[str] = (),
    loses: Iterable[str] = (),
    spares: Iterable[str] = (),
) -> int:
    """Writes the folder and prints a summary; the last line on stdout is the folder."""
    given = pairs(tuple(config))
    promised = guarantees(given)
    folder = out or RUNS / f"{datetime.datetime.now():%Y%m%dT%H%M%S}-jepsen"
    refuse_nonempty(folder)
    source = JepsenFile(file)
    click.echo(f"reading {file} ({'JSON lines' if source.is_json else 'EDN'})", err=True)
    with new_folder(folder) as begun:
        converter = convert_history(source, begun, (SPARES | set(spares)) - set(loses))
        about = about_of(converter, promised, given, converter.reach.unread(begun.history_path))
        begun.rewrite(about)
        if converter.names.odd:
            write_pieces(begun.folder / "values.jsonl", map(json_line, converter.names.odd_values()))
    for line in summary(converter, about, given):
        click.echo(harmless(line), err=True)
    click.echo(f"judge it: floodmark check {folder}", err=True)
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


def convert_history(source: JepsenFile, run: Run, spares: frozenset[str]) -> Converter:
    """Writes every op of the file to the run's history."""
    converter = converted(source, run, spares, Names(json=source.is_json))
    same = converter.names.only_assigned()
    if not same:
        return converter
    run.history_path.unlink()
    return converted(JepsenFile(source.path), run, spares, Names(json=source.is_json, same=same))


def converted(source: JepsenFile, run: Run, spares: frozenset[str], names: Names) -> Converter:
    reported = 0

    def report(lines: int) -> None:
        nonlocal reported
        if lines // PROGRESS_EVERY > reported:
            reported = lines // PROGRESS_EVERY
            click.echo(f"... {lines} lines", err=True)

    with HistoryLines(run.history_path, report) as lines:
        nemesis = Nemesis(json=source.is_json, spares=spares)
        converter = Converter(source=source, lines=lines, names=names, nemesis=nemesis)
        for op in source.ops(CommonLines(converter)):
            converter.convert(op)
        converter.end()
    return converter


# -- the guarantees --------------------------------------------------------------------------------------


def guarantees(given: Mapping[str, str]) -> dict[str, Any]:
    """run.json's guarantees from Kafka's keys; UsageError for a key that is no guarantee."""
    strange = sorted(given.keys() - _PROMISES.keys() - {"cleanup.policy"})
    if strange:
        raise UsageError(f"-c {strange[0]} is no guarantee that a history is checked for; "
                         f"these are: {', '.join(sorted([*_PROMISES, 'cleanup.policy']))}")
    values = {**ASSUMED, **given}
    promised = {}
    for key, (name, read) in _PROMISES.items():
        if key in values:
            try:
                promised[name] = read(values[key])
            except (KeyError, ValueError) as error:
                raise UsageError(f"-c {key}={values[key]}: Kafka has no such value for it") from error
    return promised


def whole_number(value: str) -> int:
    """An integer that is not negative."""
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise ValueError(value)
    return int(value)


def one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    return values.__getitem__


_BOOLEANS = {"true": True, "false": False}
_PROMISES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "acks": ("acks", one_of({"all": "all", "-1": "all", "1": "1", "0": "0"})),
    "min.insync.replicas": ("min_insync_replicas", whole_number),
    "default.replication.factor": ("replication_factor", whole_number),
    "unclean.leader.election.enable": ("unclean_leader_election", one_of(_BOOLEANS)),
    "enable.idempotence": ("idempotence", one_of(_BOOLEANS)),
    "retries": ("retries", whole_number),
    "log.flush.interval.messages": ("flush", lambda value: "every" if whole_number(value) == 1 else "os"),
    "isolation.level": ("isolation", one_of({
        level: level for level in ("read_committed", "read_uncommitted")})),
}


# -- run.json -----------------------------------------------------------------------------------------------


def about_of(
    converter: Converter, promised: Mapping[str, Any], given: Mapping[str, str], unread: list[int]
) -> dict[str, Any]:
    """run.json, with the import's account under `imported`. unread: partitions whose acks are beyond all
    reads."""
    source, names = converter.source, converter.names
    nodes = sorted(converter.nemesis.nodes)  # which of them have a partition is unknown: any may
    cleanup = given.get("cleanup.policy", ASSUMED["cleanup.policy"])
    digest = source.digest.hexdigest()
    processes, read_to_the_end = converter.reach.final_reads()
    return {
        "format": FORMAT, "version": __version__, "commit": own_commit(), "id": digest[:16],
        "cluster": "jepsen", "workload": WORKLOAD, "nodes": nodes,
        "partitions": {
            str(number): {"topic": key, "partition": 0, "replicas": nodes, "cleanup": cleanup}
            for number, key in sorted(names.partitions.items())
        },
        "config": {}, "guarantees": dict(promised), "schedule": [], "missed": [],
        "settled": False,
        "settle": {"processes": [], "no_leader": [], "no_ack": [], "isr_short": [], "why": NO_REPLICAS},
        "leaders": {}, "final_reads": {"processes": processes, "partitions": read_to_the_end},
        "observes": {"dumps": False, "replicas": False, "trace": []},
        "died": [], "residue": None, "clock_error_ns": 0,
        "history_lines": converter.lines.count + converter.missing, "ended": "done",
        "imported": {
            "from": WORKLOAD, "file": source.path.name, "sha256": digest,
            "form": "json" if source.is_json else "edn",
            "values": f"partition * {SPAN} + value", "later_lives": f"process + n * {LIFE}",
            "odd_values": "values.jsonl" if names.odd else None,
            "blind": sorted(converter.reach.blind), "unread": unread,
            "assumed": dict(sorted(assumed(given))),
            "left_out": dict(sorted(converter.left_out.items())),
            "changed": dict(sorted(changes(converter))),
        },
    }


def assumed(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the guarantees that were assumed."""
    return ((key, value) for key, value in ASSUMED.items() if key not in given)


def changes(converter: Converter) -> Iterator[tuple[str, int]]:
    """Yields what differs from Jepsen's history, with counts."""
    yield from converter.changed.items()
    yield from ((f"act :{f}, counted as one that may lose data", number)
                for f, number in converter.nemesis.counted_as_losing.items())
    renamed = sum(key != str(number) for number, key in converter.names.partitions.items())
    for label, number in (
        ("key with a number of its own (partitions: topic)", renamed),
        ("key that is only assigned, taken for the used one with its text", len(converter.names.same)),
        ("value with a number of its own (values.jsonl)", len(converter.names.odd)),
        ("falling time: replaced by that of the line before", converter.lines.clamped),
    ):
        if number:
            yield label, number


def summary(converter: Converter, about: Mapping[str, Any], given: Mapping[str, str]) -> Iterator[str]:
    """Yields the summary: what was imported and what was not."""
    imported = about["imported"]
    yield (f"imported {many(converter.lines.count, 'line')}: {converter.records} sends, polls and txns of "
           f"{many(len(converter.processes), 'client')}, {many(len(about['partitions']), 'partition')}, "
           f"{many(len(about['nodes']), 'node')} that the nemesis met")
    yield from listed("not carried", imported["left_out"].items())
    yield from listed("changed", imported["changed"].items())
    if converter.missing:
        yield (f"{many(converter.missing, 'op')} may have sent or read and cannot be judged: "
               "the history counts as incomplete")
    values = ", ".join(f"{key}={value}" for key, value in assumed(given))
    yield f"assumed: {values} (change them with -c KEY=VALUE)"
    yield from read_extent(converter, imported)


def read_extent(converter: Converter, imported: Mapping[str, Any]) -> Iterator[str]:
    """Yields sentences on which partitions' losses can be judged."""
    if not converter.records:
        yield f"it has no send, poll or txn: is it a history of {WORKLOAD}? Nothing can be judged"
        return
    final = converter.reach.final_reads()[1]
    partitions = many(len(converter.names.partitions), "partition")
    yield (f"final polls read {len(final)} of {partitions} to the end; "
           "lost writes are inferred from reads and missing reads, as Jepsen does, and checks of "
                  "logs and replicas are not made")
    for name, why in (("unread", "acked records are above all reads"),
                      ("blind", "records were read without offsets")):
        if imported[name]:
            more = ", ..." if len(imported[name]) > SHOWN else ""
            some = ", ".join(map(str, imported[name][:SHOWN]))
            yield f"lost writes of partition {some}{more} cannot be judged: {why}"


def listed(head: str, counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    for label, number in counts:
        yield f"{head}: {number} x {label}"
