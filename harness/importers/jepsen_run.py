"""Makes a run folder's files of a history of jepsen.tests.kafka.

Rules
1. A clients' history has nothing about replicas: there are no logs/, replicas.jsonl and trace.jsonl, no
   leader is known, and nothing has settled. run.json's `observes` says so, and the checks that need them are
   not made. Lost writes are inferred from the reads, as Jepsen does; where that is impossible
   (jepsen_reach.py), `imported` says so.
2. What could not be imported, and what was changed, is counted by kind in run.json (`imported`).
3. A history does not have the guarantees. Those that are not given are those that Jepsen's own checker
   assumes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from floodmark.harness import __version__
from floodmark.harness.errors import UsageError
from floodmark.harness.importers.jepsen_common_lines import CommonLines
from floodmark.harness.importers.jepsen_file import JepsenFile
from floodmark.harness.importers.jepsen_names import LIFE, SPAN, Names
from floodmark.harness.importers.jepsen_nemesis import Nemesis
from floodmark.harness.importers.jepsen_ops import Converter, HistoryLines
from floodmark.harness.run import FORMAT, Run

WORKLOAD = "jepsen.tests.kafka"
NO_REPLICAS = "imported from Jepsen: a clients' history has nothing about the replicas"
ASSUMED: Mapping[str, str] = {
    "acks": "all", "isolation.level": "read_committed", "unclean.leader.election.enable": "false",
    "enable.idempotence": "false", "retries": "0", "cleanup.policy": "delete",
}


def convert_history(source: JepsenFile, run: Run, spares: frozenset[str]) -> Converter:
    """Writes every op of the file to the run's history; if keys are only assigned, once more with those that
    they stand for."""
    converter = _converted(source, run, spares, Names(json=source.is_json))
    same = converter.names.only_assigned()
    if not same:
        return converter
    run.history_path.unlink()
    return _converted(source, run, spares, Names(json=source.is_json, same=same))


def _converted(source: JepsenFile, run: Run, spares: frozenset[str], names: Names) -> Converter:
    with HistoryLines(run.history_path) as lines:
        nemesis = Nemesis(json=source.is_json, spares=spares)
        converter = Converter(source=source, lines=lines, names=names, nemesis=nemesis)
        for op in source.ops(CommonLines(converter).convert_from):
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
    """An integer that is not negative; else ValueError."""
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise ValueError(value)
    return int(value)


_BOOLEANS = {"true": True, "false": False}
_PROMISES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "acks": ("acks", {"all": "all", "-1": "all", "1": "1", "0": "0"}.__getitem__),
    "min.insync.replicas": ("min_insync_replicas", whole_number),
    "default.replication.factor": ("replication_factor", whole_number),
    "unclean.leader.election.enable": ("unclean_leader_election", _BOOLEANS.__getitem__),
    "enable.idempotence": ("idempotence", _BOOLEANS.__getitem__),
    "retries": ("retries", whole_number),
    "log.flush.interval.messages": ("flush", lambda value: "every" if whole_number(value) == 1 else "os"),
    "isolation.level": ("isolation", {
        level: level for level in ("read_committed", "read_uncommitted")}.__getitem__),
}


# -- run.json -----------------------------------------------------------------------------------------------


def about_of(converter: Converter, run: Run, promised: Mapping[str, Any], given: Mapping[str, str],
             commit: str | None) -> dict[str, Any]:
    """run.json, with the import's account under `imported`."""
    source, names = converter.source, converter.names
    nodes = sorted(converter.nemesis.nodes)  # which of them have a partition is unknown: any may
    cleanup = given.get("cleanup.policy", ASSUMED["cleanup.policy"])
    digest = source.digest
    processes, read_to_the_end = converter.reach.final_reads()
    return {
        "format": FORMAT, "version": __version__, "commit": commit, "id": digest[:16],
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
            "blind": sorted(converter.reach.blind), "unread": converter.reach.unread(run.history_path),
            "assumed": {key: value for key, value in sorted(ASSUMED.items()) if key not in given},
            "left_out": dict(sorted(converter.left_out.items())),
            "changed": dict(sorted(changes(converter))),
        },
    }


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
