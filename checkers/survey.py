"""The first look: what is wrong with the files, what the nemesis did, and how much there is of everything.

One action over all runs gives rows that the driver turns into reasons; what the checks need of it (which
runs are breached, which processes overlap) goes into their frames. No check makes a claim before this is
known.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from checkers import traces
from checkers.frames import Frames
from checkers.traces import Traced

REPEATED_SHOWN = 5
_COLUMNS = ("what", "run", "node", "process", "text", *"abcdeghijklmn")
_TYPES = dict.fromkeys(_COLUMNS, "bigint") | {
    "what": "string",
    "run": "int",
    "node": "string",
    "text": "string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One split of a history file: its good lines run from `first` to `last` of `lines`."""

    block: int
    lines: int
    bad: int
    first: int | None
    last: int | None
    in_step: bool  # every index is where it belongs within the block
    times: tuple[int, int] | None  # lowest and highest
    falls: int | None  # index of the first line that is earlier than the one before it
    rising: bool = True  # every index is above those before it within the block


@dataclass(slots=True, kw_only=True)
class Survey:
    """What was seen of one run."""

    blocks: list[Block] = field(default_factory=list)
    told_lines: int = 0  # of a run that was sieved: without blocks, and without a fault
    ok: int = 0
    fail: int = 0
    info: int = 0
    acked: int = 0
    txns: int = 0  # lines of transactions
    nemesis: list[dict[str, Any]] = field(default_factory=list)
    entries: dict[str, int] = field(default_factory=dict)  # node -> lines of its dump
    bad_entries: dict[str, int] = field(default_factory=dict)
    unmatched: int | None = None  # index of the first completion that fits no invocation
    # process -> index where it had two ops open, or went on after an info
    overlapping: dict[int, int] = field(default_factory=dict)
    repeated: list[int] = field(default_factory=list)  # values sent more than once (the first few)
    partitions: set[int] = field(default_factory=set)  # that the history names
    used: set[int] = field(default_factory=set)  # those of which it, or a dump, says more than who held them
    traced: Traced = field(default_factory=Traced)
    # What only judging.preconditions.Preconditions knows.
    first_bad: int | None = None
    first_bad_entries: dict[str, int] = field(default_factory=dict)
    flaws: dict[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        return self.told_lines + sum(block.lines for block in self.blocks)

    @property
    def bad(self) -> int:
        return sum(block.bad for block in self.blocks)

    @property
    def in_order(self) -> bool:
        """Index is the position in the file, from 0 and without gaps (bad lines aside, which are told
        anyway)."""
        expected = 0
        for block in sorted(self.blocks, key=lambda block: block.block):
            if block.first is not None and (block.first != expected or not block.in_step):
                return False
            expected = expected + block.lines
        return True

    @property
    def disordered(self) -> bool:
        """Indexes that do not rise from line to line: nobody can say which of two lines came first."""
        highest = -1
        for block in sorted(self.blocks, key=lambda block: block.block):
            if block.first is not None and block.last is not None:
                if not block.rising or block.first <= highest:
                    return True
                highest = block.last
        return False

    @property
    def falls(self) -> int | None:
        """Index of the first line whose time is below that of the line before."""
        latest, found = 0, None
        for block in sorted(self.blocks, key=lambda block: block.block):
            if block.times is not None:
                at_once = block.first if block.times[0] < latest else None
                found = least(found, least(at_once, block.falls))
                latest = max(latest, block.times[1])
        return found


def survey(frames: Frames, probes: Sequence[frozenset[int]]) -> list[Survey]:
    """One Survey a run. `probes`, of each run, are the processes whose acks do not count."""
    lines = frames.history.where("kind = 'line'")
    parts = [
        blocks(lines),
        nemesis_lines(lines),
        entries_read(frames.entries),
        pairing(lines),
        asked(frames.history),
        repeated(frames.history),
        *([] if frames.trace is None else traces.seen_of(frames.trace)),
    ]
    surveys = [Survey() for _ in probes]
    for row in collect(parts):
        note(surveys[row["run"]], row, probes[row["run"]])
    return surveys


def collect(parts: Iterable[DataFrame]) -> list[Row]:
    """All parts in one action, each padded to the common columns."""
    together: DataFrame | None = None
    for part in parts:
        padded = part.select(
            *(
                (F.col(name) if name in part.columns else F.lit(None)).cast(_TYPES[name]).alias(name)
                for name in _COLUMNS
            )
        )
        together = padded if together is None else together.unionByName(padded)
    assert together is not None
    return together.collect()


def note(seen: Survey, row: Row, probes: frozenset[int]) -> None:
    """One row of the survey into its run's."""
    match row["what"]:
        case "block":
            seen.blocks.append(
                Block(
                    block=row["process"],
                    lines=row["a"],
                    bad=row["b"],
                    first=row["c"],
                    last=row["d"],
                    in_step=row["e"] == 0,
                    times=None if row["j"] is None else (row["j"], row["k"]),
                    falls=row["l"],
                    rising=row["n"] == 0,
                )
            )
            seen.ok, seen.fail, seen.info = seen.ok + row["g"], seen.fail + row["h"], seen.info + row["i"]
            seen.txns += row["m"]
        case "nemesis":
            seen.nemesis.append(json.loads(row["text"]))
        case "entries":
            seen.entries[row["node"]] = row["a"]
            seen.bad_entries[row["node"]] = row["b"]
            seen.used.update(json.loads(row["text"]))
        case "pairing":
            seen.unmatched = least(seen.unmatched, row["a"])
            if row["b"] is not None:
                seen.overlapping[row["process"]] = row["b"]
        case "asked":
            named = json.loads(row["text"])
            seen.partitions.update(named["used"], named["held"])
            seen.used.update(named["used"])
            seen.acked += 0 if row["process"] in probes else row["a"]
        case "repeated":
            seen.unmatched = least(seen.unmatched, row["b"])
            if row["a"] is not None:
                seen.repeated.append(row["a"])
        case "traced" | "ruled":
            said = {} if row["text"] is None else json.loads(row["text"])
            traces.note(seen.traced, row["what"], row.asDict(), said)


def least(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)


def tagged(what: str) -> Column:
    return F.lit(what).alias("what")


def blocks(lines: DataFrame) -> DataFrame:
    """Per split of a history: lines, bad ones, the ranges of index and time, whether each is in place."""
    before = Window.partitionBy("run", "block").orderBy("at").rowsBetween(Window.unboundedPreceding, -1)
    away = F.col("at") - F.col("index")
    client = F.col("process") >= 0
    return (
        lines.select("*", *(F.max(name).over(before).alias(f"last_{name}") for name in ("time", "index")))
        .groupBy("run", "block")
        .agg(
            F.count("*").alias("a"),
            F.count_if(F.col("bad")).alias("b"),
            F.min("index").alias("c"),
            F.max("index").alias("d"),
            F.coalesce(F.max(away) - F.min(away), F.lit(0)).alias("e"),
            F.min("time").alias("j"),
            F.max("time").alias("k"),
            F.min(F.when(F.col("time") < F.col("last_time"), F.col("index"))).alias("l"),
            *(
                F.count_if(client & (F.col("type") == name)).alias(column)
                for name, column in (("ok", "g"), ("fail", "h"), ("info", "i"))
            ),
            F.count_if(client & (F.col("f") == "txn")).alias("m"),
            F.count_if(F.col("index") <= F.col("last_index")).alias("n"),
        )
        .select(tagged("block"), "run", F.col("block").alias("process"), *"abcdeghijklmn")
    )


def nemesis_lines(lines: DataFrame) -> DataFrame:
    return lines.where(F.col("text").isNotNull()).select(tagged("nemesis"), "run", "text")


def entries_read(entries: DataFrame) -> DataFrame:
    return (
        entries.groupBy("run", "node")
        .agg(
            F.count("*").alias("a"),
            F.count_if(F.col("bad")).alias("b"),
            F.to_json(F.collect_set("partition")).alias("text"),
        )
        .select(tagged("entries"), "run", "node", "text", "a", "b")
    )


def pairing(lines: DataFrame) -> DataFrame:
    """Per process, the first line (a) that completes nothing, (b) that overlaps."""
    process = Window.partitionBy("run", "process").orderBy("index")
    ever = process.rowsBetween(Window.unboundedPreceding, -1)
    invoke = F.col("type") == "invoke"
    stepped = lines.where(~F.col("bad") & (F.col("process") >= 0)).select(
        "run",
        "process",
        "index",
        "type",
        "f",
        "ident",
        *(F.lag(name).over(process).alias(f"last_{name}") for name in ("type", "f", "ident")),
        F.coalesce(F.sum(F.when(invoke, 1).otherwise(-1)).over(ever), F.lit(0)).alias("open"),
        F.coalesce(F.max(F.col("type") == "info").over(ever), F.lit(False)).alias("over"),
    )
    after_invoke = F.col("last_type") == "invoke"
    other = after_invoke & (
        (F.col("f") != F.col("last_f"))
        | (F.col("f").isin("send", "txn") & (F.col("ident") != F.col("last_ident")))
    )
    # With two ops open nobody can say which of them a completion is of.
    unmatched = ~invoke & ((F.col("open") <= 0) | ((F.col("open") == 1) & other))
    overlaps = invoke & (F.col("over") | F.coalesce(after_invoke, F.lit(False)))
    seen = stepped.groupBy("run", "process").agg(
        F.min(F.when(F.coalesce(unmatched, F.lit(False)), F.col("index"))).alias("a"),
        F.min(F.when(overlaps, F.col("index"))).alias("b"),
    )
    return seen.where("a is not null or b is not null").select(tagged("pairing"), "run", "process", "a", "b")


def asked(history: DataFrame) -> DataFrame:
    """Per process the micro-sends of its ok ops, and the partitions it named: a row each would be too many
    where a million are held."""
    held = F.col("kind") == "held"
    named = F.struct(
        F.collect_set(F.when(held, F.col("partition"))).alias("held"),
        F.collect_set(F.when(~held, F.col("partition"))).alias("used"),
    )
    return (
        history.where("partition is not null")
        .groupBy("run", "process")
        .agg(
            F.count_if(F.expr("kind = 'send' and type = 'ok'")).alias("a"), F.to_json(named).alias("text")
        )
        .select(tagged("asked"), "run", "process", "text", "a")
    )


def repeated(history: DataFrame) -> DataFrame:
    """The first few values of each run that were sent more than once (a), and the last answer (b) of the
    first few that were answered more often than sent: whatever else its process had open, that fits nothing.
    """
    invoke = F.col("type") == "invoke"
    sent = history.where("kind = 'send'").groupBy("run", "value").agg(
        F.count_if(invoke).alias("n"), F.count_if(~invoke).alias("m"), F.max("index").alias("last")
    )  # fmt: skip
    twice = F.col("n") > 1
    first = F.row_number().over(Window.partitionBy("run", twice).orderBy("value"))
    return (
        sent.where("n > 1 or m > n")
        .select(
            "run",
            F.when(twice, F.col("value")).alias("a"),
            F.when(F.col("m") > F.col("n"), F.col("last")).alias("b"),
            first.alias("rank"),
        )
        .where(F.col("rank") <= REPEATED_SHOWN)
        .select(tagged("repeated"), "run", "a", "b")
    )
