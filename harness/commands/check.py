"""`floodmark check`: judges saved run folders, writes each verdict beside its run, and answers for all."""

from collections.abc import Sequence
from pathlib import Path

import click
import orjson

from checkers import report
from harness import catalog
from harness.errors import FloodmarkError, UsageError
from harness.run import LATEST, RUNS, open_run, write_whole
from harness.verdict import EXIT_HARNESS, Policy, Verdict, exit_code, worst


def check_folders(folders: Sequence[Path], policy: Policy, json_file: Path | None) -> int:
    """Judges all folders in one call of the judge; the exit code is the worst of them."""
    chosen = tuple(folders) or (RUNS / LATEST,)
    for folder in chosen:
        if not folder.exists():
            raise UsageError(f"{folder}: no such folder")
    return worst(judge_folders(chosen, policy, json_file))


def judge_folders(chosen: Sequence[Path], policy: Policy, json_file: Path | None) -> list[int]:
    """Judges, tells, and gives each folder's exit code."""
    many = f"{len(chosen)} runs" if len(chosen) > 1 else "the run"
    click.echo(f"judging {many} (starting Spark takes a while)", err=True)
    verdicts = catalog.judge().judge(chosen)
    codes = [tell(folder, verdict, policy) for folder, verdict in zip(chosen, verdicts, strict=True)]
    if json_file is not None:
        write_json(json_file, chosen, verdicts)
    return codes


def tell(folder: Path, verdict: Verdict, policy: Policy) -> int:
    """Writes verdict.json, prints the report (last line: the folder) and gives the folder's exit code."""
    if folder.is_dir():
        report.write(folder, verdict)
    click.echo(report.text(folder, verdict))
    try:
        died = [str(node) for node in open_run(folder).about().get("died") or ()]
        code = exit_code(verdict, policy, died=bool(died))
    except FloodmarkError as error:
        died, code = [], EXIT_HARNESS
        click.echo(f"floodmark: {error}", err=True)
    if died:
        click.echo(f"  ended by themselves: {', '.join(died)} (their own words: {folder / 'work'})")
    click.echo(str(folder))
    return code


def write_json(file: Path, folders: Sequence[Path], verdicts: Sequence[Verdict]) -> None:
    """All verdicts of the call in one file, by folder."""
    together = {
        str(folder): report.as_json(verdict) for folder, verdict in zip(folders, verdicts, strict=True)
    }
    write_whole(file, orjson.dumps(together, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
