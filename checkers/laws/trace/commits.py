"""Which leader committed which records of one partition, and when: lookups among a partition's commits.

They are used only for partitions in which something may be wrong. Every lookup is a search in a sorted list:
a partition may have thousands of epochs, and as many replicas that lack records of all of them.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

from floodmark.checkers.laws.unit import Unit

Key = tuple[int, int]  # run, partition
Row = Mapping[str, Any]
_LOWEST = -(1 << 63)
Lacked = tuple[int | None, int, int]  # epoch of the records, the first offset, how far they were committed


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLeader:
    """The commits by leaders of one epoch of records of one epoch, in order of time."""

    by: int
    times: Sequence[int]
    nodes: Sequence[str]
    seqs: Sequence[int]
    los: Sequence[int]
    his: Sequence[int]
    reached: Sequence[int]  # the highest of `his` so far

    def reached_at(self, time: int) -> int | None:
        place = bisect_right(self.times, time)
        return self.reached[place - 1] if place else None

    def reached_before(self, line: Row) -> int | None:
        """The highest offset reached by commits surely before the line: by their times, or as earlier lines
        of the same node."""
        surely = line["time"] - line["clock_error"] - 1
        reached, place = self.reached_at(surely), bisect_right(self.times, surely)
        while place < len(self.times) and self.times[place] <= line["time"]:
            if self.nodes[place] == line["node"] and self.seqs[place] < line["seq"]:
                reached = self.his[place] if reached is None else max(reached, self.his[place])
            place += 1
        return reached

    def first_above(self, offset: int) -> int:
        """The position of the first commit that reaches beyond the offset; len: there is none."""
        return bisect_right(self.reached, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The commits of the records of one epoch."""

    written: int | None
    lo: int
    hi: int
    first: int  # time
    full: int  # time
    by_leader: Sequence[ByLeader]

    def reached_by(self, time: int) -> int:
        """How far its records were committed by then; of an unknown epoch nobody knows."""
        reached = (one.reached_at(time) for one in self.by_leader)
        known = max((each for each in reached if each is not None), default=self.lo)
        return self.hi if self.written is None else known

    def committed_before(self, line: Row) -> tuple[int, int] | None:
        """(the first offset, from the line's LEO on, that leaders up to the line's epoch had surely committed
        by then; how far they had)."""
        found = []
        for one in self.by_leader:
            reached = one.reached_before(line) if one.by <= line["epoch"] else None
            if reached is not None and reached > line["leo"]:
                found.append((max(one.los[one.first_above(line["leo"])], line["leo"]), reached))
        return (min(lo for lo, _ in found), max(hi for _, hi in found)) if found else None

    def first_commit(self, offset: int) -> tuple[int, str, int]:
        """The line that first committed a record at the offset or above: time, node, seq."""
        places = ((one, one.first_above(offset)) for one in self.by_leader)
        return min(
            (one.times[place], one.nodes[place], one.seqs[place])
            for one, place in places
            if place < len(one.times)
        )


