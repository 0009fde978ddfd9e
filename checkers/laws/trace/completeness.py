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

    short_leaders   lines with which a node begins to lead, with a LEO below what was committed: run,
                    partition, node, seq, time; epoch; leo; committed: no commit that was surely before this
                    line reaches further; committed_epoch: as in `views`, null of a crowded line
    short_members   members of the controller's ISR, active, with a LEO below what was committed: run,
                    partition, who, leo; node, seq, time: of the first and the last line that shows this LEO;
                    committed: as then
    epochs          what was committed of each epoch: run, partition, written (null: unknown), lo, hi; first:
                    time of its first commit; full: time by which both ends were committed
    mixed_spans     spans of replicas (epoch_spans.py) that overlap what was committed of another epoch
    unsafe_cuts     truncations of an epoch of which a record there or above had surely been committed before:
                    run, partition, node, seq, time, epoch (of the line); written, lo, hi; cut_to
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.tables import FINDINGS
from floodmark.checkers.laws.trace.active_brokers import only_active
from floodmark.checkers.laws.trace.commits import Commits, commits_of
from floodmark.checkers.laws.trace.epoch_spans import END_OF_APPEND
from floodmark.checkers.laws.trace.excuses import Case, Excuses, excuses_of
from floodmark.checkers.laws.trace.isr_times import END, isr_times_of
from floodmark.checkers.laws.unit import Unit

Key = tuple[int, int]  # run, partition
Row = dict[str, Any]
Lacked = tuple[str, int | None]  # a replica, and the epoch of records
_NO_COMMITS = Commits()
_FOREVER = (1 << 63) - 1
_CANDIDATE_SPANS = pa.schema([
    ("run", pa.int32()), ("partition", pa.int64()), ("node", pa.string()),
    *((name, pa.int64()) for name in ("epoch", "lo", "hi", "born_time", "born_seq", "full", "surely")),
])  # fmt: skip


def completeness(unit: Unit) -> None:
    """Make the tables and the findings."""
    unit.make("short_leaders", _SHORT_LEADERS)
    unit.make("short_members", _SHORT_MEMBERS)
    unit.make("epochs", _EPOCHS)
    unit.make("mixed_spans", _MIXED_SPANS)
    unit.make("unsafe_cuts", _UNSAFE_CUTS)
    unit.make("suspected", _SUSPECTED)
    commits, excuses = commits_of(unit), excuses_of(unit)
    found = [
        *leaders(unit, commits, excuses),
        *candidates(unit, commits, excuses),
        *truncations(unit, excuses),
    ]
    unit.add(pa.Table.from_pylist(found, FINDINGS))


def leaders(unit: Unit, commits: Mapping[Key, Commits], excuses: Mapping[Key, Excuses]) -> Iterator[Row]:
    """One finding for each line: it is a bug if its node lacks any record that nothing excuses."""
    for row in unit.rows("from short_leaders").to_pylist():
        key = row["run"], row["partition"]
        of = commits.get(key, _NO_COMMITS)
        cases = (
            Case(lo, hi, row["time"], row["node"], row["seq"], written, "short", hi, led=row["epoch"])
            for written, lo, hi in of.lacked_by_leader(row)
        )
        worst = excuses[key].worst(cases, timed=True, newest=of.newest_below(row["committed"]))
        if worst is not None:
            yield finding(finding_names.LEADER_INCOMPLETE, key, row["node"], *worst)


def candidates(unit: Unit, commits: Mapping[Key, Commits], excuses: Mapping[Key, Excuses]) -> Iterator[Row]:
    """One finding for all records that one replica lacks of one epoch."""
    for key, cases in together(short_of(unit, commits), mixed_of(unit, commits)):
        for who, written in sorted(cases, key=lambda lacked: (lacked[0], lacked[1] or 0)):
            some = cases[who, written]
            worst = excuses[key].worst(sorted(some, key=itemgetter(0, 2, 3, 4)), timed=False)
            assert worst is not None
            ends = [case.upto for case in some if case.upto is not None]
            upto = max(ends) if len(ends) == len(some) else None
            yield finding(finding_names.CANDIDATE_INCOMPLETE, key, who, *worst, upto=upto)


def short_of(unit: Unit, commits: Mapping[Key, Commits]) -> Iterator[tuple[Key, Lacked, Case]]:
    """Logs that end below what was committed."""
    rows = unit.rows("from short_members order by run, partition, who, time, node, seq").to_pylist()
    for (run, partition, who), lines in groupby(rows, itemgetter("run", "partition", "who")):
        of = commits.get((run, partition), _NO_COMMITS)
        for line, (written, lo, hi) in of.lacked_by_member(list(lines)):
            case = Case(lo, hi, line["time"], line["node"], line["seq"], written, "short", line["committed"])
            yield (run, partition), (who, written), case


