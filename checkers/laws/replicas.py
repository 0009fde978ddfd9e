"""Compares the replicas of a partition, offset by offset: diverged, under-replicated, two records.

Each finding is about one offset (two records: an offset and epoch), whatever the number of replicas. Most
blocks are equal in all logs (log.py), and are skipped, unless a log has a misstep. In the others most
offsets agree, which their minimum and maximum show; only at the rest (`disagreeing`) are the replicas
compared one by one. Nothing permits diverged and epoch-lineage.

Tables made, besides those of tables.py and log.py:

    disagreeing    the rows of `placed` at those offsets at which not all entries have the same epoch, value
                   and crc
"""

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.log import BLOCK
from floodmark.checkers.laws.unit import Unit


def replicas(unit: Unit) -> None:
    unit.make("disagreeing", DISAGREEING)
    unit.find(finding_names.DIVERGED, DIVERGED)
    unit.find(finding_names.EPOCH_LINEAGE, TWO_RECORDS)
    unit.find(finding_names.UNDER_REPLICATED, UNDER_REPLICATED)


# A value is null where the record is not ours; a crc is null in all replicas or in none.
DISAGREEING = f"""
with other_blocks as (
    select run, partition, block from blocks join logs using (log) group by all
    having min(digest) <> max(digest)
    union select run, partition, block from blocks join logs using (log)
        semi join missteps using (run, partition)),
at_odds as (
    select run, partition, "offset"
    from (select *, "offset" // {BLOCK} as block from placed)
    semi join other_blocks using (run, partition, block)
    group by run, partition, "offset"
    having min(epoch) <> max(epoch) or min(value) <> max(value) or count(value) not in (0, count(*))
        or min(crc) <> max(crc))
from placed semi join at_odds using (run, partition, "offset")
"""

# Two of the replicas that must agree at an offset hold other records there. The finding names the nodes that
# differ from the leader or, where it is not among them, from the first.
DIVERGED = """
with compared as (
        select run, partition, "offset", node, leads,
            list_sort(list(distinct row(epoch, value, crc))) as record
        from disagreeing where compared group by all),
    right_ones as (
        select run, partition, "offset", record as right_one from compared
        qualify row_number() over (
            partition by run, partition, "offset"
            order by leads desc, case when not leads then node end, record desc) = 1),
    named as (
        select run, partition, "offset", max(value) filter (leads) as value
        from disagreeing group by all)
select run, partition, "offset", any_value(n.value) as value, list_sort(list(distinct c.node)) as nodes
from compared c join right_ones r using (run, partition, "offset")
    join named n using (run, partition, "offset")
where c.record is distinct from r.right_one
group by run, partition, "offset"
"""

# One (epoch, offset) names two records. Records without an epoch (-1) take no part.
TWO_RECORDS = """
with twice as (
        select run, partition, "offset", epoch, list_sort(list(distinct node)) as nodes
        from disagreeing where epoch >= 0 group by run, partition, "offset", epoch
        having min(value) <> max(value) or count(value) not in (0, count(*)) or min(crc) <> max(crc)),
    named as (
        select run, partition, "offset", max(value) filter (leads) as value
        from disagreeing group by all)
select run, partition, "offset", value, 'two records' as how, nodes, epoch as seen
from twice join named using (run, partition, "offset")
"""

# A member of the ISR has nothing at an offset that the leader has, from the later log start up to the
# leader's HW. isr_followers is empty where nothing is claimed: not settled, compacted, no leader's log; and
# it leaves out nodes whose dump lacks lines.
UNDER_REPLICATED = f"""
with followers as (
        select f.*, log from (
            select run, partition, hw, unnest(isr_followers).node as node,
                greatest(log_start, unnest(isr_followers).log_start) as log_start from partitions) f
        join logs using (run, partition, node)),
    other_blocks as (
        select f.*, leader.block, leader.log as leader_log
        from blocks leader join (from logs where leads) using (log) join followers f using (run, partition)
            anti join blocks same on same.log = f.log and same.digest = leader.digest),
    expected as (
        select f.run, f.partition, e."offset", e.value, f.node, f.log
        from log_entries e join other_blocks f on e.log = leader_log and e."offset" // {BLOCK} = f.block
        where e."offset" < f.hw and e."offset" >= f.log_start),
    there as (
        select log, "offset"
        from (select *, "offset" // {BLOCK} as block from log_entries)
        semi join other_blocks using (log, block))
select run, partition, "offset", max(value) as value, list_sort(list(distinct node)) as nodes
from expected anti join there using (log, "offset")
group by run, partition, "offset"
"""
