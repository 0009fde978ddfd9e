"""Decides what permits that a committed record is missing, by the trace and the final logs.

A record lost by an unclean election that was allowed, or by copies struck beyond the budget, is excused from
that election on (for candidates before it too) if it was written in an epoch before it: these excuses are the
column `excuses` of `traced`. And a record whose final loss is permitted (by_value.cause) is excused
everywhere; but a record that is in the leader's final log, or that was written after the loss of the others,
was not lost, whatever else was lost at its offset.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

from floodmark.checkers.laws.permits import BUDGET, BUDGET_MAYBE, UNCLEAN, UNCLEAN_MAYBE
from floodmark.checkers.laws.unit import Unit

Key = tuple[int, int]  # run, partition
_MAYBE = {UNCLEAN: UNCLEAN_MAYBE, BUDGET: BUDGET_MAYBE}
_SURE = {maybe: sure for sure, maybe in _MAYBE.items()}
_ANY_EPOCH = 1 << 63


class Case(NamedTuple):
    """A record, the first of some, that was committed and is missing or replaced."""

    offset: int
    tick: int  # of the line that shows it
    node: str
    seq: int
    written: int | None  # the record's epoch
    how: str
    seen: int | None
    upto: int | None = None  # offset at which they end; None: nobody knows
    led: int | None = None  # the epoch in which the line's node leads or follows


class Highest:
    """The highest excused epoch, of the excuses up to some tick or election."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(pairs)
        self.places = [place for place, _ in ordered]
        self.epochs = list(accumulate((epoch for _, epoch in ordered), max))

    def covers(self, place: int, written: int | None) -> bool:
        number = bisect_right(self.places, place)
        return number > 0 and (written is None or self.epochs[number - 1] >= written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuse:
    """All excuses of one kind (permits.py) in one partition."""

    permit: int
    by_tick: Highest
    by_election: Highest

    def permits(self, case: Case, *, timed: bool) -> int | None:
        """The permit, or None. `timed`: the line must come after the election. Less than two ticks apart they
        may be the other way round; but a line in the elected epoch comes after it."""
        if not timed:
            return self.permit if self.by_tick.covers(_ANY_EPOCH, case.written) else None
        if self.by_tick.covers(case.tick - 2, case.written):
            return self.permit
        if case.led is not None and self.by_election.covers(case.led, case.written):
            return self.permit
        is_near = self.by_tick.covers(case.tick + 1, case.written)
        return _MAYBE.get(self.permit, self.permit) if is_near else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What the final logs show at one offset: what permits the loss, and which epochs are there now."""

    cause: int
    there: frozenset[int]


class Excuses:
    """All excuses of one partition."""

    def __init__(self, excuses: Sequence[Excuse], lost: dict[int, Lost]) -> None:
        self.excuses, self.lost = excuses, lost
        self.kinds = {_SURE.get(each.permit, each.permit) for each in excuses}

        self.lowest_cause = min((each.cause for each in lost.values()), default=None)

    def permit(self, case: Case, *, timed: bool) -> int | None:
        """What permits the case; of two permits the first that applies. The trace may permit what no final
        log shows."""
        return lowest(self.cause(case), self.by_trace(case, timed=timed))

    def by_trace(self, case: Case, *, timed: bool) -> int | None:
        return lowest(*(each.permits(case, timed=timed) for each in self.excuses))

    def cause(self, case: Case) -> int | None:
        lost = self.lost.get(case.offset)
        if lost is None or case.written in lost.there:
            return None
        if _SURE.get(lost.cause, lost.cause) not in self.kinds:
            return lost.cause
        is_old = any(each.by_tick.covers(_ANY_EPOCH, case.written) for each in self.excuses)
        return lost.cause if is_old else None

    def worst(
        self, cases: Iterable[Case], *, timed: bool, newest: int | None = None
    ) -> tuple[Case, int | None] | None:
        """The first case that nothing permits; if there is none the one whose permit comes first, and of
        these the first. The cases come from the lowest on. `newest`: all cases are of one line, and no record
        was written in a later epoch; if the trace permits that one, the others need no check."""
        found: tuple[Case, int] | None = None
        for case in cases:
            permit = self.permit(case, timed=timed)
            if permit is None:
                return case, None
            if found is None or permit < found[1]:
                found = case, permit
                if newest is not None and self.by_trace(case._replace(written=newest), timed=timed):
                    of_any = self.by_trace(case._replace(written=None), timed=timed)
                    if permit == lowest(permit, of_any, self.lowest_cause):
                        return found
        return found


def lowest(*permits: int | None) -> int | None:
    return min((permit for permit in permits if permit is not None), default=None)


def excuses_of(unit: Unit) -> dict[Key, Excuses]:
    """The excuses of the partitions of the table `suspected`."""
    lost: dict[Key, dict[int, Lost]] = {}
    for row in unit.rows(_LOST).to_pylist():
        one = Lost(cause=row["cause"], there=frozenset(row["there"]))
        lost.setdefault((row["run"], row["partition"]), {})[row["offset"]] = one
    excuses: dict[Key, list[Excuse]] = {}
    rows = unit.rows(_EXCUSES).to_pylist()
    for (run, partition, permit), alike in groupby(rows, itemgetter("run", "partition", "permit")):
        some = list(alike)
        excuses.setdefault((run, partition), []).append(Excuse(
            permit=permit,
            by_tick=Highest((row["tick"], row["epoch"]) for row in some),
            by_election=Highest((row["elected"], row["epoch"]) for row in some),
        ))  # fmt: skip
    keys = {(row["run"], row["partition"]) for row in unit.rows("from suspected").to_pylist()}
    return {key: Excuses(excuses.get(key, ()), lost.get(key, {})) for key in keys}


_LOST = """
    with gone as (
        select run, partition, ack as "offset", min(cause) as cause
        from by_value semi join suspected using (run, partition)
        where cause is not null and ack is not null group by all)
    select run, partition, "offset", any_value(cause) as cause,
        coalesce(list(distinct epoch) filter (epoch is not null), []) as there
    from gone left join (from placed where leads) using (run, partition, "offset") group by all"""
_EXCUSES = f"""
    select run, partition, one.permit as permit, coalesce(one.epoch, {_ANY_EPOCH - 1}) as epoch,
        coalesce(one.elected, {_ANY_EPOCH - 1}) as elected, one.tick as tick
    from (select run, partition, unnest(excuses) as one from traced)
    semi join suspected using (run, partition) order by run, partition, permit"""
