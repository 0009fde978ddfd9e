"""What became of every value: the table by_value, one row a (run, partition, value).

There is a row for every value that a client asked to send, was answered about or read, or that a replica's
log holds. Lists are sorted, without doubles, and empty rather than null. Offsets are of this partition.

    sent            how often it was invoked here; 0: nobody sent it to this partition
    repeated        the run sent it more than once: nobody knows which send wrote which record
    invoked, invoked_time, sender     index, time and process of its first invocation (sender: for want of
                    one, the process of its completion)
    type, done, line, process, f, pos  the first completion: ok, fail or info; its index, the `at` of its
                    line, its process, its f, and its place in the line's list; null: none came
    ack             the offset of an ok completion, where it is known
    acks            of a repeated value: the offsets of all its ok completions
    read_at         where it was read, by a poll of any outcome; read_low, read_high: its ends, null if never
    read_by         index of the first line that shows it
    final           a final read returned it
    leader_at       where the leader's final log holds it; leader_low, leader_high: its ends
    live_at         the same without aborted records
    others          how many entries of other replicas hold it
    vanished_at     where it was read, at or above log_start, and the leader's log does not hold it
                    (where losses are judged by that log)
    unread          it is lost by what reads show, for want of the leader's log; beyond: how far they went
    lost            an ok or doubtful send whose record is not where it was
    gone            the same, and of a repeated value that any record of it is
    cause           what permits that loss, and what follows from it (permits.py); where nobody can see
                    whether it is lost: what would permit it, as a maybe
    excuse          the same, and acks where nobody read it

Entries count as the table `placed` (log.py) has them: those of a stray copy do not. What may be claimed of a
partition is not repeated here: `from by_value join partitions using (run, partition)`; a partition that
run.json does not name has no row there.
"""

from checkers.laws.permits import ACKS, BUDGET, BUDGET_MAYBE, NEVER, UNCLEAN, UNCLEAN_MAYBE
from checkers.laws.unit import Unit


def values(unit: Unit) -> None:
    """Makes by_value."""
    unit.make("by_value", f"with {_SEEN}, {_JUDGED} {_CAUSES}")


# Most values have one offset each: lists are gathered of the others alone.
_SEEN = """
    asked as (
        select run, partition, value, count(*) as sent,
            min({'index': index, 'time': time, 'process': process}) as first
        from sends where type = 'invoke' group by all),
    answered as (
        select run, partition, value, index, "at", pos, process, f, type, "offset"
        from sends where type <> 'invoke'
        qualify row_number() over (partition by run, partition, value order by "at", pos) = 1),
    acked as (
        select run, partition, value, list_sort(list(distinct "offset")) as acks
        from sends semi join repeated using (run, value)
        where type = 'ok' and "offset" is not null group by all),
    shown as materialized (
        select run, partition, value, min("offset") as low, max("offset") as high,
            min(index) as first, bool_or(coalesce(final, false)) as final
        from reads left join processes using (run, process) group by all),
    shown_at as (
        select run, partition, value, list_sort(list(distinct "offset")) as offsets
        from reads semi join (from shown where low < high) using (run, partition, value) group by all),
    logged as materialized (
        select run, partition, value, min("offset") filter (leads) as low,
            max("offset") filter (leads) as high, bool_or(leads and not aborted) as live,
            count(*) filter (not leads) as others
        from placed where value is not null group by all),
    logged_at as (
        select run, partition, value, list_sort(list(distinct "offset")) as offsets,
            coalesce(list_sort(list(distinct "offset") filter (not aborted)), []) as live
        from placed semi join (from logged where low < high) using (run, partition, value)
        where leads group by all),
    seen as (
        select run, partition, value, coalesce(sent, 0) as sent,
            (run, value) in (select (run, value) from repeated) as repeated,
            asked.first.index as invoked, asked.first.time as invoked_time,
            coalesce(asked.first.process, answered.process) as sender, answered.type, answered.index as done,
            answered."at" as line, answered.process, answered.f, answered.pos,
            case when answered.type = 'ok' then answered."offset" end as ack,
            coalesce(acks, []) as acks,
            case when shown.low is null then [] when shown.low = shown.high then [shown.low]
                else shown_at.offsets end as read_at,
            shown.low as read_low, shown.high as read_high,
            shown.first as read_by, coalesce(shown.final, false) as final,
            case when logged.low is null then [] when logged.low = logged.high then [logged.low]
                else logged_at.offsets end as leader_at,
            logged.low as leader_low, logged.high as leader_high,
            case when not coalesce(logged.live, false) then [] when logged.low = logged.high then [logged.low]
                else logged_at.live end as live_at,
            coalesce(others, 0) as others
        from asked
        full join answered using (run, partition, value)
        full join shown using (run, partition, value)
        full join logged using (run, partition, value)
        left join acked using (run, partition, value)
        left join shown_at using (run, partition, value)
        left join logged_at using (run, partition, value))"""

