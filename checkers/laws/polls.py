"""The laws about what consumers were shown: polls that go back, polls that skip, end offsets that fall.

The reads of one partition by one process form a chain, and every read is compared with the one before it:

- inside one poll or txn (the int- forms) with the read returned just before it;
- across ops the first read of an op with the last read of the process's last ok op, which was its position.
  An ok assign or subscribe forgets the position of every partition that it does not keep, a completed crash
  forgets all. Fail and info polls are checked, but move no position: the records that they returned may be
  returned again. A process with overlapping ops is left out, because its lines have no order.

A read that is not above the one before is nonmonotonic. One that is more than one above it jumped. A jump is
a skip if it passed over a record of ours that no ok or info poll of the process has returned since, the poll
itself included. (Since its last ok poll a process has no info poll: it invokes nothing after one. So it is
enough to check what the poll itself returned.) A record of ours counts if the leader's final log has it, not
aborted; a record that is not there may never have been committed. Without that log it counts if a read or an
ack of acks=all proves it, unless the topic is compacted; for a partition that run.json does not name nobody
knows whether it is. Nothing is claimed below the log start, by the leader's row or as final readers were told
it, where records may have been deleted before the poll; nor of a jump over a place that the process could not
read.

Nearly every op returns consecutive records, and needs no check inside. Records that a jump passed over are
counted, never paired with the jump: there may be as many of the one as of the other.
"""

from collections.abc import Mapping

from floodmark.checkers.laws import finding_names, permits
from floodmark.checkers.laws.outcomes import lines
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.laws.values import COVERED_BY, PERHAPS_COVERED_BY


def polls(unit: Unit) -> None:
    """Find all five. Except poll_ops, the tables made on the way contain only the few odd reads and what is
    needed to check them; in a log with transactions also the positions before control records."""
    for table, select in TABLES.items():
        unit.make(table, select)
    unit.find(finding_names.INT_NONMONOTONIC_POLL, INT_NONMONOTONIC_POLL)
    for name, law in LAWS.items():
        unit.find(name, finding(law))


# Above it records were not deleted.
CLAIMED = '"offset" >= greatest(claims_from, begins, 0)'

# How many proven records each step passed over, null if that is not known yet; less than none if it went
# back. In a log with transactions nearly every poll jumps over control records, and passed over none.
PASSED = """
    select s.*, here.records - 1 - there.records as passed
    from {steps} s left join proven_records here using (run, partition, "offset")
        left join proven_records there
            on there.run = s.run and there.partition = s.partition and there."offset" = s.seen
    where passed is distinct from 0"""

# Nothing excuses it.
INT_NONMONOTONIC_POLL = """
    select run, partition, "offset", value, seen, process, [index] as ops
    from odd_reads where "offset" <= seen"""

