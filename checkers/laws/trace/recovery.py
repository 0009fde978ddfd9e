"""A replica that starts again has all records that it surely had: recovery-loss.

Why a correct broker is never accused. An append is in the trace before it is on disk, so a broker that is
killed may find less than its lines say. But

- a follower's request to a leader proves the records below its offset: the follower sends it once they are
  written, and only kills come between. The leader's `fetch` line may come late, or twice. So a fetch counts
  only if its offset is above every LEO that the replica had before its log last became shorter (`outgrown`):
  it was sent after that, and nothing has been truncated since. A fetch above the replica's own LEO proves
  nothing;
- records that a leader itself acked with HW, or alone, were written in an earlier step of its process, or in
  the last one. Lines of the last step may never have had an effect: an ack at that time proves nothing.
  Offsets that are not outgrown do not count here either;
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
    select r.*, greatest(r.leo, coalesce(r.outgrown, 0)) as floor
    from (select *, time + clock_error as begun_by from recoveries) r
    join traced p on r.run = p.run and r.partition = p.partition and list_contains(p.replicas, r.node)
    asof left join struck s on r.run = s.run and r.node = s.node and r.begun_by >= s.since
    where s.ended is null or s.ended < r.earlier_time - r.clock_error"""
_RECOVERY_LOSS = """
    with proofs as (
        select run, partition, follower as node, time, "offset" as upto, 'fetch' as how
        from timeline where event = 'fetch' and follower is not null
        union all by name
        select run, partition, node, time, "offset" + 1 as upto, 'ack' as how
        from timeline where event = 'ack' and "offset" < 9223372036854775807),
    concerned as (from proofs semi join shorter using (run, partition, node)),
    so_far as (
        select run, partition, node, time, how,
            max(upto) over (partition by run, partition, node, how order by time) as upto
        from concerned),
    asked as (
        select *, time - clock_error as proved_by, last_time as acked_by from shorter),
    fetched as (
        select a.run, a.partition, a.node, a.seq, s.upto from asked a
        asof join (from so_far where how = 'fetch') s
            on a.run = s.run and a.partition = s.partition and a.node = s.node and a.proved_by > s.time
        where s.upto > a.floor and s.upto <= a.last_leo and not a.truncating),
    acked as (
        select a.run, a.partition, a.node, a.seq, s.upto from asked a
        asof join (from so_far where how = 'ack') s
            on a.run = s.run and a.partition = s.partition and a.node = s.node and a.acked_by > s.time
        where s.upto > a.floor and s.upto <= a.last_leo and not a.truncating),
    stopped as (
        select run, partition, node, seq, last_leo as upto from asked where clean),
    proved as (
        select run, partition, node, seq, max({'upto': upto, 'how': how}) as best
        from (select *, 'clean' as how from stopped union all select *, 'fetch' as how from fetched
            union all select *, 'ack' as how from acked)
        group by all)
    select run, partition, a.leo as "offset", p.best.upto as upto, p.best.upto as seen, p.best.how as how,
        [node] as nodes, node, seq, a.time
    from proved p join asked a using (run, partition, node, seq)"""