# Without the leader's log: a record acked at an offset which the final reads passed, and did not return; or,
# in a history from elsewhere, which some read passed, and none ever returned. What is left of that log may
# still show that it is there.
_UNREAD = """coalesce(not repeated and type = 'ok' and ack is not null and not list_contains(leader_at, ack)
    and (by_final_reads and not final and final_low <= ack and final_high > ack
        or by_any_read and read_low is null and highest > ack), false)"""
# An acked record that is not at its place in the leader's log; a doubtful one that was read and is not there.
# A send without an offset may have been below log_start, if that has moved.
_NOWHERE = "(leader_low is null and log_start = 0)"
_LOST = f"""coalesce(losses_judged and not repeated and case
    when type = 'ok' and ack is not null then ack >= log_start and not list_contains(leader_at, ack)
    when type = 'ok' then {_NOWHERE}
    when type = 'fail' then false
    when sent > 0 then {_NOWHERE} or len(vanished_at) > 0 end, false)"""
# Which send wrote which record of a value that was sent more than once nobody knows, nor which came first.
_SOME_RECORD_LOST = f"""coalesce(losses_judged and repeated and sent > 0 and ({_NOWHERE}
    or len(vanished_at) > 0
    or len(list_filter(acks, lambda o: o >= log_start and not list_contains(leader_at, o))) > 0), false)"""
# Nobody can see whether it is lost; what failed for certain was never there.
_BLIND = """(not coalesce(losses_judged, false) and sent > 0
    and (repeated or coalesce(type, 'info') <> 'fail'))"""

_JUDGED = f"""
    -- how far reads went, where they alone show what is lost
    extents as (
        select run, partition, min("offset") filter (final) as final_low,
            max("offset") filter (final) as final_high, max("offset") as highest
        from reads
        semi join (from partitions where by_final_reads or by_any_read) using (run, partition)
        left join processes using (run, process)
        group by all),
    placed as (
        select seen.*, p.* exclude (run, partition), extents.* exclude (run, partition),
            case when not coalesce(losses_judged, false) or read_low is null
                    or (read_low = read_high and read_low = leader_low) then []
                else list_filter(read_at, lambda o: o >= log_start and not list_contains(leader_at, o))
            end as vanished_at
        from seen left join partitions p using (run, partition) left join extents using (run, partition)),
    judged as (
        select *, {_UNREAD} as unread, unread or {_LOST} as lost, lost or {_SOME_RECORD_LOST} as gone,
            {_BLIND} as blind,
            case when by_final_reads and final_high > ack then final_high else highest end as beyond
        from placed)"""

# A send whose invocation is missing may have been invoked at any time. Where the leader's log is not known, a
# record that a cause covers may be lost: a maybe.
_CAUSES = f"""
    , covered as (
        select *, case
            when coalesce(invoked, -1) < unclean_index
                or coalesce(invoked_time, {NEVER}) < unclean_time then {UNCLEAN}
            when unclean_maybe or coalesce(invoked_time, {NEVER}) < unclean_maybe_time then {UNCLEAN_MAYBE}
            when coalesce(invoked, -1) < budget_index then {BUDGET}
            when coalesce(invoked, -1) < budget_maybe_index then {BUDGET_MAYBE} end as covered_by
        from judged),
    permitted as (
        select *, case when gone then covered_by
            when blind and covered_by in ({UNCLEAN}, {UNCLEAN_MAYBE}) then {UNCLEAN_MAYBE}
            when blind and covered_by is not null then {BUDGET_MAYBE} end as cause
        from covered)
    select run, partition, value, sent, repeated, invoked, invoked_time, sender, type, done, line, process, f,
        pos, ack, acks, read_at, read_low, read_high, read_by, final, leader_at, leader_low, leader_high,
        live_at, others, vanished_at, unread, beyond, lost, gone, cause,
        case when weak_acks and read_low is null and (gone or blind) then {ACKS} else cause end as excuse
    from permitted"""
