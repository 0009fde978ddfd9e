"""Writes and reads a campaign's folder and its journal, which records what was begun and how it ended.

    OUT/campaign.json       the campaign: its plan as written, seed, version, commit, begin
    OUT/journal.jsonl       a line for each event; lines are only appended, and each is synced to disk
    OUT/runs/NUMBER-.../    the run folders
    OUT/again/SIGNATURE/    reproductions
    OUT/index.html          the page of the night, written again after each batch; floodmark does not read it
    OUT/lock                locked while a process runs the campaign

Rules
1. A line is written only when the files it is about are on disk, because the machine may lose power. A last
   line without its line feed is ignored.
2. The state is computed from the lines alone: an event without a line has not happened, whatever files are in
   the folder.
3. Only one process at a time runs a campaign.
"""

import errno
import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from floodmark.harness.campaign.cases import case_of_json
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.run_location import sync
from floodmark.harness.spec import RunSpec

FORMAT = 1
BEGAN, RECORDED, FAILED, JUDGED, REPRODUCED, OPENED, ENDED = (
    "began", "recorded", "failed", "judged", "reproduced", "opened", "ended")  # fmt: skip
JUDGE_FAILED = "judge_failed"  # key of a JUDGED line: the judge itself failed, so nothing is known of the run
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of one run of the campaign."""

    number: int
    case: RunSpec
    seed: int
    folder: str  # inside the campaign's folder
    recorded: bool = False  # its folder is complete
    why: str | None = None  # the harness's error, if it failed
    judged: Line | None = None  # its latest JUDGED line
    judge_failures: int = 0  # how often the judge itself failed on it

    @property
    def done(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.judged is not None or self.why is not None

    @property
    def judge_failed(self) -> bool:
        return bool((self.judged or {}).get(JUDGE_FAILED))

    @property
    def counts(self) -> bool:
        """Whether it was judged and says something about its system."""
        line = self.judged
        return line is not None and (bool(line.get("signatures")) or not line.get("harness"))

    @property
    def size_bytes(self) -> int:
        """The size of its folder when it was judged."""
        return int((self.judged or {}).get("size_bytes", 0))


@dataclass(slots=True)
class State:
    """The state of a campaign by its lines so far. spent_s: seconds of work, over all its sessions."""

    lines: list[Line] = field(default_factory=list)
    runs: dict[int, RunState] = field(default_factory=dict)
    reproductions: dict[str, list[Line]] = field(default_factory=dict)  # by signature
    spent_s: float = 0.0
    last_s: float = 0.0
    why_ended: str | None = None  # None: it has not ended
    ended_early: bool = False  # it ended before everything requested was done

    @property
    def unjudged(self) -> list[RunState]:
        return [run for run in self.runs.values() if run.recorded and not run.done]

    @property
    def unfinished(self) -> list[RunState]:
        """Runs that were begun and neither recorded nor failed, because the process was killed."""
        return [run for run in self.runs.values() if not run.recorded and run.why is None]

    @property
    def to_be_judged(self) -> list[RunState]:
        """Runs without a judgement, and runs on which the judge itself failed once: the machine may have been
        the reason."""
        return [run for run in self.runs.values()
                if (run.recorded and not run.done) or (run.judge_failed and run.judge_failures == 1)]

    def judged_by_system(self) -> Counter[str]:
        """The number of judged runs of each system, without those in which the harness failed."""
        return Counter(run.case.system for run in self.runs.values() if run.counts)

    def runs_by_signature(self) -> dict[Signature, list[RunState]]:
        """Each signature and the runs that showed it."""
        found: dict[Signature, list[RunState]] = {}
        for run in self.runs.values():
            for row in (run.judged or {}).get("signatures", ()):
                found.setdefault(Signature(**row), []).append(run)
        return found

    def spent_at(self, now_s: float) -> float:
        """spent_s of a session that goes on, at that time (seconds since the epoch)."""
        return self.spent_s + max(0.0, now_s - self.last_s)

    def apply_line(self, line: Line) -> None:
        """Update the state by one line. KeyError, TypeError or ValueError where it is no line of a
        journal."""
        event, time_s = line["event"], float(line["time_s"])
        if event == OPENED:
            self.why_ended, self.ended_early = None, False
        else:
            self.spent_s += max(0.0, time_s - self.last_s)
        self.last_s = time_s
        if event == BEGAN:
            number = int(line["run"])
            self.runs[number] = RunState(
                number=number, case=case_of_json(line["case"]), seed=int(line["seed"]),
                folder=str(line["folder"]))
        elif event == REPRODUCED:
            self.reproductions.setdefault(str(line["signature"]), []).append(line)
        elif event == ENDED:
            self.why_ended, self.ended_early = str(line["why"]), bool(line.get("early"))
        elif event != OPENED:
            run = self.runs[int(line["run"])]
            failures = run.judge_failures + bool(line.get(JUDGE_FAILED))
            further: Mapping[str, Mapping[str, Any]] = {
                RECORDED: {"recorded": True}, FAILED: {"why": str(line.get("why"))},
                JUDGED: {"judged": line, "judge_failures": failures},
            }  # fmt: skip
            self.runs[run.number] = replace(run, **further[event])
        self.lines.append(line)


def state_of(lines: Iterable[Line]) -> State:
    """The state after these lines."""
    state = State()
    for line in lines:
        state.apply_line(line)
    return state


# -- on disk ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignAt:
    """A campaign's folder, by its path."""

    folder: Path

    @property
    def about_path(self) -> Path:
        return self.folder / "campaign.json"

    @property
    def journal_path(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def runs_folder(self) -> Path:
        return self.folder / "runs"

    def reproductions_of(self, signature: str) -> Path:
        return self.folder / "again" / signature

    def about(self) -> dict[str, Any]:
        """Read campaign.json; UsageError where the folder does not exist, FloodmarkError where it is not a
        campaign's.
        """
        if not self.folder.exists():
            raise UsageError(f"{self.folder} does not exist")
        try:
            about = orjson.loads(self.about_path.read_bytes())
        except FileNotFoundError as error:
            begun = [path for path in self.folder.glob("*") if not path.name.startswith(".campaign.json.")]
            raise FloodmarkError(
                f"{self.folder} is not a campaign's folder: it has no campaign.json" + ("" if begun else (
                    "; if a campaign was stopped before it wrote that file, remove the folder, then run it"))
            ) from error
        except (OSError, orjson.JSONDecodeError) as error:
            raise FloodmarkError(f"cannot read {self.about_path}: {error}") from error
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise FloodmarkError(f"{self.about_path} is not of format {FORMAT}: use the version of floodmark "
                                 "that wrote it")
        return about

    def state(self) -> State:
        """The campaign's state by its journal."""
        try:
            return state_of(read_lines(self.journal_path))
        except (KeyError, TypeError, ValueError) as error:
            raise FloodmarkError(
                f"{self.journal_path} is not a journal of this version: {error!r}") from error


def smallest(runs: Iterable[RunState]) -> RunState:
    """The run to look at and to reproduce: the one with the fewest bytes. There must be at least one."""
    return min(runs, key=lambda run: run.size_bytes)


def read_lines(path: Path) -> Iterator[Line]:
    """Read the journal's lines. An incomplete line is left out; only the last line can be incomplete."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise FloodmarkError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise FloodmarkError(f"{path}:{number}: is not a line of a journal: {error}") from error


class Journal:
    """Writes a journal: every line is on disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _without_torn_end(path)

    def append(self, event: str, *, time_s: float, **fields: Any) -> Line:
        """Append a line. time_s: seconds since the epoch. FloodmarkError where it cannot be written."""
        line = {"event": event, "time_s": round(time_s, 3), **fields}
        try:
            self._write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            raise FloodmarkError(f"cannot write {self._path}: {error.strerror}") from error
        return line

    def _write(self, data: bytes) -> None:
        """Write all of it or nothing: a full disk may take a part of a line, and later lines would follow
        that part.
        """
        number, left = self._file.fileno(), memoryview(data)
        end = os.fstat(number).st_size
        try:
            while left:
                left = left[os.write(number, left) :]
            os.fsync(number)
        except OSError:
            with suppress(OSError):
                os.ftruncate(number, end)
            raise

    def close(self) -> None:
        self._file.close()


def _without_torn_end(path: Path) -> BinaryIO:
    """Open the file at the end of its last complete line; an incomplete one is removed."""
    try:
        file = path.open("ab+", buffering=0)
        file.seek(0)
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        sync(path.parent)  # only then a new file's name is on disk
    except OSError as error:
        raise FloodmarkError(f"cannot write {path}: {error.strerror}") from error
    return file


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the campaign's lock; FloodmarkError where another process runs this campaign. The lock ends with
    its process."""
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise FloodmarkError(f"another process is running the campaign in {folder}") from error
        yield
