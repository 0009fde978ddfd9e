"""Converts the acts of Jepsen's nemesis to lines of the nemesis: one line for each act, at its end.

Rules
1. Jepsen records an act twice, at its begin and its end. The line has the time of the end, `began` that of
   the begin. An act without an end gets its line when the next one begins, or at the end of the history: it
   may have struck until then.
2. An act with the meaning of one of floodmark's faults gets its name; any other keeps its own.
3. An act that is not known to spare data (SPARES, or --spares) counts as one that loses data: findings that
   it might excuse are then no bugs. If it names no node, its node is called `unnamed`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from floodmark.harness.importers.edn import Tagged
from floodmark.harness.importers.jepsen_file import name_of, shown

UNNAMED = "unnamed"
NAME_CHARS = 100
DEEPEST = 8  # nesting in which nodes' names are searched
OURS: Mapping[str, str] = {
    "kill": "kill", "start": "start", "pause": "pause", "resume": "resume",
    "start-partition": "cut", "stop-partition": "heal", "start-packet": "packet", "stop-packet": "heal",
    "bump-clock": "clock", "strobe-clock": "clock", "reset-clock": "reset_clock",
    "bump": "clock", "strobe": "clock", "reset": "reset_clock",
}
SPARES = frozenset({
    *OURS, "stop", "check-offsets", "check-clock-offsets", "add-node", "join-node", "remove-node",
    "leave-node", "decommission", "recommission", "rebalance", "slow", "fast", "flaky",
})  # fmt: skip


class Act(NamedTuple):
    """One of the two records of an act."""

    f: str
    time: int
    value: object


@dataclass(slots=True, kw_only=True)
class Nemesis:
    """The open act, the nodes and the names of all acts, and those that count as losing data."""

    json: bool  # JSON has strings for keywords: a single string is no node's name then
    spares: frozenset[str] = SPARES
    begun: Act | None = None
    nodes: set[str] = field(default_factory=set)
    acts: set[str] = field(default_factory=set)
    counted_as_losing: Counter[str] = field(default_factory=Counter)

    def add(self, act: Act | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Adds a record (None: the history has ended); yields f and fault of the act that it ends."""
        begun, self.begun = self.begun, act
        if begun is not None and act is not None and begun.f == act.f:
            self.begun = None
            yield self._line_of(begun, act)
        elif begun is not None:
            yield self._line_of(begun, begun)

    def _line_of(self, begun: Act, done: Act) -> tuple[str, dict[str, Any]]:
        grudge = grudge_of(done.value)
        values = (done.value, begun.value) if grudge is None else (tuple(grudge.items()),)
        named = (value for value in values if not (self.json and isinstance(value, str)))
        nodes = set().union(*map(nodes_of, named))
        f = "cut" if grudge and done.f == "start" else OURS.get(done.f, done.f)
        fault: dict[str, Any] = {"began": begun.time, "jepsen": f":{done.f} {shown(done.value)}"}
        if grudge:
            fault["grudge"] = grudge
        if done.f not in self.spares:
            self.counted_as_losing[done.f] += 1
            fault["lost"] = True
            nodes = nodes or {UNNAMED}
        self.nodes |= nodes
        self.acts.add(done.f)
        return f, {"nodes": sorted(nodes), **fault}


def nodes_of(value: object, depth: int = 0) -> set[str]:
    """The nodes that an act's value names: one, several, or a map with the result for each."""
    if isinstance(value, str):
        return {value} if _is_name(value) else set()
    if isinstance(value, dict) and depth <= DEEPEST:
        values = next((node for key, node in value.items() if name_of(key) == "node"), None)
        return {key for key in value if _is_name(key)} if values is None else nodes_of(values, depth + 1)
    parts = (value.form,) if isinstance(value, Tagged) else value
    if not isinstance(parts, tuple | list | frozenset) or depth > DEEPEST:
        return set()
    return set().union(*(nodes_of(part, depth + 1) for part in parts))


def grudge_of(value: object) -> dict[str, list[str]] | None:
    """Node -> the nodes it receives nothing from, from `[:isolated {node #{node ...} ...}]`."""
    if not isinstance(value, tuple | list) or len(value) != 2 or name_of(value[0]) != "isolated":
        return None
    if not isinstance(value[1], dict):
        return None
    named = [(node, others) for node, others in value[1].items() if _is_name(node)]
    return {node: sorted(nodes_of(others)) for node, others in sorted(named)}


def _is_name(text: object) -> bool:
    """Whether the text could be a node's name (in JSON, keywords and people's texts are strings too)."""
    return isinstance(text, str) and 0 < len(text) <= NAME_CHARS and not set(text) & set(" /\\\0\t\n:[]{}#")
