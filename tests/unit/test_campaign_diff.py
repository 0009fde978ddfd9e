"""`floodmark campaign diff`: what is a violation, what is stuck, what says nothing; nothing is mixed."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
from command_line import Answer, floodmark

from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.cases import Case
from floodmark.harness.campaign.journal import BEGAN, FAILED, JUDGED, RECORDED, Journal
from floodmark.harness.campaign.ledger import Ledger, Night
from floodmark.harness.campaign.signatures import Signature

LOST = Signature(system="kip-279", guarantees="acks=all", finding="lost-write", klass="bug", permitted_by="",
                 how="", step="truncate as follower")
HUNG = replace(LOST, finding="stuck", step="")
Told = tuple[str, tuple[Signature, ...]]


def night(folder: Path, *outcomes: Told) -> Path:
    """A campaign's folder with these runs: kind (`not made`: the harness failed before) and signatures."""
    folder.mkdir()
    (folder / "campaign.json").write_bytes(orjson.dumps({
        "format": 1, "id": folder.name, "began": "2026-11-23", "ledger": str(folder.parent / "ledger.json")}))
    journal = Journal(folder / "journal.jsonl")

    def say(event: str, number: int, **fields: Any) -> None:
        journal.append(event, time_s=number, run=number, **fields)

    for number, (kind, shown) in enumerate(outcomes, 1):
        say(BEGAN, number, case=Case(rules="kip-279").as_json(), seed=number, folder=f"runs/{number}")
        if kind == "not made":
            say(FAILED, number, why="no port")
            continue
        say(RECORDED, number)
        say(JUDGED, number, kind=kind, acked=1, faults={}, size_bytes=1,
            harness=kind == "failed in the harness", signatures=[asdict(one) for one in shown])
    journal.close()
    return folder


def compared(tmp_path: Path, before: tuple[Told, ...], after: tuple[Told, ...]) -> Answer:
    return floodmark("campaign", "diff", night(tmp_path / "a", *before), night(tmp_path / "b", *after))


def tables(answer: Answer) -> Mapping[str, list[list[str]]]:
    """Each table's rows, a list of cells, by the title in its head."""
    found = {}
    for table in answer.out.strip().split("\n\n"):
        head, _, *rows = table.splitlines()
        title = head.split()[0] if head.startswith("runs") else head.split()[2]
        found[title] = [[cell for cell in row.split("  ") if cell.strip()] for row in rows
                        if not row.startswith("guarantees: acks=all")]
    return found


VALID: Told = ("valid", ())


def test_violations_stuck_clusters_and_failures_of_the_harness_are_three_things(tmp_path: Path) -> None:
    answer = compared(tmp_path, (VALID, ("stuck", (HUNG,)), ("failed in the harness", ())),
                      (VALID, ("invalid", (LOST,)), ("stuck", (HUNG,)), ("not made", ()), ("unknown", ())))
    told = tables(answer)
    assert answer.code == 1
    assert [[cell.strip() for cell in row[1:]] for row in told["violation"]] == [
        # the harness's failures are none of its runs
        ["kip-279", LOST.finding_and_step, "0 of 2", "1 of 4", "1", "new"]]
    assert [row[-1].strip() for row in told["stuck"]] == ["as before"]
    assert [[cell.strip() for cell in row] for row in told["runs"]] == [
        ["the harness failed", "1 of 3", "1 of 5", "1", "as before"],
        ["unknown", "0 of 3", "1 of 5", "1", "new"]]


def test_a_cluster_that_is_newly_stuck_fails_until_it_is_known(tmp_path: Path) -> None:
    assert compared(tmp_path, (VALID,), (("stuck", (HUNG,)),)).code == 1
    ledger = Ledger(nights={"b": Night(began="2026", version="1", commit=None, runs={})})
    ledger = ledger.with_finding(HUNG, "b", 1, faults={}, smallest=None)
    ledger = ledger.with_mark(HUNG.id, reason="x", since="2026")
    ledgers.save(tmp_path / "ledger.json", ledger)
    again = floodmark("campaign", "diff", tmp_path / "a", tmp_path / "b")
    assert (again.code, "new (known)" in again.out) == (0, True)


def test_two_nights_without_anything(tmp_path: Path) -> None:
    answer = compared(tmp_path, (VALID,), (VALID,))
    assert (answer.code, answer.out) == (0, "neither has found anything\n")
