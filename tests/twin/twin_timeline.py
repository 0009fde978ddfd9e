"""The twin's timeline of a traced run: each replica's records over time, what was committed, who was in the
ISR and registered when.

Rules kept here: one event after the other, in the order of the node's own seq; the LEO in a line outranks the
LEO that was computed: the other records are gone, or of unknown epoch (a leader's are of its own); events of
two nodes are ordered only if their times are further apart than the clock error.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise

from twin_folder import Row, World
from twin_permits import rulings

Record = tuple[int, int | None]  # offset and the record's own epoch, None if no line has it
Span = tuple[Row | None, Row | None]  # from one event (None: always) until another (None: to the end)
LEADS = ("become_leader", "fetch", "ack", "isr_proposed", "isr")
ROLES = ("become_leader", "become_follower")
TELLS = ("start", *ROLES)


class Trace:
    """The trace of one run. A holding: a replica (`node`) had the record (`offset`, `epoch`) from the event
    `since` to the event `until` (None: to the end)."""

    def __init__(self, world: World) -> None:
        self.world, self.nodes = world, [*world.run.nodes]
        self.events = world.trace or []
        self.held: dict[int, list[Row]] = {}  # the holdings, by partition
        # partition -> record -> leader -> the first event that commits it
        self.commits: dict[int, dict[Record, dict[str, Row]]] = {}
        for key in world.partitions:
            begins: dict[int, int] = {}  # where each epoch began, according to its leader
            for event in self.of(key):
                if event.event == "become_leader" and event.start is not None:
                    begins[event.epoch] = min(event.start, begins.get(event.epoch, event.start))
            self.held[key] = [held for node in self.nodes for held in holdings(self.lives(key, node), begins)]
            self.commits[key] = self.committed(key)

    def before(self, one: Row, other: Row) -> bool:
        """Certainly before: by the node's own order, or by times too far apart for the clocks to be wrong."""
        if one.node == other.node:
            return bool(one.seq < other.seq)
        return bool(one.time + self.world.clock_error < other.time)

    def of(self, key: int, node: str | None = None) -> list[Row]:
        """The brokers' lines on their replicas of a partition; one broker's in its own order."""
        mine = [event for event in self.events if event.partition == key and event.node in self.nodes]
        return mine if node is None else in_order(event for event in mine if event.node == node)

    def leading(self, key: int) -> list[Row]:
        return [event for event in self.of(key) if leads(event)]

    def starts(self, node: str) -> list[Row]:
        """Those of the node, of no single partition."""
        return in_order(event for event in self.events if event.node == node and event.event == "start"
                        and event.partition is None)

    def lives(self, key: int, node: str) -> list[Row]:
        """A node's lines on its replica, and each start of the node after which the replica has no line at
        once: its records are unknown from then on."""
        events = in_order([*self.of(key, node), *self.starts(node)])
        return [event for event, following in pairwise([*events, None]) if event is not None
                and (event.partition == key or following is None or following.event != "start")]

    def committed(self, key: int) -> dict[Record, dict[str, Row]]:
        """Each record that a leader had below its own high watermark, with its first such line."""
        found: dict[Record, dict[str, Row]] = {}
        for node in self.nodes:
            events = self.of(key, node)
            never, lines = void(events), [event for event in events if leads(event)]
            places = [event.seq for event in lines]
            for held in (held for held in self.held[key] if held.node == node):
                for event in lines[bisect_left(places, held.since.seq):]:
                    if min(event.hw, never.get(event.time, event.hw)) <= held.offset:
                        continue
                    if held.until is None or self.before(event, held.until):
                        found.setdefault((held.offset, held.epoch), {}).setdefault(node, event)
                    break
        known = {offset for offset, epoch in found if epoch is not None}
        return {record: firsts for record, firsts in found.items()
                if record[1] is not None or record[0] not in known}

    def committed_before(self, record: Record, key: int, event: Row, epoch: int | None = None) -> bool:
        """Whether the record was below a leader's high watermark (a leader of this epoch or an earlier one)
        when this happened."""
        return any(self.before(commit, event) and (epoch is None or commit.epoch <= epoch)
                   for commit in self.commits[key].get(record, {}).values())

    def covers(self, span: Span, event: Row) -> bool:
        """Whether the event is certainly inside the span."""
        start, end = span
        return (start is None or self.before(start, event)) and (end is None or self.before(event, end))

    def meet(self, spans: list[Span]) -> bool:
        """Whether some instant is certainly in all of these spans: yes, if each begins before any ends."""
        return all(start is None or end is None or self.before(start, end)
                   for start, _ in spans for _, end in spans)

    # -- the controller's word

    def words(self, key: int) -> list[Row]:
        """The controller's lines on a partition, in order: of one controller its own, of several by time."""
        found = [event for event in rulings(self.world, "elect", "isr") if event.partition == key]
        return in_order(found) if len({event.node for event in found}) == 1 else found

    def in_isr(self, key: int, node: str) -> list[Span]:
        """When the node was in the controller's ISR of a partition."""
        spans: list[Span] = []
        since = None
        for event in self.words(key):
            if node in event.isr:
                since = since or event
            elif since is not None:
                spans.append((since, event))
                since = None
        return spans if since is None else [*spans, (since, None)]

    def registered(self, node: str) -> list[list[Span]]:
        """The spans in which this node's process was registered and unfenced. Each begins with the
        controller's `unfence` and ends with its next line on the node, or with the process, at its next
        `start` or `crash`, whichever comes first: an incarnation is all of its spans together. (The starts,
        one of the node and one of each replica, with which its lines begin are no restarts.)"""
        words = [event for event in rulings(self.world, "register", "fence", "unfence")
                 if event.broker == node]
        mine = in_order(event for event in self.events if event.node == node)
        begun = next((at for at, event in enumerate(mine) if event.event != "start" or event.partition in
                      {one.partition for one in mine[:at]} or event.seq != mine[0].seq + at), len(mine))
        turns = [event for event in mine[begun:] if event.event in ("start", "crash")]
        lives: list[list[Span]] = []
        for begin, following in pairwise([*words, None]):
            if begin is not None and begin.event == "unfence":
                ended = [following, *[turn for turn in turns if not self.before(turn, begin)][:1]]
                lives.append([(begin, end) for end in ended if end is not None] or [(begin, None)])
        return lives

    # -- what a replica lacked

    def lacking(self, key: int, node: str, record: Record) -> list[Span]:
        """The spans in which this replica (known from its first line on) had nothing that may be the record.
        After the node's start its log is unknown until the replica has a line on its log, or on its role;
        unless that is its first line and has an empty log: then the log was empty all the time."""
        mine, starts = self.of(key, node), self.starts(node)
        empty = [start for start in starts if was_empty(start, [*starts, *mine])]
        had = [(held.since, held.until) for held in self.held[key]
               if held.node == node and may_be(held, record)]
        for start in (start for start in starts if start not in empty):
            tells = [event for event in in_order([*mine, *empty])
                     if event.seq > start.seq and (event.event in TELLS or event in empty)]
            had.append((start, tells[0] if tells else None))
        spans: list[Span] = []
        since = in_order([*mine[:1], *empty])[:1]
        for begin, end in sorted(had, key=lambda span: span[0].seq):
            spans += [(one, begin) for one in since if one.seq < begin.seq]
            since = [one if end is not None and end.seq < one.seq else end for one in since]
            since = [one for one in since if one is not None]
        return spans + [(one, None) for one in since]


