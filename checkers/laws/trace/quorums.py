"""The laws about acks and ISRs in the trace: ack-rule and unsafe-isr.

A finding is: of ack-rule an ack; of unsafe-isr a line of the controller, or the members of the controller's
ISR that a leader's ISR lacks in one epoch.

Why a correct broker is never accused.

ack-rule. HW, offset and ISR are in the ack's own line. The proof that a member had appended the record is the
member's append, whose line was written before the fetch that proved it to the leader; so its time is lower,
or too near to tell, and counts as lower. A record is identified by its epoch, which is the acker's own for
all records that it appended as leader; for older ones (a producer's repeated send) nothing is claimed, nor
for a member that has appended in a later epoch since, nor for one that found more at a start than its lines
explain. Whether the member has lost the record since does not matter.

unsafe-isr. Additions are checked where the controller applies them, while its epoch is still the leader's: no
broker knows of a later epoch, so the new member follows this leader, and has truncated what it had to before
the fetch that proved it in sync; and the leader has counted it ever since (KIP-497), so its HW is not above
that member's LEO either. A member that has been started again counts only once it has registered again, which
voids the older incarnation's place (KIP-903). An acker counts all members that it has proposed, so it counts
those that the controller has accepted, until it learns of a later ruling: its ISR covers the controller's in
the same epoch (VL's ReplicationQuorumSuperset). Only another ruling near the ack leaves that open.
"""

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.trace.active_brokers import only_active
from floodmark.checkers.laws.unit import Unit


def quorums(unit: Unit) -> None:
    """Run both checks."""
    unit.make(
        "first_appends",  # where leaders of an epoch started to write
        """select run, partition, node, epoch, min("offset") as "offset" from timeline
        where event = 'append' and leads group by all""",
    )
    unit.make(
        "full_acks",
        """select t.line, run, partition, node, t.seq, t.time, epoch, t.hw, t."offset", t.isr,
            coalesce(t.epoch_start, b."offset") as epoch_start, p.min_isr, p.complete
        from timeline t join traced p using (run, partition)
        left join first_appends b using (run, partition, node, epoch)
        where t.event = 'ack' and t.acks in ('all', '-1')""",
    )
    ack_rule(unit)
    smaller_isr(unit)
    unfit_rulings(unit)


def ack_rule(unit: Unit) -> None:
    """Find acks=all acks with HW <= offset, with too small an ISR, or before every member had the record."""
    unit.make(
        "members_without_record",  # members of the acker's ISR that had not appended the record in this epoch
        """select line, list(distinct m.node order by m.node) as lacks
        from full_acks a join members m using (run, partition, line)
        where a.complete and a."offset" >= a.epoch_start
            and not coalesce(m.appended_epoch > a.epoch
                or (m.appended_epoch = a.epoch and m.appended_to > a."offset"), false)
            and list_contains(a.isr, m.node)
        group by line""",
    )
    unit.find(
        finding_names.ACK_RULE,
        """with broken as (
            select a.*, case when hw <= "offset" then {'how': 'hw', 'seen': hw, 'nodes': [node]}
                when len(isr) < min_isr then {'how': 'isr', 'seen': min_isr, 'nodes': isr}
                when lacks is not null then {'how': 'member', 'seen': null, 'nodes': lacks} end as breach
            from full_acks a left join members_without_record using (line)
        )
        select run, partition, "offset", node, seq, time, unnest(breach),
            least("offset", 9223372036854775806) + 1 as upto
        from broken where breach is not null""",
    )


def smaller_isr(unit: Unit) -> None:
    """Find leaders whose ISR at an ack lacks a member of the controller's, in one epoch; the first ack is to
    blame."""
    unit.find(
        finding_names.UNSAFE_ISR,
        """with lacking as (
            select a.*, list_sort(list_distinct(
                list_filter(v.isr, lambda m: not list_contains(a.isr, m)))) as lacks
            from full_acks a join views v using (run, partition, line)
            where v.isr_epoch = a.epoch and not v.ruling_near and not list_has_all(a.isr, v.isr)
        )
        select run, partition, 'smaller' as how, lacks as nodes, node, seq, time, "offset" from lacking
        qualify row_number() over (partition by run, partition, node, epoch, lacks order by seq) = 1""",
    )


def unfit_rulings(unit: Unit) -> None:
    """Find rulings that add a replica too far behind, leave out their leader, or go back in their own
    order."""
    unit.make(
        "rulings",
        """select line, run, partition, t.node, t.seq, t.time, t.clock_error, t.event, t.epoch, t.isr,
            t.leader, t.partition_epoch, t.ruled_isr, t.ruled_partition_epoch, v.crowded,
            greatest(case when v.leader_epoch = t.epoch then v.leader_hw end,
                case when v.opened_epoch = t.epoch then v.opened_start end) as floor
        from timeline t join views v using (run, partition, line) where t.ruling""",
    )
    taken_in = """select r.run, r.partition, r.line, r.node, r.seq, r.time, r.clock_error, r.floor,
            m.node as who, m.reach as leo
        from rulings r join members m using (run, partition, line)
        where r.event = 'isr' and m.log_known and m.reach < r.floor
            and list_contains(r.isr, m.node) and not list_contains(r.ruled_isr, m.node)"""
    unit.find(
        finding_names.UNSAFE_ISR,
        f"""select run, partition, 'behind' as how, min(leo) as "offset", floor as seen,
            list(distinct who order by who) as nodes, node, seq, time
        from ({only_active(taken_in)}) group by run, partition, line, node, seq, time, floor""",
    )
    unit.find(
        finding_names.UNSAFE_ISR,
        """select run, partition, 'leader' as how, [leader] as nodes, node, seq, time from rulings
        where not list_contains(isr, leader)""",
    )
    unit.find(
        finding_names.UNSAFE_ISR,
        """select run, partition, 'order' as how, partition_epoch as seen, isr as nodes, node, seq, time
        from rulings where partition_epoch <= ruled_partition_epoch""",
    )
