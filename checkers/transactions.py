"""What transactions read and wrote, as frames: reads of an op's own sends, and the edges between ops.

Rules
1. Only sends, polls and transactions take part, only lines that are not bad, and no value that was sent more
   than once.
2. A line is known by where it stood (`at`), for a history that breaks its table may have an index twice. The
   pairing of invocations and completions goes with the lines; edges are between lines, and those who look at
   the graph make ops of them.
3. A completion belongs to the invocation of its process that names the same sends; without sends to the line
   before it, where nothing else of the process was open. Otherwise nobody can say when it was invoked.
4. The version order of a partition is that of the offsets which acks of ok sends and reads prove; one that
   showed two values is left out. A send that failed for certain keeps its place there and is nobody's.

edges: run kind x y partition offset value. Of an edge x and y are lines; the record is the one that was read
       (WR), the earlier one (WW), the last one before the next version (RW, which has no value). Of a line
       (kind >= LINE, which tells its type and f as well) x is the line, y its invocation, and the others are
       the index of its invocation, its own and its process.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers import names
from checkers.agreement import named
from checkers.facts import Facts
from checkers.findings import ISOLATION, finding, gathered, kept, spread, together
from checkers.frames import TYPES, Frames

WR, WW, RW, LINE = 0, 1, 2, 16
FS = ("send", "poll", "txn")
_OURS = "('send', 'poll', 'txn')"
_PAST = Window.unboundedPreceding
_ROW = {
    "run": "int",
    "kind": "tinyint",
    "x": "bigint",
    "y": "bigint",
    "partition": "bigint",
    "offset": "bigint",
    "value": "bigint",
}


# -- runs without transactions ------------------------------------------------------------------------------


def read_too_early(values: DataFrame, facts: Facts) -> DataFrame:
    """Of runs without a transaction: a value that was read before its send was invoked, by its own sender or,
    if that did not, by the first who read it."""
    early = values.where(
        "read_by < invoked and not repeated and coalesce(type, 'info') != 'fail' "
        f"and not {among(facts.transactional)}"
    )
    mine = "coalesce(own_read < invoked, false)"
    if facts.overlapping is not None:
        alone = facts.overlapping.select(
            "run", F.col("process").alias("sender"), F.lit(True).alias("overlaps")
        )
        early, mine = early.join(alone, ["run", "sender"], "left"), f"({mine} and overlaps is null)"
    told = {
        "offset": "array_min(read_at)",
        "value": "value",
        "process": f"if({mine}, sender, reader)",
        "ops": f"array_compact(array(invoked, done, if({mine}, own_read, read_by)))",
        "by": f"if(uncommitted, {ISOLATION}, null)",
    }
    return spread(
        early, finding(names.G1C_PROCESS, mine, **told), finding(names.G1C_REALTIME, f"not {mine}", **told)
    )


def among(runs: Sequence[int]) -> str:
    """The row is of one of these runs."""
    return f"run in ({', '.join(map(str, runs))})" if runs else "false"


# -- runs with transactions ---------------------------------------------------------------------------------


def items_of(frames: Frames, runs: Sequence[int], repeated: Sequence[int]) -> DataFrame:
    """Sends and reads of these runs; some of those in `repeated` have sent values more than once."""
    items = frames.history.where(
        f"{among(runs)} and kind in ('send', 'read') and not bad and process >= 0 and f in {_OURS} "
        "and not (kind = 'read' and type = 'invoke')"
    )
    if not repeated:
        return items
    asked = items.where(f"{among(repeated)} and kind = 'send' and type = 'invoke'")
    twice = asked.groupBy("run", "value").agg(F.count("*").alias("n")).where("n > 1")
    return items.join(twice.select("run", "value"), ["run", "value"], "left_anti")


def fates_of(items: DataFrame) -> DataFrame:
    """One row a (run, partition, value): its invocation (asked), its first completion (told), who wrote it
    (writer, a line), at which offsets it was proven to be (places), who read it (reads), and the first line
    that both sends and reads it (own)."""
    rows = items.groupBy("run", "partition", "value").agg(
        *named(
            asked="min(if(kind = 'send' and type = 'invoke', struct(block, at, index), null))",
            told="min(if(kind = 'send' and type != 'invoke', "
            "struct(block, at, pos, index, type, offset), null))",
            reads="collect_list(if(kind = 'read', struct(at, offset), null))",
            answers="collect_list(if(kind = 'send' and type != 'invoke' and f = 'txn', "
            "struct(block, at, index, process), null))",
        )
    )
    acked = "if(told.type = 'ok' and told.offset is not null, array(told.offset), array())"
    return kept(
        rows.select(
            "*",
            *named(
                writer="if(coalesce(told.type, 'info') = 'fail', null, coalesce(asked.at, told.at))",
                places=f"array_union(reads.offset, {acked})",
                own="array_min(filter(answers, a -> exists(reads, r -> r.at = a.at)))",
            ),
        )
    )


def precommitted(fates: DataFrame, uncommitted: Sequence[int]) -> DataFrame:
    """Transactions that read what they themselves send: one finding an op, of the lowest place."""
    ops = fates.where("own is not null").groupBy("run", F.expr("own.at").alias("at")).agg(
        *named(
            first="min(struct(partition, "
            "array_min(filter(reads, r -> r.at = own.at).offset) as offset, value))",
            invoked="min(asked.index)",
            done="min(own.index)",
            process="min(own.process)",
        )
    )
    return spread(
        ops.select("*", F.expr("first.partition").alias("partition")),
        finding(
            names.PRECOMMITTED_READ,
            "true",
            offset="first.offset",
            value="first.value",
            process="process",
            ops="array_compact(array(invoked, done))",
            by=f"if({among(uncommitted)}, {ISOLATION}, null)",
        ),
    )


def edges_of(frames: Frames, items: DataFrame, fates: DataFrame, runs: Sequence[int]) -> DataFrame:
    """The frame described above."""
    small = frames.small
    read = fates.where("writer is not null").select(
        "run", "partition", "value", "writer", *named(r="explode(reads)")
    )
    wr = row_of(read, kind=WR, x="writer", y="r.at", offset="r.offset", value="value")
    return together([wr, *versions(items, fates, small), lines_of(frames, runs)], small)


def versions(items: DataFrame, fates: DataFrame, small: bool) -> list[DataFrame]:
    """The WW and RW edges: each record, and each op's last read of a partition, with the next record."""
    shown = fates.select("run", "partition", "value", "writer", *named(offset="explode(places)"))
    places = (
        shown.groupBy("run", "partition", "offset")
        .agg(*named(value="min(value)", most="max(value)", writer="min(writer)"))
        .where("value = most")
        .select("run", "partition", "offset", "value", "writer", *named(reader="cast(null as bigint)"))
    )
    last = items.where("kind = 'read'").groupBy("run", "partition", F.col("at").alias("reader"))
    marks = last.agg(F.max("offset").alias("offset")).select(
        *("run", "partition", "offset"),
        *named(value="cast(null as bigint)", writer="cast(null as bigint)"),
        "reader",
    )
    # From the end, for a frame that runs to the end of its partition is worked out anew for each row.
    above = Window.partitionBy("run", "partition").orderBy(-F.col("offset")).rangeBetween(_PAST, -1)
    following = gathered(places.unionAll(marks), small).select(
        "*", F.min(F.expr("if(reader is null, struct(offset, writer), null)")).over(above).alias("next")
    )
    linked = following.where("next.writer is not null and coalesce(writer, reader) is not null")
    kind = f"if(reader is null, {WW}, {RW})"
    return [
        row_of(
            linked, kind=kind, x="coalesce(writer, reader)", y="next.writer", offset="offset", value="value"
        )
    ]


