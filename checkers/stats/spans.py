"""When each fault of a run was in force, from the nemesis's lines. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.faults import LASTING, MENDING, OF_LINKS, UNSEEN, undoes

Act = tuple[int, int, str, Mapping[str, Any]]  # index, time, f and fault of a line


@dataclass(slots=True, kw_only=True)
class FaultSpan:
    """One fault. Times: ns since the run began."""

    index: int
    kind: str
    detail: str | None
    nodes: tuple[str, ...]
    failed: bool
    began_ns: int
    effect_ns: int
    lasts: bool  # until it is mended
    where: tuple[str | None, ...]  # what is mended apart: its nodes; None: no particular node
    mended: dict[str | None, int] = field(default_factory=dict)  # when each of these was

    @property
    def mended_ns(self) -> int | None:
        """When all of it was mended; None: never."""
        return max(self.mended.values()) if self.lasts and len(self.mended) == len({*self.where}) else None

    @property
    def over_ns(self) -> int | None:
        """When clients may begin to recover; None: never."""
        return self.mended_ns if self.lasts else self.effect_ns


def fault_spans(acts: Iterable[Act]) -> list[FaultSpan]:
    """From the nemesis's lines, in order."""
    spans: list[FaultSpan] = []
    for index, time, f, fault in acts:
        began, detail, named = fault.get("began"), fault.get("kind"), fault.get("nodes")
        nodes = tuple(str(node) for node in named) if isinstance(named, list | tuple) else ()
        if f in MENDING:
            for span in spans:
                span.mended |= {node: max(time, span.began_ns) for node in span.where
                                if span.lasts and node not in span.mended
                                and undoes(f, nodes, span.kind, node)}
        elif f not in UNSEEN:  # mending one of links ends it whatever nodes it names
            spans.append(FaultSpan(
                index=index, kind=f, detail=detail if isinstance(detail, str) else None, nodes=nodes,
                failed=bool(fault.get("error")), effect_ns=time, lasts=f in LASTING,
                began_ns=began if type(began) is int and 0 <= began <= time else time,
                where=nodes if nodes and f not in OF_LINKS else (None,)))
    return spans
