"""All families of laws, in the order in which they run: each may use the tables of the ones before it.

A unit of which no run has a trace does without the families of the trace: each of their findings is about a
row of `traced`. Only where checks of other distributions are installed these run too, because such a check
may use their tables.
"""

from collections.abc import Sequence

from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.outcomes import outcomes
from floodmark.checkers.laws.polls import polls
from floodmark.checkers.laws.registered import loaded, registered
from floodmark.checkers.laws.replicas import replicas
from floodmark.checkers.laws.sends import sends
from floodmark.checkers.laws.trace.cluster_views import cluster_views
from floodmark.checkers.laws.trace.completeness import completeness
from floodmark.checkers.laws.trace.epoch_spans import epoch_spans
from floodmark.checkers.laws.trace.high_watermarks import high_watermarks
from floodmark.checkers.laws.trace.node_timeline import node_timeline
from floodmark.checkers.laws.trace.quorums import quorums
from floodmark.checkers.laws.trace.recovery import recovery
from floodmark.checkers.laws.trace.trace_checks import trace_checks
from floodmark.checkers.laws.transactions import transactions
from floodmark.checkers.laws.unit import Family, Unit
from floodmark.checkers.laws.values import values

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
    recovery,
    high_watermarks,
    cluster_views,
    quorums,
    epoch_spans,
    completeness,
    registered,
)
OF_TRACE: Sequence[Family] = (
    node_timeline, trace_checks, recovery, high_watermarks, cluster_views, quorums, epoch_spans, completeness,
)  # fmt: skip


def needed_in(unit: Unit, families: Sequence[Family]) -> Sequence[Family]:
    """Those of the families that the unit needs."""
    everything = not unit.is_empty("traced") or loaded()
    return families if everything else [family for family in families if family not in OF_TRACE]
