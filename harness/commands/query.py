"""Answers a question in SQL about run folders: `floodmark query FOLDER... "select ..."`. The tables are those
of checkers/tables.py; DuckDB answers, without Spark.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click
import duckdb

from floodmark.harness import catalog
from floodmark.harness.commands.folder_arguments import chosen, runs_in
from floodmark.harness.errors import UsageError
from floodmark.harness.report.phrases import number_of
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.terminal import table
from floodmark.harness.run_location import replacing, temporary_folder
from floodmark.harness.verdict import EXIT_USAGE, EXIT_VALID

ROWS_SHOWN = 1000
STDOUT = Path("-")


def query(arguments: Sequence[str], *, csv: Path | None, json_file: Path | None, parquet: Path | None) -> int:
    """Prints the rows of the SELECT, which is the last argument, or writes them to files."""
    *folders, select = arguments
    if os.path.exists(select):
        raise UsageError(f"{select} is a path; the last argument must be a SELECT, in quotes")
    places = chosen(folders)
    if far := [place for place in places if not isinstance(place, Path)]:
        raise UsageError(f"{far[0]}: query reads only folders on this machine")
    database = catalog.open_tables([str(run) for folder in places for run in runs_in(folder) or [folder]])
    files = {"csv, header": csv, "json": json_file, "parquet": parquet}
    try:
        if (answer := database.sql(select)) is not None:
            answer.create("answer")
            for form, file in files.items():
                if file is not None:
                    _write(database, form, file)
            if not any(files.values()):
                first = database.execute(f"from answer limit {ROWS_SHOWN}")
                heads = [str(column[0]) for column in first.description or ()]
                click.echo(table(heads, [["NULL" if cell is None else str(cell) for cell in row]
                                         for row in first.fetchall()]))
                ((count,),) = database.execute("select count(*) from answer").fetchall()
                if count > ROWS_SHOWN:
                    click.echo(f"the first {ROWS_SHOWN:,} of {number_of(count, 'row')}; --csv has all "
                               "of them", err=True)
    except duckdb.Error as error:
        lines = f"floodmark: {error}".splitlines()
        if isinstance(error, duckdb.CatalogException):
            names = [name for (name,) in database.execute("show tables").fetchall()]
            lines.append(f"The tables are {', '.join(names)}.")
        for line in lines:
            click.echo(escape_controls(line), err=True)
        return EXIT_USAGE
    return EXIT_VALID


def _write(database: duckdb.DuckDBPyConnection, form: str, file: Path) -> None:
    rows = "from answer"
    if form == "parquet" and (sums := [name for name, kind, *_ in database.execute(
            "describe answer").fetchall() if kind == "HUGEINT"]):  # it would be written as DOUBLE
        quoted = ('"{}"'.format(name.replace('"', '""')) for name in sums)
        rows = f"select * replace ({', '.join(f'{name}::decimal(38) as {name}' for name in quoted)}) {rows}"
    with temporary_folder("floodmark-query-") as scratch:
        made = scratch / "answer"
        to = str(made).replace("'", "''")
        database.execute(f"copy ({rows}) to '{to}' (format {form})")
        to_file = nullcontext(sys.stdout.buffer) if file == STDOUT else replacing(file)
        with made.open("rb") as data, to_file as target:
            shutil.copyfileobj(data, target)

