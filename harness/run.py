"""A run folder: where each file of a run lies, how the folder begins, and run.json.

Rules
1. run.json is there the instant the folder appears (both come by one rename) and is never seen half written.
2. A folder that holds anything is never begun anew.
"""

import datetime
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar, cast

import orjson

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.run_location import (
    Far,
    Place,
    is_named,
    is_regular_inside,
    open_inside,
    read_inside,
    replacing,
    sync,
)

FORMAT = 1
DONE, INTERRUPTED = "done", "interrupted"  # how run.json says that a run `ended`, if not by an error
RUNS = Path("histories/runs")
LATEST = "latest"
MEASURES = "measures.parquet"  # of a run's folder: what its faults cost (checkers/stats)
# Runs of a million partitions have about a third of this.
ABOUT_BYTES_AT_MOST = 1 << 30
REPLICAS_BYTES_AT_MOST = 1 << 31
VERDICT_BYTES_AT_MOST = 1 << 28

P = TypeVar("P", bound=Place)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAt(Generic[P]):
    """A run folder, by its name. Nothing is read until asked for."""

    folder: P

    @property
    def about_path(self) -> P:
        return self.folder / "run.json"

    @property
    def history_path(self) -> P:
        return self.folder / "history.jsonl"

    @property
    def logs_folder(self) -> P:
        return self.folder / "logs"

    @property
    def replicas_path(self) -> P:
        return self.folder / "replicas.jsonl"

    @property
    def trace_path(self) -> P:
        return self.folder / "trace.jsonl"

    @property
    def verdict_path(self) -> P:
        return self.folder / "verdict.json"

    @property
    def nodes_folder(self) -> P:
        """The raw Kafka directories, one a node."""
        return self.folder / "nodes"

    @property
    def work_folder(self) -> P:
        """What the cluster needs to run: properties, brokers' own logs, the side files."""
        return self.folder / "work"

    def about(self) -> dict[str, Any]:
        """run.json as it is now; FloodmarkError where it is none, or of another format."""
        try:
            about = orjson.loads(self.read(self.about_path, at_most=ABOUT_BYTES_AT_MOST))
        except FileNotFoundError as error:
            raise FloodmarkError(f"{self.folder} is no run folder: it has no run.json") from error
        except OSError as error:
            raise FloodmarkError(f"cannot read {self.about_path}: {error.strerror or error}") from error
        except orjson.JSONDecodeError as error:
            raise FloodmarkError(f"cannot read {self.about_path}: {error}") from error
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise FloodmarkError(f"{self.about_path} is not of format {FORMAT}")
        return about

    def open(self, path: P) -> BinaryIO:
        """One of its files; OSError where that is no regular file inside the folder."""
        return open_inside(path, self.folder)

    def read(self, path: P, *, at_most: int) -> bytes:
        """All of one of its files; OSError also where that is more than so many bytes."""
        return read_inside(path, self.folder, at_most=at_most)

    def has(self, path: P) -> bool:
        """Whether one of its files is there and may be opened."""
        return is_regular_inside(path, self.folder)

    def names(self, path: P) -> bool:
        """Whether something of that name is there, whatever it is."""
        return is_named(path)

    def rewrite(self, about: Mapping[str, Any]) -> None:
        """Puts this run.json in the place of the last, by rename."""
        write_whole(self.about_path, _pretty(about))

    def write_replicas(self, rows: Iterable[Mapping[str, Any]]) -> None:
        write_whole(self.replicas_path, b"".join(map(json_line, rows)))


if TYPE_CHECKING:
    Run = RunAt[Path]  # in this machine's file system, where runs are made
else:
    Run = RunAt  # a frozen dataclass with slots cannot be made through its alias (as of Python 3.11)


