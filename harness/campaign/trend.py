"""Computes how often a signature was found, night by night, from a ledger. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.signatures import Signature

NIGHTS = 14  # at most so many, the latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The count of one signature in one night. of: judged runs of its system; 0: that night had none."""

    began: str  # ISO 8601 with its zone
    hits: int  # runs that showed it
    of: int


def trend(ledger: Ledger, signature: Signature, about: Mapping[str, Any], *, hits: int, of: int,
          nights: int = NIGHTS) -> list[Point]:
    """The points of the latest nights. The current night (about: its campaign.json) comes last, with these
    counts. Every signature has a point for each of these nights, so all lines share one time axis."""
    entry = ledger.of(signature)
    found = entry.found if entry is not None else {}
    earlier = sorted(earlier_than(ledger, about), key=lambda name: (ledger.nights[name].began, name))
    points = [Point(began=ledger.nights[name].began, hits=found.get(name, 0),
                    of=ledger.nights[name].runs.get(signature.system, 0)) for name in earlier]
    return [*points, Point(began=str(about.get("began", "")), hits=hits, of=of)][-nights:]


def earlier_than(ledger: Ledger, about: Mapping[str, Any]) -> set[str]:
    """The campaigns in the ledger that began before this one."""
    id_, began = str(about.get("id", "")), str(about.get("began", ""))
    return {name for name, night in ledger.nights.items() if name != id_ and night.began <= began}
