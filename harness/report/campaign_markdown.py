"""Writes a campaign as a Markdown page for a GitHub step summary: `campaign ... --markdown FILE`. Pure.

Rules
1. The page begins with the campaign's counts, then the signatures, new ones first; at its end are the
   commands to type for those that fail.
2. Clusters that got stuck, runs that broke a gate, failures of the harness, and runs whose verdict is unknown
   each have a table of their own.
3. Text of a run is never markup, and the page stays under a limit (markdown_report.py).
"""

from collections.abc import Iterable, Sequence

from floodmark.harness.campaign.state import RunState
from floodmark.harness.report.campaign_results import ABSENT, Cause, Results, gates_of, why_of
from floodmark.harness.report.markdown_report import LIMIT, RESERVED, cell, fenced, fitting, text
from floodmark.harness.report.phrases import many

Row = Sequence[str]
TABLE_SHARE = 0.4  # of the limit at most
SIGNATURES = ("", "signature", "rate", "reproduced", "first seen", "smallest run")


def campaign_markdown(results: Results, limit: int = LIMIT) -> bytes:
    """The content of the file."""
    page = f"## floodmark: {text(results.heading)}\n"
    page += table("", SIGNATURES, [row(cause) for cause in results.violations], limit)
    page += table("Clusters that got stuck", (*SIGNATURES, "how"), [
        (*row(cause), cause.words) for cause in results.stuck], limit)  # fmt: skip
    page += table("Runs that broke a gate", ("case", "seed", "gate", "run"), [
        (run.case.title, str(run.seed), gates_of(run), results.where(run)) for run in results.gates], limit)
    page += table("The harness failed", ("case", "seed", "why", "run"), [
        (run.case.title, str(run.seed), why_of(run), judged_folder(run, results))
        for run in (*results.not_made, *results.harness)], limit)  # fmt: skip
    page += table("Unknown", ("case", "seed", "run", "why"), [
        (run.case.title, str(run.seed), judged_folder(run, results), why_of(run))
        for run in results.unknown], limit)  # fmt: skip
    page += table("In the ledger, and not seen this time", SIGNATURES, [
        row(cause) for cause in results.causes if cause.standing == ABSENT], limit)  # fmt: skip
    sections, left_out = fitting((section(cause) for cause in results.causes if cause.fails),
                                 limit - len(page.encode()) - RESERVED)
    page += "".join(sections)
    if left_out:
        page += f"\n*Cut for length: the sections of {many(left_out, 'more signature')} are not here.*\n"
    return page.encode()


def table(title: str, head: Row, rows: Iterable[Row], limit: int) -> str:
    """A table, cut to its share of the limit; empty if there are no rows."""
    lines = [f"| {' | '.join(cell(value) for value in one)} |\n" for one in rows]
    if not lines:
        return ""
    top = f"\n### {title}\n" if title else ""
    top += f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    shown, left_out = fitting(lines, int(limit * TABLE_SHARE / 4))
    more = f"\n*Cut for length: {many(left_out, 'more row')}.*\n" if left_out else ""
    return top + "".join(shown) + more


def row(cause: Cause) -> Row:
    rate = cause.rate if cause.standing != ABSENT else ""
    return (cause.standing_text, f"{cause.signature.sentence} ({cause.id})", rate, cause.reproduced_text,
            cause.first, cause.smallest)


def judged_folder(run: RunState, results: Results) -> str:
    """The judge's result and the folder; empty for a run that was not made."""
    return f"{run.kind}: {results.where(run)}" if run.kind else ""


def section(cause: Cause) -> str:
    """The section of one signature that fails: its sentence, and the commands to type."""
    return "\n".join(["", f"### {text(cause.signature.sentence)}", "",
                      text(f"{cause.standing_text}: {cause.runs} of {cause.of} runs; {cause.rate}"), "",
                      *(fenced(cause.commands) if cause.commands else ()), ""])
