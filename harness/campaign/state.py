"""Reads and writes a campaign's folder, and its state: a database in one file, which any sqlite3 can read.

    OUT/campaign.json       the campaign: its plan as written, seed, version, commit, begin
    OUT/campaign.db         what was begun and how it ended (SCHEMA)
    OUT/runs/NUMBER-.../    the run folders
    OUT/again/SIGNATURE/    reproductions
    OUT/index.html          the page of the night, written again after each batch; floodmark does not read it
    OUT/lock                locked while a process runs the campaign

Rules
1. Each write is a transaction: it is on the disk when it returns, whatever ends the process. It is made only
   when the files that it is about are on the disk, because the machine may lose power.
2. What the database does not have has not happened, whatever files are in the folder.
3. Only one process at a time runs a campaign; others may read its state meanwhile.
4. A campaign of before has a journal.jsonl in place of the database, a line for each event (an incomplete
   last line is ignored). It is read as if it were one, and carried over into one when it is resumed.
"""

import errno
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import orjson

from floodmark.harness import user_cache
from floodmark.harness.campaign.plan import case_of_json, case_to_json
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.run import write_whole
from floodmark.harness.spec import RunSpec

FORMAT = 2  # of campaign.json; with 1 the state was a journal
ABOUT, DATABASE, JOURNAL = "campaign.json", "campaign.db", "journal.jsonl"
NEEDED = frozenset({"id", "began", "version", "commit", "seed", "budget_s", "runs", "keep", "ledger", "bank",
                    "plan"})  # keys of campaign.json, to go on
BEGUN, RECORDED, FAILED, JUDGED = "begun", "recorded", "failed", "judged"
JUDGE_FAILED = "judge_failed"  # key of a judge's answer: it failed itself, so nothing is known of the run
NO_SPACE = os.strerror(errno.ENOSPC)
BUSY_S = 60.0  # how long a reader or the writer waits for the other
SCHEMA = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY, seed INTEGER NOT NULL, spec TEXT NOT NULL,
    folder TEXT NOT NULL,    -- inside the campaign's folder
    status TEXT NOT NULL,    -- begun, recorded (its folder is complete), failed (in the harness), judged
    took_s REAL, cpu_s REAL, resident_bytes INTEGER, -- of making it
    why TEXT,                -- the harness's error, if it failed
    judged TEXT,             -- the judge's latest answer, as JSON: kind, why, signatures, acked, faults, ...
    judge_s REAL,            -- its share of the judging
    judge_failures INTEGER NOT NULL DEFAULT 0);
CREATE TABLE reproductions (
    signature TEXT NOT NULL, number INTEGER, folder TEXT,
    shown INTEGER,           -- 1 or 0; NULL: it could not be made or judged
    why TEXT);
CREATE TABLE sessions (
    began_s REAL NOT NULL, last_s REAL NOT NULL, -- the times of the first and the last write
    why TEXT,                -- why the campaign ended; NULL: it did not
    early INTEGER NOT NULL DEFAULT 0); -- before everything requested was done
"""
BUGS = """
SELECT count(DISTINCT value) FROM runs, json_each(judged, '$.signatures')
WHERE json_extract(value, '$.klass') = 'bug'
"""
LATEST_SESSION = "rowid = (SELECT max(rowid) FROM sessions)"
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """One run of the campaign: a row of `runs`."""

    number: int
    seed: int
    case: RunSpec
    folder: str
    status: str
    took_s: float | None
    why: str | None
    judged: Line | None
    signatures: tuple[Signature, ...]

    @property
    def done(self) -> bool:
        return self.status in (FAILED, JUDGED)

    @property
    def kind(self) -> str:
        """The judge's word; "": not judged."""
        return str((self.judged or {}).get("kind", ""))

    @property
    def counts(self) -> bool:
        """Whether it was judged and says something about its system."""
        return self.judged is not None and (bool(self.signatures) or not self.judged.get("harness"))

    @property
    def size_bytes(self) -> int:
        return int((self.judged or {}).get("size_bytes", 0))


def judged_by_system(runs: Iterable[RunState]) -> Counter[str]:
    """The number of judged runs of each system, without those in which the harness failed."""
    return Counter(run.case.system for run in runs if run.counts)


def runs_by_signature(runs: Iterable[RunState]) -> dict[Signature, list[RunState]]:
    found: dict[Signature, list[RunState]] = {}
    for run in runs:
        for signature in run.signatures:
            found.setdefault(signature, []).append(run)
    return found


