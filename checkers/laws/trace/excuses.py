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

    births    when records were first written, in partitions whose copies were struck beyond the budget:
              run, partition, written (the epoch asked for; null: any), lo, hi, time: of the earliest line of
              any replica that shows them. The rows of an epoch do not overlap
    limits    a row for each of them and kind of excuse: number, permit, by_epoch; surely, perhaps, ever: the
              highest limit (an epoch, or a time) of those that surely, and perhaps, came before the line, and
              of all; null: there is none
    excused   number; granted: the first permit of the excuses that cover all the records; uncovered: the
              first offset that no excuse by the fault budget covers, where there is such an excuse; cause:
              what permits the final loss of the first record
"""

from floodmark.checkers.laws.permits import BUDGET, BUDGET_MAYBE, UNCLEAN, UNCLEAN_MAYBE
from floodmark.checkers.laws.trace.epoch_spans import pieces_of
from floodmark.checkers.laws.unit import Unit


def excuses(unit: Unit) -> None:
    """Make the tables."""
    unit.make("births", _BIRTHS)
    unit.make("limits", _LIMITS)
    unit.make("excused", _EXCUSED)


_LEAST, _GREATEST = "(-9223372036854775808)", "9223372036854775807"
_MAYBE = f"case %s when {UNCLEAN} then {UNCLEAN_MAYBE} when {BUDGET} then {BUDGET_MAYBE} else %s end"
_BY_EPOCH = f"permit in ({UNCLEAN}, {UNCLEAN_MAYBE})"

# Appends, line by line; and what a start found. Cut at each other's bounds, pieces are equal or apart.
_BIRTHS = f"""
    with struck as (
        select run, partition from traced where len(list_filter(excuses,
            lambda each: each.permit in ({BUDGET}, {BUDGET_MAYBE}))) > 0),
    wanted as (
        select run, partition, written, min(lo) as lowest, max(hi) as highest
        from missing semi join struck using (run, partition) group by all),
    lines as (from timeline semi join wanted using (run, partition)),
    {pieces_of("lines")},
    shown as (
        select run, partition, epoch, lo, hi, time from apart where appends and lo < hi
        union all
        select run, partition, epoch, lo, hi, born_time
        from epoch_spans semi join wanted using (run, partition) where "full" = born_time),
    pieces as (
        select run, partition, written, lo, hi, time from shown join wanted using (run, partition)
        where (written is null or epoch is null or written = epoch) and lo < highest and hi > lowest),
    bounds as (
        select *, lead(bound) over epoch as next, row_number() over epoch as place
        from (select distinct run, partition, written, unnest([lo, hi]) as bound from pieces)
        window epoch as (partition by run, partition, written order by bound)),
    cut as (
        select p.run, p.partition, p.written, p.time, unnest(range(begins.place, ends.place)) as place
        from pieces p
        join bounds begins on begins.run = p.run and begins.partition = p.partition
            and begins.written is not distinct from p.written and begins.bound = p.lo
        join bounds ends on ends.run = p.run and ends.partition = p.partition
            and ends.written is not distinct from p.written and ends.bound = p.hi)
    select b.run, b.partition, b.written, b.bound as lo, b.next as hi, min(c.time) as time
    from cut c join bounds b on b.run = c.run and b.partition = c.partition
        and b.written is not distinct from c.written and b.place = c.place group by all"""

_LIMITS = f"""
    with each as (
        select run, partition, clock_error, permit, elected, time, {_BY_EPOCH} as by_epoch,
            if(by_epoch, epoch, struck) as "limit"
        from (select run, partition, clock_error, unnest(excuses, recursive := true) from traced
            semi join missing using (run, partition))),
    by_time as (
        select run, partition, permit, time, max(coalesce("limit", {_GREATEST})) over (
            partition by run, partition, permit order by time) as "limit"
        from each),
    by_election as (
        select run, partition, permit, coalesce(elected, {_GREATEST}) as elected, max(
            coalesce("limit", {_GREATEST})) over (
            partition by run, partition, permit order by coalesce(elected, {_GREATEST})) as "limit"
        from each),
    kinds as (
        select run, partition, clock_error, permit, by_epoch, max(coalesce("limit", {_GREATEST})) as ever
        from each group by all),
    asked as (
        select number, run, partition, written, lo, hi, clock_error, permit, by_epoch, ever, led,
            if(timed, time - clock_error, {_GREATEST}) as surely_by,
            if(timed, time + clock_error, {_GREATEST}) as perhaps_by
        from missing join kinds using (run, partition))
    select a.* exclude (led, surely_by, perhaps_by), greatest(s."limit", e."limit") as surely,
        greatest(p."limit", e."limit") as perhaps
    from asked a
    asof left join by_time s on a.run = s.run and a.partition = s.partition and a.permit = s.permit
        and a.surely_by > s.time
    asof left join by_time p on a.run = p.run and a.partition = p.partition and a.permit = p.permit
        and a.perhaps_by >= p.time
    asof left join by_election e on a.run = e.run and a.partition = e.partition and a.permit = e.permit
        and a.led >= e.elected"""

_EXCUSED = f"""
    with born as (
        select number, permit, max(b.time) as last, max(b.time) filter (b.lo <= l.lo) as first,
            min(greatest(b.lo, l.lo)) filter (b.time - clock_error > perhaps) as uncovered
        from (from limits where not by_epoch) l join births b on l.run = b.run and l.partition = b.partition
            and l.written is not distinct from b.written and b.lo < l.hi and b.hi > l.lo
        group by all),
    since as (
        select number, permit, surely, perhaps, ever, uncovered,
            coalesce(if(by_epoch, written, last + clock_error + 1), {_LEAST}) as surely_from,
            coalesce(if(by_epoch, written, last - clock_error), {_LEAST}) as perhaps_from,
            coalesce(if(by_epoch, written, first - clock_error), {_LEAST}) as first_from
        from limits left join born using (number, permit)),
    excuse as (
        select number, max(uncovered) as uncovered, bool_or(ever >= first_from) as is_old,
            list({_MAYBE % ("permit", "permit")}) as kinds, min(case when surely >= surely_from then permit
                when perhaps >= perhaps_from then {_MAYBE % ("permit", "permit")} end) as granted
        from since group by number),
    lost as (
        select run, partition, ack as "offset", min(cause) as cause
        from by_value semi join missing using (run, partition)
        where cause is not null and ack is not null group by all),
    there as (
        select run, partition, "offset", list(distinct epoch) as epochs
        from placed semi join lost using (run, partition, "offset") where leads group by all)
    select number, granted, uncovered, case when list_contains(t.epochs, m.written)
        or (list_contains(kinds, {_MAYBE % ("cause", "cause")}) and not is_old) then null
        else cause end as cause
    from missing m left join excuse using (number)
    left join lost on lost.run = m.run and lost.partition = m.partition and lost."offset" = m.lo
    left join there t on t.run = m.run and t.partition = m.partition and t."offset" = m.lo"""
