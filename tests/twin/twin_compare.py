"""Makes the verdicts of the product's judge and of the twin comparable."""

from typing import Any

import twin

from floodmark.checkers.laws.finding_names import MADE


def as_dict(verdict: Any) -> dict[str, Any]:
    findings = [{"name": one.name, "class": one.klass, "permitted_by": one.permitted_by, "count": one.count}
                for one in verdict.findings]
    left_out = sorted(name for entry in verdict.not_made for name in entry.names)
    return {"valid": verdict.valid, "findings": findings, "not_made": left_out,
            "unknown": {name for unknown in verdict.unknown for name in unknown.names}}


def spoken(verdict: dict[str, Any]) -> tuple[Any, ...]:
    """The comparable part of a verdict: without checks that only one of the two makes."""
    known = {*twin.NAMES} & {*MADE} | {twin.UNFIT}
    return (verdict["valid"],
            sorted((one["name"], one["class"], one["permitted_by"] or "", one["count"])
                   for one in verdict["findings"] if one["name"] in known),
            sorted(set(verdict["unknown"]) & known), sorted(set(verdict.get("not_made", ())) & known))
