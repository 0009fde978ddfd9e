"""Finds the last log lines of brokers that ended by themselves: in run.json, else at the end of their
logs."""

import os
from collections.abc import Iterator

from floodmark.checkers.laws.finding_names import BROKER_DIED
from floodmark.harness.report.model import Json, mapping, text
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import P, RunAt
from floodmark.harness.run_location import is_safe_name

TAIL_BYTES = 2000
LINES = 3


def died_unquoted(run: RunAt[P], about: Json, verdict: Json) -> Iterator[str]:
    """Yields a sentence for each node that died, unless the paragraph of the finding broker-died quotes its
    lines."""
    found = any(found["name"] == BROKER_DIED for found in verdict.get("findings") or ())
    for node in (harmless(str(node)) for node in about.get("died") or ()):
        saved = [line.strip() for line in saved_log_lines(about, node)]
        shown = saved if len(saved) <= LINES + 1 else [saved[0], "...", *saved[-LINES:]]
        if not (found and saved):
            yield f"{node} ended by itself; its last words: {' | '.join(shown) or log_tail(run, node)}"


def saved_log_lines(about: Json, node: str) -> list[str]:
    """What run.json has of the node's end: how it ended, then the end of its log. Empty: nothing."""
    words = text(mapping(about, "died_words"), node)
    return [line.rstrip() for line in words.splitlines() if line.strip()]


def log_tail(run: RunAt[P], node: str) -> str:
    """The last lines of the node's log, and the log."""
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
