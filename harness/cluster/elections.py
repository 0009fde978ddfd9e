"""Requests elections by Kafka's ElectLeaders, and returns their result as {"elected": [keys], "refused":
{key: why}}. A partition whose leader is the right one already is in neither.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.cluster import admin_requests
from floodmark.harness.protocols import PartitionSpec

ASK_S = 30.0


async def elect_by_kafka(to: admin_requests.Address, specs: Sequence[PartitionSpec], *, unclean: bool
                ) -> Mapping[str, Any]:
    """Elects preferred leaders, or unclean ones, by Kafka's ElectLeaders."""
    asked = {(spec.topic, spec.partition): spec.key for spec in specs}
    results = await admin_requests.elect_leaders(to, list(asked), unclean=unclean, timeout_s=ASK_S)
    return election_result({asked[where]: error for where, error in results.items() if where in asked})


def election_result(errors: Mapping[int, str | None]) -> dict[str, Any]:
    return {
        "elected": sorted(key for key, error in errors.items() if error is None),
        "refused": {
            str(key): error
            for key, error in sorted(errors.items())
            if error is not None and not error.startswith(admin_requests.NOT_NEEDED)
        },
    }
