"""Defines the gates of a plan: limits that a run must keep besides being valid. Pure.

    max_unavailable_s   the longest time without an ack of a partition while a fault is in force, at most
    max_recovery_s      the time from mending a fault to the next ack of a partition, at most
    min_acked           the number of acked writes, at least

checkers/stats defines each figure. Rules
1. A run without a fault, or in which no client waited, has no such time, and passes the gate.
2. If a run could not be measured, it is unknown whether it passes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.campaign.quantities import short_time_text
from floodmark.harness.spec import RunSpec

GATE = "gate"  # the result of a run that is valid and breaks a gate of its plan
MAX_UNAVAILABLE_S, MAX_RECOVERY_S, MIN_ACKED = GATES = ("max_unavailable_s", "max_recovery_s", "min_acked")
_WHEN = {MAX_UNAVAILABLE_S: "while a fault was in force", MAX_RECOVERY_S: "after a fault was mended"}


def of_case(gates: Mapping[str, float], case: RunSpec) -> Mapping[str, float]:
    """The gates that apply to runs of this case: not min_acked for a scenario, which sends only what its
    steps say."""
    return gates if case.scenario is None else {name: gates[name] for name in gates if name != MIN_ACKED}


def broken(gates: Mapping[str, float], figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The gates that a run breaks, as {"gate", "limit", "value"}. figures: gate -> value; None: there is
    none."""
    found = []
    for gate in GATES:
        value, limit = figures.get(gate), gates.get(gate)
        if value is None or limit is None:
            continue
        if value < limit if gate == MIN_ACKED else value > limit:
            found.append({"gate": gate, "limit": limit, "value": value})
    return found


def asks_for_measures(gates: Mapping[str, float]) -> bool:
    """Whether these gates need more than the verdict."""
    return MAX_UNAVAILABLE_S in gates or MAX_RECOVERY_S in gates


def sentences(rows: Sequence[Mapping[str, Any]]) -> str:
    """The broken gates in words: `a partition was not acked for 12.3 s while a fault was in force, 10 s are
    allowed (...)`."""
    return "; ".join(map(_sentence, rows))


def _sentence(row: Mapping[str, Any]) -> str:
    gate, limit, value = row["gate"], row["limit"], row["value"]
    if gate == MIN_ACKED:
        return f"{value:,} writes were acked, at least {limit:,.0f} are required"
    allowed = f"{short_time_text(limit)} are allowed ({gate})"
    return f"a partition was not acked for {short_time_text(value)} {_WHEN[gate]}, {allowed}"
