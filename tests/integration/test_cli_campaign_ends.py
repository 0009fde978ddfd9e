"""Campaigns that end while they write: SIGKILL at the ledger, a full disk."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from campaign_nights import (
    FRESH,
    PLAN,
    RENAME,
    RENAMED,
    SEED,
    WAIT_S,
    assert_runs_as_drawn,
    begun,
    ended,
    killed_at,
    statuses,
)
from command_line import verdict
from run_processes import processes_of, wait_until

from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.state import BEGUN, JUDGED, about_of, state_of

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

RUNS = 2
GATED = """
[[workload]]
rate = 200
[gates]
min_acked = 1000000000
max_unavailable_s = 60
"""
DISK_BYTES = 600 << 20  # a campaign needs 256 MB for a run before it has measured one


@pytest.mark.long
def test_killed_while_the_ledger_is_written_and_at_its_rename(tmp_path: Path) -> None:
    """Each time the ledger is the old one or the new one; and at the end no finding is missing."""
    (tmp_path / "plan.toml").write_text(PLAN)  # its first run is the invalid one
    folder, ledger = tmp_path / "night", tmp_path / "ledger.json"
    killed_at(tmp_path, RENAME, ledger, "run", "plan.toml", "--out", folder, "--seed", SEED, "--runs", 1,
              "--ledger", ledger, renames=2)
    assert statuses(folder) == [JUDGED]
    before = ledger.read_bytes()
    assert ledgers.load(ledger).entries == {}  # as it was when the session began
    for point in (FRESH, RENAME):
        killed_at(tmp_path, point, ledger, "resume", folder)
        assert ledger.read_bytes() == before
        assert len(list(tmp_path.glob(".ledger.json.????????????????"))) == 1
    killed_at(tmp_path, RENAMED, ledger, "resume", folder)
    found = ledgers.load(ledger)
    assert found == ledgers.with_findings(ledgers.Ledger(), state_of(folder), about_of(folder), folder)
    assert [entry.signature.system for entry in found.entries.values()] == ["high-watermark"]

    code, said, complained = ended(tmp_path, "resume", folder)
    assert code == 1, (said, complained)
    state = state_of(folder)
    assert_runs_as_drawn(state, PLAN, 1)
    assert statuses(folder) == [JUDGED]
    (entry,) = ledgers.load(ledger).entries.values()
    assert (sum(entry.found.values()), entry.reproduced) == (1, (1, 1))
    assert [path.name for path in tmp_path.glob(".ledger.json.*")] == [".ledger.json.lock"]


def test_killed_before_it_had_begun(tmp_path: Path) -> None:
    """There is no folder to resume, and nothing in the way of the next try."""
    (tmp_path / "plan.toml").write_text(PLAN)
    folder = tmp_path / "night"
    killed_at(tmp_path, RENAME, folder, "run", "plan.toml", "--out", folder)
    code, _, complained = ended(tmp_path, "resume", folder)
    assert (code, f"{folder} does not exist" in complained) == (2, True), complained


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one run and no more."""
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
    """Exit code and complaint of a campaign whose disk is full from that moment on."""
    with begun(tmp_path, *words) as process, ballast.open("ab", buffering=0) as file:
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


@pytest.mark.long
def test_a_full_disk_stops_the_campaign_and_spoils_nothing(tmp_path: Path, small_disk: Path) -> None:
    """Under load; resumed while still full; while judging; at the end each run is judged once. Both runs
    break a gate of the plan: the campaign fails, and they stay complete."""
    plan = PLAN.replace('scenario = "double-failover"', 'nemesis = "none"\nsystems = ["kip-320"]') + GATED
    (tmp_path / "plan.toml").write_text(plan)
    folder, ballast = small_disk / "night", small_disk / "ballast"
    words: tuple[object, ...] = ("run", "plan.toml", "--out", folder, "--seed", SEED, "--runs", RUNS)
    for ripe, says in (
        (lambda: any((folder / "runs").glob("00002*/history.jsonl")), "is full"),
        (lambda: False, ""),  # still full
        (lambda: len(statuses(folder)) == RUNS and BEGUN not in statuses(folder), "No space left"),
    ):
        if says == "No space left":
            ballast.unlink()
        code, complained = full_from(tmp_path, ripe, ballast, *words)
        assert code == 4, complained
        for part in (says, f"floodmark campaign resume {folder}"):
            assert part in complained
        assert "Traceback" not in complained
        words = ("resume", folder)
    assert [run.why for run in state_of(folder).runs()] == [None] * RUNS  # none of them has failed
    ledgers.load(small_disk / "ledger.json")

    ballast.unlink()
    code, said, complained = ended(tmp_path, "resume", folder)
    assert code == 1, (said, complained)
    assert said.count("writes were acked, at least 1,000,000,000 are required") >= 1, said
    state = state_of(folder)
    assert_runs_as_drawn(state, plan, RUNS)
    for run in state.runs():
        assert run.judged is not None
        assert (run.judged["kind"], [row["gate"] for row in run.judged["gates"]]) == ("gate", ["min_acked"])
        assert run.judged["measures"] == {"max_unavailable_s": None, "max_recovery_s": None}
        assert verdict(folder / run.folder)["valid"] is True
        assert (folder / run.folder / "history.jsonl").exists()
