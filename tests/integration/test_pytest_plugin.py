"""The pytest plugin as a team uses it: the page's suite, a test that fails, a nemesis beside a test.

Each suite is next to packages of our names, first on its path, as in some team's repository.
"""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from namesakes import COMPLAINT, planted
from readme import block
from run_processes import marked, processes_of, wait_until

SUITE_S = 240.0
SUITE = """
def test_a_leader_that_dies_loses_nothing(floodmark_run):
    run = floodmark_run(cluster="simulated", duration=1, schedule=[
        {"f": "kill", "nodes": ["leader"], "partition": 0,
         "moment": {"at": "ack", "partition": 0, "count": 9}},
        {"f": "start", "nodes": ["down"]},
    ])
    assert run.valid


def test_nothing_is_lost_here(floodmark_run):
    assert floodmark_run(cluster="simulated", scenario="double-failover",
                         rules="high-watermark").valid


def test_of_ours_that_fails_without_a_run():
    assert False
"""


def suite(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in a process of its own, with the installed packages, every warning an error."""
    (folder / "pytest.ini").write_text("[pytest]\nfloodmark_out = kept\nfilterwarnings = error\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words], cwd=folder,
        env={**marked(folder), **planted(folder)}, capture_output=True, text=True,
        timeout=SUITE_S, check=False)
    assert COMPLAINT not in ran.stdout + ran.stderr
    return ran


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
def test_the_page_s_suite_passes(tmp_path: Path) -> None:
    (tmp_path / "test_our_log.py").write_text(block("# tests/test_our_log.py"))
    ran = suite(tmp_path)
    assert (ran.returncode, "5 passed" in ran.stdout) == (0, True), ran.stdout
    assert ran.stdout.count("floodmark: /") == 0  # tests that pass show none
    wait_until("every process to be gone", lambda: not processes_of(tmp_path))


@pytest.mark.spark
def test_a_test_that_fails_shows_why(tmp_path: Path) -> None:
    (tmp_path / "test_ours.py").write_text(SUITE)
    ran = suite(tmp_path, "--junit-xml", "junit.xml")
    cases = {case.attrib["name"]: case for case in ElementTree.parse(
        tmp_path / "junit.xml").getroot().iter("testcase")}
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert (failed, ran.returncode) == (
        {"test_nothing_is_lost_here", "test_of_ours_that_fails_without_a_run"}, 1), ran.stdout
    assert len(cases) == 3

    (folder,) = (tmp_path / "kept").glob("*/*test_nothing_is_lost_here-1")
    shown = ran.stdout.partition(f"floodmark: {folder}")[2]
    for words in ("lost-write: 1 finding, a bug", "The send of 3 to partition 0 was acked at offset 3",
                  f"floodmark reproduce {folder}", f"page: {folder / 'report.html'}"):
        assert words in shown, ran.stdout
    assert "lost-write 1" in ran.stdout.partition("E        +  where False = <run ")[2]
    assert (folder / "report.html").is_file()
    assert json.loads((folder / "verdict.json").read_text())["valid"] is False
    assert ran.stdout.count("floodmark: /") == 1  # a test that passes, or has no run, shows none
    wait_until("every process to be gone", lambda: not processes_of(tmp_path))


@pytest.mark.cluster
def test_a_nemesis_strikes_and_mends_and_a_cluster_that_cannot_come_up_says_why(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text("""
import time


def await_strikes(struck, words):
    until = time.monotonic() + 120
    while not all(any(word in line for line in struck) for word in words):
        assert time.monotonic() < until, struck
        time.sleep(0.05)


def test_mended(floodmark_cluster, floodmark_nemesis):
    cluster = floodmark_cluster(nodes=3)
    with floodmark_nemesis(cluster, nemesis="cut,expire", interval=0.5, seed=49) as struck:
        await_strikes(struck, ("cut", "expire"))
    state = cluster.state()
    assert (state["cuts"], state["unfenced"]) == ([], ["n1", "n2", "n3"])


def test_off(floodmark_cluster):
    floodmark_cluster(config={"min.insync.replicas": "many"})
""")
    ran = suite(tmp_path, "test_theirs.py")
    assert (ran.returncode, "1 failed, 1 passed" in ran.stdout) == (1, True), ran.stdout
    assert "the cluster did not come up: floodmark:" in ran.stdout
    assert "min.insync.replicas" in ran.stdout
    assert list((tmp_path / "kept").iterdir())
    wait_until("every process to be gone", lambda: not processes_of(tmp_path))
