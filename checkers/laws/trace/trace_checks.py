"""The laws about a node's own lines: hw-regressed, epoch-regressed, two-leaders.

Why a correct broker is never accused:

  hw-regressed       a leader's HW is a maximum, and nobody leads an epoch twice
  epoch-regressed    a role is taken only in an epoch above the last one, or in that one again
                     (Apache Kafka's trace, whose times are the log's timestamps, is judged by the order of
                     each broker's lines alone. A role's line is written under the replica's lock, so the
                     lines are in the order of the roles. A request with an epoch below the replica's is
                     ignored, and after a restart a broker accepts nothing that was meant for its former
                     incarnation (KIP-380), or in KRaft mode applies records only up to a HW that never falls)
  two-leaders        the controller gives each epoch to one leader (any two lines prove it, in any order)

A finding is: of hw-regressed and epoch-regressed a line; of two-leaders an epoch.
"""

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.unit import Unit


def trace_checks(unit: Unit) -> None:
    """Run all three checks."""
    unit.find(
        finding_names.HW_REGRESSED,
        """select run, partition, hw as "offset", led_hw as seen, [node] as nodes, node, seq, time
        from timeline where leads and led_epoch = epoch and hw < led_hw""",
    )
    unit.find(
        finding_names.EPOCH_REGRESSED,
        """select run, partition, top_epoch as seen, cast(epoch as text) as how, [node] as nodes, node, seq,
            time
        from timeline where event in ('become_leader', 'become_follower') and epoch < top_epoch""",
    )
    two_leaders(unit)


def two_leaders(unit: Unit) -> None:
    """Find two nodes that append, ack or move the HW as leader of one epoch; the second's first line is to
    blame."""
    unit.find(
        finding_names.TWO_LEADERS,
        """with first_acts as (
            select min(line) as line from timeline where leads and event in ('append', 'ack', 'hw')
            group by run, partition, epoch, node
        )
        select run, partition, coalesce("offset", hw) as "offset", epoch as seen, node, seq, time,
            list_sort(list(node) over (partition by run, partition, epoch)) as nodes
        from first_acts join timeline using (line)
        qualify row_number() over (partition by run, partition, epoch order by time, seq, node) = 2""",
    )
