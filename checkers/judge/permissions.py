"""Finds what the faults of a run permit: for each partition, up to which send a loss is covered, and by what.

Theory. Every cause (an unclean election, copies struck beyond the budget) covers the records sent before it,
so each cause is one bound per partition: a lost record is covered if its send was invoked before the bound.
Acts of the nemesis are ordered by the index of their line, events that only the trace has by time.

Without a trace the budget is counted: min.insync.replicas of the partition's nodes struck after the send
permits surely, at least one permits possibly. With a trace it is looked up: a leader was elected while all
members of the previous ISR were struck. Faults that the history may lack (unread.py) permit possibly, for
every record.

Times of two nodes that differ by no more than the clock error are in no known order: a cause that permits a
loss in one of the two orders permits it possibly. So there are two bounds of each kind, for what surely
permits and for what may permit.

Where every write is flushed, a power cut takes only what a process that had ended before left written and not
flushed: Kafka credits what it finds written (unless the system flushes at recovery). So it covers the records
sent before the last such end of its node; a wiped, replaced or bad disk covers what it always does.

An unclean election permits a loss only if it was allowed: the setting is on, or the nemesis had begun to ask
for it before. One that was not allowed is a finding of its own (unclean-election). Where a whole trace shows
which elections were unclean, only these count, whatever the nemesis asked for; else every request does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.checkers.judge.deaths import died
from floodmark.checkers.judge.rulings import Ruling, Rulings
from floodmark.checkers.judge.unread import Unread, ends_of, flushes_at_recovery, listed
from floodmark.checkers.laws.permits import BUDGET, BUDGET_MAYBE, EVER, NEVER, UNCLEAN, UNCLEAN_MAYBE
from floodmark.checkers.read.columns import Ints
from floodmark.checkers.read.folder import Folder, clock_error_ns, is_int
from floodmark.checkers.read.partitions import Partition
from floodmark.harness.faults import SPARES_FLUSHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that lost data on a node."""

    f: str
    index: int
    began: int  # ns: a leader elected after this may lack the lost records
    time: int  # ns: nothing more is lost after this
    node: str
    # Records are lost only if they were sent before the index, or written up to the time (ns).
    until: int
    until_time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overspent:
    """An election from struck copies only: records sent before the index, or written before all of them were
    struck, may be lost after it."""

    index: int
    struck: int  # ns: when the first of them was
    elected: int  # the epoch that it begins
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuse:
    """After this time, that of an election of the epoch `elected`, records may be lost by this permit
    (laws.permits): those of epochs up to `epoch`, written up to `struck`."""

    permit: int
    epoch: int = EVER
    struck: int = 1 << 62  # ns; later than every line
    elected: int
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request of the nemesis for an unclean election."""

    index: int
    began: int  # ns: it did not cause earlier elections
    partitions: frozenset[float] | None  # None: all of them

    def is_of(self, key: int) -> bool:
        return self.partitions is None or key in self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclean:
    """An unclean election in the trace."""

    ruling: Ruling
    allowed: bool | None  # None: nobody knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one partition: a record is covered if its send was invoked before a bound (an index, or a
    time in ns)."""

    unclean_index: int = NEVER
    unclean_time: int = NEVER
    unclean_maybe: bool = False  # the setting is on, and nothing shows whether an unclean election happened
    unclean_maybe_time: int = NEVER
    budget_index: int = NEVER
    budget_maybe_index: int = NEVER
    excuses: tuple[Excuse, ...] = ()  # the same, from the trace
    struck: bool = False  # a fault that lost data, or an unclean election, met this partition
    unclean: tuple[Unclean, ...] = ()  # elections, in order


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllBounds(Mapping[int, Bounds]):
    """The bounds of every partition of run.json, in its order. Most partitions share one value, which is
    stored once."""

    keys_there: Ints
    codes: Ints
    several: Sequence[Bounds]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[int]:
        return iter(self.keys_there.tolist())

    def __getitem__(self, key: int) -> Bounds:
        rows = np.flatnonzero(self.keys_there == key)
        if not len(rows):
            raise KeyError(key)
        return self.several[int(self.codes[rows[0]])]

    def taken(self, rows: Ints) -> "AllBounds":
        return AllBounds(keys_there=self.keys_there[rows], codes=self.codes[rows], several=self.several)

    def column(self, make: Callable[[Bounds], object], kind: pa.DataType) -> pa.Array:
        """A column of `make(bounds)` for each partition."""
        return pa.array([make(each) for each in self.several], type=kind).take(pa.array(self.codes))

    def keys_where(self, is_so: Callable[[Bounds], bool]) -> list[int]:
        """The partitions for whose bounds `is_so` is true."""
        flags = np.array([is_so(each) for each in self.several], dtype=np.bool_)
        found: list[int] = self.keys_there[flags[self.codes]].tolist() if len(flags) else []
        return found


