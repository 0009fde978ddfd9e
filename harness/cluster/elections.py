"""Asks for elections by Kafka's ElectLeaders, and says what came of them.

An answer is {"elected": [keys], "refused": {key: why}}; a partition whose leader is the right one already
stands in neither.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.cluster import admin_requests
from floodmark.harness.protocols import PartitionSpec

ASK_S = 10.0


async def elect_as_kafka_does(to: admin_requests.Address, specs: Sequence[PartitionSpec], *, unclean: bool
                ) -> Mapping[str, Any]:
    """Preferred leaders, or unclean ones, as Kafka's ElectLeaders asks for them."""
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
