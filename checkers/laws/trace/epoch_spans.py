"""Computes what each replica had when: its log as a stack of epochs, by a walk over the few lines that change
it.

A span is a range of offsets that one replica has with records of one epoch. The appends of one replica in one
epoch, without a gap and with nothing else between, make one span, however many they are; so the walk sees
epochs, truncations and starts, not records. The highest offsets are cut first: every span is put on the stack
once and removed once.

A start that lists the epochs it found replaces the stack. One that does not list them cuts it to its LEO, and
records that it found beyond are of an unknown epoch (null), about which nothing is claimed. An append
replaces what was there and above.

Tables made:

    log_changes   a view: a row for each append, truncation and start, of an append for each epoch in it: run,
                  partition, node, line, seq, time; appends: it is an append; epoch, lo, hi: of the records
    epoch_spans   run, partition, node; epoch (null: unknown), lo, hi: offsets, hi exclusive; born_time,
                  born_seq: of the line that began it; full: the time at which all of it was there; gone: the
                  time at which it was there no longer, null: never; gone_line: that line of `timeline`; cut:
                  by a truncation outside of recovery. A span that is cut in the middle gives two rows.
    committed     the range that a leader's HW newly covers, a row for each epoch and line that moves it: run,
                  partition, written: the epoch of the records (null: unknown), lo, hi; by: the epoch of the
                  leader; node, seq, time: of that line. The part of a span that an earlier line of the same
                  leader covered, and that the leader has kept since, is not repeated. Of a partition of which
                  no leader's log shows any epoch, all of them unknown. Without what a replica has
                  deleted since: nothing is claimed about that.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from floodmark.checkers.laws.unit import Unit

_HIGHEST = (1 << 63) - 1


class Span(NamedTuple):
    """A range of a log that is there now."""

    epoch: int | None
    lo: int
    hi: int
    born_time: int
    born_seq: int
    full: int  # time


class Event(NamedTuple):
    """A change of a log, or a commit of a part of it."""

    run: int
    partition: int
    node: str
    line: int
    kind: str
    epoch: Any  # null of an append: unknown; of a commit the leader's epoch
    lo: int
    hi: Any
    seq: int
    time: int
    full: Any  # time by which all of it was appended
    epochs: list[list[int]] | None  # that a start found; null: it does not list them


_KEY = [("run", pa.int32()), ("partition", pa.int64()), ("node", pa.string())]
_SPANS = pa.schema([
    *_KEY, *((name, pa.int64()) for name in ("epoch", "lo", "hi", "born_time", "born_seq", "full")),
    ("gone", pa.int64()), ("gone_line", pa.int64()), ("cut", pa.bool_()),
])  # fmt: skip
_INHERITED = pa.schema([
    *_KEY, *((name, pa.int64()) for name in ("written", "lo", "hi", "by", "seq", "time"))
])  # fmt: skip


def epoch_spans(unit: Unit) -> None:
    """Make the tables."""
    unit.view("log_changes", _LOG_CHANGES)
    spans: list[tuple[Any, ...]] = []
    inherited: list[tuple[Any, ...]] = []
    for replica, events in replicas(unit):
        log = Log()
        for event in events:
            log.turn(event)
        log.close_spans()
        spans += (replica + row for row in log.gone)
        inherited += (replica + row for row in log.inherited)
    unit.load("epoch_spans", table_of(spans, _SPANS))
    unit.load("inherited", table_of(inherited, _INHERITED))
    unit.make("committed", _COMMITTED)


def table_of(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, type=kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def replicas(unit: Unit) -> Iterator[tuple[tuple[Any, ...], Iterator[Event]]]:
    """For every replica the events that change its log, in order; and the commits of its HW while it
    leads."""
    fields = ", ".join(f'"{field}"' for field in Event._fields)
    events = unit.rows(f"with {_RUNS}, turns as ({_TURNS}) select {fields} from turns order by line, number")
    columns = (column.to_pylist() for column in events.columns)
    return groupby(map(Event._make, zip(*columns, strict=True)), itemgetter(0, 1, 2))


@dataclass(slots=True)
class Log:
    """One replica's log, from the lowest offset to the highest, and its earlier spans."""

    spans: list[Span] = field(default_factory=list)
    # Spans that a broker has appended over, below its end and without a truncation: they are still in the
    # file, and a reader of those offsets finds them first.
    doubled: list[Span] = field(default_factory=list)
    gone: list[tuple[Any, ...]] = field(default_factory=list)  # rows of epoch_spans, without the replica
    inherited: list[tuple[Any, ...]] = field(default_factory=list)  # the same, of `inherited`
    covered: int = 0  # a line of an epoch up to `covered_by` has committed all below
    covered_by: int = 0

    def turn(self, event: Event) -> None:
        match event.kind:
            case "append":
                self.put(event.epoch, event.lo, event.hi, event, full=event.full)
            case "truncate":
                self.cut(event.lo, event, truncates=True)
            case "recover":
                self.cut(event.lo, event)
            case "start" if event.epochs is None:
                self.cut(event.lo, event)
                end = self.spans[-1].hi if self.spans else 0
                self.put(None, end, event.lo, event, full=event.time)
            case "start":
                self.cut(-_HIGHEST - 1, event)
                found = [*(event.epochs or ()), (None, event.lo)]
                for (epoch, first), (_, end) in pairwise(found):
                    known = None if epoch == -1 else epoch
                    self.put(known, first, min(end, event.lo), event, full=event.time)
            case "commit":
                self.cover(event)

    def put(self, epoch: int | None, lo: int, hi: int, event: Event, *, full: int) -> None:
        if lo < hi:
            self.covered = max(0, min(self.covered, lo))
            while self.spans and self.spans[-1].hi > lo:
                span = self.spans.pop()
                self.doubled.append(span._replace(lo=max(span.lo, lo)))
                if span.lo < lo:
                    self.spans.append(span._replace(hi=lo))
            self.spans.append(Span(epoch, lo, hi, event.time, event.seq, full))

    def cut(self, end: int, event: Event, *, truncates: bool = False) -> None:
        """Remove everything at `end` and above."""
        self.covered = max(0, min(self.covered, end))
        while self.spans and self.spans[-1].hi > end:
            span = self.spans.pop()
            self.remove_top(span, end, event, truncates)
            if span.lo < end:
                self.spans.append(span._replace(hi=end))
        if self.doubled:
            for span in self.doubled:
                if span.hi > end:
                    self.remove_top(span, end, event, truncates)
            self.doubled = [span._replace(hi=min(span.hi, end)) for span in self.doubled if span.lo < end]

    def remove_top(self, span: Span, end: int, event: Event, truncates: bool) -> None:
        """Record that the part of the span at `end` and above is gone."""
        lost = span._replace(lo=max(span.lo, end))
        self.gone.append((*lost, event.time, event.line, truncates))

    def cover(self, event: Event) -> None:
        """The leader's HW commits the records that it has from `lo` up to `hi`."""
        low, high = event.lo, event.hi
        if event.epoch < self.covered_by:
            self.covered = 0
        since = max(low, self.covered)
        place = bisect_left(self.spans, high, key=itemgetter(1)) if since < high else 0
        while place and self.spans[place - 1].hi > since:
            place -= 1
            span = self.spans[place]
            what = span.epoch, max(span.lo, since), min(span.hi, high)
            self.inherited.append((*what, event.epoch, event.seq, event.time))
        for span in self.doubled:
            if span.hi > since and span.lo < high:
                what = span.epoch, max(span.lo, since), min(span.hi, high)
                self.inherited.append((*what, event.epoch, event.seq, event.time))
        if low <= self.covered:
            self.covered, self.covered_by = max(self.covered, high), event.epoch

    def close_spans(self) -> None:
        """Close the spans that are there at the end: they are never gone."""
        self.gone += ((*span, None, None, False) for span in (*self.spans, *self.doubled))


