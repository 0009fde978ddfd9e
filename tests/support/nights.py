"""Campaigns as their states have them, without a cluster or Spark."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness.campaign.ledger import Ledger, Night, save, with_findings
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.campaign.state import DATABASE, State, state_of
from floodmark.harness.commands.campaign_run import with_gates
from floodmark.harness.report.night import Results, results_of
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


def empty_state(clock_s: float = 0.0) -> State:
    """A state of which nothing is on a disk."""
    return state_of(Path("nowhere"), lambda: clock_s)


def at(state: State, time_s: float) -> State:
    state.clock = lambda: time_s
    return state


def night(*outcomes: tuple[RunSpec, str, tuple[Signature, ...]], why: str | None = "the time is over",
          judged: Mapping[str, Any] | None = None) -> State:
    """A campaign's state with these outcomes. kind `not made`: the harness's reason in place of a verdict."""
    state = empty_state()
    state.open_session()
    for number, (case, kind, shown) in enumerate(outcomes, 1):
        at(state, 10.0 * number).begin(number, 100 + number, case, f"runs/{number}")
        if kind == "not made":
            state.end_run(number, {"why": "n1 did not start\nits log"})
            continue
        state.end_run(number, {"took_s": 9.5, "cpu_s": 9.5, "resident_bytes": 1 << 28})
        state.judge(number, {"kind": kind, "acked": 1000, "faults": {"kill": 2}, "size_bytes": 5000 - number,
                             "harness": kind == "failed in the harness",
                             "signatures": [asdict(one) for one in shown], **(judged or {})}, None)
    if why is not None:
        at(state, 100.0).end_session(why, early=False)
    return state


def nights() -> Iterator[tuple[str, State, Ledger]]:
    """What happened in it, its state, and the ledger before it."""
    before = Ledger(nights={"night1": EARLIER})
    for signature in (LOST, GONE, replace(LOST, system="kip-101")):
        before = before.with_finding(signature, "night1", 3)
    known = before.changed(GONE.id, known={"reason": "KAFKA-1211", "since": "2026-02-02"})
    early = night((CRASH, "valid", ()), why=None)
    at(early, 100.0).end_session("the disk is full: make room", early=True)
    yield "new, stuck, unknown and not made", night(
        (CRASH, "invalid", (LOST,)), (CRASH, "valid", ()), (CRASH, "invalid", (LOST,)),
        (CUT, "stuck", (HUNG,)), (CUT, "unknown", ()), (CUT, "failed in the harness", ()),
        (CUT, "not made", ()), judged={"why": "the trace has a broken line"}), Ledger()
    gates = {"max_unavailable_s": 10.0, "max_recovery_s": 2.0, "min_acked": 100.0}
    measured = {"kind": "valid", "acked": 99, "measures": {"max_unavailable_s": 12.34, "max_recovery_s": 0.5}}
    yield "gates are broken", night((CRASH, "gate", ()), judged={
        "gates": with_gates(measured, gates, CRASH)["gates"]}), Ledger()
    yield "seen before, known, permitted; of another system", night(
        (CRASH, "invalid", (LOST,)), (CRASH, "invalid", (GONE,)), (CUT, "valid", (ALLOWED,))), known
    yield "many runs, of three systems", night(
        *[(CRASH, "invalid", (LOST,))] * 3, *[(CRASH, "valid", ())] * 997,
        *[(replace(CRASH, rules="kip-101"), "invalid", (replace(GONE, system="kip-101"),))] * 4,
        *[(replace(CUT, rules="kip-320"), "stuck", (replace(HUNG, system="kip-320"),))] * 2,
    ), known.with_finding(other := replace(GONE, system="kip-101"), "night1", 1).changed(
        other.id, known={"reason": "K", "since": "2026-02-02"})
    yield "all that was known is gone", night((CRASH, "valid", ())), before
    yield "nothing", night((CRASH, "valid", ())), Ledger()
    yield "no run was made", night(), Ledger()
    yield "no run was made yet", night((CRASH, "not made", ()), why=None), Ledger()
    yield "ended early", early, Ledger()


def results(state: State, ledger: Ledger | None = None, **besides: Any) -> Results:
    known = with_findings(ledger or Ledger(), state, ABOUT, Path("/nights/monday"))
    return results_of(state, known, ABOUT, [CRASH, CUT], folder="nights/monday", **besides)


def written(folder: Path, state: State, ledger: Ledger, *, plan: str, **about: Any) -> Path:
    """Writes a campaign's folder with that state, and its ledger next to it."""
    folder.mkdir(parents=True)
    (folder / "campaign.json").write_bytes(orjson.dumps({
        **ABOUT, "format": 2, "plan": plan, "ledger": str(folder.parent / "ledger.json"), "budget_s": 14400,
        "runs": None, "keep": False, "bank": [], "seed": 1, **about}))
    (folder / DATABASE).write_bytes(state.database.serialize())
    save(folder.parent / "ledger.json", ledger)
    return folder
