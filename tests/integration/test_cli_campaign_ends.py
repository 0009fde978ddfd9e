"""Campaigns that something ends in the midst of writing: SIGKILL at the ledger, a disk that is full."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from campaign_nights import FRESH, RENAME, RENAMED, WAIT_S, begun, ended, events, killed_at, state_of
from run_processes import processes_of, wait_until

from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.cases import draws
from floodmark.harness.campaign.journal import BEGAN, JUDGED, RECORDED, CampaignAt
from floodmark.harness.campaign.plan import read
from floodmark.harness.commands.campaign_run import noted

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
DISK_BYTES = 600 << 20  # a campaign asks for 256 MB for a run before it has seen one


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for a run and no more than that."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder],
                             check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a full disk needs a file system of its own, and none can be mounted here: "
                    f"{mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def full_from(tmp_path: Path, ripe: Callable[[], bool], ballast: Path, *words: object) -> tuple[int, str]:
    """Exit code and complaint of a campaign whose disk is full from that instant on."""
    with begun(tmp_path, *words) as process, ballast.open("wb", buffering=0) as file:
        wait_until("the instant to fill the disk at", lambda: ripe() or process.poll() is not None, WAIT_S)

        def full() -> bool:
            with suppress(OSError):
                while process.poll() is None:
                    file.write(bytes(1 << 20))
            return process.poll() is not None

        wait_until("the campaign to stop", full, WAIT_S)
        _, complained = process.communicate()
    wait_until("every process to be gone", lambda: not processes_of(tmp_path), WAIT_S)
    return process.returncode, complained


@pytest.mark.parametrize("instant", ["under load", "while judging"])
def test_a_full_disk_stops_the_campaign_and_spoils_nothing(
    tmp_path: Path, small_disk: Path, instant: str
) -> None:
    plan = PLAN.replace('scenario = "double-failover"', 'nemesis = "none"\nsystems = ["kip-320"]')
    (tmp_path / "plan.toml").write_text(plan)
    folder, ballast = small_disk / "night", small_disk / "ballast"
    ripe = {
        "under load": lambda: any((folder / "runs").glob("00002*/history.jsonl")),
        "while judging": lambda: events(folder).count(RECORDED) == RUNS,
    }[instant]
    code, complained = full_from(tmp_path, ripe, ballast, "run", "plan.toml", "--out", folder, "--seed", SEED,
                                 "--runs", RUNS)
    assert code == 4, complained
    for words in ("No space left" if instant == "while judging" else "is full", f"campaign resume {folder}"):
        assert words in complained
    assert "Traceback" not in complained
    assert [run.why for run in state_of(folder).runs.values()] == [None] * RUNS  # none of them was at fault
    ledgers.load(small_disk / "ledger.json")

    code, complained = full_from(tmp_path, lambda: False, small_disk / "none", "resume", folder)
    assert code == 4, complained  # still full
    assert f"floodmark campaign resume {folder}" in complained

    ballast.unlink()
    code, said, complained = ended(tmp_path, "resume", folder)
    assert code == 0, (said, complained)
    drawn = draws(read(plan, "plan").cases, SEED)
    state = state_of(folder)
    assert [(run.number, run.seed) for run in state.runs.values()] == [
        (draw.number, draw.seed) for draw in islice(drawn, RUNS)]
    assert [run.judged and run.judged["kind"] for run in state.runs.values()] == ["valid"] * RUNS
