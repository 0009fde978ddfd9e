"""Reads a run folder by ranges (checkers.read) into what plain_read gives: tables, and facts about the files.

tables, preconditions = ranged_read.read_run(open_folder(path), run=0, range_bytes=1 << 20) differences(path,
300)          where it differs from plain_read, with ranges of so many bytes
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
    """All tables that come from the big files, and the merged facts of the ranges."""
    parts, facts = defaultdict[str, list[pa.Table]](list), list[Facts]()
    for one in ranges_of(run, folder, range_bytes):
        parsed = read_range(one, folder.special)
        facts.append(pickle.loads(pickle.dumps(parsed.facts)))
        for name, table in parsed.tables.items():
            parts[name].append(table)
    tables = {name: pa.concat_tables(each) for name, each in parts.items()}
    tables.pop(REPLICA_ROWS, None)
    traced = seqs.seq_facts(tables.pop(seqs.SEQS)) if seqs.SEQS in tables else []
    if "lines" not in tables:
        return tables, preconditions_of(run + 1, facts, [], [], traced)[run]
    tables["answers"] = pairing.answers(tables["lines"])
    tables["repeated"], values = repeats.repeats(tables["sends"])
    return tables, preconditions_of(run + 1, facts, pairing.pairing(tables["lines"]), values, traced)[run]


def differences(path: Path, range_bytes: int) -> list[str]:
    """Where the two readers give different tables or facts; empty if nowhere."""
    (plain, survey), (tables, seen) = (
        plain_read.read_run(open_folder(path), 3), read_run(open_folder(path), 3, range_bytes)
    )  # fmt: skip
    said = []
    # answers are made of lines, whose `at` and ident are each reader's own.
    for name in sorted(plain.keys() | tables.keys() - {"answers"}):
        one, other = (rows_of(name, each.get(name)) for each in (plain, tables))
        if one != other:
            said.append(f"{name}: {len(one)} rows, {len(other)} rows; {first_other(one, other)}")
    expected, got = facts_of(survey), facts_of(seen)
    return said + [f"{key}: {expected[key]!r}, {got[key]!r}" for key in expected if expected[key] != got[key]]


def rows_of(name: str, table: pa.Table | None) -> list[dict[str, Any]]:
    """The rows without `at`, which counts within ranges, and ident, which may be any number."""
    if table is None or name == "answers":
        return []
    rows = table.select(TABLES[name].names).cast(TABLES[name]).to_pylist()
    return [{key: value for key, value in row.items() if key not in ("at", "ident")} for row in rows]


def first_other(one: list[Any], other: list[Any]) -> Any:
    return next((pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]), None)


def facts_of(seen: Survey | Preconditions) -> dict[str, Any]:
    """The facts that laws and reasons use. If indexes do not rise, they do not use which process did what."""
    traced = seen.traced
    nodes = {node: (each.lines, each.first, each.complete) for node, each in traced.nodes.items()}
    names = ("lines", "bad", "disordered", "ok", "fail", "info", "acked", "txns", "entries", "bad_entries")
    return {
        **{name: getattr(seen, name) for name in names},
        "in_order": seen.in_order or seen.bad > 0,
        "nemesis": list(seen.nemesis),
        "repeated": list(seen.repeated),
        "partitions": set(seen.partitions),
        "used": set(seen.used),
        "acked_at_first": set(seen.acked_at_first),
        "trace": (traced.bad, nodes),
        "rulings": list(traced.rulings) if isinstance(seen, Survey) else [
            {name: each[name] for name in each if name != "at"} for each in traced.rulings],
        **({} if seen.disordered else {
            "falls": seen.falls, "unmatched": seen.unmatched, "overlapping": dict(seen.overlapping)}),
    }  # fmt: skip
