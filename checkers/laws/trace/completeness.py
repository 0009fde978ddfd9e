"""Finds which committed records a replica lacks: leader-incomplete, candidate-incomplete, unsafe-truncation.

A record is identified by its offset and its own epoch. It is committed once a leader's HW has passed it. Of a
node that is no replica of the partition nothing is claimed except what it did as a leader: nothing shows when
its copy became a stray one, which no rule protects.

Why a correct broker is never accused, with clean elections. A leader of epoch e moves its HW over records
that all members of the ISR it counts have fetched in e, and the controller elects from no larger ISR. So
every broker that is elected next had the record before it got the new role, and keeps it, because a leader
truncates nothing; all others truncate only records that the leader of their epoch lacks. That also holds for
records that an old leader commits late, by fetches that were under way. Hence all records ever committed in
earlier epochs are

- in a leader's log (leader-incomplete). A leader that learns of its epoch late need not have the commits of
  later epochs.
- in the log of every member of the ISR that has its role from the controller (candidate-incomplete). A
  replica joins only after it has them (unsafe-isr). A node that was started again is not the controller's
  candidate, whatever it lost and whatever role it takes, until it is registered again (a message to the old
  process may reach the new one before that); a fenced node is no candidate. Of a replica whose process has
  started and has no line about it yet nothing is claimed: its log may be empty, or its line may follow.
  But if its first line turns out to be a role with an empty log, the log was empty all the time since the
  start, because only lines change a log: it is checked as if that line had come at once (a disk was lost,
  and the broker left the ISR before it got a role).
- truncated by nobody (unsafe-truncation).

Tables made, all of them empty or nearly empty in a healthy run:

    short_leaders   lines with which a node begins to lead, with a LEO below what was surely committed before:
                    line, run, partition, node, seq, time, clock_error, epoch, leo
    short_members   members of the controller's ISR, active, with a LEO below what was committed: run,
                    partition, who, leo; node, seq, time: of the first and the last line that shows this LEO;
                    committed: as then; surely: what came up to this time had surely happened by then
    epochs          what was committed of each epoch: run, partition, written (-1: unknown), lo, hi
    mixed_spans     spans of replicas (epoch_spans.py) that overlap what was committed of another epoch
    candidate_spans those of replicas that were candidates meanwhile; surely: what came up to this time had
                    surely happened when the replica was one for the last time
    unsafe_cuts     truncations of an epoch of which a record there or above had surely been committed before:
                    run, partition, node, line, seq, time, epoch (of the line); written, lo, upto; cut_to
    suspected       run, partition of all these; if there are none, the next tables are not made, nor findings
    missing         one row for each range of records of one epoch that a replica lacks, by law, run,
                    partition, who (the replica), and about (for leaders and truncations the line, for
                    candidates the epoch of the records: one finding each); written, lo, hi: the records;
                    number: in the order of these and, for one finding, from the lowest records on; lot: one
                    number for the same run, partition and epoch of records;
                    node, seq, time: of the line that shows it; how, seen, upto: for the sentence; led: the
                    epoch in which that line's node leads or follows; timed: an excuse must come before it
"""

from collections.abc import Mapping

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.trace.active_brokers import only_active
from floodmark.checkers.laws.trace.excuses import excuses
from floodmark.checkers.laws.unit import Unit

LAWS = (finding_names.LEADER_INCOMPLETE, finding_names.CANDIDATE_INCOMPLETE, finding_names.UNSAFE_TRUNCATION)
LEADER, CANDIDATE, TRUNCATION = LAWS


def completeness(unit: Unit) -> None:
    """Make the tables and the findings."""
    for table, select in _SUSPECTS.items():
        unit.make(table, select)
    if unit.is_empty("suspected"):
        return
    unit.make("missing", _MISSING)
    excuses(unit)
    unit.make("incomplete", _INCOMPLETE)
    for law in LAWS:
        unit.find(law, f"select * exclude (law) from incomplete where law = '{law}'")


