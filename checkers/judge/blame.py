"""Finds the line of the trace that is to blame for a finding: the step that certainly broke a rule, or none.

A record is lost, a log is truncated, a leader lacks committed records: often long after the wrong step, and
on a node that did what it was told to do. So a loss, and what completeness.py finds, is blamed on the
earliest line about its record: a finding of the trace, or one of these steps, which are no findings.

  early-commit        a leader moved its HW over the record before a member of its ISR had appended it
  early-fetch         the same, but that member had fetched from an offset above its own log's end
  early-diverged      the same, but that member had fetched from a higher offset, with another record at this
                      one: it should have truncated that, or the leader should have noticed
  hw-ahead            a node became leader with an HW above that of every leader so far
  isr-proposal        a leader proposed an ISR with a replica below the leader's HW
  isr-by-controller   the controller added such a replica, and no leader had proposed that

Why no node is blamed wrongly. early-commit makes the same claim as ack-rule, about the line by which the HW
moved: the leader counts every broker that it has learnt to be in the ISR and that the controller has there
too (KIP-497), and a member's append is in the trace before the fetch that proves it. The offset it fetched
from is in the leader's own line. A proposal counts if no line of the replica between the proposal and the
ruling shortened its log.

Where the earliest line only shows that something is wrong, the finding says that nobody can tell: a leader or
a candidate that lacks the record has done nothing wrong by that alone. (If it started without the record,
that start is the line; but an append is in the trace before it is on disk, and a power cut may have removed
it.) A follower that truncates where its leader told it to does what it must, and the only evidence of the
leader's answer is the follower's own `answer` in the truncate line. If it truncated below that offset, the
truncation is to blame; and if it truncated to its own HW, unasked. For early-diverged nobody can tell either:
it depends on earlier requests, and on what the protocol's generation compares. Nor for hw-ahead: the trace
does not have the HW of a leader's answer.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.laws.tables import FINDINGS
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.text.blame_words import (
    BY_CONTROLLER,
    EARLY_COMMIT,
    EARLY_DIVERGED,
    EARLY_FETCH,
    HW_AHEAD,
    PROPOSAL,
    words_of_blame,
)

Row = dict[str, Any]
_INCOMPLETE = (names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE, names.UNSAFE_TRUNCATION)
_COLUMNS = ("run", "partition", "offset", "epoch", "name", "how", "nodes", "node", "seq", "time", "permit")
_UNBLAMED = dict.fromkeys(("blame", "blame_known", "blamed_node", "blamed_seq"))
_ASKED = pa.schema([("id", pa.int64()), *(FINDINGS.field(name) for name in _COLUMNS)])


def with_blame(unit: Unit, rows: Sequence[Row]) -> list[Row]:
    """Add to each row `blame`, the sentence about what is to blame (null: the finding says all), whether that
    is known, and the line to blame, by its node and seq."""
    asked = [
        {"id": number, **{name: row[name] for name in _COLUMNS}}
        for number, row in enumerate(rows) if is_asked(row)
    ]  # fmt: skip
    traced = unit.has("members") and unit.has("epoch_spans")  # the laws of the trace were run
    blamed = dict(find_lines_to_blame(unit, asked)) if asked and traced else {}
    return [{**row, **blamed.get(number, _UNBLAMED)} for number, row in enumerate(rows)]


def is_asked(row: Row) -> bool:
    """Whether another line than the finding's own may be to blame for it."""
    if row["name"] in names.LOSSES:
        return row["seq"] is None and row["offset"] is not None
    return row["permit"] is None and (row["how"] == "behind" or row["name"] in _INCOMPLETE)


def find_lines_to_blame(unit: Unit, asked: Sequence[Row]) -> list[tuple[int, Row]]:
    """For each row, by its number: the sentence, and the line if one is to blame."""
    unit.load("asked_rows", pa.Table.from_pylist(list(asked), schema=_ASKED))
    for name, select in {**_STEPS, "chosen": _CHOSEN}.items():
        unit.make(name, select)
    suspects = {row["id"]: row for row in unit.rows(_EARLIEST).to_pylist()}
    found = []
    for row in asked:
        first = suspects.get(row["id"])
        if first is not None:
            blame = words_of_blame(first, row) if row["permit"] is None else None
            at = first
            if row["seq"] is not None and blame is not None and not blame.known:
                at = row  # a line that shows the finding says more than a possible cause
            found.append((row["id"], {
                "blame": blame and blame.text, "blame_known": blame and blame.known,
                "blamed_node": at["node"], "blamed_seq": at["seq"]}))
    return found


# -- the steps ----------------------------------------------------------------------------------------------

