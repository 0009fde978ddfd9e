"""The laws of any trace find a wrong one; the trace of a scenario keeps them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trace_laws
from simulated_scenarios import ALL, plays

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two leaders, a former one that returns with a tail to truncate, an ISR that shrinks and grows."""
    part = next(part for part in ALL if part.scenario.name == "refused-and-reverted" and part.row.control)
    (played,) = plays([part], tmp_path_factory.mktemp("played"))
    return played.folder


def test_a_healthy_folder_keeps_the_laws_and_is_complete(folder: Path) -> None:
    assert trace_laws.breaches(folder) == []
    events = {line["event"] for line in trace_laws.rows(folder / "trace.jsonl")}
    assert events >= {"append", "ack", "fetch", "hw", "truncate", "start", "isr", "isr_proposed", "elect"}


# -- the laws find wrong traces ---------------------------------------------------------------------------


def first(lines: Lines, event: str) -> dict[str, Any]:
    return next(line for line in lines if line["event"] == event)


def dropped(event: str) -> Callable[[Lines], None]:
    """The line is missing, and the seqs of its node are renumbered, so that only the other lines show it."""

    def damage(lines: Lines) -> None:
        gone = first(lines, event)
        lines.remove(gone)
        for line in lines:
            if line["node"] == gone["node"] and line["seq"] > gone["seq"]:
                line["seq"] -= 1

    return damage


def changed(of: str, **fields: Any) -> Callable[[Lines], None]:
    return lambda lines: first(lines, of).update(fields)


def late(lines: Lines) -> None:
    """The ack is in its place but its time is after the client received it."""
    at = next(index for index, line in enumerate(lines) if line["event"] == "ack")
    for line in lines[at:]:
        line["time"] += 1_000_000


DAMAGES: dict[str, Callable[[Lines], None]] = {
    "append lost": dropped("append"),
    "truncation lost": dropped("truncate"),
    "hw lost": dropped("hw"),
    "ack lost": dropped("ack"),
    "isr lost": lambda lines: lines.remove(next(
        line for line in lines if line["event"] == "isr" and line["node"] == "controller")),
    "wrong epochs": changed("append", epochs=[[7, 0]]),
    "wrong leo": changed("append", leo=9),
    "hw recorded early": changed("append", hw=1),
    "ack late": late,
    "fetch from a wrong offset": changed("fetch", offset=3),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_laws_find_a_wrong_trace(damage: str, folder: Path, tmp_path: Path) -> None:
    for path in ("run.json", "history.jsonl", "replicas.jsonl", "logs"):
        (tmp_path / path).symlink_to(folder / path)
    lines = trace_laws.rows(folder / "trace.jsonl")
    DAMAGES[damage](lines)
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert trace_laws.breaches(tmp_path)
