"""A campaign's folder and its journal: what was begun, what came of it; read back after any end.

    OUT/campaign.json       what the campaign is: its plan as written, seed, version, commit, begin
    OUT/journal.jsonl       what has happened, a line each; only ever appended to, each line synced
    OUT/runs/NUMBER-.../    the run folders
    OUT/again/SIGNATURE/    reproductions
    OUT/index.html          the page of the night, made anew after each batch; nobody reads it back
    OUT/lock                locked while somebody runs the campaign

Rules
1. A line is written after what it says is on disk: the machine may lose its power. A last line without its
   line feed never happened.
2. The state is a fold over the lines: what has no line has not happened, whatever lies in the folder.
3. One process at a time runs a campaign.
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

from floodmark.harness.campaign.cases import Case
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.run_location import sync

FORMAT = 1
BEGAN, RECORDED, FAILED, JUDGED, REPRODUCED, OPENED, ENDED = (
    "began", "recorded", "failed", "judged", "reproduced", "opened", "ended")  # fmt: skip
JUDGE_FAILED = "judge_failed"  # of a line JUDGED: the judge itself did, and says nothing of the run
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What is known of one run of the campaign."""

    number: int
    case: Case
    seed: int
    folder: str  # inside the campaign's
    recorded: bool = False  # its folder is whole
    why: str | None = None  # the harness failed: what it said
    judged: Line | None = None  # the line that says how (keys: journal line JUDGED); the last, if several
    judge_failures: int = 0  # how often the judge itself failed on it

    @property
    def done(self) -> bool:
        """Whether nothing is left to be done with it."""
        return self.judged is not None or self.why is not None

    @property
    def judge_failed(self) -> bool:
        return bool((self.judged or {}).get(JUDGE_FAILED))

    @property
    def counts(self) -> bool:
        """Whether it was judged, and says something of its system."""
        line = self.judged
        return line is not None and (bool(line.get("signatures")) or not line.get("harness"))

    @property
    def size_bytes(self) -> int:
        """Of its folder when it was judged."""
        return int((self.judged or {}).get("size_bytes", 0))


@dataclass(slots=True)
class State:
    """What the lines so far say. spent_s: seconds that the campaign was at work, over all its sessions."""

    lines: list[Line] = field(default_factory=list)
    runs: dict[int, RunState] = field(default_factory=dict)
    reproductions: dict[str, list[Line]] = field(default_factory=dict)  # by signature
    spent_s: float = 0.0
    last_s: float = 0.0
    why_ended: str | None = None  # None: it is to go on
    ended_early: bool = False  # something kept it from what was asked

    @property
    def unjudged(self) -> list[RunState]:
        return [run for run in self.runs.values() if run.recorded and not run.done]

    @property
    def unfinished(self) -> list[RunState]:
        """Begun, and neither recorded nor failed: whoever ran them was killed."""
        return [run for run in self.runs.values() if not run.recorded and run.why is None]

    @property
    def to_be_judged(self) -> list[RunState]:
        """Those that nobody has judged, and those that the judge itself failed on a first time: it may have
        been the machine's state then."""
        return [run for run in self.runs.values()
                if (run.recorded and not run.done) or (run.judge_failed and run.judge_failures == 1)]

    def judged_by_system(self) -> Counter[str]:
        """How many runs of each system say something of it: those that the harness spoilt do not."""
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

    def take(self, line: Line) -> None:
        """One line more. KeyError, TypeError or ValueError where it is none of a journal's."""
        event, time_s = line["event"], float(line["time_s"])
        if event == OPENED:
            self.why_ended, self.ended_early = None, False
        else:
            self.spent_s += max(0.0, time_s - self.last_s)
        self.last_s = time_s
        if event == BEGAN:
            number = int(line["run"])
            self.runs[number] = RunState(
                number=number, case=Case.of_json(line["case"]), seed=int(line["seed"]),
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
    """What these lines say."""
    state = State()
    for line in lines:
        state.take(line)
    return state


# -- on disk ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignAt:
    """A campaign's folder, by its name."""

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
        """campaign.json; UsageError where the folder does not exist, FloodmarkError where it is no
        campaign's."""
        if not self.folder.exists():
            raise UsageError(f"{self.folder} does not exist")
        try:
            about = orjson.loads(self.about_path.read_bytes())
        except FileNotFoundError as error:
            begun = [path for path in self.folder.glob("*") if not path.name.startswith(".campaign.json.")]
            raise FloodmarkError(
                f"{self.folder} is no campaign's folder: it has no campaign.json" + ("" if begun else (
                    "; if a campaign was ended before it had begun, remove the folder and run it anew"))
            ) from error
        except (OSError, orjson.JSONDecodeError) as error:
            raise FloodmarkError(f"cannot read {self.about_path}: {error}") from error
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise FloodmarkError(f"{self.about_path} is not of format {FORMAT}: another version of floodmark "
                                 "wrote it, and can read it")
        return about

    def state(self) -> State:
        """As the journal has it now."""
        try:
            return state_of(read_lines(self.journal_path))
        except (KeyError, TypeError, ValueError) as error:
            raise FloodmarkError(f"{self.journal_path} is no journal of this version: {error!r}") from error


def smallest(runs: Iterable[RunState]) -> RunState:
    """The one to look at and to have again: the fewest bytes. There is one at least."""
    return min(runs, key=lambda run: run.size_bytes)


def read_lines(path: Path) -> Iterator[Line]:
    """The journal's lines; one that was not written to its end is left out, and can only be the last."""
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
            raise FloodmarkError(f"{path}:{number}: is no line of a journal: {error}") from error


class Journal:
    """A journal to be written: every line is on disk when `say` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _without_torn_end(path)

    def say(self, event: str, *, time_s: float, **fields: Any) -> Line:
        """time_s: seconds since the epoch. FloodmarkError where the disk does not take it."""
        line = {"event": event, "time_s": round(time_s, 3), **fields}
        try:
            self._append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            raise FloodmarkError(f"cannot write {self._path}: {error.strerror}") from error
        return line

    def _append(self, data: bytes) -> None:
        """All of it or nothing: a full disk may take a part, and what is said next would stand behind it."""
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
    """The file, open behind its last whole line."""
    try:
        file = path.open("ab+", buffering=0)
        file.seek(0)
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        sync(path.parent)  # a file made just now has its name only then
    except OSError as error:
        raise FloodmarkError(f"cannot write {path}: {error.strerror}") from error
    return file


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """FloodmarkError where somebody else runs this campaign now. The lock goes with its process."""
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise FloodmarkError(f"{folder} is run by another process now") from error
        yield
