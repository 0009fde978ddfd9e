"""What the faults of a run permit: per partition, up to which send a loss is covered, and by what.

Theory. Every cause (an unclean election, copies struck beyond the budget) covers the records sent before it,
so each is one bound per partition: a lost record is covered if its send was invoked before the bound. What
the nemesis did is ordered by the index of its line, what only the trace tells by time.

Without a trace the budget counts: min.insync.replicas of the partition's nodes struck after the send is
sure, at least one is a maybe. With one it looks: a leader chosen while all of the ISR it was chosen from was
struck. What the history may have told and does not show (unread.py) is a maybe for every record.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkers.findings import BUDGET, BUDGET_MAYBE, UNCLEAN, UNCLEAN_MAYBE
from checkers.folder import Folder, Partition, is_int
from checkers.rulings import Ruling, Rulings
from checkers.unread import Unread

NEVER = -(1 << 62)  # no send was invoked before this
EVER = 1 << 60  # every send was


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that lost data on a node."""

    index: int
    began: int  # ns: from here on a leader may have been chosen without what was lost
    time: int  # ns: from here on nothing more is lost
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overspent:
    """An election from struck copies only: what was sent before the index, and written in these epochs, may
    be lost from then on."""

    index: int
    epoch: int  # the partition's, when the first of them was struck
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuse:
    """From this time on records of epochs up to this one may be lost, by this cause (findings.py)."""

    by: int
    epoch: int
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A record of the partition is covered if its send was invoked before a bound (an index, or a time in
    ns)."""

    unclean_index: int = NEVER
    unclean_time: int = NEVER
    unclean_maybe: bool = False  # the setting is on and nobody saw whether it mattered
    budget_index: int = NEVER
    budget_maybe_index: int = NEVER
    excuses: tuple[Excuse, ...] = ()  # the same, for what the trace shows
    struck: bool = False  # a fault that lost data, or an unclean election, met this partition


def bounds_of(
    folder: Folder, nemesis: Sequence[Mapping[str, Any]], trace: Rulings, unread: Unread
) -> dict[int, Bounds]:
    """The bounds of every partition, from the nemesis's lines, those that are not there, and the trace."""
    strikes, asked, events = strikes_of(nemesis), unclean_asked(nemesis), trace.by_partition()
    bounds: dict[int, Bounds] = {}
    alike: dict[tuple[object, ...], Bounds] = {}  # by all that they depend on
    for key, partition in folder.partitions.items():
        index, told = unclean_index(asked, key), tuple(events.get(key, ()))
        same = partition.replicas, index, told
        if same not in alike:
            alike[same] = bounds_of_partition(
                folder,
                partition,
                strikes,
                asked_index=index,
                trace=replace(trace, events=told),
                unread=unread,
            )
        bounds[key] = alike[same]
    return bounds


def bounds_of_partition(
    folder: Folder,
    partition: Partition,
    strikes: Sequence[Strike],
    *,
    asked_index: int,
    trace: Rulings,
    unread: Unread,
) -> Bounds:
    """`trace`: what it says of this partition."""
    events = trace.events
    here = [strike for strike in strikes if strike.node in partition.replicas]
    unclean_time = max((event.time for event in events if event.clean is False), default=NEVER)
    maybe = (
        (unclean_setting(folder) and not trace.cleanness)
        or unread.unclean
        or (unread.disordered and asked_index != NEVER)
        or (unread.untimely and unclean_time != NEVER)
    )
    index = maybe_index = NEVER
    if folder.guarantee("flush", "os") != "every":
        if trace.elections:
            index = max((spent.index for spent in overspent(here, events, trace.starts)), default=NEVER)
        else:
            index, maybe_index = counted(here, min_insync(folder, partition))
        if unread.lost or (here and (unread.disordered or (unread.untimely and trace.elections))):
            maybe_index = EVER
    return Bounds(
        unclean_index=asked_index,
        unclean_time=unclean_time,
        unclean_maybe=maybe,
        budget_index=index,
        budget_maybe_index=maybe_index,
        excuses=(*excuses(folder, here, events, trace.starts), *perhaps(folder, unread, struck=bool(here))),
        struck=bool(here) or asked_index != NEVER or unclean_time != NEVER or maybe or unread.lost,
    )


def unclean_setting(folder: Folder) -> bool:
    return folder.guarantee("unclean_leader_election", False) is True


def strikes_of(nemesis: Iterable[Mapping[str, Any]]) -> list[Strike]:
    return [
        Strike(
            index=op["index"],
            began=op["fault"]["began"] if is_int(op["fault"].get("began")) else op["time"],
            time=op["time"],
            node=node,
        )
        for op in nemesis
        if op["fault"].get("lost") is True
        for node in listed(op["fault"].get("nodes"))
        if isinstance(node, str)
    ]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


