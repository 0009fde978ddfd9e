"""Sums up one folder's result at the gate as data, and formats what the reports for CI servers share.

Rules
1. A report and the exit code agree: both come from the ruling (run_outcome.py), not from the verdict alone.
2. Text from a run may contain anything; characters that XML or a page cannot show are escaped (`\\x1b`).
3. Text that was cut for its length says so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.checkers.text.blame_words import blame_in
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import verdict_text
from floodmark.harness.report.bad_lines import bad_lines
from floodmark.harness.report.broker_exits import died_unquoted
from floodmark.harness.report.case_names import UNREADABLE, case_name
from floodmark.harness.report.model import Reading, text_of
from floodmark.harness.report.phrases import class_text, many
from floodmark.harness.report.run_outcome import INVALID, LISTS, Ruling, fails, ruling, summary
from floodmark.harness.report.safe_text import harmless, harmless_data
from floodmark.harness.report.saved_verdict import LEFT_OF_SHRUNK
from floodmark.harness.run import SHRUNK, RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.verdict import BUG, Policy, Verdict

Json = Mapping[str, Any]  # an object of run.json or verdict.json
UNSAVED = ("its verdict could not be written",)

# Everything else is allowed in XML 1.0 and safe on a page: it does not change the direction of writing.
_UNFIT = re.compile(
    r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    r"|[\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one folder at the gate."""

    folder: Place
    ruling: Ruling
    verdict: Json  # the verdict, in verdict.json's form
    about: Json | None = None  # run.json, if anything was judged
    tested: str = UNREADABLE  # the name of what it tested, whether or not anything was judged
    reading: Reading | None = None  # of the run's files; None: only of the verdict
    failing: tuple[Json, ...] = ()  # the findings that fail the gate, the worst first
    remarks: tuple[tuple[str, str], ...] = ()  # further lines of a report: a head and a text each

    @property
    def code(self) -> int:
        return self.ruling.code

    @property
    def word(self) -> str:
        return self.ruling.word

    @property
    def loaded_reading(self) -> Reading:
        """The reading of the files, made now if there is none."""
        return self.reading or verdict_text.reading_of(self.folder, self.verdict, self.about)

    @property
    def unknown(self) -> tuple[Json, ...]:
        """The verdict's `unknown`: what the judge may have missed."""
        return tuple(self.verdict.get("unknown") or ())


def outcome_of(folder: Place, verdict: Verdict, policy: Policy, unsaved: str | None = None) -> Outcome:
    """A folder's result at the gate. unsaved: why its verdict could not be written."""
    run: RunAt[Place] = RunAt(folder=folder)
    about = about_of(folder, verdict)
    shown = harmless_data(report.as_json(verdict))
    remarks = [("shrunk", LEFT_OF_SHRUNK)] if (about or {}).get(SHRUNK) is True else []
    remarks += [("bad line", line) for line in bad_lines(run, shown)]
    remarks += [("died", sentence) for sentence in died_unquoted(run, about or {}, shown)]
    remarks += [("gate", line) for line in effects_of_options(verdict, policy)]
    return Outcome(
        folder=folder,
        ruling=ruling(shown, about, policy, failed=UNSAVED if unsaved else ()),
        verdict=shown,
        about=about,
        tested=case_name(about or read_about(folder)),
        reading=verdict_text.reading_of(folder, shown, about),
        failing=tuple(found for found in verdict_text.worst_first(shown["findings"]) if fails(found, policy)),
        remarks=tuple(remarks),
    )


def about_of(folder: Place, verdict: Verdict) -> Json | None:
    """run.json of a judged folder; None if it is missing now, or LISTS are no lists."""
    about = read_about(folder) if verdict.counts else None
    return about if about and all(isinstance(about.get(name) or [], list) for name in LISTS) else None


def read_about(folder: Place) -> Json | None:
    """run.json; None if it cannot be read."""
    try:
        return harmless_data(RunAt(folder=folder).about())
    except (FloodmarkError, OSError):
        return None


def effects_of_options(verdict: Verdict, policy: Policy) -> list[str]:
    """Sentences about how the options change the verdict's result; empty if they do not."""
    allowed = sorted({found.name for found in verdict.findings} & policy.allow)
    permitted = sorted({found.name for found in verdict.findings if found.klass != BUG} - policy.allow)
    effects = [f"--strict: {', '.join(permitted)} counted as bugs"] if policy.strict and permitted else []
    effects += [f"--allow: {', '.join(allowed)} let through"] if allowed else []
    effects += ["--allow-unknown: unknown let through"] if policy.allow_unknown and verdict.unknown else []
    return effects


def report_of(outcome: Outcome) -> str:
    """The report as `check` prints it, in colour."""
    remarks = [*(("harness", reason) for reason in outcome.ruling.harness), *outcome.remarks]
    lines = [f"  {head:<9}  {text}" for head, text in remarks]
    return "\n".join([
        verdict_text.report(outcome.folder, outcome.verdict, outcome.about, ruled=outcome.ruling,
                       reading=outcome.reading), *lines])


def print_reports(outcomes: Sequence[Outcome], pages: Sequence[Path | None]) -> None:
    """Prints the reports, for several with a summary first; each ends with its page, if any, and its
    folder."""
    if len(outcomes) > 1:
        click.echo(summary(outcome.ruling for outcome in outcomes) + "\n")
    for outcome, page in zip(outcomes, pages, strict=True):
        if outcome is not outcomes[0]:
            click.echo("")
        click.echo(report_of(outcome))
        if page is not None:
            click.echo(harmless(f"  page       {page}"))
        click.echo(harmless(str(outcome.folder)))


def why(outcome: Outcome) -> str:
    """One line: why the folder fails or is unknown; empty if it is valid."""
    if outcome.ruling.kind == INVALID and outcome.failing:
        worst, *others = outcome.failing  # its sentence comes first: a list of tests shows no more
        besides = ", ".join(f"{found['name']} {found['count']}" for found in others)
        rest = f" Besides: {besides}." if others else ""
        return one_line(f"{group_summary(worst)}. {sentence(worst)}{rest}")
    reasons = list(outcome.ruling.harness)
    if outcome.unknown:
        first, *others = outcome.unknown
        more = f" (and {many(len(others), 'more reason')})" if others else ""
        reasons.append(f"cannot tell {verdict_text.shortened(first['names'])}: {first['reason']}{more}")
    return one_line("; ".join(reasons))


def group_summary(found: Json) -> str:
    """`lost-write: 3 findings, a bug`."""
    return f"{found['name']}: {many(found['count'], 'finding')}, {click.unstyle(class_text(found))}"


def sentence(found: Json) -> str:
    """The sentence of a group's worst example."""
    examples = found.get("examples") or ()
    return f"{text_of(examples[0])} {blame_in(examples[0])}".rstrip() if examples else ""


def one_line(text: str) -> str:
    return " ".join(text.split())


def visible(text: str) -> str:
    """The text without colours, its invisible characters escaped."""
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), click.unstyle(text))


def cut(text: str, limit: int) -> str:
    """The text's first `limit` characters, and how many more there were."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} ... (cut: {many(len(text) - limit, 'more character')})"
