"""Measures one run folder: its row and those of its faults (defined in the package's docstring), by SQL over
the tables of clients.py."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import duckdb

from floodmark.checkers.read.folder import Folder, is_int
from floodmark.checkers.stats.clients import database_of, facts_of, read_history
from floodmark.checkers.stats.protocol import FIGURES, figures_of, load_events
from floodmark.checkers.stats.spans import fault_spans
from floodmark.checkers.stats.tables import FAULT, QUANTILES, WINDOWS
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import system_of

Row = dict[str, Any]
NS = 1_000_000_000
LEAST_NS = 1_000_000_000  # a fault is in force for at least this long

# -- how long clients waited --------------------------------------------------------------------------------

# When the load ended.
_LOAD = """
create temp table load as
select coalesce((select max(time) from lines where loads), 0) as ends,
    (select count(*) from ops where loads and answer is null) as unanswered"""

# When each fault was in force; the run itself is the first of them.
_IN_FORCE = f"""
create temp table faults as
select number, began, greatest(coalesce(over, ends), began + {LEAST_NS}) as until, over
from load, (select number, began::hugeint as began, over from (values %s) given(number, began, over))"""

# Instants, of each partition: each ack and the time before all (is_ack); the end of each send without an ack
# ("at"); when each fault was over (number). since: when the wait for an ack begins, at that instant if a send
# is open then, else at the next invocation; acked: the next ack. Where there is none they are null.
_INSTANTS = """
create temp table instants as
with asked as (
    select partition, s.time as began, answer, "at"
    from sends s join ops using ("at") where s.loads and type = 'invoke'),
partitions as (select distinct partition from sends where loads),
events as (
    select partition, began as time, 2 as rank, 1 as opens, began, null as ack, null as "at", null as number
    from asked
    union all select partition, answer.time, 2, -1, null, null, null, null from asked where answer is not null
    union all select partition, answer.time, 0, 0, null, null, "at", null from asked where answer.type <> 'ok'
    union all select distinct partition, time, 1, 0, null, time, null, null from sends
    where loads and type = 'ok'
    union all select partition, -1, 1, 0, null, -1, null, null from partitions
    union all select partition, over, 0, 0, null, null, null, number from partitions, faults
    where over is not null)
select partition, "at", number, ack is not null as is_ack, min(ack) over later as acked, case
    when sum(opens) over (partition by partition) > coalesce(sum(opens) over later, 0) then time
    else min(began) over later end as since
from events window later as (
    partition by partition order by time desc, rank rows between unbounded preceding and 1 preceding)
qualify rank < 2"""

# The times in which somebody waited for an ack of a partition, without one in between.
_WAITS = """
create temp table waits as
select partition, since, coalesce(acked, ends) as until from instants, load where is_ack and since < until"""

_FAILED = """
select (min(answer.time) - any_value(f.began)) / 1e9 as first_failed_s
from faults f left join ops o on loads and answer.type <> 'ok' and answer.time >= f.began and o.began < until
group by number order by number"""

_GAPS = """
select max(w.until - since) / 1e9 as gap_s,
    first(partition order by w.until - since desc, partition) as gap_partition
from faults f left join waits w on since < f.until and w.until > began
group by number order by number"""

_RECOVERIES = """
with known as (
    select number, partition, acked is not null as recovered,
        greatest(0, coalesce(acked, ends) - since) as lasted  -- an ack may lack its invocation
    from instants, load where number is not null and since < ends)
select max(lasted) / 1e9 as recovery_s,
    first(partition order by lasted desc, partition) as recovery_partition,
    bool_and(recovered) as recovered
from faults left join known using (number) group by number order by number"""

# When each send was due, and how long it took until it was served: also those that clients would have begun
# had they not waited for an answer for longer than two usual intervals (coordinated omission).
_DUE = """
create temp table due as
with later as (select "at", max(coalesce(acked, ends)) as served from instants, load group by "at"),
served as (
    select began, coalesce(next_began, answer.time) as waited, least(ends, case
        when answer.type = 'ok' then answer.time else greatest(began, coalesce(served, ends)) end) as served
    from load, ops left join later using ("at") where loads and f = 'send'),
usual as (
    select coalesce(floor(median(next_began - began)), 0)::hugeint as usual from ops where loads),
