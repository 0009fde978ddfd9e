"""The gates of a plan: what a run must keep besides being valid. Pure.

    max_unavailable_s   the longest gap without an ack of a partition while a fault is in force, at most
    max_recovery_s      from the mending of a fault to the next ack of a partition, at most
    min_acked           writes that were acked, at least

What each figure is, checkers/stats says. Rules
1. A run without a fault, or in which nobody waited, has no such time, and keeps the gate.
2. Of a run that could not be measured nobody can tell whether it keeps them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.campaign.cases import Case
from floodmark.harness.campaign.quantities import brief_words

GATE = "gate"  # what came of a run that is valid and breaks a gate of its plan
MAX_UNAVAILABLE_S, MAX_RECOVERY_S, MIN_ACKED = GATES = ("max_unavailable_s", "max_recovery_s", "min_acked")
_WHEN = {MAX_UNAVAILABLE_S: "while a fault was in force", MAX_RECOVERY_S: "after a fault was mended"}


def of_case(asked: Mapping[str, float], case: Case) -> Mapping[str, float]:
    """Those that runs of this case have to keep: a scenario sends what its steps say, so it need not ack so
    many writes."""
    return asked if case.scenario is None else {name: asked[name] for name in asked if name != MIN_ACKED}


def broken(gates: Mapping[str, float], figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that a run breaks, {"gate", "limit", "value"}; figures: of each gate, None: there is none."""
    found = []
    for gate in GATES:
        value, limit = figures.get(gate), gates.get(gate)
        if value is None or limit is None:
            continue
        if value < limit if gate == MIN_ACKED else value > limit:
            found.append({"gate": gate, "limit": limit, "value": value})
    return found


def asks_for_measures(gates: Mapping[str, float]) -> bool:
    """Whether the verdict alone cannot tell."""
    return MAX_UNAVAILABLE_S in gates or MAX_RECOVERY_S in gates


def sentences(rows: Sequence[Mapping[str, Any]]) -> str:
    """`a partition was not acked for 12.3 s while a fault was in force, 10 s are allowed (...)`."""
    return "; ".join(map(_sentence, rows))


def _sentence(row: Mapping[str, Any]) -> str:
    gate, limit, value = row["gate"], row["limit"], row["value"]
    if gate == MIN_ACKED:
        return f"{value:,} writes were acked, {limit:,.0f} are asked for"
    allowed = f"{brief_words(limit)} are allowed ({gate})"
    return f"a partition was not acked for {brief_words(value)} {_WHEN[gate]}, {allowed}"
