"""Campaigns as their journals have them, without a cluster or Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness.campaign.cases import case_to_json
from floodmark.harness.campaign.journal import BEGAN, ENDED, FAILED, JUDGED, OPENED, RECORDED, State, state_of
from floodmark.harness.campaign.ledger import Ledger, Night, save
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.commands.campaign_run import with_findings
from floodmark.harness.reports.campaign_results import Results, results_of
from floodmark.harness.spec import RunSpec

ABOUT: Mapping[str, Any] = {"id": "night2", "began": "2026-03-01T02:00:00+00:00", "version": "0.1.0",
                            "commit": None}
CRASH, CUT = RunSpec(rules="kip-279", nemesis="crash"), RunSpec(rules="kip-279", nemesis="cut")
LOST = Signature(system="kip-279", guarantees="acks=all", finding="lost-write", klass="bug", permitted_by="",
                 how="", step="truncate as follower")
GONE = replace(LOST, finding="diverged")
HUNG = replace(LOST, finding="stuck", step="")
ALLOWED = replace(LOST, klass="permitted", permitted_by="acks")
EARLIER = Night(began="2026-02-01T02:00:00+00:00", version="0.1.0", commit=None, runs={"kip-279": 50})


def night(*outcomes: tuple[RunSpec, str, tuple[Signature, ...]], why: str | None = "the time is over"
          ) -> State:
    """A campaign's state with these outcomes. kind `not made`: the harness's reason in place of a verdict."""
    lines: list[Mapping[str, Any]] = [{"event": OPENED, "time_s": 0}]
    for number, (case, kind, shown) in enumerate(outcomes, 1):
        of = {"run": number, "time_s": 10.0 * number}
        lines.append({"event": BEGAN, "case": case_to_json(case), "seed": 100 + number,
                      "folder": f"runs/{number}", **of})
        if kind == "not made":
            lines.append({"event": FAILED, "why": "n1 did not start\nits log", **of})
            continue
        lines.append({"event": RECORDED, "took_s": 9.5, "cpu_s": 9.5, "resident_bytes": 1 << 28, **of})
        lines.append({"event": JUDGED, "kind": kind, "acked": 1000, "faults": {"kill": 2},
                      "size_bytes": 5000 - number, "signatures": [asdict(one) for one in shown], **of})
    return state_of([*lines, *([{"event": ENDED, "why": why, "time_s": 100}] if why else [])])


def results(state: State, ledger: Ledger | None = None, **besides: Any) -> Results:
    known = with_findings(ledger or Ledger(), state, ABOUT, Path("/nights/monday"))
    return results_of(state, known, ABOUT, [CRASH, CUT], folder="nights/monday", **besides)


def written(folder: Path, lines: Sequence[Mapping[str, Any]], ledger: Ledger, *, plan: str,
            **about: Any) -> Path:
    """Writes a campaign's folder with that journal, and its ledger next to it."""
    folder.mkdir(parents=True)
    (folder / "campaign.json").write_bytes(orjson.dumps({
        **ABOUT, "format": 1, "plan": plan, "ledger": str(folder.parent / "ledger.json"), "budget_s": 14400,
        "runs": None, "keep": False, "bank": [], "seed": 1, **about}))
    (folder / "journal.jsonl").write_bytes(b"".join(
        orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))
    save(folder.parent / "ledger.json", ledger)
    return folder
