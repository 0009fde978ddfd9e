"""`floodmark check`: judges saved run folders, writes each verdict beside its run, and answers for all.

Rules
1. Every folder is judged and told, whatever is the matter with its neighbours; the exit code is the worst.
2. What cannot be written (a full disk, a folder of somebody else's) makes the call exit 4, never 1; a bug
   that was found still makes it 1.
3. A saved run is answered as it was when it was made: one that ended early is the harness's failure, which no
   option lets through.
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
from floodmark.harness.commands.folder_arguments import chosen
from floodmark.harness.commands.report import page_beside
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.reports import verdict_text
from floodmark.harness.reports.bad_lines import bad_lines
from floodmark.harness.reports.broker_exits import died_unquoted
from floodmark.harness.reports.case_names import case_name
from floodmark.harness.reports.gate_outcomes import Json, Outcome, report_of
from floodmark.harness.reports.junit_report import junit
from floodmark.harness.reports.markdown_report import markdown
from floodmark.harness.reports.run_outcome import HARNESS, LISTS, Ruling, fails, ruling, summary
from floodmark.harness.reports.safe_text import harmless, harmless_data
from floodmark.harness.run import RunAt, write_whole
from floodmark.harness.run_location import Place
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.verdict import BUG, EXIT_HARNESS, Policy, Verdict, worst

UNSAVED = ("its verdict could not be written",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """How a verdict becomes an exit code, and where all verdicts of the call go besides."""

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
    """check's options; a name in --allow that is no finding's is a usage error: it would never match."""
    known = known_findings()
    strange = sorted(set(allow) - set(known))
    if strange:
        raise UsageError(f"--allow: no finding is called {strange[0]!r}; there are: "
                         f"{', '.join(known)}")
    policy = Policy(strict=strict, allow=frozenset(allow), allow_unknown=allow_unknown)
    files = {"--json": json_file, "--junit": junit_file, "--markdown": markdown_file}
    refuse_no_files({option: file for option, file in files.items() if file is not None})
    return Gate(policy=policy, json_file=json_file, junit_file=junit_file, markdown_file=markdown_file)


def refuse_no_files(files: Mapping[str, Path]) -> None:
    """Before a run of an hour, not after it. A report takes the place of what is there, and must not take
    that of /dev/stdout."""
    for option, file in files.items():
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise UsageError(f"{option}: {file} is there and is no plain file; name a file to be (re)placed")
    if len({file.resolve() for file in files.values()}) < len(files):
        raise UsageError(f"{', '.join(files)}: each needs a file of its own")


def check_folders(
    words: Sequence[str | Path], through: Gate, workers: Workers = HERE, *, keep_parquet: bool = False
) -> int:
    """Judges all folders (patterns too) in one call of the judge; the exit code is the worst of them."""
    folders = chosen(words, workers)
    codes = judge_folders(folders, through, workers)
    if keep_parquet:
        keep_twins(folders)
    if catalog.quicken_judge():
        click.echo("Spark is made to start quicker next time, in the background (once; 170 MB in the cache)",
                   err=True)
    return worst(codes)


def keep_twins(folders: Sequence[Place]) -> None:
    """A history.parquet beside each big history of this machine; that one cannot be made is a word, no
    failure."""
    for folder in folders:
        if isinstance(folder, Path):
            try:
                catalog.keep_parquet(RunAt(folder=folder).history_path)
            except OSError as error:
                told = f"{folder}: history.parquet could not be kept: {error.strerror}"
                click.echo(harmless(told), err=True)


def judge_folders(folders: Sequence[Place], through: Gate, workers: Workers = HERE) -> list[int]:
    """Judges, tells, and gives each folder's exit code (and 4 besides for what could not be written)."""
    runs = f"{len(folders)} runs" if len(folders) > 1 else "the run"
    click.echo(f"judging {runs} (starting Spark takes a while)", err=True)
    try:
        verdicts = catalog.judge(workers).judge(folders)
    except FloodmarkError as error:
        not_judged(folders, str(error), through)
        raise
    outcomes = []
    for folder, verdict in zip(folders, verdicts, strict=True):
        unsaved = save(folder, verdict)
        outcomes.append(outcome_of(folder, verdict, through.policy, unsaved=bool(unsaved)))
    codes = [outcome.code for outcome in outcomes]
    if (together := through.json_file) is not None:
        codes += written(lambda: write_json(together, folders, verdicts))
    codes += write_reports(outcomes, through)  # before anything is said: whoever listens may have gone
    tell(outcomes, [page_beside(one.folder, one.ruling, one.verdict, one.reading) for one in outcomes])
    return codes


