"""Finds unclean-election: a leader from outside the ISR that no setting and no request had allowed.

The controller's own line shows the election, and the driver knows whether it was allowed (permissions.py): so
these findings are made at the driver, and join the others as rows.
"""

from collections.abc import Iterator
from typing import Any

from floodmark.checkers.judge.permissions import AllBounds
from floodmark.checkers.judge.reasons import listed
from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.finding_names import Reason


def unclean_elections(number: int, bounds: AllBounds) -> Iterator[dict[str, Any]]:
    """A row for each that was not allowed; number: the run's position in the call."""
    for key in bounds.keys_where(lambda each: any(one.allowed is False for one in each.unclean)):
        for each in bounds[key].unclean:
            if each.allowed is False:
                ruling = each.ruling
                yield {
                    "run": number, "name": finding_names.UNCLEAN_ELECTION, "partition": key,
                    "seen": ruling.epoch,
                    "nodes": [] if ruling.leader is None else [ruling.leader], "node": ruling.node,
                    "seq": ruling.seq, "time": ruling.time, "at": ruling.at,
                }  # fmt: skip


def doubtful_elections(bounds: AllBounds) -> Iterator[Reason]:
    """The reason why nobody knows whether some of them were allowed."""
    keys = bounds.keys_where(lambda each: any(one.allowed is None for one in each.unclean))
    if keys:
        yield (
            (finding_names.UNCLEAN_ELECTION,),
            f"partition {listed(keys)} had an unclean election, and nobody can say whether it was allowed: "
            "the guarantees do not have the setting, or a line of the nemesis that asked for it may be "
            "missing, or too near in time",
        )
