"""Clock offsets and memory limits on a fake cluster: which nodes are struck, with what, how it is undone."""

import asyncio
from typing import Any

import pytest

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS
from floodmark.harness.protocols import Clocks, MemoryLimits, Nemesis, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.clock import Clock
from floodmark.nemesis.memory import Memory


class Recorder:
    """Records its calls in order; the node `refuses` fails."""

    def __init__(self, refuses: str = "") -> None:
        self.calls: list[tuple[str, int | None]] = []
        self._refuses = refuses

    async def bump(self, node: str, offset_ms: int) -> None:
        await self._do(node, offset_ms)

    async def limit(self, node: str, limit_mb: int | None) -> None:
        await self._do(node, limit_mb)

    async def _do(self, node: str, value: int | None) -> None:
        await asyncio.sleep(0)
        if node == self._refuses:
            raise FloodmarkError(f"{node} does not obey")
        self.calls.append((node, value))


def strike(nemesis: Nemesis, f: str, *nodes: str, **args: Any) -> Struck:
    return asyncio.run(nemesis.strike(Entry(f=f, nodes=nodes, args=args), nodes))


def test_a_clock_gets_an_offset_and_is_reset() -> None:
    recorder = Recorder()
    clock = Clock(recorder)

    assert strike(clock, "clock", "n1", "n2", offset_ms=-2500) == Struck(nodes=("n1", "n2"))
    assert strike(clock, "reset_clock", "n1") == Struck(nodes=("n1",))
    assert recorder.calls == [("n1", -2500), ("n2", -2500), ("n1", 0)]


def test_memory_is_limited_and_freed() -> None:
    recorder = Recorder()
    memory = Memory(recorder)

    assert strike(memory, "memory", "n3", limit_mb=32) == Struck(nodes=("n3",))
    assert strike(memory, "free_memory", "n3", "n1") == Struck(nodes=("n3", "n1"))
    assert recorder.calls == [("n3", 32), ("n3", None), ("n1", None)]


@pytest.mark.parametrize(("make", "f", "args"), [
    (Clock, "clock", {"offset_ms": 5}), (Memory, "memory", {"limit_mb": 64})])
def test_all_nodes_are_struck_even_if_one_fails(make: Any, f: str, args: dict[str, int]) -> None:
    """The error is raised only after all were struck."""
    recorder = Recorder(refuses="n1")

    with pytest.raises(FloodmarkError, match="n1 does not obey"):
        strike(make(recorder), f, "n1", "n2", **args)
    assert [node for node, _ in recorder.calls] == ["n2"]


@pytest.mark.parametrize("nemesis", [Clock(Recorder()), Memory(Recorder())])
def test_each_fault_comes_with_the_fault_that_undoes_it(nemesis: Nemesis) -> None:
    for f in nemesis.answers:
        assert FAULTS[f].undone_by is None or FAULTS[f].undone_by in nemesis.answers


def test_clocks_and_memory_limits_are_separate_abilities() -> None:
    class Bumps:
        async def bump(self, node: str, offset_ms: int) -> None: ...

    assert isinstance(Bumps(), Clocks)
    assert not isinstance(Bumps(), MemoryLimits)
