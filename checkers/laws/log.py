"""Checks each log by itself: its offsets, bytes and bounds (malformed-log), its epochs (epoch-lineage).

Every finding here is about the log of one replica, or about what final readers could not read of it;
replicas.py compares the logs of a partition.

Tables made, besides those of tables.py:

    logs      a row a replica: log (a number for (run, node, partition)), and all columns of `replicas`
    placed    a row an entry of a replica; entries of a stray copy, which no replica row names, are left out:
              run, log, node, partition, at, offset, epoch, value, crc (null where compaction may have
              rewritten the batch), crc_ok, aborted, leads (of the final leader's log), compact,
              compared (this replica must agree here with the others for which it is set); a view: log_entries
              (log and the entry's own columns) with `logs`
    blocks    a row a block of a log, that is a stretch of BLOCK offsets: log, block, digest (equal
              in two logs if they have the same entries there), first and last offset, lowest and highest
              epoch
    missteps  the entries that do not follow the one before them in their dump
"""

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.permits import DOUBT
from floodmark.checkers.laws.unit import Unit


def log(unit: Unit) -> None:
    unit.make("logs", """
        select (row_number() over (order by run, node, partition))::integer as log, * from replicas""")
    unit.make("log_entries", LOG_ENTRIES)
    unit.view("placed", PLACED)
    unit.make("blocks", BLOCKS)
    unit.make("missteps", MISSTEPS)
    for how, broken in STEPS.items():
        unit.find(finding_names.MALFORMED_LOG, step(how, broken))
    unit.find(finding_names.MALFORMED_LOG, DAMAGED_BYTES)
    unit.find(finding_names.MALFORMED_LOG, UNREADABLE)
    for how, bound in BOUNDS.items():
        unit.find(finding_names.MALFORMED_LOG, bounds_contradict(how, *bound))
    unit.find(finding_names.EPOCH_LINEAGE, EPOCHS_FALL)
    unit.find(finding_names.EPOCH_LINEAGE, CACHE_SAYS_OTHERWISE)
    unit.find(finding_names.EPOCH_LINEAGE, CACHE_ABOVE_LEO)


BLOCK = 1024  # offsets

LOG_ENTRIES = """
select log, e."at", e."offset", e.epoch, e.value, case when not compact then e.crc end as crc, e.crc_ok,
    e.aborted
from entries e join logs using (run, node, partition)
"""

# After settling, logs must agree to the end. Before that nothing above a HW is final; and a replica outside
# the ISR may keep, below its HW, records that the others lost by data loss or an unclean election.
PLACED = """
select run, log, node, partition, e."at", e."offset", e.epoch, e.value, e.crc, e.crc_ok, e.aborted, leads,
    compact, coalesce(settled or (e."offset" < hw and (in_isr or not struck)), false) as compared
from log_entries e join logs using (log)
"""

# The digest is a sum, because a log may have an entry twice. (Two different blocks have the same digest once
# in 2^64.)
BLOCKS = f"""
select log, "offset" // {BLOCK} as block, sum(hash(hash("offset", epoch, value, crc))) as digest,
    min("offset") as first, max("offset") as last, min(epoch) as lowest_epoch, max(epoch) as highest_epoch
from log_entries group by all
"""

# -- malformed-log ----------------------------------------------------------------------------------------

# Entries that do not follow the one before them in the dump: by offset, or by epoch. Records without an epoch
# (-1) are left out of the latter. Most logs need not be sorted for this: their entries come in stretches of
# one epoch, in which the offset rises with the place in the dump; no gap in one leaves as many as there are
# offsets, and a gap that lines of other partitions hide leaves fewer.
MISSTEPS = """
with stretches as (
    select log, epoch, min("at") as "at", min("offset") as "offset", max("offset") as last_offset,
        count(*) as entries
    from log_entries group by log, epoch, "offset"::hugeint - "at"),
uneven as (
    select distinct log from (
        select *, lag(last_offset) over dump as previous, lag(epoch) over dump as previous_epoch
        from stretches window dump as (partition by log order by "at"))
    where "offset"::hugeint - 1 <> previous or epoch < previous_epoch
        or last_offset::hugeint - "offset" <> entries - 1),
steps as (
    select log, "offset", value, lag("offset") over dump as previous,
        lag(case when epoch >= 0 then epoch end ignore nulls) over dump as previous_epoch,
        epoch >= 0 and epoch < previous_epoch as falls
    from log_entries semi join uneven using (log) window dump as (partition by log order by "at"))
select run, partition, node, "offset", value, previous, falls, previous_epoch,
    complete and not compact as gapless
from steps join logs using (log) where "offset"::hugeint - 1 <> previous or falls
"""

