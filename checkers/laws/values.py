"""Builds the table by_value: each value's sends, reads and log entries, and whether it is lost or gone.

There is one row for each (run, partition, value): for every value that a client sent, got an answer about or
read, or that a replica's log has. Lists are sorted, without doubles, and empty rather than null. Offsets are
of this partition.

    repeated        the run sent it more than once: nobody knows which send wrote which record
    sent_at         `at` of the line that invoked it first or, without one, of its first completion; null:
                    nobody sent it to this partition. sender: its process; of a repeated value the lowest
    invoked, invoked_time   index and time of its first invocation; null: there was none
    type, done, line, process, pos  the first completion: ok, fail or info; its index, the `at` of its line,
                    its process, and its place in the line's list; null: there was none
    ack             the offset of an ok completion, where it is known
    acks            of a repeated value: the offsets of all its ok completions
    read_at         where it was read, by a poll of any outcome; read_low, read_high: its ends, null if never
    read_by         index of the first line that returned it
    final           a final read returned it
    leader_at       where the leader's final log has it; leader_low, leader_high: its ends
    live_at         the same without aborted records
    others          how many entries of other replicas have it
    vanished_at     where it was read, at or above log_start, and the leader's log does not have it
                    (where losses are judged by that log); vanished: there is such a place
    unread          why it is lost: the reads say so, where there is no leader's log
    begun_above     why it is lost: the log, which keeps everything, now begins above it
    lost            an ok send, not repeated, whose record is not where it was acked
    gone            the same; or one that may have been written, by a send that did not fail or a repeated
                    one, is nowhere, or not where it was read or acked
    covered_by      the permit that a loss of it has, or would have
    cause           the permit of that loss and its consequences (permits.py); where nobody can see whether it
                    is lost, because there is no leader's log or it begins above: the permit that a loss would
                    have, as a maybe
    excuse          the same; but the permit ACKS if acks are weak and nobody read it

Entries count as in the table `placed` (log.py): those of a stray copy do not. The gates of a partition are
not repeated here: `from by_value join partitions using (run, partition)`; a partition that run.json does not
name has no row there.

Nearly every value is in one place: value_rows, which is stored, has lists only for the others, and by_value
is a view that shows the lists of all. So use the numbers for all values, and the lists for few.
"""

from floodmark.checkers.laws.permits import (
    ACKS,
    BUDGET,
    BUDGET_MAYBE,
    INTERNAL_MAYBE,
    NEVER,
    UNCLEAN,
    UNCLEAN_MAYBE,
)
from floodmark.checkers.laws.unit import Unit


def values(unit: Unit) -> None:
    """Make by_value."""
    unit.make("read_extents", _READ_EXTENTS)
    unit.make("told_extents", _TOLD_EXTENTS)
    first, *others = unit.cut("value", SLICE_ROWS, "sends", "reads", "entries")
    unit.make("value_rows", _of_slice(first))
    for condition in others:
        unit.extend("value_rows", _of_slice(condition))
    unit.view("by_value", _WITH_LISTS)


# Joins and groups cannot write all their memory to disk: with 440 MB there was too little for 13 million rows
# at once. Slices of a million took a third longer than of two; of 1.4 million as long, and 0.05 GB less.
SLICE_ROWS = 1_400_000


def _of_slice(condition: str) -> str:
    """The rows of the values for which the condition is true: those from one number to another. Where values
    rise with time, as they mostly do, they are together in each table, and DuckDB reads only these."""
    tables = [f"{name}_of_slice as (from {name} where {condition})" for name in ("sends", "reads", "placed")]
    return f"with {', '.join(tables)}, {_SEEN}, {_JUDGED} {_CAUSES}"


# How far reads went: where there is no leader's log, they alone show losses.
_READ_EXTENTS = """
    select run, partition, min("offset") filter (final) as final_low,
        max("offset") filter (final) as final_high, max("offset") as highest
    from reads left join processes using (run, process) group by all"""


