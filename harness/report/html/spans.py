"""Turns the faults of a run into spans of time: when each began, when it was mended, and on which node.
Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from floodmark.harness.faults import FAULTS, LASTING, MENDING, OF_LINKS, UNSEEN, undoes
from floodmark.harness.report.model import Line, int_in, items, text

DOWN = frozenset(f for f, fault in FAULTS.items() if fault.takes_down)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One fault on one node, or on no particular node (a cut of links, an election)."""

    f: str
    node: str | None
    began_ns: int
    until_ns: int | None  # None: it does not last
    mended: bool = False
    index: int = -1  # of the nemesis's line
    kind: str = ""  # of a cut: majorities-ring, ...
    nodes: tuple[str, ...] = ()  # of a cut: the nodes whose links it drops

    @property
    def lasts(self) -> bool:
        """Whether it is still in force."""
        return self.until_ns is not None and not self.mended

    @property
    def label(self) -> str:
        """`cut, majorities-ring`."""
        return self.f.replace("_", " ") + (f", {self.kind}" if self.kind else "")


def began_of(line: Line) -> int:
    """When the act began; the time of its line if that is not recorded."""
    fault, time = line.get("fault"), int_in(line, "time") or 0
    began = int_in(fault, "began") if isinstance(fault, dict) else None
    return began if began is not None and 0 <= began <= time else time


def spans_of(nemesis: Sequence[Line], last_ns: int) -> list[Span]:
    """The spans of the nemesis's lines, in order; a fault that nothing mended lasts to the end."""
    spans: list[Span] = []
    for line in nemesis:
        f, fault = text(line, "f"), line.get("fault")
        fields = fault if isinstance(fault, dict) else {}
        nodes = [str(node) for node in items(fields, "nodes")]
        if f in MENDING:
            time_ns = int_in(line, "time") or 0
            spans = [replace(one, until_ns=max(time_ns, one.began_ns), mended=True)
                     if one.lasts and undoes(f, nodes, one.f, one.node) else one for one in spans]
        elif f not in UNSEEN:
            of_links = f in OF_LINKS or not nodes
            spans += (
                Span(f=f, node=node, began_ns=began_of(line), until_ns=last_ns if f in LASTING else None,
                     index=int_in(line, "index") or 0, kind=text(fields, "kind"),
                     nodes=tuple(nodes) if of_links else ())
                for node in ([None] if of_links else nodes))
    return spans