# Checked after a line, after all of a cluster of lines that are in no order, or when a member is unfenced. A
# ruling shows its ISR at its own time, however near other lines are: then what was committed `surely` before
# counts, and all that the member may have had.
_LACKING = """
    select m.run, m.partition, m.node as who, if(crowded, m.reach, m.leo) as leo, v.node, v.seq, v.time,
        v.clock_error, v.latest, v.committed, v.surely
    from members m join (
        select line, node, seq, time, clock_error, committed, isr, time as latest, false as moment, crowded,
            if(crowded, time - clock_error - 1, time) as surely
        from views where (not crowded or ruling) and (event <> 'ack' or commits_to is not null)
        union all by name
        select * exclude (ends), coalesce(ends, 9223372036854775807) as latest, true as moment,
            false as crowded, time as surely
        from moments) v using (line, moment)
    where (m.log_known or m.found_empty) and if(crowded, m.reach, m.leo) < v.committed
        and list_contains(v.isr, m.node)"""

_SUSPECTS: Mapping[str, str] = {
    "short_leaders": """
    select line, run, partition, node, seq, time, clock_error, epoch, leo
    from views where event = 'become_leader' and committed > leo""",
    # Of all the times at which a log ended there, the first and the last are checked: by the last another
    # epoch may have been committed beyond.
    "short_members": f"""
    with ends as (
        select run, partition, who, leo, min(line) as first, max(line) as last
        from (select run, partition, who, leo,
                {{'surely': surely, 'time': time, 'seq': seq, 'node': node, 'committed': committed}} as line
            from ({only_active(_LACKING, latest="latest")}))
        group by all)
    select distinct run, partition, who, leo, unnest([first, last], recursive := true) from ends""",
    "epochs": """
    select run, partition, coalesce(written, -1) as written, min(lo) as lo, max(hi) as hi
    from committed group by all""",
    # Of the epochs that begin below the span's end, the one that begins last, or an earlier one that reaches
    # beyond the span's begin.
    "mixed_spans": """
    with below as (
        select run, partition, written, lo + 1 as hi, hi as top, max(hi) over (
            partition by run, partition order by lo, written
            rows between unbounded preceding and 1 preceding) as top_before
        from epochs),
    last_below as (
        select run, partition, hi, max(written) as written, arg_max(top, written) as top,
            arg_max(top_before, written) as top_before
        from below group by all)
    select s.*, t.clock_error from epoch_spans s join traced t using (run, partition)
    asof join last_below b using (run, partition, hi)
    where list_contains(t.replicas, s.node)
        and (b.written <> s.epoch and b.top > s.lo or b.top_before > s.lo)""",
    # A replica surely is a candidate from each ruling that has it in the ISR until the next ruling, while it
    # is registered and not fenced. Where its span had not yet grown so far, it lacked the records all the
    # more.
    "candidate_spans": """
    with rulings as (
        select run, partition, isr, clock_error, time::hugeint as time, coalesce(
            lead(time::hugeint) over (partition by run, partition order by time, seq, isr), 1::hugeint << 64
            ) as next
        from timeline semi join mixed_spans using (run, partition) where ruling),
    in_isr as (
        select *, unnest(isr) as node, time + clock_error as since, next - clock_error as until from rulings),
    candidates as (
        select run, partition, node, greatest(i.since, a.since::hugeint + clock_error) + 1 as since,
            least(i.until, a.until::hugeint - clock_error) - 1 as until
        from in_isr i join active_brokers a using (run, node)),
    last_times as (
        select run, partition, node, since as until, max(until) over (
            partition by run, partition, node order by since) as ended
        from candidates where since <= until),
    spans as (
        select *, born_time::hugeint + clock_error + 1 as since,
            coalesce(gone, 1::hugeint << 64) - clock_error - 1 as until
        from mixed_spans)
    select s.* exclude (since, until), least(
        least(s.until, c.ended) - s.clock_error - 1, 9223372036854775807)::bigint as surely
    from spans s asof join last_times c using (run, partition, node, until)
    where least(s.until, c.ended) >= s.since""",
    "unsafe_cuts": """
    with cuts as (
        select s.run, s.partition, s.node, s.epoch as written, greatest(s.lo, p.claims_from) as lo, s.hi,
            t.line, t.seq, t.time, t.time - t.clock_error - 1 as surely, t.epoch, t.cut_to
        from epoch_spans s join traced p using (run, partition) join timeline t on s.gone_line = t.line
        where s.cut and list_contains(p.replicas, s.node)),
    concerned as (from committed semi join cuts using (run, partition, written)),
    of_anybody as (
        select run, partition, written, time as surely, max(hi) over (
            partition by run, partition, written order by time) as reached
        from concerned),
    of_its_own as (
        select run, partition, written, node, seq, max(hi) over (
            partition by run, partition, written, node order by seq) as reached
        from concerned)
    select cuts.* exclude (surely, hi),
        least(cuts.hi, coalesce(greatest(a.reached, o.reached), cuts.lo)) as upto
    from cuts asof left join of_anybody a using (run, partition, written, surely)
    asof left join of_its_own o using (run, partition, written, node, seq)
    where upto > cuts.lo""",
    "suspected": """
    select run, partition from short_leaders union select run, partition from short_members
    union select run, partition from mixed_spans union select run, partition from unsafe_cuts""",
}

