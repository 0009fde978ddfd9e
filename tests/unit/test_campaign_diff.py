"""`floodmark campaign diff` keeps violations, stuck clusters and runs without a result apart."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from command_line import Answer, floodmark
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


def compare_nights(tmp_path: Path, before: tuple[RunOutcome, ...], after: tuple[RunOutcome, ...]) -> Answer:
    return floodmark("campaign", "diff", night(tmp_path / "a", *before), night(tmp_path / "b", *after))


def tables(answer: Answer) -> Mapping[str, list[list[str]]]:
    """Each table's rows, as lists of cells, by the title in its header."""
    found = {}
    for table in answer.out.strip().split("\n\n"):
        header, _, *rows = table.splitlines()
        title = header.split()[0] if header.startswith("runs") else header.split()[2]
        found[title] = [[cell for cell in row.split("  ") if cell.strip()] for row in rows
                        if not row.startswith("guarantees: acks=all")]
    return found


VALID: RunOutcome = ("valid", ())


def test_violations_stuck_clusters_and_failures_of_the_harness_have_separate_tables(tmp_path: Path) -> None:
    answer = compare_nights(tmp_path, (VALID, ("stuck", (HUNG,)), ("failed in the harness", ())),
                      (VALID, ("invalid", (LOST,)), ("stuck", (HUNG,)), ("not made", ()), ("unknown", ())))
    by_title = tables(answer)
    assert answer.code == 1
    assert [[cell.strip() for cell in row[1:]] for row in by_title["violation"]] == [
        # runs that failed in the harness are not counted
        ["kip-279", LOST.finding_and_step, "0 of 2", "1 of 4", "1", "new"]]
    assert [row[-1].strip() for row in by_title["stuck"]] == ["as before"]
    assert [[cell.strip() for cell in row] for row in by_title["runs"]] == [
        ["the harness failed", "1 of 3", "1 of 5", "1", "as before"],
        ["unknown", "0 of 3", "1 of 5", "1", "new"]]


def test_a_newly_stuck_cluster_fails_the_diff_until_it_is_marked_known(tmp_path: Path) -> None:
    assert compare_nights(tmp_path, (VALID,), (("stuck", (HUNG,)),)).code == 1
    ledger = Ledger(nights={"b": Night(began="2026", version="1", commit=None, runs={})})
    ledger = ledger.with_finding(HUNG, "b", 1)
    ledger = ledger.changed(HUNG.id, known={"reason": "x", "since": "2026"})
    ledgers.save(tmp_path / "ledger.json", ledger)
    again = floodmark("campaign", "diff", tmp_path / "a", tmp_path / "b")
    assert (again.code, "new (known)" in again.out) == (0, True)


def test_what_a_system_shows_that_did_not_run_before_is_not_called_new(tmp_path: Path) -> None:
    """Nothing is known of whether it is, so the comparison does not fail."""
    answer = compare_nights(tmp_path, (("not made", ()),), (("invalid", (LOST,)),))
    assert ([row[-1].strip() for row in tables(answer)["violation"]], answer.code) == (["not run before"], 0)


def test_two_nights_without_findings(tmp_path: Path) -> None:
    answer = compare_nights(tmp_path, (VALID,), (VALID,))
    assert (answer.code, answer.out) == (0, "neither has found anything\n")


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
