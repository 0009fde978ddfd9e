"""Finds which values are sent more than once, and which are answered more often than sent.

Input: micro-sends (columns run, value, index, type of checkers.laws.tables `sends`), all of a value together
(a bag, by the hash of the value), of any number of runs, in any order. A value must be unique in its run,
whatever the partition.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read.json_lines import selected

SHOWN = 5  # values that a reason names
_BY_VALUE = """
    select run, value, count(*) filter (type = 'invoke') as sent, count(*) - sent > sent as is_strange,
           max("index") as last
    from given group by run, value having sent > 1 or is_strange order by run, value
"""
_BY_RUN = f"""
    select run, coalesce(min(value, {SHOWN}) filter (sent > 1), []), min(last) filter (is_strange)
    from given group by run order by run
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatFacts:
    """What the driver learns about one run's values in a bag."""

    run: int
    repeated: tuple[int, ...] = ()  # the lowest few that were sent more than once
    # Lowest index of the last answer to a value that was answered more often than sent: it fits no
    # invocation, whatever else its process had open.
    unmatched: int | None = None


def repeats(sends: pa.Table) -> tuple[pa.Table, list[RepeatFacts]]:
    """The table `repeated` of these values, by run and value, and the facts of each run that has any."""
    found = selected(sends, _BY_VALUE)
    rows = zip(*(column.to_pylist() for column in selected(found, _BY_RUN)), strict=True)
    repeated = found.filter(pc.greater(found["sent"], 1)).select(["run", "value"])
    return repeated.cast(TABLES["repeated"]), [
        RepeatFacts(run=run, repeated=tuple(values), unmatched=unmatched) for run, values, unmatched in rows]


def merged(facts: Iterable[RepeatFacts], run: int) -> RepeatFacts:
    """Merge those of one run, from all bags."""
    mine = [each for each in facts if each.run == run]
    values = sorted(value for each in mine for value in each.repeated)[:SHOWN]
    unmatched = min((each.unmatched for each in mine if each.unmatched is not None), default=None)
    return RepeatFacts(run=run, repeated=tuple(values), unmatched=unmatched)
