"""Awaits several things at once, and returns only when all of them have ended."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

Answer = TypeVar("Answer")


async def gather_all(awaitables: Iterable[Awaitable[Answer]]) -> list[Answer]:
    """Await all, and return their results in order. The first error is raised only when all have ended, so
    that none runs on in the background."""
    outcomes = await asyncio.gather(*awaitables, return_exceptions=True)
    results: list[Answer] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results
