"""The sieve: of a big clean run, what the checks need not look at is left out.

Theory of operation. In a healthy run nearly every record is acked once, stands once and alike in every log,
and was read only there. Such a record breaks no law, whatever else is found; so it is enough to check the
others (the odd ones) with all that was seen of them and of what stands at their offsets. The sieve finds the
odd ones by comparing arrays, a partition at a time. It decides nothing: what it lets pass goes through every
check, and what it cannot vouch for passes. The rules it keeps:

1. A run that is not clean line by line (Blemished), that sent a value twice, whose processes overlap, or
   that has transactions, is not sieved.
2. A partition passes whole if its leader's log is not known, if any of its logs is none, if it is compacted,
   or if any send, poll or end offset in it is out of order (sieve_order).
3. From every other partition pass the odd values and all that is at their places: every send, read and entry
   of a value that passes, and every entry at an offset that passes.
4. For a partition that does not pass whole its logs have been checked here, one by one, as checks by log
would.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from checkers import sieve_order
from checkers.columns import (
    INFO,
    INVOKE,
    MISSING,
    NEMESIS_F,
    OK,
    Bools,
    Dump,
    History,
    Ints,
    Items,
    read_dump,
    read_history,
    refuse_if,
)  # fmt: skip
from checkers.facts import known_leader, readable_of, unseen_judged
from checkers.folder import Folder, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """Every value sent, one row a value, with its completion."""

    partition: Ints
    value: Ints
    offset: Ints  # of an ok, where it is known; else MISSING
    type: Ints  # INVOKE: still open
    invoked: Ints  # line
    done: Ints  # line, MISSING if open
    process: Ints


@dataclass(slots=True, kw_only=True)
class Sieved:
    """What passes: of each partition everything, or the values and offsets that are odd."""

    history: History
    dumps: Mapping[str, Dump]
    sends: Sends
    whole: set[int] = field(default_factory=set)
    values: dict[int, Ints] = field(default_factory=dict)
    offsets: dict[int, Ints] = field(default_factory=dict)


def sieve(folder: Folder) -> Sieved:
    """What of this run must be checked; Blemished if that is all of it."""
    refuse_if(
        not folder.judged or folder.history is None or folder.torn or folder.killed, "not a whole history"
    )
    refuse_if(folder.damaged or folder.rows_damaged, "a dump or row is missing or damaged")
    dumps = {}
    for node, path in folder.dumps.items():
        refuse_if(path.suffix != ".jsonl", "kept as Parquet")
        dumps[node] = read_dump(path, node)
    assert folder.history is not None
    history = read_history(folder.history)
    refuse_if(len(history.time) != folder.about["history_lines"], "lines are missing")
    named = set(np.unique(np.concatenate([
        *(dump.partition for dump in dumps.values()),
        *(items.partition for items in (history.sends, history.reads, history.ends, history.held)),
    ])).tolist())  # fmt: skip
    refuse_if(named - folder.partitions.keys(), "a partition that run.json does not name")
    sends = sends_of(history, pairs_of(history))
    sieved = Sieved(history=history, dumps=dumps, sends=sends)
    final = np.isin(history.process, np.array(folder.final_processes, dtype=np.int64))
    for key in folder.partitions:
        sieve_partition(folder, key, sieved, final)
    return sieved


# -- the history
# ----------------------------------------------------------------------------------------------


def pairs_of(history: History) -> Ints:
    """Of every completion the line of its invocation, MISSING elsewhere."""
    refuse_if((np.diff(history.time) < 0).any(), "time falls")
    clients = np.flatnonzero(history.f != NEMESIS_F)
    order = clients[np.argsort(history.process[clients], kind="stable")]
    process, kinds, fs = history.process[order], history.type[order], history.f[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = process[1:] != process[:-1]
    before = np.roll(kinds, 1)
    invokes = kinds == INVOKE
    refuse_if((invokes & ~first & ((before == INVOKE) | (before == INFO))).any(), "ops overlap")
    refuse_if(
        (~invokes & (first | (before != INVOKE) | (np.roll(fs, 1) != fs))).any(), "a completion of nothing"
    )
    pairs = np.full(len(history.time), MISSING)
    pairs[order[~invokes]] = np.roll(order, 1)[~invokes]
    return pairs


def sends_of(history: History, pairs: Ints) -> Sends:
    """One row a value; refused where values repeat or a completion names others than its invocation."""
    items, kinds = history.sends, history.type
    invokes = kinds[items.line] == INVOKE
    asked, done = items.where(invokes), items.where(~invokes)
    size = len(kinds)
    first_asked = np.searchsorted(asked.line, np.arange(size + 1))
    first_done = np.searchsorted(done.line, np.arange(size + 1))
    lines = np.flatnonzero(np.diff(first_done))
    began = pairs[lines]
    counts = np.diff(first_done)[lines]
    refuse_if((np.diff(first_asked)[began] != counts).any(), "a completion of more or fewer values")
    within = np.arange(len(done.line)) - np.repeat(first_done[lines], counts)
    source = np.repeat(first_asked[began], counts) + within
    same = (asked.partition[source] == done.partition) & (asked.value[source] == done.value)
    refuse_if(not same.all(), "a completion of other values")
    in_order = np.sort(asked.value)
    refuse_if((in_order[1:] == in_order[:-1]).any(), "values repeat")
    kind, offset, at = (np.full(len(asked.line), fill) for fill in (INVOKE, MISSING, MISSING))
    kind[source], at[source] = kinds[done.line], done.line
    offset[source] = np.where(kinds[done.line] == OK, done.offset, MISSING)
    return Sends(
        partition=asked.partition,
        value=asked.value,
        offset=offset,
        type=kind,
        invoked=asked.line,
        done=at,
        process=history.process[asked.line],
    )


# -- one partition
# --------------------------------------------------------------------------------------------


def sieve_partition(folder: Folder, key: int, sieved: Sieved, final: Bools) -> None:
    """Marks the partition whole, or finds what is odd in it."""
    logs = {node: dump.where(dump.partition == key) for node, dump in sieved.dumps.items()}
    sends = of_partition(sieved.sends, key)
    leads = folder.partitions[key].leader
    if (
        leads is None
        or not are_logs(folder, key, logs)
        or sieve_order.out_of_order(
            sieved.history, key, logs[leads], offset=sends.offset, invoked=sends.invoked, done=sends.done
        )
    ):
        sieved.whole.add(key)
        return
    reads = sieved.history.reads.where(sieved.history.reads.partition == key)
    values, offsets = odd_values(logs[leads], sends, reads)
    if unseen_judged(folder, key, breached=False):
        readable = readable_of(folder, folder.replicas[leads, key])
        values = np.concatenate((values, unread(logs[leads], reads, final, readable)))
    offsets = np.concatenate((offsets, disagreeing(folder, key, logs)))
    sieved.values[key], sieved.offsets[key] = closed(values, offsets, logs, sends, reads)


def are_logs(folder: Folder, key: int, logs: Mapping[str, Dump]) -> bool:
    """The leader is known, every replica has its row and dump, and each dump is a log as its row says."""
    partition = folder.partitions[key]
    return (
        known_leader(folder, partition)
        and not partition.compact
        and all(node in logs and (node, key) in folder.replicas for node in partition.replicas)
        and all(is_log(log, folder.replicas.get((node, key))) for node, log in logs.items())
    )


def of_partition(sends: Sends, key: int) -> Sends:
    kept = sends.partition == key
    return Sends(**{name: getattr(sends, name)[kept] for name in Sends.__slots__})


def is_log(log: Dump, row: Replica | None) -> bool:
    """What the checks by log look at: offsets in step, bytes whole, bounds right, epochs rising and as the
    cache says."""
    if row is None:
        return not len(log.offset)
    expected = np.arange(row.log_start, row.log_start + len(log.offset))
    dated = log.epoch >= 0
    epochs = log.epoch[dated]
    good = (
        row.log_start + len(log.offset) == row.leo and (log.offset == expected).all() and log.crc_ok.all()
        and not (row.running and row.hw > row.leo) and (np.diff(epochs) >= 0).all()
    )  # fmt: skip
    if not good or row.epochs is None or not row.running:
        return bool(good)
    cache = sorted((start, epoch) for epoch, start in row.epochs)
    starts = np.array([start for start, _ in cache], dtype=np.int64)
    said = np.array([-1, *(epoch for _, epoch in cache)], dtype=np.int64)
    told = said[np.searchsorted(starts, log.offset[dated], side="right")]
    return bool((told == epochs).all() and not (starts > row.leo).any())


def disagreeing(folder: Folder, key: int, logs: Mapping[str, Dump]) -> Ints:
    """Offsets where a replica's record is not the leader's, where only one of them has a record, or where an
    ISR member lacks one that its own log start does not excuse."""
    partition, odd = folder.partitions[key], [np.zeros(0, dtype=np.int64)]
    assert partition.leader is not None
    leader = logs[partition.leader]
    for node, log in logs.items():
        low, high = max(start_of(leader), start_of(log)), min(end_of(leader), end_of(log))
        if high > low:
            mine, theirs = span(log, low, high), span(leader, low, high)
            same = np.ones(high - low, dtype=np.bool_)
            for name in ("epoch", "value", "ours", "crc"):
                same &= getattr(log, name)[mine] == getattr(leader, name)[theirs]
            odd.append(low + np.flatnonzero(~same))
        odd.append(log.offset[(log.offset < low) | (log.offset >= high)])
        if node in partition.isr:
            lacks = (leader.offset < start_of(log)) | (leader.offset >= end_of(log))
            odd.append(leader.offset[lacks & (leader.offset >= folder.replicas[node, key].log_start)])
    return np.concatenate(odd)


def start_of(log: Dump) -> int:
    return int(log.offset[0]) if len(log.offset) else 0


def end_of(log: Dump) -> int:
    return int(log.offset[-1]) + 1 if len(log.offset) else 0


def span(log: Dump, low: int, high: int) -> slice:
    return slice(low - start_of(log), high - start_of(log))


def holds(leader: Dump, offset: Ints, value: Ints) -> Bools:
    """Where the leader's log holds this value at this offset, not aborted."""
    inside = (offset >= start_of(leader)) & (offset < end_of(leader))
    at = np.where(inside, offset - start_of(leader), 0)
    if not len(leader.offset):
        return inside
    there: Bools = inside & leader.ours[at] & ~leader.aborted[at] & (leader.value[at] == value)
    return there


