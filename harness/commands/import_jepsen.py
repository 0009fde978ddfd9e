"""`floodmark import jepsen`: a history of jepsen.tests.kafka becomes a run folder that check can judge.

Rules
1. The folder appears when it is complete, by one rename; where anything goes wrong there is none.
2. A client's history says nothing of replicas: logs/, replicas.jsonl and trace.jsonl are not there, nobody
   is said to lead, nothing settled. run.json's `observes` says so, and the checks that rest on them are not
   made. Lost writes are inferred from the reads, as Jepsen does; where they cannot be (jepsen_reach.py),
   `imported` says so.
3. What could not be carried and what was changed is counted by kind, on stderr and in run.json (`imported`).
4. A history does not say what was promised. Where -c does not either, it is what Jepsen's own checker holds
   every cluster to; a line of the summary says so.
"""

import datetime
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from floodmark.harness import __version__
from floodmark.harness.commands.run import commit, pairs
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.importers.history_writer import HistoryLines
from floodmark.harness.importers.jepsen_common_lines import CommonLines
from floodmark.harness.importers.jepsen_file import JepsenFile
from floodmark.harness.importers.jepsen_names import LIFE, SPAN, Names
from floodmark.harness.importers.jepsen_nemesis import SPARES, Nemesis
from floodmark.harness.importers.jepsen_ops import Carrier
from floodmark.harness.reports.phrases import many
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.run import FORMAT, RUNS, Run, json_line, link_latest, refuse_full, write_pieces
from floodmark.harness.verdict import EXIT_VALID

SHOWN = 8  # partitions named in one line
TOLD_EVERY = 1_000_000  # lines: some six seconds
WORKLOAD = "jepsen.tests.kafka"
NO_REPLICAS = "imported from Jepsen: a history of clients says nothing of the replicas"
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
    """Writes the folder and says what is in it; the last line on stdout is the folder."""
    given = pairs(tuple(config))
    promised = guarantees(given)
    folder = out or RUNS / f"{datetime.datetime.now():%Y%m%dT%H%M%S}-jepsen"
    refuse_full(folder)
    source = JepsenFile(file)
    click.echo(f"reading {file} ({'JSON lines' if source.is_json else 'EDN'})", err=True)
    with whole_folder(folder) as begun:
        carrier = carry_history(source, begun, (SPARES | set(spares)) - set(loses))
        about = about_of(carrier, promised, given, carrier.reach.unread(begun.history_path))
        begun.rewrite(about)
        if carrier.names.odd:
            write_pieces(begun.folder / "values.jsonl", map(json_line, carrier.names.odd_values()))
    link_latest(folder)
    for line in summary(carrier, about, given):
        click.echo(harmless(line), err=True)
    click.echo(f"judge it: floodmark check {folder}", err=True)
    click.echo(str(folder))
    return EXIT_VALID


@contextmanager
def whole_folder(folder: Path) -> Iterator[Run]:
    """A folder beside the one wanted, which takes its place in the end, or is gone."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        begun = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise FloodmarkError(f"cannot begin the run folder {folder}: {error.strerror}") from error
    try:
        begun.chmod(0o755)
        yield Run(folder=begun)
        os.rename(begun, folder)  # takes the place of an empty folder, and of nothing else
    except BaseException as error:
        shutil.rmtree(begun, ignore_errors=True)
        if isinstance(error, OSError):
            raise FloodmarkError(f"cannot write the run folder {folder}: {error.strerror}") from error
        raise


def carry_history(source: JepsenFile, run: Run, spares: frozenset[str]) -> Carrier:
    """Every op of the file, written to the run's history."""
    said = 0

    def tell(lines: int) -> None:
        nonlocal said
        if lines // TOLD_EVERY > said:
            said = lines // TOLD_EVERY
            click.echo(f"... {lines} lines", err=True)

    with HistoryLines(run.history_path, tell) as lines:
        names, nemesis = Names(json=source.is_json), Nemesis(json=source.is_json, spares=spares)
        carrier = Carrier(source=source, lines=lines, names=names, nemesis=nemesis)
        for op in source.ops(CommonLines(carrier)):
            carrier.take(op)
        carrier.end()
    return carrier


# -- what was promised --------------------------------------------------------------------------------------


def guarantees(given: Mapping[str, str]) -> dict[str, Any]:
    """run.json's guarantees from Kafka's keys; UsageError for one that promises nothing."""
    strange = sorted(given.keys() - _PROMISES.keys() - {"cleanup.policy"})
    if strange:
        raise UsageError(f"-c {strange[0]} promises nothing that a history is held to; "
                         f"these do: {', '.join(sorted([*_PROMISES, 'cleanup.policy']))}")
    words = {**ASSUMED, **given}
    promised = {}
    for key, (name, read) in _PROMISES.items():
        if key in words:
            try:
                promised[name] = read(words[key])
            except (KeyError, ValueError) as error:
                raise UsageError(f"-c {key}={words[key]}: Kafka has no such value for it") from error
    return promised


