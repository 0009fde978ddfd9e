"""The causes that permit a finding, as numbers, in the format's order: the first that applies counts."""

from collections.abc import Mapping

ACKS, UNCLEAN, UNCLEAN_MAYBE, BUDGET, BUDGET_MAYBE, RETRIES, SUBSCRIBE, ISOLATION = range(1, 9)  # see `maybe`
INTERNAL_MAYBE, INTERNAL = 9, 10  # in this order: torn_transactions.py takes the least, 0 for none
PERMITTED_BY: Mapping[int, str] = {
    ACKS: "acks",
    UNCLEAN: "unclean.leader.election.enable",
    UNCLEAN_MAYBE: "unclean.leader.election.enable",
    BUDGET: "fault budget",
    BUDGET_MAYBE: "fault budget",
    RETRIES: "retries",
    SUBSCRIBE: "subscribe",
    ISOLATION: "isolation",
    INTERNAL: "internal topics",
    INTERNAL_MAYBE: "internal topics",
}
MAYBES = (UNCLEAN_MAYBE, BUDGET_MAYBE, INTERNAL_MAYBE)  # possibly permitted: the name is unknown too
DOUBT = 99  # no finding: nobody knows whether it is one, and its name is unknown

# Bounds of a permission: an index, or a time in ns. A send that was invoked before the bound is covered.
NEVER = -(1 << 62)  # no send was invoked before this
EVER = 1 << 60  # every send was


def maybe(permit: str) -> str:
    """The doubtful kind of a permit by elections or by the budget, an expression: the next odd number."""
    return f"({permit} | 1)"
