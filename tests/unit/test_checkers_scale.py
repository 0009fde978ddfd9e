"""As many jumps, falls and records as there are: looked up in a sort, not held against one another."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from checkers import polls, session
from checkers.findings import UNCLEAN

pytestmark = pytest.mark.spark
MANY = 100_000  # their product is hours of work
LIMIT_S = 240  # seconds of work on an idle machine, where each is looked up


@contextmanager
def limited() -> Iterator[SparkSession]:
    """A session whose jobs are cancelled, and fail, when they take too long."""
    spark = session.session(0)
    session.suit(spark, 0)
    timer = threading.Timer(LIMIT_S, spark.sparkContext.cancelAllJobs)
    timer.start()
    try:
        yield spark
    finally:
        timer.cancel()


def test_jumps_and_the_records_that_they_pass_over() -> None:
    """Each of many jumps passes over one record; every other poll shows it in itself."""
    with limited() as spark:
        jumps = spark.range(MANY).selectExpr(
            "1 as run", "'' as name", "3L as process", "0L as partition", "2 * id + 2 as offset",
            "2 * id as seen", "7L as value", "id + 1 as index", "id as last_index", "false as sub",
            "cast(null as int) as pos", "0L as bottom",
        )  # fmt: skip
        values = spark.range(2 * MANY).selectExpr(
            "1 as run", "0L as partition", "true as known", "false as compacted", "false as weak_acks",
            "array(id) as live", "array(id) as read_at", "id as ack",
        )  # fmt: skip
        history = spark.range(0, MANY, 2).selectExpr(
            "1 as run", "3L as process", "0L as partition", "'read' as kind", "'ok' as type",
            "2 * id + 1 as offset", "id + 1 as index",
        )  # fmt: skip
        skips = polls.skipped(jumps, values, history).select("seen").collect()
    assert sorted(row["seen"] for row in skips) == list(range(2, 2 * MANY, 4))


def test_ends_that_fall_and_the_records_that_were_lost() -> None:
    """Each of many ends falls below one record; every other of these was lost with leave."""
    with limited() as spark:
        falls = spark.range(MANY).selectExpr(
            "1 as run", "'end' as name", "3L as process", "0L as partition", "id as offset", "id + 1 as seen",
            "cast(null as bigint) as value", "id as index", "cast(null as bigint) as last_index",
            "false as sub", "cast(null as int) as pos",
        )  # fmt: skip
        values = spark.range(MANY).selectExpr(
            "1 as run", "0L as partition", "false as repeated", "true as known",
            f"if(id % 2 = 0, {UNCLEAN}, null) as cause", "array(id) as read_at", "array(id) as acks",
            "id as ack",
        )  # fmt: skip
        found = polls.told(falls, values).select("name", "offset", "by").collect()
    assert {row["name"] for row in found} == {"end-offset-regressed"}
    assert sorted((row["offset"], row["by"]) for row in found) == [
        (at, None if at % 2 else UNCLEAN) for at in range(MANY)
    ]
