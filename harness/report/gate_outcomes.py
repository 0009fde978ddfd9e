"""Sums up each folder's result at the gate, and writes what `check` prints and CI servers read.

Rules
1. A report and the exit code agree: both come from the ruling (run_outcome.py), not from the verdict alone.
2. In JUnit a `failure` is a bug, or unknown, because the job fails then and the report must say why; an
   `error` is a failure of the harness; `skipped` is unknown that --allow-unknown let through.
3. A test case is named after what was tested, the same every time (case_names.py): a CI server tracks a test
   by its name. The folder and the seed are properties.
4. Text that was cut for its length says so.
"""

import datetime
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import orjson

from floodmark.checkers.judge import report
from floodmark.checkers.text.blame_words import blame_in
from floodmark.harness import __version__
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import verdict_text
from floodmark.harness.report.case_names import UNREADABLE, case_name, numbered
from floodmark.harness.report.model import Json, Reading, text_of
from floodmark.harness.report.phrases import class_text, command_line, many
from floodmark.harness.report.render import Room, cut, render
from floodmark.harness.report.run_outcome import (
    EXITS,
    HARNESS,
    INVALID,
    LISTS,
    Ruling,
    fails,
    ruling,
    summary,
)
from floodmark.harness.report.safe_text import harmless, harmless_data
from floodmark.harness.report.saved_verdict import LEFT_OF_SHRUNK, bad_lines, died_unquoted
from floodmark.harness.run import SHRUNK, RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_VALID, Policy, Verdict

UNSAVED = ("its verdict could not be written",)
LIMIT = 1_000_000  # bytes of a Markdown page
REPORT_CHARS = 20_000  # of a test case
TAIL_BYTES = 1 << 16


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
    def loaded_reading(self) -> Reading:
        """The reading of the files, made now if there is none."""
        return self.reading or verdict_text.reading_of(self.folder, self.verdict, self.about)

    @property
    def findings(self) -> list[Json]:
        return verdict_text.worst_first(self.verdict.get("findings") or ())

    @property
    def unknown(self) -> tuple[Json, ...]:
        """The verdict's `unknown`: what the judge may have missed."""
        return tuple(self.verdict.get("unknown") or ())

    @property
    def report(self) -> str:
        """The report as `check` prints it, in colour."""
        remarks = [*(("harness", reason) for reason in self.ruling.harness), *self.remarks]
        lines = [f"  {head:<9}  {text}" for head, text in remarks]
        return "\n".join([verdict_text.report(self.folder, self.verdict, self.about, ruled=self.ruling,
                                              reading=self.reading), *lines])

    @property
    def why(self) -> str:
        """Why the folder fails or is unknown; empty if it is valid."""
        if self.ruling.kind == INVALID and self.failing:
            worst, *others = self.failing  # its sentence comes first: a list of tests shows no more
            examples = worst.get("examples") or ()
            sentence = f"{text_of(examples[0])} {blame_in(examples[0])}".rstrip() if examples else ""
            besides = ", ".join(f"{found['name']} {found['count']}" for found in others)
            return f"{group_summary(worst)}. {sentence}" + (f" Besides: {besides}." if others else "")
        reasons = list(self.ruling.harness)
        if self.unknown:
            first, *others = self.unknown
            more = f" (and {many(len(others), 'more reason')})" if others else ""
            reasons.append(f"cannot tell {verdict_text.shortened(first['names'])}: {first['reason']}{more}")
        return "; ".join(reasons)

    @property
    def element(self) -> str | None:
        """Its element in JUnit; None for a case that passed."""
        if self.code == EXIT_VALID:
            return "skipped" if self.unknown else None
        return "error" if self.code == EXIT_HARNESS else "failure"

    @property
    def type(self) -> str:
        """What CI servers group by: the worst finding, else `harness`, `interrupted` or `unknown`."""
        if self.ruling.kind == INVALID and self.failing:
            return str(self.failing[0]["name"])
        kind = self.ruling.kind
        return "unknown" if self.code != EXIT_HARNESS else "harness" if kind == HARNESS else kind

    @property
    def commands(self) -> list[str]:
        """The commands to show, explain and reproduce; if there is nothing to show, to judge again."""
        typed = verdict_text.next_commands(self.folder, self.verdict, self.about)
        otherwise = command_line("check" if self.about is None else "show", self.folder)
        return [command for _, command in typed] or [otherwise]


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
    allowed = sorted({found.name for found in verdict.findings if policy.strict or found.klass == BUG}
                     & policy.allow)
    permitted = sorted({found.name for found in verdict.findings if found.klass != BUG} - policy.allow)
    effects = [f"--strict: {', '.join(permitted)} counted as bugs"] if policy.strict and permitted else []
    effects += [f"--allow: {', '.join(allowed)} let through"] if allowed else []
    effects += ["--allow-unknown: unknown let through"] if policy.allow_unknown and verdict.unknown else []
    return effects