def json_line(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def refuse_full(folder: Path) -> None:
    """What `--out` names must be absent or empty: UsageError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty: name a folder that is absent or empty")


def create(folder: Path, about: Mapping[str, Any]) -> Run:
    """Begins a run folder, which must be absent or empty (else UsageError), with run.json in it."""
    refuse_full(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        begun = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            begun.chmod(0o755)
            (begun / "run.json").write_bytes(_pretty(about))
            os.rename(begun, folder)  # takes the place of an empty folder, and of nothing else
        except BaseException:
            shutil.rmtree(begun, ignore_errors=True)
            raise
    except OSError as error:
        raise FloodmarkError(f"cannot begin the run folder {folder}: {error.strerror}") from error
    return Run(folder=folder)


def open_run(folder: Path) -> Run:
    """A run that is there: UsageError where nothing is, FloodmarkError where the folder is no run."""
    if not folder.exists():
        raise UsageError(f"{folder} does not exist")
    run = Run(folder=folder.resolve())
    run.about()
    return run


def default_folder(seed: int, now: datetime.datetime) -> Path:
    """histories/runs/TIME-SEED."""
    return RUNS / f"{now:%Y%m%dT%H%M%S}-{seed}"


def latest_folder() -> Path:
    """The run made last; UsageError where there is none."""
    link = RUNS / LATEST
    if not link.exists():
        raise UsageError(f"no FOLDER was named and there is no {link}: floodmark run makes one")
    return link


def link_latest(folder: Path, runs: Path = RUNS) -> None:
    """Makes histories/runs/latest point at the folder; a place that takes no link is left alone."""
    link = runs / LATEST
    fresh = runs / f".{LATEST}.{os.getpid()}"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.path.relpath(folder.resolve(), runs.resolve()))
        os.replace(fresh, link)
    except OSError:
        fresh.unlink(missing_ok=True)  # a convenience only: the folder itself is named on stdout


def system_of(about: Mapping[str, Any]) -> str:
    """Of run.json: `kip-320`, `kip-320+trunc_hw`, `kafka-4.3.1+kip-320`: what runs, and its known-bad rules.
    """
    bugs: list[str] = []
    configs = about.get("config")
    for config in (configs.values() if isinstance(configs, dict) else ()):
        if isinstance(config, dict) and isinstance(named := config.get("floodmark.bugs"), str):
            bugs = [word for word in named.split(",") if word]
            break
    system = about.get("system")
    name = system.get("name", "?") if isinstance(system, dict) else "?"
    kafka = [f"kafka-{system.get('version')}"] if isinstance(system, dict) and name == "kafka" else []
    return "+".join((*kafka, str(about.get("rules") or name), *sorted(bugs)))


def write_whole(path: Place, data: bytes, *, durable: bool = False) -> None:
    """The file with all of this data, or as it was before; durable: also over a loss of power."""
    if isinstance(path, Path):
        write_pieces(path, (data,), durable=durable)
        return
    try:
        cast(Far, path).write_whole(data)
    except OSError as error:
        raise FloodmarkError(f"cannot write {path}: {error.strerror}") from error


def write_pieces(path: Path, pieces: Iterable[bytes], *, durable: bool = False) -> None:
    """The file with all of these pieces, or as it was before, also when making a piece fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, durable=durable) as file:
            file.writelines(pieces)
    except OSError as error:
        raise FloodmarkError(f"cannot write {path}: {error.strerror}") from error


def sync_run(folder: Path) -> None:
    """Returns when whatever a judge reads of this run, and says of it, is on disk: it can be told then that
    the run was made, or judged. FloodmarkError where the disk fails."""
    run = Run(folder=folder)
    try:
        for inside in (run.logs_folder, run.folder):
            for path in sorted(inside.glob("*")):
                if path.is_file() and not path.is_symlink():
                    sync(path)
            if inside.is_dir():
                sync(inside)
        sync(run.folder.parent)
    except OSError as error:
        raise FloodmarkError(f"cannot put {folder} on disk: {error.strerror}") from error


def _pretty(about: Mapping[str, Any]) -> bytes:
    return orjson.dumps(about, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
