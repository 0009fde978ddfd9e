"""The laws about what became of records: none lost, invented, read although failed, duplicated, read too
early.

Each law is a WHERE over by_value (values.py). A value that was sent more than once is left out where nobody
knows which send wrote which record.
"""

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.permits import ACKS, DOUBT, ISOLATION, RETRIES
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.laws.values import BY_INTERNAL_TOPICS


def outcomes(unit: Unit) -> None:
    unit.make("read_apart", READ_APART)
    unit.make("aborted_alone", ABORTED_ALONE)
    unit.find(finding_names.LOST_WRITE, with_nodes(LOST_WRITE))
    unit.find(finding_names.LOST_WRITE, with_nodes(LOST_AS_ABORTED))
    unit.find(finding_names.LOST_WRITE, with_nodes(PERHAPS_LOST))
    unit.find(finding_names.UNSEEN, with_nodes(UNSEEN))
    unit.find(finding_names.DUPLICATE, with_nodes(DUPLICATE))
    unit.find(finding_names.PHANTOM, with_nodes(PHANTOM))
    unit.find(finding_names.G1A, with_nodes(G1A))
    unit.find(finding_names.G1A, with_nodes(ABORTED_AND_READ))
    unit.find(finding_names.SAW_THEN_LOST, with_nodes(SAW_THEN_LOST))
    unit.find(finding_names.INCONSISTENT_OFFSETS, INCONSISTENT_OFFSETS)
    unit.make("read_too_early", READ_TOO_EARLY)
    unit.find(finding_names.G1C_PROCESS, read_by("sender", "own_read", "by_sender"))
    unit.find(finding_names.G1C_REALTIME, read_by("reader", "read_by", "not by_sender"))


def lines(*columns: str) -> str:
    """The indexes that are not null, each once."""
    return f"list_sort(list_distinct([{', '.join(columns)}]))"


SEND = lines("invoked", "done")
SEND_AND_READ = lines("invoked", "done", "read_by")

# Values that were read at several offsets, and the first line that returned them there. All others were read
# first by read_by.
READ_APART = """
select run, partition, value, "offset", min(index) as seen_by
from reads semi join (from value_rows where read_low < read_high) using (run, partition, value)
group by all"""


def with_nodes(select: str) -> str:
    """These rows with the nodes whose logs have the value anywhere."""
    return f"""
with concerned as materialized ({select}),
    holders as (
        select run, partition, value, list_sort(list(distinct node)) as nodes
        from placed join concerned using (run, partition, value) group by all)
select concerned.*, coalesce(nodes, []) as nodes
from concerned left join holders using (run, partition, value)"""


# An ok send whose record is not in the leader's final log at its offset, and where it is instead; without
# that log, one that is lost according to the reads.
LOST_WRITE = f"""
with lost as (from by_value where lost),
    instead as (
        select run, partition, "offset" as ack, max(value) as value, true as taken
        from placed semi join (select run, partition, ack as "offset" from lost)
            using (run, partition, "offset")
        where leads group by all)
select v.run, v.partition, v.ack as "offset", v.value,
    case when begun_above then 'log-start' when unread then 'unread' when leader_low is not null then 'moved'
        when taken then 'overwritten' when others > 0 then 'orphaned' else 'gone' end as how,
    case when begun_above then coalesce(log_start, begins) when unread and not by_final_reads then highest
        when unread then if(final_high > ack, final_high, null) when denied_by > 0 then denied_by
        else coalesce(leader_low, instead.value) end as seen,
    case when weak_acks then {ACKS} else cause end as permit, {SEND} as ops
from lost v join partitions using (run, partition) left join instead using (run, partition, ack)
    left join read_extents using (run, partition) left join told_extents using (run, partition)"""

# The values whose only entry in the leader's log is aborted, in runs with transactions.
ABORTED_ALONE = f"""
select run, partition, value, leader_low as "offset", {BY_INTERNAL_TOPICS} as by_internal_topics
from value_rows join partitions using (run, partition) join runs using (run)
where transactional and leader_known and leader_low = leader_high and not live and not repeated"""

# An ok send of a txn whose only entry in the leader's final log is aborted.
LOST_AS_ABORTED = f"""
select v.run, v.partition, "offset", v.value, 'aborted' as how, by_internal_topics as permit, {SEND} as ops
from by_value v join aborted_alone using (run, partition, value) join partitions using (run, partition)
semi join (from sends where f = 'txn') using (run, partition, value)
where losses_judged and type = 'ok' and not lost"""

# Without the leader's log: an ok send that no final read returned, and that nothing shows to be lost. Where
# logs are promised, unseen is unknown without them; where they are not, only this says so.
PERHAPS_LOST = f"""
select v.run, v.partition, ack as "offset", v.value, {DOUBT} as permit, {SEND} as ops
from by_value v join partitions using (run, partition)
where (loss_in_doubt and by_final_reads or denied_by > 0) and type = 'ok' and not final and not lost
    and leader_low is null"""

# An ok send in the leader's log, at its offset, not aborted, below what a reader may see, that no final read
# returned.
UNSEEN = f"""
with unseen as (
    select v.*, list_filter(live_at, lambda place: place >= log_start and place < readable_to
            and (ack is null or place = ack)) as in_sight
    from by_value v join partitions using (run, partition)
    where unseen_judged and type = 'ok' and not repeated and not final)
select v.run, v.partition, in_sight[1] as "offset", v.value, {SEND} as ops
from unseen v where len(in_sight) > 0"""

