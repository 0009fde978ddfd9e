"""Does several things at once, and ends with all of them ended."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

Answer = TypeVar("Answer")


async def gather_all(acts: Iterable[Awaitable[Answer]]) -> list[Answer]:
    """The answers in order. All acts end before the first error is raised: none goes on unseen."""
    outcomes = await asyncio.gather(*acts, return_exceptions=True)
    answers: list[Answer] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        answers.append(outcome)
    return answers
