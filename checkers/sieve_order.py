"""Whether anything in a partition is out of order: then it passes the sieve whole, and the checks say what
it is.

Each law here is at least as strict as the check it stands for: it may stop what the check would let pass,
never the reverse.
"""

from dataclasses import dataclass

import numpy as np

from checkers.chunks import Bools, Ints
from checkers.columns import ASSIGN, CRASH, INVOKE, MISSING, OK, SUBSCRIBE, History, Items
from checkers.groups import in_order
from checkers.proofs import Proof
from checkers.sends import Sends


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Lines at which a process may give partitions up, or keep one."""

    line: Ints
    process: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one partition's clients asked and were told, as it stands in the file."""

    sends: Items
    reads: Items
    ends: Items
    held: Items


def moves_of(history: History) -> Moves:
    moved = (history.type == OK) & ((history.f == ASSIGN) | (history.f == SUBSCRIBE))
    crashed = (history.type != INVOKE) & (history.f == CRASH)
    lines = np.flatnonzero(moved | crashed)
    return Moves(line=lines, process=history.process[lines])


def out_of_order(history: History, seen: Seen, sends: Sends, proof: Proof, moves: Moves) -> bool:
    """Sends against real time and inside an op, polls that fall or skip, end offsets that fall."""
    acked = sends.acked
    return (
        sends_fall(sends.offset[acked], sends.invoked[acked], sends.done[acked])
        or process_sends_fall(history, seen.sends, seen.reads)
        or polls_fall(history, seen, proof, moves)
        or ends_fall(history, seen.reads, seen.ends)
    )


def sends_fall(offset: Ints, invoked: Ints, done: Ints) -> bool:
    """A send was acked before another began, yet has the higher offset."""
    if not len(offset):
        return False
    order = np.argsort(done, kind="stable")
    highest = np.maximum.accumulate(offset[order])
    before = np.searchsorted(done[order], invoked)
    return bool(((highest[before - 1] > offset) & (before > 0)).any())


def process_sends_fall(history: History, sends: Items, reads: Items) -> bool:
    """Offsets of ok sends that fall, inside an op or from op to op of one process. What was acked falls from
    op to op in real time too (sends_fall), so that only where an offset is known by reads alone the sends of
    a process must be looked at together."""
    ok = sends.where(history.type[sends.line] == OK)
    untold = ok.offset == MISSING
    if not untold.any() or not len(reads.line):
        known = ok if not untold.any() else ok.where(~untold)
        return bool(((np.diff(known.line) == 0) & (np.diff(known.offset) < 0)).any())
    offset = np.where(untold, only_read_at(reads, ok.value), ok.offset)
    known = ok.where(offset != MISSING)
    offset, process = offset[offset != MISSING], history.process[known.line]
    order = in_order(process)
    return bool(((np.diff(process[order]) == 0) & (np.diff(offset[order]) < 0)).any())


def only_read_at(reads: Items, values: Ints) -> Ints:
    """The only offset at which each of these values was read; MISSING where there is none, or another."""
    order = np.lexsort((reads.offset, reads.value))
    value, offset = reads.value[order], reads.offset[order]
    first = np.searchsorted(value, values)
    last = np.searchsorted(value, values, side="right") - 1
    found = last >= first
    low, high = offset[np.where(found, first, 0)], offset[np.where(found, last, 0)]
    only: Ints = np.where(found & (low == high), low, MISSING)
    return only


def polls_fall(history: History, seen: Seen, proof: Proof, moves: Moves) -> bool:
    """A read that is not above the one before it, or passes over a record of ours: inside a poll; or as its
    first, against the last ok poll of its process, where no assign has come between that gave the partition
    up."""
    reads = seen.reads
    process = history.process[reads.line]
    order = in_order(process)
    process, line, offset = process[order], reads.line[order], reads.offset[order]
    begins = np.flatnonzero((np.diff(line, prepend=-1) != 0) | (np.diff(process, prepend=-1) != 0))
    inside = np.ones(len(line), dtype=np.bool_)
    inside[begins] = False
    if out_of_step(proof, offset[:-1], offset[1:], np.flatnonzero(inside[1:])).any():
        return True
    process, line, first = process[begins], line[begins], offset[begins]
    last = offset[np.append(begins[1:], len(offset))[: len(begins)] - 1]
    before, position = positions(last, history.type[line] == OK)
    steps = np.flatnonzero((before >= 0) & (process[before] == process))
    steps = steps[out_of_step(proof, position, first, steps)]
    if not len(steps):
        return False
    kept = keeps_of(history, seen.held)
    span = process[steps], line[before[steps]], line[steps]
    return not (between(moves, *span) != between(kept, *span)).all()


def out_of_step(proof: Proof, position: Ints, after: Ints, steps: Ints) -> Bools:
    """Of these steps: not above the position, or over a record of ours."""
    low, high = position[steps], after[steps]
    return (high <= low) | passed_over(proof, low, high)


def positions(last: Ints, ok: Bools) -> tuple[Ints, Ints]:
    """Of each poll, by process: the ok poll before it (-1: none), and where that ended. Polls that were not
    ok move nothing. What an info poll showed excuses nobody here: its process asks nothing more."""
    number = np.arange(len(last))
    before = np.roll(np.maximum.accumulate(np.where(ok, number, -1)), 1)
    before[:1] = -1
    return before, last[before] if len(last) else last


def passed_over(proof: Proof, before: Ints, after: Ints) -> Bools:
    """Whether a record of ours stands strictly between."""
    if not len(proof.shown):
        return np.zeros(len(before), dtype=np.bool_)
    ours = np.concatenate(([0], np.cumsum(proof.shown)))
    size = len(proof.shown)
    low = np.clip(before + 1 - proof.start, 0, size)
    high = np.clip(after - proof.start, 0, size)
    found: Bools = ours[np.maximum(high, low)] > ours[low]
    return found


def keeps_of(history: History, held: Items) -> Moves:
    """The moves that kept the partition."""
    moved = (history.type[held.line] == OK) & np.isin(history.f[held.line], (ASSIGN, SUBSCRIBE))
    lines = np.unique(held.line[moved])
    return Moves(line=lines, process=history.process[lines])


def between(moves: Moves, whose: Ints, first: Ints, second: Ints) -> Ints:
    """How many of the moves are of `whose` and lie between first and second."""
    codes = np.unique(np.concatenate((moves.process, whose)), return_inverse=True)[1].astype(np.int64)
    mine, asked = codes[: len(moves.process)], codes[len(moves.process) :]
    size = int(max(moves.line.max(initial=0), second.max(initial=0))) + 2
    keys = np.sort(mine * size + moves.line)
    counts: Ints = np.searchsorted(keys, asked * size + second) - np.searchsorted(keys, asked * size + first)
    return counts


def ends_fall(history: History, reads: Items, ends: Items) -> bool:
    """An end offset below one told before to the same process, or below what it had read + 1."""
    if not len(ends.line):
        return False
    asked, reader = history.process[ends.line], history.process[reads.line]
    for process in np.unique(asked):
        told = ends.where((asked == process) & (history.type[ends.line] == OK))
        seen = reads.where(reader == process)
        line = np.concatenate((told.line, seen.line))
        least = np.concatenate((told.offset, seen.offset + 1))
        order = np.argsort(line, kind="stable")
        highest = np.maximum.accumulate(least[order])
        before = np.searchsorted(line[order], told.line)
        if ((highest[before - 1] > told.offset) & (before > 0)).any():
            return True
    return False
