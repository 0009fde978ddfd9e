"""All families of laws, in the order in which they run: one may ask the tables that one before has made."""

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
