"""Whether each log is one: its offsets, bytes and bounds (malformed-log), its epochs (epoch-lineage).

Every finding here is about one log alone, that of one replica; replicas.py holds the logs of a partition
against each other.

Tables made, besides those of tables.py:

    logs      a row a replica: log (a number for (run, node, partition)), and all columns of `replicas`
    placed    a row an entry of a replica; entries of a stray copy, which no replica row names, are left out:
              run, log, node, partition, at, offset, epoch, value, crc (null where compaction may have
              rewritten the batch), crc_ok, aborted, leads (of the final leader's log), compact,
              compared (this replica must agree here with the others that must)
    missteps  the entries that do not follow the one before them in their dump
"""

from checkers.laws import finding_names as names
from checkers.laws.unit import Unit


def log(unit: Unit) -> None:
    unit.make("logs", "select row_number() over () as log, * from replicas")
    unit.make("placed", PLACED)
    unit.make("missteps", MISSTEPS)
    for how, broken in STEPS.items():
        unit.find(names.MALFORMED_LOG, step(how, broken))
    unit.find(names.MALFORMED_LOG, DAMAGED_BYTES)
    for how, bound in BOUNDS.items():
        unit.find(names.MALFORMED_LOG, bounds_contradict(how, *bound))
    unit.find(names.EPOCH_LINEAGE, EPOCHS_FALL)
    unit.find(names.EPOCH_LINEAGE, CACHE_SAYS_OTHERWISE)
    unit.find(names.EPOCH_LINEAGE, CACHE_ABOVE_LEO)


# What settled must agree to the end. Before that nothing above a HW is final; and a replica outside the ISR
# may keep, below its HW, what data loss or an unclean election took from the others.
PLACED = """
select e.run, log, e.node, e.partition, e."at", e."offset", e.epoch, e.value,
    case when not compact then e.crc end as crc, e.crc_ok, e.aborted, leads, compact,
    coalesce(settled or (e."offset" < hw and (in_isr or not struck)), false) as compared
from entries e join logs using (run, node, partition)
"""

# -- malformed-log ----------------------------------------------------------------------------------------

# Entries that do not follow the one before them in the dump: by offset, or by epoch. Records without an epoch
# (-1) take no part in the latter: neither do they fall, nor does one fall below them.
MISSTEPS = """
with steps as (
    select log, "offset", value, epoch, lag("offset") over dump as previous,
        lag(case when epoch >= 0 then epoch end ignore nulls) over dump as previous_epoch
    from placed window dump as (partition by log order by "at"))
select run, partition, node, "offset", value, epoch, previous, previous_epoch,
    complete and not compact as gapless
from steps join logs using (log)
where "offset" <= previous or "offset"::hugeint > previous::hugeint + 1
    or (epoch >= 0 and epoch < previous_epoch)
"""

# A gap is none where lines are missing or compaction makes them.
STEPS = {
    "doubled": '"offset" = previous',
    "disordered": '"offset" < previous',
    "gap": '"offset"::hugeint > previous::hugeint + 1 and gapless',
}


def step(how: str, broken: str) -> str:
    """An offset that does not follow the one before."""
    return f"""
        select run, partition, "offset", value, '{how}' as how, [node] as nodes, previous as seen
        from missteps where {broken}"""


DAMAGED_BYTES = """
select run, partition, "offset", value, 'crc' as how, [node] as nodes from placed where not crc_ok
"""

# What is wrong, the offset to name, the number beside it. A dump that lacks lines, or that was compacted,
# shows no more than entries outside of the bounds.
BOUNDS = {
    "hw": ("running and hw > leo", "leo", "hw"),
    "leo": (
        "leo <= last or (complete and not compact and leo <> coalesce(last::hugeint + 1, log_start))",
        "leo",
        "last",
    ),
    "log_start": (
        "first < log_start or (complete and not compact and first <> log_start)",
        "log_start",
        "first",
    ),
}


def bounds_contradict(how: str, broken: str, place: str, seen: str) -> str:
    """HW above the LEO of a running node; LEO or log_start that are not where the entries end or begin."""
    return f"""
        with ends as (select log, min("offset") as first, max("offset") as last from placed group by log)
        select run, partition, {place} as "offset", '{how}' as how, [node] as nodes, {seen} as seen
        from logs left join ends using (log) where {broken}"""


# -- epoch-lineage of one log -----------------------------------------------------------------------------

EPOCHS_FALL = """
select run, partition, "offset", value, 'falls' as how, [node] as nodes, previous_epoch as seen
from missteps where epoch >= 0 and epoch < previous_epoch
"""

# A record whose epoch is not what the leader-epoch cache says of its offset: the highest start at or below
# it (of two epochs with one start the higher), -1 below the first. `logs` has no cache where nothing is
# claimed of it: of a node that was not running, and under compaction. Most records lie in a span of their
# own epoch, which is one look into a hash table; what the cache says is looked up for the others alone.
CACHE_SAYS_OTHERWISE = """
with starts as (
        select log, one.start, max(one.epoch) as cached
        from (select log, unnest(cache) as one from logs) group by all),
    spans as (
        select *, lead(start) over (partition by log order by start) as next_start from starts),
    wrong as (
        select p.* from (from placed semi join (from logs where cache is not null) using (log)) p
        anti join spans s on p.log = s.log and p.epoch = s.cached and p."offset" >= s.start
            and (s.next_start is null or p."offset" < s.next_start)
        where p.epoch >= 0)
select run, partition, "offset", value, 'cache' as how, [node] as nodes, coalesce(cached, -1) as seen
from wrong w asof left join starts s on w.log = s.log and w."offset" >= s.start
where epoch <> coalesce(cached, -1)
"""

# One at LEO is an epoch in which nothing was written yet.
CACHE_ABOVE_LEO = """
select run, partition, one.start as "offset", 'cache above LEO' as how, [node] as nodes, one.epoch as seen
from (select *, unnest(cache) as one from logs) where one.start > leo
"""
