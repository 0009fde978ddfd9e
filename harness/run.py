"""Makes and opens run folders: the path of each file, and run.json.

Rules
1. The folder and its run.json appear together, by one rename; run.json is never seen half written.
2. A run is never written into a folder that has files already.
"""

import datetime
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar, cast

import orjson

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.run_location import (
    Far,
    Place,
    is_regular_inside,
    open_inside,
    read_inside,
    replacing,
    sync,
    temporary_folder,
)

FORMAT = 1
DONE, INTERRUPTED = "done", "interrupted"  # values of run.json's `ended`; any other value is an error
RUNS = Path("histories/runs")
LATEST = "latest"
SHRUNK = "shrunk"  # key of run.json: only run.json, the verdict and the measures are left
MEASURES = "measures.parquet"  # in a run's folder: what its faults cost clients (checkers/stats)
# A run of a million partitions needs about a third of this.
ABOUT_BYTES_AT_MOST = 1 << 30
REPLICAS_BYTES_AT_MOST = 1 << 31
VERDICT_BYTES_AT_MOST = 1 << 28

P = TypeVar("P", bound=Place)


class _Inside:
    """A file or folder of a run, by its name there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: "RunAt[P]", _: type) -> P:
        return run.folder / self._name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAt(Generic[P]):
    """A run folder, by its path. Files are read only when a method needs them."""

    folder: P

    about_path = _Inside("run.json")
    history_path = _Inside("history.jsonl")
    logs_folder = _Inside("logs")
    replicas_path = _Inside("replicas.jsonl")
    trace_path = _Inside("trace.jsonl")
    verdict_path = _Inside("verdict.json")
    nodes_folder = _Inside("nodes")  # the raw Kafka log directories, one for each node
    # The files that the cluster needs to run: properties, brokers' own logs, side files.
    work_folder = _Inside("work")

    def about(self) -> dict[str, Any]:
        """Read run.json; FloodmarkError where it is missing, damaged or of another format."""
        try:
            about = orjson.loads(self.read(self.about_path, at_most=ABOUT_BYTES_AT_MOST))
        except FileNotFoundError as error:
            where = runs_inside(self.folder)
            raise FloodmarkError(f"{self.folder} is no run folder: it has no run.json{where}") from error
        except OSError as error:
            raise FloodmarkError(f"cannot read {self.about_path}: {error.strerror or error}") from error
        except orjson.JSONDecodeError as error:
            raise FloodmarkError(f"cannot read {self.about_path}: {error}") from error
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise FloodmarkError(f"{self.about_path} is not of format {FORMAT}")
        return about

    def open(self, path: P) -> BinaryIO:
        """Open one of its files; OSError where that is not a regular file inside the folder."""
        return open_inside(path, self.folder)

    def read(self, path: P, *, at_most: int) -> bytes:
        """Read one of its files; OSError also where it has more than `at_most` bytes."""
        return read_inside(path, self.folder, at_most=at_most)

    def has(self, path: P) -> bool:
        """Whether this file exists and is a regular file inside the folder."""
        return is_regular_inside(path, self.folder)

    def rewrite(self, about: Mapping[str, Any]) -> None:
        """Replace run.json, by rename."""
        write_json(self.about_path, about)


if TYPE_CHECKING:
    Run = RunAt[Path]  # in this machine's file system, where new runs are written
else:
    Run = RunAt  # a frozen dataclass with slots cannot be made through its alias (as of Python 3.11)


def runs_inside(folder: Place) -> str:
    """For the message that a folder is no run: the first run in it, or in its `runs`; empty without one."""
    if not isinstance(folder, Path):
        return ""
    runs = sorted([*folder.glob("*/run.json"), *folder.glob("runs/*/run.json")])
    return f"; name one of the {len(runs)} inside it, such as {runs[0].parent}" if runs else ""


def json_line(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def refuse_nonempty(folder: Path) -> None:
    """Raise UsageError unless the folder, which `--out` names, is absent or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty: name a folder that is absent or empty")


