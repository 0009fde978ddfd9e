"""What consumers were shown, in which order: nonmonotonic polls, polls that skip, end offsets that fall.

A position is that of the last ok poll of the process and partition; an assign or subscribe forgets those it
does not keep, a completed crash forgets all. Fail and info polls are looked at and move nothing. The reads
of a poll or transaction stand in the order in which they were returned. Nothing is claimed below the final
log start. A jump is a skip if a record of ours that is not aborted lies strictly between and no ok or info
poll of the process has shown it since, up to and with the poll that jumped; what a failed poll showed was
given back.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers import names
from checkers.agreement import named
from checkers.facts import Facts
from checkers.findings import PERMITTED_BY, SUBSCRIBE, finding, spread, together
from checkers.frames import Frames

_PAST = Window.unboundedPreceding


def by_read(frames: Frames, values: DataFrame, facts: Facts) -> DataFrame:
    """All findings about polls and end offsets."""
    history = frames.history.where("whole and not bad and process >= 0")
    if facts.overlapping is not None:
        history = history.join(facts.overlapping, ["run", "process"], "left_anti")
    steps = together(
        [inside(frames.history.where("whole and kind = 'read'")), across(history)], facts.small
    )
    started = facts.partitions.select("run", "partition", "bottom")
    odd = (
        steps.where("offset <= seen or offset > seen + 1")
        .join(started, ["run", "partition"], "left")
        .where("offset >= coalesce(bottom, 0)")
    )
    back = odd.where("offset <= seen").select(*_STEP)
    jumps = odd.where("offset > seen + 1")
    skips = skipped(jumps, values, frames.history)
    ends = ends_fall(history).select(*_STEP)
    return told(together([back, skips, ends], facts.small), values)


# pos tells apart steps inside one op; sub: the process's last assign or subscribe was a subscribe.
_STEP = (
    "run",
    "name",
    "process",
    "partition",
    "offset",
    "seen",
    "value",
    "index",
    "last_index",
    "sub",
    "pos",
)
# Where a record of ours is for certain. What was acked or read may have been compacted away before the poll,
# and of a partition that run.json does not name nobody knows whether it is compacted. An ack of acks other
# than all promised nothing that a reader could be shown.
_STANDING = """case when known then live when coalesce(compacted, true) then array()
    when ack is null or weak_acks then read_at else array_union(read_at, array(ack)) end"""
_WAS_AT = """case when repeated then array_union(read_at, acks) when ack is null then read_at
    else array(ack) end"""
_MOVES = "type = 'ok' and f in ('assign', 'subscribe')"
_CRASHES = "f = 'crash' and type != 'invoke'"


def inside(reads: DataFrame) -> DataFrame:
    """Each read of an op with the one before of the same partition."""
    op = Window.partitionBy("run", "block", "at", "partition").orderBy("pos")  # an index may lie
    steps = reads.select("*", F.lag("offset").over(op).alias("seen"), *named(last_index="index"))
    return steps.select(*named(**{name: name for name in _STEP} | {"name": "'int'", "sub": "false"}))


def across(history: DataFrame) -> DataFrame:
    """The first read of each op with the last of the last ok op before, where the position was kept: as many
    moves of the process since as moves that kept the partition."""
    mine = Window.partitionBy("run", "process", "partition").orderBy("index")
    counted = polled(history).select(
        "*", F.count_if(F.col("kept")).over(mine.rowsBetween(_PAST, 0)).alias("keeps")
    )
    position = F.max(F.expr("if(reads and ok, struct(index, last, moved, keeps), null)"))
    steps = counted.select("*", position.over(mine.rowsBetween(_PAST, -1)).alias("before")).where(
        "reads and before is not null and moved - before.moved = keeps - before.keeps"
    )
    told = {"name": "''", "offset": "first.offset", "seen": "before.last", "value": "first.value"}
    told |= {"last_index": "before.index", "sub": "coalesce(last_move = 'subscribe', false)"}
    told |= {"pos": "cast(null as int)"}
    return steps.select(*named(**{name: name for name in _STEP} | told))


def polled(history: DataFrame) -> DataFrame:
    """One row a (process, partition, op) that reads the partition or goes on holding it: its first and last
    read, and how often the process had moved by then, and by what the last time."""
    process = Window.partitionBy("run", "process").orderBy("index").rangeBetween(_PAST, 0)
    moves = F.count_if(F.expr(f"kind = 'line' and ({_MOVES} or {_CRASHES})")).over(process)
    last_move = F.max(F.expr(f"if(kind = 'line' and {_MOVES}, struct(index, f), null)")).over(process)
    rows = history.where(
        "kind = 'read' or (type != 'invoke' and (kind = 'held' or f in ('crash', 'assign', 'subscribe')))"
    ).select(
        *("run", "process", "partition", "kind", "index", "type", "offset", "value"),
        F.col("pos").alias("place"),
        moves.alias("moved"),
        last_move["f"].alias("last_move"),
    )
    return (
        rows.where("partition is not null")
        .groupBy("run", "process", "partition", "index")
        .agg(
            *named(
                kept="max(kind = 'held' and type = 'ok')",
                reads="max(kind = 'read')",
                ok="max(type = 'ok')",
                moved="max(moved)",
                last_move="max(last_move)",
                first="min(if(kind = 'read', struct(place, offset, value), null))",
                last="max(if(kind = 'read', struct(place, offset), null)).offset",
            )
        )
    )


def skipped(jumps: DataFrame, values: DataFrame, history: DataFrame) -> DataFrame:
    """The jumps that passed over a record of ours which no ok or info poll of the process has shown since:
    over more records than the op itself shows of them. (Since its last ok poll a process has no info poll:
    it asks nothing after one.) Records are counted, not paired with jumps, of which there may be as many."""
    standing = values.select("run", "partition", *named(place=f"explode({_STANDING})")).distinct()
    spans = jumps.select(*_STEP, *named(low="greatest(seen, coalesce(bottom, 0) - 1)"))
    over = between(spans, standing, ("run", "partition"), "passed").where("passed > 0")
    mine = "run", "process", "partition", "index"
    shown = (
        history.where("kind = 'read' and type != 'fail'")
        .select("run", "process", "partition", F.col("offset").alias("place"), "index")
        .distinct()
        .join(standing, ["run", "partition", "place"], "left_semi")
    )
    return between(over, shown, mine, "shown").where("passed > shown").select(*_STEP)


def between(spans: DataFrame, points: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
    """The spans, each once, with how many points of their keys lie above `low` and below `offset`, in one
    sort of all ends and points together."""
    span = F.struct(*spans.columns).alias("span")
    ends = spans.select(*keys, span, F.explode(F.expr("array(low + 1, offset)")).alias("place"))
    none = F.lit(None).cast(ends.schema["span"].dataType).alias("span")
    below = Window.partitionBy(*keys).orderBy("place").rangeBetween(_PAST, -1)
    counted = ends.unionAll(points.select(*keys, none, "place")).select(
        "*", F.count_if(F.col("span").isNull()).over(below).alias("below")
    )
    told = counted.where("span is not null").groupBy("span").agg(
        (F.max("below") - F.min("below")).alias(name)
    )
    return told.select("span.*", name)


def ends_fall(history: DataFrame) -> DataFrame:
    """End offsets below one told before to the same client, or below what it had read + 1."""
    before = Window.partitionBy("run", "process", "partition").orderBy("index").rangeBetween(_PAST, -1)
    rows = history.where("kind = 'read' or (kind = 'end' and type = 'ok')").select(
        "*",
        F.max(F.expr("if(kind = 'end', struct(index, offset), null)")).over(before).alias("told"),
        F.max(F.expr("if(kind = 'read', offset + 1, null)")).over(before).alias("read"),
    )
    told = {"name": "'end'", "seen": "greatest(told.offset, read)", "value": "cast(null as bigint)"}
    told |= {"last_index": "told.index", "sub": "false", "pos": "cast(null as int)"}
    fell = rows.where("kind = 'end' and offset < greatest(told.offset, read)")
    return fell.select(*named(**{name: name for name in _STEP} | told))


def told(steps: DataFrame, values: DataFrame) -> DataFrame:
    """The findings, permitted where a record lost with leave was where the step fell below or passed over.
    Nothing excuses what one poll shows in itself, unless it passed over what only acks and reads proved. Of
    each cause the next such record at or above the lowest offset concerned is looked up, in one sort of all
    steps and records together."""
    gone = values.where("cause is not null").select(
        "run",
        "partition",
        *named(cause="cause", logless="coalesce(not known, true)", place=f"explode({_WAS_AT})"),
    )
    once = steps.distinct().select("*", F.expr("if(offset <= seen, offset, seen + 1)").alias("place"))
    none = {name: F.lit(None).cast(kind).alias(name) for name, kind in once.dtypes}
    own = {"run", "partition", "place"}
    records = gone.select(*(name if name in own else none[name] for name in once.columns), "cause", "logless")
    both = once.select("*", *named(cause="cast(null as int)", logless="cast(null as boolean)")).unionByName(
        records
    )
    above = Window.partitionBy("run", "partition").orderBy(F.col("place").desc()).rangeBetween(_PAST, 0)
    places = {by: F.min(F.expr(f"if(cause = {by}, place, null)")).over(above) for by in PERMITTED_BY}
    logless = F.max("logless").over(above)  # of one partition all records say the same
    following = both.select(
        *once.columns, logless.alias("logless"), *(place.alias(f"next_{by}") for by, place in places.items())
    )
    end = "case when name = 'end' then seen when offset <= seen then seen + 1 else offset end"
    causes = ", ".join(f"if(next_{by} < {end}, {by}, null)" for by in PERMITTED_BY)
    bare = "name = 'int' and (offset <= seen or not coalesce(logless, false))"
    lost_by = f"if({bare}, null, least({causes}))"
    return spread(
        following.where("name is not null").select(*_STEP, F.expr(lost_by).alias("lost_by")), *rows_of()
    )


def rows_of() -> list[Column]:
    """Each kind of step under its name."""
    lost = f"least(lost_by, if(sub, {SUBSCRIBE}, null))"
    laws = {
        names.NONMONOTONIC_POLL: "name = '' and offset <= seen",
        names.POLL_SKIP: "name = '' and offset > seen",
        names.INT_NONMONOTONIC_POLL: "name = 'int' and offset <= seen",
        names.INT_POLL_SKIP: "name = 'int' and offset > seen",
        names.END_OFFSET_REGRESSED: "name = 'end'",
    }
    return [
        finding(
            name,
            law,
            offset="offset",
            value="value",
            seen="seen",
            process="process",
            by=lost,
            ops="array_distinct(array_compact(array(last_index, index)))",
        )
        for name, law in laws.items()
    ]
