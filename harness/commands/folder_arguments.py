"""Resolves the run folders that a command was given: paths, patterns that no shell has expanded, and
addresses of file systems that only Spark can read.

Rules
1. A word that names something is that thing; only what names nothing and has a wildcard is a pattern.
2. A pattern gives folders, in order; files that it meets are passed over. One that gives none is a usage
   error: a gate that judged nothing must not pass.
3. A folder comes once, however often it was named (`latest` is a link to a neighbour).
"""

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from floodmark.harness import catalog
from floodmark.harness.errors import UsageError
from floodmark.harness.run import latest_folder
from floodmark.harness.run_location import LOCAL, Place, path_of, scheme_of
from floodmark.harness.spark_options import HERE, Workers

P = TypeVar("P", bound=Place)


def chosen(words: Sequence[str | Path], workers: Workers = HERE) -> tuple[Place, ...]:
    """The folders that the words name, the latest run if there are no words; else UsageError."""
    named: list[Place] = [folder for word in words for folder in named_by(str(word), workers)]
    named = named or [latest_folder()]
    for folder in named:
        refuse_other_bytes(folder)
    return each_once(named)


def named_by(word: str, workers: Workers) -> Sequence[Place]:
    """The thing itself, or what it matches."""
    scheme = scheme_of(word)
    if scheme == LOCAL:
        return paths_named_by(path_of(word))
    return paths_named_by(Path(word)) if scheme is None else catalog.far_folders(word, workers)


def paths_named_by(word: Path) -> list[Path]:
    """The same in this machine's file system."""
    if is_there(word):
        return [word]
    if not glob.has_magic(str(word)):
        raise UsageError(f"{word} does not exist")
    folders = [path for path in map(Path, glob.glob(str(word))) if path.is_dir()]
    if not folders:
        raise UsageError(f"{str(word)!r} matches no folder")
    # Of a folder and a link to it the folder is kept.
    folders.sort(key=lambda path: (path.is_symlink(), str(path)))
    return sorted(each_once(folders), key=str)


def is_there(word: Path) -> bool:
    """Also where nobody lets us look: the judge will say so of this folder, and judge the others."""
    try:
        return word.exists()
    except PermissionError:
        return not glob.has_magic(str(word))


def refuse_other_bytes(folder: Place) -> None:
    """A name that is no UTF-8 (surrogates stand for its bytes) can be in no report and in no verdict.json."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{str(folder)!a} is named in bytes that are no UTF-8: rename it") from error


def each_once(folders: Iterable[P]) -> tuple[P, ...]:
    """The first name of each."""
    known: dict[P, P] = {}
    for folder in folders:
        known.setdefault(folder.resolve(), folder)
    return tuple(known.values())
