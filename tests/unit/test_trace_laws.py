"""The laws of any trace find a wrong one; the trace of a scenario keeps them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trace_laws
from folders import lines_of, write_lines
from simulated_scenarios import ALL, plays

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two leaders, a former one that returns with a tail to truncate, an ISR that shrinks and grows."""
    part = next(part for part in ALL if part.scenario.name == "refused-and-reverted" and part.row.control)
    (played,) = plays([part], tmp_path_factory.mktemp("played"))
    return played.folder


def first(lines: Lines, event: str) -> int:
    return next(at for at, line in enumerate(lines) if line["event"] == event)


def lost(event: str) -> Callable[[Lines], object]:
    return lambda lines: lines.pop(first(lines, event))


def changed(of: str, **fields: Any) -> Callable[[Lines], object]:
    return lambda lines: lines[first(lines, of)].update(fields)


def late(lines: Lines) -> None:
    """The ack is in its place but its time is after the client received it."""
    for line in lines[first(lines, "ack"):]:
        line["time"] += 1_000_000


def unruled(lines: Lines) -> None:
    lines.remove(next(line for line in lines if line["event"] == "isr" and line["node"] == "controller"))


@pytest.mark.parametrize("damage", [
    *map(lost, ("append", "truncate", "hw", "ack")), unruled, late, changed("append", epochs=[[7, 0]]),
    changed("append", leo=9), changed("append", hw=1), changed("fetch", offset=3), None])
def test_the_laws_find_a_wrong_trace(
        damage: Callable[[Lines], object] | None, folder: Path, tmp_path: Path) -> None:
    for path in ("run.json", "history.jsonl", "replicas.jsonl", "logs"):
        (tmp_path / path).symlink_to(folder / path)
    lines = lines_of(folder / "trace.jsonl")
    if damage is not None:
        damage(lines)
    write_lines(tmp_path / "trace.jsonl", lines)
    assert (trace_laws.breaches(tmp_path) == []) is (damage is None)
