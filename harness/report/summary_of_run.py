"""Sums up a judged run for its campaign: how it ended, and the signatures of what was found."""

from collections import Counter
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import Any

import orjson

from floodmark.checkers.laws.finding_names import STUCK
from floodmark.harness.campaign.signatures import events_of, signatures
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report.run_outcome import UNKNOWN, Ruling, ruling
from floodmark.harness.report.schedule_outcome import NO_STRIKES
from floodmark.harness.run import Run
from floodmark.harness.verdict import BUG


def summary_of(run: Run, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a run. kind: of run_outcome.py, or STUCK if that is its only bug; why: a sentence if it
    is no violation; harness: whether the run itself failed; then signatures as rows, acked writes, planned
    faults by kind, and the folder's bytes."""
    try:
        about = run.about()
    except FloodmarkError:
        about = {}
    ruled = ruling(verdict, about or None)
    bugs = {found["name"] for found in verdict["findings"] if found["class"] == BUG}
    kind = STUCK if bugs == {STUCK} else ruled.kind
    lines = lines_of(run, events_of(verdict))
    faults = Counter(name for entry in about.get("schedule") or () if isinstance(entry, dict)
                     and (name := str(entry.get("f"))) not in NO_STRIKES)
    return {
        "kind": kind,
        "why": why(kind, ruled, verdict),
        "harness": bool(ruled.harness),
        "signatures": [asdict(one) for one in signatures(verdict, about, lines)],
        "acked": (verdict["counts"] or {}).get("acked", 0),
        "faults": faults,
        "size_bytes": sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file()),
    }


def why(kind: str, ruled: Ruling, verdict: Mapping[str, Any]) -> str:
    """Why the verdict is unknown or missing, or how the cluster got stuck; else empty."""
    if kind == STUCK:
        return next(str(example.get("text") or "") for found in verdict["findings"]
                    if found["name"] == STUCK for example in found["examples"])
    reasons = [str(entry["reason"]) for entry in verdict["unknown"]]
    sentences = [*ruled.harness, *(reasons if kind == UNKNOWN or not verdict["counts"] else ())]
    return "; ".join(dict.fromkeys(sentences))


def lines_of(run: Run, events: Set[int]) -> dict[int, Mapping[str, Any]]:
    """The lines of the trace with these numbers, from 0; without missing and invalid ones."""
    if not events or not run.has(run.trace_path):
        return {}
    found: dict[int, Mapping[str, Any]] = {}
    with run.open(run.trace_path) as file:
        for number, line in enumerate(islice(file, max(events) + 1)):
            if number in events:
                with suppress(orjson.JSONDecodeError):
                    row = orjson.loads(line)
                    if isinstance(row, dict):
                        found[number] = row
    return found
