"""Measures run folders on Hadoop's file systems (hdfs://, s3a://): Spark sends the files of each to a task.

Rules
1. The kept measures are small: the driver reads and writes them. Only folders without them are sent.
2. A task measures a copy of the three files it needs, which it deletes afterwards. A file may have up to 2
   GB.
3. An error in one folder is reported with its address, and affects no other.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import functions as F

from floodmark.checkers.judge.failures import is_of_spark, words_of
from floodmark.checkers.judge.far_files import own_session
from floodmark.checkers.spark.hadoop import literally, uri_of
from floodmark.checkers.stats import kept
from floodmark.checkers.stats.job import OfTask, measured_here, with_number
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place

Works = Sequence[tuple[int, Place]]
File = tuple[str, bytes]  # name, content


def far_answers(works: Works) -> list[OfTask]:
    """The measures of these folders, by their numbers."""
    saved = {number: table for number, place in works if (table := kept.read(place)) is not None}
    places = {number: place for number, place in works if number not in saved}
    files, failures = files_of(places)
    answers = [OfTask(rows=with_number(table, number)) for number, table in saved.items()]
    try:
        made = brought(files, places) if files else []
    except Exception as error:
        if not is_of_spark(error):
            raise
        made, failures = [], dict.fromkeys(places, words_of(error)) | failures
    answers += [keeping(one, places) for one in made]
    return [*answers, OfTask(failures=failures)]


def files_of(places: Mapping[int, Place]) -> tuple[dict[str, tuple[int, str]], dict[int, str]]:
    """Each file to send, by its address: number of its folder, name; and the folders that are no run."""
    files: dict[str, tuple[int, str]] = {}
    failures: dict[int, str] = {}
    for number, place in places.items():
        run = RunAt(folder=place)
        try:
            if not run.about_path.is_file():
                failures[number] = f"{place} is no run folder: it has no run.json"
                continue
            for path in (run.about_path, run.history_path, run.trace_path):
                if path.is_file():
                    files[uri_of(str(path))] = number, path.name
        except OSError as error:
            failures[number] = f"cannot read {place}: {error.strerror}"
    return files, failures


def brought(files: Mapping[str, tuple[int, str]], places: Mapping[int, Place]) -> list[OfTask]:
    """One pass of Spark: every file to the task of its folder."""
    names = {number: str(place) for number, place in places.items()}
    addresses = [literally(f"{names[number]}/{name}") for number, name in files.values()]
    reader = own_session().read.format("binaryFile").option("recursiveFileLookup", "true")
    contents = reader.load(addresses).select(F.input_file_name().alias("uri"), F.col("content"))
    keyed = contents.rdd.map(lambda row: (files[row.uri][0], (files[row.uri][1], bytes(row.content))))
    return keyed.groupByKey().map(partial(measured_copy, names)).collect()


def measured_copy(names: Mapping[int, str], work: tuple[int, Iterable[File]]) -> OfTask:
    """The work of a task. names: the folders' addresses."""
    number, files = work
    with TemporaryDirectory(prefix="floodmark-stats-") as scratch:
        for name, content in files:
            (Path(scratch) / name).write_bytes(content)
        made = measured_here([(number, Path(scratch))])
        failures = {at: words.replace(scratch, names[at]) for at, words in made.failures.items()}
    return OfTask(rows=made.rows, failures=failures)


def keeping(made: OfTask, places: Mapping[int, Place]) -> OfTask:
    """The same, written to its folder."""
    unsaved: dict[int, str] = {}
    for row in made.rows.to_pylist() if made.rows is not None else ():
        number = row.pop("position")
        why = kept.write(places[number], kept.table_of(row))
        if why is not None:
            unsaved[number] = why
    return OfTask(rows=made.rows, failures=made.failures, unsaved=unsaved)