@dataclass(slots=True)
class Commits:
    """The commits of one partition; the epochs by where they begin."""

    epochs: Sequence[Epoch] = ()
    los: list[int] = field(init=False)
    tops: list[int] = field(init=False)  # the highest `hi` so far
    newest: list[int] = field(init=False)  # the highest `written` so far

    def __post_init__(self) -> None:
        self.los = [epoch.lo for epoch in self.epochs]
        self.tops = list(accumulate((epoch.hi for epoch in self.epochs), max))
        written = (_LOWEST if epoch.written is None else epoch.written for epoch in self.epochs)
        self.newest = list(accumulate(written, max))

    def between(self, lo: int, hi: int) -> Iterator[Epoch]:
        """The epochs of which a record in this range was committed."""
        for place in range(bisect_right(self.tops, lo), bisect_left(self.los, hi)):
            if self.epochs[place].hi > lo:
                yield self.epochs[place]

    def newest_below(self, offset: int) -> int:
        """The highest epoch that begins below the offset."""
        place = bisect_left(self.los, offset)
        return self.newest[place - 1] if place else _LOWEST

    def lacked_by_leader(self, line: Row) -> Iterator[Lacked]:
        """The missing records when the line's node becomes leader, by epoch, lowest first."""
        is_newest = line["committed_epoch"] is not None and line["committed_epoch"] <= line["epoch"]
        if not self.epochs and is_newest:
            yield None, line["leo"], line["committed"]
        for epoch in self.between(line["leo"], line["committed"]):
            found = epoch.committed_before(line)
            if found is not None:
                yield epoch.written, found[0], line["committed"] if is_newest else found[1]

    def lacked_by_member(self, lines: Sequence[Row]) -> Iterator[tuple[Row, Lacked]]:
        """The missing records of one replica's log at these lines, which are in order of time. If it lacks
        all of an epoch, the first line is named."""
        if not self.epochs:
            yield from ((line, (None, line["leo"], line["committed"])) for line in lines)
        later = list(range(len(self.epochs) + 1))  # the next epoch that was not yet found to be missing
        for line in lines:
            leo, time, end = line["leo"], line["time"], bisect_left(self.los, line["committed"])
            first = bisect_left(self.los, leo)
            for place in range(bisect_right(self.tops, leo), min(first, end)):
                epoch = self.epochs[place]
                reached = epoch.reached_by(time) if epoch.hi > leo and epoch.first <= time else leo
                if reached > leo:
                    yield line, (epoch.written, leo, reached)
            place = following(later, first)
            while place < end:
                epoch = self.epochs[place]
                if epoch.first <= time:
                    yield line, (epoch.written, epoch.lo, epoch.reached_by(time))
                    later[place] = place + 1
                place = following(later, place + 1)

    def displaced(self, spans: Sequence[Row]) -> Iterator[tuple[Row, Epoch, int]]:
        """The epochs whose committed records one replica has replaced by others, with the spans that did, and
        how far they did. The spans come in the order of `surely`: what was committed up to this time counts.
        Once spans have replaced all committed records of an epoch, later ones show nothing new about it."""
        coming = sorted(range(len(self.epochs)), key=lambda place: self.epochs[place].first, reverse=True)
        left: list[int] = []  # places of the epochs that are committed by now and not yet completely replaced
        for span in spans:
            lo, hi, surely = span["lo"], span["hi"], span["surely"]
            while coming and self.epochs[coming[-1]].first <= surely:
                insort(left, coming.pop())
            first, end = bisect_left(self.los, lo), bisect_left(self.los, hi)
            partly = range(bisect_right(self.tops, lo), first)
            wholly = left[bisect_left(left, first) : bisect_left(left, end)]
            for place in (*partly, *wholly):
                epoch = self.epochs[place]
                if epoch.written in (None, span["epoch"]) or epoch.first > surely:
                    continue
                upto = min(hi, epoch.hi if epoch.full <= surely else epoch.reached_by(surely))
                if upto > max(lo, epoch.lo):
                    yield span, epoch, upto
                if place >= first and upto == epoch.hi:
                    del left[bisect_left(left, place)]


def following(later: list[int], place: int) -> int:
    """The first place that is left, from this one on; it shortens the chains in `later`."""
    found = place
    while later[found] != found:
        found = later[found]
    while later[place] != found:
        later[place], place = found, later[place]
    return found


def commits_of(unit: Unit) -> dict[Key, Commits]:
    """The commits of the partitions of the table `suspected`."""
    of_epochs: dict[tuple[int, int, int | None], list[ByLeader]] = {}
    rows = unit.rows(_OF_LEADERS)
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    keys = zip(*(columns[name] for name in ("run", "partition", "written", "by")), strict=True)
    end = 0
    for (run, partition, written, by), some in groupby(keys):
        here = slice(end, end := end + len(list(some)))
        named = {name: columns[name][here] for name in ("times", "nodes", "seqs", "los", "his", "reached")}
        of_epochs.setdefault((run, partition, written), []).append(ByLeader(by=by, **named))
    found: dict[Key, list[Epoch]] = {}
    for row in unit.rows(_OF_EPOCHS).to_pylist():
        key = row.pop("run"), row.pop("partition")
        epoch = Epoch(**row, by_leader=of_epochs[*key, row["written"]])
        found.setdefault(key, []).append(epoch)
    return {key: Commits(epochs) for key, epochs in found.items()}


_OF_LEADERS = """
    select run, partition, written, "by", time as times, node as nodes, seq as seqs, lo as los, hi as his,
        max(hi) over (partition by run, partition, written, "by" order by time, node, seq) as reached
    from committed semi join suspected using (run, partition)
    order by run, partition, written, "by", time, node, seq"""
_OF_EPOCHS = """
    select run, partition, written, lo, hi, first, "full"
    from epochs semi join suspected using (run, partition) order by run, partition, lo, written"""
