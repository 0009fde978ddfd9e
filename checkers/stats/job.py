"""Measures any number of run folders in one pass of Spark.

    measures = measure([Path("nights/monday/runs/00001-..."), ...])

A task takes a few folders: it reads the kept measures of each (kept.py), or else the history and the trace,
and keeps the result. It returns one row for each run with those of its faults, as one blob for the task. A
folder that cannot be measured is named with the reason, and affects no other; if a task does not come back,
the folders are split in halves until the one that causes it is alone.

This module imports little, as job.py of the judge does, and imports the rest when Spark is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.checkers.spark import session
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.spark_options import HERE, Workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

    from floodmark.checkers.stats.questions import Answers

TASKS_A_CORE = 8
FOLDERS_A_TASK = 200  # at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What faults cost clients, for each run of a call by its position: `rows` is a table of KEPT with
    `position`; the runs that could not be measured, and those whose measures could not be saved, and why."""

    rows: "pa.Table"
    failures: Mapping[int, str] = field(default_factory=dict)
    unsaved: Mapping[int, str] = field(default_factory=dict)

    def run_rows(self) -> dict[int, dict[str, Any]]:
        """The row of each run, by position, without those of its faults."""
        columns = [name for name in self.rows.column_names if name != "of_faults"]
        return {row["position"]: row for row in self.rows.select(columns).to_pylist()}

    def answers(self, names: Mapping[int, tuple[str, str]]) -> "Answers":
        """The summary of all. names: for each position the night and the run."""
        from floodmark.checkers.stats.questions import answers

        return answers(self.rows, names)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTask:
    """A task's answer: a table of its rows, if it has any."""

    rows: "pa.Table | None" = None
    failures: Mapping[int, str] = field(default_factory=dict)
    unsaved: Mapping[int, str] = field(default_factory=dict)


Work = tuple[int, Path]


def measure(folders: Sequence[Place], workers: Workers = HERE) -> Measures:
    """All of them, in order. FloodmarkError where Spark does not start."""
    context = session.context(workers)
    from floodmark.checkers.judge.many_runs import Spark

    near = [(number, folder.absolute()) for number, folder in enumerate(folders) if isinstance(folder, Path)]
    far = [(number, folder) for number, folder in enumerate(folders) if not isinstance(folder, Path)]
    answers = list(_answers(Spark(context=context, workers=workers), near))
    if far:
        from floodmark.checkers.stats.far import far_answers

        answers += far_answers(far)
    return Measures(
        rows=_joined([answer.rows for answer in answers if answer.rows is not None]),
        failures={number: why for answer in answers for number, why in answer.failures.items()},
        unsaved={number: why for answer in answers for number, why in answer.unsaved.items()},
    )


def _answers(spark: Any, works: Sequence[Work]) -> Iterator[OfTask]:
    from floodmark.checkers.judge.failures import is_of_spark, words_of

    if not works:
        return
    try:
        answers = _together(spark.context, works)
    except FloodmarkError:
        raise
    except Exception as error:
        if not is_of_spark(error):
            raise
        words = words_of(error)
        spark.restarted()
        if len(works) == 1:
            yield OfTask(failures={works[0][0]: words})
            return
        answers = []
    yield from answers
    if not answers:
        middle = len(works) // 2
        yield from _answers(spark, works[:middle])
        yield from _answers(spark, works[middle:])


def _together(context: "SparkContext", works: Sequence[Work]) -> list[OfTask]:
    """Distribute the folders by size, the heaviest first."""
    count = min(len(works), max(session.cores(context) * TASKS_A_CORE, -(-len(works) // FOLDERS_A_TASK)))
    heaviest = sorted(works, key=lambda work: -_size(work[1]))
    dealt = [heaviest[first::count] for first in range(count)]
    return context.parallelize(dealt, count).map(measured_here).collect()


def _size(folder: Path) -> int:
    """Bytes of the files to read, as far as is known."""
    run, size = RunAt(folder=folder), 0
    for path in (run.history_path, run.trace_path):
        try:
            size += path.stat().st_size
        except OSError:
            continue
    return size


def measured_here(works: Sequence[Work]) -> OfTask:
    """The work of a task."""
    import pyarrow as pa

    from floodmark.checkers.judge.failures import words_of
    from floodmark.checkers.read.folder import open_folder
    from floodmark.checkers.stats import kept
    from floodmark.checkers.stats.measures import measured

    tables, failures, unsaved = [], {}, {}
    for number, folder in works:
        try:
            table = kept.read(folder)
            if table is None:
                table = kept.table_of(measured(open_folder(folder)))
                why = kept.write(folder, table)
                if why is not None:
                    unsaved[number] = why
            tables.append(with_number(table, number))
        except FloodmarkError as error:
            failures[number] = str(error)
        except Exception as error:
            failures[number] = words_of(error)
    return OfTask(rows=pa.concat_tables(tables).combine_chunks() if tables else None, failures=failures,
                  unsaved=unsaved)


def with_number(table: "pa.Table", number: int) -> "pa.Table":
    """The kept row of a folder, with its position in the call."""
    import pyarrow as pa

    return table.replace_schema_metadata(None).append_column("position", pa.array([number], pa.int64()))


def _joined(tables: "Sequence[pa.Table]") -> "pa.Table":
    import pyarrow as pa

    from floodmark.checkers.stats.tables import KEPT

    if not tables:
        return KEPT.append(pa.field("position", pa.int64())).empty_table()
    return pa.concat_tables(tables).sort_by("position")
