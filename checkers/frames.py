"""Run folders as two frames, one row an item: `history` (lines and what they carry) and `entries` (the
dumps).

Rules
1. Files are read as text and parsed line by line into a nullable struct; a line that is not exactly what the
   field table says is `bad`: it is counted, and gives nothing else.
2. Every row carries `run`, the folder's position in the call; a folder is known by nothing else in a frame.
3. A row knows where it stood: `block` (the split of its file) and `at` (rising within a block), in file
order.

history: run block at bad kind(line|send|read|end|held) pos index time process type f partition value offset
         epoch ident (of a line: a fingerprint of the sends' partitions and values) text (of the nemesis's
         lines) whole (false: of this partition only odd values are here, its order has been looked at)
entries: run node block at bad partition offset epoch value crc crc_ok aborted
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from checkers.findings import kept
from checkers.folder import Folder
from checkers.sources import Source, Sources, scan

CLIENT_FS = ("send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets")
TYPES = ("invoke", "ok", "fail", "info")
PARQUET_FACTOR = 6  # how much more a byte of Parquet says than one of JSON

_ITEM = "struct<partition:bigint,value:bigint,offset:bigint,epoch:bigint>"
_LINE = (
    f"index bigint, time bigint, process bigint, type string, f string, sends array<{_ITEM}>, "
    f"reads array<{_ITEM}>, offsets array<{_ITEM}>, partitions array<bigint>, fault string, error string"
)
_CARRIED_BY = {  # elsewhere a field is unknown
    "sends": "j.f in ('send', 'txn')",
    "reads": "j.f in ('poll', 'txn') and j.type != 'invoke'",
    "offsets": "j.f = 'list_offsets'",
    "partitions": "j.f in ('assign', 'subscribe')",
}
_ENTRY = (
    "node string, partition bigint, offset bigint, epoch bigint, value bigint, crc bigint, crc_ok boolean, "
    "aborted boolean"
)
_ENTRY_COLUMNS = ("partition", "offset", "epoch", "value", "crc", "crc_ok", "aborted")
STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_bad",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """What the checks look at; both are kept, so that files are parsed once."""

    history: DataFrame
    entries: DataFrame
    small: bool
    trace: DataFrame | None = None  # None: no run has one
    passed: DataFrame | None = None  # what came out of the sieve


def work_bytes(folders: Sequence[Folder]) -> int:
    """How much there is to read, as if all of it were JSON."""
    total = 0
    for folder in folders:
        total += folder.history.stat().st_size if folder.history else 0
        for dump in folder.dumps.values():
            total += dump.stat().st_size * (PARQUET_FACTOR if dump.suffix == ".parquet" else 1)
    return total


def trace_bytes(folders: Sequence[Folder]) -> int:
    """The same of the traces, which no sieve looks at."""
    return sum(folder.trace.stat().st_size for folder in folders if folder.trace)


def read(spark: SparkSession, sources: Sources, passed: DataFrame | None, *, small: bool) -> Frames:
    """The frames of all files and of what passed the sieve; small ones in a single task, where nothing needs
    to be shuffled."""
    history = history_of(scan(spark, sources.history, "text", "value string", ["run"]))
    entries = entries_of(scan(spark, sources.lines, "text", "value string", ["run", "node"]))
    if sources.parquet:
        entries = entries.unionByName(parquet_entries(spark, sources.parquet))
    if passed is not None:
        history = history.unionByName(passed.where("what = 'history'").select(*history.columns))
        entries = entries.unionByName(passed.where("what = 'entry'").select(*entries.columns))
    if small:
        history, entries = history.coalesce(1), entries.coalesce(1)
    return Frames(history=kept(history), entries=kept(entries), small=small, passed=passed)


def object_of(schema: str) -> Column:
    """The line's object, null where the line is not one object of this schema. from_json takes the first
    value of a line and is silent about a rest, which may be the next line: here something must follow it. It
    also takes any bytes for text."""
    told = f"j struct<{schema}>, end int, _bad string"
    read = F.from_json(F.concat(F.lit('{"j":'), "value", F.lit(',"end":0}')), told, STRICT)
    whole = read["_bad"].isNull() & read["end"].isNotNull() & F.is_valid_utf8("value")
    return F.when(whole, read["j"])


def is_text(line: Column, name: str) -> Column:
    """from_json takes anything for a string."""
    return line.rlike(f'"{name}"\\s*:\\s*"')


def are_texts(line: Column, name: str) -> Column:
    """So it does in a list."""
    text = r'\s*"(?:[^"\\]|\\.)*+"\s*'
    return line.rlike(f'"{name}"\\s*:\\s*\\[(?:{text}(?:,{text})*+|\\s*)\\]')


# -- the history ------------------------------------------------------------------------------------------


def history_of(lines: DataFrame) -> DataFrame:
    """One row a line (kind line) and one for everything it carries; of a bad line only the row of the
    line."""
    parsed = lines.withColumn("j", object_of(_LINE))
    keep = "run", "block", "at"
    checked = parsed.select(
        *keep,
        *(F.col(f"j.{name}").alias(name) for name in ("index", "time", "process", "type", "f")),
        *(
            F.expr(f"if(j.process >= 0 and {by}, j.{name}, null)").alias(name)
            for name, by in _CARRIED_BY.items()
        ),
        (~F.coalesce(good_line(), F.lit(False))).alias("bad"),
        F.col("value").alias("line"),
    )
    nemesis = ~F.col("bad") & (F.col("process") == -1)
    items = checked.select(
        *keep,
        "bad",
        *(F.when(~F.col("bad"), F.col(name)).alias(name) for name in ("index", "time", "process")),
        "type",
        "f",
        F.xxhash64("sends.partition", "sends.value").alias("ident"),
        F.when(nemesis, F.col("line")).alias("text"),
        F.size(F.coalesce("sends", empty())).alias("n_sends"),
        F.size(F.coalesce("reads", empty())).alias("n_reads"),
        F.size(F.coalesce("offsets", empty())).alias("n_ends"),
        F.posexplode(carried()).alias("pos", "item"),
    )
    return items.select(
        *keep,
        "bad",
        kind_of().alias("kind"),
        "pos",
        "index",
        "time",
        "process",
        "type",
        "f",
        "item.partition",
        "item.value",
        "item.offset",
        "item.epoch",
        *(F.when(F.col("pos") == 0, F.col(name)).alias(name) for name in ("ident", "text")),
        F.lit(True).alias("whole"),
    )


def good_line() -> Column:
    """The field table of history.jsonl, for one line."""
    j = F.col
    number = (j("j.index") >= 0) & (j("j.time") >= 0) & (j("j.process") >= -1)
    nemesis = (j("j.process") == -1) & (j("j.type") == "info") & j("j.fault").startswith("{")
    nemesis &= is_text(j("value"), "f")
    return (
        j("j").isNotNull()
        & F.when(j("j.error").isNotNull(), is_text(j("value"), "error")).otherwise(True)
        & number
        & j("j.type").isin(*TYPES)
        & (nemesis | ((j("j.process") >= 0) & j("j.f").isin(*CLIENT_FS) & has_what_it_needs()))
        & every("sends", lambda s: named(s) & F.coalesce(s.offset >= 0, F.lit(True)))
        & every("reads", lambda r: named(r) & (r.offset >= 0))
        & every("offsets", lambda o: (o.partition >= 0) & (o.offset >= 0))
        & every("partitions", lambda p: p >= 0)
    )


def has_what_it_needs() -> Column:
    """The fields that an op of this f and type cannot do without."""
    f, ok = F.col("j.f"), F.col("j.type") == "ok"
    needed = F.when(f == "send", F.size(F.coalesce("j.sends", empty())) > 0)
    for name, field in (
        ("poll", "reads"),
        ("list_offsets", "offsets"),
        ("assign", "partitions"),
        ("subscribe", "partitions"),
    ):
        needed = needed.when(ok & (f == name), F.col(f"j.{field}").isNotNull())
    return needed.otherwise(True)


def every(field: str, law: Callable[[Column], Column]) -> Column:
    """The law holds of every item of the field, if the field is there; a null breaks it."""
    return F.col(f"j.{field}").isNull() | F.forall(
        f"j.{field}", lambda item: F.coalesce(law(item), F.lit(False))
    )


def named(item: Column) -> Column:
    return (item.partition >= 0) & item.value.isNotNull()


def empty() -> Column:
    return F.array().cast(f"array<{_ITEM}>")


def carried() -> Column:
    """The items of a line behind one another, after a null that stands for the line itself."""
    held = F.when(
        F.col("partitions").isNotNull(),
        F.transform(
            "partitions",
            lambda p: F.struct(
                p.alias("partition"),
                F.lit(None).cast("bigint").alias("value"),
                F.lit(None).cast("bigint").alias("offset"),
                F.lit(None).cast("bigint").alias("epoch"),
            ),
        ),
    )
    alone = F.array(F.lit(None).cast(_ITEM))
    whole = F.concat(
        alone,
        *(F.coalesce(F.col(name), empty()) for name in ("sends", "reads", "offsets")),
        F.coalesce(held, empty()),
    )
    return F.when(F.col("bad"), alone).otherwise(whole)


def kind_of() -> Column:
    """What an item is, told by its position among those of its line."""
    reads = F.col("n_sends") + F.col("n_reads")
    return (
        F.when(F.col("pos") == 0, "line")
        .when(F.col("pos") <= F.col("n_sends"), "send")
        .when(F.col("pos") <= reads, "read")
        .when(F.col("pos") <= reads + F.col("n_ends"), "end")
        .otherwise("held")
    )


# -- the dumps --------------------------------------------------------------------------------------------


def entries_of(lines: DataFrame) -> DataFrame:
    """One row a line of a dump; a bad one keeps its place and nothing else."""
    parsed = lines.withColumn("j", object_of(_ENTRY))
    j = F.col
    good = (
        (j("j.node") == j("node"))
        & (j("j.partition") >= 0)
        & (j("j.offset") >= 0)
        & (j("j.epoch") >= -1)
        & j("j.crc").isNotNull()
        & j("value").contains('"value"')
    )
    return placed(
        parsed.select(
            "run",
            "node",
            "block",
            "at",
            good.alias("good"),
            *(j(f"j.{name}").alias(name) for name in _ENTRY_COLUMNS),
        )
    )


def placed(rows: DataFrame) -> DataFrame:
    """Rows with `bad` in place of `good`, and nothing told by a bad one."""
    good = F.coalesce("good", F.lit(False))
    return rows.select(
        "run",
        "node",
        "block",
        "at",
        (~good).alias("bad"),
        *(F.when(good, F.col(name)).alias(name) for name in _ENTRY_COLUMNS),
    )


def parquet_entries(spark: SparkSession, source: Source) -> DataFrame:
    """The same of dumps kept as Parquet (their columns were looked at before)."""
    columns = _ENTRY.removeprefix("node string, ")
    rows = scan(spark, source, "parquet", columns, ["run", "node"])
    good = (
        (F.col("partition") >= 0) & (F.col("offset") >= 0) & (F.col("epoch") >= -1) & F.col("crc").isNotNull()
    )
    return placed(rows.select("*", good.alias("good")))
