"""Makes a run folder's files of a history of jepsen.tests.kafka.

Rules
1. A clients' history has nothing about replicas: there are no logs/, replicas.jsonl and trace.jsonl, no
   leader is known, and nothing has settled. run.json's `observes` says so, and the checks that need them are
   not made. Lost writes are inferred from the reads, as Jepsen does; where that is
   impossible, `imported` says so.
2. What could not be imported, and what was changed, is counted by kind in run.json (`imported`).
3. A history does not have the guarantees. Those that are not given are those that Jepsen's own checker
   assumes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from floodmark.harness import __version__
from floodmark.harness.errors import UsageError
from floodmark.harness.importers.jepsen_file import LIFE, SPAN, JepsenFile, Names
from floodmark.harness.importers.jepsen_ops import Converter, HistoryLines, Nemesis
from floodmark.harness.run import FORMAT, Run

WORKLOAD = "jepsen.tests.kafka"
NO_REPLICAS = "imported from Jepsen: a clients' history has nothing about the replicas"
ASSUMED: Mapping[str, str] = {
    "acks": "all", "isolation.level": "read_committed", "unclean.leader.election.enable": "false",
    "enable.idempotence": "false", "retries": "0", "cleanup.policy": "delete",
}


def convert_history(source: JepsenFile, run: Run, spares: frozenset[str]) -> Converter:
    """Writes the file's ops to the run's history; once more if keys that are only assigned are others."""
    same: Mapping[int | str, object] = {}
    while True:
        with run.history_path.open("xb") as file:
            converter = Converter(source=source, lines=HistoryLines(file=file),
                                  names=Names(json=source.is_json, same=same),
                                  nemesis=Nemesis(json=source.is_json, spares=spares))
            for op in source.ops():
                converter.convert(op)
            converter.end()
        if same or not (same := converter.names.only_assigned()):
            return converter
        run.history_path.unlink()


# -- the guarantees --------------------------------------------------------------------------------------


def guarantees(given: Mapping[str, str]) -> dict[str, Any]:
    """run.json's guarantees from Kafka's keys; UsageError for a key that is no guarantee."""
    if strange := sorted(given.keys() - _PROMISES.keys() - {"cleanup.policy"}):
        raise UsageError(f"-c {strange[0]} is no guarantee that a history is checked for; "
                         f"these are: {', '.join(sorted([*_PROMISES, 'cleanup.policy']))}")
    values = {**ASSUMED, **given}
    promised = {}
    for key, (name, known) in _PROMISES.items():
        if key in values:
            value = values[key]
            if not (known.fullmatch(value) if isinstance(known, re.Pattern) else value in known):
                raise UsageError(f"-c {key}={value}: Kafka has no such value for it")
            promised[name] = int(value) if isinstance(known, re.Pattern) else known[value]
    if "flush" in promised:
        promised["flush"] = "every" if promised["flush"] == 1 else "os"
    return promised


_WHOLE, _FLAG = re.compile("[0-9]{1,18}"), {"true": True, "false": False}
_PROMISES: Mapping[str, tuple[str, Mapping[str, Any] | re.Pattern[str]]] = {  # the name, and Kafka's values
    "acks": ("acks", {"all": "all", "-1": "all", "1": "1", "0": "0"}),
    "min.insync.replicas": ("min_insync_replicas", _WHOLE),
    "default.replication.factor": ("replication_factor", _WHOLE),
    "unclean.leader.election.enable": ("unclean_leader_election", _FLAG),
    "enable.idempotence": ("idempotence", _FLAG),
    "retries": ("retries", _WHOLE),
    "log.flush.interval.messages": ("flush", _WHOLE),
    "isolation.level": ("isolation", {level: level for level in ("read_committed", "read_uncommitted")}),
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
