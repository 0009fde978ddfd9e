"""What the controller said in the trace: who was to lead what, who was in the ISR, which broker was active.

All of it is little, and known to the driver before any check begins.

Rules
1. A broker is active from the line that unfences it to the next that fences or registers it: a registration
   is that of a new incarnation, and begins fenced. A trace whose controller never speaks of a broker says
   nothing of it, so that one counts as active.
2. Where the trace is not whole, what is there is still evidence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkers.folder import Folder
from checkers.traces import Traced

NEVER_ENDS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A partition as the controller wants it: an election, or (clean is None) any other change."""

    time: int
    partition: int
    leader: str | None
    epoch: int
    isr: frozenset[str]
    clean: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A broker that was registered and not fenced, from the first time to the second."""

    node: str
    since: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulings:
    """All that the controller told of one run. Without a trace: nothing, and not whole."""

    events: tuple[Ruling, ...] = ()  # in order
    active: tuple[Active, ...] = ()
    starts: Mapping[str, Sequence[int]] = field(default_factory=dict)  # times at which a node was started
    whole: bool = False

    def by_partition(self) -> dict[int, list[Ruling]]:
        """The events of each partition that has any, in order."""
        grouped: dict[int, list[Ruling]] = {}
        for event in self.events:
            grouped.setdefault(event.partition, []).append(event)
        return grouped


def rulings_of(folder: Folder, traced: Traced) -> Rulings:
    """From the survey of a trace."""
    if folder.trace is None:
        return Rulings()
    lines = sorted(
        (line for line in traced.told if line["node"] not in folder.nodes),
        key=lambda line: (line["time"], line["node"], line["seq"]),
    )
    return Rulings(
        events=tuple(ruling(line) for line in lines if line["event"] in ("isr", "elect")),
        active=tuple(each for node in folder.nodes for each in activity(node, lines)),
        starts={
            node: sorted(
                line["time"] for line in traced.told if line["event"] == "start" and line["node"] == node
            )
            for node in folder.nodes
        },
        whole=traced.flaw(folder.nodes) is None,
    )


def ruling(line: Mapping[str, Any]) -> Ruling:
    return Ruling(
        time=line["time"],
        partition=line["partition"],
        leader=line.get("leader"),
        epoch=line["epoch"],
        isr=frozenset(node for node in line["isr"] if node is not None),
        clean=line["clean"] if line["event"] == "elect" else None,
    )


def activity(node: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[Active]:
    """The node's times of being active."""
    mine = [line for line in lines if line.get("broker") == node]
    if not any(line["event"] in ("register", "unfence") for line in mine):
        fenced = min((line["time"] for line in mine), default=NEVER_ENDS)
        yield Active(node=node, since=-NEVER_ENDS, until=fenced)
        return
    since: int | None = None
    for line in mine:
        if line["event"] == "unfence":
            since = line["time"] if since is None else since
        elif since is not None:
            yield Active(node=node, since=since, until=line["time"])
            since = None
    if since is not None:
        yield Active(node=node, since=since, until=NEVER_ENDS)
