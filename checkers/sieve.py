"""The sieve: of a big run, what the checks need not look at is left out.

Theory of operation. In a healthy run nearly every record is acked once, stands once and alike in every log,
and was read only there. Such a record breaks no law, whatever else is found; so it is enough to check the
others (the odd ones) with all that was seen of them and of what stands at their offsets. The sieve finds the
odd ones by comparing arrays, a partition at a time. It decides nothing: what it lets pass goes through every
check, and what it cannot vouch for passes. The rules it keeps:

1. A run that it cannot read without a doubt (Blemished) is not sieved.
2. A partition passes whole if it is compacted or run.json does not name it, if one of its logs is none
   (dumps.log_of), or if any send, poll or end offset in it is out of order (sieve_order).
3. From every other partition pass the odd values and all that is at their places: every send, read and entry
   of a value that passes, and every entry at an offset that passes.
4. For a partition that does not pass whole its logs have been checked here, one by one, as checks by log
   would.
5. Where the leader's log is not known what is plain is shown by the acks (proofs). A partition of which reads
   may show a loss then passes whole; so does one where there is a trace besides, for an ack may excuse what
   that shows.
6. A partition to which nothing was sent, of which nothing was read or asked and no log has an entry, is not
   looked at: nothing can pass of it, and what its replicas' rows say of themselves the checks see.
7. Whether transactions lie on a circle no record shows by itself: they are judged here (sieve_cycles).
8. What comes before what is told by lines, in file order. Where indexes say otherwise, nobody claims anything
   of it (names.SILENT_IF_DISORDERED, SILENT_IF_BREACHED).
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from checkers import history_twin
from checkers.chunks import Bools, Ints, refuse_if
from checkers.columns import INVOKE, TXN, History, Items, history_of
from checkers.cycles import is_uncommitted
from checkers.dumps import Dump, read_dump
from checkers.facts import (
    by_any_read,
    by_final_reads,
    finally_read,
    in_doubt,
    known_leader,
    readable_of,
    unseen_judged,
)
from checkers.folder import Folder
from checkers.groups import Groups
from checkers.pairs import Paired, pairing
from checkers.proofs import Proof, is_idle, lost_by_reads, odd_values, of_acks, of_log, unread
from checkers.sends import Sends, sends_of
from checkers.sieve_cycles import about_transactions
from checkers.sieve_logs import Log, disagreeing, logs_of, reference
from checkers.sieve_order import Moves, Seen, moves_of, out_of_order

USED_AT_MOST = 10_000  # partitions; each takes a millisecond or two, however little is in it
ITEMS = ("sends", "reads", "ends", "held")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What passes of one partition."""

    rows: Mapping[str, Ints]  # of the history's sends, reads, ends and held
    entries: Mapping[str, Ints]  # node -> rows of its dump
    values: Ints
    offsets: Ints
    whole: bool


@dataclass(slots=True, kw_only=True)
class Sieved:
    """A run as arrays, and of each partition what passes."""

    history: History
    dumps: Mapping[str, Dump]
    paired: Paired
    groups: Mapping[str, Groups]  # of ITEMS, by partition
    repeated: Ints  # values sent more than once
    final: Bools  # of each line: a final reader's
    finally_read: frozenset[int]  # partitions
    moves: Moves
    passed: dict[int, Passed] = field(default_factory=dict)
    found: list[dict[str, Any]] = field(default_factory=list)  # about transactions, as findings

    @property
    def whole(self) -> set[int]:
        """Partitions that pass whole."""
        return {key for key, passed in self.passed.items() if passed.whole}


