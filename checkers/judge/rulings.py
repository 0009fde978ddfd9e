"""The controller's decisions in the trace: elections, ISRs, and which broker was active when.

They are few, and the driver knows all of them before any check begins.

Rules
1. A broker is active from the line that unfences it to the controller's next line about it, or to the start
   of its next process, which is not registered yet, whatever role it takes: a start that does not surely come
   before the unfencing ends it. If the controller in a trace never writes about a broker, it counts as active
   until it is started again.
2. A start of a partition that run.json does not name is skipped, like all lines of such partitions.
3. Where lines of the trace are missing, the others are still evidence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from typing import Any

from floodmark.checkers.judge.preconditions import NodeSeqs, TraceSummary
from floodmark.checkers.read.folder import Folder
from floodmark.checkers.read.observed import ELECTIONS

NEVER_ENDS = (1 << 63) - 1  # later than every time, even with any clock error


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A decision of the controller about a partition: an election, or (clean is None) any other change."""

    at: int  # in the trace
    time: int
    node: str  # the controller's name, and its line
    seq: int
    partition: int
    leader: str | None
    epoch: int
    isr: frozenset[str]
    clean: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A time in which a broker was registered and not fenced."""

    node: str
    since: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulings:
    """All decisions of the controller in one run. Without a trace: none, and not complete."""

    events: tuple[Ruling, ...] = ()  # in order
    active: tuple[Active, ...] = ()
    restarts: Mapping[str, Sequence[int]] = field(default_factory=dict)  # times of starts but a node's first
    starts: Mapping[str, Sequence[int]] = field(default_factory=dict)  # times at which a node was started
    complete: bool = False  # no line of the trace is missing
    elections: bool = False  # ... and it shows elections and ISRs
    cleanness: bool = False  # ... and whether elections were clean

    def by_partition(self) -> dict[int, list[Ruling]]:
        """The events of each partition that has any, in order."""
        grouped: dict[int, list[Ruling]] = {}
        for event in self.events:
            grouped.setdefault(event.partition, []).append(event)
        return grouped


def rulings_of(folder: Folder, traced: TraceSummary) -> Rulings:
    """Build them from the results of the first pass over the trace."""
    if folder.trace is None:
        return Rulings()
    lines = sorted(
        (line for line in traced.rulings if line["node"] not in folder.nodes),
        key=lambda line: (line["time"], line["node"], line["seq"]),
    )
    starts: dict[str, list[Mapping[str, Any]]] = {node: [] for node in folder.nodes}
    for line in sorted(traced.rulings, key=lambda line: line["seq"]):
        if line["event"] == "start" and line["node"] in starts:
            starts[line["node"]].append(line)

    def ours(line: Mapping[str, Any]) -> bool:
        return line.get("partition") is None or line["partition"] in folder.partitions

    complete = traced.flaw(folder.nodes, folder.observes) is None
    return Rulings(
        events=tuple(ruling(line) for line in lines if line["event"] in ("isr", "elect")),
        active=tuple(each for node in folder.nodes for each in activity(node, lines)),
        restarts={
            node: [line["time"] for line in begun[opening(begun, traced.nodes.get(node)) :] if ours(line)]
            for node, begun in starts.items()
        },
        starts={node: sorted(line["time"] for line in begun) for node, begun in starts.items()},
        complete=complete,
        elections=complete and folder.observes.shows(*ELECTIONS),
        cleanness=complete and folder.observes.shows("elect"),
    )


def ruling(line: Mapping[str, Any]) -> Ruling:
    return Ruling(
        at=line["at"],
        time=line["time"],
        node=line["node"],
        seq=line["seq"],
        partition=line["partition"],
        leader=line.get("leader"),
        epoch=line["epoch"],
        isr=frozenset(node for node in line["isr"] if node is not None),
        clean=line["clean"] if line["event"] == "elect" else None,
    )


def activity(node: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[Active]:
    """The times in which the node was active."""
    mine = [line for line in lines if line.get("broker") == node]
    if not any(line["event"] in ("register", "unfence") for line in mine):
        fenced = min((line["time"] for line in mine), default=NEVER_ENDS)
        yield Active(node=node, since=-NEVER_ENDS, until=fenced)
        return
    for line, after in zip_longest(mine, mine[1:]):
        if line["event"] == "unfence":
            yield Active(node=node, since=line["time"], until=after["time"] if after else NEVER_ENDS)


def opening(begun: Sequence[Mapping[str, Any]], lines: NodeSeqs | None) -> int:
    """How many of a node's starts, by seq, belong to its first process: those at the beginning of its lines,
    at most one for the node and one for each partition."""
    first, places = lines.first if lines else 0, [line.get("partition") for line in begun]
    together = (
        line["seq"] == first + number and places.index(places[number]) == number
        for number, line in enumerate(begun)
    )
    return sum(takewhile(bool, together))