def whole_number(word: str) -> int:
    """An integer that is not negative."""
    if not word.isascii() or not word.isdigit() or len(word) > 18:
        raise ValueError(word)
    return int(word)


def one_of(words: Mapping[str, Any]) -> Callable[[str], Any]:
    return words.__getitem__


_BOOLEANS = {"true": True, "false": False}
_PROMISES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "acks": ("acks", one_of({"all": "all", "-1": "all", "1": "1", "0": "0"})),
    "min.insync.replicas": ("min_insync_replicas", whole_number),
    "default.replication.factor": ("replication_factor", whole_number),
    "unclean.leader.election.enable": ("unclean_leader_election", one_of(_BOOLEANS)),
    "enable.idempotence": ("idempotence", one_of(_BOOLEANS)),
    "retries": ("retries", whole_number),
    "log.flush.interval.messages": ("flush", lambda word: "every" if whole_number(word) == 1 else "os"),
    "isolation.level": ("isolation", one_of({
        level: level for level in ("read_committed", "read_uncommitted")})),
}


# -- run.json -----------------------------------------------------------------------------------------------


def about_of(
    carrier: Carrier, promised: Mapping[str, Any], given: Mapping[str, str], unread: list[int]
) -> dict[str, Any]:
    """run.json, with what the import did under `imported`. `unread`: partitions whose acks went further than
    all reads."""
    source, names = carrier.source, carrier.names
    nodes = sorted(carrier.nemesis.nodes)  # which of them hold a partition is not known: any may
    cleanup = given.get("cleanup.policy", ASSUMED["cleanup.policy"])
    digest = source.digest.hexdigest()
    processes, read_to_the_end = carrier.reach.final_reads()
    return {
        "format": FORMAT, "version": __version__, "commit": commit(), "id": digest[:16],
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
        "history_lines": carrier.lines.count + carrier.missing, "ended": "done",
        "imported": {
            "from": WORKLOAD, "file": source.path.name, "sha256": digest,
            "form": "json" if source.is_json else "edn",
            "values": f"partition * {SPAN} + value", "later_lives": f"process + n * {LIFE}",
            "odd_values": "values.jsonl" if names.odd else None,
            "blind": sorted(carrier.reach.blind), "unread": unread,
            "assumed": dict(sorted(assumed(given))),
            "left_out": dict(sorted(carrier.left_out.items())),
            "changed": dict(sorted(changes(carrier))),
        },
    }


def assumed(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What nobody said of the promises."""
    return ((key, word) for key, word in ASSUMED.items() if key not in given)


def changes(carrier: Carrier) -> Iterator[tuple[str, int]]:
    """What stands in the run otherwise than in Jepsen's history."""
    yield from carrier.changed.items()
    yield from ((f"act :{f}, taken for one that may lose data", number)
                for f, number in carrier.nemesis.feared.items())
    renamed = sum(key != str(number) for number, key in carrier.names.partitions.items())
    for what, number in (
        ("key with a number of its own (partitions: topic)", renamed),
        ("value with a number of its own (values.jsonl)", len(carrier.names.odd)),
        ("time that fell: that of the line before", carrier.lines.clamped),
    ):
        if number:
            yield what, number


def summary(carrier: Carrier, about: Mapping[str, Any], given: Mapping[str, str]) -> Iterator[str]:
    """What was imported and what was not, for people."""
    imported = about["imported"]
    yield (f"imported {many(carrier.lines.count, 'line')}: {carrier.records} sends, polls and txns of "
           f"{many(len(carrier.processes), 'client')}, {many(len(about['partitions']), 'partition')}, "
           f"{many(len(about['nodes']), 'node')} that the nemesis met")
    yield from listed("not carried", imported["left_out"].items())
    yield from listed("changed", imported["changed"].items())
    if carrier.missing:
        yield (f"{many(carrier.missing, 'op')} may have sent or read and cannot be judged: "
               "the history counts as incomplete")
    words = ", ".join(f"{key}={word}" for key, word in assumed(given))
    yield f"assumed: {words} (say otherwise with -c KEY=VALUE)"
    yield from read_extent(carrier, imported)


def read_extent(carrier: Carrier, imported: Mapping[str, Any]) -> Iterator[str]:
    """Where losses can be judged, and where not."""
    if not carrier.records:
        yield f"no send, poll or txn is in it: is it a history of {WORKLOAD}? Nothing will be known"
        return
    final = carrier.reach.final_reads()[1]
    yield (f"final polls read {len(final)} of {many(len(carrier.names.partitions), 'partition')} to the end; "
           "lost writes are inferred from what was read and what never was, as Jepsen does, and what rests "
           "on logs and replicas is not checked")
    for name, why in (("unread", "acked records lie above all that was read"),
                      ("blind", "records were read whose offsets are not told")):
        if imported[name]:
            more = ", ..." if len(imported[name]) > SHOWN else ""
            some = ", ".join(map(str, imported[name][:SHOWN]))
            yield f"lost writes of partition {some}{more} cannot be told: {why}"


def listed(head: str, counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    for what, number in counts:
        yield f"{head}: {number} x {what}"