# A leader must have what leaders up to its epoch had surely committed, or it had itself. A member lacks of
# each epoch the part above its LEO of what was committed by then. The line that caused it that a span has
# replaced records is the one that committed the first of them, or that appended the other. ASOF joins look
# downward: where the next offset above is looked for, offsets are negated.
_MISSING = f"""
    with commits as (
        select * replace (coalesce(written, -1) as written)
        from committed semi join suspected using (run, partition)),
    reached as (
        select run, partition, written, time, min(lo) over earlier as lowest, max(hi) over earlier as reached
        from commits window earlier as (partition by run, partition, written order by time)),
    first_above as (
        select run, partition, written, -hi as above, min(struct_pack(time := time, node := node, seq := seq))
            over (partition by run, partition, written order by hi desc) as first
        from commits),
    leaders as (
        select s.*, c.written, min(c.lo) as rank, min(greatest(c.lo, s.leo)) as lo, max(c.hi) as hi
        from short_leaders s join commits c using (run, partition)
        where c."by" <= s.epoch and c.hi > s.leo
            and (c.time < s.time - s.clock_error or (c.node = s.node and c.seq < s.seq))
        group by all),
    members as (
        select b.*, greatest(b.leo, r.lowest) as lo, r.reached as hi
        from (select m.*, e.written from short_members m join epochs e using (run, partition)) b
        asof join (select * exclude (time), time as surely from reached) r
            using (run, partition, written, surely) where r.reached > b.leo),
    replacing as (
        select o.* replace (greatest(o.lo, r.lowest) as lo), least(o.hi, r.reached) as upto,
            -1 - greatest(o.lo, r.lowest) as above
        from (select s.*, e.written, s.surely as time from candidate_spans s join epochs e
            using (run, partition) where e.written not in (s.epoch, -1)) o
        asof join reached r using (run, partition, written, time)
        where upto > greatest(o.lo, r.lowest)),
    spans as (
        select r.run, r.partition, r.node as who, r.written, r.epoch as seen, r.lo, r.upto, unnest(greatest(
            f.first, struct_pack(time := r.born_time, node := r.node, seq := r.born_seq)))
        from replacing r asof join first_above f using (run, partition, written, above))
    select row_number() over (order by law, run, partition, who, about, rank, time, node, seq, written,
            how desc) as number, dense_rank() over (order by run, partition, written) as lot,
        law, run, partition, who, about, nullif(written, -1) as written, lo, hi, node, seq, time, how, seen,
        upto, led, coalesce(timed, false) as timed
    from (
        select '{LEADER}' as law, *, node as who, line as about, 'short' as how, epoch as led, true as timed,
            max(hi) over (partition by line) as seen
        from leaders
        union all by name
        select '{CANDIDATE}' as law, *, written as about, lo as rank, 'short' as how, committed as seen
        from members
        union all by name
        select '{CANDIDATE}' as law, *, written as about, lo as rank, upto as hi, 'other' as how from spans
        union all by name
        select '{TRUNCATION}' as law, *, node as who, line as about, lo as rank, upto as hi, 'cut' as how,
            cut_to as seen, epoch as led, true as timed
        from unsafe_cuts)"""

# A finding names the first of its records that nothing permits; if there is none, the first of those whose
# permit comes first. What permits the final loss of a record excuses those of its epoch behind it.
_INCOMPLETE = """
    with permitted as (
        select *, least(granted, min(cause) over (
            partition by law, run, partition, who, about, written order by number
            rows unbounded preceding)) as permit
        from missing join excused using (number))
    select law, run, partition, how, seen, written as epoch, [who] as nodes, node, seq, time, permit,
        if(permit is null, greatest(lo, uncovered), lo) as "offset",
        nullif(max(coalesce(upto, 9223372036854775807)) over finding, 9223372036854775807) as upto
    from permitted window finding as (partition by law, run, partition, who, about)
    qualify row_number() over (
        partition by law, run, partition, who, about order by permit nulls first, number) = 1"""
