"""The judge's tables for everybody: DuckDB, `floodmark query`, Spark's data source, and the questions of
checkers/README.md, whose answers are the judge's."""

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import corpus
import pyarrow.parquet as pq
import pytest
from command_line import GOLDEN, floodmark
from readme import ROOT, blocks

from floodmark.checkers import tables
from floodmark.checkers.tables import SCHEMAS
from floodmark.harness.errors import FloodmarkError, UsageError

SAVED = sorted(about.parent for about in GOLDEN.glob("*/run.json"))
RUN, GARBLED = GOLDEN / "double-failover", GOLDEN / "a-garbled-line"
QUESTIONS = blocks("sql", ROOT / "checkers" / "README.md")


def test_the_two_core_verdicts_of_the_page_are_the_judges(tmp_path: Path) -> None:
    """As they are kept: on every saved run, and on those cases of the corpus in which logs differ and nothing
    else is found."""
    judged = {name: Counter[str]() for name in ("lost-write", "diverged")}
    for folder in SAVED:
        for one in json.loads((folder / "expected.json").read_text())["findings"]:
            if one["name"] in judged:
                judged[one["name"]][str(folder)] += one["count"]
    folders = [*SAVED]
    for number, case in enumerate(corpus.cases()):
        if {line.split()[0] for line in case.expected} == {"diverged"}:
            folders.append(case.write(tmp_path / str(number)))
            judged["diverged"][str(folders[-1])] = len(case.expected)
    database = tables.open(folders)
    by_sql = {name: Counter(row[0] for row in database.sql(question).fetchall())
              for name, question in zip(judged, QUESTIONS, strict=False)}

    assert len(folders) >= 40
    assert by_sql == judged
    assert min(len(each) for each in judged.values()) >= 4
    for question in QUESTIONS[2:]:
        assert database.sql(question).fetchall(), question  # the page's other questions have answers


def test_every_table_is_there_and_in_the_help() -> None:
    """Of the folders that a pattern means; broken lines are told."""
    database, help_text = tables.open([GOLDEN / "a-g*", GARBLED]), floodmark("query", "--help").out
    (told,) = database.sql("select run, reason from reasons where reason like '%field table%'").fetchall()
    names = database.sql("select distinct folder from runs order by 1").fetchall()

    assert told == (1, "history.jsonl:3: 1 line is not as the field table says")
    assert names == [(str(GOLDEN / "a-gap-in-the-trace"),), (str(GARBLED),)]
    assert len(QUESTIONS) == 5
    for name, schema in SCHEMAS.items():
        assert database.sql(f"from {name}").to_arrow_table().schema.names == schema.names
        assert name in help_text


def test_a_run_counts_once_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `histories/runs/*`, which matches the link `latest` too."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RUN, "runs/mine")
    Path("runs/latest").symlink_to("mine")
    database = tables.open([*(tmp_path / "runs").iterdir(), "runs/*", "runs/./mine/"])

    assert database.sql("select folder, count(*) from runs group by all").fetchall() == [("runs/mine", 1)]


def test_what_is_no_run_is_an_error_unless_others_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        tables.open(tmp_path / "nothing")
    with pytest.raises(FloodmarkError, match=r"no run can be read: .*: it has no run\.json"):
        tables.open(tmp_path)
    told = tables.open([RUN, tmp_path]).sql("select run, folder from reasons").fetchall()
    assert told == [(1, str(tmp_path))]


def test_query_prints_and_writes(tmp_path: Path) -> None:
    asked = "select type, count(*) as n, sum(value) as total from sends group by all order by type"
    files = {name: tmp_path / f"rows.{name}" for name in ("csv", "json", "parquet")}
    written = floodmark("query", RUN, asked, *(word for pair in files.items()
                                               for word in (f"--{pair[0]}", pair[1])))
    printed = floodmark("query", RUN, asked)

    assert printed.out == "type    n  total\n------- -- -----\ninvoke  6  15\nok      6  15\n"
    assert (printed.code, written.code, written.out) == (0, 0, "")
    assert files["csv"].read_text() == "type,n,total\ninvoke,6,15\nok,6,15\n"
    assert json.loads(files["json"].read_text().splitlines()[0]) == {"type": "invoke", "n": 6, "total": 15}
    assert files["parquet"].read_bytes().startswith(b"PAR1")
    assert floodmark("query", RUN, asked, "--csv", "-").out == files["csv"].read_text()


def test_a_sum_is_exact_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with more digits than a DOUBLE has, of a column with a quote in its name; so has the place."""
    scratch = tmp_path / "it's"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    exact, parquet = (1 << 53) + 1, tmp_path / "rows.parquet"
    asked = f"""select sum({exact}::bigint) as "a ""sum" """

    assert floodmark("query", RUN, asked, "--json", "-").out == f'{{"a \\"sum":{exact}}}\n'
    assert floodmark("query", RUN, asked, "--csv", "-").out.endswith(f"\n{exact}\n")
    assert floodmark("query", RUN, asked, "--parquet", parquet).code == 0
    assert pq.read_table(parquet).to_pylist() == [{'a "sum': exact}]


@pytest.mark.parametrize(("words", "code", "told"), [
    ((RUN, "select * from ops"), 2, "The tables are active_brokers, answers,"),
    ((RUN, "select 1,\n2 3 from sends"), 2, "LINE 2"),
    ((RUN, GARBLED), 2, "the last argument must be a SELECT, in quotes"),
    (("/nothing", "select 1"), 2, "/nothing does not exist"),
    ((ROOT / "docker" / "kafka", "select 1"), 4, "no run can be read"),
])
def test_query_says_what_is_wrong(words: tuple[Any, ...], code: int, told: str) -> None:
    answer = floodmark("query", *words)

    assert (answer.code, answer.out) == (code, "")
    assert told in answer.err


@pytest.mark.spark
def test_spark_reads_the_same_rows(tmp_path: Path) -> None:
    """Of tables of all kinds: lines of each file, and what follows from a whole run; of what is no run the
    reason. A table of a file that no run has is empty: PySpark plans a partition of its own where a source
    has none, and asks the source to read that."""
    from pyspark.sql import SparkSession

    from floodmark.checkers.spark import session

    session.context()
    spark = SparkSession.builder.getOrCreate()
    tables.register(spark)
    paths, untraced = [str(RUN), str(GOLDEN / "a-g*"), str(tmp_path)], str(GOLDEN / "a-kill-loses-the-tail")
    asked = dict.fromkeys(("sends", "lines", "entries", "trace", "partitions", "reasons"), paths)
    for name, of in (*asked.items(), ("trace", [untraced])):
        database = tables.open(of)
        read = spark.read.format("floodmark").option("table", name).load(of)
        assert read.columns == SCHEMAS[name].names
        rows = [str(row.asDict(recursive=True)) for row in read.collect()]
        here_too = database.sql(f"from {name}").to_arrow_table().to_pylist()
        assert sorted(rows) == sorted(map(str, here_too))
    with pytest.raises(Exception, match=r"option table: 'ops' is none of sends, reads"):
        spark.read.format("floodmark").option("table", "ops").load(paths).count()
