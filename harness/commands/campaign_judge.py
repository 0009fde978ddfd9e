"""Judges a campaign's runs: `python -m floodmark.harness.commands.campaign_judge`.

A request names run folders, {"folders": [...]}; the answer is {"answers": [...]}: each run's summary for the
campaign (summary_of). Verdict and measures are in the folder by then. Spark is started before the first
request, because its start uses all processors; it ends with this process.
"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from floodmark.checkers.judge import report
from floodmark.harness import catalog
from floodmark.harness.campaign.gates import MAX_RECOVERY_S, MAX_UNAVAILABLE_S
from floodmark.harness.campaign.state import JUDGE_FAILED
from floodmark.harness.commands.campaign_processes import put
from floodmark.harness.forked_child import end_with_parent
from floodmark.harness.pipeline import Judged, judge, written
from floodmark.harness.report.summary_of_run import summary_of
from floodmark.harness.run import Run, sync_run


def main() -> None:
    end_with_parent()
    out = sys.stdout.buffer
    with contextlib.redirect_stdout(sys.stderr):
        catalog.warm_judge()
        put(out, {"ready": True})
        for line in sys.stdin.buffer:
            request = orjson.loads(line)
            folders = list(map(Path, request["folders"]))
            put(out, {"id": request["id"], "answers": [
                {**answer(one), **more} for one, more in zip(judge(folders), figures(folders), strict=True)]})
    catalog.stop_judge()


def answer(one: Judged[Path]) -> dict[str, Any]:
    """The summary, after the verdict is on the disk: the history of a valid run is deleted then. `unsaved`:
    why it could not be written."""
    unsaved = one.unsaved or written(lambda: sync_run(one.folder))
    return {**summary_of(Run(folder=one.folder), report.as_json(one.verdict)), "unsaved": unsaved,
            JUDGE_FAILED: one.verdict.failure is not None}


def figures(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The measures of each run that gates use (`measures`), or why there are none (`unmeasured`). An error
    here does not affect the verdicts."""
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
    main()
