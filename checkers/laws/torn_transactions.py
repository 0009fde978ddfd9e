"""The law that a transaction takes effect as a whole: none of its records is committed while another is not.

A client commits a txn op when every send of it was acked, and aborts it else. So whatever the client learnt
of the outcome, and if it learnt nothing: one committed record proves that all were appended, and that all are
committed. (An op that was told ok is left to the other laws: what it lacks is lost.)

A partition shows the fate of its records, only the run all of a transaction: `fates` makes txn_fates in units
of partitions, which send it on, and TORN joins them (transactions.py).

Rules
1. By the logs: the run has settled, and the leader's row has a last stable offset. A record is committed if
   its leader's log has a copy below that, not aborted; it is not if all copies are aborted, or there is none
   although nothing was deleted (log_start is 0, no compaction). A copy above it is undecided.
2. In an imported history: a record is committed if an ok poll returned it under read_committed. It is not if
   its completion says at which offset it was acked, and reads of ok polls of one process, one right after the
   other, are on both sides of that offset, and no poll ever returned it. Between two polls that counts only
   if the process has not moved in between, and is not a group's: another member might have been there.
"""

from floodmark.checkers.laws.permits import BUDGET, INTERNAL, UNCLEAN
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.laws.values import BY_INTERNAL_TOPICS


def fates(unit: Unit) -> None:
    """Make txn_fates."""
    unit.make("undone", _UNDONE)
    unit.make("passed_over", _PASSED_OVER)
    unit.make("txn_fates", _FATES)


# The values of txn ops that are not ok. told: the offset at which one was acked nevertheless; permit: 0 where
# nothing permits that it has another fate than its siblings.
_UNDONE = f"""
    with mine as materialized (
        select v.run, v.partition, v.value, sent_at as "at", invoked, done, leader_at, live_at, read_low,
            decided, stable_to, losses_judged and log_start = 0 as shows_absence,
            case when gone and (weak_acks or cause in ({UNCLEAN}, {BUDGET})) then {INTERNAL}
                else coalesce({BY_INTERNAL_TOPICS}, 0) end as permit
        from by_value v join partitions p using (run, partition) join runs r using (run)
        where type is distinct from 'ok' and not repeated
            and (decided or (by_any_read and not p.uncommitted))),
    of_txns as (
        select run, partition, value, min("offset") filter (type <> 'invoke') as told
        from sends semi join mine using (run, partition, value)
        group by all having bool_or(f = 'txn'))
    select * from mine join of_txns using (run, partition, value)"""

# Those that nobody read and ok polls passed over. reach: the highest offset that was read right after one
# that is not above `seen`. (consumer_moves: polls.py)
_PASSED_OVER = """
    with unread as (from undone where not decided and read_low is null),
    shown as (
        select r.run, r.partition, r.process, r."at", r.pos, r."offset", coalesce(moves, 0) as moves,
            coalesce(subscribed, false) as subscribed
        from (from reads semi join unread using (run, partition)
            anti join (from processes where "overlaps") using (run, process) where type = 'ok') r
        asof left join consumer_moves using (run, process, "at")),
    steps as (
        select run, partition, "offset", lag("offset") over mine as seen, "at" = lag("at") over mine
            or (moves = lag(moves) over mine and not subscribed) as goes_on
        from shown window mine as (partition by run, partition, process order by "at", pos)),
    reaches as (
        select run, partition, seen, max("offset") over (partition by run, partition order by seen) as reach
        from steps where goes_on)
    select u.run, u.partition, u.value
    from unread u asof join reaches s on s.run = u.run and s.partition = u.partition and s.seen < u.told
    where s.reach > u.told"""

# Of several records the one that is permitted least, of these the lowest.
_WORST = """min(struct_pack(permit := permit, partition := partition, value := value, how := how,
            "offset" := "offset", invoked := invoked, done := done))"""
_FATES = f"""
    with known as (
        select *, case when live_at[1] < stable_to then 'committed' when len(live_at) > 0 then null
                when len(leader_at) > 0 then 'aborted' when shows_absence then 'absent' end as how,
            coalesce(live_at[1], leader_at[1]) as "offset"
        from undone where decided
        union all by name
        select u.*, 'committed' as how, r."offset" from (from undone where not decided) u
        join (select run, partition, value, min("offset") as "offset" from reads
            semi join undone using (run, partition, value) where type = 'ok' group by all) r
            using (run, partition, value)
        union all by name
        select *, 'passed' as how, told as "offset" from undone semi join passed_over
            using (run, partition, value))
    select run, "at", committed, unnest(worst) from (
        select run, "at", how = 'committed' as committed, {_WORST} as worst
        from known group by all)"""

TORN = f"""
    with worst as (select run, "at", committed, {_WORST} as record from txn_fates group by all)
    select lacks.run, lacks.record.partition, lacks.record."offset", lacks.record.value, lacks.record.how,
        has.record.value as seen, nullif(greatest(has.record.permit, lacks.record.permit), 0) as permit,
        list_filter([lacks.record.invoked, lacks.record.done], lambda line: line is not null) as ops
    from worst has join worst lacks using (run, "at") where has.committed and not lacks.committed"""
