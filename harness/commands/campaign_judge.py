"""Judges a campaign's runs: `python -m floodmark.harness.commands.campaign_judge`.

A request names run folders, {"folders": [...]}; the answer is {"answers": [...]}: each run's summary for the
campaign (summary_of). Verdict and measures are in the folder by then. Spark is started before the first
request, because its start uses all processors; it ends with this process.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from floodmark.checkers.judge import report
from floodmark.checkers.laws.finding_names import STUCK
from floodmark.harness import catalog
from floodmark.harness.campaign.plan import MAX_RECOVERY_S, MAX_UNAVAILABLE_S
from floodmark.harness.campaign.signatures import events_of, signatures
from floodmark.harness.campaign.state import JUDGE_FAILED
from floodmark.harness.commands.campaign_processes import serve
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import Judged, judge, written
from floodmark.harness.report.model import Json
from floodmark.harness.report.run_files import RunFiles
from floodmark.harness.report.run_summary import NO_STRIKES, UNKNOWN, Ruling, ruling
from floodmark.harness.run import Run, sync_run
from floodmark.harness.verdict import BUG


async def answers(request: Mapping[str, Any]) -> Mapping[str, Any]:
    folders = list(map(Path, request["folders"]))
    return {"answers": [{**answer(one), **more}
                        for one, more in zip(judge(folders), figures(folders), strict=True)]}


def answer(one: Judged[Path]) -> dict[str, Any]:
    """The summary, when the verdict is on the disk: a valid run is shrunk then. `unsaved`: why it is not."""
    unsaved = one.unsaved or written(lambda: sync_run(one.folder))
    return {**summary_of(Run(folder=one.folder), report.as_json(one.verdict)), "unsaved": unsaved,
            JUDGE_FAILED: one.verdict.failure is not None}


def summary_of(run: Run, verdict: Json) -> dict[str, Any]:
    """How a run ended, and what was found. kind: of run_summary.py, or STUCK if that is its only bug; why: a
    sentence if it is no violation; harness: whether the run itself failed; then signatures as rows, acked
    writes, planned faults by kind, and the folder's bytes."""
    try:
        about = run.about()
    except FloodmarkError:
        about = {}
    ruled = ruling(verdict, about or None)
    bugs = {found["name"] for found in verdict["findings"] if found["class"] == BUG}
    kind = STUCK if bugs == {STUCK} else ruled.kind
    files = RunFiles(run)
    lines = {number: line.fields for number in events_of(verdict)
             if (line := files.event(number + 1)) is not None}
    return {
        "kind": kind,
        "why": why(kind, ruled, verdict),
        "harness": bool(ruled.harness),
        "signatures": [asdict(one) for one in signatures(verdict, about, lines)],
        "acked": (verdict["counts"] or {}).get("acked", 0),
        "faults": Counter(name for entry in about.get("schedule") or () if isinstance(entry, dict)
                          and (name := str(entry.get("f"))) not in NO_STRIKES),
        "size_bytes": sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file()),
    }


def why(kind: str, ruled: Ruling, verdict: Json) -> str:
    """Why the verdict is unknown or missing, or how the cluster got stuck; else empty."""
    if kind == STUCK:
        return next(str(example.get("text") or "") for found in verdict["findings"]
                    if found["name"] == STUCK for example in found["examples"])
    reasons = [str(entry["reason"]) for entry in verdict["unknown"]]
    sentences = [*ruled.harness, *(reasons if kind == UNKNOWN or not verdict["counts"] else ())]
    return "; ".join(dict.fromkeys(sentences))


def figures(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Each run's measures for gates, or why there are none. An error here does not affect the verdicts."""
    try:
        measures = catalog.measure(folders)
    except Exception as error:
        return [{"unmeasured": f"{type(error).__name__}: {error}".splitlines()[0]} for _ in folders]
    rows = measures.run_rows()
    return [
        {"measures": {name: rows[number][name] for name in (MAX_UNAVAILABLE_S, MAX_RECOVERY_S)}}
        if number in rows else {"unmeasured": measures.failures.get(number, "no answer")}
        for number in range(len(folders))
    ]


if __name__ == "__main__":
    serve(catalog.warm_judge, answers)
    catalog.stop_judge()