_GUILTY = ", ".join(f"'{name}'" for name in (*names.GUILTY, names.TWO_LEADERS))
_ASKED_OFFSETS = 'select distinct run, partition, "offset", epoch from asked_rows'
# The line by which the HW passed a record of the leader's own epoch, and the members that had not appended
# it.
_LACKING = """
    with passed as (
        select t.line, t.run, t.partition, a."offset", t.node, t.seq, t.time, t.epoch
        from timeline t join asked_offsets a using (run, partition) join traced p using (run, partition)
        where t.event = 'hw' and t.fresh_from <= a."offset" and a."offset" < t.fresh_to and p.complete),
    learnt as (
        select run, partition, node, seq, epoch, isr from timeline
        semi join asked_offsets using (run, partition)
        where event in ('become_leader', 'isr')),
    counted as (
        select p.*, l.isr from passed p asof join learnt l on p.run = l.run and p.partition = l.partition
            and p.node = l.node and p.seq >= l.seq
        where l.epoch = p.epoch)
    select c.*, m.node as who, greatest(coalesce(m.leo, 0), coalesce(m.appended_to, 0)) as reached
    from counted c join views v using (line) join members m on c.line = m.line and not m.moment
    where m.node != c.node and list_contains(c.isr, m.node)
        and v.isr_epoch = c.epoch and list_contains(v.isr, m.node)
        and not coalesce(m.appended_epoch > c.epoch
            or (m.appended_epoch = c.epoch and m.appended_to > c."offset"), false)"""
_PRETENDED = """
    select l.line, l."offset", l.who,
        min({'seq': f.seq, 'time': f.time}) filter (f."offset" > l.reached) as asked
    from lacking l join timeline f on l.run = f.run and l.partition = f.partition and l.node = f.node
        and f.event = 'fetch' and f.epoch = l.epoch and f.follower = l.who
    where (f.seq < l.seq or f.time <= l.time) and f."offset" > l."offset" group by all"""
_EARLY_COMMITS = f"""
    select run, partition, l."offset", '{EARLY_COMMIT}' as name, l.node, l.seq, l.time, l.epoch,
        list(distinct l.who order by l.who) as nodes, cast(null as bigint) as seen
    from lacking l anti join pretended p on l.line = p.line and l."offset" = p."offset" and l.who = p.who
    group by all
    union all by name
    select l.run, l.partition, l."offset",
        if(p.asked is null, '{EARLY_DIVERGED}', '{EARLY_FETCH}') as name, l.node,
        coalesce(p.asked.seq, l.seq) as seq, coalesce(p.asked.time, l.time) as time, [l.who] as nodes,
        l.epoch
    from lacking l join pretended p on l.line = p.line and l."offset" = p."offset" and l.who = p.who"""
# The become_leader line of a node shows what is below its HW. A trace without HW lines shows nothing.
_HWS_AHEAD = f"""
    with begun as (
        select t.run, t.partition, a."offset", a.epoch, t.node, t.seq, t.time, t.clock_error, t.hw
        from timeline t join asked_offsets a using (run, partition) join traced p using (run, partition)
        where t.event = 'become_leader' and a."offset" < t.inherited_to and p.complete
            and coalesce(a.epoch < t.epoch, true)),
    shown as (
        select run, partition, node, seq, time, hw, event from timeline
        semi join begun using (run, partition) where leads),
    ahead as (
        select b.* from begun b
        semi join shown s on b.run = s.run and b.partition = s.partition and s.event = 'hw'
        anti join shown s on b.run = s.run and b.partition = s.partition and s.hw > b."offset"
            and s.time <= b.time + b.clock_error and not (s.node = b.node and s.seq >= b.seq))
    select run, partition, "offset", epoch, '{HW_AHEAD}' as name, node, seq, time, [node] as nodes, hw as seen
    from ahead"""
# For each replica that was added to an ISR behind the HW: who proposed it.
_PROPOSED = f"""
    with taken_in as (
        select f.run, f.partition, f."offset", f.seen, f.nodes, f.node as by_node, f.seq as by_seq, r.time,
            r.clock_error, list_sort(r.isr) as isr, r.ruled_partition_epoch as builds_on
        from ranked_rows f join timeline r on f.run = r.run and f.node = r.node and f.seq = r.seq
        where f.how = 'behind'),
    proposals as (
        select run, partition, node, seq, time, list_sort(isr) as isr, partition_epoch as builds_on
        from timeline where event = 'isr_proposed'),
    matched as (
        select t.*, p.node, p.seq, p.time as proposed from taken_in t left join proposals p
            on t.run = p.run and t.partition = p.partition and t.isr = p.isr and t.builds_on = p.builds_on
            and p.time <= t.time + t.clock_error),
    shortened as (
        select m.by_node, m.by_seq, m.run, m.partition from matched m join timeline s
            on m.run = s.run and m.partition = s.partition and list_contains(m.nodes, s.node)
        where s.event in ('start', 'truncate') and s.time >= m.proposed - m.clock_error
            and s.time <= m.time + m.clock_error)
    select run, partition, "offset", seen as upto, '{PROPOSAL}' as name, node, seq, proposed as time, nodes,
        by_node, by_seq
    from matched anti join shortened using (run, partition, by_node, by_seq) where seq is not null
    union all by name
    select run, partition, "offset", seen as upto, '{BY_CONTROLLER}' as name, by_node as node, by_seq as seq,
        time, nodes, by_node, by_seq
    from matched semi join proposals using (run, partition) where seq is null"""
