"""The trace as a frame, one row a line that some check looks at, and what the driver must know of it first.

Rules
1. A line is good if it has what its event needs; a bad one is counted, and gives nothing else.
2. A node's lines are in the order of `seq`. Lines of two nodes are in order only where their `tick`s are two
   apart: then their times differ by more than the clocks may.
3. A trace with a bad line, a gap in a node's seq, or a node of which it has no line is not whole: then a line
   that would excuse what is seen may be missing. A first seq of 1 is no gap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from checkers.findings import kept
from checkers.frames import are_texts, is_text, object_of
from checkers.observed import Observes
from checkers.sources import Source, scan

_LINE = (
    "time bigint, node string, seq bigint, event string, partition bigint, epoch bigint, leo bigint, "
    "hw bigint, role string, offset bigint, count bigint, epochs array<array<bigint>>, from bigint, "
    "to bigint, why string, "
    "isr array<string>, start bigint, leader string, partition_epoch bigint, acks string, broker string, "
    "clean boolean"
)
_COLUMNS = (
    "time", "node", "seq", "event", "partition", "epoch", "leo", "hw", "role", "offset", "count", "epochs",
    "why", "isr", "start", "leader", "partition_epoch", "acks", "broker", "clean",
)  # fmt: skip
# What the checks stand on; every other event is only counted.
_LOOKED_AT = (
    "append", "truncate", "hw", "become_leader", "become_follower", "ack", "fetch", "isr_proposed", "isr",
    "elect", "register", "fence", "unfence", "start",
)  # fmt: skip
_NO_NAME = r"^(-?[0-9]|true$|false$|NaN$|-?Inf|[\[{])"  # perhaps: these are told apart by looking at the line
_STATE = "partition >= 0 and epoch is not null and leo >= 0 and hw is not null"
_NEEDED = {
    "append": f"{_STATE} and role in ('leader', 'follower') and offset >= 0 and count > 0",
    "truncate": f"{_STATE} and cut_from is not null and cut_to is not null",
    "hw": f"{_STATE} and role in ('leader', 'follower')",
    "become_leader": f"{_STATE} and isr is not null and start is not null",
    "become_follower": _STATE,
    "ack": f"{_STATE} and offset >= 0 and acks is not null and isr is not null",
    "fetch": _STATE,
    "isr_proposed": f"{_STATE} and isr is not null",
    "isr": "partition >= 0 and epoch is not null and isr is not null and (leo is null) = (hw is null)",
    "elect": "partition >= 0 and epoch is not null and isr is not null and clean is not null",
    "register": "broker is not null",
    "fence": "broker is not null",
    "unfence": "broker is not null",
    "start": f"partition is null or {_STATE}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The lines of one node, as numbers: enough to see whether its seq has a gap."""

    lines: int
    seqs: int  # different ones
    first: int
    last: int

    @property
    def whole(self) -> bool:
        """Every seq from the first to the last, once each."""
        return self.first in (0, 1) and self.lines == self.seqs == self.last - self.first + 1


@dataclass(slots=True, kw_only=True)
class Traced:
    """What was seen of one run's trace."""

    bad: int = 0
    nodes: dict[str, Lines] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)  # the controller's lines, all starts; unordered

    @property
    def rulings(self) -> Sequence[Mapping[str, Any]]:
        """As judging.preconditions.TraceSummary has them."""
        return self.told

    def flaw(self, nodes: Sequence[str], observes: Observes) -> str | None:
        """Why the trace is not whole, for what it is to tell; None if it is."""
        of_brokers = (line for line in self.told if line["node"] in nodes)
        ruled_by_brokers = sum(line["event"] in ("elect", "isr") for line in of_brokers)
        if bad := self.bad + ruled_by_brokers:
            return f"{bad} line{'s are' if bad > 1 else ' is'} not as the table of events says"
        broken = sorted(node for node, lines in self.nodes.items() if not lines.whole)
        if broken:
            return f"seq has a gap in the lines of {', '.join(broken)}"
        silent = sorted(set(nodes) - self.nodes.keys())
        if silent and observes.names_brokers:
            return f"it has no line of {', '.join(silent)}"
        ruled = bool(self.nodes.keys() - set(nodes)) or not observes.names_controllers
        return None if ruled else "it has no line of a controller"


