"""The twin's eyes for the trace: its lines as events, what each node held when, and what was committed.

Rules kept here: one event after the other, in the order of the node's own seq; what a line says of its
replica's LEO outranks what was reckoned; an order between two nodes exists only where their times lie
further apart than the clock error.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from twin_facts import World
from twin_folder import clock_error, is_flag, is_int, is_list, is_offset, is_optional, is_text

Record = tuple[int, int | None]  # offset and the record's own epoch, None where no line tells it

STATE = {"epoch": is_int, "leo": is_offset, "hw": is_int}
NAMES = {"isr": lambda value: is_list(is_text, value)}


def is_role(value: object) -> bool:
    return value in ("leader", "follower")


def is_count(value: object) -> bool:
    return is_offset(value) and value != 0


def is_told(value: object) -> bool:
    return value is not None


def is_boundaries(value: object) -> bool:
    return is_list(lambda pair: isinstance(pair, list) and len(pair) == 2 and is_list(is_int, pair), value)


# What a line of a replica must say besides its state, so that it can be evidence at all.
FIELDS: dict[str, dict[str, Callable[[object], bool]]] = {
    "append": {"role": is_role, "offset": is_offset, "count": is_count}, "truncate": {},
    "hw": {"role": is_role}, "become_leader": NAMES, "become_follower": {},
    "fetch": {}, "ack": {"offset": is_offset, "acks": is_told} | NAMES,
    "isr_proposed": NAMES, "isr": NAMES, "crash": {}, "start": {},
}
OF_THE_CONTROLLER: dict[str, dict[str, Callable[[object], bool]]] = {
    "isr": {"epoch": is_int} | NAMES, "elect": {"epoch": is_int} | NAMES,
    "register": {"broker": is_text}, "fence": {"broker": is_text}, "unfence": {"broker": is_text},
}
# Of any line, whatever its event: one that breaks this is none.
OPTIONAL = {
    "epochs": is_boundaries, "start": is_int, "clean": is_flag, "partition": is_offset, "broker": is_text,
    "follower": is_text, "leader": is_text, **NAMES,
    **dict.fromkeys(("epoch", "leo", "hw", "offset", "count", "from", "to", "partition_epoch"), is_int),
}
LEADS = ("become_leader", "fetch", "ack", "isr_proposed", "isr")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event:
    """One line that can be evidence. Two events are the same only if they are one line."""

    node: str
    seq: int
    time: int
    name: str
    line: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.line.get(key)

    @property
    def leads(self) -> bool:
        """Does the node say this as the partition's leader?"""
        return self.name in LEADS or (self.name in ("append", "hw") and self["role"] == "leader")


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """A replica held this record from one event of its own until another (None: to the end)."""

    node: str
    offset: int
    epoch: int | None
    since: Event
    until: Event | None = None

    def is_held_at(self, event: Event) -> bool:
        """For events of the same node."""
        return self.since.seq <= event.seq and (self.until is None or event.seq < self.until.seq)

    def may_be(self, record: Record) -> bool:
        """The same record, or, where an epoch is not known, perhaps the same."""
        return self.offset == record[0] and (self.epoch == record[1] or None in (self.epoch, record[1]))


Span = tuple[Event | None, Event | None]  # from one event (None: always) until another (None: to the end)


@dataclass(slots=True, kw_only=True)
class Trace:
    """The trace of one run."""

    whole: bool  # no line is missing or unreadable: it may prove what it does not show
    clock_error_ns: int
    nodes: list[str]
    events: list[Event] = field(default_factory=list)
    held: dict[int, list[Holding]] = field(default_factory=dict)  # by partition
    commits: dict[int, dict[Record, dict[str, Event]]] = field(default_factory=dict)  # the first, by leader

    def before(self, one: Event, other: Event) -> bool:
        """Certainly before: by the node's own order, or by times too far apart for the clocks to be wrong."""
        if one.node == other.node:
            return one.seq < other.seq
        return one.time + self.clock_error_ns < other.time

    def of(self, partition: int, node: str | None = None) -> Iterator[Event]:
        """What the brokers (or one of them) tell of their replicas of a partition."""
        return (event for event in self.events if event.node in self.nodes
                and event["partition"] == partition and node in (None, event.node))

    def leading(self, partition: int) -> Iterator[Event]:
        return (event for event in self.of(partition) if event.leads)

    def controller(self, *names: str) -> list[Event]:
        """What the controller tells; it is whoever is no node of the run."""
        return [event for event in self.events if event.node not in self.nodes and event.name in names]

    def committed_before(self, record: Record, partition: int, event: Event, epoch: int | None = None
                         ) -> bool:
        """Was the record below a leader's high watermark (a leader of this epoch or an earlier one) when
        this happened?"""
        return any(self.before(commit, event) and (epoch is None or commit["epoch"] <= epoch)
                   for commit in self.commits[partition].get(record, {}).values())


def instant(trace: Trace, spans: list[Span]) -> bool:
    """Is there certainly an instant that lies in all of these spans? Yes, if each begins before any ends."""
    return all(start is None or end is None or trace.before(start, end)
               for start, _ in spans for _, end in spans)


