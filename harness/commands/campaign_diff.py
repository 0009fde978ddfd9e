"""Compares two campaigns: `floodmark campaign diff BEFORE AFTER`.
Violations, stuck clusters, and runs that failed each have a table of their own: a campaign in which more runs
failed has not found less.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from floodmark.harness.campaign import difference
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.difference import Change, Counted, kind_of, p_same
from floodmark.harness.campaign.journal import CampaignAt
from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.reports.campaign_results import STUCK, distinguishing_texts, results_of
from floodmark.harness.reports.phrases import ruled_table
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.verdict import EXIT_INVALID, EXIT_VALID

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A campaign's counts. others: the number of runs that failed, by what was wrong."""

    about: Mapping[str, Any]
    counted: Counted
    runs: int
    others: Mapping[str, int]


def diff_campaigns(before: Path, after: Path, ledger_path: Path | None) -> int:
    """Prints what differs; exit 1 if the second campaign has a bug that the first does not have and that is
    not marked as known."""
    then, now = night_of(before), night_of(after)
    ledger = ledgers.load(ledger_path or Path(str(now.about["ledger"])))
    found = difference.changes(then.counted, now.counted)
    violations = [one for one in found if one.signature.finding != STUCK]
    stuck = [one for one in found if one.signature.finding == STUCK]
    tables = [signatures_table("violation", violations, ledger), signatures_table("stuck", stuck, ledger),
              others_table(then, now)]
    click.echo(harmless("\n\n".join(filter(None, tables)) or "neither has found anything", breaks=True))
    new = [one for one in found if one.is_new_bug and not ledger.knows(one.signature)]
    return EXIT_INVALID if new else EXIT_VALID


def night_of(folder: Path) -> Night:
    at = CampaignAt(folder=folder)
    about, state = at.about(), at.state()
    found = {one: len(showing) for one, showing in state.runs_by_signature().items()}
    results = results_of(state, Ledger(), about, (), folder=str(folder))
    return Night(
        about=about, runs=len(state.runs), counted=Counted(runs=state.judged_by_system(), found=found),
        others={"the harness failed": len(results.not_made) + len(results.harness),
                "unknown": len(results.unknown), "broke a gate": len(results.gates)})


# -- tables: pure -------------------------------------------------------------------------------------------


def signatures_table(title: str, changes: Sequence[Change], ledger: Ledger) -> str:
    """A table of changed signatures; empty if there are none."""
    texts, common = distinguishing_texts([one.signature for one in changes])
    rows: list[Row] = [("signature", "system", title, "before", "after", "p", "change")]
    for one, text in zip(changes, texts, strict=True):
        known = " (known)" if ledger.knows(one.signature) else ""
        rows.append(((ledger.of(one.signature) or one.signature).id, one.signature.system, text,
                     *_both(one.before, one.after), one.kind + known))
    return ruled_table(rows) + (f"\nguarantees: {common}" if common else "") if changes else ""


def others_table(then: Night, now: Night) -> str:
    """A table of the runs that failed, are unknown, or broke a gate, of all runs."""
    rows: list[Row] = []
    for text, count in now.others.items():
        before, after = (then.others[text], then.runs), (count, now.runs)
        if before[0] or after[0]:
            rows.append((text, *_both(before, after), kind_of(before, after, p_same(before, after))))
    return ruled_table([("runs", "before", "after", "p", "change"), *rows]) if rows else ""


def _both(before: tuple[int, int], after: tuple[int, int]) -> tuple[str, str, str]:
    first, second = (f"{hits} of {of}" for hits, of in (before, after))
    return first, second, f"{p_same(before, after):.2g}" if before[1] and after[1] else "-"