def tell(outcomes: Sequence[Outcome], pages: Sequence[Path | None]) -> None:
    """Prints the reports, of several the sum first; each ends with its page, if any, and its folder."""
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
    """Where no verdict came about at all, the reports for CI servers say why; [EXIT_HARNESS] for each."""
    failed = Ruling(kind=HARNESS, word=HARNESS, harness=(why,))
    outcomes = [Outcome(folder=folder, ruling=failed, verdict={}, tested=case_name(read_about(folder)))
                for folder in folders]
    return [outcome.code for outcome in outcomes] + write_reports(outcomes, through)


# -- one folder ---------------------------------------------------------------------------------------------


def code_of(folder: Place, verdict: Verdict, policy: Policy) -> int:
    """One folder's exit code. Where nothing at all was looked at (no run, or the judge failed) it is 4."""
    return ruling(report.as_json(verdict), about_of(folder, verdict), policy).code


def about_of(folder: Place, verdict: Verdict) -> Json | None:
    """run.json of a folder that was judged; None where it has gone since, or LISTS are none there."""
    about = read_about(folder) if verdict.counts else None
    return about if about and all(isinstance(about.get(name) or [], list) for name in LISTS) else None


def read_about(folder: Place) -> Json | None:
    """run.json, if it can be read."""
    try:
        return harmless_data(RunAt(folder=folder).about())
    except (FloodmarkError, OSError):
        return None


def outcome_of(folder: Place, verdict: Verdict, policy: Policy, *, unsaved: bool) -> Outcome:
    """What the gate makes of the folder, and what is said of it."""
    run, about = RunAt(folder=folder), about_of(folder, verdict)
    told = harmless_data(report.as_json(verdict))
    remarks = [("bad line", line) for line in bad_lines(run, told)]
    remarks += [("died", words) for words in died_unquoted(run, about or {}, told)]
    remarks += [("gate", line) for line in let_through(verdict, policy)]
    return Outcome(
        folder=folder,
        ruling=ruling(told, about, policy, failed=UNSAVED if unsaved else ()),
        verdict=told,
        about=about,
        tested=case_name(about or read_about(folder)),
        reading=verdict_text.reading_of(folder, told, about),
        failing=tuple(found for found in verdict_text.worst_first(told["findings"]) if fails(found, policy)),
        remarks=tuple(remarks),
    )


def let_through(verdict: Verdict, policy: Policy) -> list[str]:
    """What the options make of the verdict, where they make something of it."""
    allowed = sorted({found.name for found in verdict.findings} & policy.allow)
    permitted = sorted({found.name for found in verdict.findings if found.klass != BUG} - policy.allow)
    told = [f"--strict: {', '.join(permitted)} taken for bugs"] if policy.strict and permitted else []
    told += [f"--allow: {', '.join(allowed)} let through"] if allowed else []
    told += ["--allow-unknown: unknown lets it through"] if policy.allow_unknown and verdict.unknown else []
    return told


# -- files --------------------------------------------------------------------------------------------------


def save(folder: Place, verdict: Verdict) -> list[int]:
    """verdict.json beside what is left of a run (never into a folder named by mistake); [EXIT_HARNESS] if it
    could not be written."""
    tell_failure(folder, verdict)
    return written(lambda: report.write_verdict(folder, verdict)) if report.is_run(folder) else []


def tell_failure(folder: Place, verdict: Verdict) -> None:
    """Keeps the traceback, if the judge itself failed on this run, and says where."""
    where = report.keep_failure(folder, verdict)
    if verdict.failure is not None:
        told = f"its traceback is in {where}" if where is not None else "its traceback could not be kept"
        click.echo(harmless(f"floodmark: {folder}: the judge itself failed; {told}"), err=True)


def written(write: Callable[[], None]) -> list[int]:
    """Nothing, or [EXIT_HARNESS] where it could not be."""
    try:
        write()
        return []
    except FloodmarkError as error:
        click.echo(f"floodmark: {harmless(str(error))}", err=True)
        return [EXIT_HARNESS]


def write_json(file: Path, folders: Sequence[Place], verdicts: Sequence[Verdict]) -> None:
    """All verdicts of the call in one file, by folder."""
    together = {
        str(folder): report.as_json(verdict) for folder, verdict in zip(folders, verdicts, strict=True)
    }
    write_whole(file, orjson.dumps(together, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def write_reports(outcomes: Sequence[Outcome], through: Gate) -> list[int]:
    """The files that CI servers show, those that were asked for; each is whole or not there."""
    codes: list[int] = []
    if (junit_file := through.junit_file) is not None:
        codes += written(lambda: write_whole(junit_file, junit(outcomes, datetime.datetime.now())))
    if (markdown_file := through.markdown_file) is not None:
        heading = summary(outcome.ruling for outcome in outcomes)
        codes += written(lambda: write_whole(markdown_file, markdown(heading, outcomes)))
    return codes
