"""The data that a run's page draws about its clients: every op as four small numbers, the acked records near
a finding, and how long clients waited at each fault, as the measures define it.

Rules
1. One pass over history.jsonl, whatever else in the folder is missing or broken. What is wrong with the
   history is a sentence in `problems`.
2. An op is drawn if its invocation can be read; one without an answer is info, and ends with the history.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.stats.clients import database_of, facts_of, read_history
from floodmark.checkers.stats.measures import fault_rows, refuse_unfit
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import Run

Near = tuple[int, int, int]  # partition, first offset, the offset after the last

OPS_AT_MOST = 500_000  # more would make a page too large to send
BYTES_AT_MOST = 1 << 31
THREADS = 2  # the parser works outside Python's lock


# The `columns` of Seen.
_COLUMNS = """
with shown as (
    select *, floor(began / 1000) as us, coalesce(answer.type = 'ok', false) as ok
    from ops order by began, "at" limit $most)
select (us - lag(us, 1, 0) over (order by began, "at"))::bigint as began,
    (greatest(0, coalesce(answer.time, (select greatest(0, max(time)) from lines)) - shown.began)
        // 1000)::bigint as lasted,
    case when ok then 0 when answer.type = 'fail' then 1 else 2 end
        + case f when 'send' then 0 when 'poll' then 3 else 6 end as what,
    case when ok then answer.records else 0 end as records
from shown order by shown.began, "at\""""
_ACKED = """
select partition, "offset", value, least(coalesce(began, time), time)::bigint, time::bigint
from sends s left join ops on answer."at" = s."at"
where type = 'ok'"""


class Acked(NamedTuple):
    """An acked record near a finding; when its op was invoked and when it was acked, in ns."""

    partition: int
    offset: int
    value: int
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The ops of a run's clients, as its page draws them. Times: ns since it began, except in `columns`."""

    last_ns: int = 0
    ops: int = 0  # the number of ops; the columns may have fewer
    # In the order of the invocations: `began` (us since the op before), `lasted` (us), `what` (ok, fail,
    # info: 0, 1, 2; for polls 3 more; for anything else 6 more), `records` that the ok ops sent and read.
    columns: Mapping[str, Sequence[int]] = field(
        default_factory=lambda: dict.fromkeys(("began", "lasted", "what", "records"), ()))
    acked: Sequence[Acked] = ()
    faults: Sequence[Mapping[str, Any]] = ()  # columns of tables.FAULT
    unmeasured: str = ""  # why `faults` is empty; "": it is complete
    problems: Sequence[str] = ()  # with the history


def seen(place: Path, near: Sequence[Near], ops_at_most: int = OPS_AT_MOST) -> Seen:
    """near: the ranges in which acked records are wanted one by one."""
    run = Run(folder=place)
    name, why = run.history_path.name, ""
    try:
        run.open(run.history_path).close()
        if run.history_path.stat().st_size > BYTES_AT_MOST:
            why = f"{name} has more than {BYTES_AT_MOST >> 20} MB: clients' ops are not shown"
        else:
            return _seen(run, near, ops_at_most)
    except FileNotFoundError:
        why = f"there is no {name}"
    except OSError as error:
        why = f"{name} cannot be read: {error.strerror or error}"
    return Seen(unmeasured=why, problems=(why,))


def _seen(run: Run, near: Sequence[Near], ops_at_most: int) -> Seen:
    place, name, problems = run.folder, run.history_path.name, list[str]()
    folder = open_folder(place)
    threads = min(THREADS, os.cpu_count() or 1)
    history = list(read_history(run.history_path, folder.special, threads=threads))
    facts = facts_of(history)
    with database_of(history, folder.special) as database:
        faults: Sequence[Mapping[str, Any]] = ()
        why = ""
        try:
            refuse_unfit(folder)
            faults = fault_rows(database, facts.nemesis)[1:]
        except FloodmarkError as error:
            why = str(error)
        # All clients' ops, also of those that settle the cluster and of the final reads.
        ((count,),) = database.execute("select count(*) from ops").fetchall()
        columns = database.sql(_COLUMNS, params={"most": ops_at_most}).to_arrow_table()
        wanted = " or ".join(f'partition = {of} and "offset" >= {max(first, 0)} and "offset" < {behind}'
                             for of, first, behind in near)
        acked = database.execute(_ACKED + f" and ({wanted or False}) order by s.\"at\", pos").fetchall()
    if broken := facts.broken - folder.torn:
        problems.append(f"{name}: {broken:,} line(s) are not in format 1 and were skipped")
    if count > ops_at_most:
        problems.append(f"the drawings show the first {ops_at_most:,} of {count:,} ops")
    return Seen(
        last_ns=0 if facts.order is None else facts.order.highest_time,
        faults=faults, unmeasured=why, problems=problems, ops=count,
        columns={name: columns[name].to_pylist() for name in columns.column_names},
        acked=[Acked(*row) for row in acked])

