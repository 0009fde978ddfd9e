"""Judges a bag of runs in one Spark task: both passes, in one worker, on one core.

Small runs are judged this way: for a few megabytes a second task would cost more than it saves. Bigger ones
are split up (two_passes.py); the functions that read, derive and judge are the same.

A run on which the judge raises is reported with that failure, and never affects its neighbours: if the laws
fail on a bag, each of its runs is judged alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from floodmark.checkers.judge.examples import Row, worst
from floodmark.checkers.judge.failures import Failure, failure_of, of_one_run
from floodmark.checkers.judge.preconditions import preconditions_of_run
from floodmark.checkers.judge.run_tables import run_tables
from floodmark.checkers.judge.runs import Run, read_lines_instead, run_of
from floodmark.checkers.judge.verdicts import verdict_of
from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.cycles import unsearched
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.finding_names import Reason
from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.laws.transactions import transactions
from floodmark.checkers.laws.unit import Family, opened, run_families
from floodmark.checkers.read.arrays import concatenated
from floodmark.checkers.read.folder import Folder
from floodmark.checkers.read.history_parquet import with_parquet
from floodmark.checkers.read.pairing import answers, pairing
from floodmark.checkers.read.ranges import RANGE_BYTES, Range, ranges_of
from floodmark.checkers.read.repeats import repeats
from floodmark.checkers.read.replica_rows import REPLICA_ROWS
from floodmark.checkers.read.seqs import SEQS, seq_facts
from floodmark.checkers.read.tables import read_range
from floodmark.harness.run_location import Place
from floodmark.harness.verdict import Verdict

NO_VALUES = TABLES["repeated"].empty_table()
NO_LIMIT_BYTES = 1 << 62  # bytes: more than any file has
PARQUET_WEIGHT = 6  # a byte of Parquet holds as much as this many of JSON

Tables = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWork:
    """What a worker needs to judge one run."""

    run: int  # the folder's position in the call
    folder: Folder
    ranges: tuple[Range, ...]

    size: int  # bytes to read, Parquet weighted as JSON
    far: bool  # only Spark reaches its files

    @staticmethod
    def of(run: int, folder: Folder, range_bytes: int = RANGE_BYTES) -> "RunWork":
        files = [place for place in (folder.history, folder.rows, folder.trace, *folder.dumps.values())
                 if place]  # fmt: skip
        far = not isinstance(folder.path, Path)
        if far:
            range_bytes = NO_LIMIT_BYTES  # Spark will cut it
        return RunWork(
            run=run,
            folder=folder,
            ranges=tuple(with_parquet(ranges_of(run, folder, range_bytes))),
            size=sum(place.stat().st_size * weight_of(place) for place in files),
            far=far,
        )


def weight_of(place: Place) -> int:
    return PARQUET_WEIGHT if place.suffix == ".parquet" else 1


@dataclass(slots=True, kw_only=True)
class Judged:
    """The results of one run so far."""

    number: int
    run: Run | None = None  # after the first pass
    rows: list[list[Row]] = field(default_factory=list)  # of each unit
    reasons: list[Reason] = field(default_factory=list)  # that only the laws could find
    failure: Failure | None = None

    def verdict(self) -> Verdict | Failure:
        """The verdict on the run, once all laws have run."""
        if self.failure is not None:
            return self.failure
        assert self.run is not None
        return of_one_run(partial(verdict_of, self.number, self.run, self.rows, self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPass:
    """One run after it was read."""

    tables: Tables
    run: Run


def judged_bags(bags: Iterable[Sequence[RunWork]]) -> Iterator[tuple[int, Verdict | Failure]]:
    """Do the work of a task: judge every run of these bags; yields by the position in the call."""
    for bag in bags:
        yield from judged_bag(bag).items()


def judged_bag(
    bag: Sequence[RunWork], families: Sequence[Family] = FAMILIES
) -> dict[int, Verdict | Failure]:
    judged = {work.run: Judged(number=work.run) for work in bag}
    passed: dict[int, FirstPass] = {}
    for work in bag:
        try:
            passed[work.run] = first_pass(work)
            judged[work.run].run = passed[work.run].run
        except Exception as error:
            judged[work.run].failure = failure_of(error)
    second_pass(passed, judged, families)
    return {number: one.verdict() for number, one in judged.items()}


def first_pass(work: RunWork, *, all_lines: bool = False) -> FirstPass:
    """Read one run, and find what the laws must know before they claim anything. all_lines: keep the tables
    `lines` and `answers` even if no law needs them."""
    ranges = [read_range(one, work.folder.special) for one in work.ranges]
    facts, tables = [one.facts for one in ranges], concatenated(one.tables for one in ranges)
    del ranges  # this also frees every range's own tables
    pairs = pairing(tables["lines"]) if "lines" in tables else []
    tables["repeated"], repeated = repeats(tables["sends"]) if "sends" in tables else (NO_VALUES, [])
    seqs = seq_facts(tables.pop(SEQS)) if SEQS in tables else []
    seen = preconditions_of_run(work.run, [*facts, *pairs, *repeated, *seqs])
    if read_lines_instead(work.folder, seen.flaws):
        return first_pass(RunWork.of(work.run, work.folder), all_lines=all_lines)
    if "lines" in tables and (seen.txns or all_lines):
        tables["answers"] = answers(tables["lines"])
    else:
        tables.pop("lines", None)
    rows = tables.pop(REPLICA_ROWS, None)
    return FirstPass(tables=tables, run=run_of(work.folder, seen, rows))


def second_pass(
    passed: Mapping[int, FirstPass], judged: Mapping[int, Judged], families: Sequence[Family]
) -> None:
    """Find what the laws find in these runs, all in one unit; each in a unit of its own where that fails."""
    try:
        run_laws(passed, judged, families)
        return
    except Exception as error:
        failure = failure_of(error)
    # Outside the handler, because the traceback keeps the failed unit's tables alive.
    for run, one in passed.items():
        judged[run].rows, judged[run].reasons = [], []
        if len(passed) == 1:
            judged[run].failure = failure
        else:
            second_pass({run: one}, judged, families)


def run_laws(
    passed: Mapping[int, FirstPass], judged: Mapping[int, Judged], families: Sequence[Family]
) -> None:
    """Run all laws on these runs."""
    tables = concatenated(one.tables for one in passed.values())
    tables |= run_tables({number: one.run for number, one in passed.items()})
    with opened(tables) as unit:
        run_families(unit, families)
        rows = worst(unit)
        reasons = unsearched(unit) if transactions in families else []
    for run in passed:
        judged[run].rows = [[row for row in rows if row["run"] == run]]
    for run, words in reasons:
        judged[run].reasons.append((finding_names.CYCLES, words))
