"""Writes a campaign as a JUnit report, for `floodmark campaign ... --junit FILE`. Pure.

Rules
1. Test cases come in four groups (their classname): `floodmark.signature` (a cause of violations),
   `floodmark.stuck` (a cause of clusters that stopped answering), `floodmark.case` (a case of the plan:
   whether its runs were made, could be judged and pass the gates), and `floodmark.campaign` with a single
   test case: whether the campaign finished.
2. A signature that nobody has marked as known is a failure; a known one is skipped, with its reason; one that
   is in the ledger and was not seen this time passes, and so does what the guarantees permit. A case is an
   error if the harness failed to make a run, a failure if a gate was broken or a verdict is unknown, and
   skipped if it has no run.
3. Names are the same from night to night: a signature's sentence, a case's title.
"""

import datetime
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree

from floodmark.harness.campaign.state import RunState
from floodmark.harness.report.campaign_results import ABSENT, KNOWN, Cause, Cell, Results, gates_of, why_of
from floodmark.harness.report.gate_outcomes import one_line
from floodmark.harness.report.junit_report import document, junit_case
from floodmark.harness.report.phrases import many
from floodmark.harness.report.run_outcome import CUT_SHORT, HARNESS, UNKNOWN

CAMPAIGN, SIGNATURE, STUCK_GROUP, CASE = (
    "floodmark.campaign", "floodmark.signature", "floodmark.stuck", "floodmark.case")  # fmt: skip
TO_ITS_END = "the campaign came to its end"


def campaign_junit(results: Results, now: datetime.datetime) -> bytes:
    """The content of the file."""
    cases = [finished_case(results), *(signature_case(cause) for cause in results.causes),
             *(matrix_case(cell, results) for cell in results.cells)]
    return document(cases, properties(results), now, sum(cell.took_s for cell in results.cells))


def finished_case(results: Results) -> ElementTree.Element:
    return junit_case(TO_ITS_END, "error" if results.trouble else None, results.heading, type_="harness",
                      why=one_line(results.trouble), group=CAMPAIGN)


def signature_case(cause: Cause) -> ElementTree.Element:
    kind = "failure" if cause.fails else "skipped" if cause.standing == KNOWN else None
    why = f"known: {cause.reason}" if cause.standing == KNOWN else failure_line(cause)
    return junit_case(cause.signature.sentence, kind, "\n".join(detail_lines(cause)), why=one_line(why),
                      type_=cause.signature.finding, group=STUCK_GROUP if cause.is_stuck else SIGNATURE)


def failure_line(cause: Cause) -> str:
    """One line: the signature, how often it was seen, the smallest run, and the command to type."""
    parts = [cause.signature.sentence, f"{cause.standing_text}, in {cause.rate}"]
    parts += [f"smallest run {cause.smallest}", cause.commands[-1]] if cause.commands else []
    return "; ".join(parts)


def detail_lines(cause: Cause) -> Iterator[str]:
    yield f"{cause.signature.sentence}"
    yield f"signature   {cause.id}: {cause.standing_text}"
    if cause.standing != ABSENT:
        yield f"rate        {cause.rate}: {cause.runs} of {cause.of}"
    if cause.first:
        yield f"seen        first {cause.first}, last {cause.last}"
    if cause.reproduced[1]:
        yield f"reproduced  {cause.reproduced_text}"
    if cause.smallest:
        yield f"smallest    {cause.smallest}"
    if cause.words:
        yield f"how         {cause.words}"
    yield from cause.commands


def matrix_case(cell: Cell, results: Results) -> ElementTree.Element:
    """A case of the plan. It has one outcome at most, the harness's failures first; the text lists all."""
    not_made, gates, unknown = [], [], []
    for run in cell.runs:
        if broken := gates_of(run):
            gates.append(f"{run_label(run, results)}: {broken}")
        if run.why is not None:
            not_made.append(f"{run_label(run, results)}: not made: {why_of(run)}")
        elif run.kind in (HARNESS, CUT_SHORT):
            not_made.append(f"{run_label(run, results)}: {run.kind}: {why_of(run)}")
        elif run.kind == UNKNOWN:
            unknown.append(f"{run_label(run, results)}: unknown: {why_of(run)}: floodmark show "
                          f"{results.where(run)}")
    kind, why = None, ""
    if not_made or gates or unknown:
        kind = "error" if not_made else "failure"
        counts = [f"{len(lines)} {word}" for lines, word in (
            (not_made, "not made"), (gates, "that broke a gate"), (unknown, "unknown")) if lines]
        why = f"{', '.join(counts)} of {many(len(cell.runs), 'run')}; {(not_made or gates or unknown)[0]}"
    elif not cell.runs:
        kind, why = "skipped", "no run of it was begun"
    return junit_case(cell.name, kind, "\n".join([runs_summary(cell), *not_made, *gates, *unknown]),
                      why=one_line(why), took_s=cell.took_s, group=CASE,
                      type_="harness" if not_made else "gate" if gates else "unknown")


def runs_summary(cell: Cell) -> str:
    """`3 runs: 1 invalid, 2 valid; signatures: ...`."""
    kinds = Counter("not made" if run.why is not None else run.kind or "not judged" for run in cell.runs)
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    return f"{many(len(cell.runs), 'run')}{f': {counts}' if counts else ''}"


def run_label(run: RunState, results: Results) -> str:
    return f"{results.where(run)} (seed {run.seed})"


def properties(results: Results) -> Iterator[tuple[str, str]]:
    yield "campaign", results.folder
    for cause in results.causes:
        sentence = cause.signature.sentence
        yield f"{sentence}: signature", cause.id
        yield f"{sentence}: seen", cause.standing_text
        yield f"{sentence}: rate", cause.rate
        if cause.smallest:
            yield f"{sentence}: folder", cause.smallest
