"""Decides what permits that committed records are missing, by the trace and the final logs.

Records lost by an unclean election that was allowed are excused from that election on (for candidates before
it too) if they were written in an epoch before it. Records lost by copies struck beyond the budget are
excused from the election of a struck leader on if they were written before the copies were struck, all of
them; what the cluster wrote since is not, even in the same epoch. These excuses are the column `excuses` of
`traced`. And a record whose final loss is permitted (by_value.cause) is excused everywhere, and so are those
of its epoch that a replica lacks behind it; but a record that is in the leader's final log, or that was
written after the loss of the others, was not lost, whatever else was lost at its offset.

An excuse must come before the line that shows it, if that is `timed`. If their times are too near they may be
the other way round; but a line in the elected epoch comes after it. Records of an unknown epoch may have been
written in any, and those that no line shows at any time.

Tables made, of the rows of `missing` (completeness.py):

    limits    a row for each of them and kind of excuse: number, permit, by_epoch; surely, perhaps, ever: the
              highest limit (an epoch, or a time) of those that surely, and perhaps, came before the line, and
              of all; null: there is none
    earliest_appends
              when records were first written, of those for which an excuse by the fault budget is asked: lot
              (of `missing`), lo, hi, time: of the earliest line of any replica that shows them. The rows of a
              lot do not overlap
    excused   number; granted: the first permit of the excuses that cover all the records; uncovered: the
              first offset that no excuse by the fault budget covers, where there is such an excuse; cause:
              what permits the final loss of the first record
"""

from collections.abc import Mapping

from floodmark.checkers.laws.permits import UNCLEAN, UNCLEAN_MAYBE, maybe
from floodmark.checkers.laws.unit import Unit


def excuses(unit: Unit) -> None:
    """Make the tables."""
    for table, select in _TABLES.items():
        unit.make(table, select)


_LEAST, _GREATEST = "(-9223372036854775808)", "9223372036854775807"
_BY_EPOCH = f"permit in ({UNCLEAN}, {UNCLEAN_MAYBE})"

_TABLES: Mapping[str, str] = {
    "limits": f"""
    with each as (
        select run, partition, clock_error, permit, elected, time, {_BY_EPOCH} as by_epoch,
            coalesce(if(by_epoch, epoch, struck), {_GREATEST}) as "limit"
        from (select run, partition, clock_error, unnest(excuses, recursive := true) from traced)),
    by_time as (
        select run, partition, permit, time, max("limit") over (
            partition by run, partition, permit order by time) as "limit"
        from each),
    by_election as (
        select run, partition, permit, coalesce(elected, {_GREATEST}) as led, max("limit") over (
            partition by run, partition, permit order by coalesce(elected, {_GREATEST})) as "limit"
        from each),
    kinds as (
        select run, partition, clock_error, permit, by_epoch, max("limit") as ever from each group by all),
    asked as (
        select number, lot, run, partition, written, lo, hi, clock_error, permit, by_epoch, ever, led,
            if(timed, time - clock_error - 1, {_GREATEST}) as surely_by,
            if(timed, time + clock_error, {_GREATEST}) as perhaps_by
        from missing join kinds using (run, partition))
    select a.* exclude (led, surely_by, perhaps_by), greatest(s."limit", e."limit") as surely,
        greatest(p."limit", e."limit") as perhaps
    from asked a
    asof left join (select * exclude (time), time as surely_by from by_time) s
        using (run, partition, permit, surely_by)
    asof left join (select * exclude (time), time as perhaps_by from by_time) p
        using (run, partition, permit, perhaps_by)
    asof left join by_election e using (run, partition, permit, led)""",
    # Appends, line by line; and what a start found. Cut at each other's bounds, pieces are equal or apart.
    "earliest_appends": """
    with wanted as (
        select lot, run, partition, written, min(lo) as lowest, max(hi) as highest
        from limits where not by_epoch group by all),
    shown as (
        select run, partition, epoch, lo, hi, time from log_changes where appends
        union all
        select run, partition, epoch, lo, hi, born_time from epoch_spans where "full" = born_time),
    pieces as (
        select lot, greatest(lo, lowest) as lo, least(hi, highest) as hi, time
        from shown join wanted using (run, partition) where coalesce(written = epoch, true)),
    bounds as (
        select *, lead(bound) over lots as next, row_number() over lots as place
        from (select distinct lot, unnest([lo, hi]) as bound from pieces)
        window lots as (partition by lot order by bound)),
    cut as (
        select lot, time, unnest(range(begins, ends)) as place from pieces
        join (select lot, bound as lo, place as begins from bounds) using (lot, lo)
        join (select lot, bound as hi, place as ends from bounds) using (lot, hi))
    select lot, any_value(bound) as lo, any_value(next) as hi, min(time) as time
    from cut join bounds using (lot, place) group by lot, place""",
    # Of a permit by elections or by the budget, {maybe("permit")} is the doubtful kind.
    "excused": f"""
    with born as (
        select number, permit, max(b.time) as last, max(b.time) filter (b.lo <= l.lo) as first,
            min(greatest(b.lo, l.lo)) filter (b.time - clock_error > perhaps) as uncovered
        from limits l join earliest_appends b using (lot)
        where not by_epoch and b.lo < l.hi and b.hi > l.lo group by all),
    since as (
        select number, permit, by_epoch, surely, perhaps, ever, uncovered,
            coalesce(if(by_epoch, written, last + clock_error + 1), {_LEAST}) as surely_from,
            coalesce(if(by_epoch, written, last - clock_error), {_LEAST}) as perhaps_from,
            coalesce(if(by_epoch, written, first - clock_error), {_LEAST}) as first_from
        from limits left join born using (number, permit)),
    excuse as (
        select number, max(uncovered) as uncovered, bool_or(ever >= first_from) as is_old,
            bool_or(ever >= first_from) filter (by_epoch) as is_of_before,
            min(case when surely >= surely_from then permit
                when perhaps >= perhaps_from then {maybe("permit")} end) as granted
        from since group by number),
    lost as (
        select run, partition, lo, min(cause) as cause
        from (select *, ack as lo from by_value) semi join missing using (run, partition, lo) group by all),
    there as (
        select run, partition, lo, list(epoch) as epochs
        from (select *, "offset" as lo from placed) semi join missing using (run, partition, lo)
        where leads group by all)
    select number, granted, uncovered,
        case when list_contains(epochs, written) or not if(cause <= {UNCLEAN_MAYBE}, is_of_before, is_old)
            then null else cause end as cause
    from missing left join excuse using (number)
    left join lost using (run, partition, lo) left join there using (run, partition, lo)""",
}