_OWN = "case when role = 'leader' or \"offset\" >= began_at then t.epoch end"
END_OF_APPEND = f'least("offset"::hugeint + "count", {_HIGHEST})::bigint'


# In an append without epochs a leader's records have its epoch; so have a follower's from where that epoch
# begins.
_LOG_CHANGES = f"""
    with begun as (
        select run, partition, epoch, min(epoch_start) as began_at
        from timeline where event = 'become_leader' group by all)
    select run, partition, node, line, seq, time, event = 'append' as appends, pos,
        case when epochs is null then {_OWN} else nullif(epochs[pos][1], -1) end as epoch,
        coalesce(epochs[pos][2], "offset") as lo, coalesce(epochs[pos + 1][2], {END_OF_APPEND}) as hi
    from (select *, unnest(range(1, greatest(len(epochs), 1) + 1)) as pos
        from timeline where event in ('append', 'truncate', 'start')) t
    left join begun using (run, partition, epoch)"""
_RUNS = """
    numbered as (
        select *, count_if(not coalesce(goes_on, false)) over (order by line, pos rows unbounded preceding)
            as number
        from (select *, lag(hi) over replica = lo and lag(epoch) over replica is not distinct from epoch
                as goes_on
            from log_changes window replica as (partition by run, partition, node order by line, pos))),
    runs as (
        select any_value(run) as run, any_value(partition) as partition, any_value(node) as node,
            min(line) as line, number, 'append' as kind, any_value(epoch) as epoch,
            min(lo) as lo, max(hi) as hi, min(seq) as seq, min(time) as time, max(time) as full
        from numbered where appends group by number)"""
# A truncation to above the end of the log is a reset: the log then begins where its leader's begins.
_TURNS = """
    select *, null::bigint[][] as epochs from runs
    union all by name
    select run, partition, node, line, 0 as number, seq, time, leo as lo, epochs, 'start' as kind
    from timeline where event = 'start'
    union all by name
    select run, partition, node, line, 0 as number, seq, time,
        case when cut_to > cut_from then 0 else cut_to end as lo,
        case when cause = 'recovery' then 'recover' else 'truncate' end as kind
    from timeline where event = 'truncate'
    union all by name
    select run, partition, node, line, 0 as number, seq, time, epoch, inherited_from as lo,
        inherited_to as hi, 'commit' as kind
    from timeline where inherited_to is not null"""
_COMMITTED = """
    with known as (
        select run, partition, node, seq, time, epoch as written, epoch as by, fresh_from as lo,
            fresh_to as hi
        from timeline where fresh_to is not null
        union all by name
        from inherited),
    every as (
        from known
        union all by name
        select run, partition, node, seq, time, epoch as by, commits_from as lo, commits_to as hi
        from timeline anti join known using (run, partition))
    select e.* replace (greatest(lo, claims_from) as lo) from every e join traced using (run, partition)
    where hi > claims_from"""
