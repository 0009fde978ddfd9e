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


def test_a_ledger_that_is_named_and_not_there_is_usage(tmp_path: Path) -> None:
    """Else what it has marked as known would be forgotten, or a misspelt name be obeyed."""
    folder = night(tmp_path / "a", VALID)
    for words in (("campaign", "diff", folder, folder), ("report", folder)):
        answer = floodmark(*words, "--ledger", tmp_path / "leger.json")
        assert (answer.code, "leger.json' does not exist" in answer.err) == (2, True), answer
    assert not (folder / "index.html").exists()


def test_a_campaign_json_that_lacks_its_keys_is_reported(tmp_path: Path) -> None:
    folder = night(tmp_path / "a", VALID)
    (folder / "campaign.json").write_text('{"format": 2}')
    answer = floodmark("campaign", "resume", folder)
    assert (answer.code, "campaign.json lacks bank, began, budget_s" in answer.err) == (4, True), answer
    assert floodmark("campaign", "diff", folder, folder).code == 0  # with the ledger beside it


@pytest.mark.parametrize("words", [(), ("--known", "x", "--not-known"), ("--known", ""),
                                   ("--known", "", "--note", "x"), ("--note", "")])
def test_a_mark_says_one_thing(tmp_path: Path, words: tuple[str, ...]) -> None:
    ledger = Ledger(nights={"b": Night(began="2026", version="1", commit=None, runs={})})
    ledgers.save(tmp_path / "ledger.json", ledger.with_finding(HUNG, "b", 1))
    before = (tmp_path / "ledger.json").read_bytes()
    answer = floodmark("campaign", "mark", HUNG.id, "--ledger", tmp_path / "ledger.json", *words)
    assert (answer.code, "--not-known" in answer.err) == (2, True), answer
    assert (tmp_path / "ledger.json").read_bytes() == before
