"""unclean-election: a leader chosen from outside the ISR where no setting and nobody had allowed that.

The controller's own line shows it, and whether it was allowed is known to the driver (permissions.py): so the
findings are made there, and join the others as rows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from checkers.judge.permissions import Bounds
from checkers.judge.reasons import Reason, listed
from checkers.laws import finding_names


def unclean_elections(number: int, bounds: Mapping[int, Bounds]) -> Iterator[dict[str, Any]]:
    """Each that was not allowed; number: the run's position in the call."""
    for key, bound in bounds.items():
        for each in bound.unclean:
            if each.allowed is False:
                ruling = each.ruling
                yield {
                    "run": number, "name": finding_names.UNCLEAN_ELECTION, "partition": key,
                    "seen": ruling.epoch,
                    "nodes": [] if ruling.leader is None else [ruling.leader], "node": ruling.node,
                    "seq": ruling.seq, "tick": ruling.time, "at": ruling.at,
                }  # fmt: skip


def doubtful_elections(bounds: Mapping[int, Bounds]) -> Iterator[Reason]:
    """Why nobody knows of some of them whether they were allowed."""
    keys = [key for key, each in bounds.items() if any(one.allowed is None for one in each.unclean)]
    if keys:
        yield (
            (finding_names.UNCLEAN_ELECTION,),
            f"partition {listed(keys)} had an unclean election, and nobody can say whether it was allowed: "
            "the guarantees do not tell the setting, or a line of the nemesis that asked for it may be "
            "missing, or too near in time",
        )
