"""Decides what permits that committed records are missing, by the trace and the final logs.

Records lost by an unclean election that was allowed are excused from that election on (for candidates before
it too) if they were written in an epoch before it. Records lost by copies struck beyond the budget are
excused from the election of a struck leader on if they were written before the copies were struck, all of
them; what the cluster wrote since is not, even in the same epoch. These excuses are the column `excuses` of
`traced`. And a record whose final loss is permitted (by_value.cause) is excused everywhere, and so are those
of its epoch that a replica lacks behind it; but a record that is in the leader's final log, or that was
written after the loss of the others, was not lost, whatever else was lost at its offset.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

from floodmark.checkers.laws.permits import BUDGET, BUDGET_MAYBE, UNCLEAN, UNCLEAN_MAYBE
from floodmark.checkers.laws.trace.births import Births, births_of
from floodmark.checkers.laws.unit import Unit

Key = tuple[int, int]  # run, partition
_MAYBE = {UNCLEAN: UNCLEAN_MAYBE, BUDGET: BUDGET_MAYBE}
_SURE = {maybe: sure for sure, maybe in _MAYBE.items()}
_ANY = 1 << 63  # an epoch, or a time, beyond all


class Case(NamedTuple):
    """Records of one epoch that were committed and are missing or replaced."""

    offset: int  # of the first
    end: int  # behind the last
    time: int  # of the line that shows it
    node: str
    seq: int
    written: int | None  # their epoch
    how: str
    seen: int | None
    upto: int | None = None  # offset at which they end, for the sentence; None: nobody knows
    led: int | None = None  # the epoch in which the line's node leads or follows


class Highest:
    """The highest limit (an epoch, or a time) of the excuses up to some time or election."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(pairs)
        self.places = [place for place, _ in ordered]
        self.limits = list(accumulate((limit for _, limit in ordered), max))

    def upto(self, place: int) -> int | None:
        number = bisect_right(self.places, place)
        return self.limits[number - 1] if number else None


