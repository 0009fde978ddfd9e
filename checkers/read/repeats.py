"""Finds which values are sent more than once, and which are answered more often than sent.

Input: micro-sends (columns run, value, index, type of checkers.laws.tables `sends`), all of a value together
(a bag, by the hash of the value), of any number of runs, in any order. A value must be unique in its run,
whatever the partition.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read.arrays import codes_of, numbers_of

SHOWN = 5  # values that a reason names


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatFacts:
    """What the driver learns about one run's values in a bag."""

    run: int
    repeated: tuple[int, ...] = ()  # the lowest few that were sent more than once
    # Lowest index of the last answer to a value that was answered more often than sent: it fits no
    # invocation, whatever else its process had open.
    unmatched: int | None = None


def repeats(sends: pa.Table) -> tuple[pa.Table, list[RepeatFacts]]:
    """The table `repeated` of these values, by run and value, and the facts of each run that has any."""
    run, value = numbers_of(sends["run"]), numbers_of(sends["value"])
    order = np.argsort(value, kind="stable")
    if len(run) and run.min() != run.max():
        order = order[np.argsort(run[order], kind="stable")]
    run, value = run[order], value[order]
    starts = np.ones(len(value), dtype=np.bool_)
    starts[1:] = (value[1:] != value[:-1]) | (run[1:] != run[:-1])
    first = np.flatnonzero(starts)
    types, words = codes_of(sends["type"])
    sent = (types[order] == words.get("invoke", -1)).astype(np.int64)
    index = numbers_of(sends["index"])[order]
    if len(first):
        times = np.add.reduceat(sent, first)
        answered = np.diff(np.append(first, len(value))) - times
        last = np.maximum.reduceat(index, first)
    else:
        times = answered = last = np.zeros(0, dtype=np.int64)
    twice, strange = times > 1, answered > times
    run, value = run[first], value[first]
    table = pa.table({"run": run[twice], "value": value[twice]}).cast(TABLES["repeated"])
    facts = []
    for one in np.unique(run[twice | strange]).tolist():
        mine, answers = value[twice & (run == one)], last[strange & (run == one)]
        facts.append(RepeatFacts(
            run=one, repeated=tuple(mine[: SHOWN].tolist()),
            unmatched=int(answers.min()) if len(answers) else None,
        ))  # fmt: skip
    return table, facts


def merged(facts: Iterable[RepeatFacts], run: int) -> RepeatFacts:
    """Merge those of one run, from all bags."""
    mine = [each for each in facts if each.run == run]
    values = sorted(value for each in mine for value in each.repeated)[:SHOWN]
    unmatched = min((each.unmatched for each in mine if each.unmatched is not None), default=None)
    return RepeatFacts(run=run, repeated=tuple(values), unmatched=unmatched)
