"""Finds what the faults of a run permit: for each partition, up to which send a loss is covered, and by what.

Theory. Every cause (an unclean election, copies struck beyond the budget) covers the records sent before it,
so each cause is one bound per partition: a lost record is covered if its send was invoked before the bound.
Acts of the nemesis are ordered by the index of their line, events that only the trace has by time.

Without a trace the budget is counted: min.insync.replicas of the partition's nodes struck after the send
permits surely, at least one permits possibly. With a trace it is looked up: a leader was elected while all
members of the previous ISR were struck. Faults that the history may lack (acts.py) permit possibly, for every
record.

Times of two nodes that differ by no more than the clock error are in no known order: a cause that permits a
loss in one of the two orders permits it possibly. So there are two bounds of each kind, for what surely
permits and for what may permit.

Where every write is flushed, a power cut takes only what a process that had ended before left written and not
flushed: Kafka credits what it finds written (unless the system flushes at recovery). So it covers the records
sent before the last such end of its node; a wiped, replaced or bad disk covers what it always does.

An unclean election permits a loss only if it was allowed: the setting is on, or the nemesis had begun to ask
for it before. One that was not allowed is a finding of its own (unclean-election). Where a whole trace shows
which elections were unclean, only these count, whatever the nemesis asked for; else every request does.

A broker is active from the line that unfences it to the controller's next line about it, or to the start of
its next process, which is not registered yet, whatever role it takes: a start that does not surely come
before the unfencing ends it. Where lines of the trace are missing, the others are still evidence.

Every step is a SELECT over the facts of run_tables.py, of all runs of a unit at once, and makes a table.
"""

from collections.abc import Mapping

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.permits import (
    BUDGET,
    BUDGET_MAYBE,
    DOUBT,
    EVER,
    NEVER,
    UNCLEAN,
    UNCLEAN_MAYBE,
)
from floodmark.checkers.laws.trace.node_timeline import near
from floodmark.checkers.laws.unit import Unit

_ALWAYS = (1 << 63) - 1  # beyond every time, even with any clock error
_LEAST = -(1 << 63)


def permissions(unit: Unit) -> None:
    """Make the tables of _STEPS, and find the unclean elections that were not allowed. Of those of which
    nobody knows, one row for each partition is a DOUBT."""
    for name, select in _STEPS.items():
        unit.make(name, select)
    unit.find(finding_names.UNCLEAN_ELECTION, _NOT_ALLOWED)


def _within(time: str) -> str:
    """A bound that fits into Spark's integers and is beyond every real time."""
    return f"greatest({NEVER}, least({EVER}, {time}))::bigint"


