"""The values that were sent to one partition, one row a value, with what became of each."""

from dataclasses import dataclass

import numpy as np

from checkers.chunks import Bools, Ints
from checkers.columns import INVOKE, MISSING, OK, History, Items


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """Of each value its first invocation and its first completion; in no order."""

    value: Ints
    invoked: Ints  # line; of a value that nobody asked to send, that of its completion
    done: Ints  # line, MISSING if open
    type: Ints  # INVOKE: still open
    offset: Ints  # of an ok, where it is known; else MISSING
    once: Bools  # invoked once in the run, and completed at the most once

    @property
    def acked(self) -> Bools:
        acked: Bools = self.offset != MISSING
        return acked


def sends_of(history: History, items: Items, repeated: Ints) -> Sends:
    """The sends of one partition; `repeated`: values that the run sent more than once."""
    asks = history.type[items.line] == INVOKE
    asked = items.where(asks)
    value, invoked = asked.value, asked.line
    told = items.where(~asks)
    if not (value[1:] > value[:-1]).all():
        asked = asked.where(np.unique(value, return_index=True)[1])  # the first of each, for lines rise
        value, invoked = asked.value, asked.line
    at: Ints = np.searchsorted(value, told.value)
    known = at < len(value)
    known[known] = value[at[known]] == told.value[known]
    if not known.all():
        value, invoked, at = with_strangers(value, invoked, told, known)
    done, offset = (np.full(len(value), MISSING, dtype=kind.dtype) for kind in (told.line, told.offset))
    kind = np.full(len(value), INVOKE, dtype=np.int8)
    last = slice(None, None, -1)  # backwards, so that the first completion stays
    done[at[last]], kind[at[last]] = told.line[last], history.type[told.line][last]
    offset[at[last]] = told.offset[last]
    offset[kind != OK] = MISSING
    once = np.bincount(at, minlength=len(value)) <= 1
    if len(repeated):
        once &= ~np.isin(value, repeated)
    if not known.all():
        once &= ~np.isin(value, told.value[~known])
    return Sends(value=value, invoked=invoked, done=done, type=kind, offset=offset, once=once)


def with_strangers(value: Ints, invoked: Ints, told: Items, known: Bools) -> tuple[Ints, Ints, Ints]:
    """Values whose invocation is not there stand beside the others."""
    strange, first = np.unique(told.value[~known], return_index=True)
    merged = np.concatenate((value, strange))
    order = np.argsort(merged, kind="stable")
    lines = np.concatenate((invoked, told.line[~known][first]))[order]
    return merged[order], lines, np.searchsorted(merged[order], told.value)