# Findings of the trace, and the records that they are about. `shows` orders the suspects of one line: first
# the steps, then findings that are wrong steps themselves, then findings that only show that there was one.
_SUSPECTS = f"""
    select r.run, r.partition, r."offset",
        coalesce(r.upto, case when r.how in ('short', 'behind') then r.seen end) as upto,
        r.name, r.how, r.node, r.seq, r.time, r.nodes, r.seen, r.permit,
        case r.name when '{names.ACK_RULE}' then t.epoch when '{names.TWO_LEADERS}' then r.seen
            else r.epoch end as epoch,
        1 + (r.name in ('{names.LEADER_INCOMPLETE}', '{names.CANDIDATE_INCOMPLETE}'))::int as shows
    from ranked_rows r join timeline t on r.run = t.run and r.partition = t.partition and r.node = t.node
        and r.seq = t.seq
    where r.name in ({_GUILTY})
    union all by name select *, 0 as shows from early_commits_at
    union all by name select *, 0 as shows from hws_ahead_at
    union all by name select *, 0 as shows from proposed"""
# Each is about one offset.
_AT = """select *, cast(least("offset"::hugeint + 1, 9223372036854775807) as bigint) as upto from {}"""
_STEPS = {
    "asked_offsets": _ASKED_OFFSETS,
    "lacking": _LACKING,
    "pretended": _PRETENDED,
    "early_commits": _EARLY_COMMITS,
    "early_commits_at": _AT.format("early_commits"),
    "hws_ahead": _HWS_AHEAD,
    "hws_ahead_at": _AT.format("hws_ahead"),
    "proposed": _PROPOSED,
    "suspects": _SUSPECTS,
}
# The epoch of a record may be known or not; lines after a finding of the trace cannot have caused it. A
# replica that truncated a record which its leader held needs no earlier line to lack it.
_CHOSEN = f"""
    with pairs as (
        select a.id, a."offset" as asked_offset, a.permit as asked_permit, a.nodes[1] as asked_node,
            a.seq as asked_seq, s.* exclude (by_node, by_seq)
        from asked_rows a join suspects s using (run, partition)
        where case a.name when '{names.UNSAFE_ISR}' then
                coalesce(s.by_node, s.node) = a.node and coalesce(s.by_seq, s.seq) = a.seq
            else s."offset" <= a."offset" and (s.upto is null or a."offset" < s.upto)
                and (a.time is null or s.time <= a.time)
                and coalesce(a.epoch = s.epoch, true) end),
    led as (
        select run, partition, epoch, any_value(node) as leader from timeline
        where event = 'become_leader' group by all having min(node) = max(node)),
    cuts as (
        select p.id, p.run, p.partition, p.node, p.seq, p.time, t.clock_error, p.epoch, p.asked_offset,
            t.cause, t.answer, led.leader
        from pairs p join timeline t on p.run = t.run and p.node = t.node and p.seq = t.seq
        left join led on t.run = led.run and t.partition = led.partition and t.epoch = led.epoch
        where p.name = '{names.UNSAFE_TRUNCATION}'),
    held as (
        select distinct c.id, c.node, c.seq, true as held
        from cuts c join epoch_spans s on s.run = c.run and s.partition = c.partition and s.node = c.leader
            and s.epoch = c.epoch
        where s.lo <= c.asked_offset and c.asked_offset < s.hi
            and s."full" + c.clock_error < c.time
            and (s.gone is null or s.gone > c.time + c.clock_error))
    select p.*, c.cause, c.answer, c.leader, coalesce(h.held, false) as held
    from pairs p left join cuts c using (id, node, seq) left join held h using (id, node, seq)
    qualify row_number() over (partition by p.id
        order by coalesce(h.held and p.node = p.asked_node, false) desc,
            coalesce(h.held and p.seq = p.asked_seq, false) desc,
            p.asked_permit is null and p.permit is not null, p.time, p.node, p.seq, p.shows, p.name,
            p.nodes, p."offset") = 1"""
# Where all that is known is that a replica lacked the record: the start at which it came back without it.
_EARLIEST = """
    with gone as (
        select c.id, max({'time': s.gone, 'line': s.gone_line}) as last
        from chosen c join epoch_spans s
            on c.run = s.run and c.partition = s.partition and c.nodes[1] = s.node
        where c.shows = 2 and s.lo <= c.asked_offset and c.asked_offset < s.hi and s.gone <= c.time
            and coalesce(c.epoch = s.epoch, true) group by all)
    select c.*, t.seq as start_seq, t.leo as start_leo
    from chosen c left join gone g using (id)
    left join timeline t on g.last.line = t.line and t.event = 'start'"""