NO_BOUNDS = AllBounds(keys_there=np.zeros(0, np.int64), codes=np.zeros(0, np.int64), several=())


def bounds_of(
    folder: Folder, nemesis: Sequence[Mapping[str, Any]], trace: Rulings, unread: Unread
) -> AllBounds:
    """The bounds of every partition, from the nemesis's lines, those that are not there, and the trace."""
    strikes, asks, events = unflushed(folder, nemesis, unread), unclean_asks(nemesis), trace.by_partition()
    partitions, several = folder.partitions, list[Bounds]()
    codes = partitions.replicas.codes.astype(np.int64)
    alike: dict[tuple[object, ...], int] = {}  # by everything that they depend on

    def code_of(partition: Partition, mine: tuple[Ask, ...], changes: tuple[Ruling, ...]) -> int:
        same = partition.replicas, mine, changes
        if same not in alike:
            alike[same] = len(several)
            several.append(bounds_of_partition(
                folder, partition, strikes, asks=mine, trace=replace(trace, events=changes), unread=unread
            ))  # fmt: skip
        return alike[same]

    # Partitions with an act or an election of their own; the others depend on their replicas alone.
    named = set(events).union(*(ask.partitions for ask in asks if ask.partitions is not None))
    is_named = np.isin(partitions.keys_there, [*named])
    general = tuple(ask for ask in asks if ask.partitions is None)
    others, firsts = np.unique(np.where(is_named, -1, codes), return_index=True)
    of_code = np.zeros(len(partitions.replicas.values), dtype=np.int64)
    for code, row in zip(others.tolist(), firsts.tolist(), strict=True):
        if code >= 0:
            of_code[code] = code_of(partitions.row(row), general, ())
    codes = of_code[codes]
    for row in np.flatnonzero(is_named).tolist():
        partition = partitions.row(row)
        mine = tuple(ask for ask in asks if ask.is_of(partition.key))
        codes[row] = code_of(partition, mine, tuple(events.get(partition.key, ())))
    return AllBounds(keys_there=partitions.keys_there, codes=codes, several=several)


def bounds_of_partition(
    folder: Folder,
    partition: Partition,
    strikes: Sequence[Strike],
    *,
    asks: Sequence[Ask],
    trace: Rulings,
    unread: Unread,
) -> Bounds:
    """`asks`, `trace`: those of this partition."""
    error_ns = clock_error_ns(folder)
    here = [strike for strike in strikes if strike.node in partition.replicas]
    # A whole trace shows whether what was asked for, or may have been, was done.
    asked_index = max((ask.index for ask in asks if not trace.cleanness), default=NEVER)
    unread_election = unread.unclean and not trace.cleanness
    unclean = tuple(unclean_elections(folder, trace.events, asks, unread))
    surely = max((each.ruling.time for each in unclean if each.allowed), default=NEVER)
    perhaps = max((each.ruling.time for each in unclean if each.allowed is not False), default=NEVER)
    untold = folder.guarantees.unclean is True and not trace.cleanness
    disordered = unread.disordered and asked_index != NEVER
    maybe = untold or unread_election or disordered or (unread.untimely and perhaps != NEVER)
    losing = [strike for strike in here if strike.until != NEVER]
    spent = overspent(losing, trace, error_ns=error_ns, generous=False)
    either = overspent(losing, trace, error_ns=error_ns, generous=True)
    perhaps_spent = [each for each in either if each not in spent]
    if trace.elections:
        index = max((each.index for each in spent), default=NEVER)
        maybe_index = max((each.index for each in perhaps_spent), default=NEVER)
    else:
        index, maybe_index = counted(losing, min_insync(folder, partition.replicas))
    # Of some cut nobody knows whether its node had been killed before.
    unsure = unread.ended and any(strike.until < strike.index for strike in here)
    untimely = unread.untimely and bool(losing)
    unread_strike = unsure or (unread.unflushed if folder.guarantees.flushed else unread.lost)
    if unread_strike or (unread.disordered and losing) or (untimely and trace.elections):
        maybe_index = EVER
    return Bounds(
        unclean_index=asked_index,
        unclean_time=within(surely - error_ns) if surely != NEVER else NEVER,
        unclean_maybe=maybe,
        unclean_maybe_time=within(perhaps + error_ns + 1) if perhaps != NEVER else NEVER,
        budget_index=index,
        budget_maybe_index=maybe_index,
        excuses=tuple(excuses(
            unclean, spent, perhaps_spent,
            unread_election=unread_election, unread_strike=unread_strike or untimely,
        )),
        struck=bool(here) or asked_index != NEVER or bool(unclean) or maybe or unread.lost,
        unclean=unclean,
    )  # fmt: skip


