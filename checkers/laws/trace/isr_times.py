"""When a replica surely was a candidate: in the controller's ISR, registered, and not fenced.

Times are ns, from the first to the last of them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from floodmark.checkers.laws.unit import Unit

Key = tuple[int, int]  # run, partition
Time = tuple[int, int]
END = 1 << 64  # a time after all, even less a clock error


class IsrTimes:
    """The candidate times of one partition."""

    def __init__(self, rulings: Sequence[dict[str, Any]], active: dict[str, list[Time]]) -> None:
        self.rulings, self.active = rulings, active
        self.of: dict[str, list[Time]] = {}

    def last(self, node: str, since: int, until: int) -> int | None:
        """When it last was a candidate between these times, both included; None: it was not."""
        if node not in self.of:
            self.of[node] = common(self.in_isr(node), self.active.get(node, ()))
        times = self.of[node]
        place = bisect_right(times, until, key=itemgetter(0)) - 1
        last = min(until, times[place][1]) if place >= 0 else since - 1
        return last if last >= since else None

    def in_isr(self, node: str) -> Iterable[Time]:
        """From each ruling that has the node in the ISR until the next ruling."""
        for ruling, after in pairwise([*self.rulings, {"time": END}]):
            since = ruling["time"] + ruling["clock_error"] + 1
            until = after["time"] - ruling["clock_error"] - 1
            if since <= until and node in ruling["isr"]:
                yield since, until


def common(some: Iterable[Time], others: Sequence[Time]) -> list[Time]:
    """The times common to both. Both are in order, and those of `some` are apart from each other."""
    found, place = [], 0
    for since, until in some:
        while place < len(others) and others[place][1] < since:
            place += 1
        number = place
        while number < len(others) and others[number][0] <= until:
            found.append((max(since, others[number][0]), min(until, others[number][1])))
            number += 1
    return found


def isr_times_of(unit: Unit) -> dict[Key, IsrTimes]:
    """The candidate times of the partitions in which some replica has another epoch's records."""
    active: dict[int, dict[str, list[Time]]] = {}
    for row in unit.rows(_ACTIVE).to_pylist():
        since, until = row["since"] + row["clock_error"] + 1, row["until"] - row["clock_error"] - 1
        if since <= until:
            active.setdefault(row["run"], {}).setdefault(row["node"], []).append((since, until))
    rulings: dict[Key, list[dict[str, Any]]] = {}
    for row in unit.rows(_RULINGS).to_pylist():
        rulings.setdefault((row["run"], row["partition"]), []).append(row)
    return {key: IsrTimes(words, active.get(key[0], {})) for key, words in rulings.items()}


_ACTIVE = """
    select a.*, clock_error from active_brokers a
    join (select run, any_value(clock_error) as clock_error from traced group by run) using (run)
    order by run, node, since"""
_RULINGS = """
    select run, partition, time, clock_error, isr from timeline semi join mixed_spans using (run, partition)
    where ruling order by run, partition, time, seq, isr"""
