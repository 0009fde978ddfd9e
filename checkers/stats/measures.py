"""Measures one run folder: its row and those of its faults (defined in the package's docstring), by SQL over
the tables of clients.py."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from floodmark.checkers.read.facts import HistoryFacts
from floodmark.checkers.read.folder import Folder, is_int
from floodmark.checkers.read.tables import Parsed
from floodmark.checkers.stats.clients import database_of, read_history
from floodmark.checkers.stats.protocol import load_events, of_faults, of_run
from floodmark.checkers.stats.spans import FaultSpan, fault_spans
from floodmark.checkers.stats.tables import QUANTILES, WINDOWS
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import system_of

Row = dict[str, Any]
NS = 1_000_000_000

# -- how long clients waited --------------------------------------------------------------------------------

# When the load ended.
_LOAD = """
select coalesce((select max(time) from lines), 0) as ends,
    (select count(*) from ops where answer is null) as unanswered"""

# Sends that were invoked, and acks; how many sends of a partition are open from a time on.
_ASKED = """
create temp table asked as
select partition, s.time as began, answer.time as ended, "at", coalesce(answer.type = 'ok', false) as ok
from sends s join ops using ("at") where type = 'invoke'"""
_ACKS = "create temp table acks as select distinct partition, time from sends where type = 'ok'"
_OPEN_SENDS = """
create temp table open_sends as
select partition, time, sum(sum(change)) over (partition by partition order by time) as count
from (select partition, began as time, 1 as change from asked union all
    select partition, ended, -1 from asked where ended is not null)
group by partition, time"""


def _since(instants: str) -> str:
    """For rows with partition and instant: when the wait for an ack begins. At that instant if a send is open
    then, else at the next invocation; null if there is none."""
    return f"""
    select i.*, case when o.count > 0 then instant else began end as since
    from ({instants}) i
    asof left join open_sends o on i.partition = o.partition and i.instant >= o.time
    asof left join asked a on i.partition = a.partition and i.instant < a.began"""


# The times in which somebody waited for an ack of a partition, without one in between.
_WAITS = f"""
create temp table waits as
with instants as (
    select partition, time as instant from acks union all
    select distinct partition, -(1::hugeint << 64) from sends),
following as (
    select *, coalesce(lead(instant) over (partition by partition order by instant), $ends) as until
    from ({_since("from instants")}))
select partition, since, until from following where since < until"""

# When each send was due, and how long it took until it was served: also those that clients would have begun
# had they not waited for an answer for longer than two usual intervals (coordinated omission).
_DUE = """
create temp table due as
with later as (
    select "at", max(coalesce(k.time, $ends)) as served
    from asked a asof left join acks k on a.partition = k.partition and a.ended < k.time
    where not ok group by "at"),
served as (
    select began, coalesce(next_began, answer.time) as waited, least($ends, case
        when answer.type = 'ok' then answer.time else greatest(began, served) end) as served
    from ops left join later using ("at") where f = 'send'),