def sieve(folder: Folder, threads: int = 1) -> Sieved:
    """What of this run must be checked; Blemished if that is all of it."""
    refuse_if(not folder.judged or folder.history is None, "not a history")
    with ThreadPoolExecutor(threads) as pool:
        sieved = read(folder, pool, threads + 1)
        keys = used(sieved)
        refuse_if(len(keys) > USED_AT_MOST, "too many partitions")
        found = pool.map(lambda key: sieve_partition(folder, key, sieved), keys)
        sieved.passed.update(zip(keys, found, strict=True))
        if (sieved.history.f == TXN).any():
            sieved.found = about_transactions(
                sieved.history,
                sieved.groups,
                pool,
                repeated=sieved.repeated,
                overlapping=sieved.paired.overlapping,
                uncommitted=is_uncommitted(folder),
            )
    return sieved


def read(folder: Folder, pool: Executor, ahead: int) -> Sieved:
    """The files as arrays. A dump with broken lines is damaged, here as in reasons.py."""
    assert folder.history is not None
    history = history_of(history_twin.read(folder.history, pool, ahead))
    paired = pairing(history)  # before the dumps take their room
    pa.default_memory_pool().release_unused()
    dumps = {node: read_dump(path, node, pool, ahead) for node, path in folder.dumps.items()}
    folder.damaged |= {node for node, dump in dumps.items() if dump.broken}
    return Sieved(
        history=history, dumps=dumps, paired=paired, repeated=repeated(history), moves=moves_of(history),
        groups={name: Groups(getattr(history, name).partition) for name in ITEMS},
        final=np.isin(history.process, np.array(folder.final_processes, dtype=np.int64)),
        finally_read=finally_read(folder),
    )  # fmt: skip


def used(sieved: Sieved) -> list[int]:
    """All partitions of which a client or a dump says more than that somebody held them."""
    told = (sieved.groups[name] for name in ITEMS if name != "held")
    groups = (*told, *(dump.groups for dump in sieved.dumps.values()))
    keys: list[int] = np.unique(np.concatenate([each.named for each in groups])).tolist()
    return keys


def repeated(history: History) -> Ints:
    """Values that were sent more than once."""
    asked = history.sends.value[history.type[history.sends.line] == INVOKE]
    if (asked[1:] > asked[:-1]).all():
        asked = asked[:0]
    ordered = np.sort(asked)
    twice: Ints = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return twice


# -- one partition ----------------------------------------------------------------------------------------


def sieve_partition(folder: Folder, key: int, sieved: Sieved) -> Passed:
    """What is odd in the partition, or all of it."""
    history, groups = sieved.history, sieved.groups
    seen = Seen(**{name: getattr(history, name).where(groups[name].of(key)) for name in ITEMS})
    logs = logs_of(folder, key, sieved.dumps) if may_be_sieved(folder, key) else None
    if logs is not None:
        sends = sends_of(history, seen.sends, sieved.repeated)
        proof = proof_of(folder, key, logs, sends, seen.reads)
        ordered = proof is not None and not out_of_order(history, seen, sends, proof, sieved.moves)
        if proof is not None and ordered and not loses(folder, key, sends, seen.reads, sieved):
            values, offsets, plain = odd_values(proof, sends, seen.reads)
            idle = np.sort(sends.value[is_idle(sends)])
            values = np.concatenate((values, *unread_of(folder, key, proof, seen.reads, sieved)))
            offsets = np.concatenate((offsets, *disputed(folder, key, logs, proof, plain=plain, idle=idle)))
            values, offsets = closed(values, offsets, logs, sends, seen.reads)
            rows = {name: getattr(seen, name).line[:0] for name in ("ends", "held")}
            for name, items in (("sends", seen.sends), ("reads", seen.reads)):
                rows[name] = groups[name].rows_of(key, isin(items.value, values))
            entries = {
                node: dump.groups.rows_of(key, isin(dump.offset[dump.groups.of(key)], offsets))
                for node, dump in sieved.dumps.items()
            }
            return Passed(rows=rows, entries=entries, values=values, offsets=offsets, whole=False)
    nothing = np.zeros(0, dtype=np.int64)
    rows = {name: groups[name].rows_of(key) for name in ITEMS}
    entries = {node: dump.groups.rows_of(key) for node, dump in sieved.dumps.items()}
    return Passed(rows=rows, entries=entries, values=nothing, offsets=nothing, whole=True)