def trace_of(world: World) -> Trace | None:
    """None where there is no trace: its checks are simply not made."""
    if world.folder.trace is None:
        return None
    trace = Trace(whole=world.folder.trace_whole, nodes=list(world.run["nodes"]),
                  clock_error_ns=clock_error(world.run))
    for line in world.folder.trace:
        trace.whole &= is_text(line.get("event"))
        trace.whole &= line["node"] not in trace.nodes or line.get("event") != "elect"  # a controller does
        if not all(is_optional(kind, line.get(key)) for key, kind in OPTIONAL.items()):
            trace.whole = False
            continue
        needed = fields_of(line, trace.nodes)
        if needed is None or (line.get("partition") is not None and is_of_no_partition(line, world)):
            continue
        if not all(kind(line.get(key)) for key, kind in needed.items()):
            trace.whole = False
            continue
        trace.events.append(Event(node=line["node"], seq=line["seq"], time=line["time"],
                                  name=line["event"], line=line))
    trace.events.sort(key=lambda event: (event.time, event.node, event.seq))
    for partition in world.partitions:
        starts = begins(trace.of(partition))
        trace.held[partition] = [holding for node in trace.nodes
                                 for holding in holdings(lives(trace, partition, node), starts)]
        trace.commits[partition] = commits(trace, partition)
    return trace


def fields_of(line: dict[str, Any], nodes: list[str]) -> dict[str, Callable[[object], bool]] | None:
    """What this line must say; None: nothing, for no check asks it."""
    name = line.get("event")
    if line["node"] not in nodes:
        needed = OF_THE_CONTROLLER.get(str(name))
        return needed if needed is None or "broker" in needed else needed | {"partition": is_offset}
    needed = FIELDS.get(str(name))
    if needed is None:
        return None
    if name in ("crash", "start") and line.get("partition") is None:
        return {}  # of the node as a whole
    return needed | STATE | {"partition": is_offset}


def is_of_no_partition(line: dict[str, Any], world: World) -> bool:
    return is_offset(line["partition"]) and line["partition"] not in world.partitions


def in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.seq)


# -- the logs -----------------------------------------------------------------------------------------------

def lives(trace: Trace, partition: int, node: str) -> list[Event]:
    """What a node tells of its replica, and each start of the node after which the replica does not tell at
    once what it found: nobody knows what it holds from then on."""
    events = in_order(event for event in trace.events if event.node == node and (
        event["partition"] == partition or (event.name == "start" and event["partition"] is None)))
    return [event for event, following in pairwise([*events, None]) if event is not None
            and (event["partition"] == partition or following is None or following.name != "start")]


def begins(events: Iterable[Event]) -> dict[int, int]:
    """Where each epoch began, by the word of who led it."""
    told: dict[int, int] = {}
    for event in events:
        if event.name == "become_leader" and event["start"] is not None:
            told[event["epoch"]] = min(event["start"], told.get(event["epoch"], event["start"]))
    return told


def holdings(events: list[Event], starts: dict[int, int]) -> list[Holding]:
    """Everything that one node's replica ever held, by replaying its lines. The log is a plain map from
    offset to what is held there."""
    log: dict[int, Holding] = {}
    ever: list[Holding] = []

    def put(event: Event, offset: int, epoch: int | None) -> None:
        if offset in log:
            log.pop(offset).until = event
        log[offset] = Holding(node=event.node, offset=offset, epoch=epoch, since=event)
        ever.append(log[offset])

    end, unknown = 0, False
    for event in events:
        if event["partition"] is None:
            for holding in log.values():
                holding.until = event
            log, end, unknown = {}, 0, True
            continue
        if event.name == "append":
            for offset in range(event["offset"] if unknown else 0):
                put(event, offset, None)
            for offset in range(event["offset"], event["offset"] + event["count"]):
                put(event, offset, epoch_of(event, offset, starts))
            end = max(end, event["offset"] + event["count"])
        if event.name == "truncate":
            end = event["leo"] if event["leo"] <= end else 0  # else it begins anew where the leader's begins
        for offset in [offset for offset in log if offset >= min(end, event["leo"])]:
            log.pop(offset).until = event
        for offset in range(end, event["leo"] if event.name != "truncate" else 0):
            put(event, offset, None)
        end, unknown = event["leo"], False
    return ever


def epoch_of(append: Event, offset: int, starts: dict[int, int]) -> int | None:
    """The epoch of one of the records appended. Where the line does not tell, a leader's are of its own
    epoch, and so are a follower's from where that epoch begins."""
    if append["epochs"] is None:
        epoch = int(append["epoch"])
        return epoch if append["role"] == "leader" or offset >= starts.get(epoch, offset + 1) else None
    said = [epoch for epoch, first in append["epochs"] if first <= offset]
    return said[-1] if said else None


def void(events: list[Event]) -> dict[int, int]:
    """By the time of a step that ended with its process: where the log ends after all. It told of an append
    of its own that the next start does not find, so whatever it committed above that never left it."""
    found: dict[int, int] = {}
    for place, start in enumerate(events):
        said = next((event for event in events[:place][::-1] if event.name != "start"), None)
        grew = next((event for event in events[:place][::-1] if event.name == "append" and event.leads), None)
        if start.name == "start" and said and grew and said.time == grew.time and (
                grew["offset"] <= start["leo"] < said["leo"]):
            found[said.time] = start["leo"]
    return found


def commits(trace: Trace, partition: int) -> dict[Record, dict[str, Event]]:
    """Each record that some leader held below its own high watermark, with the first line of each such leader
    that shows it."""
    found: dict[Record, dict[str, Event]] = {}
    for node in trace.nodes:
        mine = [holding for holding in trace.held[partition] if holding.node == node]
        events = in_order(trace.of(partition, node))
        never, lines = void(events), [event for event in events if event.leads]
        places = [event.seq for event in lines]
        for holding in mine:
            for event in lines[bisect_left(places, holding.since.seq):]:
                if min(event["hw"], never.get(event.time, event["hw"])) <= holding.offset:
                    continue
                if holding.until is not None and not trace.before(event, holding.until):
                    break
                found.setdefault((holding.offset, holding.epoch), {}).setdefault(node, event)
                break
    told = {offset for offset, epoch in found if epoch is not None}
    return {record: firsts for record, firsts in found.items()
            if record[1] is not None or record[0] not in told}