# One value at two offsets of the leader's final log (without aborted records), or of what clients saw: reads
# and its own ack. An ack that the leader's log contradicts is a lost write, not a second copy. (The first
# condition saves work: nearly every value is in one place.)
DUPLICATE = f"""
with twice as (
    select v.*, retried, case when len(live_at) > 1 then live_at when losses_judged and lost then read_at
            else list_sort(list_distinct(list_append(read_at, ack))) end as places,
        places[1] as "offset", places[2] as seen
    from by_value v left join partitions using (run, partition)
    where not repeated and greatest(leader_high, read_high, ack) > least(leader_low, read_low, ack))
select run, partition, "offset", seen, value,
    coalesce(cause, case when retried then {RETRIES} end) as permit,
    {lines("invoked", "done", "coalesce(seen_by, read_by)", "seen_again_by")} as ops
from twice left join read_apart using (run, partition, value, "offset")
left join (select run, partition, value, "offset" as seen, seen_by as seen_again_by from read_apart)
    using (run, partition, value, seen)
where len(places) > 1"""

# A value that nobody sent to that partition, and that is known because it was read or logged. (Or it was
# answered: such an answer has no invocation, and then nothing is claimed.)
PHANTOM = f"""
select v.run, v.partition, coalesce(read_low, leader_low) as "offset", v.value,
    {lines("coalesce(seen_by, read_by)")} as ops
from by_value v left join (select run, partition, value, "offset" as read_low, seen_by from read_apart)
    using (run, partition, value, read_low)
where invoked is null"""

# A value whose send certainly failed was read, or is committed in the leader's log and not aborted. In a run
# with transactions, records at or above the last stable offset are undecided: the answer may have come before
# the marker.
G1A = f"""
with failed as (
    select v.*, uncommitted, coalesce(live_at[1] < stable_to, false) as committed
    from by_value v left join partitions using (run, partition) where type = 'fail' and not repeated)
select v.run, v.partition, coalesce(read_low, live_at[1]) as "offset", v.value,
    case when uncommitted and not committed then {ISOLATION} else by_internal_topics end as permit,
    {SEND_AND_READ} as ops
from failed v left join aborted_alone using (run, partition, value) where read_low is not null or committed"""

# Those of a txn that an ok poll under read_committed returned from there, whatever the client was told.
ABORTED_AND_READ = f"""
with shown as (
    from aborted_alone semi join (from reads where type = 'ok') using (run, partition, value, "offset")
    semi join (from sends where f = 'txn') using (run, partition, value))
select v.run, v.partition, "offset", v.value, 'aborted' as how, by_internal_topics as permit,
    {SEND_AND_READ} as ops
from by_value v join shown using (run, partition, value) join partitions using (run, partition)
where not uncommitted and type is distinct from 'fail'"""

# An offset was read with a value that the leader's final log does not have there.
SAW_THEN_LOST = f"""
with gone as (select *, unnest(vanished_at) as "offset" from by_value)
select v.run, v.partition, "offset", v.value, cause as permit,
    {lines("done", "coalesce(seen_by, read_by)")} as ops
from gone v left join read_apart using (run, partition, value, "offset")"""

# One offset showed two values to clients: acks of ok sends and reads.
INCONSISTENT_OFFSETS = """
with shown as (
    select run, partition, value, excuse, if(ack = read_low, least(done, read_by), read_by) as line,
        read_low as "offset"
    from by_value where read_low = read_high
    union all
    select run, partition, value, excuse, done, ack
    from by_value where not repeated and row(read_low, read_high) is distinct from row(ack, ack)
    union all
    select run, partition, value, excuse, seen_by, "offset"
    from by_value join read_apart using (run, partition, value)),
first_shown as (
    select run, partition, "offset", value, excuse, min(line) as line
    from shown semi join (
        select run, partition, "offset" from shown group by all having min(value) <> max(value))
        using (run, partition, "offset")
    group by all)
select run, partition, "offset", min(value) as value, max(value) as seen, min(excuse) as permit,
    list_sort(list(distinct line)) as ops
from first_shown group by run, partition, "offset\""""

# A value that was read before its send was invoked: by its own sender (if the order of its ops is known) or,
# if not, by the first process that read it. Runs with transactions have cycles for this.
READ_TOO_EARLY = """
with early as (
    select * from by_value join runs using (run)
    where not transactional and read_by < invoked and not repeated and type is distinct from 'fail')
select e.run, e.partition, e.value, any_value(sender) as sender, any_value(invoked) as invoked,
    any_value(done) as done, any_value(read_low) as "offset", any_value(read_by) as read_by,
    min({'index': r.index, 'process': r.process}).process as reader,
    min(r.index) filter (r.process = sender) as own_read
from early e join reads r using (run, partition, value) group by e.run, e.partition, e.value"""


def read_by(reader: str, line: str, which: str) -> str:
    """Those that this process read too early, in this line."""
    return f"""
with judged as (
    select r.*, coalesce(own_read < invoked, false) and not coalesce("overlaps", false) as by_sender
    from read_too_early r left join processes p on p.run = r.run and p.process = r.sender)
select t.run, t.partition, "offset", value, {reader} as process, {lines("invoked", "done", line)} as ops
from judged t where {which}"""
