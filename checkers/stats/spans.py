"""When each fault of a run was in force, from the nemesis's lines. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.checkers.read.folder import is_int
from floodmark.harness.faults import LASTING, MENDING, OF_LINKS, UNSEEN, undoes


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpan:
    """One fault. Times: ns since the run began."""

    index: int
    kind: str
    detail: str | None = None
    nodes: tuple[str, ...] = ()
    failed: bool = False
    began_ns: int
    effect_ns: int
    lasts: bool = False  # until it is mended
    broken: frozenset[str | None] = field(default_factory=frozenset)  # nodes not mended yet; None: no node
    mended_ns: int | None = None

    @property
    def over_ns(self) -> int | None:
        """When clients may begin to recover; None: never."""
        return self.mended_ns if self.lasts else self.effect_ns


def fault_spans(lines: Iterable[str]) -> list[FaultSpan]:
    """From the nemesis's lines, in order."""
    spans: list[FaultSpan] = []
    for line in lines:
        row = json.loads(line)
        if row["f"] in MENDING:
            spans = [_after(span, row) for span in spans]
        elif row["f"] not in UNSEEN:
            spans.append(_of(row))
    return spans


def _of(row: Mapping[str, Any]) -> FaultSpan:
    f, time, fault = row["f"], row["time"], row["fault"]
    began, detail, nodes = fault.get("began"), fault.get("kind"), _nodes(fault)
    by_node = bool(nodes) and f not in OF_LINKS  # mending one of links ends it whatever nodes it names
    lasts = f in LASTING
    return FaultSpan(
        index=row["index"],
        kind=f,
        detail=detail if isinstance(detail, str) else None,
        nodes=nodes,
        failed=bool(fault.get("error")),
        began_ns=began if is_int(began) and 0 <= began <= time else time,
        effect_ns=time,
        lasts=lasts,
        broken=frozenset(nodes if by_node else [None]) if lasts else frozenset(),
    )


def _after(span: FaultSpan, row: Mapping[str, Any]) -> FaultSpan:
    """The fault after a mending act."""
    if not span.broken:
        return span
    nodes = _nodes(row["fault"])
    broken = frozenset(node for node in span.broken if not undoes(row["f"], nodes, span.kind, node))
    return span if broken == span.broken else replace(
        span, broken=broken, mended_ns=None if broken else max(row["time"], span.began_ns))


def _nodes(fault: Mapping[str, Any]) -> tuple[str, ...]:
    nodes = fault.get("nodes")
    return tuple(str(node) for node in nodes) if isinstance(nodes, list) else ()
