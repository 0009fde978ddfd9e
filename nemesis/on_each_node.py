"""Runs one act on several nodes at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Answer = TypeVar("Answer")


async def on_each_node(act: Callable[[str], Awaitable[Answer]], nodes: Sequence[str]) -> list[Answer]:
    """Returns the answers in the nodes' order. All acts end before the first error is raised."""
    outcomes = await asyncio.gather(*(act(node) for node in nodes), return_exceptions=True)
    answers: list[Answer] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        answers.append(outcome)
    return answers
