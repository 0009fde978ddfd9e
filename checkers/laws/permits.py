"""What permits a finding, as a number, in the order in which the format names the first that applies."""

from collections.abc import Mapping

ACKS, UNCLEAN, UNCLEAN_MAYBE, BUDGET, BUDGET_MAYBE, RETRIES, SUBSCRIBE, ISOLATION = range(1, 9)
PERMITTED_BY: Mapping[int, str] = {
    ACKS: "acks",
    UNCLEAN: "unclean.leader.election.enable",
    UNCLEAN_MAYBE: "unclean.leader.election.enable",
    BUDGET: "fault budget",
    BUDGET_MAYBE: "fault budget",
    RETRIES: "retries",
    SUBSCRIBE: "subscribe",
    ISOLATION: "isolation",
}
MAYBES = (UNCLEAN_MAYBE, BUDGET_MAYBE)  # permitted, but nobody saw for certain: the name is unknown too
DOUBT = 99  # no finding: nobody can tell whether it is one, and its name is unknown

# Bounds of a permission: an index, or a time in ns. A send that was invoked before the bound is covered.
NEVER = -(1 << 62)  # no send was invoked before this
EVER = 1 << 60  # every send was
