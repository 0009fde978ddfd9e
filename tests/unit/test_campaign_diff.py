"""`floodmark campaign diff` keeps violations, stuck clusters and runs without a result apart."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from command_line import floodmark
from golden_text import as_written
from nights import CRASH, HUNG, LOST, written
from nights import night as state_of_night

from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.ledger import Ledger, Night
from floodmark.harness.campaign.signatures import Signature

RunOutcome = tuple[str, tuple[Signature, ...]]


def night(folder: Path, *outcomes: RunOutcome) -> Path:
    """A campaign's folder with these runs: kind (`not made`: the harness failed first) and signatures."""
    state = state_of_night(*((CRASH, kind, shown) for kind, shown in outcomes))
    return written(folder, state, Ledger(), plan="")


VALID: RunOutcome = ("valid", ())
DIFFERENCES: Mapping[str, tuple[Sequence[RunOutcome], Sequence[RunOutcome]]] = {
    "violations, stuck clusters and runs without a result; what failed in the harness is counted apart": (
        (VALID, ("stuck", (HUNG,)), ("failed in the harness", ())),
        (VALID, ("invalid", (LOST,)), ("stuck", (HUNG,)), ("not made", ()), ("unknown", ()))),
    "a newly stuck cluster": ([VALID], [("stuck", (HUNG,))]),
    "a violation of a system that did not run before: nobody knows whether it is new": (
        [("not made", ())], [("invalid", (LOST,))]),
    "nothing": ([VALID], [VALID]),
}


def test_what_two_nights_differ_in(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    now = ""
    for number, (title, nights) in enumerate(DIFFERENCES.items()):
        folders = [night(tmp_path / f"{number}{at}", *runs) for at, runs in zip("ab", nights, strict=True)]
        answer = floodmark("campaign", "diff", *folders)
        lines = "\n".join(line.rstrip() for line in answer.out.strip().splitlines())
        now += f"== {title}: exit code {answer.code}\n{lines}\n"
    as_written("differences.txt", now, request)


def test_a_newly_stuck_cluster_that_is_marked_known_fails_no_diff(tmp_path: Path) -> None:
    folders = night(tmp_path / "a", VALID), night(tmp_path / "b", ("stuck", (HUNG,)))
    ledger = Ledger(nights={"b": Night(began="2026", version="1", commit=None, runs={})})
    ledger = ledger.with_finding(HUNG, "b", 1).changed(HUNG.id, known={"reason": "x", "since": "2026"})
    ledgers.save(tmp_path / "ledger.json", ledger)
    answer = floodmark("campaign", "diff", *folders)
    assert (answer.code, "new (known)" in answer.out) == (0, True)
