"""Clocks set off and memory limited, on a cluster in memory: who is struck, with what, and how it ends."""

import asyncio
from typing import Any

import pytest

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS
from floodmark.harness.protocols import Clocks, MemoryLimits, Nemesis, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.clock import Clock
from floodmark.nemesis.memory import Memory


class Told:
    """What it was told, in order; `refuses` does not obey."""

    def __init__(self, refuses: str = "") -> None:
        self.did: list[tuple[str, int | None]] = []
        self._refuses = refuses

    async def bump(self, node: str, offset_ms: int) -> None:
        await self._do(node, offset_ms)

    async def limit(self, node: str, limit_mb: int | None) -> None:
        await self._do(node, limit_mb)

    async def _do(self, node: str, value: int | None) -> None:
        await asyncio.sleep(0)
        if node == self._refuses:
            raise FloodmarkError(f"{node} does not obey")
        self.did.append((node, value))


def strike(nemesis: Nemesis, f: str, *nodes: str, **args: Any) -> Struck:
    return asyncio.run(nemesis.strike(Entry(f=f, nodes=nodes, args=args), nodes))


def test_a_clock_is_set_off_and_right_again() -> None:
    told = Told()
    clock = Clock(told)

    assert strike(clock, "clock", "n1", "n2", offset_ms=-2500) == Struck(nodes=("n1", "n2"))
    assert strike(clock, "reset_clock", "n1") == Struck(nodes=("n1",))
    assert told.did == [("n1", -2500), ("n2", -2500), ("n1", 0)]


def test_memory_is_limited_and_freed() -> None:
    told = Told()
    memory = Memory(told)

    assert strike(memory, "memory", "n3", limit_mb=32) == Struck(nodes=("n3",))
    assert strike(memory, "free_memory", "n3", "n1") == Struck(nodes=("n3", "n1"))
    assert told.did == [("n3", 32), ("n3", None), ("n1", None)]


@pytest.mark.parametrize(("make", "f", "args"), [
    (Clock, "clock", {"offset_ms": 5}), (Memory, "memory", {"limit_mb": 64})])
def test_one_that_fails_spares_nobody(make: Any, f: str, args: dict[str, int]) -> None:
    """All are struck before the error is raised: none goes on unseen."""
    told = Told(refuses="n1")

    with pytest.raises(FloodmarkError, match="n1 does not obey"):
        strike(make(told), f, "n1", "n2", **args)
    assert [node for node, _ in told.did] == ["n2"]


@pytest.mark.parametrize("nemesis", [Clock(Told()), Memory(Told())])
def test_what_is_answered_has_what_undoes_it(nemesis: Nemesis) -> None:
    for f in nemesis.answers:
        assert FAULTS[f].undone_by is None or FAULTS[f].undone_by in nemesis.answers


def test_the_abilities_can_be_told_apart() -> None:
    class Bumps:
        async def bump(self, node: str, offset_ms: int) -> None: ...

    assert isinstance(Bumps(), Clocks)
    assert not isinstance(Bumps(), MemoryLimits)