def internal_index(folder: Folder, nemesis: Sequence[Mapping[str, Any]], unread: Unread) -> int:
    """The index of the last fault that may have cost records of __transaction_state or __consumer_offsets. No
    run names their partitions and no trace shows them: any node that lost data may have had all copies, and
    nobody knows whether flush holds for them."""
    strikes, asks = strikes_of(nemesis), [ask for ask in unclean_asks(nemesis) if ask.partitions is None]
    unordered = unread.disordered and (strikes or asks)
    if folder.guarantees.unclean is True or unread.lost or unread.unclean or unordered:
        return EVER
    return max([NEVER, *(strike.index for strike in strikes), *(ask.index for ask in asks)])


def within(time: int) -> int:
    """A bound that fits into Spark's integers and is beyond every real time."""
    return max(NEVER, min(EVER, time))


def is_before(one: int, other: int, error_ns: int) -> bool | None:
    """Whether the first of two nodes' times is the earlier; None: nobody knows."""
    return None if abs(other - one) <= error_ns else one < other


def unclean_elections(
    folder: Folder, events: Sequence[Ruling], asks: Sequence[Ask], unread: Unread
) -> Iterator[Unclean]:
    """Every unclean election of one partition, and whether it was allowed. It was if the setting is on, or if
    a request surely came before it. If a request may have come before it, or the setting is missing, nobody
    knows."""
    error_ns, setting = clock_error_ns(folder), folder.guarantees.unclean
    for event in events:
        if event.clean is False:
            before = [
                None if unread.untimely else is_before(ask.began, event.time, error_ns) for ask in asks
            ]
            doubtful = setting is None or unread.asked or None in before
            allowed = True if setting or True in before else None if doubtful else False
            yield Unclean(ruling=event, allowed=allowed)


def strikes_of(nemesis: Iterable[Mapping[str, Any]]) -> list[Strike]:
    return [
        Strike(
            f=op["f"],
            index=op["index"],
            began=op["fault"]["began"] if is_int(op["fault"].get("began")) else op["time"],
            time=op["time"],
            node=node,
            until=op["index"],
            until_time=op["time"],
        )
        for op in nemesis
        if op["fault"].get("lost") is True
        for node in listed(op["fault"].get("nodes"))
        if isinstance(node, str)
    ]


def unflushed(folder: Folder, nemesis: Sequence[Mapping[str, Any]], unread: Unread) -> list[Strike]:
    """The strikes, each until the last record that it may cost although writes are flushed as promised."""
    strikes, dead = strikes_of(nemesis), died(folder)
    if not folder.guarantees.flushed:
        return strikes
    safe, ends, found = flushes_at_recovery(folder), ends_of(nemesis), list[Strike]()
    for strike in strikes:
        mine = [] if safe else ends.get(strike.node, [])
        before = [end for end in mine if end[0] < strike.index or unread.disordered]
        until, until_time = max(before, default=(NEVER, NEVER))
        # A node of `died` ended nobody knows when.
        is_whole = strike.f not in SPARES_FLUSHED or (not safe and (dead is None or strike.node in dead))
        found.append(strike if is_whole else replace(strike, until=until, until_time=until_time))
    return found


