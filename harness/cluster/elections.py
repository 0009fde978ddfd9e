"""Asks for elections: as Kafka's ElectLeaders does, or of one replica by the controller's control socket.

Both return {"elected": [keys], "refused": {key: why}}; a partition whose leader is the right one already
stands in neither.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.cluster import admin_requests
from floodmark.harness.cluster.control_sockets import ControlSockets
from floodmark.harness.protocols import CONTROLLER, PartitionSpec

ASK_S = 10.0


async def elect_as_kafka_does(to: admin_requests.Address, specs: Sequence[PartitionSpec], *, unclean: bool
                ) -> Mapping[str, Any]:
    """Preferred leaders, or unclean ones, as Kafka's ElectLeaders asks for them."""
    asked = {(spec.topic, spec.partition): spec.key for spec in specs}
    results = await admin_requests.elect_leaders(to, list(asked), unclean=unclean, timeout_s=ASK_S)
    return _election_result({asked[where]: error for where, error in results.items() if where in asked})


async def elect_one_replica(
    sockets: ControlSockets, specs: Sequence[PartitionSpec], leader: int, *, unclean: bool
) -> Mapping[str, Any]:
    """This broker and no other: what a reassignment would do. Kafka has no request for it alone."""
    told: dict[int, str | None] = {}
    for spec in specs:
        ok = await sockets.ask(
            CONTROLLER, "elect", timeout_s=ASK_S,
            topic=spec.topic, partition=spec.partition, leader=leader, unclean=unclean,
        )  # fmt: skip
        told[spec.key] = ok["error"]
    return _election_result(told)


def _election_result(errors: Mapping[int, str | None]) -> dict[str, Any]:
    return {
        "elected": sorted(key for key, error in errors.items() if error is None),
        "refused": {
            str(key): error
            for key, error in sorted(errors.items())
            if error is not None and not error.startswith(admin_requests.NOT_NEEDED)
        },
    }
