"""Campaigns that something ends in the midst of writing: SIGKILL at the ledger, a disk that is full."""

from itertools import islice
from pathlib import Path

import pytest
from campaign_nights import FRESH, RENAME, RENAMED, ended, events, killed_at, state_of

from harness.campaign import ledger as ledgers
from harness.campaign.cases import draws
from harness.campaign.journal import BEGAN, JUDGED, CampaignAt
from harness.campaign.plan import read
from harness.commands.campaign_run import noted

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

PLAN = """
for = "10min"
duration = 1
reproduce = 1
at_once = 2
[[system]]
rules = "high-watermark"
[[system]]
rules = "kip-320"
[[nemesis]]
scenario = "double-failover"
"""
RUNS = 2
SEED = 7


def test_killed_while_the_ledger_is_written_and_at_its_rename(tmp_path: Path) -> None:
    """Each time it is what it was before, or what it was to be; and in the end no find is missing."""
    (tmp_path / "plan.toml").write_text(PLAN)
    folder, ledger = tmp_path / "night", tmp_path / "ledger.json"
    killed_at(tmp_path, RENAME, ledger, "run", "plan.toml", "--out", folder, "--seed", SEED, "--runs", RUNS,
              "--ledger", ledger, renames=2)
    assert events(folder).count(JUDGED) == RUNS
    before = ledger.read_bytes()
    assert ledgers.load(ledger).entries == {}  # as the session found it when it began
    for point in (FRESH, RENAME):
        killed_at(tmp_path, point, ledger, "resume", folder)
        assert ledger.read_bytes() == before
        assert len(list(tmp_path.glob(".ledger.json.????????????????"))) == 1
    killed_at(tmp_path, RENAMED, ledger, "resume", folder)
    about = CampaignAt(folder=folder).about()
    found = ledgers.load(ledger)
    assert found == noted(ledgers.Ledger(), state_of(folder), about, folder)
    assert [entry.signature.system for entry in found.entries.values()] == ["high-watermark"]

    code, said, complained = ended(tmp_path, "resume", folder)
    assert code == 1, (said, complained)
    state = state_of(folder)
    drawn = draws(read(PLAN, "plan").cases, SEED)
    assert [(run.number, run.case, run.seed) for run in state.runs.values()] == [
        (draw.number, draw.case, draw.seed) for draw in islice(drawn, RUNS)]
    assert (events(folder).count(BEGAN), events(folder).count(JUDGED)) == (RUNS, RUNS)
    (entry,) = ledgers.load(ledger).entries.values()
    assert (entry.count, entry.reproduced) == (1, (1, 1))
    assert [path.name for path in tmp_path.glob(".ledger.json.*")] == [".ledger.json.lock"]


def test_killed_before_it_had_begun(tmp_path: Path) -> None:
    """There is nothing to go on with, and that is said."""
    (tmp_path / "plan.toml").write_text(PLAN)
    folder = tmp_path / "night"
    killed_at(tmp_path, RENAME, folder / "campaign.json", "run", "plan.toml", "--out", folder)
    code, _, complained = ended(tmp_path, "resume", folder)
    assert (code, "remove the folder and run it anew" in complained) == (4, True), complained
