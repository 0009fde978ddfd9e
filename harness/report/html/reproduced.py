"""Finds how often a run's cause was reproduced, and since when and why it is known, for the HTML report.

The folder's campaign and its ledger have the numbers. A folder belongs to a campaign if its path is that of a
campaign's run (runs/NAME) or reproduction (again/SIGNATURE/NUMBER). What cannot be read counts as missing:
the report is written anyway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from floodmark.harness.campaign import ledger
from floodmark.harness.campaign.state import State, about_of, is_campaign, state_of
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report.safe_text import harmless

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
            try:
                return in_campaign(parent, folder.relative_to(parent))
            except (FloodmarkError, AttributeError, KeyError, TypeError, ValueError):
                return Standing()
    return Standing()


def in_campaign(campaign: Path, place: Path) -> Standing:
    word, state = about_of(campaign).get("ledger"), state_of(campaign)
    known = ledger.load(Path(word)) if isinstance(word, str) else ledger.Ledger()
    standings = [standing(state, id_, entry, known) for id_, entry in causes_of(state, known, place).items()]
    return max(standings, key=lambda one: (one.tried, one.shown), default=Standing())


def causes_of(state: State, known: ledger.Ledger, place: Path) -> Mapping[str, ledger.Entry | None]:
    """The run's signatures by id, each with its entry in the ledger."""
    if place.parts[0] == "again":
        return {place.parts[1]: known.entries.get(place.parts[1])}
    runs = [run for run in state.runs() if run.folder == place.as_posix()]
    entries = [(signature, known.of(signature)) for run in runs for signature in run.signatures]
    return {signature.id if entry is None else entry.id: entry for signature, entry in entries}


def standing(state: State, id_: str, entry: ledger.Entry | None, known: ledger.Ledger) -> Standing:
    """A cause's standing by the ledger, which covers all campaigns, or by the campaign's own state."""
    tries = state.reproductions(id_)
    again = sum(map(bool, tries)), len(tries)
    shown, tried = max(again, entry.reproduced if entry is not None else (0, 0), key=lambda pair: pair[1])
    nights = known.nights_with(entry) if entry is not None else []
    return Standing(
        shown=shown,
        tried=tried,
        first=harmless(known.nights[nights[0]].began[:DAY]) if nights else "",
        known=harmless(str(entry.known["reason"])) if entry is not None and entry.known is not None else "",
    )
