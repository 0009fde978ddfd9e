"""Resolves the folder arguments of commands: paths, patterns that the shell has not expanded, and addresses
of file systems that only Spark can read.

Rules
1. An argument that names an existing path is that path; only other arguments with a wildcard are patterns.
2. A pattern gives folders, in order; files are skipped. A pattern without a match is a usage error: a gate
   that judged nothing must not pass.
3. Each folder comes once, however often it was named, and by its own name (`latest` is a link to another
   folder).
4. A command that judges enters folders that have runs inside: a demo's, a scenario's, a reproduction's, a
   campaign's. A folder that neither is a run nor has one inside is a usage error.
"""

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar, cast

from floodmark.checkers.judge.report import is_run
from floodmark.harness import catalog
from floodmark.harness.errors import UsageError
from floodmark.harness.run import latest_folder, real_folder
from floodmark.harness.run_location import LOCAL, Far, Place, path_of, scheme_of
from floodmark.harness.spark_options import HERE, Workers

P = TypeVar("P", bound=Place)


def chosen(arguments: Sequence[str | Path], workers: Workers = HERE) -> tuple[Place, ...]:
    """The folders that the arguments name, or the latest run. UsageError if a folder is missing."""
    named: list[Place] = [folder for argument in arguments for folder in named_by(str(argument), workers)]
    return distinct(named or [latest_folder()])


def chosen_runs(arguments: Sequence[str | Path], workers: Workers = HERE) -> tuple[Place, ...]:
    """The run folders among those that the arguments name, and inside them."""
    runs: list[Place] = []
    for folder in chosen(arguments, workers):
        if not (inside := runs_in(folder)):
            raise UsageError(f"{folder} is no run folder: it has no run.json, and there is no run inside it")
        runs += inside
    return distinct(runs)


def runs_in(folder: Place) -> list[Place]:
    """The folder itself if it is a run, or if it may not be read, which the judge reports; else the runs
    inside it, in order. Links inside it and hidden folders are not followed."""
    if is_run(folder):
        return [folder]
    try:
        inside: Sequence[Place] = sorted(
            path for path in (folder.iterdir() if folder.is_dir() else ()) if path.is_dir()
            and not path.is_symlink() and not path.name.startswith(".")) if isinstance(folder, Path) else (
            cast(Far, folder / "*").glob_folders())
        return [run for one in inside for run in runs_in(one)]
    except PermissionError:
        return [folder]


def named_by(argument: str, workers: Workers) -> Sequence[Place]:
    """The argument's own path, or its matches. One that may not be read is there: the judge reports that."""
    scheme = scheme_of(argument)
    if scheme not in (LOCAL, None):
        return catalog.far_folders(argument, workers)
    path = Path(argument) if scheme is None else path_of(argument)
    is_pattern = glob.has_magic(str(path))
    try:
        is_there = path.exists()
    except PermissionError:
        is_there = not is_pattern
    if is_there:
        return [real_folder(path)]
    if not is_pattern:
        raise UsageError(f"{path} does not exist")
    folders = [folder for folder in map(Path, glob.glob(str(path))) if folder.is_dir()]
    if not folders:
        raise UsageError(f"{str(path)!r} matches no folder")
    return sorted(distinct(map(real_folder, folders)), key=str)


def distinct(folders: Iterable[P]) -> tuple[P, ...]:
    """The first name of each folder. UsageError for a name that cannot be in a report."""
    known: dict[P, P] = {}
    for folder in folders:
        try:
            str(folder).encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{str(folder)!a} has a name that is no UTF-8: rename it") from error
        known.setdefault(folder.resolve(), folder)
    return tuple(known.values())

