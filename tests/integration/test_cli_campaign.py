"""`floodmark campaign`: a small night, killed and resumed; known findings; bad plans; a full disk."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest
from command_line import floodmark, verdict
from namesakes import planted
from run_processes import ENDED_WITHIN_S, running, wait_until

from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.plan import draws, read
from floodmark.harness.campaign.state import BEGUN, JUDGED, RECORDED, State, state_of

RUNS = 3
FULL_RUNS = 2
GATED = """
[[workload]]
rate = 200
[gates]
min_acked = 1000000000
max_unavailable_s = 60
"""
DISK_BYTES = 600 << 20  # a campaign needs 256 MB for a run before it has measured one
SEED = 7
# Each run takes as long as the scenario does; the first of two runs is invalid, the second valid.
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


def statuses(folder: Path) -> list[str]:
    """Of the campaign's runs, in order."""
    return [run.status for run in state_of(folder).runs()]


def assert_runs_as_drawn(state: State, plan: str, runs: int) -> None:
    """Each run has the case and the seed that plan and seed give it: no run is missing or there twice."""
    assert [(run.number, run.case, run.seed) for run in state.runs()] == [
        (draw.number, draw.case, draw.seed) for draw in islice(draws(read(plan, "plan").cases, SEED), runs)]


def campaign(tmp_path: Path, *words: object) -> AbstractContextManager[subprocess.Popen[str]]:
    """`floodmark campaign ...` in a folder with modules of our names, which must not be imported."""
    planted(tmp_path)
    return running(tmp_path, "campaign", *words)


def ended(tmp_path: Path, *words: object) -> tuple[int, str, str]:
    """Runs a campaign to its end; returns its exit code and output."""
    with campaign(tmp_path, *words) as process:
        said, complained = process.communicate(timeout=ENDED_WITHIN_S)
    return process.returncode, said, complained


def wait_until_ripe(process: subprocess.Popen[str], ripe: Callable[[], bool]) -> None:
    wait_until("the instant", lambda: ripe() or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def killed_when(tmp_path: Path, ripe: Callable[[], bool], *words: object) -> None:
    with campaign(tmp_path, *words) as process:
        wait_until_ripe(process, ripe)
        process.kill()


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
def test_a_campaign_killed_again_and_again_is_the_same_campaign(tmp_path: Path) -> None:
    """Killed under load and while judging, then finished; also when it is resumed with nothing left to do."""
    (tmp_path / "plan.toml").write_text(PLAN)
    folder, ledger = tmp_path / "night", tmp_path / "ledger.json"
    resume = ("resume", folder)
    killed_when(tmp_path, lambda: any((folder / "runs").glob("00002*/history.jsonl")), "run", "plan.toml",
                "--out", folder, "--seed", SEED, "--runs", RUNS, "--ledger", ledger)
    killed_when(tmp_path, lambda: statuses(folder).count(RECORDED) > 1, *resume)
    code, said, complained = ended(tmp_path, *resume)
    assert code == 1, (said, complained)  # the old protocol loses acked writes
    assert said.splitlines()[-2:] == [f"  page       {folder / 'index.html'}", str(folder)]

    state = state_of(folder)
    assert_runs_as_drawn(state, PLAN, RUNS)
    assert statuses(folder) == [JUDGED] * RUNS
    assert state.end == (f"{RUNS} runs made, as requested", False)
    assert state.select("SELECT shown FROM reproductions") == [(1,)]
    assert list((folder / "runs").glob("*-high-watermark-*/report.html"))  # the smallest run's
    systems = {signature.system for run in state.runs() for signature in run.signatures}
    assert systems == {"high-watermark"}
    ports = f"floodmark-{os.getuid()}"  # the locks of ports: this user's later runs need them
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name != ports] == []

    valid = [run for run in state.runs() if run.kind == "valid"]
    assert valid
    for run in valid:  # shrunk
        assert sorted(path.name for path in (folder / run.folder).iterdir()) == [
            "measures.parquet", "run.json", "verdict.json"]
    again = floodmark("campaign", "resume", folder)
    assert (again.code, again.last) == (1, str(folder)), again


@pytest.mark.spark
def test_ctrl_c_leaves_reports_that_say_so(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(TUESDAY)
    folder, junit, page = tmp_path / "night", tmp_path / "junit.xml", tmp_path / "summary.md"
    words = ("run", "plan.toml", "--out", "night", "--junit", junit, "--markdown", page)
    with campaign(tmp_path, *words) as process:
        wait_until_ripe(process, lambda: bool(statuses(folder)))
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=ENDED_WITHIN_S)
    assert (process.returncode, "interrupted" in complained) == (4, True), complained
    (suite,) = ElementTree.fromstring(junit.read_bytes())
    assert [error.attrib["message"].split(";")[0] for error in suite.iter("error")] == ["interrupted"]
    assert "it did not finish: interrupted" in page.read_text()


