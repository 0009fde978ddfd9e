"""`floodmark campaign ... --markdown FILE`: a campaign as a page, fit for a GitHub step summary. Pure.

Rules
1. First the line of the night, then the signatures, new ones first, then what to type for those that fail.
2. Clusters that got stuck, runs that broke a gate, what the harness failed at, and what nobody can tell stand
   in tables of their own.
3. Words of a run are never markup, and the page stays under a limit, as gate_markdown.py keeps them.
"""

from collections.abc import Iterable, Sequence

from floodmark.harness.campaign.journal import RunState
from floodmark.harness.reports.campaign_results import ABSENT, Cause, Results, gates_of, why_of
from floodmark.harness.reports.markdown_report import LIMIT, RESERVED, cell, fenced, fitting, text
from floodmark.harness.reports.phrases import many

Row = Sequence[str]
OF_A_TABLE = 0.4  # of the limit at most
SIGNATURES = ("", "signature", "rate", "reproduced", "first seen", "smallest run")


def campaign_markdown(results: Results, limit: int = LIMIT) -> bytes:
    """The page."""
    page = f"## floodmark: {text(results.heading)}\n"
    page += table("", SIGNATURES, [row(cause) for cause in results.violations], limit)
    page += table("Clusters that got stuck", (*SIGNATURES, "how"), [
        (*row(cause), cause.words) for cause in results.stuck], limit)  # fmt: skip
    page += table("Runs that broke a gate", ("case", "seed", "gate", "run"), [
        (run.case.title, str(run.seed), gates_of(run), results.where(run)) for run in results.gates], limit)
    page += table("The harness failed", ("case", "seed", "why", "run"), [
        (run.case.title, str(run.seed), why_of(run), judged(run, results))
        for run in (*results.not_made, *results.harness)], limit)  # fmt: skip
    page += table("Nobody can tell", ("case", "seed", "run", "why"), [
        (run.case.title, str(run.seed), judged(run, results), why_of(run))
        for run in results.untold], limit)  # fmt: skip
    page += table("In the ledger, and not seen this time", SIGNATURES, [
        row(cause) for cause in results.causes if cause.standing == ABSENT], limit)  # fmt: skip
    sections, left_out = fitting((section(cause) for cause in results.causes if cause.fails),
                                 limit - len(page.encode()) - RESERVED)
    page += "".join(sections)
    if left_out:
        page += f"\n*Cut for length: the sections of {many(left_out, 'more signature')} are not here.*\n"
    return page.encode()


def table(title: str, head: Row, rows: Iterable[Row], limit: int) -> str:
    """Nothing where there is no row."""
    lines = [f"| {' | '.join(cell(words) for words in one)} |\n" for one in rows]
    if not lines:
        return ""
    top = f"\n### {title}\n" if title else ""
    top += f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    shown, left_out = fitting(lines, int(limit * OF_A_TABLE / 4))
    more = f"\n*Cut for length: {many(left_out, 'more row')}.*\n" if left_out else ""
    return top + "".join(shown) + more


def row(cause: Cause) -> Row:
    rate = cause.rate if cause.standing != ABSENT else ""
    return (cause.word, f"{cause.signature.sentence} ({cause.id})", rate, cause.again, cause.first,
            cause.smallest)


def judged(run: RunState, results: Results) -> str:
    """The judge's word and the folder; of a run that was not made there is neither."""
    return f"{run.judged['kind']}: {results.where(run)}" if run.judged is not None else ""


def section(cause: Cause) -> str:
    """One signature that fails: the sentence, and what to type."""
    return "\n".join(["", f"### {text(cause.signature.sentence)}", "",
                      text(f"{cause.word}: {cause.runs} of {cause.of} runs; {cause.rate}"), "",
                      *(fenced(cause.commands) if cause.commands else ()), ""])
