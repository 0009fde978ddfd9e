"""What happened in a run, as data: the events of its verdict, and what the files show about each of them.
Terminal texts, pages and files for CI servers are made from it.

  Reading      a run's events (Account), the worst first, and the summary of the worst one
  Evidence     one example of a finding with everything that the files show about it (evidence.py)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.harness.run_location import Place

if TYPE_CHECKING:
    from floodmark.harness.report.evidence import Evidence
    from floodmark.harness.report.run_files import RunFiles

Json = Mapping[str, Any]  # an object of run.json or verdict.json, or a line of a file
Line = dict[str, Any]  # of a file, as JSON
Part = tuple[str, str]  # a head and its sentence

HISTORY, TRACE = "history.jsonl", "trace.jsonl"
SHOWN_EXAMPLES = 3  # of one finding
MOST = 1 << 63


# -- fields of unknown types --------------------------------------------------------------------------------

def int_in(fields: Json, name: str) -> int | None:
    """An integer field of 64 bits; None if it is missing or no such integer."""
    value = fields.get(name)
    return value if type(value) is int and -MOST <= value < MOST else None


def text(fields: Json, name: str) -> str:
    """A text field; empty if it is missing or no text."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def items(fields: Json, name: str) -> list[Any]:
    value = fields.get(name)
    return list(value) if isinstance(value, list | tuple) else []


def mapping(fields: Json, name: str) -> Json:
    value = fields.get(name)
    return value if isinstance(value, Mapping) else {}


def partitions_in(about: Json) -> list[int]:
    """The partitions that run.json names, in order."""
    return sorted(int(key) for key in mapping(about, "partitions") if key.isdecimal() and len(key) < 19)


def mended_ns(about: Json) -> int:
    """When the run itself had mended what its schedule left in force; MOST: never, or nobody knows."""
    return max((time for time in items(about, "mended") if type(time) is int), default=MOST)


# -- what the files show ------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One line of trace.jsonl. Any field may be missing, or be of another type."""

    number: int  # from 1
    fields: Json

    def whole_number(self, name: str) -> int | None:
        return int_in(self.fields, name)

    def name_in(self, name: str) -> str:
        """A text field; `?` if it is missing or no text."""
        return text(self.fields, name) or "?"

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(map(str, items(self.fields, name)))

    @property
    def node(self) -> str:
        """The node that wrote the line, as text: `n1`, `the controller`."""
        node = self.name_in("node")
        return f"the {node}" if node == "controller" else node

    @property
    def event(self) -> str:
        return self.name_in("event")

    @property
    def place(self) -> str:
        """`trace.jsonl:60`."""
        return f"{TRACE}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A log's entry at an offset."""

    epoch: int | None
    value: int | None  # None: not written by this run
    crc: int | None = None  # of its batch
    flaw: str | None = None  # what is wrong with it
    place: str  # `logs/n1.jsonl:4`


@dataclass(frozen=True, slots=True, kw_only=True)
class AckEvent:
    """The line of the trace that says that a leader acked a send."""

    line: TraceLine
    appended_by: tuple[str, ...] | None  # the nodes that had appended the record by then; None: unknown
    index: int | None  # of the op; None: the ack of no known op


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What a replica's final log has at the finding's offset."""

    node: str
    leads: bool
    readable: bool  # it has a dump
    record: Record | None
    log_start: int | None = None  # as the replica's row of replicas.jsonl says
    leo: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strikes:
    """How many faults of each f struck, failed, were missed or were left."""

    struck: Mapping[str, int] = field(default_factory=Counter)
    failed: Mapping[str, int] = field(default_factory=Counter)  # half-way, also acts that mend
    missed: Mapping[str, int] = field(default_factory=Counter)  # did not strike because the moment never came
    left: Mapping[str, int] = field(default_factory=Counter)  # did not strike because the run ended before


# -- the events of a verdict --------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A group of findings that belongs to an event but is not its root."""

    found: Json
    clause: str
    places: str  # the lines of its examples in the files; empty if they name none

    @property
    def head(self) -> str:
        """Its name, and their number if there are several."""
        count = self.found["count"]
        return str(self.found["name"]) + (f" ({count})" if count != 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An event: its gravest group of findings, the paragraph about that group's worst example, and the other
    groups that belong to it.

    The parts' heads: what (happened), when (and by whom it was acked), held (which replicas had it and have
    it), guilty or event (the line of the trace that did it; guilty: it is to blame), copies (how the others
    were lost), words (of a broker that died; the next lines have no head), why (it is, or is not, allowed).
    """

    found: Json
    examples: Sequence["Evidence"] = ()  # the worst first
    parts: tuple[Part, ...] = ()
    followers: tuple[Follower, ...] = ()
    covered_above: frozenset[str] = frozenset()  # heads of the parts that the summary covers

    @property
    def name(self) -> str:
        return str(self.found["name"])

    @property
    def evidence(self) -> "Evidence | None":
        """Of the worst example."""
        return self.examples[0] if self.examples else None

    @property
    def shown(self) -> tuple[Part, ...]:
        """The parts that the summary does not cover."""
        return tuple(part for part in self.parts if part[0] not in self.covered_above)

    @property
    def others(self) -> list[str]:
        """The sentences of the other examples, which have no paragraph."""
        return [text_of(one) for one in examples_of(self.found)[1 if self.parts else 0:SHOWN_EXAMPLES]]

    @property
    def left_out(self) -> int:
        """How many findings of the group are neither in a paragraph nor among the others."""
        return int(self.found["count"]) - min(SHOWN_EXAMPLES, len(examples_of(self.found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a report needs of a run: its verdict, and what its files say; read once, used in every format."""

    folder: Place
    verdict: Json
    about: Json | None  # run.json; None: nothing was judged
    findings: Sequence[Json]  # of the verdict, the worst first
    accounts: Sequence[Account]  # the worst event first
    summary: Sequence[Part] = ()  # of the worst event, five lines at most
    strikes: Strikes = field(default_factory=Strikes)
    files: "RunFiles | None" = None  # for further questions; None: no files were read

    @property
    def evidence(self) -> "Evidence | None":
        """Of the worst event."""
        return self.accounts[0].evidence if self.accounts else None


def examples_of(found: Json) -> list[Json]:
    """The examples of a group of findings."""
    return [example for example in items(found, "examples") if isinstance(example, Mapping)]


def text_of(example: Json) -> str:
    """The sentence of an example of a finding."""
    return str(example.get("text") or dict(example))
