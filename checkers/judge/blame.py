"""Which line of the trace is to blame: of what the trace shows its own, of a loss the first that allowed it.

A loss is blamed on the earliest finding of the trace that concerns its record: the partition is the same, and
the offset lies in the range that the finding speaks of.
"""

from collections.abc import Sequence
from typing import Any

from floodmark.checkers.laws import finding_names

SUSPECTS = 1_000  # of one run, the earliest
Row = dict[str, Any]


def guilty(row: Row, suspects: Sequence[Row]) -> int | None:
    """Where the line to blame for a finding stands in the trace, as `at`."""
    if row["seq"] is None and row["name"] in finding_names.LOSSES and row["offset"] is not None:
        concerned = (each for each in suspects if concerns(each, row))
        row = min(concerned, key=lambda each: (each["tick"], each["node"], each["seq"]), default=row)
    at: int | None = row["at"]
    return at


def concerns(suspect: Row, loss: Row) -> bool:
    """Whether a finding of the trace is about the record that was lost."""
    first, end = suspect["offset"], suspect["upto"]
    return (
        suspect["partition"] == loss["partition"]
        and first is not None
        and first <= loss["offset"]
        and (end is None or loss["offset"] < end)
    )


def suspects_of(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["name"] in finding_names.GUILTY and row["seq"] is not None]