def leads(event: Row) -> bool:
    """Whether the node writes this as the partition's leader."""
    return event.event in LEADS or (event.event in ("append", "hw") and event.role == "leader")


def in_order(events: Iterable[Row]) -> list[Row]:
    return sorted(events, key=lambda event: event.seq)


def may_be(held: Row, record: Record) -> bool:
    """Whether it is the same record, or may be if an epoch is unknown."""
    return held.offset == record[0] and (held.epoch == record[1] or None in (held.epoch, record[1]))


def holdings(events: list[Row], begins: dict[int, int]) -> list[Row]:
    """Every record that one node's replica ever had, by replaying its lines. The log is a plain map from
    offset to the record there."""
    log: dict[int, Row] = {}
    ever: list[Row] = []

    def put(event: Row, offset: int, epoch: int | None) -> None:
        if offset in log:
            log.pop(offset)["until"] = event
        log[offset] = Row(node=event.node, offset=offset, epoch=epoch, since=event)
        ever.append(log[offset])

    end, unknown = 0, False
    for event in events:
        if event.partition is None:
            for held in log.values():
                held["until"] = event
            log, end, unknown = {}, 0, True
            continue
        if event.event == "append":
            for offset in range(0 if unknown else end, min(event.offset, event.leo)):
                put(event, offset, None)
            for offset in range(event.offset, event.offset + event.count):
                put(event, offset, epoch_of(event, offset, begins))
            end = max(end, event.offset + event.count)
        again = event.event == "truncate" and event.to > event["from"]  # where the leader's log starts
        end = 0 if again else end
        for offset in [offset for offset in log if offset >= min(end, event.leo)]:
            log.pop(offset)["until"] = event
        for offset in range(end, 0 if again else event.leo):
            its_own = leads(event) and offset >= begins.get(event.epoch, offset + 1)
            put(event, offset, event.epoch if its_own else None)
        if event.event == "start" and event.epochs is not None:
            for offset in [offset for offset, held in log.items() if held.epoch is None]:
                put(event, offset, epoch_of(event, offset, begins))
        end, unknown = event.leo, False
    return ever


def epoch_of(append: Row, offset: int, begins: dict[int, int]) -> int | None:
    """The epoch of one of the appended records; None: unknown (-1: its batch has none). If the line does not
    have it, a leader's records are of its own epoch, and so are a follower's from the start of that epoch
    on."""
    if append.epochs is None:
        surely = append.role == "leader" or offset >= begins.get(append.epoch, offset + 1)
        return int(append.epoch) if surely else None
    said = [epoch for epoch, first in append.epochs if first <= offset]
    return said[-1] if said and said[-1] != -1 else None


def void(events: list[Row]) -> dict[int, int]:
    """By the time of a step that ended with its process: where the log really ends. The step's line has an
    append that the next start does not find, so records that it committed above that never left the process.
    """
    found: dict[int, int] = {}
    for place, start in enumerate(events):
        before = events[:place][::-1]
        said = next((event for event in before if event.event != "start"), None)
        grew = next((event for event in before if event.event == "append" and leads(event)), None)
        if start.event == "start" and said and grew and said.time == grew.time and (
                grew.offset <= start.leo < said.leo):
            found[said.time] = start.leo
    return found


def was_empty(start: Row, lines: list[Row]) -> bool:
    """Is the next of the starts and of the replica's lines its role, with an empty log? (A follower's HW is
    not looked at, nor is a crash: no log changes with them.)"""
    after = in_order(event for event in lines if event.seq > start.seq and event.event != "crash"
                     and (event.event != "hw" or leads(event)))[:1]
    return any(event.event in ROLES and event.leo == 0 for event in after)
