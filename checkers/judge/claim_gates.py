"""What may be claimed of each partition of a run, once the first pass is over.

Every law asks these gates, as columns of its tables (run_tables.py): so each stands in one place. Here too
they are columns, a flag for each partition that run.json names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from checkers.read.folder import Folder, Partition, Replica

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """`partitions`: those of run.json; every other field has a flag for each of them, in this order."""

    partitions: tuple[Partition, ...]
    # The leader is known, has its row in replicas.jsonl, and its dump can be relied on.
    leader_known: Flags
    # ... and its log shows what is lost: nothing was compacted away.
    losses_judged: Flags
    # Final reads must have returned every record that is committed and of ours.
    unseen_judged: Flags
    # For want of the leader's log the final reads show what is lost; or, in a history of clients from
    # elsewhere, Jepsen's inference does: what lies below a record that was read was read too.
    by_final_reads: Flags
    by_any_read: Flags
    # Whatever is lost of the partition is shown by one of these: lost-write is not unknown.
    losses_shown: Flags


def gates_of(folder: Folder, *, breached: bool) -> Gates:
    """breached: lines of the history may be missing or wrong, so that nobody can say what was not read."""
    partitions = tuple(folder.partitions.values())
    keys = [partition.key for partition in partitions]
    leader_known = _flags(knows_leader(folder, partition) for partition in partitions)
    compact = _flags(partition.compact for partition in partitions)
    final, settled, elsewhere = finally_read(folder), folder.settled, imported(folder)
    read_to_end = _flags(key in final for key in keys)
    # Nobody has the leader's log, nothing was compacted away, and all that was read is in the history.
    logless = ~leader_known & ~compact & ~_is_blind(elsewhere, keys) & (not breached)
    by_final_reads = logless & read_to_end & settled
    by_any_read = logless & (bool(elsewhere) and not folder.killed)
    # An import names the partitions with an ack above all that was read, of which nobody can tell.
    beyond_reads = _numbers(elsewhere.get("unread")) or frozenset()
    return Gates(
        partitions=partitions,
        leader_known=leader_known,
        losses_judged=leader_known & ~compact,
        unseen_judged=leader_known & read_to_end & (settled and not breached),
        by_final_reads=by_final_reads,
        by_any_read=by_any_read,
        losses_shown=leader_known
        | by_final_reads
        | (by_any_read & ~_flags(key in beyond_reads for key in keys)),
    )


def _flags(each: Iterable[bool]) -> Flags:
    return np.fromiter(each, dtype=np.bool_)


def _is_blind(elsewhere: Mapping[str, Any], keys: list[int]) -> Flags:
    """The partitions of which an import has left out some reads."""
    blind, left_out = _numbers(elsewhere.get("blind")), elsewhere.get("left_out")
    if blind is not None:
        return _flags(key in blind for key in keys)
    # An import by an older version names no partitions.
    all_blind = isinstance(left_out, dict) and any(name.startswith("read ") for name in left_out)
    return np.full(len(keys), all_blind)


def _numbers(values: Any) -> frozenset[float] | None:
    """The numbers of a list; None where it is none."""
    if not isinstance(values, list):
        return None
    return frozenset(value for value in values if isinstance(value, (int, float)))


# -- rules of one run, or of one partition ------------------------------------------------------------------


def knows_leader(folder: Folder, partition: Partition) -> bool:
    """The leader is known, has its row, and its dump can be relied on."""
    leader = partition.leader
    return (
        leader is not None
        and (leader, partition.key) in folder.replicas
        and has_complete_dump(folder, leader)
    )


def has_complete_dump(folder: Folder, node: str) -> bool:
    """Every entry of the node's replicas is in its dump."""
    return node in folder.dumps and node not in folder.damaged


def finally_read(folder: Folder) -> frozenset[int]:
    """The partitions that were read to the end by processes that are known."""
    processes = (folder.about.get("final_reads") or {}).get("processes")
    known = isinstance(processes, list) and 0 < len(processes) == len(folder.final_processes)
    return frozenset(folder.final_partitions) if known else frozenset()


def imported(folder: Folder) -> Mapping[str, Any]:
    """What run.json says of where the history came from; empty: it was made here."""
    elsewhere = folder.about.get("imported")
    return {"from": None, **elsewhere} if isinstance(elsewhere, dict) else {}


def is_loss_in_doubt(folder: Folder) -> bool:
    """Whether a record that no final read returned leaves open whether it is lost: where logs are promised,
    unseen is unknown without them; where they are not, nothing else would say so."""
    return not (folder.observes.dumps and folder.observes.replicas)


def has_weak_acks(folder: Folder) -> bool:
    """An ack may come before the ISR has the record."""
    return str(folder.guarantee("acks", "all")) != "all"


def is_retried(folder: Folder) -> bool:
    """A client that sends again without idempotence may write twice and out of order."""
    retries = folder.guarantee("retries", 0)
    return isinstance(retries, int) and retries > 0 and folder.guarantee("idempotence", False) is not True


def is_uncommitted(folder: Folder) -> bool:
    """Clients read what is not committed."""
    return bool(folder.guarantee("isolation", "read_committed") == "read_uncommitted")


def readable_to(folder: Folder, leader: Replica) -> int:
    """The offset below which a reader may see the leader's log."""
    committed = folder.guarantee("isolation", "read_committed") == "read_committed"
    return stable_to(leader) if committed else leader.hw


def stable_to(leader: Replica) -> int:
    """The offset below which the leader's log is committed, and its transactions decided."""
    return leader.hw if leader.lso is None else min(leader.hw, leader.lso)


def claims_from(folder: Folder, partition: Partition, leader: Replica | None) -> int:
    """Below it a record may have been deleted: the leader's log start, or the highest that any row has."""
    if leader is not None:
        return leader.log_start
    rows = (folder.replicas.get((node, partition.key)) for node in partition.replicas)
    return max((row.log_start for row in rows if row is not None), default=0)


def contradicts_itself(replica: Replica) -> bool:
    """A row of replicas.jsonl that no log can be right for: the laws of the log find that without an
    entry."""
    return replica.hw > replica.leo or any(start > replica.leo for _, start in replica.epochs or ())


def contradicts_no_entries(replica: Replica) -> bool:
    """... or that is wrong of a log without an entry."""
    return replica.log_start != replica.leo or contradicts_itself(replica)
