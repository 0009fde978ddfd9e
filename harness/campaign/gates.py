"""Defines the gates of a plan: limits that a run must keep besides being valid. Pure.

    max_unavailable_s   the longest time without an ack of a partition while a fault is in force, at most
    max_recovery_s      the time from mending a fault to the next ack of a partition, at most
    min_acked           the number of acked writes, at least

checkers/stats defines each figure. Rules
1. A run without a fault, or in which no client waited, has no such time, and passes the gate.
2. If a run could not be measured, it is unknown whether it passes.
"""

from collections.abc import Mapping
from typing import Any

from floodmark.harness.spec import RunSpec

GATE = "gate"  # the result of a run that is valid and breaks a gate of its plan
MAX_UNAVAILABLE_S, MAX_RECOVERY_S, MIN_ACKED = GATES = ("max_unavailable_s", "max_recovery_s", "min_acked")


def of_case(gates: Mapping[str, float], case: RunSpec) -> Mapping[str, float]:
    """The gates that apply to runs of this case: not min_acked for a scenario, which sends only what its
    steps say."""
    return gates if case.scenario is None else {name: gates[name] for name in gates if name != MIN_ACKED}


def broken(gates: Mapping[str, float], figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The gates that a run breaks, as {"gate", "limit", "value"}. figures: gate -> value; None: there is
    none."""
    both = [(gate, gates[gate], value) for gate in GATES
            if gate in gates and (value := figures.get(gate)) is not None]
    return [{"gate": gate, "limit": limit, "value": value} for gate, limit, value in both
            if (value < limit if gate == MIN_ACKED else value > limit)]