def unclean_asks(nemesis: Iterable[Mapping[str, Any]]) -> list[Ask]:
    """The nemesis's requests for unclean elections."""
    asks: list[Ask] = []
    for op in nemesis:
        fault = op["fault"]
        if op["f"] == "elect" and fault.get("unclean") is True:
            one = [fault["partition"]] if is_int(fault.get("partition")) else None
            partitions = fault.get("partitions", one)
            named = frozenset(key for key in listed(partitions) if isinstance(key, (int, float)))
            asks.append(Ask(
                index=op["index"],
                began=fault["began"] if is_int(fault.get("began")) else op["time"],
                partitions=named if isinstance(partitions, list) else None,
            ))  # fmt: skip
    return asks


def min_insync(folder: Folder, replicas: Sequence[str]) -> int:
    """min.insync.replicas: the guarantee, else the brokers' configuration, else Kafka's default."""
    promised = folder.guarantees.min_insync
    if promised is not None:
        return promised
    config = folder.about.get("config")
    named = [
        config[node].get("min.insync.replicas")
        for node in replicas
        if isinstance(config, dict) and isinstance(config.get(node), dict)
    ]
    return max((int(number) for number in named if is_int(number) and number > 0), default=1)


def counted(strikes: Iterable[Strike], enough: int) -> tuple[int, int]:
    """(the index before which at least `enough` nodes were struck later, the one before which at least one
    was)."""
    last: dict[str, int] = {}
    for strike in strikes:
        last[strike.node] = max(last.get(strike.node, NEVER), strike.until)
    latest = sorted(last.values(), reverse=True)
    return latest[enough - 1] if len(latest) >= enough else NEVER, latest[0] if latest else NEVER


def overspent(
    strikes: Sequence[Strike], trace: Rulings, *, error_ns: int, generous: bool
) -> list[Overspent]:
    """Every election of a leader from an ISR whose members, and the leader itself, were all struck. A node
    that is added to the ISR while it is down, because that was proposed before, has no copy again by that.
    `generous`: events of unknown order are taken in the order that permits a loss; otherwise in the other."""

    def before(one: int, other: int, *, permits: bool) -> bool:
        known = is_before(one, other, error_ns)
        return permits is generous if known is None else known

    struck: dict[str, Strike] = {}  # by node, until it is in sync again
    isr: frozenset[str] = frozenset()
    found, waiting = [], sorted(strikes, key=lambda strike: (strike.began, strike.index))
    for event in trace.events:
        while waiting and before(waiting[0].began, event.time, permits=True):
            strike = waiting.pop(0)
            former = struck.get(strike.node, strike)
            struck[strike.node] = replace(
                strike, until=max(strike.until, former.until),
                until_time=max(strike.until_time, former.until_time),
            )  # fmt: skip
        if event.clean is None:
            for node in event.isr - isr:  # it has caught up: its log is a copy again
                if node in struck and any(
                    before(struck[node].time, time, permits=False)
                    and before(time, event.time, permits=False)
                    for time in trace.starts.get(node, ())
                ):
                    del struck[node]
        elif event.leader is not None:
            chosen_from = event.isr | {event.leader}
            if chosen_from <= struck.keys():
                copies = [struck[node] for node in chosen_from]
                found.append(Overspent(
                    index=min(each.until for each in copies),
                    struck=min(each.until_time for each in copies),
                    elected=event.epoch, time=event.time,
                ))  # fmt: skip
        isr = event.isr
    return found


def excuses(
    unclean: Iterable[Unclean], spent: Iterable[Overspent], perhaps_spent: Iterable[Overspent], *,
    unread_election: bool, unread_strike: bool,
) -> Iterator[Excuse]:
    """What permits a loss by the trace itself, and by events that the history lacks or has at a time that may
    be wrong. Without clean elections nothing promises the records of an earlier epoch; the records that the
    new leader writes are not covered."""
    for each in unclean:
        if each.allowed is not False:
            permit, ruling = UNCLEAN if each.allowed else UNCLEAN_MAYBE, each.ruling
            yield Excuse(permit=permit, epoch=ruling.epoch - 1, elected=ruling.epoch, time=ruling.time)
    for permit, elections in ((BUDGET, spent), (BUDGET_MAYBE, perhaps_spent)):
        for one in elections:
            yield Excuse(permit=permit, struck=one.struck, elected=one.elected, time=one.time)
    for permit, is_unread in ((UNCLEAN_MAYBE, unread_election), (BUDGET_MAYBE, unread_strike)):
        if is_unread:
            yield Excuse(permit=permit, elected=NEVER, time=-EVER)
