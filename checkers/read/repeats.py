"""Finds which values are sent more than once, and which are answered more often than sent.

Input: micro-sends (columns run, value, index, type of checkers.laws.tables `sends`), all of a value together
(a bag, by the hash of the value), of any number of runs, in any order. A value must be unique in its run,
whatever the partition.
"""

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read.facts import REPEATED_SHOWN, AcrossFacts
from floodmark.checkers.read.json_lines import selected

_BY_VALUE = """
    select run, value, count(*) filter (type = 'invoke') as sent, count(*) - sent > sent as is_strange,
           max("index") as last
    from given group by run, value having sent > 1 or is_strange order by run, value
"""
_BY_RUN = f"""
    select run, coalesce(min(value, {REPEATED_SHOWN}) filter (sent > 1), []), min(last) filter (is_strange)
    from given group by run order by run
"""


def repeats(sends: pa.Table) -> tuple[pa.Table, list[AcrossFacts]]:
    """The table `repeated` of these values, by run and value, and the facts of each run that has any. The
    last answer to a value that was answered more often than sent fits no invocation, whatever else its
    process had open."""
    found = selected(sends, _BY_VALUE)
    rows = zip(*(column.to_pylist() for column in selected(found, _BY_RUN)), strict=True)
    repeated = found.filter(pc.greater(found["sent"], 1)).select(["run", "value"])
    return repeated.cast(TABLES["repeated"]), [
        AcrossFacts(run=run, repeated=tuple(values), unmatched=unmatched) for run, values, unmatched in rows]
