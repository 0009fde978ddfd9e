"""Finds how often a run's cause was reproduced, and since when and why it is known, for the HTML report.

The folder's campaign and its ledger have the numbers. A folder belongs to a campaign if its path is that of a
campaign's run (runs/NAME) or reproduction (again/SIGNATURE/NUMBER). What cannot be read counts as missing:
the report is written anyway.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from floodmark.harness.campaign import ledger
from floodmark.harness.campaign.state import about_of, is_campaign, state_of
from floodmark.harness.errors import FloodmarkError

DAY = len("2026-11-20")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the campaign knows about a cause. first: the day it was first seen; known: the reason, if it is
    known."""

    shown: int = 0  # attempts that showed it again
    tried: int = 0
    first: str = ""
    known: str = ""


def standing_of(folder: Path) -> Standing:
    """The standing of the cause that this run shows; of several, the one tried most often."""
    folder = folder.resolve()
    for parent in list(folder.parents)[1:3]:
        if is_campaign(parent):
            with suppress(FloodmarkError, AttributeError, KeyError, TypeError, ValueError):
                return in_campaign(parent, folder.relative_to(parent))
            break
    return Standing()


def in_campaign(campaign: Path, place: Path) -> Standing:
    """By the ledger, which covers all campaigns, or by the campaign's own state."""
    word, state = about_of(campaign).get("ledger"), state_of(campaign)
    known = ledger.load(Path(word)) if isinstance(word, str) else ledger.Ledger()
    if place.parts[0] == "again":
        entries = {place.parts[1]: known.entries.get(place.parts[1])}
    else:
        found = [(signature.id, known.of(signature)) for run in state.runs() if run.folder == place.as_posix()
                 for signature in run.signatures]
        entries = {id_ if entry is None else entry.id: entry for id_, entry in found}
    standings = []
    for id_, entry in entries.items():
        tries = state.reproductions(id_)
        again, first, reason = (sum(map(bool, tries)), len(tries)), "", ""
        if entry is not None:
            again = max(again, entry.reproduced, key=lambda pair: pair[1])
            first = "".join(known.nights[night].began[:DAY] for night in known.nights_with(entry)[:1])
            reason = str(entry.known["reason"]) if entry.known is not None else ""
        standings.append(Standing(shown=again[0], tried=again[1], first=first, known=reason))
    return max(standings, key=lambda one: (one.tried, one.shown), default=Standing())
