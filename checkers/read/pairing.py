"""Finds which completion answers which invocation, and which processes have two ops open at once.

Input: lines of clients, for all of some processes of any number of runs (a bag, by the hash of the process),
in the columns of checkers.laws.tables `lines`, in any order of rows. `at` is the place in the file. `ident`
is a number for the partitions and values that a send or txn names; null if it names none.

Rules
1. A completion answers the last line of its process that has the same f and names the same sends, if that is
   an invocation. One that names no sends answers the line before it, if that is an invocation of the same f
   that names none either, and no other op of the process is open. Otherwise it is ambiguous.
2. A completion is unmatched if its process has no op open; or if it has one, which the line before it
   invoked, and that has another f or names other sends. With two ops open it is ambiguous.
3. A process overlaps where it invokes an op and its line before is an invocation, or some earlier line is an
   info or unmatched.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read.json_lines import selected

# Each line beside the one before it of its process; open: ops of the process before it, below 0 if it had
# too many completions.
_BESIDE = """
    select *, type = 'invoke' as invokes,
           coalesce(lag(type) over process = 'invoke', false) as follows_invoke,
           coalesce(sum(if(type = 'invoke', 1, -1)) over before, 0) as open,
           lag(f) over process = f and lag(sends) over process is not distinct from sends as is_like_last
    from (select *, if(f in ('send', 'txn'), ident, null) as sends from given where process >= 0)
    window process as (partition by run, process order by "at"),
           before as (process rows between unbounded preceding and 1 preceding)
"""
_WRONG = f"""
    with marked as (
        select *, not invokes and (open <= 0 or open = 1 and follows_invoke and not is_like_last)
            as is_unmatched
        from ({_BESIDE})),
    told as (
        select *, invokes and (follows_invoke or coalesce(bool_or(type = 'info' or is_unmatched) over (
            partition by run, process order by "at" rows between unbounded preceding and 1 preceding), false)
            ) as is_second
        from marked)
    select run, process, min("index") filter (is_unmatched), min("index") filter (is_second) from told
    where is_unmatched or is_second group by run, process
"""
# Of a line that names sends the counterpart is beside it among those that name the same; of others, beside it
# among all of its process.
_ANSWERS = f"""
    select run, "at", if(answers, asked, null) as answers, if(answers, asked_index, null) as answers_index,
           if(invokes and sends is not null, coalesce(next <> 'invoke', false), null) as answered
    from (select *, not invokes and if(sends is null, follows_invoke and is_like_last and open = 1,
                                       lag(type) over alike = 'invoke') as answers,
                 lag("at") over alike as asked, lag("index") over alike as asked_index,
                 lead(type) over alike as next
          from (select *, if(sends is null, null, f) as same_f from ({_BESIDE}))
          window alike as (partition by run, process, same_f, sends order by "at"))
"""

ANSWERS = TABLES["answers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingFacts:
    """What the driver learns about one run's processes in a bag."""

    run: int
    unmatched: int | None = None  # lowest index of a completion that fits no invocation
    # process -> lowest index at which it had two ops open, or invoked one after an info
    overlapping: Mapping[int, int] = field(default_factory=dict)


def pairing(lines: pa.Table) -> list[PairingFacts]:
    """What is wrong in these processes: one for each run in which anything is."""
    wrong = defaultdict[int, list[PairingFacts]](list)
    rows = zip(*(column.to_pylist() for column in selected(lines, _WRONG)), strict=True)
    for run, process, unmatched, overlaps in rows:
        overlapping = {} if overlaps is None else {process: overlaps}
        wrong[run].append(PairingFacts(run=run, unmatched=unmatched, overlapping=overlapping))
    return [merged(facts, run) for run, facts in sorted(wrong.items())]


def answers(lines: pa.Table) -> pa.Table:
    """A row of ANSWERS for every line of a client."""
    return selected(lines, _ANSWERS).cast(ANSWERS)


def merged(facts: Iterable[PairingFacts], run: int) -> PairingFacts:
    """Merge those of one run, from all bags."""
    mine = [each for each in facts if each.run == run]
    overlapping = dict[int, int]()
    for each in mine:
        for process, index in each.overlapping.items():
            overlapping[process] = min(index, overlapping.get(process, index))
    unmatched = min((each.unmatched for each in mine if each.unmatched is not None), default=None)
    return PairingFacts(run=run, unmatched=unmatched, overlapping=overlapping)