class Excuse:
    """All excuses of one kind (permits.py) in one partition."""

    def __init__(self, permit: int, rows: Sequence[Mapping[str, int]], births: Births, error: int) -> None:
        self.permit, self.births, self.error = permit, births, error
        self.is_by_epoch = _SURE.get(permit, permit) == UNCLEAN
        limit = "epoch" if self.is_by_epoch else "struck"
        self.by_time = Highest((row["time"], row[limit]) for row in rows)
        self.by_election = Highest((row["elected"], row[limit]) for row in rows)

    def permits(self, case: Case, *, timed: bool) -> int | None:
        """The permit, or None. `timed`: the line must come after the election. If their times are too near
        they may be the other way round; but a line in the elected epoch comes after it."""
        surely, perhaps = self.limits(case, timed=timed)
        if self.covers(surely, case, self.error + 1):
            return self.permit
        return _MAYBE.get(self.permit, self.permit) if self.covers(perhaps, case, -self.error) else None

    def limits(self, case: Case, *, timed: bool) -> tuple[int | None, int | None]:
        """The highest limit of those that surely, and of those that perhaps, come before the line."""
        if not timed:
            return (self.by_time.upto(_ANY),) * 2
        led = None if case.led is None else self.by_election.upto(case.led)
        surely = highest(self.by_time.upto(case.time - self.error - 1), led)
        return surely, highest(self.by_time.upto(case.time + self.error), led)

    def covers(self, limit: int | None, case: Case, leeway: int) -> bool:
        """Whether all records of the case were written up to the limit; those of unknown epoch may have
        been. `leeway` is added to the times at which they were written."""
        if limit is None:
            return False
        if self.is_by_epoch:
            return case.written is None or limit >= case.written
        last = self.births.last(case.written, case.offset, case.end)
        return last is None or limit >= last + leeway

    def first_uncovered(self, case: Case, *, timed: bool) -> int | None:
        """The first offset of the case that no such excuse covers; None: there is none."""
        _, limit = self.limits(case, timed=timed)
        if self.is_by_epoch or limit is None:
            return case.offset
        return self.births.first_after(limit + self.error, case.written, case.offset, case.end)


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
        self.by_epoch = [each for each in excuses if each.is_by_epoch]
        self.lowest_cause = min((each.cause for each in lost.values()), default=None)

    def cause(self, case: Case) -> int | None:
        """What permits the final loss of its first record."""
        lost = self.lost.get(case.offset)
        if lost is None or case.written in lost.there:
            return None
        if _SURE.get(lost.cause, lost.cause) not in self.kinds:
            return lost.cause
        first = case._replace(end=case.offset + 1)
        is_old = any(each.permits(first, timed=False) is not None for each in self.excuses)
        return lost.cause if is_old else None

    def worst(
        self, cases: Iterable[Case], *, timed: bool, newest: int | None = None
    ) -> tuple[Case, int | None] | None:
        """The first case that nothing permits, from its first record on that nothing permits; if there is
        none the one whose permit comes first, and of these the first. The cases come from the lowest on.
        `newest`: all cases are of one line, and no record was written in a later epoch; if an unclean
        election permits that one, the others need no check."""
        found: tuple[Case, int] | None = None
        lost_below: dict[int | None, int] = {}  # what permits the final loss of a record, by its epoch
        for case in cases:
            cause = lowest(self.cause(case), lost_below.get(case.written))
            if cause is not None:
                lost_below[case.written] = cause
            # Of two permits the first that applies. The trace may permit what no final log shows.
            permit = lowest(cause, *(each.permits(case, timed=timed) for each in self.excuses))
            if permit is None:
                return self.from_first_uncovered(case, timed=timed), None
            if found is None or permit < found[1]:
                found = case, permit
                if newest is not None and permit == self.least(case, newest, timed=timed):
                    return found
        return found

    def least(self, case: Case, newest: int, *, timed: bool) -> int | None:
        """The first of all permits that any case of its line may have, if an unclean election permits the
        newest of them; else None."""
        of_newest = (each.permits(case._replace(written=newest), timed=timed) for each in self.by_epoch)
        if lowest(*of_newest) is None:
            return None
        of_any = (each.permits(case._replace(written=None), timed=timed) for each in self.excuses)
        return lowest(*of_any, self.lowest_cause)

    def from_first_uncovered(self, case: Case, *, timed: bool) -> Case:
        firsts = [each.first_uncovered(case, timed=timed) for each in self.excuses]
        return case._replace(
            offset=max((first for first in firsts if first is not None), default=case.offset)
        )


def lowest(*permits: int | None) -> int | None:
    return min((permit for permit in permits if permit is not None), default=None)


def highest(*limits: int | None) -> int | None:
    return max((limit for limit in limits if limit is not None), default=None)


def excuses_of(unit: Unit) -> dict[Key, Excuses]:
    """The excuses of the partitions of the table `suspected`."""
    lost: dict[Key, dict[int, Lost]] = {}
    for row in unit.rows(_LOST).to_pylist():
        one = Lost(cause=row["cause"], there=frozenset(row["there"]))
        lost.setdefault((row["run"], row["partition"]), {})[row["offset"]] = one
    excuses: dict[Key, list[Excuse]] = {}
    rows, births = unit.rows(_EXCUSES).to_pylist(), births_of(unit)
    for (run, partition, permit), alike in groupby(rows, itemgetter("run", "partition", "permit")):
        some = list(alike)
        excuses.setdefault((run, partition), []).append(
            Excuse(permit, some, births.get((run, partition), Births()), some[0]["clock_error"])
        )
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
    select run, partition, clock_error, one.permit as permit, coalesce(one.epoch, {_ANY - 1}) as epoch,
        coalesce(one.struck, {_ANY - 1}) as struck, coalesce(one.elected, {_ANY - 1}) as elected,
        one.time as time
    from (select run, partition, clock_error, unnest(excuses) as one from traced)
    semi join suspected using (run, partition) order by run, partition, permit"""