def create(folder: Path, about: Mapping[str, Any]) -> Run:
    """Make a run folder with a run.json; UsageError unless the folder is absent or empty."""
    refuse_nonempty(folder)
    with new_folder(folder) as begun:
        (begun / "run.json").write_bytes(pretty_json(about))
    return Run(folder=folder)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A context with a temporary folder, which is renamed to `folder` at its end, or removed after an error.
    FloodmarkError where that cannot be written, or has files by then."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{folder.name}.", folder.parent) as begun:
            begun.chmod(0o755)
            yield begun
            os.rename(begun, folder)  # replaces an empty folder, and nothing else
    except OSError as error:
        raise FloodmarkError(f"cannot write the folder {folder}: {error.strerror}") from error


def open_run(folder: Path) -> Run:
    """Open an existing run; UsageError where the folder does not exist, FloodmarkError where it is no run."""
    if not folder.exists():
        raise UsageError(f"{folder} does not exist")
    run = Run(folder=folder.resolve())
    run.about()
    return run


def default_folder(seed: int, now: datetime.datetime) -> Path:
    return RUNS / f"{now:%Y%m%dT%H%M%S}-{seed}"


def latest_folder() -> Path:
    """The folder of the latest run; UsageError where there is none."""
    link = RUNS / LATEST
    if not link.exists():
        state = "its run is gone" if link.is_symlink() else "there is none"
        raise UsageError(f"no FOLDER was named, which means {link}, and {state}: floodmark run makes one")
    return real_folder(link)


def real_folder(folder: Path) -> Path:
    """The folder behind a link such as histories/runs/latest: printed paths stay true when the link moves."""
    if not folder.is_symlink():
        return folder
    real, here = folder.resolve(), Path.cwd()
    return real.relative_to(here) if real.is_relative_to(here) else real


def link_latest(folder: Path, runs: Path = RUNS) -> None:
    """Make histories/runs/latest point at the folder; do nothing where the file system has no links."""
    link = runs / LATEST
    new_link = runs / f".{LATEST}.{os.getpid()}"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(os.path.relpath(folder.resolve(), runs.resolve()))
        os.replace(new_link, link)
    except OSError:
        new_link.unlink(missing_ok=True)  # the link is a convenience only: stdout has the folder


def system_of(about: Mapping[str, Any]) -> str:
    """The system in run.json: `kip-320`, `kip-320+trunc_hw`, `kafka-4.3.1+kip-320`."""
    configs, system = about.get("config"), about.get("system")
    nodes = [node for node in configs.values() if isinstance(node, dict)] if isinstance(configs, dict) else []
    named = (node.get("floodmark.bugs") for node in nodes)
    bugs = next((bugs for bugs in named if isinstance(bugs, str)), "")
    system = system if isinstance(system, dict) else {}
    name = system.get("name", "?")
    kafka = [f"kafka-{system.get('version')}"] if name == "kafka" else []
    return "+".join((*kafka, str(about.get("rules") or name), *sorted(filter(None, bugs.split(",")))))


def write_whole(path: Place, data: bytes, *, durable: bool = False) -> None:
    """Write a file that has either all of this or its old content; durable: also after a power cut."""
    if isinstance(path, Path):
        write_pieces(path, (data,), durable=durable)
        return
    try:
        cast(Far, path).write_whole(data)
    except OSError as error:
        raise FloodmarkError(f"cannot write {path}: {error.strerror}") from error


def write_pieces(path: Path, pieces: Iterable[bytes], *, durable: bool = False) -> None:
    """Write a file that has either all of these or its old content, also if making a piece fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, durable=durable) as file:
            file.writelines(pieces)
    except OSError as error:
        raise FloodmarkError(f"cannot write {path}: {error.strerror}") from error


def sync_run(folder: Path) -> None:
    """Return when the files of a made or judged run are on disk. FloodmarkError where the disk fails."""
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
        raise FloodmarkError(f"cannot write {folder} to disk: {error.strerror}") from error


def write_json(path: Place, data: Any, *, durable: bool = False) -> None:
    """Write a file of JSON, for people too, as write_whole does."""
    write_whole(path, pretty_json(data), durable=durable)


def pretty_json(data: Any) -> bytes:
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
