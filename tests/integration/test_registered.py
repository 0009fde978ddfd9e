"""Workloads, nemeses, checks and clusters of another package: the page's example, installed, played, judged.

An unfit one is refused in a sentence, only by runs that ask for it. Budget and judge know whether a fault of
its nemesis may lose data.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command_line
import pytest
from command_line import Answer
from distributions import brings, forget
from readme import ROOT, block

from floodmark.checkers.judge.acts import is_grave
from floodmark.harness.errors import UsageError
from floodmark.harness.faults import loses
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.views import ActiveFaults
from floodmark.nemesis.random_plans import overspends
from floodmark.nemesis.strikes import nemeses_of

PAGE = ROOT / "harness" / "README.md"


@pytest.fixture(name="site", scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where pip has installed the page's package, without the network."""
    project = tmp_path_factory.mktemp("ours")
    (project / "pyproject.toml").write_text(block("# pyproject.toml", PAGE))
    (project / "ours.py").write_text(block("# ours.py", PAGE))
    site = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation",
                    "--disable-pip-version-check", "--target", site, project], check=True, timeout=120)
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
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    faults = [line["fault"] for line in lines if line["f"] == "flap"]
    assert faults, ran.stderr
    assert all(fault["times"] == 3 and fault["paused_ms"] == 300 for fault in faults)
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
STEP = f"{NEMESIS}A = nemesis(Step(at_s=0, %s))"
FAULT = f"{NEMESIS}A = nemesis(faults=(Fault(%s),), make=print)"
UNFIT = [  # the kind, the name, the code, what is said
    ("workload", "a", "", "the workload 'a' of theirs 0.3 cannot be imported (theirs:A): AttributeError"),
    ("cluster", "a", "import not_there",
     "(theirs:A): ModuleNotFoundError: No module named 'not_there': repair or uninstall that package"),
    ("nemesis", "a", "A = 5", "the nemesis 'a' of theirs 0.3 is a int, should be a"),
    ("workload", "a", "A = lambda settings: 1 / 0",
     "the workload 'a' of theirs 0.3 cannot be made: ZeroDivisionError"),
    ("workload", "a", "A = lambda settings: 5",
     "is not a Workload of floodmark.harness.protocols: it lacks final_session, guarantees"),
    ("workload", "log", "", "floodmark has its own workload 'log', and there is the workload 'log' of theirs "
     "0.3: uninstall that package, or rename it"),
    ("cluster", "local", "", "floodmark has its own cluster"),
    ("nemesis", "crash", "", "floodmark has its own nemesis"),
    ("nemesis", "all", "", "floodmark has its own nemesis 'all'"),
    ("nemesis", "two", "",
     "there are 2 nemeses called 'two', of others 0.3 and of theirs 0.3: uninstall all but one"),
    ("nemesis", "a-b", "A = 5", "the name of the nemesis 'a-b' of theirs 0.3 is not valid"),
    ("nemesis", "a", STEP % "f='kill', nodes=('n1',)",
     "nothing undoes its kill n1: it needs a later step start"),
    ("nemesis", "a", STEP % "f='expire', nodes=('n9',)", "expire names 'n9'; the nodes are n1, n2, n3"),
    ("nemesis", "a", STEP % "f='tickle'", "nemesis 'a' of theirs 0.3: entry 0: f: is \"tickle\"; valid: "),
    ("nemesis", "a", STEP % "f='elect', args={'unclean': True}", "an unclean election may lose acked writes"),
    ("nemesis", "a", FAULT % "f='kill', does=''", "has the fault 'kill': call its own faults 'a'"),
    ("nemesis", "a", FAULT % "f='a', does='', undone_by='b'",
     "a fault of its own is over when its strike returns"),
]


@pytest.mark.parametrize(("kind", "name", "code", "message"), UNFIT)
def test_what_is_unfit_is_refused_by_whoever_asks_for_it(
    tmp_path: Path, kind: str, name: str, code: str, message: str
) -> None:
    groups = {"nemeses" if kind == "nemesis" else f"{kind}s": [f"{name} = theirs:A"]}
    site = brings(tmp_path / "site", groups, code)
    if name == "two":
        brings(site, groups, code, name="others")
    asked = floodmark("run", f"--{kind}", name, "--out", "run", site=site, cwd=tmp_path)
    assert (asked.code, message in " ".join(asked.err.split())) == (2, True), asked.err
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


# -- a fault of a registered nemesis in a schedule ----------------------------------------------------------

ROT = """
from floodmark.harness.faults import Fault
from floodmark.harness.protocols import Pauses, RegisteredNemesis

ROT = RegisteredNemesis(does="", draw_pattern=print, make=print, needs=(Pauses,), faults=(
    Fault(f="rot", does="forget what was written", loses=True), Fault(f="rot_slowly", does="be slow")))
"""


@pytest.fixture
def rot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The nemesis rot is installed, for this process."""
    monkeypatch.syspath_prepend(brings(tmp_path, {"nemeses": ["rot = rotten:ROT"]}, ROT, name="rotten"))
    forget()
    yield
    monkeypatch.undo()
    forget("rotten")


@pytest.mark.parametrize(("entry", "message"), [
    ({"f": "rotting"}, 'f: is "rotting"; valid: '),
    ({"f": "rot", "lost": False}, 'has the key "lost", which the history uses itself'),
    ({"f": "rot", "share": float("nan")}, "which is not valid in JSON"),
    ({"f": "rot", "partition": -1}, "should be a whole number"),
])
def test_an_entry_that_no_nemesis_accepts_is_refused(
    rot: None, entry: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        json_form.read([entry])
    assert message in str(refused.value)


def test_a_loss_is_within_the_budget_only_on_one_node_of_a_healthy_cluster(rot: None) -> None:
    """A fault loses data if its nemesis declares it; to a judge, any that it does not know."""
    healthy = {"at": "state", "healthy": True}
    written = [{"f": "rot", "nodes": ["n1"], "share": 0.5, "of": ["log", 3], "moment": healthy},
               {"f": "rot_slowly", "moment": healthy}]
    near = json_form.read(written)
    assert json_form.write(near) == written
    hit = json_form.read([{"f": "rot", "nodes": ["n1"]}, {"f": "rot_slowly"}])
    assert (overspends(near), [one.position for one in overspends(hit)]) == ((), [0, 1])
    assert [loses(f, {}) for f in ("rot", "rot_slowly", "rotting", "kill")] == [True, False, False, False]
    assert ActiveFaults().after("rot", ["n1"]).lasting == ()
    assert [is_grave({"f": f}) for f in ("of-somebody-else", "kill", "send")] == [True, False, False]


def test_a_missing_ability_of_the_cluster_is_named_in_the_error(rot: None) -> None:
    bare: Any = SimpleNamespace(name="bare", lacks={}, abilities=())
    with pytest.raises(UsageError, match=r"nemesis 'rot' of rotten 0.3 cannot strike here: .*Pauses"):
        nemeses_of(json_form.read([{"f": "rot"}]), bare)
    assert nemeses_of(json_form.read([{"f": "heal"}]), bare) == ()
