"""Finds the last log lines of brokers that ended by themselves: in run.json, else at the end of their
logs."""

import os
from collections.abc import Mapping
from typing import Any

from floodmark.checkers.laws.finding_names import BROKER_DIED
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import P, RunAt
from floodmark.harness.run_location import is_safe_name

TAIL_BYTES = 2000
LINES = 3


def nodes_that_died(about: Mapping[str, Any]) -> list[str]:
    """The nodes that ended without being asked to, as run.json names them."""
    return [harmless(str(node)) for node in about.get("died") or ()]


def final_log_lines(run: RunAt[P], about: Mapping[str, Any]) -> dict[str, str]:
    """By node that died: its last log lines from run.json, else from the end of its log, else "none"."""
    return {node: " | ".join(saved_log_lines(about, node)) or _tail(run, node)
            for node in nodes_that_died(about)}


def died_unquoted(run: RunAt[P], about: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[str]:
    """A sentence for each node that died, unless the paragraph of the finding broker-died quotes its
    lines."""
    found = any(found["name"] == BROKER_DIED for found in verdict.get("findings") or ())
    return [f"{node} ended by itself; its last words: {lines}"
            for node, lines in final_log_lines(run, about).items()
            if not (found and saved_log_lines(about, node))]


def saved_log_lines(about: Mapping[str, Any], node: str) -> list[str]:
    """What run.json has of the node's end: how it ended, then the end of its log. Empty: nothing."""
    saved = about.get("died_words")
    text = saved.get(node) if isinstance(saved, Mapping) else None
    lines = [line.strip() for line in text.splitlines() if line.strip()] if isinstance(text, str) else []
    return lines if len(lines) <= LINES + 1 else [lines[0], "...", *lines[-LINES:]]


def _tail(run: RunAt[P], node: str) -> str:
    if not is_safe_name(node):
        return "none (no broker has such a name)"
    log = run.work_folder / f"{node}.log"
    try:
        with run.open(log) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return f"none ({log} is not there)"
    except OSError as error:
        return f"none ({log} cannot be read: {error.strerror or error})"
    return harmless(f"{' | '.join(line.strip() for line in lines[-LINES:]) or 'none'} ({log})")
