"""The twin's reader of the trace: its lines as events, each node's records over time, and what was committed.

Rules kept here: one event after the other, in the order of the node's own seq; the LEO in a line outranks the
LEO that was computed; events of two nodes are ordered only if their times are further apart than the clock
error.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from twin_facts import World
from twin_folder import clock_error, is_flag, is_int, is_list, is_offset, is_optional, is_text

Record = tuple[int, int | None]  # offset and the record's own epoch, None if no line has it

STATE = {"epoch": is_int, "leo": is_offset, "hw": is_int}
NAMES = {"isr": lambda value: is_list(is_text, value)}


def is_role(value: object) -> bool:
    return value in ("leader", "follower")


def is_count(value: object) -> bool:
    return is_offset(value) and value != 0


def is_given(value: object) -> bool:
    return value is not None


def is_boundaries(value: object) -> bool:
    return is_list(lambda pair: isinstance(pair, list) and len(pair) == 2 and is_list(is_int, pair), value)


def is_cause(value: object) -> bool:
    return value is None or value in ("hw", "epoch", "diverged", "recovery", "other")


def is_answer(value: object) -> bool:
    """What a leader answered: the largest epoch up to the one asked (-1: not told), and its end."""
    return isinstance(value, dict) and is_int(value.get("epoch")) and value["epoch"] >= -1 and (
        is_offset(value.get("end")))


# What a line of a replica must have besides its state to be evidence.
FIELDS: dict[str, dict[str, Callable[[object], bool]]] = {
    "append": {"role": is_role, "offset": is_offset, "count": is_count},
    "truncate": {"cause": is_cause},
    "hw": {"role": is_role}, "become_leader": NAMES, "become_follower": {},
    "fetch": {}, "ack": {"offset": is_offset, "acks": is_given} | NAMES,
    "isr_proposed": NAMES, "isr": NAMES, "crash": {}, "start": {},
}
OF_THE_CONTROLLER: dict[str, dict[str, Callable[[object], bool]]] = {
    "isr": {"epoch": is_int} | NAMES, "elect": {"epoch": is_int} | NAMES,
    "register": {"broker": is_text}, "fence": {"broker": is_text}, "unfence": {"broker": is_text},
}
# For any line, whatever its event: one that breaks this is no evidence.
OPTIONAL = {
    "epochs": is_boundaries, "start": is_int, "clean": is_flag, "partition": is_offset, "broker": is_text,
    "follower": is_text, "leader": is_text, "answer": is_answer, **NAMES,
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
        """Whether the node writes this as the partition's leader."""
        return self.name in LEADS or (self.name in ("append", "hw") and self["role"] == "leader")


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """A replica had this record from one of its events until another (None: to the end)."""

    node: str
    offset: int
    epoch: int | None
    since: Event
    until: Event | None = None

    def is_held_at(self, event: Event) -> bool:
        """Whether the replica has it at this event of the same node."""
        return self.since.seq <= event.seq and (self.until is None or event.seq < self.until.seq)

    def may_be(self, record: Record) -> bool:
        """Whether it is the same record, or may be if an epoch is unknown."""
        return self.offset == record[0] and (self.epoch == record[1] or None in (self.epoch, record[1]))


Span = tuple[Event | None, Event | None]  # from one event (None: always) until another (None: to the end)


@dataclass(slots=True, kw_only=True)
class Trace:
    """The trace of one run."""

    complete: bool  # no line is missing or unreadable, so a missing event proves something too
    clock_error_ns: int
    nodes: list[str]
    events: list[Event] = field(default_factory=list)
    held: dict[int, list[Holding]] = field(default_factory=dict)  # by partition
    # partition -> record -> leader -> the first event that commits it
    commits: dict[int, dict[Record, dict[str, Event]]] = field(default_factory=dict)

    def before(self, one: Event, other: Event) -> bool:
        """Certainly before: by the node's own order, or by times too far apart for the clocks to be wrong."""
        if one.node == other.node:
            return one.seq < other.seq
        return one.time + self.clock_error_ns < other.time

    def of(self, partition: int, node: str | None = None) -> Iterator[Event]:
        """The brokers' (or one broker's) lines on their replicas of a partition."""
        return (event for event in self.events if event.node in self.nodes
                and event["partition"] == partition and node in (None, event.node))

    def leading(self, partition: int) -> Iterator[Event]:
        return (event for event in self.of(partition) if event.leads)

    def controller(self, *names: str) -> list[Event]:
        """The controller's lines; the controller is any node that is not in run.json."""
        return [event for event in self.events if event.node not in self.nodes and event.name in names]

    def committed_before(self, record: Record, partition: int, event: Event, epoch: int | None = None
                         ) -> bool:
        """Whether the record was below a leader's high watermark (a leader of this epoch or an earlier one)
        when this happened."""
        return any(self.before(commit, event) and (epoch is None or commit["epoch"] <= epoch)
                   for commit in self.commits[partition].get(record, {}).values())


