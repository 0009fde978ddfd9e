"""Chooses the leader and the ISR of a partition: pure functions from a partition to its next value.

Rules
1. Order of preference (KRaft's): the current leader, if it may still lead; the first assigned replica that
   is in the ISR and active; only where an unclean election is allowed, the first assigned replica that is
   active, and the ISR is then that one alone.
2. The ISR is never emptied: its last member stays, without a leader if it cannot lead.
3. Every change of leader, also to no leader, starts a new leader epoch. (A broker that comes back as another
   incarnation cannot stay the leader: there is no leader in between.) A change of the ISR alone does not
   (KAFKA-15021). Every change starts a new partition epoch.
"""

from collections.abc import Callable
from dataclasses import replace

from floodmark.broker.protocol.cluster_state import Partition
from floodmark.broker.protocol.messages import NO_LEADER
from floodmark.broker.protocol.rules import Rules

Active = Callable[[int], bool]


def remove_broker(
    partition: Partition, broker: int, active: Active, rules: Rules, *, unclean: bool
) -> Partition | None:
    """The partition after `broker` has failed, bounced or begun to stop; None if that changes nothing.

    `active(broker)` must already be False.
    """
    isr = tuple(member for member in partition.isr if member != broker) or partition.isr
    if partition.leader != broker and isr == partition.isr:
        return None
    return elect_leader(replace(partition, isr=isr), active, rules, unclean=unclean, was=partition)


def elect_leader(
    partition: Partition,
    active: Active,
    rules: Rules,
    *,
    unclean: bool,
    was: Partition | None = None,
    preferred: bool = False,
) -> Partition | None:
    """The partition with the leader it should have; None if `was` (or the partition) has that leader
    already."""
    was = was or partition
    leader, isr = _choose_leader(partition, active, rules, unclean=unclean, preferred=preferred)
    if leader == was.leader and isr == was.isr:
        return None
    bump = int(leader != was.leader and rules.election_bumps_epoch)
    return Partition(
        replicas=partition.replicas,
        leader=leader,
        leader_epoch=was.leader_epoch + bump,
        isr=isr,
        partition_epoch=was.partition_epoch + 1,
    )


def elect_named_leader(partition: Partition, leader: int, rules: Rules) -> Partition:
    """The partition with this leader; one from outside the ISR is the ISR alone (an unclean election)."""
    return Partition(
        replicas=partition.replicas,
        leader=leader,
        leader_epoch=partition.leader_epoch + int(rules.election_bumps_epoch),
        isr=partition.isr if leader in partition.isr else (leader,),
        partition_epoch=partition.partition_epoch + 1,
    )


def _choose_leader(
    partition: Partition, active: Active, rules: Rules, *, unclean: bool, preferred: bool
) -> tuple[int, tuple[int, ...]]:
    """(leader, ISR)."""
    isr = partition.isr
    keeps = partition.leader != NO_LEADER and partition.leader in isr and active(partition.leader)
    if keeps and not preferred:
        return partition.leader, isr
    for replica in partition.replicas:
        if (replica in isr or not rules.elects_from_isr) and (active(replica) or not rules.elects_unfenced):
            return replica, isr if replica in isr else (replica,)
    if unclean:
        for replica in partition.replicas:
            if active(replica):
                return replica, (replica,)
    return NO_LEADER, isr
