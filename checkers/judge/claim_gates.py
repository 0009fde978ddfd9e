"""Decides what may be claimed about each partition of a run, once the first pass is over.

Every law uses these gates, as columns of its tables (run_tables.py), so that each is written once. Here too
they are columns: a flag for each partition that run.json names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from floodmark.checkers.read.columns import Flags, Ints
from floodmark.checkers.read.folder import DIGITS_AT_MOST, INT64, Folder
from floodmark.harness.faults import FAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """A flag for each partition of run.json, in its order."""

    # The leader is known, has its row in replicas.jsonl, and its dump is complete.
    leader_known: Flags
    # ... and its log shows losses: it was not compacted.
    losses_judged: Flags
    # Final reads must have returned every committed record of ours.
    unseen_judged: Flags
    # Without the leader's log the final reads show losses; or, in an imported history, Jepsen's inference
    # does: every record below one that was read was read too.
    by_final_reads: Flags
    by_any_read: Flags
    # Nor is there a log: no node knows the topic, and nobody leads the partition.
    topic_gone: Flags
    # One of these shows every loss of the partition: lost-write is not unknown.
    losses_shown: Flags


def gates_of(folder: Folder, *, breached: bool) -> Gates:
    """breached: lines of the history may be missing or wrong, so nobody can say what was not read."""
    keys, compact = folder.partitions.keys_there, folder.partitions.compact
    leader_known = knows_leader(folder)
    settled, elsewhere = folder.settled, imported(folder)
    read_to_end = np.isin(keys, partitions_read_to_end(folder))
    # There is no leader's log, the log was not compacted, and the history has all reads.
    logless = ~leader_known & ~compact & ~_is_blind(elsewhere, keys) & (not breached)
    by_final_reads = logless & read_to_end & settled
    by_any_read = logless & (bool(elsewhere) and not folder.killed)
    topic_gone = logless & folder.topic_gone & folder.partitions.leader.where(lambda node: node is None)
    # An import lists the partitions that have an ack above all reads: for those nothing can be claimed.
    beyond_reads = _numbers(elsewhere.get("unread")) or frozenset()
    return Gates(
        leader_known=leader_known,
        losses_judged=leader_known & ~compact,
        unseen_judged=leader_known & read_to_end & (settled and not breached),
        by_final_reads=by_final_reads,
        by_any_read=by_any_read,
        topic_gone=topic_gone,
        losses_shown=leader_known
        | by_final_reads
        | topic_gone
        | (by_any_read & ~np.isin(keys, [*beyond_reads])),
    )


def _is_blind(elsewhere: Mapping[str, Any], keys: Ints) -> Flags:
    """The partitions for which an import has left out some reads."""
    blind, left_out = _numbers(elsewhere.get("blind")), elsewhere.get("left_out")
    if blind is not None:
        return np.isin(keys, [*blind])
    # An import by an older version names no partitions.
    all_blind = isinstance(left_out, dict) and any(name.startswith("read ") for name in left_out)
    return np.full(len(keys), all_blind)


def _numbers(values: Any) -> frozenset[float] | None:
    """The numbers in a list; None if the value is no list."""
    if not isinstance(values, list):
        return None
    return frozenset(value for value in values if isinstance(value, (int, float)))


# -- rules of one run, or of one partition ------------------------------------------------------------------


def knows_leader(folder: Folder) -> Flags:
    """The partitions whose leader is known, has its row, and has a complete dump."""
    leader = folder.partitions.leader
    has_row = folder.replicas.rows_by(leader, folder.partitions.keys_there) >= 0
    return has_row & leader.where(lambda node: node is not None and has_complete_dump(folder, node))


def has_complete_dump(folder: Folder, node: str) -> bool:
    """Whether the node's dump has every entry of its replicas."""
    return node in folder.dumps and node not in folder.damaged


def partitions_read_to_end(folder: Folder) -> tuple[int, ...]:
    """The partitions that known processes have read to the end."""
    processes = (folder.about.get("final_reads") or {}).get("processes")
    known = isinstance(processes, list) and 0 < len(processes) == len(folder.final_processes)
    return folder.final_partitions if known else ()


def is_topic_gone(folder: Folder, nemesis: Iterable[Mapping[str, Any]]) -> bool:
    """Whether no node knew our topics throughout settling. Nothing is claimed where an act of the run may
    have deleted them, or the controllers' log with them: one that is not floodmark's own, or lost data
    anywhere (a broker may be a controller too)."""
    harmless = all(op["f"] in FAULTS and op["fault"].get("lost") is not True for op in nemesis)
    return harmless and not folder.killed and are_all_nodes(folder, "topic_unknown")


def are_all_nodes(folder: Folder, name: str) -> bool:
    """Whether this list in run.json's `settle` names every node."""
    named = (folder.about.get("settle") or {}).get(name)
    return isinstance(named, list) and all(node in named for node in folder.nodes) and bool(folder.nodes)


def imported(folder: Folder) -> Mapping[str, Any]:
    """What run.json says about the import of the history; empty if the history was made here."""
    elsewhere = folder.about.get("imported")
    return {"from": None, **elsewhere} if isinstance(elsewhere, dict) else {}


def is_loss_in_doubt(folder: Folder) -> bool:
    """Whether lost-write is in doubt for a record that no final read returned. Where logs are promised,
    unseen is unknown without them; where they are not, only this says so."""
    return not (folder.observes.dumps and folder.observes.replicas)


def uncommitted_of(folder: Folder) -> dict[int, bool]:
    """The processes whose isolation is another one than the guarantee's: whether it is read_uncommitted."""
    named = folder.about.get("isolation_of")
    return {int(process): level == "read_uncommitted"
            for process, level in (named.items() if isinstance(named, dict) else ())
            if process.isascii() and process.isdigit() and len(process) <= DIGITS_AT_MOST
            and int(process) < INT64}  # fmt: skip