def smallest(runs: Iterable[RunState]) -> RunState:
    """The run to look at and to reproduce: the one with the fewest bytes. There must be at least one."""
    return min(runs, key=lambda run: run.size_bytes)


class State:
    """A campaign's state. clock: the seconds since the epoch."""

    def __init__(self, database: sqlite3.Connection, path: Path, clock: Callable[[], float]) -> None:
        self.database, self.path, self.clock = database, path, clock

    # -- reading ----------------------------------------------------------------------------------------

    def select(self, sql: str, *values: Any) -> list[Any]:
        try:
            return self.database.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise FloodmarkError(f"cannot read {self.path}: {error}") from error

    def runs(self, where: str = "true") -> list[RunState]:
        """The runs, in order, for which this SQL condition holds."""
        rows = self.select("SELECT number, seed, spec, folder, status, took_s, why, judged FROM runs "
                           f"WHERE {where} ORDER BY number")
        try:
            return list(map(_run_of, rows))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self.is_foreign(error) from error

    def is_foreign(self, error: Exception) -> FloodmarkError:
        what = "journal" if self.path.name == JOURNAL else "state"
        return FloodmarkError(f"{self.path} is not a {what} of this version: {error!r}")

    def reproductions(self, signature: str) -> list[bool | None]:
        """What the reproductions of this signature have shown; None: nothing is known of it."""
        rows = self.select("SELECT shown FROM reproductions WHERE signature = ? ORDER BY rowid", signature)
        return [None if shown is None else bool(shown) for shown, in rows]

    @property
    def bugs(self) -> int:
        """The number of bugs that its runs have shown."""
        return int(self.select(BUGS)[0][0])

    @property
    def spent_s(self) -> float:
        """Seconds of work, over all sessions."""
        return float(self.select("SELECT total(last_s - began_s) FROM sessions")[0][0])

    @property
    def spent_until_now_s(self) -> float:
        """The same of a session that goes on."""
        ((last_s,),) = self.select("SELECT max(last_s) FROM sessions")
        return self.spent_s + max(0.0, self.clock() - float(last_s))

    @property
    def end(self) -> tuple[str | None, bool]:
        """Why it ended, None if it has not; and whether that was before everything requested was done."""
        rows = self.select(f"SELECT why, early FROM sessions WHERE {LATEST_SESSION}")
        return (rows[0][0], bool(rows[0][1])) if rows else (None, False)

    # -- writing ----------------------------------------------------------------------------------------

    def add(self, table: str, **values: Any) -> None:
        """Adds a row, or replaces the one with its key."""
        self._write(f"REPLACE INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                    *values.values())

    def open_session(self) -> None:
        self.add("sessions", began_s=self.clock(), last_s=self.clock())

    def end_session(self, why: str, *, early: bool) -> None:
        self._write(f"UPDATE sessions SET why = ?, early = ? WHERE {LATEST_SESSION}", why, early)

    def begin(self, number: int, seed: int, case: RunSpec, folder: str) -> None:
        """Begins a run; what an earlier attempt left is forgotten."""
        self.add("runs", number=number, seed=seed, spec=orjson.dumps(case_to_json(case)).decode(),
                 folder=folder, status=BEGUN)

    def end_run(self, number: int, answer: Line) -> None:
        """Records the run, or its failure in the harness: then the player's answer says why."""
        columns = ("took_s", "cpu_s", "resident_bytes", "why")
        self._write(f"UPDATE runs SET status = ?, {' = ?, '.join(columns)} = ? WHERE number = ?",
                    RECORDED if answer.get("why") is None else FAILED, *map(answer.get, columns), number)

    def judge(self, number: int, answer: Line, judge_s: float | None) -> None:
        self._write("UPDATE runs SET status = ?, judged = ?, judge_s = ?, "
                    "judge_failures = judge_failures + ? WHERE number = ?",
                    JUDGED, orjson.dumps(answer, option=orjson.OPT_SORT_KEYS).decode(), judge_s,
                    bool(answer.get(JUDGE_FAILED)), number)

    def _write(self, sql: str, *values: Any) -> None:
        """Writes a row, and the session's time. KeyError where there is no such row."""
        try:
            with self.database:
                if not self.database.execute(sql, values).rowcount:
                    raise KeyError(values[-1])
                self.database.execute(f"UPDATE sessions SET last_s = max(last_s, ?) WHERE {LATEST_SESSION}",
                                      (self.clock(),))
        except sqlite3.Error as error:
            full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            raise FloodmarkError(f"cannot write {self.path}: {NO_SPACE if full else error}") from error


def _run_of(row: tuple[Any, ...]) -> RunState:
    number, seed, spec, folder, status, took_s, why, judged = row
    if ".." in (parts := PurePath(folder).parts) or not parts or PurePath(folder).is_absolute():
        raise ValueError(f"the folder of run {number} is {folder!r}, which is not inside the campaign's")
    answer = None if judged is None else orjson.loads(judged)
    return RunState(number=number, seed=seed, case=case_of(spec), folder=folder, status=status,
                    took_s=took_s, why=why, judged=answer,
                    signatures=tuple(Signature(**row) for row in (answer or {}).get("signatures", ())))


@lru_cache(1 << 12)
def case_of(spec: str) -> RunSpec:
    return case_of_json(orjson.loads(spec))


# -- on disk ------------------------------------------------------------------------------------------------

def is_campaign(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def about_of(folder: Path) -> dict[str, Any]:
    """campaign.json; UsageError where the folder does not exist, FloodmarkError where it is no campaign's."""
    path = folder / ABOUT
    if not folder.exists():
        raise UsageError(f"{folder} does not exist")
    try:
        about = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise FloodmarkError(f"{folder} is not a campaign's folder: it has no {ABOUT}") from error
    except (OSError, orjson.JSONDecodeError) as error:
        raise FloodmarkError(f"cannot read {path}: {error}") from error
    if not isinstance(about, dict) or about.get("format") not in (1, FORMAT):
        raise FloodmarkError(f"{path} is not of format {FORMAT}: use the version of floodmark that wrote it")
    return about


def state_of(folder: Path, clock: Callable[[], float] = float) -> State:
    """The campaign's state, to be read: its database, or a journal's lines in one that is in memory only."""
    path = folder / DATABASE
    if not path.exists():
        return _carried_over(folder / JOURNAL, clock)
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_S)
        database.execute("PRAGMA synchronous = EXTRA")
        database.execute("PRAGMA trusted_schema = OFF")
    except sqlite3.Error as error:
        raise FloodmarkError(f"cannot read {path}: {error}") from error
    return State(database, path, clock)


def writable_state(folder: Path, clock: Callable[[], float]) -> State:
    """The campaign's state, to be written; its database is made, as a whole, where there is none yet."""
    if not (folder / DATABASE).exists():
        write_whole(folder / DATABASE, state_of(folder).database.serialize(), durable=True)
    return state_of(folder, clock)


def _carried_over(journal: Path, clock: Callable[[], float]) -> State:
    state = State(sqlite3.connect(":memory:"), journal, clock)
    state.database.executescript(SCHEMA)
    for line in _lines(journal):
        state.clock = lambda: float(line["time_s"])  # noqa: B023 - it is asked before the next line
        try:
            _apply(state, line)
        except (KeyError, TypeError, ValueError) as error:
            raise state.is_foreign(error) from error
    state.clock = clock
    return state


def _apply(state: State, line: Line) -> None:
    match line["event"]:
        case "opened":
            state.open_session()
        case "began":
            state.begin(int(line["run"]), int(line["seed"]), case_of_json(line["case"]), str(line["folder"]))
        case "recorded" | "failed":
            state.end_run(int(line["run"]), line)
        case "judged":
            answer = {key: line[key] for key in line.keys() - {"event", "time_s", "run", "judge_s"}}
            state.judge(int(line["run"]), answer, line.get("judge_s"))
        case "reproduced":
            state.add("reproductions", signature=str(line["signature"]), shown=line["shown"],
                      **{name: line.get(name) for name in ("number", "folder", "why")})
        case "ended":
            state.end_session(str(line["why"]), early=bool(line.get("early")))
        case other:
            raise ValueError(f"no event is called {other!r}")


def _lines(journal: Path) -> Iterator[Line]:
    try:
        data = journal.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise FloodmarkError(f"cannot read {journal}: {error.strerror}") from error
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise FloodmarkError(f"{journal}:{number}: is not a line of a journal: {error}") from error


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the campaign's lock; FloodmarkError where another process runs it. It ends with its process."""
    with user_cache.try_lock(folder / "lock") as is_alone:
        if not is_alone:
            raise FloodmarkError(f"another process is running the campaign in {folder}")
        yield