usual as (select coalesce(floor(median(next_began - began)), 0)::hugeint as usual from ops),
missed as (
    select *, case when usual > 0 then greatest(0, least(
        (waited - 1 - began) // usual, (served - began) // usual - 1)) else 0 end as missed
    from served, usual),
each as (
    select began + usual * unnest(range((missed + 1)::bigint)) as due, served from missed)
select due, served - due as took from each"""

_PERCENTILES = ", ".join(
    f"took[greatest(1, ceil(round({share} * len(took), 6)))::bigint] / 1e6 as {name}_ms"
    for name, share in QUANTILES.items())
_BOUNDS = {
    "before": ("2 * began - until", "began"),
    "during": ("began", "until"),
    "after": ("until", "2 * until - began"),
}


# For each fault the latencies of the sends that were due in each window, and how many these were.
_LATENCIES = f"""
with windows as ({" union all ".join(
    f"select number, '{window}' as window_, {begin} as first, {end} as last from faults"
    for window, (begin, end) in _BOUNDS.items())}),
took as (select number, window_, took from windows join due on due >= first and due < last),
lists as (
    select number, {", ".join(
        f"list(took order by took) filter (window_ = '{window}') as {window}_" for window in WINDOWS)}
    from faults left join took using (number) group by number)
select {", ".join(
    _PERCENTILES.replace("took", f"{window}_").replace(" as ", f" as {window}_")
    + f", coalesce(len({window}_), 0) as {window}_sends" for window in WINDOWS)}
from lists order by number"""


_FAILED = """
select (min(answer.time) - any_value(f.began)) / 1e9 as first_failed_s
from faults f left join ops o on answer.type <> 'ok' and answer.time >= f.began and o.began < until
group by number order by number"""

_GAPS = """
select max(w.until - since) / 1e9 as gap_s,
    first(partition order by w.until - since desc, partition) as gap_partition
from faults f left join waits w on since < f.until and w.until > began
group by number order by number"""

_RECOVERIES = f"""
with partitions as (select distinct partition from sends),
instants as (select number, partition, over as instant from faults, partitions where over is not null),
known as (
    select number, s.partition, least(coalesce(k.time, $ends), $ends) - since as lasted,
        k.time is not null as recovered
    from ({_since("from instants")}) s
    asof left join acks k on s.partition = k.partition and s.instant < k.time
    where since < $ends)
select max(lasted) / 1e9 as recovery_s,
    first(partition order by lasted desc, partition) as recovery_partition,
    bool_and(recovered) as recovered
from faults left join known using (number) group by number order by number"""


# -- a run --------------------------------------------------------------------------------------------------


def measured(folder: Folder) -> Row:
    """The row of KEPT. FloodmarkError if there is nothing to measure; OSError if a file cannot be read."""
    refuse_unfit(folder)
    assert folder.history is not None
    return measures_of(folder, list(read_history(folder.history, folder.special)))


def refuse_unfit(folder: Folder) -> None:
    """FloodmarkError if there is nothing to measure."""
    if not folder.judged or folder.history is None:
        words = [words for _, words in folder.reasons]
        of_history = [why for why in words if why.startswith("history.jsonl")]
        raise FloodmarkError((of_history or words or ["there is no history.jsonl"])[0])


def measures_of(folder: Folder, history: Sequence[Parsed]) -> Row:
    """The row, for a history that was read."""
    facts = [one.facts for one in history if isinstance(one.facts, HistoryFacts)]
    about, seed = folder.about, folder.about.get("seed")
    with database_of(history, [*folder.special.settling, *folder.special.final]) as database:
        load_events(database, folder)
        (load,) = _rows(database, _LOAD)
        ends = {"ends": load["ends"]}
        for statement in (_ASKED, _ACKS, _OPEN_SENDS):
            database.execute(statement)
        for statement in (_WAITS, _DUE):
            database.execute(statement, ends)
        spans = fault_spans(line for one in facts for line in one.nemesis)
        faults = list(_faults(database, folder, spans, load["ends"]))
        (of_all,) = _rows(database, f"""
            with took as (select list(took order by took) as took from due where due >= 0)
            select {_PERCENTILES} from took""")
        (of_trace,) = _rows(database, of_run(folder))
    return {
        "system": system_of(about),
        "nemesis": str(about.get("scenario") or about.get("nemesis") or "none"),
        "seed": seed if is_int(seed) else None,
        "load_s": load["ends"] / NS,
        **{name: sum(getattr(one, name) for one in facts) for name in ("acked", "ok", "fail", "info")},
        "unanswered": load["unanswered"],
        "broken_lines": sum(one.broken for one in facts) - folder.torn,
        **of_trace,
        **of_all,
        "faults": len(faults),
        "faults_by_kind": sorted(Counter(row["kind"] for row in faults).items()),
        **{name: max((row[of] for row in faults if row[of] is not None), default=None)
           for name, of in (("max_unavailable_s", "gap_s"), ("max_recovery_s", "recovery_s"))},
        "of_faults": faults,
    }  # fmt: skip


def _faults(
    database: duckdb.DuckDBPyConnection, folder: Folder, spans: Sequence[FaultSpan], ends_ns: int
) -> Iterator[Row]:
    times = ", ".join(
        f"({number}, {span.began_ns}, {span.until_ns(ends_ns)}, {'null' if over is None else over})"
        for number, span in enumerate(spans) for over in (span.over_ns,))
    database.execute("create temp table faults (number int, began hugeint, until hugeint, over hugeint)")
    if spans:
        database.execute(f"insert into faults values {times}")
    ends = {"ends": ends_ns}
    parts = [_rows(database, _FAILED), _rows(database, _GAPS), _rows(database, _RECOVERIES, ends),
             _rows(database, _LATENCIES), _rows(database, of_faults(folder))]
    for span, *rows in zip(spans, *parts, strict=True):
        yield {
            "index": span.index,
            "kind": span.kind,
            "detail": span.detail,
            "nodes": list(span.nodes),
            "failed": span.failed,
            "began_s": span.began_ns / NS,
            "effect_s": span.effect_ns / NS,
            "mended_s": None if span.mended_ns is None else span.mended_ns / NS,
        } | {name: figure for row in rows for name, figure in row.items()}


def _rows(database: duckdb.DuckDBPyConnection, select: str, given: Row | None = None) -> list[Row]:
    answer = database.execute(select, given)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