missed as (
    select *, case when usual > 0 then greatest(0, least(
        (waited - 1 - began) // usual, (served - began) // usual - 1)) else 0 end as missed
    from served, usual),
each as (
    select began + usual * unnest(range((missed + 1)::bigint)) as due, served from missed)
select due, served - due as took from each"""

# For each fault and window the latencies of the sends that were due in it, and how many these were.
_LATENCIES = f"""
select quantile_disc(took / 1e6, {[*QUANTILES.values()]}) as latencies, count(took) as sends
from faults, range({len(WINDOWS)}) of_(window_)
left join due on due >= began + (window_ - 1) * (until - began) and due < began + window_ * (until - began)
group by number, window_ order by number, window_"""


# -- a run --------------------------------------------------------------------------------------------------


def measured(folder: Folder) -> Row:
    """The row of KEPT. FloodmarkError if there is nothing to measure; OSError if a file cannot be read."""
    refuse_unfit(folder)
    assert folder.history is not None
    history = list(read_history(folder.history, folder.special))
    facts = facts_of(history)
    about, seed = folder.about, folder.about.get("seed")
    with database_of(history, folder.special) as database:
        rows = fault_rows(database, facts.nemesis)
        load_events(database, folder)
        database.execute(_DUE)
        for row, figures in zip(rows, _rows(database, figures_of(folder)), strict=True):
            row.update(figures)
        for (row, window), found in zip(product(rows, WINDOWS), _rows(database, _LATENCIES), strict=True):
            latencies = found["latencies"] or [None] * len(QUANTILES)
            row.update(zip((f"{window}_{name}_ms" for name in QUANTILES), latencies, strict=True))
            row[f"{window}_sends"] = found["sends"]
        of_run, *faults = rows
        (load,) = _rows(database, "from load")
    return {
        "system": system_of(about),
        "nemesis": str(about.get("scenario") or about.get("nemesis") or "none"),
        "seed": seed if is_int(seed) else None,
        "load_s": load["ends"] / NS,
        **{name: getattr(facts, name) for name in ("acked", "ok", "fail", "info")},
        "unanswered": load["unanswered"],
        "broken_lines": facts.broken - folder.torn,
        **{name: of_run[name] for name in FIGURES},
        **{f"{name}_ms": of_run[f"during_{name}_ms"] for name in QUANTILES},
        "faults": len(faults),
        "faults_by_kind": sorted(Counter(row["kind"] for row in faults).items()),
        **{name: max((row[of] for row in faults if row[of] is not None), default=None)
           for name, of in (("max_unavailable_s", "gap_s"), ("max_recovery_s", "recovery_s"))},
        "of_faults": [{name: row[name] for name in FAULT.names} for row in faults],
    }  # fmt: skip


def refuse_unfit(folder: Folder) -> None:
    """FloodmarkError if there is nothing to measure."""
    if not folder.judged or folder.history is None:
        words = [words for _, words in folder.reasons]
        of_history = [why for why in words if why.startswith("history.jsonl")]
        raise FloodmarkError((of_history or words or ["there is no history.jsonl"])[0])


def fault_rows(database: duckdb.DuckDBPyConnection, nemesis: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What each fault was, and how long clients waited; the same for the run, as for a fault of all time."""
    spans = fault_spans((line["index"], line["time"], line["f"], line["fault"]) for line in nemesis)
    times = [(-1, 0, 1 << 64), *((at, span.began_ns, span.over_ns) for at, span in enumerate(spans))]
    given = ", ".join(f"({number}, {began}, {'null' if over is None else over})"
                      for number, began, over in times)
    for statement in (_LOAD, _IN_FORCE % given, _INSTANTS, _WAITS):
        database.execute(statement)
    abouts = [{}, *({
        "index": span.index,
        "kind": span.kind,
        "detail": span.detail,
        "nodes": list(span.nodes),
        "failed": span.failed,
        "began_s": span.began_ns / NS,
        "effect_s": span.effect_ns / NS,
        "mended_s": None if span.mended_ns is None else span.mended_ns / NS,
    } for span in spans)]
    waited = (_rows(database, select) for select in (_FAILED, _GAPS, _RECOVERIES))
    return [about | failed | gap | recovery
            for about, failed, gap, recovery in zip(abouts, *waited, strict=True)]


def _rows(database: duckdb.DuckDBPyConnection, select: str) -> list[Row]:
    answer = database.execute(select)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
