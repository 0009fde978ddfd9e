"""Judges saved run folders, writes each verdict into its folder, and reports on all: `floodmark check`.

Rules
1. Every folder is judged and reported, whatever is wrong with others; the exit code is the worst.
2. If something cannot be written (a full disk, no permission), the exit code is 4 and not 1; but a bug that
   was found still makes it 1.
3. A saved run gets the exit code that it had when it was made: one that ended early is a failure of the
   harness, which no option allows.

The judge's answer is a Verdict. A Policy (--strict, --allow, --allow-unknown) turns it into a Ruling: a word
and an exit code. An Outcome is a folder with both, for the reports; a Gate is the Policy with the report
files.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import orjson

from floodmark.checkers.judge import report
from floodmark.checkers.text.explain import known_findings
from floodmark.harness import catalog
from floodmark.harness.commands.folder_arguments import chosen_runs
from floodmark.harness.commands.report import write_page_if_invalid
from floodmark.harness.errors import FloodmarkError, UsageError, nearest
from floodmark.harness.reports import verdict_text
from floodmark.harness.reports.bad_lines import bad_lines
from floodmark.harness.reports.broker_exits import died_unquoted
from floodmark.harness.reports.case_names import case_name
from floodmark.harness.reports.gate_outcomes import Json, Outcome, report_of
from floodmark.harness.reports.junit_report import junit
from floodmark.harness.reports.markdown_report import markdown
from floodmark.harness.reports.run_outcome import HARNESS, LISTS, Ruling, fails, ruling, summary
from floodmark.harness.reports.safe_text import harmless, harmless_data
from floodmark.harness.reports.saved_verdict import LEFT_OF_SHRUNK, kept_verdict
from floodmark.harness.run import SHRUNK, RunAt, write_whole
from floodmark.harness.run_location import Place
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.verdict import BUG, EXIT_HARNESS, Policy, Verdict, worst

UNSAVED = ("its verdict could not be written",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The options that turn verdicts into an exit code, and the files for reports."""

    policy: Policy
    json_file: Path | None = None
    junit_file: Path | None = None
    markdown_file: Path | None = None


def gate(
    *,
    strict: bool,
    allow: Sequence[str],
    allow_unknown: bool,
    json_file: Path | None = None,
    junit_file: Path | None = None,
    markdown_file: Path | None = None,
) -> Gate:
    """The Gate for check's options; UsageError for a name in --allow that is no finding."""
    known = known_findings()
    strange = sorted(set(allow) - set(known))
    if strange:
        raise UsageError(f"--allow: no finding is called {strange[0]!r}; {nearest(strange[0], known)}")
    policy = Policy(strict=strict, allow=frozenset(allow), allow_unknown=allow_unknown)
    files = {"--json": json_file, "--junit": junit_file, "--markdown": markdown_file}
    refuse_no_files({option: file for option, file in files.items() if file is not None})
    return Gate(policy=policy, json_file=json_file, junit_file=junit_file, markdown_file=markdown_file)


def refuse_no_files(files: Mapping[str, Path]) -> None:
    """Raises UsageError, before a long run, for report files that cannot be written. A report replaces a
    file, and must not replace /dev/stdout."""
    for option, file in files.items():
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise UsageError(f"{option}: {file} exists and is no plain file; name another file")
    if len({file.resolve() for file in files.values()}) < len(files):
        raise UsageError(f"{', '.join(files)}: each needs a file of its own")


def check_folders(
    words: Sequence[str | Path], through: Gate, workers: Workers = HERE, *, keep_parquet: bool = False
) -> int:
    """Judges all runs (patterns too, and folders of runs) in one call of the judge; returns the worst exit
    code."""
    folders = chosen_runs(words, workers)
    codes = judge_folders(folders, through, workers)
    if keep_parquet:
        keep_parquet_copies(folders)
    if catalog.prepare_next_judge():
        click.echo("in the background a cache is made so that Spark starts faster next time (once; 170 MB)",
                   err=True)
    return worst(codes)


def keep_parquet_copies(folders: Sequence[Place]) -> None:
    """Writes a history.parquet next to each big local history; an error is only reported."""
    for folder in folders:
        if isinstance(folder, Path):
            try:
                catalog.keep_parquet(RunAt(folder=folder).history_path)
            except OSError as error:
                message = f"{folder}: history.parquet could not be written: {error.strerror}"
                click.echo(harmless(message), err=True)


