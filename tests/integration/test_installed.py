"""floodmark as a user has it: a wheel, installed by pip into an environment that has no floodmark; there the
script lines of the files for CI servers in harness/campaign/README.md run as written, in an empty folder.

floodmark's dependencies are not fetched again, because they are half a gigabyte: the new environment finds
them where this one has them. test_house.py checks that all of them are declared.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest
import yaml
from command_line import floodmark
from namesakes import COMPLAINT, OURS, planted
from readme import ROOT, block

from floodmark.harness.campaign.plan import preset_text, presets, read
from floodmark.harness.cluster.fault_commands import read_fault_commands
from floodmark.harness.commands import run as run_command

FOLDERS = {".tree/main": ".", "harness": "harness", "nemesis": "nemesis", "checkers": "checkers",
           "workloads": "workloads", "docker/broker": "broker"}  # and where they are in the package
GITHUB, GITLAB = "# .github/workflows/floodmark.yml", "# .gitlab-ci.yml"
OWN, FAULTS = "# the steps for a cluster by compose", "# floodmark-faults.toml"
LINES_S = 600.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, without the files of other builds."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / "copy" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder / "copy")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
                    "--disable-pip-version-check", "--wheel-dir", folder, folder / "copy"], check=True,
                   timeout=120)
    (found,) = folder.glob("floodmark-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment, after the files' own line has installed floodmark there."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=True)
    programs, here = home / "bin", sysconfig.get_path("purelib")
    # A folder that a .pth file adds comes last, and its own .pth files are not read: so the editable
    # floodmark of this environment is not found.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{here}\n")
    folder = tmp_path_factory.mktemp("install")
    answer = ran(github_step("install"), folder, programs, FLOODMARK=str(wheel), PIP_NO_DEPS="1")
    assert answer.returncode == 0, answer.stderr
    assert (programs / "floodmark").exists()
    return programs


def test_all_files_of_the_packages_are_in_it(wheel: Path) -> None:
    """And floodmark is its only package."""
    there = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    left_out = {"prepare.sh"}  # it sets up a checkout
    ours = {str(Path("floodmark", name, file.relative_to(ROOT / folder)))
            for folder, name in FOLDERS.items() for file in (ROOT / folder).rglob("*")
            if file.is_file() and file.suffix != ".pyc" and file.name not in left_out
            and (file.suffix != ".md" or file.parent.name == "templates")}
    assert there == ours


@pytest.mark.long
def test_its_package_is_a_command(installed: Path, tmp_path: Path) -> None:
    """As the script: `python -m floodmark`."""
    command, python = installed / "floodmark", installed / "python"
    answers = [subprocess.run([*words, "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              check=False) for words in ([command], [python, "-m", "floodmark"])]
    assert [(one.returncode, one.stdout) for one in answers] == [(0, answers[0].stdout)] * 2


def test_no_module_is_loaded_under_two_names() -> None:
    """Neither here nor in a command that is started at the root of a checkout, where the folders are."""
    code = ("import runpy, sys\nsys.argv = ['floodmark', 'scenario', 'list']\n"
            "try:\n    runpy.run_module('floodmark.harness', run_name='__main__')\n"
            "finally:\n    print('loaded', *sys.modules)\n")
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
                         check=False)
    loaded = ran.stdout.rpartition("loaded")[2].split()
    assert "floodmark.harness.cli" in loaded, ran.stdout + ran.stderr
    assert [name for name in (*loaded, *sys.modules) if name.split(".")[0] in OURS] == []


# -- the files for CI servers ------------------------------------------------------------------------------


def github() -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load(block(GITHUB))["jobs"]["campaign"]
    return job


def gitlab() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(block(GITLAB))
    return jobs


def github_step(name: str) -> str:
    (step,) = [step for step in github()["steps"] if step.get("name") == name]
    return str(step["run"])


def ran(lines: str, folder: Path, programs: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs them as both servers do: by bash, which ends with the first line that fails. Packages of our names
    are in the folder, first on the path, as a user's checkout may have them."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", lines], cwd=folder, capture_output=True, text=True, timeout=LINES_S,
        check=False, env={**planted(folder), "PATH": path, "FLOODMARK_RUNS": "1", "KNOWN": "", "REASON": "",
                          "KAFKA": "", **variables})


def is_red(folder: Path) -> bool:
    (suite,) = ElementTree.parse(folder / "junit.xml").getroot()
    return int(suite.attrib["failures"]) + int(suite.attrib["errors"]) > 0


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("kafka", ["", pytest.param("4.3.1", marks=pytest.mark.kafka)])
def test_the_lines_run_as_they_stand(installed: Path, tmp_path: Path, kafka: str) -> None:
    """GitHub's lines, which GitLab's repeat (below); with the preset of a push, because a night's run takes
    longer."""
    answer = ran(github_step("run and gate"), tmp_path, installed, PRESET="smoke", KAFKA=kafka)
    assert answer.returncode in (0, 1, 3), answer.stderr
    assert COMPLAINT not in answer.stdout + answer.stderr
    assert is_red(tmp_path) == (answer.returncode != 0), answer.stdout
    assert (tmp_path / "summary.md").read_text().startswith("## floodmark: ")
    ledger = orjson.loads((tmp_path / "ledger" / "ledger.json").read_bytes())
    (night,) = ledger["campaigns"].values()
    assert [*night["runs"]] == [f"kafka-{kafka}+kip-320" if kafka else "kip-320"]
    assert answer.stdout.splitlines()[-1] == "histories/runs/campaign"
    assert (tmp_path / "histories" / "runs" / "campaign" / "index.html").exists()
    shown = ran(github_step("the page"), tmp_path, installed, GITHUB_STEP_SUMMARY=str(tmp_path / "page"))
    assert (shown.returncode, (tmp_path / "page").read_text()) == (0, (tmp_path / "summary.md").read_text())


@pytest.mark.long
def test_marking_by_hand(installed: Path, tmp_path: Path) -> None:
    """An unknown signature ends the job: a mark that fails is not ignored."""
    answer = ran(github_step("mark what is known"), tmp_path, installed, KNOWN="0123456789", REASON="KAFKA-1")
    assert (answer.returncode, "no signature '0123456789'" in answer.stderr) == (4, True), answer.stderr


def test_both_servers_do_the_same_for_a_push_and_a_night() -> None:
    assert [github_step("run and gate")] == gitlab()[".campaign"]["script"]
    assert [github_step("mark what is known")] == gitlab()["known"]["script"]
    assert github_step("install") in gitlab()[".floodmark"]["before_script"]
    kafka = github()["env"]["KAFKA"]
    assert gitlab()[".floodmark"]["variables"]["KAFKA"] == kafka
    asked = [gitlab()[name]["variables"]["PRESET"] for name in ("gate", "night")]
    assert asked == ["smoke", "nightly"]
    for preset in asked:
        assert preset in {*presets()} & {*presets(kafka)}
        assert f"'{preset}'" in github()["env"]["PRESET"]
    for version in (None, kafka):
        smoke, nightly = (read(preset_text(preset, version), preset).budget_s or 0 for preset in asked)
        assert smoke < 600
        assert nightly < 60 * github()["timeout-minutes"]
        assert smoke < 60 * int(gitlab()["gate"]["timeout"].rstrip("m"))
        assert nightly < 3600 * int(gitlab()["night"]["timeout"].rstrip("h"))


def test_the_steps_for_an_own_cluster_are_valid(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options, and the file of faults; nothing is run."""
    monkeypatch.chdir(tmp_path)
    Path(FAULTS.removeprefix("# ")).write_text(block(FAULTS))
    read_fault_commands(Path(FAULTS.removeprefix("# ")))
    assert tomllib.loads(block(FAULTS))["commands"].keys() >= {"kill", "start", "pause", "resume"}
    asked = []
    monkeypatch.setattr(run_command, "run_and_judge", lambda spec, **_: asked.append(spec) or 0)
    (step,) = yaml.safe_load(block(OWN))
    up, run = step["run"].strip().splitlines()
    assert up.startswith("docker compose up")
    assert floodmark(*shlex.split(run)[1:]).code == 0
    (spec,) = asked
    assert (spec.bootstrap, spec.may_break) == ("localhost:9092", True)
    assert spec.faults_file == Path(FAULTS.removeprefix("# "))