def group_summary(found: Json) -> str:
    """`lost-write: 3 findings, a bug`."""
    return f"{found['name']}: {many(found['count'], 'finding')}, {click.unstyle(class_text(found))}"


def print_reports(outcomes: Sequence[Outcome], pages: Sequence[Path | None]) -> None:
    """Prints the reports, of several with a summary first; each ends with its page, if any, and folder."""
    if len(outcomes) > 1:
        click.echo(summary(outcome.ruling for outcome in outcomes) + "\n")
    for outcome, page in zip(outcomes, pages, strict=True):
        if outcome is not outcomes[0]:
            click.echo("")
        click.echo(outcome.report)
        if page is not None:
            click.echo(harmless(f"  page       {page}"))
        click.echo(harmless(str(outcome.folder)))


# -- for CI servers -----------------------------------------------------------------------------------------


def markdown(outcomes: Sequence[Outcome], limit: int = LIMIT) -> bytes:
    """The content of `--markdown FILE`: the worst runs first."""
    ordered = sorted(outcomes, key=lambda outcome: [*EXITS].index(outcome.ruling.kind))
    not_made = Counter(checks for one in ordered for checks in verdict_text.left_undone(one.verdict))
    return render("run.md", heading=summary(one.ruling for one in outcomes), outcomes=ordered,
                  failing=[one for one in ordered if one.code != EXIT_VALID], not_made=[*not_made.items()],
                  room=Room(limit), words=verdict_text, group_summary=group_summary).encode()


def junit(outcomes: Sequence[Outcome], now: datetime.datetime) -> bytes:
    """The content of `--junit FILE`."""
    cases = [{"name": name, "run": one, "took_s": seconds_of(one.folder),
              "lines": cut(click.unstyle(one.report), REPORT_CHARS).split("\n")}
             for name, one in zip(numbered(one.tested for one in outcomes), outcomes, strict=True)]
    return render("run.xml", cases=cases, version=__version__, now=now.isoformat(timespec="seconds")).encode()


def seconds_of(folder: Place) -> float | None:
    """The run's length by the last complete line of its history; None if there is no such line. The lines are
    read from the end: they can be long, histories longer."""
    run, tail, lines = RunAt(folder=folder), TAIL_BYTES, list[bytes]()
    try:
        with run.open(run.history_path) as file:
            size = file.seek(0, io.SEEK_END)
            while not lines and tail < 8 * max(size, TAIL_BYTES):
                file.seek(max(0, size - tail))
                begun = file.read().split(b"\n")[tail < size:-1]  # the first may lack its beginning
                lines = [line for line in begun if line.strip()]
                tail *= 8
        time_ns = orjson.loads(lines[-1])["time"]
    except (OSError, orjson.JSONDecodeError, IndexError, KeyError, TypeError):
        return None
    return time_ns / 1e9 if type(time_ns) is int and time_ns >= 0 else None
