"""Whether the replicas' logs agree, and whether each is a log at all.

What is said of an offset across replicas (diverged, under-replicated, two records under one epoch) is one
finding an offset; what is said of one log (epochs that fall, a wrong cache, a malformed dump) is one finding
a place of it.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers import names
from checkers.facts import Facts
from checkers.findings import finding, kept, spread
from checkers.frames import Frames


def placed_entries(frames: Frames, facts: Facts) -> DataFrame:
    """The good entries of replicas (those of stray copies, which have no row of facts, are left out) in file
    order, with the entry before, what their replica's row says, and fingerprints:
    `record` is what one (epoch, offset) names, `tuple` what two replicas must agree on; `compared`: below
    the bound to which this replica must agree with others (with one outside the ISR, not where data was
    lost)."""
    entries = frames.entries.where("not bad").join(facts.replicas, ["run", "node", "partition"])
    log = Window.partitionBy("run", "node", "partition").orderBy("block", "at")
    before = log.rowsBetween(Window.unboundedPreceding, -1)
    return kept(
        entries.select(
            "run",
            "node",
            "partition",
            "offset",
            "epoch",
            "value",
            "crc_ok",
            *named(
                aborted="coalesce(aborted, false)",
                leads="coalesce(leads, false)",
                compact="coalesce(compact, false)",
                whole="coalesce(whole, false)",
                record="xxhash64(value, if(compact, null, crc))",
                tuple="xxhash64(epoch, value, if(compact, null, crc))",
                compared="coalesce(settled or (offset < hw and (in_isr or not struck)), false)",
                said="if(epoch < 0 or cache is null, null, coalesce(array_max(filter(cache, c -> c.start <= "
                "offset)).epoch, -1))",
            ),
            F.lag("offset").over(log).alias("last_offset"),
            F.max(F.when(F.col("epoch") >= 0, F.struct("block", "at", "epoch")))
            .over(before)["epoch"]
            .alias("last_epoch"),
        )
    )


def named(**told: str) -> list[Column]:
    """SQL expressions by the names they get."""
    return [F.expr(expression).alias(name) for name, expression in told.items()]


# -- what an offset must be across replicas -----------------------------------------------------------------


def by_offset(entries: DataFrame, facts: Facts) -> DataFrame:
    """diverged, under-replicated, and (epoch, offset)s that name two records."""
    together = entries.groupBy("run", "partition", "offset").agg(
        *named(
            held="collect_list(if(compared, struct(node, tuple), null))",
            least="min(if(compared, tuple, null))",
            most="max(if(compared, tuple, null))",
            records="array_distinct(collect_list(if(epoch >= 0, struct(epoch, record), null)))",
            holders="collect_list(struct(node, epoch))",
            leaders="max(if(leads and compared, tuple, null))",
            value="max(if(leads, value, null))",
            led="max(leads)",
        )
    )
    expected = facts.partitions.select("run", "partition", "members", "hw", "log_start")
    told = together.join(expected, ["run", "partition"], "left").select(
        "*",
        *named(
            right="coalesce(leaders, array_min(held).tuple)",
            lacking="filter(members, m -> m.log_start <= offset "
            "and not exists(holders, h -> h.node = m.node)).node",
            torn="filter(array_distinct(records.epoch), e -> size(filter(records, r -> r.epoch = e)) > 1)",
        ),
    )
    return spread(told, diverged(), under_replicated()).unionAll(two_records(told))


def diverged() -> Column:
    """Two replicas hold different (epoch, value, crc) at one offset where they must agree."""
    return finding(
        names.DIVERGED,
        "least != most",
        offset="offset",
        value="value",
        nodes="array_sort(array_distinct(filter(held, h -> h.tuple != right).node))",
    )


def under_replicated() -> Column:
    """An ISR member holds nothing at an offset that the leader holds below its HW."""
    return finding(
        names.UNDER_REPLICATED,
        "led and offset < hw and offset >= log_start and size(lacking) > 0",
        offset="offset",
        value="value",
        nodes="lacking",
    )


def two_records(told: DataFrame) -> DataFrame:
    """One (epoch, offset) that names two records."""
    rows = told.where("size(torn) > 0").select("*", F.explode("torn").alias("epoch"))
    return spread(
        rows,
        finding(
            names.EPOCH_LINEAGE,
            "true",
            offset="offset",
            value="value",
            how="'two records'",
            seen="epoch",
            nodes="array_sort(array_distinct(filter(holders, h -> h.epoch = epoch).node))",
        ),
    )


# -- what a log must be
# ---------------------------------------------------------------------------------------


def by_log(entries: DataFrame, facts: Facts) -> DataFrame:
    """Epochs that fall, caches that are wrong, steps of a dump that are none, bounds that contradict the
    entries."""
    steps = spread(entries, epochs_fall(), cache_says_otherwise(), *out_of_step(), damaged_bytes())
    ends = entries.groupBy("run", "node", "partition").agg(
        F.min("offset").alias("first"), F.max("offset").alias("end")
    )
    logs = facts.replicas.join(ends, ["run", "node", "partition"], "left")
    above = logs.select("run", "node", "partition", "leo", F.explode("cache").alias("entry"))
    return steps.unionAll(spread(logs, *bounds_contradict())).unionAll(spread(above, cache_above_leo()))


def epochs_fall() -> Column:
    return finding(
        names.EPOCH_LINEAGE,
        "epoch >= 0 and epoch < last_epoch",
        offset="offset",
        value="value",
        how="'falls'",
        nodes="array(node)",
        seen="last_epoch",
    )


def cache_says_otherwise() -> Column:
    """A record whose epoch is not what the leader-epoch cache says of its offset."""
    return finding(
        names.EPOCH_LINEAGE,
        "said != epoch",
        offset="offset",
        value="value",
        how="'cache'",
        nodes="array(node)",
        seen="said",
    )


def cache_above_leo() -> Column:
    """A cache entry that starts above LEO; one at LEO is an epoch in which nothing was written yet."""
    return finding(
        names.EPOCH_LINEAGE,
        "entry.start > leo",
        offset="entry.start",
        how="'cache above LEO'",
        nodes="array(node)",
        seen="entry.epoch",
    )


def out_of_step() -> list[Column]:
    """An offset that does not follow the one before. A gap is none where lines are missing or compaction
    makes them."""
    laws = {
        "doubled": "offset = last_offset",
        "disordered": "offset < last_offset",
        "gap": "offset > last_offset + 1 and whole and not compact",
    }
    return [
        finding(
            names.MALFORMED_LOG,
            law,
            offset="offset",
            value="value",
            how=f"'{how}'",
            nodes="array(node)",
            seen="last_offset",
        )
        for how, law in laws.items()
    ]


def damaged_bytes() -> Column:
    return finding(
        names.MALFORMED_LOG,
        "crc_ok = false",
        offset="offset",
        value="value",
        how="'crc'",
        nodes="array(node)",
    )


def bounds_contradict() -> list[Column]:
    """HW above the LEO of a running node; LEO or log_start that are not where the entries end or begin (of a
    dump that lacks lines, or a compacted one: entries outside of them)."""
    laws = {
        "hw": ("running and hw > leo", "leo", "hw"),
        "leo": (
            "leo <= end or (whole and not compact and leo != coalesce(end + 1, log_start))",
            "leo",
            "end",
        ),
        "log_start": (
            "first < log_start or (whole and not compact and first != log_start)",
            "log_start",
            "first",
        ),
    }
    return [
        finding(names.MALFORMED_LOG, law, offset=offset, how=f"'{how}'", nodes="array(node)", seen=seen)
        for how, (law, offset, seen) in laws.items()
    ]
