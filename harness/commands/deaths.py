"""Nodes that ended without being asked to, each with the end of what it had to say."""

from collections.abc import Mapping
from typing import Any

from harness.run import Run

TAIL_BYTES = 2000
LINES = 3


def died(about: Mapping[str, Any]) -> list[str]:
    """The nodes that run.json names."""
    return [str(node) for node in about.get("died") or ()]


def last_words(run: Run, about: Mapping[str, Any]) -> dict[str, str]:
    """Of each node that died: the end of its log, or that there is none."""
    return {node: _tail(run, node) for node in died(about)}


def _tail(run: Run, node: str) -> str:
    log = run.work_folder / f"{node}.log"
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return f"none ({log} is not there)"
    return f"{' | '.join(line.strip() for line in lines[-LINES:]) or 'none'} ({log})"
