"""Prints a campaign's summary, and the comparison of two campaigns. Pure.

Rules
1. Fisher's exact test (scipy.stats.fisher_exact, two-sided), over the runs of a signature's own system,
   decides whether its rate has changed. A signature that only one night has is new or gone whatever the test
   says; its p is shown too, because once in 5 runs and never in 5 proves little.
2. Violations, stuck clusters, and runs that failed each have a table of their own: a campaign in which more
   runs failed has not found less.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.campaign.state import judged_by_system, runs_by_signature
from floodmark.harness.report.campaign_results import STUCK, Cause, Results, gates_of, why_of
from floodmark.harness.report.gate_outcomes import one_line
from floodmark.harness.report.phrases import ruled_table
from floodmark.harness.report.rates import p_same
from floodmark.harness.verdict import BUG

DIFFERENT_BELOW = 0.01  # for p; it is low because a night has many signatures, each with a test of its own
NEW, GONE, MORE, LESS, SAME = "new", "gone", "more frequent", "less frequent", "as before"
# One night has no run of its system, so nothing is known of what has changed.
NOT_RUN, NOT_RUN_BEFORE = "not run", "not run before"
_ORDER = (NEW, NOT_RUN_BEFORE, MORE, SAME, LESS, GONE, NOT_RUN)
Row = tuple[str, ...]
Share = tuple[int, int]  # runs that showed it, of runs


def summary(results: Results) -> str:
    """The heading, tables of violations and stuck clusters, and the other runs that failed."""
    lines = [results.heading]
    for title, causes in (("violation", results.violations), ("stuck", results.stuck)):
        if causes:
            lines += ["", *causes_table(title, causes)]
    runs = {
        "gate": [(run, f"{gates_of(run)}; {run.folder}") for run in results.gates],
        "not made": [(run, why_of(run)) for run in results.not_made],
        "the harness failed": [(run, f"{why_of(run)}; {run.folder}") for run in results.harness],
        "unknown": [(run, f"{why_of(run)}; {run.folder}") for run in results.unknown],
    }
    lines += [f"  {title}: {run.case.title} seed {run.seed}: {one_line(words)}"
              for title, mine in runs.items() for run, words in mine]
    return "\n".join(lines)


def causes_table(title: str, causes: Sequence[Cause]) -> list[str]:
    """A table of causes; below it the guarantees that all have, and the commands to type."""
    texts, common = distinguishing_texts([one.signature for one in causes])
    rows: list[Row] = [("signature", "system", title, "runs", "per 100", "again", "seen")]
    rows += [(one.id, one.signature.system, text, f"{one.runs} of {one.of}",
              one.rate.replace(" per 100 runs", ""), one.reproduced_text, one.standing_text)
             for one, text in zip(causes, texts, strict=True)]
    below = [f"guarantees: {common}"] if common else []
    below += [f"  {one.id}: {one.words}" for one in causes if one.words]
    below += [f"  look at {one.id}: {one.commands[0]}" for one in causes if one.fails and one.commands]
    return [ruled_table(rows), *below]


def distinguishing_texts(signatures: Sequence[Signature]) -> tuple[list[str], str]:
    """For a table: a text for each signature with those of its guarantees that not all have; then the
    guarantees that all have."""
    promised = [one.guarantees.split() for one in signatures]
    common = [one for one in promised[0] if all(one in each for each in promised)] if promised else []
    texts = []
    for one, guarantees in zip(signatures, promised, strict=True):
        own = " ".join(guarantee for guarantee in guarantees if guarantee not in common)
        permitted = f", permitted by {one.permitted_by}" if one.permitted_by else ""
        texts.append(f"{one.finding_and_step}{f' [{own}]' if own else ''}{permitted}")
    return texts, " ".join(common)


# -- two campaigns ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One signature in both nights."""

    signature: Signature
    before: Share  # of the runs of its system
    after: Share

    @property
    def kind(self) -> str:
        return kind_of(self.before, self.after)

    @property
    def is_new_bug(self) -> bool:
        return self.kind == NEW and self.signature.klass == BUG


def changes(before: Results, after: Results) -> list[Change]:
    """Every signature of either night; new ones come first, bugs before permitted findings."""
    nights = [(runs_by_signature(night.runs), judged_by_system(night.runs)) for night in (before, after)]

    def shares(signature: Signature) -> list[Share]:
        return [(len(found.get(signature, ())), judged[signature.system]) for found, judged in nights]

    seen = nights[0][0].keys() | nights[1][0].keys()
    found = [Change(signature=one, before=then, after=now) for one in seen for then, now in (shares(one),)]
    return sorted(found, key=lambda one: (_ORDER.index(one.kind), one.signature.klass != BUG, -one.after[0],
                                          one.signature))


def kind_of(then: Share, now: Share) -> str:
    if then[0] == 0:
        return NEW if then[1] else NOT_RUN_BEFORE
    if now[0] == 0:
        return GONE if now[1] else NOT_RUN
    if p_same(then, now) >= DIFFERENT_BELOW:
        return SAME
    return MORE if now[0] * then[1] > then[0] * now[1] else LESS


def difference(before: Results, after: Results, found: Sequence[Change], ledger: Ledger) -> str:
    """The tables of violations, of stuck clusters, and of the other runs that failed."""
    parts = [_changes_table(title, [one for one in found if (one.signature.finding == STUCK) == is_stuck],
                            ledger) for title, is_stuck in (("violation", False), ("stuck", True))]
    rows: list[Row] = []
    for title, of in (("the harness failed", lambda night: (*night.not_made, *night.harness)),
                      ("unknown", lambda night: night.unknown), ("broke a gate", lambda night: night.gates)):
        then, now = ((len(of(night)), len(night.runs)) for night in (before, after))
        if then[0] or now[0]:
            rows.append((title, *_both(then, now), kind_of(then, now)))
    parts.append(ruled_table([("runs", "before", "after", "p", "change"), *rows]) if rows else "")
    return "\n\n".join(filter(None, parts)) or "neither has found anything"


def _changes_table(title: str, changes: Sequence[Change], ledger: Ledger) -> str:
    """A table of changed signatures; empty if there are none."""
    texts, common = distinguishing_texts([one.signature for one in changes])
    rows: list[Row] = [("signature", "system", title, "before", "after", "p", "change")]
    for one, text in zip(changes, texts, strict=True):
        known = " (known)" if ledger.knows(one.signature) else ""
        rows.append(((ledger.of(one.signature) or one.signature).id, one.signature.system, text,
                     *_both(one.before, one.after), one.kind + known))
    return ruled_table(rows) + (f"\nguarantees: {common}" if common else "") if changes else ""


def _both(before: Share, after: Share) -> Row:
    first, second = (f"{hits} of {of}" for hits, of in (before, after))
    return first, second, f"{p_same(before, after):.2g}" if before[1] and after[1] else "-"