TABLES: Mapping[str, str] = {
    # One row for each op and partition: its first and last read, and the highest offset. in_a_row: each read
    # directly follows the one before, in the op's list and in the log.
    "poll_ops": """
    select run, partition, "at", any_value(process) as process, any_value(index) as index,
        any_value(type) as type, arg_min("offset", pos) as first_offset, arg_min(value, pos) as first_value,
        arg_max("offset", pos) as last_offset, max("offset") as highest,
        max(pos) - min(pos) = count(*) - 1
            and max("offset"::hugeint - pos) = min("offset"::hugeint - pos) as in_a_row
    from reads group by run, "at", partition""",
    # One row for each line that moves a process: moves counts these from 1; subscribed: its last assign or
    # subscribe, by then, was a subscribe.
    "consumer_moves": """
    select run, process, "at", row_number() over mine as moves,
        last_value(case when f in ('assign', 'subscribe') then f = 'subscribe' end ignore nulls) over mine
            as subscribed
    from moves
    where case when f in ('assign', 'subscribe') then type = 'ok' else type <> 'invoke' end
    window mine as (partition by run, process order by "at")""",
    # One row for each partition that such a line keeps: keeps counts these from 1.
    "kept_partitions": """
    select run, process, partition, "at",
        row_number() over (partition by run, process, partition order by "at") as keeps
    from (select distinct run, process, partition, "at" from assigned where type = 'ok')""",
    # One row for each op whose first read of a partition does not directly follow the last one of the
    # process's last ok op (seen, and the line of that op).
    "poll_positions": """
    select run, process, partition, "at", index, first_offset as "offset", first_value as value,
        last_value(case when type = 'ok' then last_offset end ignore nulls) over before as seen,
        last_value(case when type = 'ok' then "at" end ignore nulls) over before as seen_at,
        last_value(case when type = 'ok' then index end ignore nulls) over before as seen_index
    from poll_ops anti join (from processes where "overlaps") overlapping using (run, process)
    window before as (partition by run, process, partition order by "at"
        rows between unbounded preceding and 1 preceding)
    qualify "offset"::hugeint - 1 <> seen""",
    # Where a record of ours certainly is, in partitions where some read may have jumped: offset, and records:
    # how many of the partition are at or below it. An ack without acks=all does not promise a record that
    # readers can see.
    "proven_records": f"""
    with judged as (
        from partitions semi join (
            select run, partition from poll_ops where not in_a_row
            union all select run, partition from poll_positions where "offset" > seen)
        using (run, partition)),
    found as (
        select run, partition, e."offset", claims_from from entries e join judged p using (run, partition)
        where p.leader_known and e.node = p.leader and e.value is not null and not e.aborted
        union
        select run, partition, r."offset", claims_from from reads r join judged p using (run, partition)
        where not p.leader_known and not p.compact
        union
        select run, partition, s."offset", claims_from from sends s join judged p using (run, partition)
        where not p.leader_known and not p.compact and not p.weak_acks
            and s.type = 'ok')
    select run, partition, "offset",
        row_number() over (partition by run, partition order by "offset") as records
    from found left join told_extents using (run, partition) where {CLAIMED}""",
    # The positions that went back, or may have passed over a record.
    "odd_positions": f"""
    with positions as (
        select p.*, leader_known from poll_positions p left join partitions using (run, partition)
        left join told_extents using (run, partition) where {CLAIMED})
    {PASSED.format(steps="positions")}""",
    # Those of them that count, because the process kept the partition: since then it moved as often as it
    # kept the partition.
    "kept_positions": """
    select p.*, coalesce(moved.subscribed, false) as subscribed
    from odd_positions p
    asof left join consumer_moves moved
        on moved.run = p.run and moved.process = p.process and moved."at" < p."at"
    asof left join consumer_moves moved_then
        on moved_then.run = p.run and moved_then.process = p.process and moved_then."at" < p.seen_at
    asof left join kept_partitions kept on kept.run = p.run and kept.process = p.process
        and kept.partition = p.partition and kept."at" < p."at"
    asof left join kept_partitions kept_then on kept_then.run = p.run and kept_then.process = p.process
        and kept_then.partition = p.partition and kept_then."at" < p.seen_at
    where coalesce(moved.moves, 0) - coalesce(moved_then.moves, 0)
        = coalesce(kept.keeps, 0) - coalesce(kept_then.keeps, 0)""",
    # The ops that are not in a row, and did not return proven records in a row (whose numbers rise with pos).
    # In a log with transactions nearly every poll jumps, over control records, and is not among these.
    "jumpy_polls": """
    select run, partition, "at"
    from reads semi join (from poll_ops where not in_a_row) using (run, partition, "at")
        left join proven_records using (run, partition, "offset")
    group by all
    having count(records) < count(*) or max(pos) - min(pos) <> count(*) - 1
        or max(records - pos) <> min(records - pos)""",
    # One row for each read that does not directly follow the one before it in its op (seen). (One window for
    # the partition, because one for each op takes half as long again.)
    "odd_reads": f"""
    select r.*, leader_known
    from (
        select run, process, partition, "at", index, "offset", value,
            lag("offset") over mine as seen, lag("at") over mine as seen_at
        from reads semi join jumpy_polls using (run, partition, "at")
        window mine as (partition by run, partition order by "at", pos)
        qualify seen_at = "at" and "offset"::hugeint - 1 <> seen) r
    left join partitions using (run, partition) left join told_extents using (run, partition)
    where {CLAIMED}""",
    # One row for each position that went back, and for each jump, of a position or inside an op, that may
    # have passed over a record. form is 'int' inside an op, else ''.
    "poll_steps": f"""
    with jumps as (
        select 'int' as form, run, process, partition, "at", index, "offset", value, seen,
            index as seen_index, false as subscribed, leader_known
        from odd_reads where "offset" > seen)
    select *, row_number() over (order by run, partition, "at", form, "offset", seen) as step from (
        ({PASSED.format(steps="jumps")})
        union all by name
        select '' as form, * exclude (seen_at) from kept_positions)""",
    # The jumps that are skips, by step: they passed over more records than the op itself returned of them,
    # and over no place that the process could not read.
    "poll_skips": """
    with jumps as (
        select s.* from poll_steps s anti join corrupt c on c.run = s.run and c.partition = s.partition
            and c.process = s.process and c."offset" > s.seen and c."offset" < s."offset"),
    near as (from proven_records semi join (from jumps where passed is null) using (run, partition)),
    counted as (
        select j.* replace (below.records - coalesce(up_to.records, 0) as passed)
        from (from jumps where passed is null) j
        asof join near below
            on below.run = j.run and below.partition = j.partition and below."offset" < j."offset"
        asof left join near up_to
            on up_to.run = j.run and up_to.partition = j.partition and up_to."offset" <= j.seen),
    passing as (from jumps union all by name from counted),
    shown as (
        select *, row_number() over (partition by run, partition, "at" order by "offset") as records
        from (select distinct run, partition, "at", "offset"
              from reads semi join passing using (run, partition, "at") where type <> 'fail')
            semi join proven_records using (run, partition, "offset"))
    select j.step
    from passing j
    asof left join shown below on below.run = j.run and below.partition = j.partition
        and below."at" = j."at" and below."offset" < j."offset"
    asof left join shown up_to on up_to.run = j.run and up_to.partition = j.partition
        and up_to."at" = j."at" and up_to."offset" <= j.seen
    where passed > coalesce(below.records, 0) - coalesce(up_to.records, 0)""",
    # One row for each end offset that a client received although it had received a higher one the last time
    # (previous, by the line previous_index), or had read as far (highest_read, first by the line read_index,
    # by polls of any outcome).
    "ends_fallen": """
    with answers as (
        select run, process, partition, "at", max("offset") as highest, any_value(index) as index
        from ends anti join (from processes where "overlaps") using (run, process)
        where type = 'ok' group by all),
    earlier as (
        select run, process, partition, "at", lag(highest) over mine as previous,
            lag(index) over mine as previous_index
        from answers window mine as (partition by run, process, partition order by "at")),
    shown as (
        select run, process, partition, "at", max({'highest': highest, 'first': -index}) filter (
            highest is not null) over (partition by run, process, partition order by "at") as read
        from (select run, process, partition, "at", null as highest, null as index from answers
              union all
              select run, process, partition, "at", highest, index
              from poll_ops semi join answers using (run, process, partition)))
    select distinct run, process, partition, "at", ends.index, "offset", previous, previous_index,
        read.highest as highest_read, -read.first as read_index
    from ends join earlier using (run, process, partition, "at")
    join shown using (run, process, partition, "at")
    where "offset" < previous or "offset" <= read.highest""",
    # One row for each end offset that a client received under read_uncommitted although a record at or above
    # it, appended in the epoch of the leader that answered, had been acked before the client asked (acked:
    # the highest such offset; acked_index: its line). The leader of an epoch acks what is below its HW, which
    # is the end and never falls. A record that was sent again may have been acked by a later leader, which
    # had it from the first one: those take no part. (What a process asked last, before an answer, is what it
    # got the answer to.)
    "ends_behind": """
    with answers as (
        select e.run, e.process, e.partition, e."at", e.index, e."offset", e.epoch, m."at" as asked_at
        from ends e anti join (from processes where "overlaps") using (run, process)
        asof join moves m on m.run = e.run and m.process = e.process and m."at" < e."at"
        left join processes p on p.run = e.run and p.process = e.process join runs on runs.run = e.run
        where e.type = 'ok' and e.epoch >= 0 and coalesce(p.uncommitted, surely_uncommitted)),
    asked as (select run, partition, min("offset") as least from answers group by all),
    acks as (
        select run, partition, value, "offset", "at", index, epoch
        from sends join asked using (run, partition)
        semi join (from partitions where not weak_acks) using (run, partition)
        semi join (from runs where sent_once) using (run) anti join repeated using (run, value)
        where type = 'ok' and f = 'send' and "offset" >= least),
    epochs as (
        select run, partition, value, "offset", epoch from acks
        union select run, partition, value, "offset", epoch
        from reads semi join acks using (run, partition, value, "offset")
        union select run, partition, value, "offset", epoch
        from placed semi join acks using (run, partition, value, "offset")),
    highest as (
        select run, partition, e.epoch, "at", max(struct_pack(acked := "offset", index := index)) over (
            partition by run, partition, e.epoch order by "at") as ack
        from acks join epochs e using (run, partition, value, "offset"))
    select a.* exclude (epoch, asked_at), h.ack.acked as acked, h.ack.index as acked_index
    from answers a asof join highest h on h.run = a.run and h.partition = a.partition and h.epoch = a.epoch
        and h."at" < a.asked_at
    where h.ack.acked >= a."offset\"""",
    # The offset of each record whose loss is permitted: that of its ack; without one, or where the value was
    # sent more than once, every offset at which it was read or acked.
    "permitted_losses": """
    select distinct run, partition, cause as permit,
        unnest(case when repeated then read_at || acks
            when ack is null then read_at else [ack] end) as "offset"
    from by_value where cause is not null""",
    # All other findings, by law, with the records concerned: those from low up to high. Nothing excuses a
    # skip inside one op, unless it passed over records that only acks and reads prove. An end may also have
    # fallen below records of which nobody knows the offset: in doubt and never read, or markers. They were
    # there when the first line (since) showed that the log was longer.
    "consumer_steps": f"""
    with steps as (
        select case when "offset" <= seen then 'back' else form || 'skip' end as law, null as how,
            run, process, partition, "offset", seen, value, index, seen_index, subscribed,
            least("offset", seen::hugeint + 1)::bigint as low, greatest(seen, "offset" - 1) as high,
            form = '' or not leader_known as excusable, null as since
        from poll_steps
        where "offset" <= seen or step in (select step from poll_skips)
        union all
        select 'end', case when acked is not null then 'behind-ack' end, run, process, partition, "offset",
            least(greatest(previous, highest_read::hugeint + 1, acked::hugeint + 1), {2**63 - 1})::bigint,
            null, index,
            coalesce(acked_index, if(coalesce(highest_read < previous, false), previous_index, read_index),
                previous_index), false, "offset",
            greatest(previous - 1, highest_read, acked), true,
            least(if("offset" < previous, previous_index, null),
                if("offset" <= highest_read, read_index, null), acked_index)
        from ends_fallen full join ends_behind using (run, process, partition, "at", index, "offset")),
    numbered as materialized (
        select *, row_number() over (order by run, partition, process, index, law, "offset") as number
        from steps),
    excuses as (
        select number, min(s.permit) as permit
        from (select n.*, c.permit from numbered n
              join (select distinct run, partition, permit from permitted_losses) c using (run, partition)
              where excusable) s
        asof join permitted_losses l on l.run = s.run and l.partition = s.partition and l.permit = s.permit
            and l."offset" >= s.low
        where l."offset" <= s.high
        group by number),
    covered as (
        select n.*, least(permit, case when subscribed then {permits.SUBSCRIBE} end) as known,
            since as invoked, null as invoked_time, if(law = 'end', {COVERED_BY}, null) as covered_by
        from numbered n left join excuses using (number) left join partitions using (run, partition))
    select *, coalesce(known, {PERHAPS_COVERED_BY}) as permit from covered""",
}

LAWS = {
    finding_names.NONMONOTONIC_POLL: "back",
    finding_names.POLL_SKIP: "skip",
    finding_names.INT_POLL_SKIP: "intskip",
    finding_names.END_OFFSET_REGRESSED: "end",
}


def finding(law: str) -> str:
    return f"""select run, partition, "offset", value, how, seen, process, permit,
        {lines("seen_index", "index")} as ops
        from consumer_steps where law = '{law}'"""