def traces(spark: SparkSession, source: Source, *, small: bool) -> DataFrame | None:
    """The lines of all traces; None if there is none."""
    if not source:
        return None
    lines = scan(spark, source, "text", "value string", ["run"])
    parsed = lines.withColumn("j", object_of(_LINE))
    rows = parsed.select(
        "run",
        *(F.col(f"j.{name}") for name in _COLUMNS),
        *(F.col(f"j.{name}").alias(f"cut_{name}") for name in ("from", "to")),
        (F.col("j").isNotNull() & says_texts()).alias("whole"),
    )
    good = F.coalesce(F.col("whole") & F.expr(_has_what_it_needs()), F.lit(False))
    told = rows.select("*", (~good).alias("bad")).drop("whole")
    return kept(told.coalesce(1) if small else told)


def says_texts() -> Column:
    """Names are texts, and a list of them is of texts: from_json would take anything. Only what may be
    something else is looked at in the line itself."""
    line = F.col("value")
    told = F.col("j.event").isin(*_NEEDED) | is_text(line, "event")
    for name in ("node", "broker", "leader"):
        no_name = F.coalesce(F.col(f"j.{name}").rlike(_NO_NAME), F.lit(False))
        told &= ~no_name | is_text(line, name)
    odd = F.exists("j.isr", lambda member: member.isNull() | member.rlike(_NO_NAME))
    return told & (~F.coalesce(odd, F.lit(False)) | are_texts(line, "isr"))


def _has_what_it_needs() -> str:
    by_event = " ".join(f"when event = '{event}' then {law}" for event, law in _NEEDED.items())
    told = "time is not null and node is not null and seq >= 0 and event is not null"
    pairs = "forall(epochs, pair -> size(pair) = 2 and pair[0] is not null and pair[1] is not null)"
    return f"{told} and (epochs is null or coalesce({pairs}, false)) and case {by_event} else true end"


def ruled() -> Column:
    """The controller's word about a partition (its lines have no LEO)."""
    return F.expr("event = 'elect' or (event = 'isr' and leo is null)")


def looked_at(lines: DataFrame) -> DataFrame:
    """The good lines that checks look at, and of them what these ask."""
    moves = F.col("event").isin(*_LOOKED_AT) & ~F.expr("event = 'hw' and role = 'follower'")
    return lines.where(~F.col("bad") & moves).drop("bad", "broker", "clean")


def seen_of(lines: DataFrame) -> list[DataFrame]:
    """For the survey: how many lines of whom, all that the controller said, and every start."""
    counted = (
        lines.groupBy("run", "node")
        .agg(
            F.count("*").alias("a"),
            F.count_if("bad").alias("b"),
            F.min("seq").alias("c"),
            F.max("seq").alias("d"),
            F.count_distinct("seq").alias("e"),
        )
        .select(F.lit("traced").alias("what"), "run", "node", *"abcde")
    )
    told = F.to_json(
        F.struct("time", "node", "seq", "event", "partition", "epoch", "isr", "leader", "broker", "clean")
    )
    rulings = lines.where(
        ~F.col("bad") & (ruled() | F.col("event").isin("register", "fence", "unfence", "start"))
    )
    return [counted, rulings.select(F.lit("ruled").alias("what"), "run", told.alias("text"))]


def note(seen: Traced, what: str, row: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """One row of the survey."""
    if what == "ruled":
        seen.told.append(dict(said))
        return
    seen.bad += row["b"]
    if row["node"] is not None and row["a"] > row["b"]:
        seen.nodes[row["node"]] = Lines(lines=row["a"], first=row["c"], last=row["d"], seqs=row["e"])
