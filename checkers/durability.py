"""What the cluster promised about records: none lost, none made up, none shown that failed, none twice.

Row checks over the values (values.py), and two that look at offsets.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers import names
from checkers.agreement import named
from checkers.findings import ACKS, DOUBT, ISOLATION, RETRIES, finding, spread, together

_SEND = "array_distinct(array_compact(array(invoked, done)))"
# An ack that the leader's log does not bear out is a lost write, and no second copy.
_TOLD_AT = "if(ack is null or (lost_judged and lost), read_at, array_union(read_at, array(ack)))"
_ALL = "array_distinct(array_compact(array(invoked, done, read_by)))"


def by_value(values: DataFrame, entries: DataFrame, *, by_reads: bool) -> DataFrame:
    """All findings that the values give. `by_reads`: of some partition reads alone show what is lost."""
    rows = values.select(
        "*",
        *named(
            places=f"array_sort(if(size(live) > 1, live, {_TOLD_AT}))",
            standing="exists(live, o -> o < stable)",
            in_sight="filter(held, o -> o >= log_start and o < readable and (ack is null or o = ack))",
        ),
    )
    return together(
        [
            spread(rows, unseen(), duplicate(), phantom(), g1a(), *([perhaps_lost()] if by_reads else [])),
            lost_write(values, entries),
            saw_then_lost(values),
            inconsistent_offsets(values),
        ],
        small=False,
    )


def unseen() -> Column:
    """An ok send in the leader's log below what a reader may see, which no final read returned."""
    return finding(
        names.UNSEEN,
        "type = 'ok' and unseen_judged and not final and not repeated and size(in_sight) > 0",
        offset="array_min(in_sight)",
        value="value",
        ops=_SEND,
        nodes="nodes",
    )


def perhaps_lost() -> Column:
    """Without the leader's log: an ok send that no final read returned, and nothing shows to be lost."""
    return finding(
        names.LOST_WRITE,
        "in_doubt and by_final_reads and type = 'ok' and not repeated and not final and not lost "
        "and size(held) = 0",
        offset="ack",
        value="value",
        nodes="nodes",
        ops=_SEND,
        by=str(DOUBT),
    )


def duplicate() -> Column:
    """One value at two offsets of the leader's final log, or of what clients were told: of reads and its own
    ack, unless that is told as a lost write."""
    return finding(
        names.DUPLICATE,
        "not repeated and size(places) > 1",
        offset="places[0]",
        seen="places[1]",
        value="value",
        by=f"coalesce(cause, if(retried, {RETRIES}, null))",
        nodes="nodes",
        ops=_ALL,
    )


def phantom() -> Column:
    """A value read or logged that nobody sent to that partition."""
    return finding(
        names.PHANTOM,
        "sent = 0 and (size(read_at) > 0 or size(nodes) > 0)",
        offset="coalesce(array_min(read_at), array_min(held))",
        value="value",
        nodes="nodes",
        ops="array_compact(array(read_by))",
    )


def g1a() -> Column:
    """A value whose send failed for certain was read, or stands committed in the leader's log. What stands at
    or above the last stable offset is undecided: the answer may have come before the marker."""
    return finding(
        names.G1A,
        "type = 'fail' and not repeated and (size(read_at) > 0 or standing)",
        offset="coalesce(array_min(read_at), array_min(live))",
        value="value",
        nodes="nodes",
        ops=_ALL,
        by=f"if(uncommitted and not coalesce(standing, false), {ISOLATION}, null)",
    )


def lost_write(values: DataFrame, entries: DataFrame) -> DataFrame:
    """An ok send whose record is not in the leader's final log at its offset, and where it is instead;
    without that log, one that reads show to be lost."""
    leaders = (
        entries.where("leads")
        .groupBy("run", "partition", F.col("offset").alias("ack"))
        .agg(F.max("value").alias("instead"), F.lit(True).alias("taken"))
    )
    lost = values.where("lost and type = 'ok'").join(leaders, ["run", "partition", "ack"], "left")
    how = (
        "case when unread then 'unread' when size(held) > 0 then 'moved' when taken then 'overwritten' "
        "when others > 0 then 'orphaned' else 'gone' end"
    )
    return spread(
        lost,
        finding(
            names.LOST_WRITE,
            "true",
            offset="ack",
            value="value",
            how=how,
            nodes="nodes",
            ops=_SEND,
            by=f"if(weak_acks, {ACKS}, cause)",
            seen="if(unread, beyond, coalesce(array_min(held), instead))",
        ),
    )


def saw_then_lost(values: DataFrame) -> DataFrame:
    """An offset was read with a value that the leader's final log does not hold there."""
    away = F.expr("filter(read_at, o -> o >= log_start and not array_contains(held, o))")
    seen = values.where("lost_judged and size(read_at) > 0").select("*", F.explode(away).alias("was_at"))
    return spread(
        seen,
        finding(
            names.SAW_THEN_LOST,
            "true",
            offset="was_at",
            value="value",
            nodes="nodes",
            by="cause",
            ops="array_compact(array(done, read_by))",
        ),
    )


def inconsistent_offsets(values: DataFrame) -> DataFrame:
    """One offset showed two values to clients: acks of ok sends and reads."""
    places = values.select(
        "run",
        "partition",
        "value",
        "excuse",
        *named(
            op="least(done, read_by)",
            offset="explode(array_union(read_at, array_compact(array(if(repeated, null, ack)))))",
        ),
    )
    two = places.groupBy("run", "partition", "offset").agg(
        *named(value="min(value)", seen="max(value)", excuse="min(excuse)", ops="array_sort(collect_set(op))")
    )
    return spread(
        two,
        finding(
            names.INCONSISTENT_OFFSETS,
            "value != seen",
            offset="offset",
            value="value",
            seen="seen",
            ops="ops",
            by="excuse",
        ),
    )
