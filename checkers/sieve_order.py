"""Whether anything in a partition is out of order: then it passes the sieve whole, and the checks say what
it is.

Each law here is at least as strict as the check it stands for: it may stop what the check would let pass,
never the reverse.
"""

import numpy as np

from checkers.columns import ASSIGN, CRASH, MISSING, OK, SUBSCRIBE, Bools, Dump, History, Ints, Items


def out_of_order(
    history: History, key: int, leader: Dump, *, offset: Ints, invoked: Ints, done: Ints
) -> bool:
    """Sends against real time and inside an op, polls that fall or skip, end offsets that fall."""
    acked = (offset != MISSING) & (done != MISSING)
    reads = history.reads.where(history.reads.partition == key)
    ends = history.ends.where(history.ends.partition == key)
    return (
        sends_fall(offset[acked], invoked[acked], done[acked])
        or polls_fall(history, key, reads, leader)
        or ends_fall(history, reads, ends)
    )


def sends_fall(offset: Ints, invoked: Ints, done: Ints) -> bool:
    """A send was acked before another began, yet has the higher offset; or offsets fall inside an op. What
    falls
    from op to op of one process falls in real time too."""
    if not len(offset):
        return False
    order = np.argsort(done, kind="stable")
    highest = np.maximum.accumulate(offset[order])
    before = np.searchsorted(done[order], invoked)
    if (highest[before - 1] > offset)[before > 0].any():
        return True
    inside = (np.diff(invoked) == 0) & (np.diff(offset) < 0)
    return bool(inside.any())


def polls_fall(history: History, key: int, reads: Items, leader: Dump) -> bool:
    """A read that does not follow the one before of its process, where no assign has come between that gave
    the partition up, and no record of ours was passed over."""
    if not len(reads.line):
        return False
    if (history.type[reads.line] != OK).any():
        return True  # a poll that failed and showed records: its position is for the checks
    order = np.argsort(history.process[reads.line], kind="stable")
    process, line, offset = history.process[reads.line][order], reads.line[order], reads.offset[order]
    same = process[1:] == process[:-1]
    before, after = offset[:-1], offset[1:]
    odd = same & (after != before + 1)
    odd &= (after <= before) | passed_over(leader, before, after)
    steps = np.flatnonzero(odd)
    if not len(steps):
        return False
    return not gave_up(history, key, process[1:][steps], line[:-1][steps], line[1:][steps]).all()


def passed_over(leader: Dump, before: Ints, after: Ints) -> Bools:
    """Whether the leader's log holds a record of ours strictly between."""
    if not len(leader.offset):
        return np.zeros(len(before), dtype=np.bool_)
    start = leader.offset[0]
    ours = np.concatenate(([0], np.cumsum(leader.ours & ~leader.aborted)))
    size = len(leader.offset)
    low = np.clip(before + 1 - start, 0, size)
    high = np.clip(after - start, 0, size)
    found: Bools = ours[np.maximum(high, low)] > ours[low]
    return found


def gave_up(history: History, key: int, process: Ints, first: Ints, second: Ints) -> Bools:
    """Whether between the two lines the process made a move that did not keep the partition."""
    moved = (history.type == OK) & ((history.f == ASSIGN) | (history.f == SUBSCRIBE))
    moves = np.flatnonzero(moved | (history.f == CRASH))
    keeping = history.held.where(history.held.partition == key).line
    keeps = np.unique(keeping[moved[keeping]])
    count_moves = between(history.process[moves], moves, process, first, second)
    count_keeps = between(history.process[keeps], keeps, process, first, second)
    lost: Bools = count_moves != count_keeps
    return lost


def between(process: Ints, line: Ints, whose: Ints, first: Ints, second: Ints) -> Ints:
    """How many of these (process, line)s are of `whose` and lie between first and second."""
    known, codes = np.unique(np.concatenate((process, whose)), return_inverse=True)
    del known
    mine, asked = codes[: len(process)], codes[len(process) :]
    size = int(max(line.max(initial=0), second.max(initial=0))) + 2
    keys = np.sort(mine * size + line)
    counts: Ints = np.searchsorted(keys, asked * size + second) - np.searchsorted(keys, asked * size + first)
    return counts


def ends_fall(history: History, reads: Items, ends: Items) -> bool:
    """An end offset below one told before to the same process, or below what it had read + 1."""
    for process in np.unique(history.process[ends.line]):
        told = ends.where((history.process[ends.line] == process) & (history.type[ends.line] == OK))
        seen = reads.where(history.process[reads.line] == process)
        line = np.concatenate((told.line, seen.line))
        least = np.concatenate((told.offset, seen.offset + 1))
        order = np.argsort(line, kind="stable")
        highest = np.maximum.accumulate(least[order])
        before = np.searchsorted(line[order], told.line)
        if (highest[before - 1] > told.offset)[before > 0].any():
            return True
    return False
