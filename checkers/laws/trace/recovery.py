"""A replica that starts again has all records that it surely had: recovery-loss.

Why a correct broker is never accused. An append is in the trace before it is on disk, so a broker that is
killed may find less than its lines say. But

- a follower's request to a leader proves the records below its offset: the follower sends it once they are
  written, and only kills come between. The leader's `fetch` line may come late, or twice. So a fetch counts
  only if its offset is above every LEO that the replica had before its log last became shorter
  (`max_leo_before`): it was sent after that, and nothing has been truncated since. A fetch above the
  replica's own LEO proves nothing;
- records that a leader itself acked with HW, or alone, were written in an earlier step of its process, or in
  the last one. Lines of the last step may never have had an effect: an ack at that time proves nothing.
  Offsets up to that LEO do not count here either;
- neither proves anything if the process may have been truncating when it ended (`truncating`): a truncation
  is in the trace only once it is on disk. A follower truncates until it appends what its leader has, and not
  after that;
- after an orderly stop all traced writes had been done.

A truncation is a fall of the LEO as well, also one in recovery. A fault that lost data, and that was in force
between the replica's previous start and this one, excuses all: its damage may show late.

A finding is a start. Its offset is the LEO that was found, `seen` where the log surely ended; `how` is the
proof: clean, fetch, ack.
"""

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.unit import Unit


def recovery(unit: Unit) -> None:
    """Run the check, and make `shorter`, the starts to check."""
    unit.make("shorter", _SHORTER)
    unit.find(finding_names.RECOVERY_LOSS, _RECOVERY_LOSS)


# Not excused: of all strikes that had begun by then, the last to end did so surely before the previous
# process began.
_SHORTER = """
    with struck as (
        select run, node, since, max(until) over (partition by run, node order by since) as ended
        from strikes)
    select r.*, greatest(r.leo, coalesce(r.max_leo_before, 0)) as floor
    from (select *, time + clock_error as since from recoveries) r join traced p using (run, partition)
    asof left join struck s using (run, node, since)
    where list_contains(p.replicas, r.node)
        and (s.ended is null or s.ended < r.earlier_time - r.clock_error)"""
_RECOVERY_LOSS = """
    with proofs as (
        select run, partition, follower as node, time, "offset" as upto, 'fetch' as how
        from timeline where event = 'fetch'
        union all by name
        select run, partition, node, time, least("offset", 9223372036854775806) + 1 as upto, 'ack' as how
        from timeline where event = 'ack'),
    proved as (
        select s.*, p.upto, p.how
        from shorter s join proofs p using (run, partition, node)
        where p.time < if(p.how = 'fetch', s.time - clock_error, last_time)
            and p.upto > floor and p.upto <= last_leo and not truncating
        union all by name
        select *, last_leo as upto, 'clean' as how from shorter where clean)
    select * exclude (best), best.upto as upto, best.upto as seen, best.how as how from (
        select run, partition, leo as "offset", max({'upto': upto, 'how': how}) as best,
            [node] as nodes, node, seq, time
        from proved group by run, partition, leo, node, seq, time)"""
