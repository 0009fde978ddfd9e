"""The ledger of causes, which never counts twice; what belongs to a signature; whether two rates differ."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from judged_runs import finding

from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.ledger import Ledger, Night, Smallest, as_bytes, load, locked, save
from floodmark.harness.campaign.plan import read
from floodmark.harness.campaign.signatures import Signature, events_of, guarantees_of, signatures
from floodmark.harness.commands.campaign import bank_of
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report.night import p_same
from floodmark.harness.run import system_of

LOST = Signature(system="kip-101", guarantees="acks=all", finding="lost-write", klass="bug", permitted_by="",
                 how="overwritten", step="")
ACK = Signature(system="kip-320", guarantees="acks=all", finding="ack-rule", klass="bug", permitted_by="",
                how="isr", step="ack")
NIGHT = Night(began="2026-01-02T03:04:05+00:00", version="1", commit=None, runs={"kip-101": 20, "kip-320": 5})
LATER = Night(began="2026-01-02T02:04:05-02:00", version="2", commit="abc", runs={"kip-101": 30})
RUN = Smallest(folder="runs/1", size_bytes=1000, case={"rules": "kip-101"}, seed=7)


def two_nights() -> Ledger:
    first = Ledger().with_night("one", NIGHT).with_finding(LOST, "one", 3, faults={"all": 3}, smallest=RUN)
    return (first.with_night("two", LATER).with_finding(LOST, "two", 4, faults={"crash": 1})
            .with_finding(ACK, "two", 1)
            .changed(LOST.id, reproduced=(2, 5), known={"reason": "KAFKA-1", "since": "2026-01-04"},
                     notes=("only with four partitions",)))


def test_a_saved_ledger_is_read_back(tmp_path: Path) -> None:
    save(tmp_path / "ledger.json", two_nights())
    assert load(tmp_path / "ledger.json") == two_nights()
    assert load(tmp_path / "none.json") == Ledger()


def test_the_same_campaign_again_counts_nothing_twice() -> None:
    again = two_nights().with_night("one", NIGHT)
    again = again.with_finding(LOST, "one", 3, faults={"all": 3}, smallest=RUN)
    assert again == two_nights()
    entry = again.entries[LOST.id]
    assert (sum(entry.found.values()), again.nights_with(entry)) == (7, ["one", "two"])


def test_a_renamed_finding_keeps_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "ledger.json", two_nights())
    monkeypatch.setattr(ledgers, "RENAMED", {"lost-write": "lost-record"})
    today = Signature(**{**{name: getattr(LOST, name) for name in LOST.__slots__}, "finding": "lost-record"})
    ledger = load(tmp_path / "ledger.json")
    entry = ledger.of(today)
    assert entry is not None
    assert (entry.id, entry.found) == (LOST.id, {"one": 3, "two": 4})
    assert entry.id != today.id
    after = ledger.with_finding(today, "two", 5)
    assert len(after.entries) == 2
    assert after.entries[LOST.id].found == {"one": 3, "two": 5}


def test_the_temporary_file_of_a_killed_writer_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger[1].json"
    leftover, other = tmp_path / f".{path.name}.0123456789abcdef", tmp_path / f".{path.name}.mine"
    for file in (leftover, other):
        file.touch()
    with locked(path):
        save(path, two_nights())
    assert {file.name for file in tmp_path.iterdir()} == {path.name, other.name, f".{path.name}.lock"}


def test_counts_of_a_campaign_that_is_not_listed_are_refused(tmp_path: Path) -> None:
    whole = orjson.loads(as_bytes(two_nights()))
    del whole["campaigns"]["two"]
    (tmp_path / "ledger.json").write_bytes(orjson.dumps(whole))
    with pytest.raises(FloodmarkError, match="does not list: two"):
        load(tmp_path / "ledger.json")


def test_behind_a_link_the_ledger_itself_is_written_and_locked(tmp_path: Path) -> None:
    """It may be kept elsewhere, in git."""
    ours, link = tmp_path / "kept" / "ledger.json", tmp_path / "ledger.json"
    ours.parent.mkdir()
    save(ours, Ledger())
    link.symlink_to("kept/ledger.json")
    with locked(link):
        save(link, two_nights())
    assert (link.is_symlink(), load(ours)) == (True, two_nights())
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".lock")] == []


def test_the_bank_has_the_runs_of_bugs_that_can_be_made_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Another floodmark may know other settings, nemeses and scenarios; permitted findings are no bugs."""
    plan, ledger = read("bank = 2\n[[system]]\nrules = 'kip-101'", "plan"), Ledger().with_night("one", NIGHT)
    for number, case in enumerate((
            {}, {"rules": "kip-101", "nodes": "x"}, {"rules": "kip-101", "nemesis": "gremlin"},
            {"rules": "kip-101", "scenario": "none-such"}, {"rules": "kip-320"}, {"rules": "kip-101"},
            {"rules": "kip-101", "nemesis": "crash"}, {"rules": "kip-101", "nodes": 5})):
        ledger = ledger.with_finding(replace(LOST, how=str(number)), "one", 1, smallest=Smallest(
            folder="runs/1", size_bytes=1, case=case, seed=number))
    ledger = ledger.with_finding(ACK, "one", 1)  # of no run
    assert [run["seed"] for run in bank_of(ledger, plan)] == [5, 6]
    assert capsys.readouterr().err.count("cannot be made here: ") == 4


def test_an_entry_is_found_by_the_beginning_of_its_id() -> None:
    ledger = two_nights()
    assert ledger.named(LOST.id[:6]).signature == LOST
    with pytest.raises(FloodmarkError, match="no signature 'zz'"):
        ledger.named("zz")
    with pytest.raises(FloodmarkError, match="2 signatures"):
        ledger.named("")


# -- differences between nights -----------------------------------------------------------------------------


def test_fishers_exact_test_gives_the_textbook_value() -> None:
    """The lady tasting tea: 3 of 4 cups right."""
    assert p_same((3, 4), (1, 4)) == pytest.approx(0.4857, abs=1e-4)


# -- what belongs to a signature besides its cause (golden/words.jsonl) -----------------------------------


ABOUT = {
    "rules": "high-watermark",
    "config": {"n1": {"floodmark.bugs": "b,a"}, "n2": {}},
    "guarantees": {"acks": "all", "min_insync_replicas": 2, "unclean_leader_election": False, "flush": "os"},
}


def test_system_and_guarantees_are_part_of_a_signature() -> None:
    (mine,) = signatures({"findings": [finding("diverged", {})]}, ABOUT, {})
    assert (mine.system, mine.guarantees) == ("high-watermark+a+b", "acks=all min_insync_replicas=2 flush=os")
    weaker = {**ABOUT, "guarantees": {**ABOUT["guarantees"], "acks": "1"}}  # type: ignore[dict-item]
    (other,) = signatures({"findings": [finding("diverged", {})]}, weaker, {})
    assert other.id != mine.id
    assert "acks=1" in other.sentence


def test_a_damaged_run_json_has_names_too() -> None:
    assert system_of({}) == "?"
    assert system_of({"rules": "kip-320", "config": []}) == "kip-320"
    assert guarantees_of({"guarantees": 3}) == ""


def test_the_trace_lines_needed_are_those_of_the_examples() -> None:
    findings = [finding("a", {"event": 5}, {"event": True}, {}), finding("b", {"event": 9})]
    assert events_of({"findings": findings}) == {5, 9}