TUESDAY = """
for = "10min"
duration = 1
reproduce = 0
at_once = 2
[[cluster]]
cluster = "simulated"
[[system]]
rules = "high-watermark"
[[system]]
rules = "kip-320"
bugs = ["ack_on_append"]
[[nemesis]]
scenario = "double-failover"
systems = ["high-watermark"]
[[nemesis]]
scenario = "ack-without-the-isr"
systems = ["kip-320+ack_on_append"]
"""


@pytest.fixture(scope="module")
def tuesday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with one run of the old protocol and one of a known-bad rule."""
    tmp_path = tmp_path_factory.mktemp("tuesday")
    (tmp_path / "plan.toml").write_text(TUESDAY)
    night = floodmark("campaign", "run", tmp_path / "plan.toml", "--out", tmp_path / "night", "--seed", SEED,
                      "--runs", 2, "--ledger", tmp_path / "ledger.json")
    assert night.code == 1, night
    assert "judging 2 runs" in night.err  # a batch, in one call
    return tmp_path / "night"


@pytest.mark.spark
def test_each_run_is_judged_and_brings_the_signatures_of_its_system(tuesday: Path) -> None:
    """What is kept of a valid run has its figures; a signature that is marked as known is listed, and passes
    the next time."""
    state = state_of(tuesday)
    assert statuses(tuesday) == [JUDGED] * 2
    assert "Traceback" not in (tuesday / "players.log").read_text()
    assert state.end == ("2 runs made, as requested", False)
    assert {signature.system for run in state.runs() for signature in run.signatures} == {
        "high-watermark", "kip-320+ack_on_append"}
    ledger = tuesday.parent / "ledger.json"
    answer = floodmark("campaign", "stats", tuesday, "--json", tuesday.parent / "stats.json")
    assert answer.code == 0, answer
    stats = orjson.loads((tuesday.parent / "stats.json").read_bytes())
    assert [row["acked"] for row in stats["runs"]] == [run.judged["acked"] for run in state.runs()
                                                       if run.judged]
    for id_ in orjson.loads(ledger.read_bytes())["signatures"]:
        assert floodmark("campaign", "mark", id_[:6], "--ledger", ledger, "--known", "KIP-101").code == 0
    again = floodmark("campaign", "resume", tuesday)
    assert (again.code, "known: KIP-101" in again.out) == (0, True), again
    same = floodmark("campaign", "diff", tuesday, tuesday)
    assert (same.code, "as before" in same.out) == (0, True), same


# -- a full disk -------------------------------------------------------------------------------------------


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
    with campaign(tmp_path, *words) as process, ballast.open("ab", buffering=0) as file:
        wait_until("the instant to fill the disk at", lambda: ripe() or process.poll() is not None)

        def full() -> bool:
            with suppress(OSError):
                while process.poll() is None:
                    file.write(bytes(1 << 20))
            return process.poll() is not None

        wait_until("the campaign to stop", full)
        _, complained = process.communicate()
    return process.returncode, complained


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
def test_a_full_disk_stops_the_campaign_and_spoils_nothing(tmp_path: Path, small_disk: Path) -> None:
    """Under load; resumed while still full; while judging; at the end each run is judged once. Both runs
    break a gate of the plan: the campaign fails, and they stay complete."""
    plan = PLAN.replace('scenario = "double-failover"', 'nemesis = "none"\nsystems = ["kip-320"]') + GATED
    (tmp_path / "plan.toml").write_text(plan)
    folder, ballast = small_disk / "night", small_disk / "ballast"
    words: tuple[object, ...] = ("run", "plan.toml", "--out", folder, "--seed", SEED, "--runs", FULL_RUNS)
    for ripe, says in (
        (lambda: any((folder / "runs").glob("00002*/history.jsonl")), r"is full|No space left"),
        (lambda: False, ""),  # still full
        (lambda: len(statuses(folder)) == FULL_RUNS and BEGUN not in statuses(folder), "No space left"),
    ):
        if says == "No space left":
            ballast.unlink()
        code, complained = full_from(tmp_path, ripe, ballast, *words)
        assert code == 4, complained
        assert re.search(says, complained), complained
        assert f"floodmark campaign resume {folder}" in complained
        assert "Traceback" not in complained
        words = ("resume", folder)
    assert [run.why for run in state_of(folder).runs()] == [None] * FULL_RUNS  # none of them has failed
    ledgers.load(small_disk / "ledger.json")

    ballast.unlink()
    code, said, complained = ended(tmp_path, "resume", folder)
    assert code == 1, (said, complained)
    assert said.count("writes were acked, at least 1,000,000,000 are required") >= 1, said
    state = state_of(folder)
    assert_runs_as_drawn(state, plan, FULL_RUNS)
    for run in state.runs():
        assert run.judged is not None
        assert (run.judged["kind"], [row["gate"] for row in run.judged["gates"]]) == ("gate", ["min_acked"])
        assert run.judged["measures"] == {"max_unavailable_s": None, "max_recovery_s": None}
        assert verdict(folder / run.folder)["valid"] is True
        assert (folder / run.folder / "history.jsonl").exists()
