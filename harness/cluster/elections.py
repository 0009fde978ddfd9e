"""Requests elections by Kafka's ElectLeaders, and returns their result as harness.protocols: Elects says. A
partition whose leader is the right one already is neither elected nor refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.cluster import admin_requests
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec

ASK_S = 30.0


def chosen(specs: Sequence[PartitionSpec], partitions: Sequence[int]) -> list[PartitionSpec]:
    """Those with these keys; none: all."""
    found = [spec for spec in specs if not partitions or spec.key in partitions]
    if unknown := sorted(set(partitions) - {spec.key for spec in found}):
        raise FloodmarkError(f"there is no partition {unknown[0]} to elect a leader for")
    return found


async def elect(to: admin_requests.Address, specs: Sequence[PartitionSpec], *, unclean: bool
                ) -> dict[int, str | None]:
    """Elects preferred leaders, or unclean ones; returns the error of each partition, by key."""
    asked = {(spec.topic, spec.partition): spec.key for spec in specs}
    results = await admin_requests.elect_leaders(to, list(asked), unclean=unclean, timeout_s=ASK_S)
    return {asked[where]: error for where, error in results.items() if where in asked}


def election_result(errors: Mapping[int, str | None]) -> dict[str, Any]:
    return {
        "elected": sorted(key for key, error in errors.items() if error is None),
        "refused": {
            str(key): error
            for key, error in sorted(errors.items())
            if error is not None and not error.startswith(admin_requests.NOT_NEEDED)
        },
    }