def mixed_of(unit: Unit, commits: Mapping[Key, Commits]) -> Iterator[tuple[Key, Lacked, Case]]:
    """Logs that had another epoch's record where one was committed, when the replica last was a candidate."""
    unit.load("candidate_spans", pa.Table.from_pylist(list(candidate_spans(unit)), _CANDIDATE_SPANS))
    rows = unit.rows(_GROWN_SPANS).to_pylist()
    for (run, partition, who), spans in groupby(rows, itemgetter("run", "partition", "node")):
        key = run, partition
        for span, epoch, upto in commits[key].displaced(list(spans)):
            offset = max(span["lo"], epoch.lo)
            # The line that caused it: the one that committed the one record, or appended the other.
            began = span["born_time"], who, span["born_seq"]
            time, node, seq = max(epoch.first_commit(offset), began)
            case = Case(offset, upto, time, node, seq, epoch.written, "other", span["epoch"], upto)
            yield key, (who, epoch.written), case


def candidate_spans(unit: Unit) -> Iterator[Row]:
    """The mixed spans of replicas that were candidates meanwhile. `surely`: what came up to this time had
    surely happened when the replica was one for the last time."""
    isr_times = isr_times_of(unit)
    for span in unit.rows("from mixed_spans").to_pylist():
        key, apart = (span["run"], span["partition"]), span["clock_error"] + 1
        until = (END if span["gone"] is None else span["gone"]) - apart
        if key in isr_times:
            last = isr_times[key].last(span["node"], span["born_time"] + apart, until)
            if last is not None:
                yield {**span, "surely": min(last - apart, _FOREVER)}


def together(*found: Iterator[tuple[Key, Lacked, Case]]) -> Iterator[tuple[Key, dict[Lacked, list[Case]]]]:
    """Group by partition, then by replica and epoch."""
    cases: dict[Key, dict[Lacked, list[Case]]] = {}
    for some in found:
        for key, lacked, case in some:
            cases.setdefault(key, {}).setdefault(lacked, []).append(case)
    yield from cases.items()


def truncations(unit: Unit, excuses: Mapping[Key, Excuses]) -> Iterator[Row]:
    """One finding for each line."""
    rows = unit.rows("from unsafe_cuts order by run, partition, node, seq, lo").to_pylist()
    for (run, partition, node, seq), some in groupby(rows, itemgetter("run", "partition", "node", "seq")):
        cut = list(some)
        cases = (
            Case(
                row["lo"], row["hi"], row["time"], node, seq, row["written"], "cut", row["cut_to"],
                led=row["epoch"],
            )
            for row in cut
        )  # fmt: skip
        worst = excuses[run, partition].worst(cases, timed=True)
        assert worst is not None
        upto = max(row["hi"] for row in cut)
        yield finding(finding_names.UNSAFE_TRUNCATION, (run, partition), node, *worst, upto=upto)


def finding(name: str, key: Key, who: str, case: Case, permit: int | None, *, upto: int | None = None) -> Row:
    """`upto`: where the records concerned end; None: at the end of the log."""
    return {
        "name": name, "run": key[0], "partition": key[1], "offset": case.offset, "upto": upto,
        "how": case.how, "seen": case.seen, "epoch": case.written, "nodes": [who], "node": case.node,
        "seq": case.seq, "time": case.time, "permit": permit,
    }  # fmt: skip


# The records that others had surely committed before, and those that the node itself had committed as the
# earlier leader, which is before however near it is (commits_to: an HW that rested on an append which never
# reached the disk committed nothing).
_SHORT_LEADERS = """
    with own as (
        select line, max(commits_to) over (
            partition by run, partition, node order by seq rows between unbounded preceding and 1 preceding
        ) as committed
        from timeline where commits_to is not null or event = 'become_leader')
    select v.run, v.partition, v.node, v.seq, v.time, v.clock_error, v.epoch, v.leo,
        greatest(v.committed, own.committed) as committed,
        if(v.crowded, null, v.committed_epoch) as committed_epoch
    from views v join own using (line)
    where v.event = 'become_leader' and greatest(v.committed, own.committed) > v.leo"""

