"""The twin's findings about the ISR in the trace: members by the controller's lines, registered brokers, and
whether the ISRs that leaders proposed and used were right (catalogue C15, C20).

The readings are in twin_trace.py.
"""

from collections.abc import Iterator
from itertools import pairwise

from twin_facts import World
from twin_folder import is_offset
from twin_logs import Found
from twin_trace_lines import Event, Span, Trace, in_order

TELLS = ("start", "become_leader", "become_follower")


def rulings_of(trace: Trace, key: int) -> list[Event]:
    """The controller's lines on a partition, in order: of one controller its own, of several by time."""
    words = [event for event in trace.controller("elect", "isr") if event["partition"] == key]
    return in_order(words) if len({event.node for event in words}) == 1 else words


def controllers_isr(trace: Trace, key: int) -> dict[str, list[Span]]:
    """When each node was in the controller's ISR of a partition."""
    spans: dict[str, list[Span]] = {}
    since: dict[str, Event] = {}
    for event in rulings_of(trace, key):
        for node in [node for node in since if node not in event["isr"]]:
            spans.setdefault(node, []).append((since.pop(node), event))
        for node in event["isr"]:
            since.setdefault(node, event)
    for node, start in since.items():
        spans.setdefault(node, []).append((start, None))
    return spans


def controllers_epoch(trace: Trace, key: int, epoch: int) -> list[Span]:
    """When the controller's leader epoch of a partition was this one."""
    events: list[Event | None] = [*rulings_of(trace, key), None]
    return [(one, other) for one, other in pairwise(events) if one is not None and one["epoch"] == epoch]


def registered(trace: Trace, node: str) -> list[list[Span]]:
    """The spans in which this node's process was registered and unfenced. Each begins with the controller's
    `unfence` and ends with its next line on the node, or with the process, at its next `start` or `crash`,
    whichever comes first: an incarnation is all of its spans together. (A replica's first line is no
    restart.)"""
    words = [event for event in trace.controller("register", "fence", "unfence") if event["broker"] == node]
    mine = in_order(event for event in trace.events if event.node == node)
    firsts = {event["partition"]: event for event in reversed(mine)}
    turns = [event for event in mine if event.name in ("start", "crash")
             and firsts[event["partition"]] is not event]
    lives: list[list[Span]] = []
    for place, begin in enumerate(words):
        if begin.name == "unfence":
            ends = words[place + 1:place + 2] + [turn for turn in turns if not trace.before(turn, begin)][:1]
            lives.append([(begin, end) for end in ends] or [(begin, None)])
    return lives


# -- unsafe-isr ---------------------------------------------------------------------------------------------

def unsafe_isr(world: World, trace: Trace) -> Iterator[Found]:
    """A replica that joins below the HW or the epoch's start, an ISR without its leader or not newer than the
    one before it, and a leader's ISR that lacks a member of the controller's."""
    for key in world.partitions:
        words = rulings_of(trace, key)
        for event in words:
            if event["leader"] is not None and event["leader"] not in event["isr"]:
                yield (key, "leader", event.node, event.seq), None
        for before, event in pairwise(words):
            if is_offset(event["partition_epoch"]) and is_offset(before["partition_epoch"]) and (
                    event["partition_epoch"] <= before["partition_epoch"]):
                yield (key, "order", event.node, event.seq), None
            if event.name == "isr" and any(taken_too_early(trace, key, event, member)
                                           for member in set(event["isr"]) - set(before["isr"])
                                           if member in world.partitions[key].replicas):
                yield (key, "taken in", event.node, event.seq), None
        lacking = {(event.node, event["epoch"], members) for event in trace.leading(key)
                   if event.name == "ack" and (members := lacking_members(trace, key, event))}
        for one in lacking:
            yield (key, "no superset", *one), None


def taken_too_early(trace: Trace, key: int, applied: Event, member: str) -> bool:
    """Whether all of the replica's lines around the controller's are below what its leader had then, in a
    registered incarnation. After the node's start its log is unknown until the replica has a line on its log,
    or on its role."""
    if not any(all(covers(trace, span, applied) for span in life) for life in registered(trace, member)):
        return False
    mine = in_order(trace.of(key, member))
    starts = [event for event in trace.events if event.node == member and event.name == "start"
              and event["partition"] is None]
    tells = [event for event in in_order([*starts, *(event for event in mine if event.name in TELLS)])
             if not trace.before(applied, event)]
    if not tells or tells[-1] in starts:
        return False
    before = [event for event in mine if trace.before(event, applied)]
    around = [event for event in mine if not trace.before(event, applied)
              and not trace.before(applied, event)]
    floor = max([max(event["hw"], (event["start"] or 0) if event.name == "become_leader" else 0)
                 for event in trace.leading(key)
                 if event["epoch"] == applied["epoch"] and trace.before(event, applied)], default=0)
    return bool(before) and all(event["leo"] < floor for event in [before[-1], *around])


def lacking_members(trace: Trace, key: int, event: Event) -> tuple[str, ...]:
    """The members of the controller's ISR, in this leader's epoch, that the leader's lacks."""
    return tuple(sorted(
        member for member, spans in controllers_isr(trace, key).items() if member not in event["isr"]
        and any(covers(trace, epoch, event) and covers(trace, span, event)
                for span in spans for epoch in controllers_epoch(trace, key, event["epoch"]))))


def covers(trace: Trace, span: Span, event: Event) -> bool:
    """Whether the event is certainly inside the span."""
    start, end = span
    return (start is None or trace.before(start, event)) and (end is None or trace.before(event, end))
