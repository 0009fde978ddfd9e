"""Finds which completion answers which invocation, and which processes have two ops open at once.

Input: lines of clients, for all of some processes of any number of runs (a bag, by the hash of the process),
in the columns of checkers.laws.tables `lines`, in any order of rows. `at` is the place in the file. `ident`
is a number for the partitions and values that a send or txn names; null if it names none.

Rules
1. A completion answers the last line of its process that has the same f and names the same sends, if that is
   an invocation. One that names no sends answers the line before it, if that is an invocation of the same f
   that names none either, and no other op of the process is open. Otherwise it is ambiguous.
2. A completion is unmatched if no op is open in its process that has the same f and names the same sends.
3. A process overlaps where it invokes an op and its line before is an invocation, or some earlier line is an
   info or unmatched.
"""


import pyarrow as pa

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read.facts import AcrossFacts
from floodmark.checkers.read.json_lines import selected

_WRONG = """
    with marked as (
        select *, type = 'invoke' as invokes, not invokes and coalesce(sum(if(type = 'invoke', 1, -1)) over (
                partition by run, process, f, ident order by "at"
                rows between unbounded preceding and 1 preceding), 0) <= 0 as is_unmatched,
            lag(type) over (partition by run, process order by "at") = 'invoke' as follows_invoke
        from given),
    unclear as (
        select run, process, min("at") as since from marked where type = 'info' or is_unmatched group by all),
    told as (
        select m.*, invokes and (follows_invoke or "at" > since) as is_second
        from marked m left join unclear using (run, process)),
    of_processes as (
        select run, process, min("index") filter (is_unmatched) as unmatched,
            min("index") filter (is_second) as second
        from told where is_unmatched or is_second group by run, process)
    select run, min(unmatched), map_from_entries(list((process, second)) filter (second is not null))
    from of_processes group by run order by run
"""
# Of a line that names sends the counterpart is beside it among those that name the same; of others, beside it
# among all of its process.
_ANSWERS = """
    select run, "at", if(answers, asked, null) as answers, if(answers, asked_index, null) as answers_index,
           if(invokes and ident is not null, coalesce(next <> 'invoke', false), null) as answered
    from (select *, not invokes and if(ident is null, is_like_last and open = 1,
                                       lag(type) over alike = 'invoke') as answers,
                 lag("at") over alike as asked, lag("index") over alike as asked_index,
                 lead(type) over alike as next
          from (select *, type = 'invoke' as invokes, if(ident is null, null, f) as same_f,
                       lag(type) over process = 'invoke' and lag(f) over process = f
                           and lag(ident) over process is null as is_like_last,
                       sum(if(type = 'invoke', 1, -1)) over (
                           process rows between unbounded preceding and 1 preceding) as open
                from given window process as (partition by run, process order by "at"))
          window alike as (partition by run, process, same_f, ident order by "at"))
"""

ANSWERS = TABLES["answers"]


def pairing(lines: pa.Table) -> list[AcrossFacts]:
    """What is wrong in these processes: one for each run in which anything is."""
    rows = zip(*(column.to_pylist() for column in selected(lines, _WRONG)), strict=True)
    return [AcrossFacts(run=run, unmatched=unmatched, overlapping=dict(overlapping or ()))
            for run, unmatched, overlapping in rows]  # fmt: skip


def answers(lines: pa.Table) -> pa.Table:
    """A row of ANSWERS for every line of a client."""
    return selected(lines, _ANSWERS).cast(ANSWERS)