def judge_folders(folders: Sequence[Place], through: Gate, workers: Workers = HERE) -> list[int]:
    """Judges and reports; returns each folder's exit code (and 4 for each file that could not be written)."""
    runs = f"{len(folders)} runs" if len(folders) > 1 else "the run"
    click.echo(f"judging {runs} (starting Spark takes a while)", err=True)
    kept = {folder: report.of_json(saved) for folder in folders
            if (saved := kept_verdict(RunAt(folder=folder))) is not None}
    try:
        judged = iter(catalog.judge(workers).judge([folder for folder in folders if folder not in kept]))
    except FloodmarkError as error:
        not_judged(folders, str(error), through)
        raise
    verdicts = [kept[folder] if folder in kept else next(judged) for folder in folders]
    outcomes = []
    for folder, verdict in zip(folders, verdicts, strict=True):
        unsaved = [] if folder in kept else save(folder, verdict)
        outcomes.append(outcome_of(folder, verdict, through.policy, unsaved=bool(unsaved)))
    codes = [outcome.code for outcome in outcomes]
    if (together := through.json_file) is not None:
        codes += written(lambda: write_json(together, folders, verdicts))
    codes += write_reports(outcomes, through)  # before printing: stdout's reader may be gone
    pages = [write_page_if_invalid(one.folder, one.ruling, one.verdict, one.reading) for one in outcomes]
    print_reports(outcomes, pages)
    return codes


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


def not_judged(folders: Sequence[Place], why: str, through: Gate) -> list[int]:
    """Writes the reports for CI servers if judging failed completely; returns EXIT_HARNESS for each
    folder."""
    failed = Ruling(kind=HARNESS, word=HARNESS, harness=(why,))
    outcomes = [Outcome(folder=folder, ruling=failed, verdict={}, tested=case_name(read_about(folder)))
                for folder in folders]
    return [outcome.code for outcome in outcomes] + write_reports(outcomes, through)


# -- one folder ---------------------------------------------------------------------------------------------


def code_of(folder: Place, verdict: Verdict, policy: Policy) -> int:
    """One folder's exit code; 4 if nothing was judged (no run, or the judge failed)."""
    return ruling(report.as_json(verdict), about_of(folder, verdict), policy).code


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


def outcome_of(folder: Place, verdict: Verdict, policy: Policy, *, unsaved: bool) -> Outcome:
    """The folder's result at the gate, for the reports."""
    run, about = RunAt(folder=folder), about_of(folder, verdict)
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


def effects_of_options(verdict: Verdict, policy: Policy) -> list[str]:
    """Sentences about how the options change the verdict's result; empty if they do not."""
    allowed = sorted({found.name for found in verdict.findings} & policy.allow)
    permitted = sorted({found.name for found in verdict.findings if found.klass != BUG} - policy.allow)
    effects = [f"--strict: {', '.join(permitted)} counted as bugs"] if policy.strict and permitted else []
    effects += [f"--allow: {', '.join(allowed)} let through"] if allowed else []
    effects += ["--allow-unknown: unknown let through"] if policy.allow_unknown and verdict.unknown else []
    return effects


# -- files --------------------------------------------------------------------------------------------------


def save(folder: Place, verdict: Verdict) -> list[int]:
    """Writes verdict.json, but not into a folder that is no run; returns [EXIT_HARNESS] if that failed."""
    report_failure(folder, verdict)
    return written(lambda: report.write_verdict(folder, verdict)) if report.is_run(folder) else []


def report_failure(folder: Place, verdict: Verdict) -> None:
    """Writes the traceback to a file, if the judge itself failed on this run, and says where."""
    where = report.keep_failure(folder, verdict)
    if verdict.failure is not None:
        place = f"its traceback is in {where}" if where is not None else "its traceback could not be written"
        click.echo(harmless(f"floodmark: {folder}: the judge itself failed; {place}"), err=True)


def written(write: Callable[[], None]) -> list[int]:
    """Writes a file; returns [], or [EXIT_HARNESS] if that failed."""
    try:
        write()
        return []
    except FloodmarkError as error:
        click.echo(f"floodmark: {harmless(str(error))}", err=True)
        return [EXIT_HARNESS]


def write_json(file: Path, folders: Sequence[Place], verdicts: Sequence[Verdict]) -> None:
    """Writes all verdicts of the call to one file, by folder."""
    together = {
        str(folder): report.as_json(verdict) for folder, verdict in zip(folders, verdicts, strict=True)
    }
    write_whole(file, orjson.dumps(together, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def write_reports(outcomes: Sequence[Outcome], through: Gate) -> list[int]:
    """Writes the requested report files for CI servers, each atomically."""
    codes: list[int] = []
    if (junit_file := through.junit_file) is not None:
        codes += written(lambda: write_whole(junit_file, junit(outcomes, datetime.datetime.now())))
    if (markdown_file := through.markdown_file) is not None:
        heading = summary(outcome.ruling for outcome in outcomes)
        codes += written(lambda: write_whole(markdown_file, markdown(heading, outcomes)))
    return codes
