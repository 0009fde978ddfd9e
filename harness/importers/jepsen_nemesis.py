"""Turns what Jepsen's nemesis did into lines of the nemesis: each act once, when it had taken effect.

Rules
1. Jepsen tells an act twice, when it is begun and when it is done. The line is the second, `began` the time
   of the first. One that was never done is told where another begins or the history ends: it may have struck
   until then.
2. An act that means what one of floodmark's faults means takes its name; any other keeps its own.
3. An act not known to spare data (SPARES, or told so) is taken for one that loses them: what it might excuse
   is then no bug. Where it does not say whom it met, it met a node called `unnamed`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.importers.edn import Tagged
from floodmark.harness.importers.jepsen_file import shown, word

UNNAMED = "unnamed"
NAME_CHARS = 100
DEEPEST = 8  # brackets in which a node's name is looked for
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One telling of an act."""

    f: str
    time: int
    value: object


@dataclass(slots=True, kw_only=True)
class Nemesis:
    """What is begun and not done; whom the acts met, and which of them were taken for the worst."""

    json: bool  # a keyword is a string there, and a string alone no node's name
    spares: frozenset[str] = SPARES
    begun: Act | None = None
    nodes: set[str] = field(default_factory=set)
    feared: Counter[str] = field(default_factory=Counter)

    def take(self, act: Act) -> Iterator[tuple[str, dict[str, Any]]]:
        """f and fault of the act that this ends; or of one that is not ended, for another begins."""
        begun, self.begun = self.begun, None
        if begun is None or begun.f != act.f:
            yield from self.end(begun)
            self.begun = act
        else:
            yield self._line_of(begun, act)

    def end(self, begun: Act | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """What was begun and never told to be done."""
        left = begun or self.begun
        if left is not None:
            yield self._line_of(left, left)
        self.begun = None

    def _line_of(self, begun: Act, done: Act) -> tuple[str, dict[str, Any]]:
        grudge = grudge_of(done.value)
        told = (done.value, begun.value) if grudge is None else (tuple(grudge.items()),)
        named = (value for value in told if not (self.json and isinstance(value, str)))
        nodes = set().union(*map(nodes_of, named))
        f = "cut" if grudge and done.f == "start" else OURS.get(done.f, done.f)
        fault: dict[str, Any] = {"began": begun.time, "jepsen": f":{done.f} {shown(done.value)}"}
        if grudge:
            fault["grudge"] = grudge
        if done.f not in self.spares:
            self.feared[done.f] += 1
            fault["lost"] = True
            nodes = nodes or {UNNAMED}
        self.nodes |= nodes
        return f, {"nodes": sorted(nodes), **fault}


def nodes_of(value: object, depth: int = 0) -> set[str]:
    """The nodes that an act's value names: a node, several, or each with what became of it."""
    if isinstance(value, str):
        return {value} if _is_name(value) else set()
    if isinstance(value, dict) and depth <= DEEPEST:
        told = next((node for key, node in value.items() if word(key) == "node"), None)
        return {key for key in value if _is_name(key)} if told is None else nodes_of(told, depth + 1)
    parts = (value.form,) if isinstance(value, Tagged) else value
    if not isinstance(parts, tuple | list | frozenset) or depth > DEEPEST:
        return set()
    return set().union(*(nodes_of(part, depth + 1) for part in parts))


def grudge_of(value: object) -> dict[str, list[str]] | None:
    """Node -> nodes it does not hear, of `[:isolated {node #{node ...} ...}]`."""
    if not isinstance(value, tuple | list) or len(value) != 2 or word(value[0]) != "isolated":
        return None
    if not isinstance(value[1], dict):
        return None
    named = [(node, others) for node, others in value[1].items() if _is_name(node)]
    return {node: sorted(nodes_of(others)) for node, others in sorted(named)}


def _is_name(text: object) -> bool:
    """Whether a node could be called so (JSON's keywords and what people write are strings too)."""
    return isinstance(text, str) and 0 < len(text) <= NAME_CHARS and not set(text) & set(" /\\\0\t\n:[]{}#")
