"""Polls a condition until it is true, with a time-out error that says what it waited for; decides whether a
cluster is ready."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from floodmark.harness import runtime
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import UNKNOWN, View

POLL_S = 0.02


async def wait_until(unmet: Callable[[], Awaitable[str | None]], awaited: str, timeout_s: float) -> None:
    """Polls until `unmet` returns None; FloodmarkError with its last reason at the time-out."""
    deadline = runtime.monotonic_s() + timeout_s
    while (why := await unmet()) is not None:
        if runtime.monotonic_s() > deadline:
            raise FloodmarkError(f"waited {timeout_s:g} s for {awaited}: {why}")
        await asyncio.sleep(POLL_S)


def healthy(look: View, partitions: Sequence[PartitionSpec], nodes: Sequence[str]) -> str | None:
    """None, or the first reason why a cluster is not ready: a fenced node, a partition without a leader, an
    ISR that is not full, or a leader that does not know."""
    for node in nodes:
        if node not in look.unfenced:
            return f"{node} is fenced or not registered"
    for spec in partitions:
        truth = look.partitions.get(spec.key)
        where = f"{spec.topic}-{spec.partition}"
        if truth is None:
            return f"the controller does not know {where}"
        if truth.leader is None:
            return f"{where} has no leader"
        if set(truth.isr) != set(spec.replicas):
            return f"the ISR of {where} is {', '.join(truth.isr)}"
        own = look.replicas.get((truth.leader, spec.key))
        if own is None or own.leader not in (truth.leader, UNKNOWN) or own.epoch not in (
                truth.epoch, UNKNOWN):
            return f"{truth.leader} does not yet know that it leads {where}"
        if own.isr is not UNKNOWN and set(own.isr) != set(spec.replicas):
            return f"{truth.leader} does not yet know the full ISR of {where}"
    return None
