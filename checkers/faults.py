"""What the faults of a run permit: per partition, up to which send a loss is covered, and by what.

Theory. Every cause (an unclean election, copies struck beyond the budget) covers the records sent before it,
so each is one bound per partition: a lost record is covered if its send was invoked before the bound. What
the nemesis did is ordered by the index of its line, what only the trace tells by time.

Without a trace the budget counts: min.insync.replicas of the partition's nodes struck after the send is
sure, at least one is a maybe. With one it looks: a leader chosen while all of the ISR it was chosen from was
struck.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from checkers.folder import Folder, Partition, is_int

NEVER = -(1 << 62)  # no send was invoked before this
ALWAYS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A record of the partition is covered if its send was invoked before a bound (an index, or a time in
    ns)."""

    unclean_index: int = NEVER
    unclean_time: int = NEVER
    unclean_maybe: bool = False  # the setting is on and nobody saw whether it mattered
    budget_index: int = NEVER
    budget_maybe_index: int = NEVER
    struck: bool = False  # a fault that lost data, or an unclean election, met this partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """What the controller's trace says: an election, or (clean is None) a change of the ISR."""

    time: int
    partition: int
    leader: str | None
    isr: frozenset[str]
    clean: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the controller told. Not whole (none, gaps, bad lines, a node missing): what is there is still
    evidence."""

    events: tuple[Election, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that lost data on a node."""

    index: int
    began: int  # ns: from here on a leader may have been chosen without what was lost
    node: str


def bounds_of(folder: Folder, nemesis: Sequence[Mapping[str, Any]]) -> dict[int, Bounds]:
    """The bounds of every partition, from the nemesis's lines and the trace."""
    strikes = strikes_of(nemesis)
    trace = read_trace(folder.trace, folder.nodes, every_line=bool(strikes) or unclean_setting(folder))
    return {
        key: bounds_of_partition(folder, partition, strikes, unclean_index(nemesis, key), trace)
        for key, partition in folder.partitions.items()
    }


def bounds_of_partition(
    folder: Folder, partition: Partition, strikes: Sequence[Strike], asked_index: int, trace: Trace
) -> Bounds:
    here = [strike for strike in strikes if strike.node in partition.replicas]
    events = [event for event in trace.events if event.partition == partition.key]
    unclean_time = max((event.time for event in events if event.clean is False), default=NEVER)
    maybe = unclean_setting(folder) and not trace.whole
    index = maybe_index = NEVER
    if folder.guarantee("flush", "os") != "every":
        if trace.whole:
            index = looked_at(here, events)
        else:
            index, maybe_index = counted(here, min_insync(folder, partition))
    return Bounds(
        unclean_index=asked_index,
        unclean_time=unclean_time,
        unclean_maybe=maybe,
        budget_index=index,
        budget_maybe_index=maybe_index,
        struck=bool(here) or asked_index != NEVER or unclean_time != NEVER or maybe,
    )


def unclean_setting(folder: Folder) -> bool:
    return folder.guarantee("unclean_leader_election", False) is True


def strikes_of(nemesis: Iterable[Mapping[str, Any]]) -> list[Strike]:
    return [
        Strike(
            index=op["index"],
            began=op["fault"]["began"] if is_int(op["fault"].get("began")) else op["time"],
            node=node,
        )
        for op in nemesis
        if op["fault"].get("lost") is True
        for node in listed(op["fault"].get("nodes"))
        if isinstance(node, str)
    ]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def unclean_index(nemesis: Iterable[Mapping[str, Any]], key: int) -> int:
    """The index of the last unclean election that the nemesis asked for of this partition."""
    last = NEVER
    for op in nemesis:
        fault = op["fault"]
        if op["f"] == "elect" and fault.get("unclean") is True:
            partitions = fault.get(
                "partitions", [fault["partition"]] if is_int(fault.get("partition")) else None
            )
            if not isinstance(partitions, list) or key in partitions:
                last = max(last, op["index"])
    return last


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


def looked_at(strikes: Sequence[Strike], events: Sequence[Election]) -> int:
    """The index before which a record's copies were all struck among those a later leader was chosen from."""
    struck: dict[str, int] = {}  # node -> index of the strike, until it is taken into the ISR again
    isr: frozenset[str] = frozenset()
    bound, waiting = NEVER, sorted(strikes, key=lambda strike: (strike.began, strike.index))
    for event in sorted(events, key=lambda event: event.time):
        while waiting and waiting[0].began <= event.time:
            strike = waiting.pop(0)
            struck[strike.node] = strike.index
        if event.clean is None:
            for node in event.isr - isr:  # it has caught up: what it holds now is a copy again
                struck.pop(node, None)
        elif event.leader is not None:
            chosen_from = event.isr | {event.leader}
            if chosen_from <= struck.keys():
                bound = max(bound, min(struck[node] for node in chosen_from))
        isr = event.isr
    return bound


# -- the trace: only the controller's elections and ISR changes ---------------------------------------------


def read_trace(path: Path | None, nodes: Sequence[str], *, every_line: bool) -> Trace:
    """Elections and ISR changes. Unless every line is asked for, only lines that may tell of an election are
    parsed, and nobody may ask whether the trace is whole."""
    events: list[Election] = []
    next_seq: dict[str, int] = {}
    whole = path is not None and every_line
    for line in lines_of(path):
        if not every_line and b'"elect"' not in line:
            continue
        try:
            row = orjson.loads(line)
            node, seq, event = row["node"], row["seq"], row["event"]
            whole = whole and next_seq.get(node, seq) == seq
            next_seq[node] = seq + 1
            if event in ("elect", "isr") and node not in nodes:
                events.append(
                    Election(
                        time=row["time"],
                        partition=row["partition"],
                        leader=row.get("leader"),
                        isr=frozenset(row["isr"]),
                        clean=row["clean"] if event == "elect" else None,
                    )
                )
        except (ValueError, KeyError, TypeError):
            whole = False
    return Trace(events=tuple(events), whole=whole and set(nodes) <= next_seq.keys())


def lines_of(path: Path | None) -> Iterator[bytes]:
    if path is not None:
        with path.open("rb") as trace:
            yield from (line for line in trace if line.strip())
