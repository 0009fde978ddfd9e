"""Runs one act on several nodes at once."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from floodmark.harness.gathering import gather_all

Answer = TypeVar("Answer")


async def on_each_node(act: Callable[[str], Awaitable[Answer]], nodes: Sequence[str]) -> list[Answer]:
    """Return the answers in the nodes' order. All calls end before the first error is raised."""
    return await gather_all(map(act, nodes))