def instant(trace: Trace, spans: list[Span]) -> bool:
    """Whether some instant is certainly in all of these spans: yes, if each begins before any ends."""
    return all(start is None or end is None or trace.before(start, end)
               for start, _ in spans for _, end in spans)


def trace_of(world: World) -> Trace | None:
    """The trace, or None: then its checks are not made."""
    if world.folder.trace is None:
        return None
    trace = Trace(complete=world.folder.trace_complete, nodes=list(world.run["nodes"]),
                  clock_error_ns=clock_error(world.run))
    for line in world.folder.trace:
        trace.complete &= is_text(line.get("event"))
        # only a controller elects
        trace.complete &= line["node"] not in trace.nodes or line.get("event") != "elect"
        if not all(is_optional(kind, line.get(key)) for key, kind in OPTIONAL.items()):
            trace.complete = False
            continue
        needed = fields_of(line, trace.nodes)
        if needed is None or (line.get("partition") is not None and is_of_no_partition(line, world)):
            continue
        if not all(kind(line.get(key)) for key, kind in needed.items()):
            trace.complete = False
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
    """The fields that this line must have; None: it is of no interest to any check."""
    name = line.get("event")
    if line["node"] not in nodes:
        needed = OF_THE_CONTROLLER.get(str(name))
        return needed if needed is None or "broker" in needed else needed | {"partition": is_offset}
    needed = FIELDS.get(str(name))
    if needed is None:
        return None
    if name in ("crash", "start") and line.get("partition") is None:
        return {}  # of the node, and of no partition
    return needed | STATE | {"partition": is_offset}


def is_of_no_partition(line: dict[str, Any], world: World) -> bool:
    return is_offset(line["partition"]) and line["partition"] not in world.partitions


def in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.seq)


# -- the logs -----------------------------------------------------------------------------------------------

def lives(trace: Trace, partition: int, node: str) -> list[Event]:
    """A node's lines on its replica, and each start of the node after which the replica has no line at once:
    its records are unknown from then on."""
    events = in_order(event for event in trace.events if event.node == node and (
        event["partition"] == partition or (event.name == "start" and event["partition"] is None)))
    return [event for event, following in pairwise([*events, None]) if event is not None
            and (event["partition"] == partition or following is None or following.name != "start")]


def begins(events: Iterable[Event]) -> dict[int, int]:
    """Where each epoch began, according to its leader."""
    starts: dict[int, int] = {}
    for event in events:
        if event.name == "become_leader" and event["start"] is not None:
            starts[event["epoch"]] = min(event["start"], starts.get(event["epoch"], event["start"]))
    return starts


def holdings(events: list[Event], starts: dict[int, int]) -> list[Holding]:
    """Every record that one node's replica ever had, by replaying its lines. The log is a plain map from
    offset to the record there."""
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
            # else it starts again where the leader's log starts
            end = event["leo"] if event["leo"] <= end else 0
        for offset in [offset for offset in log if offset >= min(end, event["leo"])]:
            log.pop(offset).until = event
        for offset in range(end, event["leo"] if event.name != "truncate" else 0):
            put(event, offset, None)
        end, unknown = event["leo"], False
    return ever


def epoch_of(append: Event, offset: int, starts: dict[int, int]) -> int | None:
    """The epoch of one of the appended records; None: unknown (-1: its batch has none). If the line does not
    have it, a leader's records are of its own epoch, and so are a follower's from the start of that epoch
    on."""
    if append["epochs"] is None:
        epoch = int(append["epoch"])
        return epoch if append["role"] == "leader" or offset >= starts.get(epoch, offset + 1) else None
    said = [epoch for epoch, first in append["epochs"] if first <= offset]
    return said[-1] if said and said[-1] != -1 else None


def void(events: list[Event]) -> dict[int, int]:
    """By the time of a step that ended with its process: where the log really ends. The step's line has an
    append that the next start does not find, so records that it committed above that never left the process.
    """
    found: dict[int, int] = {}
    for place, start in enumerate(events):
        said = next((event for event in events[:place][::-1] if event.name != "start"), None)
        grew = next((event for event in events[:place][::-1] if event.name == "append" and event.leads), None)
        if start.name == "start" and said and grew and said.time == grew.time and (
                grew["offset"] <= start["leo"] < said["leo"]):
            found[said.time] = start["leo"]
    return found


def commits(trace: Trace, partition: int) -> dict[Record, dict[str, Event]]:
    """Each record that some leader had below its own high watermark, with the first such line of each
    leader."""
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
    known = {offset for offset, epoch in found if epoch is not None}
    return {record: firsts for record, firsts in found.items()
            if record[1] is not None or record[0] not in known}
