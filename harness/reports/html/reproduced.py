"""Finds how often a run's cause was reproduced, and since when and why it is known, for the HTML report.

The folder's campaign and its ledger have the numbers. A folder belongs to a campaign if its path is that of a
campaign's run (runs/NAME) or reproduction (again/SIGNATURE/NUMBER). What cannot be read counts as missing:
the report is written anyway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.harness.campaign import ledger
from floodmark.harness.campaign.journal import CampaignAt, State
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.reports.safe_text import harmless

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
        at = CampaignAt(folder=parent)
        if at.about_path.is_file():
            try:
                return in_campaign(at, folder)
            except (FloodmarkError, AttributeError, KeyError, TypeError, ValueError):
                return Standing()
    return Standing()


def in_campaign(at: CampaignAt, folder: Path) -> Standing:
    about, state = at.about(), at.state()
    word = about.get("ledger")
    known = ledger.load(Path(word)) if isinstance(word, str) else ledger.Ledger()
    causes = dict(causes_of(state, known, folder.relative_to(at.folder.resolve())))
    standings = [standing(state, id_, entry, known) for id_, entry in causes.items()]
    return max(standings, key=lambda one: (one.tried, one.shown), default=Standing())


def causes_of(state: State, known: ledger.Ledger, place: Path) -> Mapping[str, ledger.Entry | None]:
    """The run's signatures by id, each with its entry in the ledger."""
    if place.parts[0] == "again":
        return {place.parts[1]: known.entries.get(place.parts[1])}
    run = next((run for run in state.runs.values() if run.folder == place.as_posix()), None)
    rows: Any = (run.judged or {}).get("signatures", ()) if run is not None else ()
    signatures = [Signature(**row) for row in rows]
    entries = [(signature, known.of(signature)) for signature in signatures]
    return {signature.id if entry is None else entry.id: entry for signature, entry in entries}


def standing(state: State, id_: str, entry: ledger.Entry | None, known: ledger.Ledger) -> Standing:
    """A cause's standing by the ledger, which covers all campaigns, or by the campaign's own journal."""
    lines = state.reproductions.get(id_, [])
    again = sum(bool(line["shown"]) for line in lines), len(lines)
    shown, tried = max(again, entry.reproduced if entry is not None else (0, 0), key=lambda pair: pair[1])
    nights = known.nights_with(entry) if entry is not None else []
    return Standing(
        shown=shown,
        tried=tried,
        first=harmless(known.nights[nights[0]].began[:DAY]) if nights else "",
        known=harmless(str(entry.known["reason"])) if entry is not None and entry.known is not None else "",
    )