Asked = tuple[int, frozenset[float] | None]  # the index of an election, and of what; None: of all partitions


def unclean_asked(nemesis: Iterable[Mapping[str, Any]]) -> list[Asked]:
    """The unclean elections that the nemesis asked for."""
    asked: list[Asked] = []
    for op in nemesis:
        fault = op["fault"]
        if op["f"] == "elect" and fault.get("unclean") is True:
            one = [fault["partition"]] if is_int(fault.get("partition")) else None
            told = fault.get("partitions", one)
            named = frozenset(key for key in listed(told) if isinstance(key, (int, float)))
            asked.append((op["index"], named if isinstance(told, list) else None))
    return asked


def unclean_index(asked: Iterable[Asked], key: int) -> int:
    """The index of the last unclean election that was asked for of this partition."""
    return max((index for index, keys in asked if keys is None or key in keys), default=NEVER)


def min_insync(folder: Folder, partition: Partition) -> int:
    """min.insync.replicas: the guarantee given, else the brokers' configuration, else Kafka's default."""
    told = folder.guarantee("min_insync_replicas", None)
    if is_int(told) and told > 0:
        return int(told)
    config = folder.about.get("config")
    named = [
        config[node].get("min.insync.replicas")
        for node in partition.replicas
        if isinstance(config, dict) and isinstance(config.get(node), dict)
    ]
    return max((int(number) for number in named if is_int(number) and number > 0), default=1)


def counted(strikes: Iterable[Strike], enough: int) -> tuple[int, int]:
    """The index before which `enough` nodes were struck later, and that before which one was."""
    last: dict[str, int] = {}
    for strike in strikes:
        last[strike.node] = max(last.get(strike.node, NEVER), strike.index)
    latest = sorted(last.values(), reverse=True)
    return latest[enough - 1] if len(latest) >= enough else NEVER, latest[0] if latest else NEVER


def overspent(
    strikes: Sequence[Strike], events: Sequence[Ruling], starts: Mapping[str, Sequence[int]]
) -> list[Overspent]:
    """Every election of a leader from an ISR whose members, and the leader itself, were all struck. A node
    that the ISR takes in while it is down, for it had been asked for before, has no copy again by that."""
    struck: dict[str, tuple[int, int]] = {}  # node -> (index, epoch) of the strike, until it is in sync again
    struck_at: dict[str, int] = {}
    isr: frozenset[str] = frozenset()
    found, epoch, waiting = [], -1, sorted(strikes, key=lambda strike: (strike.began, strike.index))
    for event in events:
        while waiting and waiting[0].began <= event.time:
            strike = waiting.pop(0)
            struck[strike.node] = (strike.index, epoch if strike.time <= event.time else event.epoch)
            struck_at[strike.node] = strike.time
        if event.clean is None:
            for node in event.isr - isr:  # it has caught up: what it holds now is a copy again
                back = any(struck_at.get(node, NEVER) <= time <= event.time for time in starts.get(node, ()))
                if back:
                    struck.pop(node, None)
        elif event.leader is not None:
            chosen_from = event.isr | {event.leader}
            if chosen_from <= struck.keys():
                first = min(struck[node] for node in chosen_from)
                found.append(Overspent(index=first[0], epoch=first[1], time=event.time))
        isr, epoch = event.isr, event.epoch
    return found


def excuses(
    folder: Folder, strikes: Sequence[Strike], events: Sequence[Ruling], starts: Mapping[str, Sequence[int]]
) -> tuple[Excuse, ...]:
    """What the trace itself shows to permit a loss. Without clean elections nobody promised what an earlier
    epoch wrote; what the leader so elected writes is not covered."""
    unclean = [
        Excuse(by=UNCLEAN, epoch=event.epoch - 1, time=event.time) for event in events if event.clean is False
    ]
    if folder.guarantee("flush", "os") == "every":
        return tuple(unclean)
    spent = overspent(strikes, events, starts)
    return (*unclean, *(Excuse(by=BUDGET, epoch=each.epoch, time=each.time) for each in spent))


def perhaps(folder: Folder, unread: Unread, *, struck: bool) -> Iterator[Excuse]:
    """The same for what the history does not show, or shows at a time that may be wrong."""
    if unread.unclean:
        yield Excuse(by=UNCLEAN_MAYBE, epoch=EVER, time=-EVER)
    if (unread.lost or (unread.untimely and struck)) and folder.guarantee("flush", "os") != "every":
        yield Excuse(by=BUDGET_MAYBE, epoch=EVER, time=-EVER)
