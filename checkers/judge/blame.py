"""Whose line of the trace is to blame: of what the trace shows its own, of a loss the first that allowed it.

Rules
1. A line is known by node and seq; only the few that are told are looked for, in one reading of the file.
2. A loss is blamed on the earliest finding of the trace that concerns its record: the partition is the same,
   and the offset lies in the range that the finding speaks of.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from checkers.laws import finding_names as names
from harness.places import Place

SUSPECTS = 1_000  # of one run, the earliest
Row = Mapping[str, Any]
Lines = Mapping[tuple[str, int], int]  # (node, seq) -> line of trace.jsonl, from 0
_SEQ = re.compile(rb'"seq"\s*:\s*(\d+)')


def guilty(row: Row, suspects: Sequence[Row]) -> tuple[str, int] | None:
    """Node and seq of the line to blame for a finding."""
    if row["seq"] is not None:
        return row["node"], row["seq"]
    if row["name"] not in names.LOSSES or row["offset"] is None:
        return None
    concerned = [
        each
        for each in suspects
        if each["partition"] == row["partition"]
        and each["offset"] is not None
        and each["offset"] <= row["offset"]
        and (each["upto"] is None or row["offset"] < each["upto"])
    ]
    first = min(concerned, key=lambda each: (each["tick"], each["node"], each["seq"]), default=None)
    return None if first is None else (first["node"], first["seq"])


def suspects_of(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["name"] in names.GUILTY and row["seq"] is not None]


def lines_of(trace: Place | None, rows: Sequence[Row]) -> Lines:
    """Where the lines stand that any of these findings may blame."""
    wanted = {(row["node"], row["seq"]) for row in rows if row["seq"] is not None}
    if trace is None or not wanted:
        return {}
    numbers = {seq for _, seq in wanted}
    found: dict[tuple[str, int], int] = {}
    with trace.open("rb") as file:
        for index, line in enumerate(file):
            seq = _SEQ.search(line)
            if seq is not None and int(seq.group(1)) in numbers:
                try:
                    fields = orjson.loads(line)
                    found.setdefault((fields["node"], fields["seq"]), index)
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    continue
    return found
