"""Decides which task gets what: a bag of small runs is judged by one task, a bigger run by many."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from floodmark.checkers.judge.pieces import EVERY, by_hash, by_unit
from floodmark.checkers.read.folder import Folder
from floodmark.checkers.read.history_parquet import with_parquet
from floodmark.checkers.read.ranges import RANGE_BYTES, Range, ranges_of
from floodmark.harness.run_location import Place

# Chosen, not measured closely: a run of 70 MB is judged much quicker by one task than split up.
BIG_BYTES = 128 << 20
BAG_BYTES = 64 << 20
BAG_RUNS = 500  # one task holds the tables of all of them, and returns all their answers
UNIT_BYTES = 160 << 20  # of files
ACROSS_BYTES = 384 << 20  # of files: with 460 MB the lines and values of a task took 0.3 GB
NO_LIMIT_BYTES = 1 << 62  # bytes: more than any file has
PARQUET_WEIGHT = 6  # a byte of Parquet holds as much as this many of JSON
LINES, VALUES = "lines", "values"
KNOWN_REPLICAS = "known_replicas"  # the part of replicas.jsonl that the driver needs
# Checks across partitions need these tables distributed by the hash of a column: lines by their process, to
# pair invocations with completions; values, which must be unique in the run.
BY_HASH_OF = {LINES: "process", VALUES: "value"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWork:
    """What a worker needs to judge one run."""

    run: int  # the folder's position in the call
    folder: Folder
    ranges: tuple[Range, ...]
    size: int  # bytes to read, Parquet weighted as JSON

    @staticmethod
    def of(run: int, folder: Folder, range_bytes: int = RANGE_BYTES) -> "RunWork":
        files = [place for place in (folder.history, folder.rows, folder.trace, *folder.dumps.values())
                 if place]  # fmt: skip
        if not isinstance(folder.path, Path):
            range_bytes = NO_LIMIT_BYTES  # Spark will cut it
        return RunWork(
            run=run,
            folder=folder,
            ranges=tuple(with_parquet(ranges_of(run, folder, range_bytes))),
            size=sum(place.stat().st_size * weight_of(place) for place in files),
        )

    @property
    def far(self) -> bool:
        """Whether only Spark reaches its files."""
        return not isinstance(self.folder.path, Path)


def weight_of(place: Place) -> int:
    return PARQUET_WEIGHT if place.suffix == ".parquet" else 1


def bags_of(
    works: Sequence[RunWork], cores: int, big_bytes: int | None = None
) -> tuple[list[list[RunWork]], list[RunWork]]:
    """Split the runs into bags, the same number for each core, heaviest runs first; and the runs that are
    split over tasks instead: those of more than big_bytes (None: BIG_BYTES)."""
    most = BIG_BYTES if big_bytes is None else big_bytes
    big = [work for work in works if work.far or work.size > most]
    small = [work for work in works if not work.far and work.size <= most]
    small.sort(key=lambda work: (-work.size, work.run))
    total = sum(work.size for work in small)
    count = min(len(small), max(cores, -(-total // BAG_BYTES), -(-len(small) // BAG_RUNS)))
    bags: list[list[RunWork]] = [[] for _ in range(count)]
    loads = [0] * count
    for work in small:
        lightest = loads.index(min(loads))
        bags[lightest].append(work)
        loads[lightest] += work.size + 1
    return bags, big


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is in each partition of the shuffle: the first ones have the tables that are distributed by hash,
    and the first of all what the driver needs; of the others each has one unit."""

    across: int
    units: Mapping[int, range]  # run -> the partitions of its units, to which its own are dealt by number

    @staticmethod
    def of_bag(works: Sequence[RunWork]) -> "Layout":
        """One partition has everything, and is one unit."""
        return Layout(across=1, units={work.run: range(1) for work in works})

    @staticmethod
    def of(works: Sequence[RunWork], cores: int) -> "Layout":
        """As many units as the bytes of a run require, work for all cores, and never more than partitions. It
        uses the bytes because the first pass, which could count rows, already cuts its pieces by unit."""
        least = -(-cores // max(1, len(works)))
        size = across = max(cores, sum(work.size for work in works) // ACROSS_BYTES)
        units = {}
        for work in works:
            count = max(1, min(len(work.folder.partitions), max(least, -(-work.size // UNIT_BYTES))))
            units[work.run] = range(size, size + count)
            size += count
        return Layout(across=across, units=units)

    @property
    def size(self) -> int:
        return max(units.stop for units in self.units.values())

    @property
    def is_bag(self) -> bool:
        """Whether one task has complete runs."""
        return self.size == 1

    def runs_in(self, index: int) -> list[int]:
        """The runs of which this partition of the shuffle has a unit."""
        return [run for run, units in self.units.items() if index in units]

    def dealt(self, run: int, name: str, table: pa.Table) -> Iterator[tuple[Sequence[int], pa.Table]]:
        """Rows of this table of the run, with the partitions of the shuffle that need them."""
        units = self.units[run]
        if name == KNOWN_REPLICAS:
            yield range(1), table
        elif name in BY_HASH_OF:
            yield from (((at,), part) for at, part in by_hash(table, BY_HASH_OF[name], self.across))
        else:
            for number, part in by_unit(table, len(units)):
                yield units if number == EVERY else units[number : number + 1], part
