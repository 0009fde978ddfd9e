"""A run folder read by ranges (checkers.read), as plain_read gives it: tables of the laws, and what must be
known of its files first.

tables, preconditions = ranged_read.read_run(open_folder(path), run=0, range_bytes=1 << 20)
differences(path, 300)          what it and plain_read do not agree on, with ranges of so many bytes
"""

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import plain_read
import pyarrow as pa
from plain_survey import Survey

from floodmark.checkers.judge.preconditions import Preconditions, preconditions_of
from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read import pairing, repeats, seqs
from floodmark.checkers.read.facts import Facts
from floodmark.checkers.read.folder import Folder, open_folder
from floodmark.checkers.read.ranges import RANGE_BYTES, ranges_of
from floodmark.checkers.read.replica_rows import REPLICA_ROWS
from floodmark.checkers.read.tables import read_range


def read_run(
    folder: Folder, run: int, range_bytes: int = RANGE_BYTES
) -> tuple[dict[str, pa.Table], Preconditions]:
    """All tables that come from the big files, and what the facts of the ranges come to."""
    parts, told = defaultdict[str, list[pa.Table]](list), list[Facts]()
    for one in ranges_of(run, folder, range_bytes):
        parsed = read_range(one, folder.settle_processes)
        told.append(pickle.loads(pickle.dumps(parsed.facts)))
        for name, table in parsed.tables.items():
            parts[name].append(table)
    tables = {name: pa.concat_tables(each) for name, each in parts.items()}
    tables.pop(REPLICA_ROWS, None)
    traced = seqs.seq_facts(tables.pop(seqs.SEQS)) if seqs.SEQS in tables else []
    if "lines" not in tables:
        return tables, preconditions_of(run + 1, told, [], [], traced)[run]
    tables["answers"] = pairing.answers(tables["lines"])
    tables["repeated"], values = repeats.repeats(tables["sends"])
    return tables, preconditions_of(run + 1, told, pairing.pairing(tables["lines"]), values, traced)[run]


def differences(path: Path, range_bytes: int) -> list[str]:
    """Nothing where both readers give the same tables and the same facts."""
    (plain, survey), (tables, seen) = (
        plain_read.read_run(open_folder(path), 3), read_run(open_folder(path), 3, range_bytes)
    )  # fmt: skip
    told = []
    # answers are made of lines, whose `at` and ident are each reader's own.
    for name in sorted(plain.keys() | tables.keys() - {"answers"}):
        one, other = (rows_of(name, each.get(name)) for each in (plain, tables))
        if one != other:
            told.append(f"{name}: {len(one)} rows, {len(other)} rows; {first_other(one, other)}")
    expected, got = facts_of(survey), facts_of(seen)
    return told + [f"{key}: {expected[key]!r}, {got[key]!r}" for key in expected if expected[key] != got[key]]


def rows_of(name: str, table: pa.Table | None) -> list[dict[str, Any]]:
    """Without `at`, which counts within ranges, and ident, which is anybody's number."""
    if table is None or name == "answers":
        return []
    rows = table.select(TABLES[name].names).cast(TABLES[name]).to_pylist()
    return [{key: value for key, value in row.items() if key not in ("at", "ident")} for row in rows]


def first_other(one: list[Any], other: list[Any]) -> Any:
    return next((pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]), None)


def facts_of(seen: Survey | Preconditions) -> dict[str, Any]:
    """What laws and reasons ask of either. Where indexes do not rise nobody asks which process did what."""
    traced = seen.traced
    nodes = {node: (each.lines, each.first, getattr(each, "whole", getattr(each, "complete", None)))
             for node, each in traced.nodes.items()}  # fmt: skip
    names = ("lines", "bad", "disordered", "ok", "fail", "info", "acked", "txns", "entries", "bad_entries")
    return {
        **{name: getattr(seen, name) for name in names},
        "in_order": seen.in_order or seen.bad > 0,
        "nemesis": list(seen.nemesis),
        "repeated": list(seen.repeated),
        "partitions": set(seen.partitions),
        "used": set(seen.used),
        "trace": (traced.bad, nodes),
        "rulings": list(traced.told) if isinstance(seen, Survey) else [
            {name: each[name] for name in each if name != "at"} for each in traced.rulings],
        **({} if seen.disordered else {
            "falls": seen.falls, "unmatched": seen.unmatched, "overlapping": dict(seen.overlapping)}),
    }  # fmt: skip
