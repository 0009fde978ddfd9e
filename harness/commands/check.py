"""`floodmark check`: judges saved run folders, writes each verdict beside its run, and answers for all.

Rules
1. Every folder is judged and told, whatever is the matter with its neighbours; the exit code is the worst.
2. What cannot be written (a full disk, a folder of somebody else's) makes the call exit 4, never 1; a bug
   that was found still makes it 1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import orjson

from checkers import report
from checkers.explain import EXPLANATIONS
from harness import catalog
from harness.commands import telling
from harness.commands.bad_lines import bad_lines
from harness.commands.brokers_words import last_words
from harness.commands.show import latest
from harness.errors import FloodmarkError, UsageError
from harness.run import Run, open_run, write_whole
from harness.verdict import (
    BUG,
    EXIT_HARNESS,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
    Policy,
    Verdict,
    exit_code,
    worst,
)

WORDS: Mapping[int, str] = {
    EXIT_INVALID: "invalid",
    EXIT_HARNESS: "failed in the harness",
    EXIT_UNKNOWN: "unknown",
    EXIT_VALID: "valid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """How a verdict becomes an exit code, and where all verdicts of the call go besides."""

    policy: Policy
    json_file: Path | None = None


def gate(*, strict: bool, allow: Sequence[str], allow_unknown: bool, json_file: Path | None) -> Gate:
    """check's options; a name in --allow that is no finding's is a usage error: it would never match."""
    strange = sorted(set(allow) - EXPLANATIONS.keys())
    if strange:
        raise UsageError(f"--allow: no finding is called {strange[0]!r}; there are: "
                         f"{', '.join(sorted(EXPLANATIONS))}")
    policy = Policy(strict=strict, allow=frozenset(allow), allow_unknown=allow_unknown)
    return Gate(policy=policy, json_file=json_file)


def check_folders(folders: Sequence[Path], through: Gate) -> int:
    """Judges all folders in one call of the judge; the exit code is the worst of them."""
    chosen = tuple(folders) or (latest(),)
    for folder in chosen:
        if not folder.exists():
            raise UsageError(f"{folder} does not exist")
    return worst(judge_folders(chosen, through))


def judge_folders(chosen: Sequence[Path], through: Gate) -> list[int]:
    """Judges, tells, and gives each folder's exit code (and 4 besides for what could not be written)."""
    runs = f"{len(chosen)} runs" if len(chosen) > 1 else "the run"
    click.echo(f"judging {runs} (starting Spark takes a while)", err=True)
    verdicts = catalog.judge().judge(chosen)
    codes = [code_of(folder, verdict, through.policy)
             for folder, verdict in zip(chosen, verdicts, strict=True)]
    if len(chosen) > 1:
        click.echo(telling.summary(codes, WORDS) + "\n")
    for folder, verdict in zip(chosen, verdicts, strict=True):
        codes += save(folder, verdict)
        if folder != chosen[0]:
            click.echo("")
        tell(folder, verdict, through.policy)
    if (together := through.json_file) is not None:
        codes += written(lambda: write_json(together, chosen, verdicts))
    return codes


def code_of(folder: Path, verdict: Verdict, policy: Policy) -> int:
    """One folder's exit code. Where nothing at all was looked at (no run, or the judge failed) it is 4."""
    if not verdict.counts:
        return EXIT_HARNESS
    try:
        return exit_code(verdict, policy, died=bool(open_run(folder).about().get("died")))
    except FloodmarkError:
        return EXIT_HARNESS


def tell(folder: Path, verdict: Verdict, policy: Policy) -> None:
    """Prints the report; its last line is the folder."""
    run, told = Run(folder=folder), report.as_json(verdict)
    about = run.about() if verdict.counts else None
    click.echo(telling.report(folder, told, about))
    for line in bad_lines(run, told):
        click.echo(f"  bad line   {line}")
    for node, words in last_words(run, about or {}).items():
        click.echo(f"  died       {node} ended by itself; its last words: {words}")
    for line in let_through(verdict, policy):
        click.echo(f"  gate       {line}")
    click.echo(str(folder))


def let_through(verdict: Verdict, policy: Policy) -> list[str]:
    """What the options make of the verdict, where they make something of it."""
    allowed = sorted({found.name for found in verdict.findings} & policy.allow)
    permitted = sorted({found.name for found in verdict.findings if found.klass != BUG} - policy.allow)
    told = [f"--strict: {', '.join(permitted)} taken for bugs"] if policy.strict and permitted else []
    told += [f"--allow: {', '.join(allowed)} let through"] if allowed else []
    told += ["--allow-unknown: unknown lets it through"] if policy.allow_unknown and verdict.unknown else []
    return told


# -- files --------------------------------------------------------------------------------------------------


def save(folder: Path, verdict: Verdict) -> list[int]:
    """verdict.json beside what is left of a run (never into a folder named by mistake); [EXIT_HARNESS] if it
    could not be written."""
    run = Run(folder=folder)
    if not run.about_path.is_file() and not run.history_path.is_file():
        return []
    return written(lambda: report.write(folder, verdict))


def written(write: Callable[[], None]) -> list[int]:
    """Nothing, or [EXIT_HARNESS] where it could not be."""
    try:
        write()
        return []
    except FloodmarkError as error:
        click.echo(f"floodmark: {error}", err=True)
        return [EXIT_HARNESS]


def write_json(file: Path, folders: Sequence[Path], verdicts: Sequence[Verdict]) -> None:
    """All verdicts of the call in one file, by folder."""
    together = {
        str(folder): report.as_json(verdict) for folder, verdict in zip(folders, verdicts, strict=True)
    }
    write_whole(file, orjson.dumps(together, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