_STEPS: Mapping[str, str] = {
    # The faults that lost data on a node. `until`, `until_time`: only what was sent before the index, or
    # written up to the time, may be lost; null: nothing. A node of `died` ended nobody knows when.
    "struck": """
    with covered as (
        select s.run, s.node, s.index, s.began, s.time, max({'index': e.index, 'time': e.time}) as ended,
            any_value(not flushed or not s.spares_flushed
                or (not recovers and (died is null or list_contains(died, s.node)))) as wholly
        from acts s join run_facts r using (run) left join acts e on e.ended and not recovers
            and e.run = s.run and e.node = s.node and (e.index < s.index or disordered)
        where s.lost
        group by all)
    select run, node, index, began::hugeint as began, time::hugeint as time,
        if(wholly, index, ended.index) as until, if(wholly, time, ended.time) as until_time
    from covered""",
    # The different lists of replicas, and what follows for every partition that has one.
    "replica_sets": """
    with members as (
        select *, unnest(if(len(replicas) = 0, [null], list_distinct(replicas))) as node
        from (select distinct run, replicas from assignments)),
    last as (
        select run, replicas, node, any_value(configured_min_insync) as configured, max(until) as last_until,
            count(index) > 0 as hit, bool_or(index is not null and coalesce(until < index, true)) as cut
        from members left join run_nodes using (run, node) left join struck s using (run, node) group by all)
    select run, replicas, coalesce(any_value(min_insync), max(configured), 1) as min_insync,
        bool_or(hit) as hit, bool_or(cut) as cut, max(last_until) is not null as losing,
        list(last_until order by last_until desc) filter (last_until is not null) as last_untils
    from last join run_facts using (run) group by run, replicas""",
    # The controller's decisions about partitions that run.json names; `elects`: an election, else any change.
    "decisions": """
    select run, partition, time::hugeint as time, node, seq, leader, epoch, list_distinct(isr) as isr,
        event = 'elect' as elects, clean, clock_error::hugeint as error, row_number() over before as step,
        coalesce(lag(list_distinct(isr)) over before, []) as former_isr
    from controller_lines join run_facts using (run) semi join assignments using (run, partition)
    where event in ('elect', 'isr')
    window before as (partition by run, partition order by time, node, seq)""",
    "asks": """
    select distinct run, partition, index, began::hugeint as began
    from assignments join acts using (run)
    where asks and (partitions is null or list_contains(partitions, partition))""",
    # A node's starts; `first`: of its first process, those at the beginning of its lines, at most one for the
    # node and one for each partition.
    "broker_starts": """
    with numbered as (
        select *, row_number() over (partition by run, node order by seq, "at") - 1 as lines_before,
            row_number() over (partition by run, node, partition order by seq, "at") = 1 as fresh
        from controller_lines join run_nodes using (run, node) where event = 'start')
    select run, node, time::hugeint as time, of_run, bool_and(seq - lines_before = first_seq and fresh) over (
        partition by run, node order by seq, "at" rows unbounded preceding) as first
    from numbered""",
    # Every unclean election, and whether it was allowed. It was if the setting is on, or if a request surely
    # came before it. If a request may have come before it, nobody knows (null).
    "unclean_elections": """
    select d.run, d.partition, d.time, d.node, d.seq, d.leader, d.epoch, d.error,
        case when any_value(unclean) or coalesce(bool_or(not untimely and d.time - began > d.error), false)
            then true
            when any_value(asked)
            or coalesce(bool_or(began is not null and (untimely or abs(d.time - began) <= d.error)), false)
            then null else false end as allowed
    from decisions d join run_facts using (run) left join asks using (run, partition)
    where elects and not clean
    group by all""",
    # Every election of a leader from an ISR whose members, and the leader itself, were all struck. A node
    # that is added to the ISR while it is down, because that was proposed before, has no copy again by that;
    # one that was started since has. `generous`: events of unknown order are taken in the order that permits
    # a loss; otherwise in the other: a fault comes before an election if the times differ by more than
    # `slack`; a start after a fault, and an addition after a start, by more than `start_slack`.
    "overspent": """
    with orders as (
        select run, true as generous, -clock_error::hugeint - 1 as slack, clock_error::hugeint as start_slack
        from run_facts
        union all select run, false, clock_error::hugeint, -clock_error::hugeint - 1 from run_facts),
    hits as (
        select a.partition, s.*
        from (select distinct run, partition from decisions) join assignments a using (run, partition)
        join struck s on a.run = s.run and list_contains(a.replicas, s.node) where until is not null),
    added as (
        select run, partition, step, time,
            unnest(list_filter(isr, lambda one: not list_contains(former_isr, one))) as node
        from decisions where not elects),
    copied as (
        select h.run, h.partition, h.node, h.time, generous, step
        from hits h join orders o using (run)
        asof join broker_starts t on h.run = t.run and h.node = t.node and h.time + start_slack < t.time
        asof join added a on h.run = a.run and h.partition = a.partition and h.node = a.node
            and t.time + start_slack < a.time),
    chosen as (
        select run, partition, step, time, epoch, list_distinct(list_append(isr, leader)) as nodes,
            unnest(nodes) as node
        from decisions where elects and leader is not null),
    lacking as (
        select c.run, c.partition, c.step, c.time, c.epoch, len(c.nodes) as nodes, c.node, o.generous,
            max(h.until) as until, max(h.until_time) as until_time
        from chosen c join orders o using (run) join hits h using (run, partition, node)
        anti join copied k on k.run = c.run and k.partition = c.partition and k.node = c.node
            and k.time = h.time and k.generous = o.generous and k.step < c.step
        where c.time - h.began > o.slack group by all),
    spent as (
        select run, partition, generous, min(until) as index, min(until_time) as struck, epoch, time
        from lacking group by run, partition, generous, step, epoch, time, nodes having count(*) = nodes)
    select run, partition, index, struck, epoch, time, bool_or(not generous) as surely
    from spent group by all""",
    # The bounds of each partition (laws.tables), and its excuses: what permits a loss by the trace itself,
    # and by events that the history lacks or has at a time that may be wrong. Without clean elections nothing
    # promises the records of an earlier epoch; the records that the new leader writes are not covered. A
    # whole trace shows whether what was asked for, or may have been, was done. Of some power cut nobody may
    # know whether its node had been killed before (`cut`).
    "bounds": f"""
    with requests as (
        select run, partition, max(index) as index from asks join run_facts using (run)
        where not cleanness group by all),
    elected as (
        select run, partition, max(time) filter (allowed) as surely,
            max(time) filter (allowed is distinct from false) as perhaps
        from unclean_elections group by all),
    spent as (
        select run, partition, max(index) filter (surely) as surely, max(index) as perhaps
        from overspent group by all),
    joined as (
        select a.run, a.partition, e.surely, e.perhaps, clock_error::hugeint as error, requests.index,
            e.run is not null as had_unclean, hit, lost,
            case when elections then spent.surely else last_untils[s.min_insync] end as budget_index,
            case when elections then spent.perhaps else last_untils[1] end as budget_maybe_index,
            not cleanness and elected as unread_election,
            not cleanness and unclean or unread_election
                or disordered and requests.index is not null or untimely and e.perhaps is not null as maybe,
            ended and cut or if(flushed, lost_flushed, lost) as unread_strike,
            unread_strike or losing and (disordered or untimely and elections) as budget_maybe,
            unread_strike or untimely and losing as budget_excused
        from assignments a join run_facts using (run) join replica_sets s using (run, replicas)
        left join requests using (run, partition) left join elected e using (run, partition)
        left join spent using (run, partition))
    select run, partition, index as unclean_index,
        case when surely is not null then {_within("surely - error")} end as unclean_time,
        maybe as unclean_maybe,
        case when perhaps is not null then {_within("perhaps + error + 1")} end as unclean_maybe_time,
        budget_index,
        if(budget_maybe, {EVER}, budget_maybe_index) as budget_maybe_index,
        hit or index is not null or had_unclean or maybe or lost as struck,
        unread_election, budget_excused
    from joined""",
    "excuses": f"""
    with each as (
        select run, partition, if(allowed, {UNCLEAN}, {UNCLEAN_MAYBE}) as permit,
            greatest({_LEAST}, epoch::hugeint - 1) as epoch, {EVER * 4} as struck, epoch as elected, time
        from unclean_elections where allowed is distinct from false
        union all by name
        select run, partition, if(surely, {BUDGET}, {BUDGET_MAYBE}) as permit, {EVER} as epoch, struck,
            epoch as elected, time
        from overspent
        union all by name
        select run, partition, unnest(list_filter([if(unread_election, {UNCLEAN_MAYBE}, null),
                if(budget_excused, {BUDGET_MAYBE}, null)], lambda one: one is not null)) as permit,
            {EVER} as epoch, {EVER * 4} as struck, {NEVER} as elected, {-EVER} as time
        from bounds)
    select run, partition, list({{'permit': permit, 'epoch': epoch::bigint, 'struck': {near("struck")},
        'elected': elected, 'time': {near("time")}::bigint}}) as excuses
    from each group by all""",
    # When each broker was registered and not fenced, by the controller's lines.
    "activity": f"""
    with about as (
        select run, broker as node, event, time::hugeint as time,
            lead(time) over (partition by run, broker order by time, node, seq) as after
        from controller_lines where event in ('register', 'fence', 'unfence'))
    select run, node, time as since, coalesce(after, {_ALWAYS})::hugeint as until
    from about semi join run_nodes using (run, node) where event = 'unfence'""",
}
ACTIVE_BROKERS = f"""
    with lives as (
        select a.run, a.node, a.since, clock_error, least(a.until, min(s.time)) as until
        from activity a join run_facts using (run) left join broker_starts s on a.run = s.run
            and a.node = s.node and not first and of_run and s.time + clock_error >= a.since
        group by a.run, a.node, a.since, a.until, clock_error),
    near as (
        select run, node, clock_error, {near("since")}::bigint as since,
            if(until = {_ALWAYS}, until, {near("until")})::bigint as until
        from lives)
    select run, node, since, until from near where until::hugeint - since > clock_error"""
_NOT_ALLOWED = f"""
    select run, partition, epoch as seen, list_filter([leader], lambda one: one is not null) as nodes, node,
        seq, time::bigint as time, null::integer as permit
    from unclean_elections where not allowed
    union all by name
    select distinct run, partition, {DOUBT} as permit from unclean_elections where allowed is null"""