# What final reads were told of the log, and what that proves: the log begins at `begins`; below told_to,
# three of them at least read on or got nothing, although they had been told, before they read anything, that
# the log ends above.
_TOLD_EXTENTS = """
    with finals as (from processes where final),
    beginnings as (
        select run, partition, max("offset") as begins
        from starts semi join finals using (run, process) where type = 'ok' group by all),
    reads_of_finals as (
        select run, partition, process, min("at") as first_at, max("offset") filter (type = 'ok') as highest
        from reads semi join finals using (run, process) group by all),
    empty as (select run, process, max("at") as empty_at from empty_polls group by all),
    passed as (
        select e.run, e.partition, process,
            max(case when empty_at > e."at" then e."offset"
                when highest is not null then least(e."offset", highest) end) as passed_to
        from ends e semi join finals using (run, process)
        left join reads_of_finals using (run, partition, process) left join empty using (run, process)
        where e.type = 'ok' and coalesce(e."at" < first_at, true) group by all)
    select run, partition, begins, list_sort(list(passed_to), 'DESC')[3] as told_to
    from passed full join beginnings using (run, partition) group by all"""

# Nearly every value is invoked once, answered once, and in one place: then the minimum of its rows is the
# only one, and a list stays null. The others (`several`) are computed in a second step.
_SEEN = """
    sent as materialized (
        select run, partition, value, count(*) filter (not is_invoke) as completions,
            min(index) filter (is_invoke) as invoked,
            coalesce(min("at") filter (is_invoke), min("at")) as sent_at,
            min(time) filter (is_invoke) as invoked_time, min(process) as sender,
            any_value(type) filter (not is_invoke) as type, min(index) filter (not is_invoke) as done,
            min("at") filter (not is_invoke) as line, min(process) filter (not is_invoke) as process,
            min(pos) filter (not is_invoke) as pos, min("offset") filter (type = 'ok') as ack
        from (select *, type = 'invoke' as is_invoke from sends_of_slice) group by all),
    first_completions as (
        select run, partition, value,
            arg_min(struct_pack(type := type, done := index, line := "at", process := process, pos := pos,
                ack := if(type = 'ok', "offset", null)), ("at", pos)) as first
        from sends_of_slice semi join (from sent where completions > 1) using (run, partition, value)
        where type <> 'invoke' group by all),
    acked as (
        select run, partition, value, list_sort(list(distinct "offset")) as acks
        from sends_of_slice semi join repeated using (run, value)
        where type = 'ok' and "offset" is not null group by all),
    shown as materialized (
        select run, partition, value, min("offset") as read_low, max("offset") as read_high,
            min(index) as read_by, bool_or(coalesce(final, false)) as final
        from reads_of_slice left join processes using (run, process) group by all),
    shown_at as (
        select run, partition, value, list_sort(list(distinct "offset")) as read_at
        from reads_of_slice semi join (from shown where read_low < read_high) using (run, partition, value)
        group by all),
    logged as materialized (
        select run, partition, value, min("offset") filter (leads) as leader_low,
            max("offset") filter (leads) as leader_high, bool_or(leads and not aborted) as live,
            count(*) filter (not leads) as others
        from placed_of_slice where value is not null group by all),
    logged_at as (
        select run, partition, value, list_sort(list(distinct "offset")) as leader_at,
            coalesce(list_sort(list(distinct "offset") filter (not aborted)), []) as live_at
        from placed_of_slice
        semi join (from logged where leader_low < leader_high) using (run, partition, value)
        where leads group by all),
    several as (
        from first_completions
        full join acked using (run, partition, value)
        full join shown_at using (run, partition, value)
        full join logged_at using (run, partition, value)),
    seen as (
        select * exclude (completions, first) replace (
                coalesce(first.type, type) as type,
                coalesce(first.done, done) as done, coalesce(first.line, line) as line,
                coalesce(first.process, process) as process, coalesce(first.pos, pos) as pos,
                if(completions > 1, first.ack, ack) as ack, coalesce(final, false) as final,
                coalesce(live, false) as live, coalesce(others, 0) as others),
            repeated.value is not null as repeated
        from sent
        full join shown using (run, partition, value)
        full join logged using (run, partition, value)
        left join several using (run, partition, value)
        left join repeated using (run, value))"""


def _in_leader_log(offset: str) -> str:
    """Whether the leader's final log has the value there."""
    return f"coalesce({offset} = leader_low or list_contains(leader_at, {offset}), false)"


# Without the leader's log: a record acked at an offset which the final reads passed without returning it; or,
# in an imported history, one that some read passed and none ever returned.
_UNREAD = """coalesce(by_final_reads and not final and (
            final_low <= ack and final_high > ack and ack >= coalesce(begins, 0)
            or ack < told_to and ack >= greatest(begins, claims_from)
                and (begins is not null or log_start is not null or keeps_all))
        or by_any_read and read_low is null and highest > ack, false)"""
