"""unclean-election: a leader chosen from outside the ISR where no setting and nobody had allowed that.

The controller's own line shows it, and whether it was allowed is known to the driver (faults.py): so the
findings are made there, and join the others as rows.
"""

from collections.abc import Iterator, Mapping

from checkers import names
from checkers.facts import Run
from checkers.faults import Bounds
from checkers.findings import COLUMNS

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
SHOWN = 5  # partitions named in a reason


def unclean_elections(number: int, run: Run) -> Iterator[tuple[object, ...]]:
    """A row of SCHEMA for each that was not allowed; number: the run's position in the call."""
    for key, bounds in run.bounds.items():
        for each in bounds.unclean:
            if each.allowed is False:
                ruling = each.ruling
                told = {
                    "run": number, "name": names.UNCLEAN_ELECTION, "partition": key, "seen": ruling.epoch,
                    "nodes": [] if ruling.leader is None else [ruling.leader], "node": ruling.node,
                    "seq": ruling.seq, "tick": ruling.time,
                }  # fmt: skip
                yield tuple(told.get(name) for name in COLUMNS)


def doubtful_elections(bounds: Mapping[int, Bounds]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Why nobody knows of some of them whether they were allowed."""
    keys = [key for key, each in bounds.items() if any(one.allowed is None for one in each.unclean)]
    if keys:
        shown = ", ".join(map(str, keys[:SHOWN])) + (", ..." if len(keys) > SHOWN else "")
        told = (
            f"partition {shown} had an unclean election, and nobody can say whether it was allowed: the "
            "guarantees do not tell the setting, or a line of the nemesis that asked for it may be missing, "
            "or too near in time"
        )
        yield (names.UNCLEAN_ELECTION,), told