# Checked after a line, after all of a cluster of lines that are in no order, or when a member is unfenced.
_LACKING = """
    select m.run, m.partition, m.node as who, m.leo, v.node, v.seq, v.time, v.clock_error, v.time as latest,
        v.committed
    from members m join views v using (line) left join timeline t on v.ruling and v.line = t.line
    where not m.moment and (m.log_known or m.found_empty) and m.leo < v.committed
        and not v.crowded
        and (v.ruling or v.commits_to is not null
            or v.event in ('truncate', 'become_leader', 'become_follower'))
        and list_contains(case when v.ruling then t.isr else v.isr end, m.node)
    union all
    select m.run, m.partition, m.node as who, m.leo, v.node, v.seq, v.time, v.clock_error,
        coalesce(v.ends, 9223372036854775807) as latest, v.committed
    from members m join moments v using (line)
    where m.moment and (m.log_known or m.found_empty) and m.leo < v.committed
        and list_contains(v.isr, m.node)
        and (v.ends is null or v.time + v.clock_error < v.ends)"""
# Of all the times at which a log ended there, the first and the last are checked: by the last another epoch
# may have been committed beyond.
_SHORT_MEMBERS = f"""
    with ends as (
        select run, partition, who, leo, min(line) as first, max(line) as last
        from (select run, partition, who, leo,
                {{'time': time, 'seq': seq, 'node': node, 'committed': committed}} as line
            from ({only_active(_LACKING, latest="latest")}))
        group by all)
    select distinct run, partition, who, leo, unnest([first, last], recursive := true) from ends"""

_EPOCHS = """
    select run, partition, written, min(lo) as lo, max(hi) as hi, min(time) as first,
        greatest(min({'lo': lo, 'time': time}).time, min({'hi': -hi, 'time': time}).time) as full
    from committed group by all"""

# Of the epochs that begin below the span's end, the one that begins last, or an earlier one that reaches
# beyond the span's begin.
_MIXED_SPANS = """
    with below as (
        select run, partition, written, lo as low, hi as top, max(hi) over (
            partition by run, partition order by lo, written
            rows between unbounded preceding and 1 preceding) as top_before
        from epochs where written is not null),
    last_below as (
        select run, partition, low, arg_max(written, written) as written, arg_max(top, written) as top,
            arg_max(top_before, written) as top_before
        from below group by all)
    select s.*, t.clock_error from (select *, hi - 1 as last from epoch_spans where epoch is not null) s
    join traced t on s.run = t.run and s.partition = t.partition and list_contains(t.replicas, s.node)
    asof join last_below b on s.run = b.run and s.partition = b.partition and s.last >= b.low
    where (b.written <> s.epoch and b.top > s.lo) or b.top_before > s.lo"""

# The candidates' spans as far as they reached by then: a span grows with each append.
_GROWN_SPANS = f"""
    select s.* replace (case when s.surely >= s."full" then s.hi else least(s.hi, a.reached) end as hi)
    from candidate_spans s
    asof left join (
        select run, partition, node, time, {END_OF_APPEND} as reached
        from timeline where event = 'append') a
        on s.run = a.run and s.partition = a.partition and s.node = a.node and s.surely >= a.time
    order by s.run, s.partition, s.node, s.surely, s.lo"""

_UNSAFE_CUTS = """
    with cuts as (
        select s.run, s.partition, s.node, s.epoch as written, greatest(s.lo, p.claims_from) as lo, s.hi,
            t.seq, t.time, t.time - t.clock_error as surely, t.seq - 1 as before, t.epoch, t.cut_to
        from epoch_spans s join timeline t on s.gone_line = t.line
        join traced p on s.run = p.run and s.partition = p.partition and list_contains(p.replicas, s.node)
        where s.cut and s.epoch is not null),
    concerned as (from committed semi join cuts using (run, partition, written)),
    of_anybody as (
        select run, partition, written, time, max(hi) over (
            partition by run, partition, written order by time) as reached
        from concerned),
    of_its_own as (
        select run, partition, written, node, seq, max(hi) over (
            partition by run, partition, written, node order by seq) as reached
        from concerned)
    select cuts.* exclude (surely, before, hi), least(cuts.hi, greatest(a.reached, o.reached)) as hi
    from cuts
    asof left join of_anybody a on cuts.run = a.run and cuts.partition = a.partition
        and cuts.written = a.written and surely > a.time
    asof left join of_its_own o on cuts.run = o.run and cuts.partition = o.partition
        and cuts.written = o.written and cuts.node = o.node and before >= o.seq
    where greatest(a.reached, o.reached) > cuts.lo and cuts.lo < cuts.hi"""


_SUSPECTED = """
    select run, partition from short_leaders union select run, partition from short_members
    union select run, partition from mixed_spans union select run, partition from unsafe_cuts"""