# No node knows the topic: all that was acked is lost, as far as no log nor final read shows that it is there.
_DENIED = "denied_by > 0 and others = 0 and final_low is null"
# An acked record below the beginning of a log that keeps everything.
_BEGUN_ABOVE = "coalesce(keeps_all and ack < coalesce(log_start, begins), false)"
# An acked record that is not at its offset in the leader's log, or in what is left of that. A send without an
# offset may have been below log_start, if that has moved.
_NOWHERE = "leader_low is null and log_start = 0"
_LOST = f"""coalesce(not repeated and type = 'ok' and ({_DENIED} or not {_in_leader_log("ack")}
    and (unread or begun_above or losses_judged and ({_NOWHERE} or ack >= log_start))), false)"""
# It was sent, also if its invocation is a line that cannot be read, and may have been written. Of a value
# that was sent more than once nobody knows which send wrote which record, nor which came first.
_WRITTEN = "sender is not null and (repeated or type is distinct from 'fail')"
# Of any other one that was acked and read, the record that was read may be lost and the one acked there.
_SOME_RECORD_LOST = f"""coalesce(losses_judged and written and ({_NOWHERE} or vanished
    or len(list_filter(acks, lambda o: o >= log_start and not {_in_leader_log("o")})) > 0), false)"""
# Nobody can see whether it is lost.
_BLIND = """written and (not coalesce(losses_judged, false) or leader_low is null
    or coalesce(ack < log_start, false) or coalesce(list_min(acks) < log_start, false))"""

_JUDGED = f"""
    bounded as (
        select *, if(losses_judged and (read_low is distinct from leader_low or read_at is not null),
                list_filter(coalesce(read_at, [read_low]),
                    lambda o: o >= log_start and not {_in_leader_log("o")}), null) as vanished_at
        from seen left join partitions using (run, partition) left join read_extents using (run, partition)
        left join told_extents using (run, partition)),
    judged as (
        select *, coalesce(len(vanished_at) > 0, false) as vanished,
            {_BEGUN_ABOVE} as begun_above, {_UNREAD} as unread, {_WRITTEN} as written,
            {_LOST} as lost, lost or {_SOME_RECORD_LOST} as gone, {_BLIND} as blind
        from bounded)"""

# A send whose invocation is missing may have been invoked at any time. Where the leader's log is not known, a
# record that a cause covers may be lost: a maybe.
COVERED_BY = f"""case
            when coalesce(invoked, -1) < unclean_index
                or coalesce(invoked_time, {NEVER}) < unclean_time then {UNCLEAN}
            when unclean_maybe or coalesce(invoked_time, {NEVER}) < unclean_maybe_time then {UNCLEAN_MAYBE}
            when coalesce(invoked, -1) < budget_index then {BUDGET}
            when coalesce(invoked, -1) < budget_maybe_index then {BUDGET_MAYBE} end"""
PERHAPS_COVERED_BY = f"""case when covered_by in ({UNCLEAN}, {UNCLEAN_MAYBE}) then {UNCLEAN_MAYBE}
            when covered_by is not null then {BUDGET_MAYBE} end"""
_CAUSES = f"""
    , covered as (select *, {COVERED_BY} as covered_by from judged),
    permitted as (
        select *, case when gone then covered_by when blind then {PERHAPS_COVERED_BY} end as cause
        from covered)
    select run, partition, value, repeated, sent_at, invoked, invoked_time, sender, type, done, line,
        process, pos, ack, acks, read_at, read_low, read_high, read_by, final, leader_at, leader_low,
        leader_high, live, live_at, others, vanished, vanished_at, unread, begun_above, lost, gone,
        covered_by, cause,
        case when weak_acks and read_low is null and (gone or blind) then {ACKS} else cause end as excuse
    from permitted"""

# For values with the columns of `runs`: what the transaction's coordinator knew may be lost; or its marker,
# where a loss of the record itself would be permitted.
BY_INTERNAL_TOPICS = f"""case when coalesce(invoked, -1) < internal_index or covered_by is not null
    then {INTERNAL_MAYBE} end"""

_WITH_LISTS = """
    select * exclude (live) replace (
        coalesce(acks, []) as acks,
        case when read_low is null then [] else coalesce(read_at, [read_low]) end as read_at,
        case when leader_low is null then [] else coalesce(leader_at, [leader_low]) end as leader_at,
        case when not live then [] else coalesce(live_at, [leader_low]) end as live_at,
        coalesce(vanished_at, []) as vanished_at)
    from value_rows"""
