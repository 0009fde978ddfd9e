"""Workloads, nemeses, checks and clusters of another package: the page's example, installed, played, judged.

An unfit one is refused in a sentence, only by runs that ask for it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
from command_line import Answer
from distributions import brings, forget
from readme import ROOT, block

PAGE = ROOT / "harness" / "README.md"


def pip_installs(project: Path, site: Path) -> None:
    """Installs without the network, by the setuptools of this environment."""
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation",
                    "--disable-pip-version-check", "--target", site, project], check=True, timeout=120)


@pytest.fixture(name="site", scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where pip has installed the page's package."""
    project = tmp_path_factory.mktemp("ours")
    (project / "pyproject.toml").write_text(block("# pyproject.toml", PAGE))
    (project / "ours.py").write_text(block("# ours.py", PAGE))
    site = tmp_path_factory.mktemp("site")
    pip_installs(project, site)
    return site


def in_a_process(*words: object, site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`floodmark ...` in a process of its own that finds the packages installed there."""
    return subprocess.run(
        [Path(sys.executable).with_name("floodmark"), *map(str, words)], cwd=cwd, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(site)}, text=True, timeout=300, check=False)


def floodmark(*words: object, site: Path, cwd: Path) -> Answer:
    """In this process, which finds what is installed there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(site)
        patched.chdir(cwd)
        forget("ours", "theirs")
        try:
            return command_line.floodmark(*words)
        finally:
            forget("ours", "theirs")


def lines_of(folder: Path) -> Iterator[dict[str, object]]:
    yield from map(json.loads, (folder / "history.jsonl").read_text().splitlines())


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
def test_one_of_each_is_asked_for_by_name(site: Path, tmp_path: Path) -> None:
    """Only the workload sends, the fault is in the history, the cluster in run.json, and the run is valid, by
    a kill too. An ack is slow by a smaller bound; and the saved run can be read without the package."""
    ran = in_a_process("run", "--cluster", "staging", "--workload", "writers", "--nemesis", "flap,crash",
                       "--seed", 13, "--duration", 4, "--interval", 0.5, "--concurrency", 6, "--out", "run",
                       site=site, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    folder = tmp_path / "run"
    about = json.loads((folder / "run.json").read_text())
    assert (about["cluster"], about["workload"]) == ("staging", "writers")
    assert about["config"]["n1"]["replica.lag.time.max.ms"] == 4000
    lines = list(lines_of(folder))
    faults = [line["fault"] for line in lines if line["f"] == "flap"]
    assert faults, ran.stderr
    assert all(fault["times"] == 3 and fault["paused_ms"] == 300 for fault in faults)  # type: ignore[index]
    assert "poll" not in {line["f"] for line in lines if line["process"] in range(6)}
    assert {"kill", "flap"} <= {line["f"] for line in lines}
    stricter = tmp_path / "stricter"
    shutil.copytree(site, stricter)
    code = (stricter / "ours.py").read_text()
    (stricter / "ours.py").write_text(code.replace("> 5_000_000_000", "> 250_000"))
    checked = in_a_process("check", "run", site=stricter, cwd=tmp_path)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    verdict = json.loads((folder / "verdict.json").read_text())
    assert [found["name"] for found in verdict["findings"]] == ["slow-ack"]
    assert re.search(r": acked after 0\.\d+ s \(index \d+, \d+\)", checked.stdout), checked.stdout
    elsewhere = in_a_process("show", "run", site=tmp_path, cwd=tmp_path)
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert "slow-ack" in elsewhere.stdout


@pytest.mark.cluster
def test_a_schedule_and_a_cluster_take_them(site: Path, tmp_path: Path) -> None:
    """A fault of its own among floodmark's; an invalid one is refused before the run, by its place."""
    (tmp_path / "flap.json").write_text(json.dumps([{"f": "flap", "nodes": ["n1"], "lost": True}]))
    refused = floodmark("run", "--schedule", "flap.json", "--out", "run", site=site, cwd=tmp_path)
    assert (refused.code, "entry 0 (flap): has the key \"lost\"" in refused.err) == (2, True)
    elsewhere = floodmark("run", "--schedule", "flap.json", "--out", "run", site=tmp_path, cwd=tmp_path)
    assert (elsewhere.code, 'entry 0: f: is "flap"; valid: ' in elsewhere.err) == (2, True)
    assert not (tmp_path / "run").exists()


def test_help_doctor_and_explain_say_what_is_registered_and_by_whom(site: Path, tmp_path: Path) -> None:
    help_text = floodmark("run", "--help", site=site, cwd=tmp_path).out
    flat = " ".join(help_text.split())
    assert all(f"Also: {name} (of ours 0.1)." in flat for name in ("staging", "writers", "flap"))
    unknown = floodmark("run", "--workload", "bank", "--out", "run", site=site, cwd=tmp_path)
    assert (unknown.code, "writers (of ours 0.1)" in unknown.err) == (2, True)
    unknown = floodmark("run", "--nemesis", "gremlin", "--out", "run", site=site, cwd=tmp_path)
    assert (unknown.code, "flap (of ours 0.1)" in unknown.err) == (2, True)
    doctor = floodmark("doctor", "--cluster", "staging", "--json", "found.json", site=site, cwd=tmp_path)
    assert doctor.code == 0, doctor.out + doctor.err
    rows = {row["what"]: row for row in json.loads((tmp_path / "found.json").read_text())["found"]
            if row["part"] == "of other packages"}
    assert {what: row["can"] for what, row in rows.items()} == dict.fromkeys(
        ("workload writers", "nemesis flap", "cluster staging", "check slow-ack"), True)
    assert rows["workload writers"]["told"] == "ours 0.1, ours:Writers"
    assert "brought by ours 0.1" in floodmark("explain", "slow-ack", site=site, cwd=tmp_path).out


# -- unfit --------------------------------------------------------------------------------------------------

NEMESIS = """
from floodmark.harness.faults import Fault
from floodmark.harness.protocols import RegisteredNemesis
from floodmark.harness.schedule.patterns import FaultPattern, Step

def nemesis(*steps, faults=(), make=None):
    return RegisteredNemesis(does="", draw_pattern=lambda scope: FaultPattern(steps=steps), faults=faults,
                             make=make)
"""
UNFIT = {  # groups and code, the options, the answer
    "no module": ({"workloads": ["a = theirs:nope"]}, "", ("--workload", "a"),
                  "the workload 'a' of theirs 0.3 cannot be imported (theirs:nope): AttributeError"),
    "no import": ({"clusters": ["a = theirs:A"]}, "import not_there", ("--cluster", "a"),
                  "cannot be imported (theirs:A): ModuleNotFoundError: No module named 'not_there': repair "
                  "or uninstall that package"),
    "no nemesis": ({"nemeses": ["a = theirs:A"]}, "A = 5", ("--nemesis", "a"),
                   "the nemesis 'a' of theirs 0.3 is a int, should be a"),
    "raises": ({"workloads": ["a = theirs:A"]}, "A = lambda settings: 1 / 0", ("--workload", "a"),
               "the workload 'a' of theirs 0.3 cannot be made: ZeroDivisionError"),
    "no workload": ({"workloads": ["a = theirs:A"]}, "A = lambda settings: 5", ("--workload", "a"),
                    "is not a Workload of floodmark.harness.protocols: it lacks final_session, guarantees"),
    "own workload": ({"workloads": ["log = theirs:A"]}, "", ("--workload", "log"),
                     "floodmark has its own workload 'log', and there is the workload 'log' of theirs "
                     "0.3: uninstall that package, or rename it"),
    "own cluster": ({"clusters": ["local = theirs:A"]}, "", ("--cluster", "local"),
                    "floodmark has its own cluster"),
    "own nemesis": ({"nemeses": ["crash = theirs:A"]}, "", ("--nemesis", "crash"),
                    "floodmark has its own nemesis"),
    "own word": ({"nemeses": ["all = theirs:A"]}, "", ("--nemesis", "all"),
                 "floodmark has its own nemesis 'all'"),
    "two": ({"nemeses": ["a = theirs:A"]}, "", ("--nemesis", "a"),
            "there are 2 nemeses called 'a', of others 0.3 and of theirs 0.3: uninstall all but one"),
    "bad name": ({"nemeses": ["a-b = theirs:A"]}, "A = 5", ("--nemesis", "a-b"),
                 "the name of the nemesis 'a-b' of theirs 0.3 is not valid"),
    "not mended": ({"nemeses": ["a = theirs:A"]},
                   f"{NEMESIS}A = nemesis(Step(at_s=0, f='kill', nodes=('n1',)))", ("--nemesis", "a"),
                   "nothing undoes its kill n1: it needs a later step start"),
    "no node": ({"nemeses": ["a = theirs:A"]},
                f"{NEMESIS}A = nemesis(Step(at_s=0, f='expire', nodes=('n9',)))", ("--nemesis", "a"),
                "expire names 'n9'; the nodes are n1, n2, n3"),
    "no fault": ({"nemeses": ["a = theirs:A"]}, f"{NEMESIS}A = nemesis(Step(at_s=0, f='tickle'))",
                 ("--nemesis", "a"), "nemesis 'a' of theirs 0.3: entry 0: f: is \"tickle\"; valid: "),
    "a foreign fault": ({"nemeses": ["a = theirs:A"]},
                        f"{NEMESIS}A = nemesis(faults=(Fault(f='kill', does=''),), make=print)",
                        ("--nemesis", "a"), "has the fault 'kill': call its own faults 'a'"),
    "a lasting fault": ({"nemeses": ["a = theirs:A"]},
                        f"{NEMESIS}A = nemesis(faults=(Fault(f='a', does='', undone_by='b'),), make=print)",
                        ("--nemesis", "a"), "a fault of its own is over when its strike returns"),
    "beyond the budget": ({"nemeses": ["a = theirs:A"]},
                          f"{NEMESIS}A = nemesis(Step(at_s=0, f='elect', args={{'unclean': True}}))",
                          ("--nemesis", "a"), "an unclean election may lose acked writes"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_what_is_unfit_is_refused_by_whoever_asks_for_it(case: str, tmp_path: Path) -> None:
    groups, code, words, message = UNFIT[case]
    site = brings(tmp_path / "site", groups, code)
    if case == "two":
        brings(site, groups, code, name="others")

    asked = floodmark("run", *words, "--out", "run", site=site, cwd=tmp_path)

    assert asked.code == 2, asked.err
    assert message in " ".join(asked.err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.cluster
@pytest.mark.spark
def test_whoever_does_not_ask_for_them_does_not_notice(tmp_path: Path) -> None:
    """Names of floodmark's own, code that cannot be imported, two of one name, all in one site; and doctor
    lists each, with what to do."""
    groups = {"workloads": ["log = theirs:A", "a = theirs:A"],
              "nemeses": ["crash = theirs:A", "a = theirs:A"],
              "clusters": ["local = theirs:A", "a = theirs:A"]}
    site = brings(tmp_path / "site", groups, "raise RuntimeError('imported')")
    brings(site, groups, name="others")

    ran = floodmark("run", "--duration", 1, "--concurrency", 2, "--out", "run", site=site, cwd=tmp_path)
    doctor = floodmark("doctor", "--json", "found.json", site=site, cwd=tmp_path)

    assert (ran.code, "imported" in ran.err) == (0, False), ran.out + ran.err
    assert doctor.code == 0, doctor.out
    rows = [row for row in json.loads((tmp_path / "found.json").read_text())["found"]
            if row["part"] == "of other packages"]
    assert [row["can"] for row in rows] == [False] * 12
    assert {"uninstall" in row["todo"] for row in rows} == {True}