def odd_values(leader: Dump, sends: Sends, reads: Items) -> tuple[Ints, Ints]:
    """Values that are not acked once at the one place where the leader holds them, or read anywhere else; and
    offsets of the leader's log that are not such a value's."""
    plain = (sends.type == OK) & (sends.offset != MISSING) & holds(leader, sends.offset, sends.value)
    shown = holds(leader, reads.offset, reads.value)
    acks = np.bincount(sends.offset[plain] - start_of(leader), minlength=len(leader.offset))
    unacked = leader.ours & (acks != 1)
    values, counts = np.unique(leader.value[leader.ours], return_counts=True)
    odd = np.concatenate(
        (sends.value[~plain], reads.value[~shown], leader.value[unacked], values[counts > 1])
    )
    return odd, np.concatenate((leader.offset[unacked | leader.aborted], reads.offset[~shown]))


def unread(leader: Dump, reads: Items, final: Bools, readable: int) -> Ints:
    """Values that a final read should have returned, and none did."""
    seen = np.zeros(len(leader.offset), dtype=np.bool_)
    ended = reads.where(final[reads.line])
    good = holds(leader, ended.offset, ended.value)
    seen[ended.offset[good] - start_of(leader)] = True
    missed: Ints = leader.value[leader.ours & ~seen & (leader.offset < readable)]
    return missed


def closed(
    values: Ints, offsets: Ints, logs: Mapping[str, Dump], sends: Sends, reads: Items
) -> tuple[Ints, Ints]:
    """With all places of the odd values, and all values at those places."""
    values, offsets = np.unique(values), np.unique(offsets)
    values = np.union1d(values, values_at(offsets, logs, sends, reads))
    places = [log.offset[log.ours & np.isin(log.value, values)] for log in logs.values()]
    acked = (sends.offset != MISSING) & np.isin(sends.value, values)
    places += [sends.offset[acked], reads.offset[np.isin(reads.value, values)], offsets]
    offsets = np.unique(np.concatenate(places))
    return np.union1d(values, values_at(offsets, logs, sends, reads)), offsets


def values_at(offsets: Ints, logs: Mapping[str, Dump], sends: Sends, reads: Items) -> Ints:
    found = [log.value[log.ours & np.isin(log.offset, offsets)] for log in logs.values()]
    acked = (sends.offset != MISSING) & np.isin(sends.offset, offsets)
    return np.concatenate([*found, sends.value[acked], reads.value[np.isin(reads.offset, offsets)]])