# A gap does not count where lines are missing or compaction makes gaps.
STEPS = {
    "doubled": '"offset" = previous',
    "disordered": '"offset" < previous',
    "gap": '"offset"::hugeint > previous::hugeint + 1 and gapless',
}


def step(how: str, broken: str) -> str:
    """The law for an offset that does not follow the one before."""
    return f"""
        select run, partition, "offset", value, '{how}' as how, [node] as nodes, previous as seen
        from missteps where {broken}"""


DAMAGED_BYTES = """
select run, partition, "offset", value, 'crc' as how, [node] as nodes from placed where not crc_ok
"""

# Without the leader's log: a final reader could not read the batch. Damaged disks excuse that.
UNREADABLE = f"""
select run, partition, "offset", min(why) as how,
    min(process) as process, [min(index)] as ops,
    case when not any_value(faults_known) then {DOUBT} end as permit
from corrupt join (from processes where final) using (run, process) join runs using (run)
    join partitions using (run, partition)
    anti join (from faults where f <> 'power_cut' and fault->>'lost' = 'true') using (run)
where not leader_known and why in ('checksum', 'magic', 'length')
group by run, partition, "offset"
"""

# The error, the offset to name, the number beside it. A dump that lacks lines, or that was compacted, can
# only show entries outside of the bounds.
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
    """The law for an HW above the LEO of a running node, and for a LEO or log_start that is not where the
    entries end or begin."""
    return f"""
        with ends as (select log, min(first) as first, max(last) as last from blocks group by log)
        select run, partition, {place} as "offset", '{how}' as how, [node] as nodes, {seen} as seen
        from logs left join ends using (log) where {broken}"""


# -- epoch-lineage of one log -----------------------------------------------------------------------------

EPOCHS_FALL = """
select run, partition, "offset", value, 'falls' as how, [node] as nodes, previous_epoch as seen
from missteps where falls
"""

# A record whose epoch differs from the leader-epoch cache's epoch for its offset: that of the highest start
# at or below it (of two epochs with one start the higher), -1 below the first. `logs` has no cache where
# nothing is claimed about it: a node that was not running, and compaction. Most blocks lie completely in a
# span of their own epoch; the cache is looked up only for the entries of the others.
CACHE_SAYS_OTHERWISE = f"""
with starts as (
        select log, one.start, max(one.epoch) as cached
        from (select log, unnest(cache) as one from logs) group by all),
    spans as (
        select *, lead(start) over (partition by log order by start) as next_start from starts),
    other_blocks as (
        from (from blocks semi join (from logs where cache is not null) using (log)) b
        anti join spans s on b.log = s.log and b.lowest_epoch = s.cached and b.highest_epoch = s.cached
            and b.first >= s.start and (s.next_start is null or b.last < s.next_start)),
    entries_of_these as (
        from (select *, "offset" // {BLOCK} as block from placed where epoch >= 0)
        semi join other_blocks using (log, block))
select run, partition, "offset", value, 'cache' as how, [node] as nodes, coalesce(cached, -1) as seen
from entries_of_these e asof left join starts s on e.log = s.log and e."offset" >= s.start
where epoch <> coalesce(cached, -1)
"""

# An entry at the LEO is an epoch in which nothing was written yet.
CACHE_ABOVE_LEO = """
select run, partition, one.start as "offset", 'cache above LEO' as how, [node] as nodes, one.epoch as seen
from (select *, unnest(cache) as one from logs) where one.start > leo
"""
