"""Invocations and completions: which of them do not belong together, as survey.pairing has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from checkers.chunks import Bools, Ints, refuse_if
from checkers.columns import INFO, INVOKE, NEMESIS_F, SEND, TXN, History
from checkers.groups import in_order

_AT_ONCE = 1 << 20  # lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """What is wrong with them."""

    unmatched: int | None = None  # index of the first completion that fits no invocation
    # process -> the first index where it had two ops open, or went on after an info
    overlapping: Mapping[int, int] = field(default_factory=dict)


def pairing(history: History) -> Paired:
    """All of it at once: each line against the one before it of its process, by index."""
    clients = np.flatnonzero(history.f != NEMESIS_F)
    if history.disordered:
        clients = clients[np.argsort(history.indexes(clients), kind="stable")]
    order = clients[in_order(history.process[clients])]
    del clients
    process, kinds, fs = history.process[order], history.type[order], history.f[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = process[1:] != process[:-1]
    invokes = kinds == INVOKE
    after_invoke = np.roll(invokes, 1) & ~first
    others = ~same_sends(history, order, np.isin(fs, (SEND, TXN)))
    other = after_invoke & ~invokes & ((fs != np.roll(fs, 1)) | others)
    if not (other.any() or (invokes == after_invoke).any() or (np.roll(kinds, 1) == INFO)[~first].any()):
        return Paired()  # every line but the first of a process follows one of the other kind
    open_ops = before(np.where(invokes, 1, -1), first)
    over = before((kinds == INFO).astype(np.int64), first) > 0
    unmatched = order[~invokes & ((open_ops <= 0) | ((open_ops == 1) & other))]
    overlaps = invokes & (over | after_invoke)
    refuse_if(overlaps.any() and answered_again(history), "an answer too many, with two ops open")
    whose, where = np.unique(process[overlaps], return_index=True)
    lines = history.indexes(order[overlaps][where])
    return Paired(
        unmatched=int(history.indexes(unmatched).min()) if len(unmatched) else None,
        overlapping=dict(zip(whose.tolist(), lines.tolist(), strict=True)),
    )


def answered_again(history: History) -> bool:
    """Whether some value was answered more often than sent."""
    asks = history.type[history.sends.line] == INVOKE
    asked, told = np.sort(history.sends.value[asks]), history.sends.value[~asks]
    values, times = np.unique(told, return_counts=True)
    sent = np.searchsorted(asked, values, side="right") - np.searchsorted(asked, values)
    return bool((times > sent).any())


def before(steps: Ints, first: Bools) -> Ints:
    """The sum of the steps before each line of its process."""
    sums = np.cumsum(steps) - steps
    starts = np.flatnonzero(first)
    return sums - np.repeat(sums[starts], np.diff(np.append(starts, len(first))))


def same_sends(history: History, order: Ints, sends: Bools) -> Bools:
    """Of lines by process: whether a send names the partitions and values of the line before it."""
    same = np.ones(len(order), dtype=np.bool_)
    at = np.flatnonzero(sends)
    at = at[at > 0]
    at = at[history.type[order[at]] != INVOKE]
    for some in range(0, len(at), _AT_ONCE):
        part = at[some : some + _AT_ONCE]
        same[part] = alike(history, order[part], order[part - 1])
    return same


def alike(history: History, mine: Ints, theirs: Ints) -> Bools:
    """Whether these lines send what those do."""
    items = history.sends
    low, begun = np.searchsorted(items.line, mine), np.searchsorted(items.line, theirs)
    size = np.searchsorted(items.line, mine, side="right") - low
    same: Bools = size == np.searchsorted(items.line, theirs, side="right") - begun
    size = np.where(same, size, 0)
    within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
    ours, others = np.repeat(low, size) + within, np.repeat(begun, size) + within
    differs = items.value[ours] != items.value[others]
    differs |= items.partition[ours] != items.partition[others]
    same[np.repeat(np.arange(len(mine)), size)[differs]] = False
    return same