def proof_of(
    folder: Folder, key: int, logs: Mapping[str, Log], sends: Sends, reads: Items
) -> Proof | None:
    """The leader's log, if it is known; else what acks prove."""
    partition = folder.partitions[key]
    return of_log(logs[str(partition.leader)]) if known_leader(folder, partition) else of_acks(sends, reads)


def may_be_sieved(folder: Folder, key: int) -> bool:
    """Not where compaction makes holes; nor where the trace is held against acks that nobody can look up."""
    partition = folder.partitions.get(key)
    return (
        partition is not None
        and not partition.compact
        and (folder.trace is None or known_leader(folder, partition))
    )


def loses(folder: Folder, key: int, sends: Sends, reads: Items, sieved: Sieved) -> bool:
    """Whether reads alone show a loss. That lines are missing or broken the checks say."""
    return lost_by_reads(
        sends, reads, sieved.final[reads.line], in_doubt=in_doubt(folder),
        by_final=by_final_reads(folder, key, breached=False, final=sieved.finally_read),
        by_any=by_any_read(folder, key, breached=False),
    )  # fmt: skip


def unread_of(folder: Folder, key: int, proof: Proof, reads: Items, sieved: Sieved) -> Iterator[Ints]:
    """Values that a final read owes."""
    if unseen_judged(folder, key, breached=False, final=sieved.finally_read):
        row = folder.leader_row(key)
        assert row is not None
        yield unread(proof, reads, sieved.final[reads.line], readable_of(folder, row))


def disputed(
    folder: Folder, key: int, logs: Mapping[str, Log], proof: Proof, *, plain: Bools, idle: Ints
) -> Iterator[Ints]:
    """Offsets where the logs do not agree, or hold what is not plain; `plain`: of each place of the proof,
    `idle`: values that may stand aborted."""
    against = reference(folder, key, logs)
    if against is None:
        return
    log = logs[against]
    offset = log.offsets(log.ours)
    alike, at = proof.places(offset)
    if len(plain):
        alike &= plain[at] & (proof.value[at] == log.value[log.ours])
    void = log.aborted & log.ours & isin(log.value, idle)
    yield offset[~alike & ~void[log.ours]]
    yield log.offsets(log.aborted & ~void)
    yield from disagreeing(folder, key, logs, against)


def closed(
    values: Ints, offsets: Ints, logs: Mapping[str, Log], sends: Sends, reads: Items
) -> tuple[Ints, Ints]:
    """With all places of the odd values, and all values at those places."""
    values, offsets = np.unique(values), np.unique(offsets)
    if not len(values) and not len(offsets):
        return values, offsets
    values = np.union1d(values, np.concatenate([*values_at(offsets, logs, sends, reads)]))
    places = [log.offsets(log.ours & isin(log.value, values)) for log in logs.values()]
    acked = sends.acked & isin(sends.value, values)
    places += [sends.offset[acked], reads.offset[isin(reads.value, values)], offsets]
    offsets = np.unique(np.concatenate(places))
    return np.union1d(values, np.concatenate([*values_at(offsets, logs, sends, reads)])), offsets


def values_at(offsets: Ints, logs: Mapping[str, Log], sends: Sends, reads: Items) -> Iterator[Ints]:
    for log in logs.values():
        at = offsets[(offsets >= log.start) & (offsets < log.end)] - log.start
        yield log.value[at[log.ours[at]]]
    yield sends.value[sends.acked & isin(sends.offset, offsets)]
    yield reads.value[isin(reads.offset, offsets)]


def isin(numbers: Ints, wanted: Ints) -> Bools:
    """np.isin for sorted `wanted`, quick where these are few."""
    if not len(wanted):
        return np.zeros(len(numbers), dtype=np.bool_)
    at = np.searchsorted(wanted, numbers)
    found: Bools = wanted[np.minimum(at, len(wanted) - 1)] == numbers
    return found
