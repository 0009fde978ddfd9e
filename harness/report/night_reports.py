"""Writes a campaign's reports: the text at its end, what CI servers read, the differences between two."""

import datetime
from collections.abc import Iterable, Sequence

from floodmark.harness import __version__
from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.report.gate_outcomes import LIMIT
from floodmark.harness.report.night import STUCK, Cause, Change, Results, Share, gates_of, kind_of, why_of
from floodmark.harness.report.phrases import align_columns
from floodmark.harness.report.rates import p_same
from floodmark.harness.report.render import Room, render
from floodmark.harness.report.safe_text import harmless

Row = tuple[str, ...]


def summary(night: Results) -> str:
    """The heading, tables of violations and stuck clusters, and the other runs that failed."""
    return render("night.txt", night=night, table=causes_table, gates_of=gates_of, why_of=why_of)


def night_markdown(night: Results, limit: int = LIMIT) -> bytes:
    """The content of `--markdown FILE`."""
    return render("night.md", night=night, gates_of=gates_of, why_of=why_of, room=Room(limit)).encode()


def night_junit(night: Results, now: datetime.datetime) -> bytes:
    """The content of `--junit FILE`."""
    return render("night.xml", night=night, gates_of=gates_of, why_of=why_of, version=__version__,
                  now=now.isoformat(timespec="seconds")).encode()


def causes_table(title: str, causes: Sequence[Cause]) -> list[str]:
    """The lines of a table of causes, and the guarantees that all have."""
    texts, below = distinguishing_texts([one.signature for one in causes])
    return [*columns([("signature", "system", title, "runs", "per 100", "again", "seen"), *(
        (one.entry.id, one.signature.system, text, f"{len(one.showing)} of {one.of}",
         one.rate.replace(" per 100 runs", ""), one.reproduced_text, one.standing_text)
        for one, text in zip(causes, texts, strict=True))]), *below]


def columns(rows: Iterable[Row]) -> list[str]:
    return align_columns([tuple(map(harmless, row)) for row in rows], ruled=True)


def distinguishing_texts(signatures: Sequence[Signature]) -> tuple[list[str], list[str]]:
    """For a table: a text for each signature with those of its guarantees that not all have; then a line with
    the guarantees that all have."""
    promised = [one.guarantees.split() for one in signatures]
    common = [one for one in promised[0] if all(one in each for each in promised)] if promised else []
    texts = []
    for one, guarantees in zip(signatures, promised, strict=True):
        own = " ".join(guarantee for guarantee in guarantees if guarantee not in common)
        permitted = f", permitted by {one.permitted_by}" if one.permitted_by else ""
        texts.append(f"{one.finding_and_step}{f' [{own}]' if own else ''}{permitted}")
    return texts, [f"guarantees: {' '.join(common)}"] if common else []


def difference(before: Results, after: Results, found: Sequence[Change], ledger: Ledger) -> str:
    """Two campaigns' tables of violations, of stuck clusters, and of the other runs that failed."""
    parts = [changes_table(title, [one for one in found if (one.signature.finding == STUCK) == is_stuck],
                           ledger) for title, is_stuck in (("violation", False), ("stuck", True))]
    rows: list[Row] = []
    for title, kind in (("the harness failed", "failed"), ("unknown", "unknown"), ("broke a gate", "gates")):
        then, now = ((len(getattr(night.troubles, kind)), len(night.runs)) for night in (before, after))
        if then[0] or now[0]:
            rows.append((title, *both(then, now), kind_of(then, now)))
    parts.append(columns([("runs", "before", "after", "p", "change"), *rows]) if rows else [])
    return "\n\n".join("\n".join(part) for part in parts if part) or "neither has found anything"


def changes_table(title: str, changes: Sequence[Change], ledger: Ledger) -> list[str]:
    """The lines of a table of changed signatures; none if there are none."""
    texts, below = distinguishing_texts([one.signature for one in changes])
    rows = [((ledger.of(one.signature) or one.signature).id, one.signature.system, text,
             *both(one.before, one.after), one.kind + (" (known)" if ledger.knows(one.signature) else ""))
            for one, text in zip(changes, texts, strict=True)]
    heads = ("signature", "system", title, "before", "after", "p", "change")
    return [*columns([heads, *rows]), *below] if rows else []


def both(before: Share, after: Share) -> Row:
    first, second = (f"{hits} of {of}" for hits, of in (before, after))
    return first, second, f"{p_same(before, after):.2g}" if before[1] and after[1] else "-"