def row_of(rows: DataFrame, **told: str | int) -> DataFrame:
    """Rows of the frame of edges."""
    return rows.select(
        *(F.expr(str(told.get(name, name))).cast(kind).alias(name) for name, kind in _ROW.items())
    )


def lines_of(frames: Frames, runs: Sequence[int]) -> DataFrame:
    """The completions, each with its invocation; and the invocations with sends that were never completed."""
    process = Window.partitionBy("run", "process").orderBy("block", "at")
    alike = Window.partitionBy("run", "process", "f", "ident").orderBy("block", "at")
    line = F.struct("type", "f", "ident", "at", "index")
    lines = frames.history.where(f"{among(runs)} and kind = 'line' and not bad and process >= 0").select(
        *("run", "at", "index", "process", "type", "f", "ident"),
        F.lag(line).over(process).alias("last"),
        F.sum(F.expr("if(type = 'invoke', 1, -1)")).over(process.rowsBetween(_PAST, -1)).alias("open"),
        F.lag(line).over(alike).alias("mine"),
        F.lead("type").over(alike).alias("answer"),
        without_sends().alias("bare"),
    )
    paired = lines.where(
        f"f in {_OURS} and (type != 'invoke' or (not bare and coalesce(answer, 'invoke') = 'invoke'))"
    ).select(
        "*",
        *named(
            asked="""case when type = 'invoke' then struct(at, index)
                when not bare and mine.type = 'invoke' then struct(mine.at, mine.index)
                when last.type = 'invoke' and open = 1 and last.f = f
                    and (f = 'poll' or last.ident = ident) then struct(last.at, last.index) end"""
        ),
    )
    types, fs = (
        F.array_position(F.lit(list(words)), F.col(name)) - 1 for words, name in ((TYPES, "type"), (FS, "f"))
    )
    rows = paired.select("*", (F.lit(LINE) + types * len(FS) + fs).alias("kind"))
    told = {"x": "at", "y": "coalesce(asked.at, at)", "partition": "asked.index", "value": "process"}
    return row_of(rows, offset="if(type = 'invoke', null, index)", **told)


def without_sends() -> Column:
    """The line's fingerprint of sends is that of none."""
    none = F.lit(None).cast("array<bigint>")
    return F.col("ident") == F.xxhash64(none, none)
