"""The laws: what a correct cluster keeps, each written once, over the tables of one unit of work.

Start with tables.py, the contract: which tables a unit has, column by column. unit.py runs SELECTs over them
in DuckDB; every other module is one family of laws. Nothing here knows Spark, files or folders.
"""

from collections.abc import Sequence

from checkers.laws.log import log
from checkers.laws.outcomes import outcomes
from checkers.laws.polls import polls
from checkers.laws.registered import registered
from checkers.laws.replicas import replicas
from checkers.laws.sends import sends
from checkers.laws.trace.cluster_views import cluster_views
from checkers.laws.trace.completeness import completeness
from checkers.laws.trace.epoch_spans import epoch_spans
from checkers.laws.trace.node_timeline import node_timeline
from checkers.laws.trace.quorums import quorums
from checkers.laws.trace.trace_checks import trace_checks
from checkers.laws.transactions import transactions
from checkers.laws.unit import Family
from checkers.laws.values import values

# In the order in which they run: a family may ask the tables that one before it has made.
FAMILIES: Sequence[Family] = (
    # One line each.
    log,
    replicas,
    values,
    outcomes,
    sends,
    polls,
    transactions,
    node_timeline,
    trace_checks,
    cluster_views,
    quorums,
    epoch_spans,
    completeness,
    registered,
)
